//! Sign-ins by device code: begin, status and cancellation.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_core::ids::{CompanyId, UserId};
use agent_core::secret::Secret;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::authority::{CodingAuthorityError, DeviceCode};
use super::poll::watch;
use super::services::CodingServices;
use super::sign_in_state::{BegunSignIn, SignInError, SignInService};
use super::sign_ins::{PendingSignIn, Phase, SignInOutcome, StoredSignIn, StoredSignIns};
use super::stored::sealed;
use super::subscriber::Subscriber;
use super::tasks::{SharedTasks, TaskError};
use super::{CALL_TIMEOUT, LEASE_POLL_INTERVAL, LEASE_WAIT_TIMEOUT, MAX_TASKS, until};

/// Users' sign-ins. Clones share the running tasks.
///
/// The process that begins a sign-in polls the issuer in the background, and so does each look at the status when a
/// poll is due. The task that moves the record's `nextPollAt` on polls, so that no interval is cut short by a second
/// poll.
#[derive(Clone)]
pub struct SignIns(Arc<SignInService>);

impl fmt::Debug for SignIns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignIns").finish_non_exhaustive()
    }
}

/// Status of a sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SignInStatus {
    /// The user has not confirmed it yet.
    Pending,
    /// The tokens are stored.
    Complete,
    /// The user has refused it.
    Denied,
    /// The user has not confirmed it in time.
    Expired,
    /// The sign-in has failed, for the reason in the code.
    Failed,
}

impl fmt::Display for SignInStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Complete => "complete",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Failed => "failed",
        })
    }
}

/// A sign-in as its user sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignInView {
    /// Status.
    pub status: SignInStatus,
    /// Reason of a failure.
    pub code: Option<String>,
    /// Remaining lifetime while it is pending.
    pub expires_in: Option<Duration>,
}

impl SignIns {
    /// Creates the sign-ins of a store.
    pub fn new(services: CodingServices) -> Self {
        let spawner = &services.spawner;
        Self(Arc::new(SignInService {
            begins: SharedTasks::new(spawner.clone(), MAX_TASKS),
            polls: SharedTasks::new(spawner.clone(), MAX_TASKS),
            watches: SharedTasks::new(spawner.clone(), MAX_TASKS),
            is_stopped: AtomicBool::new(false),
            services,
        }))
    }

    /// Begins a sign-in, or returns the open one if it lasts for more than a minute.
    ///
    /// # Errors
    /// [`SignInError::TooMany`], and errors of the issuer and the store.
    pub async fn begin(&self, company_id: &CompanyId, user_id: &UserId) -> Result<BegunSignIn, SignInError> {
        let subscriber = Subscriber::new(company_id, user_id);
        let work = self.0.clone().begin(subscriber.clone());
        let outcome = self.0.begins.run(subscriber, work).await?;
        let sign_in = outcome.value?;
        Ok(BegunSignIn { is_new: sign_in.is_new && outcome.is_own, ..sign_in })
    }

    /// Returns the status of a sign-in, after a poll if one is due.
    ///
    /// # Errors
    /// [`SignInError::NotFound`], and errors of the store.
    pub async fn status(
        &self,
        company_id: &CompanyId,
        user_id: &UserId,
        id: &str,
    ) -> Result<SignInView, SignInError> {
        let subscriber = Subscriber::new(company_id, user_id);
        let mut stored = self.0.read(&subscriber).await?;
        let now = self.0.services.now();
        if stored.pending_mut(id).is_some_and(|pending| pending.is_due(now)) {
            let key = (subscriber.clone(), id.to_owned());
            match self.0.polls.run(key.clone(), self.0.clone().poll(key)).await {
                Ok(outcome) => outcome.value?,
                // The next status request polls.
                Err(TaskError::Full) => {}
                Err(error) => return Err(error.into()),
            }
            stored = self.0.read(&subscriber).await?;
        }
        let sign_in = stored.find_mut(id).ok_or(SignInError::NotFound)?;
        view(sign_in, self.0.services.now()).ok_or(SignInError::NotFound)
    }

    /// Cancels a sign-in, so that it is not shown or polled any longer. Tokens that the issuer gives at this moment are
    /// revoked.
    ///
    /// # Errors
    /// [`SignInError::NotFound`], and errors of the store.
    pub async fn cancel(
        &self,
        company_id: &CompanyId,
        user_id: &UserId,
        id: &str,
    ) -> Result<(), SignInError> {
        let subscriber = Subscriber::new(company_id, user_id);
        let cancelled = self.0.update(&subscriber, |stored, now| {
            let sign_in = stored.find_mut(id).ok_or(SignInError::NotFound)?;
            sign_in.end(SignInOutcome::Cancelled, None, now);
            Ok(Some(()))
        });
        cancelled.await?;
        tracing::info!(%company_id, %user_id, sign_in = id, "a sign-in to a subscription was cancelled");
        Ok(())
    }

    /// Stops polling in the background, for the end of the process.
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Waits until no call of the issuer is running, for the end of the process.
    pub async fn drain(&self) {
        self.0.begins.drain().await;
        self.0.polls.drain().await;
    }
}

