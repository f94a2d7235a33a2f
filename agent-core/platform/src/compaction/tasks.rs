//! Work on summaries in the background: each summary once in a process, however many turns need it.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_core::backend::ModelSource;
use agent_core::clock::Clock;
use agent_core::message::Message;
use agent_core::role::EmbeddedAi;
use agent_core::tool::ExecutionContext;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Shared, select};

use super::store::{Summaries, Summary, SummaryOwner, summary_key};
use super::summarizer::{SummaryError, SummaryInput, summarize};
use crate::company_table::{CompanyTable, CompanyTableLimits};
use crate::providers::Providers;
use crate::records::{Key, StoreError};
use crate::spawner::Spawner;

/// Maximum numbers of summaries that a process makes at once: of all companies, and of one.
const MAX_TASKS: usize = 64;
const MAX_COMPANY_TASKS: usize = 8;
/// Maximum time for a summary.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Maximum time for which a turn waits for a summary.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Time after a failure until the same summary is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// Minimum limit on the answer with a summary, and the part of it that a model may reason for.
const MIN_OUTPUT_TOKENS: usize = 1_024;
const OUTPUT_PER_TOKEN: usize = 4;
/// Numbers of failures that are remembered.
const FAILURES: CompanyTableLimits = CompanyTableLimits { total: 10_000, per_company: 1_000 };

/// Text of a summary that is being made; `None` if that has failed.
type PendingSummary = Shared<BoxFuture<'static, Option<Arc<str>>>>;

/// Summary to be made.
#[derive(Clone)]
pub(super) struct SummaryJob {
    pub(super) owner: SummaryOwner,
    pub(super) sha256: String,
    /// The messages that it replaces.
    pub(super) messages: Arc<[Message]>,
    /// Number of erased messages of the thread when the messages were read.
    pub(super) erased: usize,
    /// Hash of the summary of the first of them, with their number.
    pub(super) earlier: Option<(String, usize)>,
    /// The model that summarizes.
    pub(super) model: EmbeddedAi,
    pub(super) instructions: String,
    pub(super) max_tokens: usize,
    /// The run that the calls are booked to.
    pub(super) context: ExecutionContext,
}

/// Summaries that a process makes.
pub(super) struct SummaryTasks {
    pub(super) summaries: Summaries,
    models: Arc<dyn ModelSource>,
    providers: Option<Arc<Providers>>,
    clock: Arc<dyn Clock>,
    spawner: Arc<dyn Spawner>,
    state: Mutex<TaskState>,
}

struct TaskState {
    running: HashMap<Key, PendingSummary>,
    /// Times of failures.
    failures: CompanyTable<Key, Instant>,
}

impl SummaryTasks {
    pub(super) fn new(
        summaries: Summaries,
        (models, providers): (Arc<dyn ModelSource>, Option<Arc<Providers>>),
        clock: Arc<dyn Clock>,
        spawner: Arc<dyn Spawner>,
    ) -> Self {
        let state = TaskState { running: HashMap::new(), failures: CompanyTable::new(FAILURES) };
        Self { summaries, models, providers, clock, spawner, state: Mutex::new(state) }
    }

    /// Makes a summary for a turn that needs it now; `None` if there is none in time, or an earlier attempt has failed.
    pub(super) async fn make_now(self: &Arc<Self>, job: SummaryJob) -> Option<Arc<str>> {
        let has_failed = match summary_key(&job.owner, &job.sha256) {
            Ok(key) => self.lock().failures.get(&job.owner.company_id, &key).is_some(),
            Err(_) => true,
        };
        let pending = self.start(job)?;
        if has_failed {
            return None;
        }
        match select(pending, self.clock.sleep(MAX_WAIT)).await {
            Either::Left((text, _)) => text,
            Either::Right(_) => None,
        }
    }

