//! Record of a user's tokens.

use std::time::{Duration, Instant};

use agent_core::secret::Secret;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::access_token::{AccessToken, CodingTokenError, SignInReason, SubscriptionState};
use super::authority::{CodingAuthorityError, InvalidGrantReason, IssuedTokens};
use super::services::CodingServices;
use super::subscriber::Subscriber;
use super::{CALL_TIMEOUT, LEASE};
use crate::records::{Key, Precondition, Record, RecordsExt, StoreError, Write, to_json};
use crate::time::saturating_after;

/// Names of sealed fields, which are part of the associated data that a value is bound to.
pub(super) mod sealed {
    pub(in super::super) const ACCESS: &str = "access";
    pub(in super::super) const REFRESH: &str = "refresh";
    pub(in super::super) const ACCOUNT: &str = "account";
    pub(in super::super) const DEVICE_CODE: &str = "deviceCode";
    pub(in super::super) const USER_CODE: &str = "userCode";
}

/// Remaining lifetime below which an access token is refreshed before it is used.
const MIN_FRESH_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// Minimum remaining lifetime of an access token that is still used if it cannot be refreshed.
const MIN_USABLE_LIFETIME: Duration = Duration::from_secs(30);

/// Stored tokens of a user.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredTokens {
    /// Number of the tokens. It changes with each sign-in and each refresh, and is not reused.
    pub(super) generation: u64,
    /// The sign-in that the tokens come from; distinguishes a refresh from a new sign-in.
    pub(super) sign_in_id: String,
    pub(super) state: SubscriptionState,
    /// Reason why the sign-in has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended: Option<SignInReason>,
    /// Sealed access token; absent after the end of the sign-in, like the refresh token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) access: Option<String>,
    /// Sealed refresh token, if the issuer returned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh: Option<String>,
    /// Sealed account id, if the issuer returned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) plan: Option<String>,
    pub(super) access_expires_at: Timestamp,
    pub(super) refreshed_at: Timestamp,
    /// Lease of the task that refreshes the tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lease: Option<Lease>,
    /// True if the refresh token may have been used without its answer having arrived.
    #[serde(default)]
    pub(super) is_unsure: bool,
}

/// Right of one task to refresh the tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lease {
    /// Identity of the task.
    by: String,
    until: Timestamp,
}

impl Lease {
    pub(super) fn new(by: &str, now: Timestamp) -> Self {
        Self { by: by.to_owned(), until: saturating_after(now, LEASE) }
    }

    /// Returns true if the task `id` holds the lease.
    fn is_held_by(&self, id: &str) -> bool {
        self.by == id
    }

    /// Returns true if the lease lasts for a whole call, by this process's clock. If the clock was set back since the
    /// lease was taken, its end is unknown: it counts as ended.
    fn covers_call(&self, now: Timestamp) -> bool {
        self.until >= saturating_after(now, CALL_TIMEOUT) && self.until <= saturating_after(now, LEASE)
    }
}

/// Observation of the leases of other tasks.
///
/// The end of a lease is a time of its holder's clock. If that clock is ahead, the lease ends too late by this process's
/// clock; if a clock was set back after the lease was taken, much too late. So a lease also ends once it was seen
/// unchanged for the duration of a lease: no call of its holder lasts longer.
#[derive(Debug, Default)]
pub(super) struct LeaseWatch {
    /// The lease that was seen last, and the monotonic time at which it was seen first.
    seen: Option<(Lease, Instant)>,
}

impl LeaseWatch {
    /// Returns true if a task other than `own_id` holds the lease of the tokens.
    pub(super) fn is_held(
        &mut self,
        tokens: &StoredTokens,
        own_id: &str,
        now: Timestamp,
        monotonic: Instant,
    ) -> bool {
        let lease = tokens.lease.as_ref().filter(|lease| lease.until > now && !lease.is_held_by(own_id));
        let Some(lease) = lease else { return false };
        match &self.seen {
            Some((seen, since)) if seen == lease => monotonic.duration_since(*since) < LEASE,
            _ => {
                self.seen = Some((lease.clone(), monotonic));
                true
            }
        }
    }
}

impl StoredTokens {
    /// Returns true if the access token can be used without a refresh: for five minutes, or to its end if there is no
    /// refresh token.
    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        let margin = if self.refresh.is_some() { MIN_FRESH_LIFETIME } else { Duration::ZERO };
        self.access_expires_at > saturating_after(now, margin)
    }

    /// Returns true if the access token can still be used if it cannot be refreshed.
    pub(super) fn is_usable(&self, now: Timestamp) -> bool {
        self.access_expires_at > saturating_after(now, MIN_USABLE_LIFETIME)
    }

    /// Returns true if the task `id` holds the lease for a whole call, by this process's clock.
    pub(super) fn is_leased_by(&self, id: &str, now: Timestamp) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.is_held_by(id) && lease.covers_call(now))
    }

    /// Returns the record of a sign-in that the issuer has ended.
    pub(super) fn end(self, reason: SignInReason) -> Self {
        Self {
            state: SubscriptionState::SignInRequired,
            ended: Some(reason),
            access: None,
            refresh: None,
            lease: None,
            is_unsure: false,
            ..self
        }
    }

    /// Returns the reason why a refused refresh token ends the sign-in. One that was used by a call whose answer
    /// never arrived was cut off, rather than stolen.
    pub(super) fn end_reason(&self, fault: InvalidGrantReason) -> SignInReason {
        match fault {
            InvalidGrantReason::Reused if self.is_unsure => SignInReason::CutOff,
            fault => SignInReason::Ended(fault),
        }
    }
}

