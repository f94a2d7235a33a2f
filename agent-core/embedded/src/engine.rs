//! The model thread and its bounded queue of calls.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use agent_core::error::{Failure, FailureKind};
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::Shared;

use crate::runner::{Job, Runner};
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
    waiting: VecDeque<Job>,
    /// True if the weights are to be loaded even without a call.
    warm: bool,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No code that holds the lock leaves the state half changed, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: Job) -> Result<(), Failure> {
        let mut state = self.lock();
        state.waiting.retain(|job| !job.is_abandoned());
        if state.waiting.len() >= self.limit {
            return Err(Failure::new(
                FailureKind::RateLimited,
                "the embedded model is busy; it answers one call at a time",
            ));
        }
        state.waiting.push_back(job);
        self.changed.notify_all();
        Ok(())
    }

    /// Blocks until the weights are needed. Returns `false` if the queue is closed.
    fn wait_for_use(&self) -> bool {
        let idle = |state: &mut QueueState| !state.warm && !state.closed && state.waiting.is_empty();
        let state = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        !state.closed
    }

    /// Blocks until a call is queued and returns it, or `None` once the queue is closed.
    fn next(&self) -> Option<Job> {
        let idle = |state: &mut QueueState| !state.closed && state.waiting.is_empty();
        let mut state = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if state.closed { None } else { state.waiting.pop_front() }
    }
}

type Loaded = Result<(), Arc<WeightsError>>;

/// Handle of a model that runs on its own thread. After the handle is dropped, the thread ends at the next
/// token.
pub(crate) struct Engine {
    queue: Arc<Queue>,
    loaded: Shared<oneshot::Receiver<Loaded>>,
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
            if !calls.wait_for_use() {
                return;
            }
            // `send` fails only if the engine was dropped and no task waits for the result.
            match pool.install(|| weights.load()) {
                Ok(llama) if llama.vocabulary() == vocabulary.len() => {
                    let _ = tell.send(Ok(()));
                    serve(&calls, Runner::new(llama, vocabulary, context), &pool);
                }
                Ok(_) => {
                    let detail = "vocabulary and weights are of different sizes".to_owned();
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
    pub(crate) async fn warm(&self) -> Result<(), Failure> {
        self.queue.lock().warm = true;
        self.queue.changed.notify_all();
        self.wait().await
    }

    /// Queues a call and waits until the weights are loaded.
    pub(crate) async fn call(&self, job: Job) -> Result<(), Failure> {
        if self.loaded.peek().is_some() {
            // The load result is known: if loading failed, return its error instead of queuing the call.
            self.wait().await?;
        }
        self.queue.push(job)?;
        self.wait().await
    }

    async fn wait(&self) -> Result<(), Failure> {
        match self.loaded.clone().await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                Err(Failure::new(FailureKind::NotConfigured, "the embedded model's weights cannot be used")
                    .with_source(error))
            }
            Err(_) => Err(Failure::new(FailureKind::Internal, "the embedded model has stopped")),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
    }
}

fn serve(queue: &Queue, mut runner: Runner, pool: &rayon::ThreadPool) {
    while let Some(mut job) = queue.next() {
        if catch_unwind(AssertUnwindSafe(|| pool.install(|| runner.run(&mut job)))).is_err() {
            tracing::error!("the embedded model panicked over a call");
            runner.reset();
            let failure = Failure::new(FailureKind::Internal, "the embedded model failed");
            let _ = job.events.try_send(Err(failure));
        }
    }
}
