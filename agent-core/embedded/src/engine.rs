//! The model thread and its bounded queue of calls.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use agent_core::error::{AgentError, AgentErrorKind};
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::Shared;

use crate::runner::{QueuedCall, Runner};
use crate::vocabulary::Vocabulary;
use crate::weights::{Weights, WeightsError};

/// Bounded queue of calls for the model thread.
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    limit: usize,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<QueuedCall>,
    /// True if the weights are loaded even without a call.
    is_load_requested: bool,
    is_closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No code that holds the lock leaves the state half changed, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: QueuedCall) -> Result<(), AgentError> {
        let mut state = self.lock();
        state.waiting.retain(|job| !job.is_abandoned());
        if state.waiting.len() >= self.limit {
            return Err(AgentError::new(
                AgentErrorKind::RateLimited,
                "the embedded model is busy: it runs one request at a time",
            ));
        }
        state.waiting.push_back(job);
        self.changed.notify_all();
        Ok(())
    }

    /// Blocks until the weights are needed. Returns `false` if the queue is closed.
    fn wait_for_demand(&self) -> bool {
        let idle =
            |state: &mut QueueState| !state.is_load_requested && !state.is_closed && state.waiting.is_empty();
        let state = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        !state.is_closed
    }

    /// Blocks until a call is queued and returns it, or `None` once the queue is closed.
    fn next(&self) -> Option<QueuedCall> {
        let idle = |state: &mut QueueState| !state.is_closed && state.waiting.is_empty();
        let mut state = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if state.is_closed { None } else { state.waiting.pop_front() }
    }
}

type LoadResult = Result<(), Arc<WeightsError>>;

/// Handle of the thread on which a model runs. After the handle is dropped, the thread ends at the next
/// token.
pub(crate) struct Engine {
    queue: Arc<Queue>,
    loaded: Shared<oneshot::Receiver<LoadResult>>,
}

impl Engine {
    /// Starts the thread, which loads the weights at the first call or at [`warm`](Self::warm).
    pub(crate) fn start(
        weights: Weights,
        vocabulary: Arc<Vocabulary>,
        context: usize,
        waiting: usize,
        threads: NonZeroUsize,
    ) -> std::io::Result<Self> {
        let queue = Arc::new(Queue { state: Mutex::default(), changed: Condvar::new(), limit: waiting });
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.get())
            .thread_name(|n| format!("model-{n}"))
            .build()
            .map_err(std::io::Error::other)?;
        let (tell, loaded) = oneshot::channel();
        let calls = Arc::clone(&queue);
        let path = weights.path.clone();
        thread::Builder::new().name("model".to_owned()).spawn(move || {
            if !calls.wait_for_demand() {
                return;
            }
            // `send` fails only if the engine was dropped and no task waits for the result.
            match pool.install(|| weights.load()) {
                Ok(llama) if llama.vocabulary() == vocabulary.len() => {
                    let _ = tell.send(Ok(()));
                    run_queue(&calls, Runner::new(llama, vocabulary, context), &pool);
                }
                Ok(_) => {
                    let detail =
                        "the vocabulary size differs between the tokenizer and the weights".to_owned();
                    let _ = tell.send(Err(Arc::new(WeightsError::Damaged { path, detail })));
                }
                Err(error) => {
                    let _ = tell.send(Err(Arc::new(error)));
                }
            }
            calls.lock().waiting.clear();
        })?;
        Ok(Self { queue, loaded: loaded.shared() })
    }

    /// Loads the weights and waits until they are loaded.
    pub(crate) async fn warm(&self) -> Result<(), AgentError> {
        self.queue.lock().is_load_requested = true;
        self.queue.changed.notify_all();
        self.wait_loaded().await
    }

    /// Queues a call and waits until the weights are loaded.
    pub(crate) async fn enqueue(&self, job: QueuedCall) -> Result<(), AgentError> {
        if self.loaded.peek().is_some() {
            // The load result is known: if loading failed, return its error instead of queuing the call.
            self.wait_loaded().await?;
        }
        self.queue.push(job)?;
        self.wait_loaded().await
    }

    async fn wait_loaded(&self) -> Result<(), AgentError> {
        match self.loaded.clone().await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(AgentError::new(
                AgentErrorKind::NotConfigured,
                "the embedded model's weights cannot be used",
            )
            .with_source(error)),
            Err(_) => Err(AgentError::new(
                AgentErrorKind::Internal,
                "the embedded model's worker thread has stopped",
            )),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.queue.lock().is_closed = true;
        self.queue.changed.notify_all();
    }
}

fn run_queue(queue: &Queue, mut runner: Runner, pool: &rayon::ThreadPool) {
    while let Some(mut job) = queue.next() {
        if catch_unwind(AssertUnwindSafe(|| pool.install(|| runner.run(&mut job)))).is_err() {
            tracing::error!("the embedded model panicked");
            runner.reset();
            let failure = AgentError::new(AgentErrorKind::Internal, "the embedded model failed");
            let _ = job.events.try_send(Err(failure));
        }
    }
}
