//! Point at which a history is shortened. Pure: it depends on the history, the settings and the window alone.
//!
//! The course of the conversation is computed again from its beginning: at each user message, which is the end of a
//! prompt that was sent, the size of that prompt decides. So every process finds the same point without stored state, and
//! the point stays until the conversation has grown by the distance between the thresholds.

use agent_core::message::Role;

/// Threshold at which a shortening is planned, in eighths of the threshold at which it takes effect. In between its summary is
/// made outside of any turn.
const PLANNING_THRESHOLD_EIGHTHS: usize = 7;
/// Least gain of a shortening, as a part of the tokens available. One that gains less is made only if nothing else fits.
const MIN_GAIN_DIVISOR: usize = 10;

/// Message of a history.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanEntry {
    pub(super) role: Role,
    /// Tokens of the message.
    pub(super) tokens: usize,
    /// Tokens of the message without the context that was sent with it, which only later prompts have.
    pub(super) plain_tokens: usize,
    /// Tokens of the text in place of a tool result, if it is shorter.
    pub(super) replaced_tokens: Option<usize>,
}

impl PlanEntry {
    fn is_instruction(&self) -> bool {
        matches!(self.role, Role::System | Role::Developer)
    }
}

/// Limits of a plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanLimits {
    /// Tokens that the window has for the history.
    pub(super) available: usize,
    /// Share that a history must exceed, in thousandths.
    pub(super) at: usize,
    /// Share that remains, in thousandths.
    pub(super) to: usize,
    pub(super) keep_turns: usize,
    pub(super) keep_tool_results: usize,
    /// Maximum tokens of a summary with its surrounding text.
    pub(super) summary_tokens: usize,
}

impl PlanLimits {
    fn share(&self, thousandths: usize) -> usize {
        self.available / 1_000 * thousandths + self.available % 1_000 * thousandths / 1_000
    }

    fn applied_above(&self) -> usize {
        self.share(self.at)
    }

    /// Returns the size above which a shortening is planned. No shorter history has one.
    pub(super) fn planning_threshold(&self) -> usize {
        self.applied_above() * PLANNING_THRESHOLD_EIGHTHS / 8
    }

    /// Returns the size of the shortened history. The messages that are added until the plan takes effect come on top.
    fn target(&self) -> usize {
        let growth = self.applied_above() - self.planning_threshold();
        self.share(self.to).saturating_sub(growth).max(self.share(self.to) / 2)
    }
}

/// Form in which a history is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HistoryForm {
    /// Index of the first message after the summary.
    pub(super) summarized: usize,
    /// Index before which tool results are left out.
    pub(super) cleared: usize,
}

/// Plan for a history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CompactionPlan {
    /// Form of the prompt.
    pub(super) form: HistoryForm,
    /// End of the summary before the current one; 0 if there was none.
    pub(super) earlier: usize,
    /// Form of a later prompt, if the history has nearly reached its limit.
    pub(super) next: Option<HistoryForm>,
}

/// Sums of the tokens of a history.
struct Sizes<'a> {
    entries: &'a [PlanEntry],
    limits: PlanLimits,
    /// Tokens before each index: as they are, with all tool results replaced, and of instructions alone.
    whole: Vec<usize>,
    replaced: Vec<usize>,
    instructions: Vec<usize>,
}

impl<'a> Sizes<'a> {
    fn new(entries: &'a [PlanEntry], limits: PlanLimits) -> Self {
        let sums = |tokens: fn(&PlanEntry) -> usize| {
            let mut sum = 0;
            let add = |entry| {
                sum += tokens(entry);
                sum
            };
            std::iter::once(0).chain(entries.iter().map(add)).collect::<Vec<usize>>()
        };
        Self {
            entries,
            limits,
            whole: sums(|entry| entry.tokens),
            replaced: sums(|entry| entry.replaced_tokens.unwrap_or(entry.tokens)),
            instructions: sums(|entry| if entry.is_instruction() { entry.tokens } else { 0 }),
        }
    }

    /// Returns the tokens of the history up to the user message at `end`, in a form.
    fn history_tokens(&self, form: HistoryForm, end: usize) -> usize {
        let HistoryForm { summarized, cleared } = form;
        let cleared = cleared.clamp(summarized, end);
        let summary = if summarized > 0 { self.limits.summary_tokens } else { 0 };
        summary
            + self.instructions[summarized]
            + (self.replaced[cleared] - self.replaced[summarized])
            + (self.whole[end] - self.whole[cleared])
            + self.entries[end].plain_tokens
    }
}

