//! Runs that are admitted before their beginnings are stored, until the first request to a model or service is sent.
//!
//! Such a run may lose its thread to a concurrent request. Its backend prepares the request while the beginning is stored,
//! and sends it once that is known. The run counts towards the limits on numbers of runs once it is stored, too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::tool::ExecutionContext;
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::Shared;

use super::budget::{PendingCounts, RunAdmission};
use crate::run_table::{OpenRun, RunTable, table_key};

/// Event that happens at most once, for any number of waiting tasks.
struct Signal {
    sender: Mutex<Option<oneshot::Sender<()>>>,
    receiver: Shared<oneshot::Receiver<()>>,
}

impl Default for Signal {
    fn default() -> Self {
        let (sender, receiver) = oneshot::channel();
        Self { sender: Mutex::new(Some(sender)), receiver: receiver.shared() }
    }
}

impl Signal {
    fn send(&self) {
        if let Some(sender) = lock(&self.sender).take() {
            // Fails only if nothing waits for it.
            let _ = sender.send(());
        }
    }

    fn is_sent(&self) -> bool {
        lock(&self.sender).is_none()
    }
}

/// Locks a value. No code panics while holding the lock, so the data behind a poisoned one is intact.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run in this process whose beginning is not stored yet.
pub(super) struct StartingRun {
    /// Admission, until the backend takes it.
    admission: Mutex<Option<RunAdmission>>,
    /// Part of the limits on numbers of runs, until the run counts.
    pending: Mutex<PendingCounts>,
    /// True if limits apply to the calls of the run, so that they may refuse the first one.
    has_call_limits: bool,
    /// The first call is admitted.
    call_admitted: Signal,
    /// Ready once the beginning is stored, with an error once it will not be.
    stored: Shared<oneshot::Receiver<()>>,
}

impl StartingRun {
    /// Records that the limits admit a call, and waits until the run's first request may be sent.
    ///
    /// # Errors
    /// The beginning of the run is not stored.
    pub(super) async fn begin_call(&self) -> Result<(), AgentError> {
        self.call_admitted.send();
        let message = "the beginning of the run was not stored";
        // A refusal by this platform, which says nothing about the model.
        let not_stored = |_| AgentError::new(AgentErrorKind::StoreUnavailable, message);
        self.stored.clone().await.map_err(not_stored)
    }
}

/// Runs of this process whose beginnings are not stored.
#[derive(Default)]
pub(super) struct StartingRuns(Arc<RunTable<StartingRun>>);

impl StartingRuns {
    /// Adds a context's run with its admission.
    pub(super) fn add(&self, context: &ExecutionContext, mut admission: RunAdmission) -> AdmittedRun {
        let (pending, has_call_limits) = (std::mem::take(&mut admission.pending), admission.has_call_limits);
        let stored = Arc::new(Signal::default());
        let run = StartingRun {
            admission: Mutex::new(Some(admission)),
            pending: Mutex::new(pending),
            has_call_limits,
            call_admitted: Signal::default(),
            stored: stored.receiver.clone(),
        };
        AdmittedRun { run: self.0.open(table_key(context), Arc::new(run)), stored }
    }

    /// Takes the admission of a context's run; `None` if the run was not admitted before, or its backend starts again.
    pub(super) fn take_admission(&self, context: &ExecutionContext) -> Option<RunAdmission> {
        let run = self.find(context)?;
        let mut admission = lock(&run.admission);
        admission.take()
    }

    /// Returns a context's run.
    pub(super) fn find(&self, context: &ExecutionContext) -> Option<Arc<StartingRun>> {
        self.0.find(&table_key(context))
    }
}

/// A run that was admitted before its backend starts, which takes the admission. An admission that is not taken ends when this is
/// dropped. A run whose beginning is not stored does not count towards limits on the number of runs. Its calls fail once this
/// value and every [`StoredOutcome`] are dropped.
#[must_use]
pub struct AdmittedRun {
    run: OpenRun<StartingRun>,
    /// The beginning is stored.
    stored: Arc<Signal>,
}

impl std::fmt::Debug for AdmittedRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmittedRun").finish_non_exhaustive()
    }
}

impl AdmittedRun {
    /// Returns true if no backend has taken the admission or begun a call, so that another attempt to begin the run needs no
    /// further one.
    pub fn is_unused(&self) -> bool {
        lock(&self.run.admission).is_some() && !self.run.call_admitted.is_sent()
    }

    /// Returns the receiver of the outcome of the commit that stores the run's beginning.
    pub fn outcome(&self) -> StoredOutcome {
        StoredOutcome { run: self.run.clone(), stored: self.stored.clone() }
    }

    /// Returns a future that is ready once the limits on calls have admitted the first one, at once if there are none. A run
    /// that they refuse need not be stored.
    pub fn first_call_admitted(&self) -> impl Future<Output = ()> + Send + use<> {
        let admitted = self.run.has_call_limits.then(|| self.run.call_admitted.receiver.clone());
        async move {
            if let Some(admitted) = admitted {
                // An error means that the run was dropped.
                let _ = admitted.await;
            }
        }
    }

    /// Records that the backend has started: no further call is waited for.
    pub fn record_start(&self) {
        self.run.call_admitted.send();
    }

    /// Returns true if limits apply to the calls of the run, and have admitted none.
    pub fn awaits_first_call(&self) -> bool {
        self.run.has_call_limits && !self.run.call_admitted.is_sent()
    }
}

/// Receiver of the outcome of the commit that stores a run's beginning. Without an outcome, the run is not stored.
pub struct StoredOutcome {
    run: Arc<StartingRun>,
    /// The beginning is stored.
    stored: Arc<Signal>,
}

impl std::fmt::Debug for StoredOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredOutcome").finish_non_exhaustive()
    }
}

impl StoredOutcome {
    /// Counts the run, and lets its backend send the request.
    pub fn record_stored(&self) {
        self.take_pending().count_run();
        self.stored.send();
    }

    /// Leaves the run to the settlement of expired reservations, since the commit may be made after its answer was lost.
    pub fn record_unknown(&self) {
        self.take_pending().abandon();
    }

    fn take_pending(&self) -> PendingCounts {
        std::mem::take(&mut *lock(&self.run.pending))
    }
}
