//! Polls of the issuer for the tokens of sign-ins.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::authority::{CodingAuthorityError, IssuedTokens};
use super::sign_in_state::{SignInError, SignInKey, SignInService};
use super::sign_ins::{SignInOutcome, StoredSignIns};
use super::stored::{StoredTokens, put, sealed};
use super::subscriber::Subscriber;
use super::{CALL_TIMEOUT, STORE_ATTEMPTS, STORE_RETRY, until};
use crate::records::{Record, StoreError, UpdateAttempts};

/// Minimum pause of a background task between two reads of its sign-in, such as while the store is unavailable.
const MIN_WATCH_PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause.
const MAX_WATCH_PAUSE: Duration = Duration::from_secs(60);

/// Polls for a sign-in whenever it is due, until it is final or the sign-ins are dropped.
pub(super) async fn watch(service: Weak<SignInService>, key: SignInKey) {
    loop {
        let Some(pause) = next_pause(&service, &key).await else { return };
        let Some(clock) = service.upgrade().map(|service| service.services.clock.clone()) else { return };
        clock.sleep(pause).await;
        let Some(service) = service.upgrade().filter(|service| !service.is_stopped.load(Ordering::Relaxed))
        else {
            return;
        };
        // Failures of the store are logged. The polls end when the sign-in expires, at the latest.
        let _ = service.polls.run(key.clone(), service.clone().poll(key.clone())).await;
    }
}

/// Returns the time until the next poll of a sign-in; `None` if it is final.
async fn next_pause(service: &Weak<SignInService>, (subscriber, id): &SignInKey) -> Option<Duration> {
    let service = service.upgrade()?;
    let now = service.services.now();
    match service.read(subscriber).await {
        Ok(mut stored) => {
            let pending = stored.pending_mut(id)?;
            Some(until(pending.next_poll_at, now).clamp(MIN_WATCH_PAUSE, MAX_WATCH_PAUSE))
        }
        Err(error) => {
            tracing::warn!(sign_in = id, %error, "a sign-in cannot be read");
            Some(MAX_WATCH_PAUSE)
        }
    }
}

impl SignInService {
    /// Polls the issuer for a sign-in if a poll is due, and stores the outcome.
    pub(super) async fn poll(self: Arc<Self>, (subscriber, id): SignInKey) -> Result<(), SignInError> {
        let claimed = self.update(&subscriber, |stored, now| {
            let Some(pending) = stored.pending_mut(&id).filter(|pending| pending.is_due(now)) else {
                return Ok(None);
            };
            pending.claim(now);
            Ok(Some(pending.device_code.clone()))
        });
        let Some(device_code) = claimed.await? else { return Ok(()) };
        let device_code = match self.services.open(&subscriber, sealed::DEVICE_CODE, &device_code) {
            Ok(device_code) => device_code,
            Err(error) => {
                tracing::warn!(sign_in = id, %error, "a sign-in cannot be read");
                return self.end(&subscriber, &id, SignInOutcome::Failed, Some("INTERNAL")).await;
            }
        };
        let answer = self.services.authority.request_tokens(&device_code);
        match self.services.call(CALL_TIMEOUT, answer).await {
            Ok(issued) => self.complete(&subscriber, &id, &issued).await,
            Err(CodingAuthorityError::Denied) => {
                self.end(&subscriber, &id, SignInOutcome::Denied, None).await
            }
            Err(CodingAuthorityError::Expired) => {
                self.end(&subscriber, &id, SignInOutcome::Expired, None).await
            }
            Err(CodingAuthorityError::NotConfigured(setting)) => {
                tracing::warn!(
                    sign_in = id,
                    setting,
                    "a sign-in has failed: a setting is missing or refused"
                );
                self.end(&subscriber, &id, SignInOutcome::Failed, Some("NOT_CONFIGURED")).await
            }
            Err(CodingAuthorityError::InvalidGrant(_)) => {
                self.end(&subscriber, &id, SignInOutcome::Failed, Some("OAUTH_ERROR")).await
            }
            Err(error) => {
                if !matches!(error, CodingAuthorityError::Pending | CodingAuthorityError::SlowDown) {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(sign_in = id, %error, cause, "the issuer could not be polled");
                }
                let scheduled = self.update(&subscriber, |stored, now| {
                    Ok(stored.pending_mut(&id).map(|pending| pending.schedule(&error, now)))
                });
                scheduled.await.map(drop)
            }
        }
    }

