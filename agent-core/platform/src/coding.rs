//! Users' own subscriptions to a model vendor: sign-in by device code (RFC 8628), tokens at rest, and their refresh.
//!
//! Each user signs in to a subscription, and only turns of that user use its tokens. The vendor's issuer is
//! reached through [`CodingAuthority`]; this module sends nothing itself.
//!
//! Two records of the company hold everything, so that processes that share a store share it too:
//!
//! - `codingSignIns/{userId}`: the user's recent sign-ins. A poll of the issuer is claimed by moving `nextPollAt` on
//!   with the record's version as precondition, so that two processes never poll at once and a restart needs no sweep.
//! - `codingTokens/{userId}`: the tokens, with a generation and the lease of the process that refreshes them.
//!
//! Refresh tokens are single-use: an answer of the issuer that is not stored ends the sign-in. Every call whose answer
//! has tokens is therefore a separate task, which a caller that leaves does not cancel, and tokens are stored before
//! they are used.
//!
//! Tokens, device codes, user codes and account ids are sealed at rest ([`Sealer`](crate::seal::Sealer)) and never logged.

mod access_token;
mod authority;
mod limits;
mod poll;
mod refresh;
mod rotation;
mod services;
mod sign_in;
mod sign_in_state;
mod sign_ins;
mod stored;
mod subscriber;
mod tasks;
mod tokens;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::ids::{CompanyId, UserId};
use jiff::Timestamp;

use crate::records::{Precondition, Records, StoreError, Write};

pub use access_token::{AccessToken, CodingTokenError, SignInReason, SubscriptionState};
pub use authority::{
    CodingAuthority, CodingAuthorityError, DeviceCode, InvalidGrantReason, IssuedTokens, TokenHint,
};
pub use limits::{Credits, LimitWindow, SubscriptionLimits};
pub use rotation::rotate_secrets;
pub use services::CodingServices;
pub use sign_in::{SignInStatus, SignInView, SignIns};
pub use sign_in_state::{BegunSignIn, SignInError};
pub use sign_ins::{MAX_SIGN_INS_PER_HOUR, expire_sign_ins};
pub use subscriber::{SIGN_IN_COLLECTION, TOKEN_COLLECTION};
pub use tokens::{CodingTokens, SubscriptionStatus};

use subscriber::Subscriber;

/// Maximum duration of a call of the authority whose answer may have tokens. It is below [`LEASE`], so that a running
/// process holds its lease for the whole call.
const CALL_TIMEOUT: Duration = Duration::from_secs(25);
/// Time after the check of its lease within which a refresh sends its token.
const SEND_TIMEOUT: Duration = Duration::from_secs(4);
/// Validity of a lease: the time after which another process may take over from one that was killed.
const LEASE: Duration = Duration::from_secs(30);
/// Pause between two reads of a record that another process is about to change.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time of waiting for another process.
const LEASE_WAIT_TIMEOUT: Duration = Duration::from_secs(35);
/// Attempts to store tokens while the store is unavailable, a second apart. They are below [`LEASE`] in total.
const STORE_ATTEMPTS: usize = 10;
/// Pause between two of these attempts.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// Maximum number of tasks of each kind in a process.
const MAX_TASKS: usize = 10_000;

/// Path of the application at which a user signs in.
pub const SIGN_IN_PATH: &str = "/api/coding/sign-in";

/// Creates the error of a user without a valid sign-in, with [`SIGN_IN_PATH`].
pub fn sign_in_required(message: impl Into<Cow<'static, str>>) -> AgentError {
    AgentError::new(AgentErrorKind::SignInRequired, message).with_member("signIn", SIGN_IN_PATH)
}

/// Deletes the sign-ins and tokens of a user's subscription, and returns true if there was anything.
/// A process that is about to store new tokens revokes them instead.
///
/// # Errors
/// Errors of the store.
pub async fn delete_subscription(
    records: &dyn Records,
    company_id: &CompanyId,
    user_id: &UserId,
) -> Result<bool, StoreError> {
    let subscriber = Subscriber::new(company_id, user_id);
    let keys = [subscriber.sign_ins_key()?, subscriber.tokens_key()?];
    let deletions = keys.map(|key| Write::Delete { key, precondition: Precondition::Any });
    let deleted = records.commit(deletions.into()).await?;
    Ok(deleted.iter().any(Option::is_some))
}

/// Returns the time from `now` to `time`; zero if it has passed.
fn until(time: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(now)).unwrap_or_default()
}
