//! The step of a turn that shortens its history.

use std::sync::Arc;

use agent_core::context::TurnInput;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::{Message, Role};
use agent_core::prompt::{AssemblyInput, PromptMessage, STABLE_PREFIX_LIMIT, Stability};
use agent_core::role::EmbeddedAi;
use agent_core::select::{BackendChoice, BackendKind, select_backend};
use agent_core::turn::HistoryStep;
use async_trait::async_trait;

use super::Compaction;
use super::plan::{CompactionPlan, HistoryForm, PlanEntry, PlanLimits, plan};
use super::prefix_hashes::PrefixKey;
use super::report::{CompactionReport, ShorteningStats, SummaryOrigin};
use super::store::SummaryOwner;
use super::tasks::SummaryJob;
use super::text::{ToolNames, block, is_instruction};
use crate::compaction_settings::{CompactionMode, CompactionSettings};
use crate::records::StoreError;

/// Minimum tokens available for a history that is compacted.
const MIN_AVAILABLE_TOKENS: usize = 1_000;
/// Bounds of a summary in tokens, and its part of the tokens for the history.
const MIN_SUMMARY_TOKENS: usize = 128;
const MAX_SUMMARY_TOKENS: usize = 4_000;
const SUMMARY_PART: usize = 16;
/// Limit on the user's own words beside a summary in tokens, and their part of the tokens for the history.
const MAX_WORDS_TOKENS: usize = 4_000;
const WORDS_PART: usize = 25;
/// Tokens of the text around a summary and the user's words.
const BLOCK_TOKENS: usize = 96;
/// Tokens of the tags around a turn's context.
const CONTEXT_TAG_TOKENS: usize = 8;

#[async_trait]
impl HistoryStep for Compaction {
    async fn apply(&self, turn: &TurnInput, assembly: &mut AssemblyInput<'_>) -> Result<(), AgentError> {
        let settings = CompactionSettings::of(&turn.role.content);
        let default = if turn.request.is_stored { CompactionMode::Auto } else { CompactionMode::Cut };
        match settings.mode.unwrap_or(default) {
            CompactionMode::Cut => {}
            CompactionMode::Off => check_fits(assembly)?,
            CompactionMode::Auto => self.shorten(turn, assembly, &settings).await,
        }
        Ok(())
    }
}

/// Refuses a prompt that does not fit.
fn check_fits(assembly: &AssemblyInput<'_>) -> Result<(), AgentError> {
    let (needed, max) = (prompt_tokens(assembly), assembly.budget.max_prompt_tokens);
    if needed <= max {
        return Ok(());
    }
    let error = ConversationTooLongError { needed, available: max };
    Err(AgentError::new(AgentErrorKind::InvalidRequest, error.to_string()).with_source(error))
}

/// Error of a conversation that exceeds the context window, and that the agent does not compact. It is the source of an
/// [`AgentError`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the conversation exceeds the model's context window: it needs {needed} tokens, {available} are available, and this agent's compaction is off"
)]
pub struct ConversationTooLongError {
    /// Tokens of the prompt.
    pub needed: usize,
    /// Limit on the prompt, in tokens.
    pub available: usize,
}

fn prompt_tokens(assembly: &AssemblyInput<'_>) -> usize {
    let volatile = assembly.fragments.iter().filter(|fragment| !is_constant(fragment.stability));
    let volatile: usize = volatile.map(|fragment| fragment.part.tokens(&*assembly.counter)).sum();
    constant_tokens(assembly) + volatile + CONTEXT_TAG_TOKENS + history_tokens(assembly)
}

fn history_tokens(assembly: &AssemblyInput<'_>) -> usize {
    assembly.history.iter().map(|message| message.tokens(&*assembly.counter)).sum()
}

