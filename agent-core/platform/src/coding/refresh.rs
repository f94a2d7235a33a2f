//! Refresh of a user's tokens, at most one at a time over all processes of a store.
//!
//! | state | step |
//! |---|---|
//! | no valid lease | take it by compare-and-swap, then call the issuer |
//! | another task's lease | read again each 200 ms, until it ends, was seen for 30 s, or the generation changes |
//! | answered | store the tokens under the next generation, if the generation is still the one they were made from |
//! | the token is dead | use a newer generation if there is one, or else require a sign-in |
//! | no answer | the same token again after 1 s and 4 s, then give the lease back |
//! | the lease has ended before the call, as in a process that was stopped | begin again |
//!
//! New tokens replace only the tokens from which they were made. A task that has lost its lease, for example in a process
//! that was stopped, therefore overwrites neither a newer refresh nor a newer sign-in. If the next task was refused because
//! the first task had already used the refresh token, the tokens of the first task are still stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::error::{AgentError, AgentErrorKind};

use super::access_token::{AccessToken, CodingTokenError, SignInReason};
use super::authority::{CodingAuthorityError, InvalidGrantReason, IssuedTokens};
use super::services::CodingServices;
use super::stored::{Lease, LeaseWatch, SealedTokens, StoredTokens, may_be_processed, sealed};
use super::subscriber::Subscriber;
use super::{
    CALL_TIMEOUT, LEASE_POLL_INTERVAL, LEASE_WAIT_TIMEOUT, SEND_TIMEOUT, STORE_ATTEMPTS, STORE_RETRY,
};
use crate::records::{Record, StoreError};

/// Pauses before the calls of the issuer: after one without an answer, the same token is sent again.
const CALL_DELAYS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(4)];

/// Refresh of the tokens of one generation.
pub(super) struct Refresh {
    services: CodingServices,
    subscriber: Subscriber,
    /// Generation that is replaced.
    base: u64,
    /// Identity under which the lease is taken.
    id: String,
}

/// State of the record as a refresh finds it.
enum FoundTokens {
    /// The tokens to be replaced.
    Base(Box<Record<StoredTokens>>),
    /// Tokens of another generation, which can be used.
    Other(AccessToken),
}

/// Outcome of one attempt to refresh.
enum RefreshOutcome {
    Done(AccessToken),
    /// Another task has changed the record: read it again.
    Lost,
}

impl Refresh {
    pub(super) fn new(services: CodingServices, subscriber: Subscriber, base: u64) -> Self {
        Self { services, subscriber, base, id: agent_core::new_id() }
    }

    /// Refreshes the tokens and returns the new access token, or that of another generation if another task was faster.
    pub(super) async fn run(self) -> Result<AccessToken, CodingTokenError> {
        let clock = self.services.clock.clone();
        let deadline = clock.monotonic() + LEASE_WAIT_TIMEOUT;
        let mut watch = LeaseWatch::default();
        loop {
            let record = match self.find().await? {
                FoundTokens::Other(token) => return Ok(token),
                FoundTokens::Base(record) => *record,
            };
            if watch.is_held(&record.value, &self.id, self.services.now(), clock.monotonic()) {
                if clock.monotonic() >= deadline {
                    return Err(CodingTokenError::Busy);
                }
                clock.sleep(LEASE_POLL_INTERVAL).await;
                continue;
            }
            // Without the key of the tokens, nothing could be sent.
            self.services.access_token(&self.subscriber, &record.value)?;
            // A lease that was not released belongs to a call with an unknown outcome.
            let is_unsure = record.value.is_unsure || record.value.lease.is_some();
            let Some(leased) = self.take_lease(record, is_unsure).await? else { continue };
            match self.exchange(leased).await? {
                RefreshOutcome::Done(token) => return Ok(token),
                RefreshOutcome::Lost if clock.monotonic() >= deadline => return Err(CodingTokenError::Busy),
                RefreshOutcome::Lost => {}
            }
        }
    }

