//! Users' sign-ins to their own subscriptions, and the tokens.

use std::sync::Arc;

use agent_core::clock::Clock;
use agent_platform::coding::{CodingAuthority, CodingServices, CodingTokens, SignIns};
use agent_platform::records::Records;
use agent_platform::seal::Sealer;
use agent_platform::spawner::Spawner;

use crate::error::HttpError;

/// Service of users' own subscriptions: their sign-ins and tokens.
pub struct SubscriptionService {
    services: Result<(SignIns, CodingTokens), &'static str>,
    is_allowed_unattended: bool,
}

/// Configuration of a [`SubscriptionService`].
pub struct SubscriptionServiceConfig {
    /// The issuer, which is reached through the operator's runtime; `None` without `RUNTIME_URL`.
    pub authority: Option<Arc<dyn CodingAuthority>>,
    /// Store of sign-ins and tokens.
    pub records: Arc<dyn Records>,
    /// Seals them under `DATA_SECRET`.
    pub sealer: Arc<Sealer>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Runs the tasks that outlive a request, on a runtime that lives as long as the process.
    pub spawner: Arc<dyn Spawner>,
    /// Allows jobs and proactive calls to use the subscription of the user for whom they run.
    pub is_allowed_unattended: bool,
}

impl SubscriptionService {
    /// Creates the sign-ins and the tokens of the application.
    pub fn new(config: SubscriptionServiceConfig) -> Self {
        let SubscriptionServiceConfig { authority, records, sealer, clock, spawner, is_allowed_unattended } =
            config;
        let services = match authority {
            None => Err("RUNTIME_URL"),
            Some(_) if !sealer.has_key() => Err("DATA_SECRET"),
            Some(authority) => {
                let services = CodingServices { records, sealer, clock, authority, spawner };
                Ok((SignIns::new(services.clone()), CodingTokens::new(services)))
            }
        };
        Self { services, is_allowed_unattended }
    }

    /// Returns the users' tokens.
    ///
    /// # Errors
    /// The name of the missing setting.
    pub fn tokens(&self) -> Result<&CodingTokens, &'static str> {
        self.services.as_ref().map(|(_, tokens)| tokens).map_err(|setting| *setting)
    }

    /// Returns true if jobs and proactive calls may use the subscription of the user for whom they run
    /// (`CODING_UNATTENDED`).
    pub fn is_allowed_unattended(&self) -> bool {
        self.is_allowed_unattended
    }

    /// Stops polling for sign-ins in the background, when the process begins to stop.
    pub fn stop(&self) {
        if let Ok((sign_ins, _)) = &self.services {
            sign_ins.stop();
        }
    }

    /// Waits for the running calls of the issuer, since an answer that is not stored ends a sign-in.
    pub async fn drain(&self) {
        if let Ok((sign_ins, tokens)) = &self.services {
            sign_ins.drain().await;
            tokens.drain().await;
        }
    }

    /// Returns the sign-ins and the tokens.
    ///
    /// # Errors
    /// 503 with the name of the missing setting.
    pub(in crate::app) fn open(&self) -> Result<(&SignIns, &CodingTokens), HttpError> {
        match &self.services {
            Ok((sign_ins, tokens)) => Ok((sign_ins, tokens)),
            Err(setting) => Err(HttpError::not_configured(setting)),
        }
    }
}