/// Returns the plan for a history.
pub(super) fn plan(entries: &[PlanEntry], limits: PlanLimits) -> CompactionPlan {
    let is_user = |(_, entry): &(usize, &PlanEntry)| entry.role == Role::User;
    let users: Vec<usize> = entries.iter().enumerate().filter(is_user).map(|(index, _)| index).collect();
    let sizes = Sizes::new(entries, limits);
    let mut plan = CompactionPlan::default();
    for turn in 0..users.len() {
        let size = sizes.history_tokens(plan.form, users[turn]);
        if size > limits.planning_threshold() && plan.next.is_none() {
            plan.next = next_form(&sizes, plan.form, &users, turn);
        }
        if size <= limits.applied_above() {
            continue;
        }
        plan.apply();
        // A single turn may be longer than the distance between the thresholds.
        if sizes.history_tokens(plan.form, users[turn]) > limits.applied_above() {
            plan.next = next_form(&sizes, plan.form, &users, turn);
            plan.apply();
        }
    }
    plan
}

impl CompactionPlan {
    fn apply(&mut self) {
        if let Some(next) = self.next.take() {
            if next.summarized != self.form.summarized {
                self.earlier = self.form.summarized;
            }
            self.form = next;
        }
    }
}

/// Returns the form that shortens the prompt of a turn; `None` if too little would be gained.
fn next_form(sizes: &Sizes<'_>, form: HistoryForm, users: &[usize], turn: usize) -> Option<HistoryForm> {
    let PlanLimits { keep_turns, keep_tool_results, available, .. } = sizes.limits;
    let (end, target) = (users[turn], sizes.limits.target());
    let first_kept = users[turn.saturating_sub(keep_turns)];
    let results = (form.summarized..end).rev().filter(|index| sizes.entries[*index].role == Role::Tool);
    let kept_results = results.take(keep_tool_results).last().unwrap_or(end);
    let mut next = HistoryForm { cleared: form.cleared.max(first_kept.min(kept_results)), ..form };
    let shortest_form = HistoryForm { summarized: next.summarized.max(first_kept), ..next };
    if sizes.history_tokens(next, end) > target
        && sizes.history_tokens(shortest_form, end) > sizes.limits.applied_above()
    {
        // The kept part of the former turns is too large.
        next.cleared = end;
    }
    if sizes.history_tokens(next, end) > target {
        next.summarized = fitting_turn(sizes, next, &users[..=turn], first_kept, target);
    }
    if sizes.history_tokens(next, end) > sizes.limits.applied_above() {
        next.summarized = fitting_turn(sizes, next, &users[..=turn], end, target);
    }
    let (before, after) = (sizes.history_tokens(form, end), sizes.history_tokens(next, end));
    let is_enough = before.saturating_sub(after) >= available / MIN_GAIN_DIVISOR
        || (before > available && after < before);
    (next != form && is_enough).then_some(next)
}