/// Returns a sign-in as its user sees it; `None` if the user does not see it.
fn view(sign_in: &StoredSignIn, now: Timestamp) -> Option<SignInView> {
    let (status, code) = match &sign_in.phase {
        Phase::Starting { .. } => return None,
        Phase::Pending(pending) => {
            let expires_in = Some(until(pending.expires_at, now));
            return Some(SignInView { status: SignInStatus::Pending, code: None, expires_in });
        }
        Phase::Ended { outcome, code, .. } => {
            let status = match outcome {
                SignInOutcome::Complete => SignInStatus::Complete,
                SignInOutcome::Denied => SignInStatus::Denied,
                SignInOutcome::Expired => SignInStatus::Expired,
                SignInOutcome::Failed => SignInStatus::Failed,
                SignInOutcome::Cancelled => return None,
            };
            (status, code.clone())
        }
    };
    Some(SignInView { status, code, expires_in: None })
}

impl SignInService {
    /// Begins a sign-in, or returns the open one.
    async fn begin(self: Arc<Self>, subscriber: Subscriber) -> Result<BegunSignIn, SignInError> {
        let clock = &self.services.clock;
        let deadline = clock.monotonic() + LEASE_WAIT_TIMEOUT;
        loop {
            let stored = self.read(&subscriber).await?;
            if let Some(sign_in) = self.reusable(&subscriber, &stored) {
                return Ok(sign_in);
            }
            if !stored.is_starting() {
                let Some(id) = self.reserve(&subscriber).await? else { continue };
                let sign_in = self.request_code(&subscriber, id).await?;
                let key = (subscriber, sign_in.id.clone());
                self.watches.start(key.clone(), watch(Arc::downgrade(&self), key));
                return Ok(sign_in);
            }
            if clock.monotonic() >= deadline {
                return Err(SignInError::Busy);
            }
            clock.sleep(LEASE_POLL_INTERVAL).await;
        }
    }

    /// Returns the open sign-in that can be given again. One whose code cannot be decrypted is not.
    fn reusable(&self, subscriber: &Subscriber, stored: &StoredSignIns) -> Option<BegunSignIn> {
        let now = self.services.now();
        let (id, pending) = stored.reusable(now)?;
        let user_code = self.services.open(subscriber, sealed::USER_CODE, &pending.user_code).ok()?;
        Some(begun_sign_in(id, user_code, pending, now, false))
    }

    /// Adds a sign-in whose code only the caller requests, and returns its id; `None` if another task was faster.
    async fn reserve(&self, subscriber: &Subscriber) -> Result<Option<String>, SignInError> {
        self.update(subscriber, |stored, now| {
            if stored.is_starting() || self.reusable(subscriber, stored).is_some() {
                return Ok(None);
            }
            if let Some(retry_after) = stored.retry_after(now) {
                return Err(SignInError::TooMany { retry_after });
            }
            let sign_in = StoredSignIn::starting(now);
            let id = sign_in.id.clone();
            stored.sign_ins.push(sign_in);
            Ok(Some(id))
        })
        .await
    }

    /// Requests the device code of a sign-in that was added for it.
    async fn request_code(&self, subscriber: &Subscriber, id: String) -> Result<BegunSignIn, SignInError> {
        let Subscriber { company_id, user_id } = subscriber;
        match self.services.call(CALL_TIMEOUT, self.services.authority.request_device_code()).await {
            Ok(code) => {
                let new_sign_in = self.store_code(subscriber, &id, &code).await?;
                tracing::info!(%company_id, %user_id, sign_in = id, "a sign-in to a subscription was started");
                Ok(new_sign_in)
            }
            Err(error) => {
                tracing::warn!(%company_id, %user_id, sign_in = id, %error, "a sign-in could not be started");
                // The sign-in counts only if the request may have reached the issuer.
                let is_known = !matches!(
                    error,
                    CodingAuthorityError::NotConfigured(_) | CodingAuthorityError::NotSent(_)
                );
                self.update(subscriber, |stored, now| {
                    match stored.sign_ins.iter_mut().find(|sign_in| sign_in.id == id) {
                        Some(sign_in) if is_known => sign_in.end(SignInOutcome::Cancelled, None, now),
                        _ => stored.sign_ins.retain(|sign_in| sign_in.id != id),
                    }
                    Ok(Some(()))
                })
                .await?;
                Err(SignInError::Issuer(error))
            }
        }
    }

    async fn store_code(
        &self,
        subscriber: &Subscriber,
        id: &str,
        code: &DeviceCode,
    ) -> Result<BegunSignIn, SignInError> {
        let device_code = self.services.seal(subscriber, sealed::DEVICE_CODE, &code.device_code)?;
        let user_code = self.services.seal(subscriber, sealed::USER_CODE, &code.user_code)?;
        let stored = self.update(subscriber, |stored, now| {
            let reserved = stored.sign_ins.iter_mut().find(|sign_in| sign_in.id == id);
            let is_starting = |sign_in: &&mut StoredSignIn| matches!(sign_in.phase, Phase::Starting { .. });
            let Some(sign_in) = reserved.filter(is_starting) else { return Ok(None) };
            let pending = PendingSignIn::new(code, device_code.clone(), user_code.clone(), now);
            let begun_now = begun_sign_in(id, code.user_code.clone(), &pending, now, true);
            sign_in.phase = Phase::Pending(pending);
            Ok(Some(begun_now))
        });
        // It was erased with the user, or given up because the issuer took too long.
        stored.await?.ok_or(SignInError::Busy)
    }
}

/// Returns a pending sign-in as the user needs it.
fn begun_sign_in(
    id: &str,
    user_code: Secret,
    pending: &PendingSignIn,
    now: Timestamp,
    is_new: bool,
) -> BegunSignIn {
    BegunSignIn {
        id: id.to_owned(),
        user_code,
        verification_uri: pending.verification_uri.clone(),
        expires_in: until(pending.expires_at, now),
        interval: pending.interval(),
        is_new,
    }
}
