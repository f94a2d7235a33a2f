//! Services that the sign-ins and the tokens share, with calls of the issuer that have a time limit.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::error::{AgentError, AgentErrorKind};
use futures_util::future::{self, Either};
use jiff::Timestamp;

use super::authority::{CodingAuthority, CodingAuthorityError, IssuedTokens, TokenHint};
use super::subscriber::Subscriber;
use crate::records::Records;
use crate::seal::Sealer;
use crate::spawner::Spawner;

/// Maximum delay of a timer. Beyond it, the process counts as suspended.
const MAX_TIMER_DELAY: Duration = Duration::from_secs(1);
/// Time for reading an answer that has arrived while the process was stopped.
const OVERDUE_READ_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum duration of a revocation.
pub(super) const REVOKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Services that the sign-ins and the tokens share.
#[derive(Clone)]
pub struct CodingServices {
    /// Store of the records.
    pub records: Arc<dyn Records>,
    /// Seals tokens, codes and account ids.
    pub sealer: Arc<Sealer>,
    /// Source of time and timers.
    pub clock: Arc<dyn Clock>,
    /// The issuer of the tokens.
    pub authority: Arc<dyn CodingAuthority>,
    /// Runs tasks that outlive their callers.
    pub spawner: Arc<dyn Spawner>,
}

impl std::fmt::Debug for CodingServices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodingServices").finish_non_exhaustive()
    }
}

impl CodingServices {
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or_default()
    }

    /// Awaits a call of the authority, for `limit` at most.
    pub(super) async fn call<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, CodingAuthorityError>> + Send,
    ) -> Result<T, CodingAuthorityError> {
        let mut call = std::pin::pin!(call);
        let deadline = self.clock.monotonic() + limit;
        if let Either::Left((answer, _)) = future::select(call.as_mut(), self.clock.sleep(limit)).await {
            return answer;
        }
        // The timers of a process that was stopped end before its sockets are read.
        if self.clock.monotonic() > deadline + MAX_TIMER_DELAY
            && let Either::Left((answer, _)) =
                future::select(call, self.clock.sleep(OVERDUE_READ_TIMEOUT)).await
        {
            return answer;
        }
        let message = "the agent runtime did not answer in time";
        let error = AgentError::new(AgentErrorKind::Timeout, message);
        Err(CodingAuthorityError::Unanswered(Arc::new(error)))
    }

    /// Revokes tokens that are not stored, or no longer. A failure is logged and changes nothing.
    pub(super) async fn revoke(&self, subscriber: &Subscriber, tokens: &IssuedTokens) {
        let (token, hint) = match &tokens.refresh_token {
            Some(token) => (token, TokenHint::RefreshToken),
            None => (&tokens.access_token, TokenHint::AccessToken),
        };
        let Subscriber { company_id, user_id } = subscriber;
        match self.call(REVOKE_TIMEOUT, self.authority.revoke(token, hint)).await {
            Ok(revoked) => {
                tracing::info!(%company_id, %user_id, revoked, "a subscription's tokens were revoked")
            }
            Err(error) => {
                tracing::warn!(%company_id, %user_id, %error, "a subscription's tokens could not be revoked");
            }
        }
    }
}