    /// Reads the tokens.
    async fn find(&self) -> Result<FoundTokens, CodingTokenError> {
        let Some(record) = self.services.read_tokens(&self.subscriber).await? else {
            return Err(CodingTokenError::SignInRequired(SignInReason::NotSignedIn));
        };
        if record.value.generation == self.base && record.value.access.is_some() {
            return Ok(FoundTokens::Base(Box::new(record)));
        }
        Ok(FoundTokens::Other(self.services.access_token(&self.subscriber, &record.value)?))
    }

    /// Takes or renews the lease; `None` if another task has changed the record.
    async fn take_lease(
        &self,
        record: Record<StoredTokens>,
        is_unsure: bool,
    ) -> Result<Option<Record<StoredTokens>>, StoreError> {
        let lease = Some(Lease::new(&self.id, self.services.now()));
        self.replace(record, |stored| StoredTokens { lease, is_unsure, ..stored }).await
    }

    /// Releases the lease. If that fails, the lease expires.
    async fn release(&self, record: Record<StoredTokens>) {
        let released = self.replace(record, |stored| StoredTokens { lease: None, ..stored }).await;
        if let Err(error) = released {
            let Subscriber { company_id, user_id } = &self.subscriber;
            tracing::warn!(%company_id, %user_id, %error, "failed to release the lease of a token refresh; it will expire");
        }
    }

    async fn replace(
        &self,
        record: Record<StoredTokens>,
        change: impl FnOnce(StoredTokens) -> StoredTokens,
    ) -> Result<Option<Record<StoredTokens>>, StoreError> {
        let value = change(record.value);
        let version = self.services.replace_tokens(&self.subscriber, record.version, &value).await?;
        Ok(version.map(|version| Record { version, value, id: record.id, updated: record.updated }))
    }

    /// Exchanges the refresh token under the lease.
    async fn exchange(&self, mut leased: Record<StoredTokens>) -> Result<RefreshOutcome, CodingTokenError> {
        let mut failure = None;
        for pause in CALL_DELAYS {
            if let Some(error) = &failure {
                self.services.clock.sleep(pause).await;
                let is_unsure = leased.value.is_unsure || may_be_processed(error);
                match self.take_lease(leased, is_unsure).await? {
                    Some(renewed) => leased = renewed,
                    None => return Ok(RefreshOutcome::Lost),
                }
            }
            // A process that was suspended since then must not send a token that another process may have used, or may use during
            // the call.
            let began = self.services.clock.monotonic();
            if !leased.value.is_leased_by(&self.id, self.services.now()) {
                return Ok(RefreshOutcome::Lost);
            }
            let answer = self.call(&leased.value, began + SEND_TIMEOUT).await;
            let ms = self.services.clock.monotonic().duration_since(began).as_millis();
            self.log(&answer, ms);
            match answer {
                Ok(issued) => return self.store(issued, &leased.value).await,
                Err(CodingAuthorityError::InvalidGrant(fault)) => {
                    return self.end(leased.value.end_reason(fault)).await;
                }
                Err(error @ (CodingAuthorityError::NotSent(_) | CodingAuthorityError::Unanswered(_))) => {
                    failure = Some(error);
                }
                Err(error) => {
                    self.release(leased).await;
                    return Err(CodingTokenError::Issuer(error));
                }
            }
        }
        let error = failure.unwrap_or(CodingAuthorityError::Pending);
        leased.value.is_unsure |= may_be_processed(&error);
        self.release(leased).await;
        Err(CodingTokenError::Issuer(error))
    }

