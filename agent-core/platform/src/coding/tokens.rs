//! Access to a user's tokens.

use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::{CompanyId, UserId};
use jiff::Timestamp;

use super::MAX_TASKS;
use super::access_token::{AccessToken, CodingTokenError, SignInReason, SubscriptionState};
use super::authority::IssuedTokens;
use super::limits::{LimitTable, SubscriptionLimits};
use super::refresh::Refresh;
use super::services::CodingServices;
use super::stored::{StoredTokens, sealed};
use super::subscriber::Subscriber;
use super::tasks::SharedTasks;
use crate::records::{Precondition, Record, StoreError};

/// Number of times that a caller joins a refresh that had started before its own token was rejected.
const REFRESH_ATTEMPTS: usize = 3;

/// Users' tokens. Clones share the running refreshes and the limits.
///
/// A refresh is a task of this type and not of the caller that needs it: a caller that leaves does not cancel it. In a
/// process there is at most one for each user, and between the processes of a store a lease decides.
#[derive(Clone)]
pub struct CodingTokens(Arc<TokenService>);

impl std::fmt::Debug for CodingTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodingTokens").finish_non_exhaustive()
    }
}

struct TokenService {
    services: CodingServices,
    refreshes: SharedTasks<Subscriber, Result<AccessToken, CodingTokenError>>,
    revocations: SharedTasks<(Subscriber, u64), ()>,
    limits: LimitTable,
}

/// Status of a user's subscription, without secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct SubscriptionStatus {
    /// True if there are tokens.
    pub is_signed_in: bool,
    /// State of the sign-in.
    pub state: SubscriptionState,
    /// Name of the plan.
    pub plan: Option<String>,
    /// The last four characters of the account id.
    pub account_end: Option<String>,
    /// Expiry of the access token, which is refreshed before.
    pub expires_at: Option<Timestamp>,
    /// Time of the latest refresh or sign-in.
    pub refreshed_at: Option<Timestamp>,
    /// The vendor's limits, as of the latest answer in this process.
    pub limits: Option<SubscriptionLimits>,
}

impl CodingTokens {
    /// Creates the access to the tokens of a store.
    pub fn new(services: CodingServices) -> Self {
        let (refreshing, revoking) = (services.spawner.clone(), services.spawner.clone());
        Self(Arc::new(TokenService {
            services,
            refreshes: SharedTasks::new(refreshing, MAX_TASKS),
            revocations: SharedTasks::new(revoking, MAX_TASKS),
            limits: LimitTable::default(),
        }))
    }

    /// Returns the user's access token, refreshed if it expires within five minutes.
    ///
    /// # Errors
    /// [`CodingTokenError::SignInRequired`] without a valid sign-in; the other errors are temporary.
    pub async fn access(
        &self,
        company_id: &CompanyId,
        user_id: &UserId,
    ) -> Result<AccessToken, CodingTokenError> {
        self.token(Subscriber::new(company_id, user_id), None).await
    }

    /// Returns an access token after the vendor has rejected the one of `generation`: a newer one if there is one, or
    /// else a refreshed one.
    ///
    /// # Errors
    /// As [`access`](Self::access).
    pub async fn refresh_after_rejection(
        &self,
        company_id: &CompanyId,
        user_id: &UserId,
        generation: u64,
    ) -> Result<AccessToken, CodingTokenError> {
        self.token(Subscriber::new(company_id, user_id), Some(generation)).await
    }

    async fn token(
        &self,
        subscriber: Subscriber,
        rejected: Option<u64>,
    ) -> Result<AccessToken, CodingTokenError> {
        let services = &self.0.services;
        for _ in 0..REFRESH_ATTEMPTS {
            let Some(Record { value: stored, .. }) = services.read_tokens(&subscriber).await? else {
                return Err(CodingTokenError::SignInRequired(SignInReason::NotSignedIn));
            };
            let is_rejected = rejected == Some(stored.generation);
            if stored.access.is_none() || (!is_rejected && stored.is_fresh(services.now())) {
                return services.access_token(&subscriber, &stored);
            }
            let refresh = Refresh::new(services.clone(), subscriber.clone(), stored.generation);
            let refreshed = match self.0.refreshes.run(subscriber.clone(), refresh.run()).await {
                Ok(outcome) => outcome.value,
                Err(error) => Err(error.into()),
            };
            match refreshed {
                // The refresh had started before the rejection of the token that it has returned.
                Ok(token) if rejected == Some(token.generation) => {}
                Err(error) if error.is_temporary() && !is_rejected && stored.is_usable(services.now()) => {
                    return services.access_token(&subscriber, &stored);
                }
                refreshed => return refreshed,
            }
        }
        Err(CodingTokenError::Busy)
    }

