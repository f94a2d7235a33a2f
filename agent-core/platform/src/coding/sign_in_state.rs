//! State that the sign-ins of a process share, and the changes of their records.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use agent_core::secret::Secret;
use jiff::Timestamp;

use super::authority::CodingAuthorityError;
use super::services::CodingServices;
use super::sign_ins::StoredSignIns;
use super::stored::put;
use super::subscriber::Subscriber;
use super::tasks::{SharedTasks, TaskError};
use crate::records::{RecordsExt, StoreError, UpdateAttempts};

/// State behind the clones of [`SignIns`](super::SignIns).
pub(super) struct SignInService {
    pub(super) services: CodingServices,
    pub(super) begins: SharedTasks<Subscriber, Result<BegunSignIn, SignInError>>,
    pub(super) polls: SharedTasks<SignInKey, Result<(), SignInError>>,
    /// Background tasks that poll for their sign-ins.
    pub(super) watches: SharedTasks<SignInKey, ()>,
    pub(super) is_stopped: AtomicBool,
}

/// A sign-in of a user, by its id.
pub(super) type SignInKey = (Subscriber, String);

/// Sign-in that the user can confirm.
#[derive(Debug, Clone)]
pub struct BegunSignIn {
    /// Identifier of the sign-in.
    pub id: String,
    /// Code that the user enters at the verification URI.
    pub user_code: Secret,
    /// Page of the issuer at which the user enters the code.
    pub verification_uri: String,
    /// Remaining lifetime.
    pub expires_in: Duration,
    /// Interval at which the issuer is polled.
    pub interval: Duration,
    /// False if the sign-in was started before.
    pub is_new: bool,
}

/// Error of an operation on a sign-in.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SignInError {
    /// The user has no such sign-in.
    #[error("there is no such sign-in")]
    NotFound,
    /// The user has started as many sign-ins as allowed in an hour.
    #[error("too many sign-ins were started within an hour")]
    TooMany {
        /// Time after which another one may be started.
        retry_after: Duration,
    },
    /// The issuer has not started the sign-in.
    #[error("the sign-in could not be started")]
    Issuer(#[source] CodingAuthorityError),
    /// Another process begins a sign-in for too long, too many sign-ins run, or the process stops.
    #[error("a sign-in is being started; try again later")]
    Busy,
    /// The store failed.
    #[error("the sign-in could not be read or written")]
    Store(#[source] Arc<StoreError>),
}

impl From<StoreError> for SignInError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl From<TaskError> for SignInError {
    fn from(_: TaskError) -> Self {
        Self::Busy
    }
}

impl SignInService {
    /// Reads the user's sign-ins as of now.
    pub(super) async fn read(&self, subscriber: &Subscriber) -> Result<StoredSignIns, SignInError> {
        let stored_sign_ins =
            self.services.records.get_as::<StoredSignIns>(&subscriber.sign_ins_key()?).await?;
        let mut stored = stored_sign_ins.map(|record| record.value).unwrap_or_default();
        stored.remove_expired(self.services.now());
        Ok(stored)
    }

    /// Changes the user's sign-ins; `change` runs again if another task has changed them meanwhile. Nothing is written
    /// if it returns `None`.
    pub(super) async fn update<T>(
        &self,
        subscriber: &Subscriber,
        mut change: impl FnMut(&mut StoredSignIns, Timestamp) -> Result<Option<T>, SignInError> + Send,
    ) -> Result<Option<T>, SignInError> {
        let key = subscriber.sign_ins_key()?;
        let mut attempts = UpdateAttempts::new(&*self.services.records, &key);
        loop {
            let stored_sign_ins = self.services.records.get_as::<StoredSignIns>(&key).await?;
            let version = stored_sign_ins.as_ref().map(|record| record.version);
            let mut stored = stored_sign_ins.map(|record| record.value).unwrap_or_default();
            let now = self.services.now();
            stored.remove_expired(now);
            let Some(change_result) = change(&mut stored, now)? else { return Ok(None) };
            match self.services.records.commit(vec![put(key.clone(), &stored, version)?]).await {
                Ok(_) => return Ok(Some(change_result)),
                Err(error) => attempts.retry(error).await?,
            }
        }
    }
}