/// Issued tokens in stored form.
#[derive(Debug, Clone)]
pub(super) struct SealedTokens {
    access: String,
    refresh: Option<String>,
    account: Option<String>,
    plan: Option<String>,
    expires_at: Timestamp,
    issued_at: Timestamp,
}

impl SealedTokens {
    /// Returns the record of a new sign-in. `before` is the record that it replaces.
    pub(super) fn into_first(self, sign_in_id: &str, before: Option<&StoredTokens>) -> StoredTokens {
        // Taken from the time, so that the tokens of an earlier sign-in that was forgotten have other numbers.
        let from_time = u64::try_from(self.issued_at.as_millisecond()).unwrap_or_default();
        let generation = from_time.max(before.map_or(0, |before| before.generation + 1));
        self.into_stored(generation, sign_in_id.to_owned())
    }

    /// Returns the record after a refresh of `before`. Values that the issuer has not returned again are kept.
    pub(super) fn into_next(self, before: &StoredTokens) -> StoredTokens {
        let next = self.into_stored(before.generation + 1, before.sign_in_id.clone());
        StoredTokens {
            refresh: next.refresh.or_else(|| before.refresh.clone()),
            account: next.account.or_else(|| before.account.clone()),
            plan: next.plan.or_else(|| before.plan.clone()),
            ..next
        }
    }

    fn into_stored(self, generation: u64, sign_in_id: String) -> StoredTokens {
        StoredTokens {
            generation,
            sign_in_id,
            state: SubscriptionState::Ok,
            ended: None,
            access: Some(self.access),
            refresh: self.refresh,
            account: self.account,
            plan: self.plan,
            access_expires_at: self.expires_at,
            refreshed_at: self.issued_at,
            lease: None,
            is_unsure: false,
        }
    }
}

impl CodingServices {
    /// Seals a value for a field of the user's records.
    pub(super) fn seal(
        &self,
        subscriber: &Subscriber,
        field: &str,
        secret: &Secret,
    ) -> Result<String, StoreError> {
        let sealed = self.sealer.seal(&subscriber.associated_data(field), secret);
        sealed.map_err(|error| subscriber.unreadable(field, error))
    }

    /// Opens the value of a field of the user's records.
    pub(super) fn open(
        &self,
        subscriber: &Subscriber,
        field: &str,
        sealed: &str,
    ) -> Result<Secret, StoreError> {
        let opened = self.sealer.open(&subscriber.associated_data(field), sealed);
        opened.map_err(|error| subscriber.unreadable(field, error))
    }

    pub(super) fn seal_tokens(
        &self,
        subscriber: &Subscriber,
        issued: &IssuedTokens,
    ) -> Result<SealedTokens, StoreError> {
        let seal = |field: &str, secret: &Option<Secret>| {
            secret.as_ref().map(|secret| self.seal(subscriber, field, secret)).transpose()
        };
        let now = self.now();
        Ok(SealedTokens {
            access: self.seal(subscriber, sealed::ACCESS, &issued.access_token)?,
            refresh: seal(sealed::REFRESH, &issued.refresh_token)?,
            account: seal(sealed::ACCOUNT, &issued.account_id)?,
            plan: issued.plan.clone(),
            expires_at: saturating_after(now, issued.expires_in),
            issued_at: now,
        })
    }

    /// Opens the access token of a record.
    ///
    /// # Errors
    /// [`CodingTokenError::SignInRequired`] if there is none, or none that can be opened.
    pub(super) fn access_token(
        &self,
        subscriber: &Subscriber,
        stored: &StoredTokens,
    ) -> Result<AccessToken, CodingTokenError> {
        let Some(access) = &stored.access else {
            return Err(CodingTokenError::SignInRequired(stored.ended.unwrap_or(SignInReason::NotSignedIn)));
        };
        let open = |field: &str, sealed: &str| {
            self.open(subscriber, field, sealed).map_err(|error| {
                let Subscriber { company_id, user_id } = subscriber;
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%company_id, %user_id, %error, cause, "a subscription's tokens cannot be read");
                CodingTokenError::SignInRequired(SignInReason::Unreadable)
            })
        };
        let account = stored.account.as_ref().map(|account| open(sealed::ACCOUNT, account)).transpose()?;
        Ok(AccessToken {
            token: open(sealed::ACCESS, access)?,
            account_id: account,
            generation: stored.generation,
        })
    }

    pub(super) async fn read_tokens(
        &self,
        subscriber: &Subscriber,
    ) -> Result<Option<Record<StoredTokens>>, StoreError> {
        self.records.get_as(&subscriber.tokens_key()?).await
    }

    /// Replaces the user's tokens as they were read at `version`. Returns the new version; `None` if another task has
    /// changed them.
    pub(super) async fn replace_tokens(
        &self,
        subscriber: &Subscriber,
        version: u64,
        tokens: &StoredTokens,
    ) -> Result<Option<u64>, StoreError> {
        match self.records.put_as(&subscriber.tokens_key()?, tokens, Precondition::Version(version)).await {
            Ok(version) => Ok(Some(version)),
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the write that replaces the record read at `version` by `value`.
pub(super) fn put(key: Key, value: &impl Serialize, version: Option<u64>) -> Result<Write, StoreError> {
    let precondition = Precondition::unchanged_since(version);
    Ok(Write::Put { key, value: to_json(value)?, precondition })
}

/// Returns true if the issuer may have used up a refresh token although the call failed.
pub(super) fn may_be_processed(error: &CodingAuthorityError) -> bool {
    matches!(error, CodingAuthorityError::Unanswered(_))
}