    /// Forgets the user's tokens, and then revokes them at the issuer. A failure of the revocation is logged and
    /// changes nothing. Returns false if there were no tokens.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn sign_out(&self, company_id: &CompanyId, user_id: &UserId) -> Result<bool, StoreError> {
        let subscriber = Subscriber::new(company_id, user_id);
        let services = self.0.services.clone();
        self.0.limits.remove(&subscriber);
        let key = subscriber.tokens_key()?;
        let Record { version, value: stored, .. } = loop {
            let Some(found) = services.read_tokens(&subscriber).await? else { return Ok(false) };
            match services.records.delete(&key, Precondition::Version(found.version)).await {
                Ok(_) => break found,
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        };
        tracing::info!(%company_id, %user_id, generation = stored.generation, "signed out of a subscription");
        if let Some(tokens) = open_for_revocation(&services, &subscriber, &stored) {
            let revoked = subscriber.clone();
            let revocation = async move { services.revoke(&revoked, &tokens).await };
            // The stored tokens are deleted, also if the revocation fails.
            let _ = self.0.revocations.run((subscriber, version), revocation).await;
        }
        Ok(true)
    }

    /// Returns the status of the user's subscription.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn status(
        &self,
        company_id: &CompanyId,
        user_id: &UserId,
    ) -> Result<SubscriptionStatus, StoreError> {
        let (subscriber, services) = (Subscriber::new(company_id, user_id), &self.0.services);
        let Some(Record { value: stored, .. }) = services.read_tokens(&subscriber).await? else {
            return Ok(SubscriptionStatus::signed_out());
        };
        let token = services.access_token(&subscriber, &stored).ok();
        let account = token.as_ref().and_then(|token| token.account_id.as_ref());
        let is_signed_in = token.is_some();
        Ok(SubscriptionStatus {
            is_signed_in,
            state: if is_signed_in { SubscriptionState::Ok } else { SubscriptionState::SignInRequired },
            plan: stored.plan,
            account_end: account.map(|account| last_characters(account.expose(), 4)),
            expires_at: is_signed_in.then_some(stored.access_expires_at),
            refreshed_at: Some(stored.refreshed_at),
            limits: self.0.limits.get(&subscriber).filter(|_| is_signed_in),
        })
    }

    /// Keeps the limits that the vendor has reported with an answer to the user, in memory. Limits without a window and
    /// without credits are ignored.
    pub fn record_limits(&self, company_id: &CompanyId, user_id: &UserId, limits: SubscriptionLimits) {
        if limits != SubscriptionLimits::default() {
            self.0.limits.insert(Subscriber::new(company_id, user_id), limits);
        }
    }

    /// Keeps the limits that the vendor has reported within an answer to the user. Those that it has not reported stay.
    pub fn update_limits(&self, company_id: &CompanyId, user_id: &UserId, limits: SubscriptionLimits) {
        if limits != SubscriptionLimits::default() {
            self.0.limits.update(Subscriber::new(company_id, user_id), limits);
        }
    }

    /// Waits until no refresh and no revocation is running, for the end of the process.
    pub async fn drain(&self) {
        self.0.refreshes.drain().await;
        self.0.revocations.drain().await;
    }
}

impl SubscriptionStatus {
    fn signed_out() -> Self {
        Self {
            is_signed_in: false,
            state: SubscriptionState::SignInRequired,
            plan: None,
            account_end: None,
            expires_at: None,
            refreshed_at: None,
            limits: None,
        }
    }
}

/// Opens the tokens of a deleted record. Those that cannot be opened cannot be revoked.
fn open_for_revocation(
    services: &CodingServices,
    subscriber: &Subscriber,
    stored: &StoredTokens,
) -> Option<IssuedTokens> {
    let open = |field: &str, sealed: &Option<String>| {
        sealed.as_ref().and_then(|sealed| services.open(subscriber, field, sealed).ok())
    };
    Some(IssuedTokens {
        access_token: open(sealed::ACCESS, &stored.access)?,
        refresh_token: open(sealed::REFRESH, &stored.refresh),
        expires_in: Duration::ZERO,
        account_id: None,
        plan: None,
    })
}

/// Returns the last characters of a text that is longer than twice their number; others would be shown almost whole.
fn last_characters(text: &str, count: usize) -> String {
    let length = text.chars().count();
    let skipped = if length > 2 * count { length - count } else { length };
    text.chars().skip(skipped).collect()
}