    /// Calls the issuer. Without a refresh token, there is nothing that it could renew.
    async fn call(
        &self,
        stored: &StoredTokens,
        send_by: Instant,
    ) -> Result<IssuedTokens, CodingAuthorityError> {
        let dead = Err(CodingAuthorityError::InvalidGrant(InvalidGrantReason::Expired));
        let Some(refresh) = &stored.refresh else { return dead };
        match self.services.open(&self.subscriber, sealed::REFRESH, refresh) {
            Ok(token) => {
                self.services.call(CALL_TIMEOUT, self.services.authority.refresh(&token, send_by)).await
            }
            Err(error) => {
                let message = "the subscription's tokens cannot be decrypted";
                let error = AgentError::new(AgentErrorKind::Internal, message).with_source(error);
                Err(CodingAuthorityError::Refused(Arc::new(error)))
            }
        }
    }

    fn log(&self, answer: &Result<IssuedTokens, CodingAuthorityError>, ms: u128) {
        let Subscriber { company_id, user_id } = &self.subscriber;
        let generation = self.base;
        match answer {
            Ok(_) => {
                tracing::info!(%company_id, %user_id, generation, ms, "a subscription's tokens were refreshed");
            }
            Err(error) => {
                let cause = std::error::Error::source(error).map(ToString::to_string);
                tracing::warn!(
                    %company_id, %user_id, generation, ms, %error, cause,
                    "a subscription's tokens were not refreshed"
                );
            }
        }
    }

    /// Stores the issued tokens in place of those from which they were made. They exist nowhere else, so it is tried
    /// again while the store is unavailable.
    async fn store(
        &self,
        issued: IssuedTokens,
        base: &StoredTokens,
    ) -> Result<RefreshOutcome, CodingTokenError> {
        let sealed = self.services.seal_tokens(&self.subscriber, &issued)?;
        let mut attempt = 1;
        loop {
            match self.try_store(&issued, &sealed, base).await {
                Ok(Some(token)) => return Ok(RefreshOutcome::Done(token)),
                Ok(None) => {}
                Err(CodingTokenError::Store(error))
                    if matches!(*error, StoreError::Unavailable(_)) && attempt < STORE_ATTEMPTS =>
                {
                    attempt += 1;
                    self.services.clock.sleep(STORE_RETRY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Stores the tokens once; `None` if another task has changed the record meanwhile.
    async fn try_store(
        &self,
        issued: &IssuedTokens,
        sealed: &SealedTokens,
        base: &StoredTokens,
    ) -> Result<Option<AccessToken>, CodingTokenError> {
        let Some(Record { version, value: current, .. }) =
            self.services.read_tokens(&self.subscriber).await?
        else {
            self.services.revoke(&self.subscriber, issued).await;
            return Err(CodingTokenError::SignInRequired(SignInReason::NotSignedIn));
        };
        if current.generation != self.base {
            // Tokens of the same sign-in are not revoked: an issuer may end all of its tokens by that.
            if current.sign_in_id != base.sign_in_id {
                self.services.revoke(&self.subscriber, issued).await;
            }
            return self.services.access_token(&self.subscriber, &current).map(Some);
        }
        let next = sealed.clone().into_next(base);
        let stored = self.services.replace_tokens(&self.subscriber, version, &next).await?;
        Ok(stored.is_some().then(|| AccessToken {
            token: issued.access_token.clone(),
            account_id: self
                .services
                .access_token(&self.subscriber, &next)
                .ok()
                .and_then(|token| token.account_id),
            generation: next.generation,
        }))
    }

    /// Ends the sign-in, unless another task has stored newer tokens.
    async fn end(&self, reason: SignInReason) -> Result<RefreshOutcome, CodingTokenError> {
        loop {
            let record = match self.find().await? {
                FoundTokens::Other(token) => return Ok(RefreshOutcome::Done(token)),
                FoundTokens::Base(record) => *record,
            };
            if self.replace(record, |stored| stored.end(reason)).await?.is_some() {
                let Subscriber { company_id, user_id } = &self.subscriber;
                tracing::warn!(%company_id, %user_id, ?reason, "the sign-in to a subscription has ended");
                return Err(CodingTokenError::SignInRequired(reason));
            }
        }
    }
}
