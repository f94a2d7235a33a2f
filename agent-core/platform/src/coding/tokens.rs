//! Access to a user's tokens.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::ids::{CompanyId, UserId};
use agent_core::secret::Secret;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::authority::{CodingAuthorityError, InvalidGrantReason, IssuedTokens};
use super::limits::{LimitTable, SubscriptionLimits};
use super::refresh::Refresh;
use super::stored::{StoredTokens, sealed};
use super::tasks::{SharedTasks, TaskError};
use super::{CodingServices, MAX_TASKS, Subscriber, sign_in_required};
use crate::records::{Precondition, Record, StoreError};

/// Number of times that a caller joins a refresh that had begun before its own token was rejected.
const REFRESH_ATTEMPTS: usize = 3;

/// Users' tokens. Clones share the running refreshes and the limits.
///
/// A refresh is a task of this type and not of the caller that needs it: a caller that leaves does not cancel it. In a
/// process there is at most one for each user, and between the processes of a store a lease decides.
#[derive(Clone)]
pub struct CodingTokens(Arc<Inner>);

struct Inner {
    services: CodingServices,
    refreshes: SharedTasks<Subscriber, Result<AccessToken, CodingTokenError>>,
    revocations: SharedTasks<(Subscriber, u64), ()>,
    limits: LimitTable,
}

/// Access token of a user's subscription.
#[derive(Debug, Clone)]
pub struct AccessToken {
    /// The token, for requests to the vendor.
    pub token: Secret,
    /// The user's account at the vendor.
    pub account_id: Option<Secret>,
    /// Number of the token; see [`CodingTokens::refresh_after_rejection`].
    pub generation: u64,
}

/// State of a user's subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SubscriptionState {
    /// The user is signed in.
    Ok,
    /// The user must sign in, again if there was a sign-in.
    SignInRequired,
}

/// Reason for which a user must sign in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SignInReason {
    /// The user is not signed in.
    NotSignedIn,
    /// The issuer has ended the sign-in.
    Ended(InvalidGrantReason),
    /// A refresh was interrupted between the issuer's answer and its storage.
    CutOff,
    /// The stored tokens cannot be decrypted.
    Unreadable,
    /// The vendor has rejected two access tokens in a row.
    Rejected,
}

impl fmt::Display for SignInReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSignedIn => "the agent answers by your own subscription: sign in to it first",
            Self::Ended(_) => "the sign-in to your subscription has ended: sign in again",
            Self::CutOff => "the sign-in to your subscription was cut off during its renewal: sign in again",
            Self::Unreadable => "the sign-in to your subscription cannot be decrypted: sign in again",
            Self::Rejected => "the vendor rejects the sign-in to your subscription: sign in again",
        })
    }
}

/// Error of getting an access token.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CodingTokenError {
    /// The user must sign in.
    #[error("{0}")]
    SignInRequired(SignInReason),
    /// The tokens cannot be refreshed now; they stay as they are.
    #[error("the subscription's tokens could not be refreshed")]
    Issuer(#[source] CodingAuthorityError),
    /// Another process refreshes the tokens for too long, too many refreshes run, or the process stops.
    #[error("the subscription's tokens are being refreshed; try again later")]
    Busy,
    /// The store failed.
    #[error("the subscription's tokens could not be read or written")]
    Store(#[source] Arc<StoreError>),
}

impl CodingTokenError {
    /// Returns true if the tokens are unaffected, so that an access token that is still valid can be used.
    fn is_temporary(&self) -> bool {
        matches!(self, Self::Issuer(_) | Self::Busy)
    }
}

impl From<StoreError> for CodingTokenError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl From<TaskError> for CodingTokenError {
    fn from(_: TaskError) -> Self {
        Self::Busy
    }
}

impl From<CodingTokenError> for AgentError {
    fn from(error: CodingTokenError) -> Self {
        let kind = match &error {
            CodingTokenError::Issuer(error) => return error.to_agent_error(),
            CodingTokenError::SignInRequired(_) => {
                return sign_in_required(error.to_string());
            }
            CodingTokenError::Busy => AgentErrorKind::Timeout,
            CodingTokenError::Store(error) => match **error {
                StoreError::NotConfigured(_) => AgentErrorKind::NotConfigured,
                StoreError::Unavailable(_) => AgentErrorKind::StoreUnavailable,
                _ => AgentErrorKind::Internal,
            },
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
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
        Self(Arc::new(Inner {
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

    async fn token(&self, who: Subscriber, rejected: Option<u64>) -> Result<AccessToken, CodingTokenError> {
        let services = &self.0.services;
        for _ in 0..REFRESH_ATTEMPTS {
            let Some(Record { value: stored, .. }) = services.read_tokens(&who).await? else {
                return Err(CodingTokenError::SignInRequired(SignInReason::NotSignedIn));
            };
            let is_rejected = rejected == Some(stored.generation);
            if stored.access.is_none() || (!is_rejected && stored.is_fresh(services.now())) {
                return services.access_token(&who, &stored);
            }
            let refresh = Refresh::new(services.clone(), who.clone(), stored.generation);
            let refreshed = match self.0.refreshes.run(who.clone(), refresh.run()).await {
                Ok(outcome) => outcome.value,
                Err(error) => Err(error.into()),
            };
            match refreshed {
                // The refresh had begun before the rejection of the token that it has returned.
                Ok(token) if rejected == Some(token.generation) => {}
                Err(error) if error.is_temporary() && !is_rejected && stored.is_usable(services.now()) => {
                    return services.access_token(&who, &stored);
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
        let who = Subscriber::new(company_id, user_id);
        let services = self.0.services.clone();
        self.0.limits.remove(&who);
        let key = who.tokens_key()?;
        let Record { version, value: stored, .. } = loop {
            let Some(found) = services.read_tokens(&who).await? else { return Ok(false) };
            match services.records.delete(&key, Precondition::Version(found.version)).await {
                Ok(_) => break found,
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        };
        tracing::info!(%company_id, %user_id, generation = stored.generation, "signed out of a subscription");
        if let Some(tokens) = open_for_revocation(&services, &who, &stored) {
            let revoked = who.clone();
            let revocation = async move { services.revoke(&revoked, &tokens).await };
            // The tokens are forgotten, whatever becomes of the task.
            let _ = self.0.revocations.run((who, version), revocation).await;
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
        let (who, services) = (Subscriber::new(company_id, user_id), &self.0.services);
        let Some(Record { value: stored, .. }) = services.read_tokens(&who).await? else {
            return Ok(SubscriptionStatus::signed_out());
        };
        let token = services.access_token(&who, &stored).ok();
        let account = token.as_ref().and_then(|token| token.account_id.as_ref());
        let is_signed_in = token.is_some();
        Ok(SubscriptionStatus {
            is_signed_in,
            state: if is_signed_in { SubscriptionState::Ok } else { SubscriptionState::SignInRequired },
            plan: stored.plan,
            account_end: account.map(|account| last_characters(account.expose(), 4)),
            expires_at: is_signed_in.then_some(stored.access_expires_at),
            refreshed_at: Some(stored.refreshed_at),
            limits: self.0.limits.get(&who).filter(|_| is_signed_in),
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
    who: &Subscriber,
    stored: &StoredTokens,
) -> Option<IssuedTokens> {
    let open = |field: &str, sealed: &Option<String>| {
        sealed.as_ref().and_then(|sealed| services.open(who, field, sealed).ok())
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