/// Returns the tokens that are the same in all turns of a conversation: those of stable fragments and tools.
fn constant_tokens(assembly: &AssemblyInput<'_>) -> usize {
    let counter = &*assembly.counter;
    let stable = assembly.fragments.iter().filter(|fragment| is_constant(fragment.stability));
    let stable: usize = stable.map(|fragment| fragment.part.tokens(counter)).sum();
    stable + assembly.cache.tool_tokens(assembly.tools, counter)
}

fn is_constant(stability: Stability) -> bool {
    stability <= STABLE_PREFIX_LIMIT
}

/// Tokens for a history, including the summary of its beginning.
#[derive(Debug, Clone, Copy)]
struct HistoryBudget {
    available: usize,
    summary: usize,
    words: usize,
}

impl HistoryBudget {
    /// Returns the budget of a prompt; `None` if there is too little for a compaction.
    fn of(assembly: &AssemblyInput<'_>) -> Option<Self> {
        let available = assembly.budget.max_prompt_tokens.saturating_sub(constant_tokens(assembly));
        let summary = (available / SUMMARY_PART).clamp(MIN_SUMMARY_TOKENS, MAX_SUMMARY_TOKENS);
        let words = (available / WORDS_PART).min(MAX_WORDS_TOKENS);
        (available >= MIN_AVAILABLE_TOKENS).then_some(Self { available, summary, words })
    }

    fn limits(&self, settings: &CompactionSettings) -> PlanLimits {
        PlanLimits {
            available: self.available,
            at: settings.at,
            to: settings.to,
            keep_turns: settings.keep_turns,
            keep_tool_results: settings.keep_tool_results,
            summary_tokens: self.summary + self.words + BLOCK_TOKENS,
        }
    }
}

/// Messages of a conversation, with their token budget and the plan that shortens them.
struct History {
    messages: Vec<Arc<PromptMessage>>,
    /// Messages in place of tool results.
    replaced: Vec<Option<Arc<PromptMessage>>>,
    budget: HistoryBudget,
    plan: CompactionPlan,
}

impl History {
    /// Plans the compaction of a history; `None` if it is sent unchanged, and no summary is prepared for later
    /// turns.
    fn plan(assembly: &AssemblyInput<'_>, settings: &CompactionSettings) -> Option<Self> {
        let budget = HistoryBudget::of(assembly)?;
        let limits = budget.limits(settings);
        if history_tokens(assembly) <= limits.planning_threshold() {
            return None;
        }
        let (counter, cache) = (&*assembly.counter, assembly.cache);
        let names = ToolNames::new(assembly.history.iter().map(|message| message.original()));
        let replace = |message: &Arc<PromptMessage>| {
            let replaced = cache.message(&names.placeholder_for(message.original())?);
            (replaced.tokens(counter) < message.tokens(counter)).then_some(replaced)
        };
        let replaced: Vec<_> = assembly.history.iter().map(replace).collect();
        let entry = |(message, replaced): (&Arc<PromptMessage>, &Option<Arc<PromptMessage>>)| {
            let original = message.original();
            let plain_tokens = message.without_context().tokens(counter);
            // A context that only this process remembers is not part of the history.
            let tokens = match original.sent_context {
                Some(_) => message.tokens(counter),
                None => plain_tokens,
            };
            let replaced_tokens = replaced.as_ref().map(|replaced| replaced.tokens(counter));
            PlanEntry { role: original.role, tokens, plain_tokens, replaced_tokens }
        };
        let entries: Vec<PlanEntry> = assembly.history.iter().zip(&replaced).map(entry).collect();
        let plan = plan(&entries, limits);
        (plan != CompactionPlan::default()).then(|| Self {
            messages: assembly.history.clone(),
            replaced,
            budget,
            plan,
        })
    }

    /// Returns the first messages as they were received.
    fn first(&self, count: usize) -> Vec<&Message> {
        self.messages[..count].iter().map(|message| message.original()).collect()
    }