    /// Ends a sign-in that is still pending.
    async fn end(
        &self,
        subscriber: &Subscriber,
        id: &str,
        outcome: SignInOutcome,
        code: Option<&str>,
    ) -> Result<(), SignInError> {
        let settled = self.update(subscriber, |stored, now| {
            let is_pending = stored.pending_mut(id).is_some();
            let pending = stored.find_mut(id).filter(|_| is_pending);
            Ok(pending.map(|sign_in| sign_in.end(outcome, code, now)))
        });
        settled.await?;
        let Subscriber { company_id, user_id } = subscriber;
        tracing::info!(%company_id, %user_id, sign_in = id, ?outcome, "a sign-in to a subscription has ended");
        Ok(())
    }

    /// Stores the tokens of a sign-in. They exist nowhere else, so it is tried again while the store is unavailable;
    /// tokens that cannot be stored, or whose sign-in was cancelled, are revoked.
    async fn complete(
        &self,
        subscriber: &Subscriber,
        id: &str,
        issued: &IssuedTokens,
    ) -> Result<(), SignInError> {
        let mut attempt = 1;
        let stored = loop {
            match self.try_complete(subscriber, id, issued).await {
                Err(SignInError::Store(error))
                    if matches!(*error, StoreError::Unavailable(_)) && attempt < STORE_ATTEMPTS =>
                {
                    attempt += 1;
                    self.services.clock.sleep(STORE_RETRY).await;
                }
                stored => break stored,
            }
        };
        let Subscriber { company_id, user_id } = subscriber;
        match &stored {
            Ok(()) => tracing::info!(%company_id, %user_id, sign_in = id, "signed in to a subscription"),
            Err(error) => {
                tracing::warn!(%company_id, %user_id, sign_in = id, %error, "the tokens of a sign-in could not be stored, and are revoked");
                self.services.revoke(subscriber, issued).await;
            }
        }
        stored
    }

    /// Stores the tokens and the sign-in's end in one commit.
    async fn try_complete(
        &self,
        subscriber: &Subscriber,
        id: &str,
        issued: &IssuedTokens,
    ) -> Result<(), SignInError> {
        let tokens = self.services.seal_tokens(subscriber, issued)?;
        let keys = [subscriber.sign_ins_key()?, subscriber.tokens_key()?];
        let mut attempts = UpdateAttempts::new(&*self.services.records, &keys[0]);
        loop {
            let mut stored_records = self.services.records.get_many(&keys).await?.into_iter();
            let sign_ins: Option<Record<StoredSignIns>> = stored_records
                .next()
                .flatten()
                .map(|record| record.parse(keys[0].collection()))
                .transpose()?;
            let before: Option<Record<StoredTokens>> = stored_records
                .next()
                .flatten()
                .map(|record| record.parse(keys[1].collection()))
                .transpose()?;
            if before.as_ref().is_some_and(|record| record.value.sign_in_id == id) {
                // An earlier attempt was committed, although it was reported as failed.
                return Ok(());
            }
            let Some(Record { version, value: mut stored, .. }) = sign_ins else {
                return Err(SignInError::NotFound);
            };
            stored.pending_mut(id).ok_or(SignInError::NotFound)?;
            let sign_in = stored.find_mut(id).ok_or(SignInError::NotFound)?;
            sign_in.end(SignInOutcome::Complete, None, self.services.now());
            let next = tokens.clone().into_first(id, before.as_ref().map(|record| &record.value));
            let writes = vec![
                put(keys[0].clone(), &stored, Some(version))?,
                put(keys[1].clone(), &next, before.map(|record| record.version))?,
            ];
            match self.services.records.commit(writes).await {
                Ok(_) => return Ok(()),
                Err(error) => attempts.retry(error).await?,
            }
        }
    }
}