    /// Starts to make a summary in the background, unless it is in progress already, has failed recently, or too many others are
    /// in progress.
    pub(super) fn start(self: &Arc<Self>, job: SummaryJob) -> Option<PendingSummary> {
        let company_id = job.owner.company_id.clone();
        let key = summary_key(&job.owner, &job.sha256).ok()?;
        let now = self.clock.monotonic();
        let mut state = self.lock();
        if let Some(pending) = state.running.get(&key) {
            return Some(pending.clone());
        }
        let own = state.running.keys().filter(|running| running.company() == company_id.as_str()).count();
        let failed = state.failures.get(&company_id, &key);
        let is_too_early = failed.is_some_and(|at| now.saturating_duration_since(*at) < RETRY_INTERVAL);
        if is_too_early || own >= MAX_COMPANY_TASKS || state.running.len() >= MAX_TASKS {
            return None;
        }
        let (tasks, task_key) = (self.clone(), key.clone());
        let pending = async move {
            let result = tasks.make(&job).await;
            let mut state = tasks.lock();
            state.running.remove(&task_key);
            match result {
                Ok(text) => {
                    state.failures.remove(&job.owner.company_id, &task_key);
                    text
                }
                Err(error) => {
                    let (company, agent) = (&job.owner.company_id, &job.context.agent_id);
                    tracing::warn!(%company, %agent, %error, "a conversation was not summarized");
                    state.failures.insert(&job.owner.company_id, task_key, tasks.clock.monotonic());
                    None
                }
            }
        };
        let pending = pending.boxed().shared();
        state.running.insert(key, pending.clone());
        drop(state);
        self.spawner.spawn(pending.clone().map(drop).boxed());
        Some(pending)
    }

    /// Makes and stores a summary; `None` if its thread was deleted meanwhile, or a message of it erased.
    async fn make(&self, job: &SummaryJob) -> Result<Option<Arc<str>>, SummaryError> {
        // Another process may have made it.
        if let Some(found) = self.summaries.get(&job.owner, &job.sha256).await? {
            return Ok(Some(found.text.into()));
        }
        let earlier = match &job.earlier {
            Some((sha256, messages)) => {
                self.summaries.get(&job.owner, sha256).await?.map(|found| (found.text, *messages))
            }
            None => None,
        };
        let settings = self.model_settings(job).await?;
        let model = self.models.model_for_run(&settings, &job.context)?;
        let input = SummaryInput {
            messages: &job.messages,
            earlier: earlier.as_ref().map(|(text, messages)| (text.as_str(), *messages)),
            instructions: &job.instructions,
            max_tokens: job.max_tokens,
            thinking: settings.enable_thinking,
        };
        let result = Box::pin(summarize(&*model, input));
        let text = match select(result, self.clock.sleep(TIME_LIMIT)).await {
            Either::Left((result, _)) => result?,
            Either::Right(_) => return Err(SummaryError::Timeout),
        };
        let summary =
            Summary { text, agent_id: job.context.agent_id.clone(), thread_id: job.owner.thread_id.clone() };
        let stored = self.summaries.add(&job.owner, &job.sha256, summary).await?;
        // An erasure has deleted the thread's summaries before this one was stored, or will do so after.
        if self.summaries.count_erased(&job.owner).await? != job.erased {
            self.summaries.delete(&job.owner, &job.sha256).await?;
            return Ok(None);
        }
        Ok(stored.map(|stored| stored.text.into()))
    }

    /// Returns the settings of the summarizing model: without fallbacks, and with a limit on the answer that leaves room for
    /// reasoning within the model's own limit.
    async fn model_settings(&self, job: &SummaryJob) -> Result<EmbeddedAi, SummaryError> {
        let mut settings = job.model.clone();
        // The entry of a company's provider that the container has is that of the agent's own model.
        let entry = job.model.company_model.as_ref();
        let id = entry.and_then(|entry| entry.get("provider")?.as_str());
        if let Some((providers, id)) = self.providers.as_ref().zip(id)
            && let Some(provider) = providers.open(&job.owner.company_id, id).await?
        {
            provider.complete(&mut settings);
        }
        settings.fallbacks.clear();
        settings.parameters.remove("maxOutputTokens");
        settings.parameters.remove("stopSequences");
        // The role's limit is that of its answers.
        settings.token_limits.max_output_tokens = None;
        let model_limit = self.models.model(&settings)?.info().max_output_tokens;
        let limit = (job.max_tokens * OUTPUT_PER_TOKEN).max(MIN_OUTPUT_TOKENS).min(model_limit);
        settings.token_limits.max_output_tokens = u32::try_from(limit).ok().and_then(NonZeroU32::new);
        Ok(settings)
    }

    /// Returns a stored summary.
    pub(super) async fn stored(
        &self,
        owner: &SummaryOwner,
        sha256: &str,
    ) -> Result<Option<Arc<str>>, StoreError> {
        Ok(self.summaries.get(owner, sha256).await?.map(|found| found.text.into()))
    }

    /// Waits until no summary is in progress.
    pub(super) async fn drain(&self) {
        loop {
            let next = self.lock().running.values().next().cloned();
            match next {
                Some(pending) => drop(pending.await),
                None => return,
            }
        }
    }

    /// Locks the state. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, TaskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