    /// Returns the messages after the first ones without the omitted tool results, and the number of omitted results.
    fn rest(&self, form: HistoryForm) -> (Vec<Arc<PromptMessage>>, usize) {
        let HistoryForm { summarized, cleared } = form;
        let mut count = 0;
        let rest = self.messages.iter().zip(&self.replaced).enumerate().skip(summarized);
        let rest = rest.map(|(index, (message, replaced))| match replaced {
            Some(replaced) if index < cleared => {
                count += 1;
                replaced.clone()
            }
            _ => message.clone(),
        });
        (rest.collect(), count)
    }
}

impl Compaction {
    async fn shorten(
        &self,
        turn: &TurnInput,
        assembly: &mut AssemblyInput<'_>,
        settings: &CompactionSettings,
    ) {
        let Some(history) = History::plan(assembly, settings) else { return };
        let choice = select_backend(&turn.role).choice;
        // A workflow gets the messages as data.
        if choice.as_ref().map(BackendChoice::kind) == Some(BackendKind::Workflow) {
            return;
        }
        let own = match &choice {
            Some(BackendChoice::Embedded(own)) => Some(own),
            _ => None,
        };
        let model = settings.summary_model(own).filter(|_| !turn.request.is_preview);
        let plan = history.plan;
        let mut shortened = None;
        if plan.form != HistoryForm::default() {
            let (summary, origin) = match plan.form.summarized {
                0 => (None, None),
                _ => self.summary(turn, &history, settings, model.as_ref()).await,
            };
            shortened = Some(replace_history(assembly, &history, summary.as_deref(), origin));
        }
        let next = match plan.next.zip(model) {
            Some((next, model)) if next.summarized > plan.form.summarized => {
                let sha256 = self.sha256(turn, &history, settings, next.summarized);
                let range = (plan.form.summarized, next.summarized);
                match self.tasks.stored(&owner(turn), &sha256).await {
                    Ok(None) => {
                        let job = self.job(turn, &history, settings, model, sha256, range).await;
                        job.ok().map(|job| (self.tasks.clone(), job))
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        if shortened.is_some() || next.is_some() {
            assembly.history_report = Some(Arc::new(CompactionReport { shortened, next }));
        }
    }

    /// Returns the hash of the first messages of a history.
    fn sha256(
        &self,
        turn: &TurnInput,
        history: &History,
        settings: &CompactionSettings,
        count: usize,
    ) -> String {
        let key = PrefixKey {
            owner: owner(turn),
            agent_id: turn.context.agent_id.clone(),
            instructions: settings.instructions.clone(),
            max_tokens: history.budget.summary,
        };
        self.prefixes.sha256(&key, &history.messages[..count])
    }

    /// Returns the summary that the prompt has: the stored summary, or a new one.
    async fn summary(
        &self,
        turn: &TurnInput,
        history: &History,
        settings: &CompactionSettings,
        model: Option<&EmbeddedAi>,
    ) -> (Option<Arc<str>>, Option<SummaryOrigin>) {
        let CompactionPlan { form, earlier, .. } = history.plan;
        let sha256 = self.sha256(turn, history, settings, form.summarized);
        match self.tasks.stored(&owner(turn), &sha256).await {
            Ok(Some(stored)) => return (Some(stored), Some(SummaryOrigin::Stored)),
            Ok(None) => {}
            // A run does not fail because a summary is missing.
            Err(error) => {
                tracing::warn!(%error, "a summary could not be read");
                return (None, Some(SummaryOrigin::Missing));
            }
        }
        let Some(model) = model else { return (None, Some(SummaryOrigin::Missing)) };
        let range = (earlier, form.summarized);
        let summary = match self.job(turn, history, settings, model.clone(), sha256, range).await {
            Ok(job) => self.tasks.make_now(job).await,
            Err(error) => {
                tracing::warn!(%error, "failed to read the thread of a summary; the prompt has no summary");
                None
            }
        };
        match summary {
            Some(summary) => (Some(summary), Some(SummaryOrigin::Made)),
            None => (None, Some(SummaryOrigin::Missing)),
        }
    }

    /// Returns the work on the summary of the first messages, which continues that of an earlier number of them.
    async fn job(
        &self,
        turn: &TurnInput,
        history: &History,
        settings: &CompactionSettings,
        model: EmbeddedAi,
        sha256: String,
        (earlier, summarized): (usize, usize),
    ) -> Result<SummaryJob, StoreError> {
        let owner = owner(turn);
        Ok(SummaryJob {
            erased: self.tasks.summaries.count_erased(&owner).await?,
            owner,
            sha256,
            messages: history.first(summarized).into_iter().cloned().collect(),
            earlier: (earlier > 0).then(|| (self.sha256(turn, history, settings, earlier), earlier)),
            model,
            instructions: settings.instructions.clone(),
            max_tokens: history.budget.summary,
            context: turn.context.clone(),
        })
    }
}

fn owner(turn: &TurnInput) -> SummaryOwner {
    SummaryOwner {
        company_id: turn.context.company_id.clone(),
        user_id: turn.context.user_id.clone(),
        thread_id: turn.request.is_stored.then(|| turn.context.thread_id.clone()),
    }
}

/// Replaces the prompt's history by the shortened one.
fn replace_history(
    assembly: &mut AssemblyInput<'_>,
    history: &History,
    summary: Option<&str>,
    origin: Option<SummaryOrigin>,
) -> ShorteningStats {
    let form = history.plan.form;
    let first = history.first(form.summarized);
    let messages = first.iter().filter(|message| !is_instruction(message)).count();
    let tokens_before = history_tokens(assembly);
    let instructions = history.messages[..form.summarized].iter();
    let mut shown: Vec<_> =
        instructions.filter(|message| is_instruction(message.original())).cloned().collect();
    let text = (messages > 0).then(|| block(&first, summary, history.budget.words, &*assembly.counter));
    shown.extend(text.as_ref().map(|text| assembly.cache.message(&Message::user(text.as_str()))));
    let (rest, tool_results) = history.rest(form);
    let begin = shown.len();
    shown.extend(rest);
    assembly.history = shown;
    let left_out = leave_out_turns(assembly, begin, history.budget.available);
    let tokens_after = history_tokens(assembly);
    ShorteningStats { messages, tool_results, left_out, tokens_before, tokens_after, text, origin }
}

/// Leaves out the oldest turns from `begin` on if the prompt does not fit, since the size of the layers' fragments varies. Returns
/// the number of messages.
fn leave_out_turns(assembly: &mut AssemblyInput<'_>, begin: usize, available: usize) -> usize {
    let excess = prompt_tokens(assembly).saturating_sub(assembly.budget.max_prompt_tokens);
    if excess == 0 {
        return 0;
    }
    // In steps, so that the cut stays at the same message for some turns.
    let goal = excess.next_multiple_of((available * 3 / 10).max(1));
    let is_user = |index: &usize| assembly.history[*index].role() == Role::User;
    let users: Vec<usize> = (begin..assembly.history.len()).filter(is_user).collect();
    let removed = |end: usize| -> usize {
        let messages = assembly.history[begin..end].iter();
        let removed = messages.filter(|message| !is_instruction(message.original()));
        removed.map(|message| message.tokens(&*assembly.counter)).sum()
    };
    let end = users.iter().copied().find(|end| removed(*end) >= goal).or(users.last().copied());
    let Some(end) = end.filter(|end| *end > begin) else { return 0 };
    let rest = assembly.history.split_off(end);
    let turns = assembly.history.split_off(begin);
    let (instructions, omitted): (Vec<_>, Vec<_>) =
        turns.into_iter().partition(|message| is_instruction(message.original()));
    let count = omitted.len();
    assembly.history.extend(instructions);
    if count > 0 {
        let note = Message::user(format!("[{count} messages of the conversation are left out here]"));
        assembly.history.push(assembly.cache.message(&note));
    }
    assembly.history.extend(rest);
    count
}