/// Returns the first turn, up to `last`, with which the history has the target size; `last` if there is none.
fn fitting_turn(sizes: &Sizes<'_>, form: HistoryForm, users: &[usize], last: usize, target: usize) -> usize {
    let end = users.last().copied().unwrap_or_default();
    let mut candidates = users.iter().copied().filter(|begin| (form.summarized + 1..=last).contains(begin));
    let fits =
        |begin: &usize| sizes.history_tokens(HistoryForm { summarized: *begin, ..form }, end) <= target;
    candidates.clone().find(fits).or_else(|| candidates.next_back()).unwrap_or(form.summarized)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PlanLimits = PlanLimits {
        available: 10_000,
        at: 800,
        to: 400,
        keep_turns: 2,
        keep_tool_results: 3,
        summary_tokens: 500,
    };

    fn entry(role: Role, tokens: usize) -> PlanEntry {
        let replaced_tokens = (role == Role::Tool && tokens > 20).then_some(20);
        PlanEntry { role, tokens, plain_tokens: tokens, replaced_tokens }
    }

    /// Returns a history of turns of a question, a call, its result, and an answer.
    fn history(turns: usize, result: usize, text: usize) -> Vec<PlanEntry> {
        let turn = [
            entry(Role::User, text),
            entry(Role::Assistant, 20),
            entry(Role::Tool, result),
            entry(Role::Assistant, text),
        ];
        let mut entries: Vec<PlanEntry> = (0..turns).flat_map(|_| turn).collect();
        entries.push(entry(Role::User, text));
        entries
    }

    fn size(entries: &[PlanEntry], form: HistoryForm) -> usize {
        Sizes::new(entries, LIMITS).history_tokens(form, entries.len() - 1)
    }

    #[test]
    fn a_short_history_is_sent_whole() {
        assert_eq!(plan(&history(10, 200, 100), LIMITS), CompactionPlan::default());
        assert_eq!(plan(&[], LIMITS), CompactionPlan::default());
    }

    #[test]
    fn tool_results_are_left_out_first_and_then_turns_are_summarized() {
        let results = plan(&history(16, 600, 10), LIMITS).form;
        assert_eq!(results.summarized, 0, "{results:?}");
        assert!(results.cleared > 4 * 5 && results.cleared <= 4 * 11, "{results:?}");
        let turns = plan(&history(40, 10, 100), LIMITS).form;
        assert!(turns.summarized > 0 && turns.summarized.is_multiple_of(4), "{turns:?}");
    }

    #[test]
    fn a_plan_comes_before_its_effect_and_stays_as_it_is() {
        let mut planned = None;
        let mut changes = 0;
        let mut last = HistoryForm::default();
        for turns in 1..400 {
            let entries = history(turns, 10, 100);
            let found = plan(&entries, LIMITS);
            let sent = size(&entries, found.form);
            assert!(sent <= LIMITS.applied_above(), "{turns}: {sent}");
            if found.form != last {
                assert_eq!(Some(found.form), planned, "{turns}: it was planned before");
                assert!(sent <= LIMITS.share(500), "{turns}: {sent}");
                (last, changes) = (found.form, changes + 1);
            }
            planned = found.next;
        }
        // 400 turns of 230 tokens; 4,000 tokens are between two changes.
        assert!((10..=400 / 15).contains(&changes), "{changes}");
    }

    #[test]
    fn turns_that_are_kept_are_kept_unless_they_do_not_fit() {
        // Three turns of 3,000 tokens.
        let large = |turns: usize| {
            let turn = [entry(Role::User, 1_000), entry(Role::Assistant, 2_000)];
            let mut entries: Vec<PlanEntry> = (0..turns).flat_map(|_| turn).collect();
            entries.push(entry(Role::User, 10));
            entries
        };
        assert_eq!(plan(&large(3), LIMITS).form.summarized, 2);
        for turns in 3..50 {
            let entries = large(turns);
            let planned = plan(&entries, LIMITS);
            assert!(size(&entries, planned.form) <= LIMITS.available, "{turns}");
        }
        let limits = PlanLimits { keep_turns: 50, ..LIMITS };
        assert!(plan(&large(5), limits).form.summarized > 0, "turns are summarized if they do not fit");
    }

    #[test]
    fn one_large_result_is_left_out_before_any_turn() {
        let mut entries = history(3, 10, 100);
        entries[10] = entry(Role::Tool, 250_000);
        let planned = plan(&entries, LIMITS);
        assert_eq!(planned.form, HistoryForm { summarized: 0, cleared: 12 });
        assert!(size(&entries, planned.form) < 1_000);
    }

    #[test]
    fn instructions_and_the_latest_turn_are_never_left_out() {
        let mut entries = vec![entry(Role::System, 6_000)];
        entries.extend(history(30, 10, 100));
        let planned = plan(&entries, LIMITS);
        assert!(planned.form.summarized > 0);
        assert!(size(&entries, planned.form) > 6_000);
        let latest = vec![entry(Role::User, 20_000)];
        assert_eq!(plan(&latest, LIMITS), CompactionPlan::default());
        // The latest turn continues with calls, which the plan of its beginning does not count.
        let mut open = history(10, 10, 100);
        open.extend([entry(Role::Assistant, 20), entry(Role::Tool, 50_000)]);
        assert_eq!(plan(&open, LIMITS), CompactionPlan::default());
    }

    #[test]
    fn the_context_of_a_message_counts_from_the_next_prompt_on() {
        let with_contexts = |turns: usize| {
            let mut entries = history(turns, 10, 100);
            entries.iter_mut().filter(|entry| entry.role == Role::User).for_each(|entry| entry.tokens += 300);
            entries
        };
        let mut known = Vec::new();
        for turns in 1..60 {
            let mut entries = with_contexts(turns);
            let stored = plan(&entries, LIMITS);
            entries.last_mut().expect("a message").tokens -= 300;
            assert_eq!(plan(&entries, LIMITS), stored, "as when it was sent");
            known.push(stored.form);
        }
        assert!(known.last().is_some_and(|form| form.summarized > 0));
    }
}
