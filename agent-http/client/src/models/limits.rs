//! Token limits of models: the role's, settings, the catalogue's, and windows learned from servers' errors.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_core::budget::{TokenBudget, TokenCounter};
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::ids::CompanyId;
use agent_core::role::TokenLimits;
use agent_platform::catalog::{Catalog, InputModality};
use agent_platform::company_table::{CompanyTable, CompanyTableLimits};

use crate::context_size::ContextSize;
use crate::outbound::current_tenant;

/// Context window of a hosted model about which nothing is known, in tokens.
const DEFAULT_CONTEXT_WINDOW: usize = 128_000;
/// Default limit on an answer, in tokens; `MAX_OUTPUT_TOKENS`.
pub const DEFAULT_MAX_OUTPUT_TOKENS: usize = 16_384;
/// Divisor of the context window: an answer gets at most one part in this many.
const OUTPUT_SHARE_DIVISOR: usize = 4;
/// Least context window that is learned, in tokens, even if a server reports a smaller one.
const MIN_CONTEXT_WINDOW: usize = 256;
/// Maximum number of models whose limits a process remembers, counted once for each company.
const MAX_LEARNED_MODELS: usize = 1024;
/// Lifetime of learned limits: the server of a model may be restarted with another configuration.
const LEARNED_TTL: Duration = Duration::from_secs(60 * 60);

/// Limits on the tokens of models, shared by the models of a process.
#[derive(Debug, Clone)]
pub struct ModelLimits {
    /// Context window in tokens, prompt and answer together, `CONTEXT_WINDOW`. `None` for the catalogue's, else 128,000.
    pub context_window: Option<usize>,
    /// Limit on an answer, in tokens, `MAX_OUTPUT_TOKENS`, or the catalogue's if that is lower. An answer never gets more
    /// than a quarter of the window.
    pub max_output_tokens: usize,
    /// Limits of the role, which take precedence over all others.
    pub role: TokenLimits,
    /// Limits of the model by the company's provider, which take precedence over the settings' window and the catalogue.
    pub company: TokenLimits,
    /// Limits of models.
    pub catalog: Arc<Catalog>,
    /// Limits that servers have reported.
    pub learned: Arc<LearnedLimits>,
    /// Counter by `o200k_base`, from which the counts of unpublished tokenizers are estimated; `None` leaves them to the
    /// platform's counter.
    pub counter: Option<Arc<dyn TokenCounter>>,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            context_window: None,
            max_output_tokens: DEFAULT_MAX_OUTPUT_TOKENS,
            role: TokenLimits::default(),
            company: TokenLimits::default(),
            catalog: Catalog::built_in(),
            learned: Arc::new(LearnedLimits::default()),
            counter: None,
        }
    }
}

/// The limits of one model, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResolvedLimits {
    /// Limit on prompt and answer together.
    pub(crate) context_window: usize,
    /// Limit on the answer.
    pub(crate) max_output_tokens: usize,
}

impl ResolvedLimits {
    /// Returns the prompt's share of the window.
    pub(crate) fn prompt_budget(self) -> TokenBudget {
        TokenBudget { max_prompt_tokens: self.context_window.saturating_sub(self.max_output_tokens) }
    }
}

impl ModelLimits {
    /// Returns the limits, combined with the limits of a role.
    #[must_use]
    pub(crate) fn with_role(&self, role: TokenLimits) -> Self {
        Self { role, ..self.clone() }
    }

    /// Returns false for a model that reads text alone by the catalogue.
    pub(crate) fn supports_media(&self, provider: &str, model: &str) -> bool {
        let known = self.catalog.model_with_window(provider, model).and_then(|model| model.input.as_ref());
        known.is_none_or(|input| input.contains(&InputModality::Image))
    }

    /// Returns the limits with a window that a server gives to all models, or the catalogue's if that is smaller.
    #[must_use]
    pub(crate) fn with_server_window(&self, window: usize, provider: &str, model: &str) -> Self {
        let known = self.catalog.model_with_window(provider, model).and_then(|model| model.context_window);
        let window = window.min(known.map_or(usize::MAX, tokens));
        Self { context_window: Some(window), ..self.clone() }
    }

    /// Returns the learned limits of the model with the key `key`.
    pub(crate) fn resolve(&self, provider: &str, model: &str, key: &str) -> ResolvedLimits {
        let known = self.catalog.model_with_window(provider, model);
        let window = self.role.context_window.or(self.company.context_window);
        let window = window.map(tokens).or(self.context_window);
        let window = window.or_else(|| known.and_then(|model| model.context_window).map(tokens));
        let learned = self.learned.get(key).and_then(|learned| learned.window);
        let window = window.unwrap_or(DEFAULT_CONTEXT_WINDOW).min(learned.unwrap_or(usize::MAX));
        let output = self.role.max_output_tokens.map(tokens).unwrap_or_else(|| {
            let known = known.and_then(|model| model.max_output_tokens);
            let known = self.company.max_output_tokens.or(known).map_or(usize::MAX, tokens);
            self.max_output_tokens.min(known)
        });
        ResolvedLimits {
            context_window: window,
            max_output_tokens: output.min(window / OUTPUT_SHARE_DIVISOR).max(1),
        }
    }

    /// Learns the window from the error of a call whose prompt has `estimated` tokens by the platform's count.
    pub(crate) fn learn(
        &self,
        (provider, model): (&str, &str),
        key: &str,
        error: &AgentError,
        estimated: Option<usize>,
    ) {
        if error.kind() != AgentErrorKind::ContextExceeded {
            return;
        }
        let fits = |window: usize| {
            let role = TokenLimits { context_window: None, ..self.role };
            let company = TokenLimits { context_window: None, ..self.company };
            let limits = Self { context_window: Some(window), role, company, ..self.clone() };
            limits.resolve(provider, model, "").prompt_budget().max_prompt_tokens
        };
        if let Some(window) = learned_window(ContextSize::of(error), estimated, fits) {
            tracing::info!(
                model,
                window,
                "the context window of a model was learned from its server's error"
            );
            self.learned.update(key, |learned| learned.window = Some(window));
        }
    }
}

fn tokens(limit: NonZeroU32) -> usize {
    limit.get() as usize
}

/// Returns the key of a model in the learned limits.
pub(crate) fn window_key(address: &str, model: &str) -> String {
    format!("{address}\n{model}")
}

/// Computes the window by the platform's count, which may differ from the server's: a prompt that fits the result fits
/// the server's window, and is shorter than the rejected one. `budget` returns the prompt's share of a window.
fn learned_window(
    size: ContextSize,
    estimated: Option<usize>,
    budget: impl Fn(usize) -> usize,
) -> Option<usize> {
    let [window, prompt] = [size.window, size.prompt].map(|size| size.map(|size| size as usize));
    let window = match (window, prompt, estimated) {
        (Some(window), Some(prompt), Some(estimated)) if prompt > estimated => window * estimated / prompt,
        (Some(window), ..) => window,
        (None, _, estimated) => estimated?,
    };
    let window = match estimated {
        Some(estimated) if budget(window) >= estimated => estimated,
        _ => window,
    };
    Some(window.max(MIN_CONTEXT_WINDOW))
}

/// Limits of models learned from servers' errors, and members of requests that the servers refuse, by address and model. When
/// it is full, a new one replaces the oldest of the company with the most, at the cost of one more rejected call.
///
/// Limits that a company's calls have taught apply to its own calls: a server may repeat parts of a request in the text of its
/// error, so that a company could choose what is learned. The company is the [current tenant](current_tenant).
#[derive(Debug)]
pub struct LearnedLimits(Mutex<CompanyTable<String, LearnedModel>>);

impl Default for LearnedLimits {
    fn default() -> Self {
        let limits = CompanyTableLimits { total: MAX_LEARNED_MODELS, per_company: MAX_LEARNED_MODELS };
        Self(Mutex::new(CompanyTable::new(limits)))
    }
}

/// Limits and refused members of one model.
#[derive(Debug, Clone)]
struct LearnedModel {
    /// Context window, in tokens.
    window: Option<usize>,
    /// Names of members that the server's API does not have.
    refused_members: Vec<&'static str>,
    learned_at: Instant,
}

impl LearnedLimits {
    fn lock(&self) -> MutexGuard<'_, CompanyTable<String, LearnedModel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: &str) -> Option<LearnedModel> {
        let models = self.lock();
        let learned = models.get(&CompanyId::from(current_tenant()), key);
        learned.filter(|learned| learned.learned_at.elapsed() < LEARNED_TTL).cloned()
    }

    /// Returns true if the server of the model under `key` refuses a member of requests.
    pub(super) fn refuses(&self, key: &str, member: &str) -> bool {
        self.get(key).is_some_and(|learned| learned.refused_members.contains(&member))
    }

    /// Records that the server of the model under `key` refuses a member of requests.
    pub(super) fn record_refusal(&self, key: &str, member: &'static str) {
        self.update(key, |learned| {
            if !learned.refused_members.contains(&member) {
                learned.refused_members.push(member);
            }
        });
    }

    fn update(&self, key: &str, change: impl FnOnce(&mut LearnedModel)) {
        let learned_at = Instant::now();
        let mut learned = match self.get(key) {
            Some(known) => LearnedModel { learned_at, ..known },
            None => LearnedModel { window: None, refused_members: Vec::new(), learned_at },
        };
        change(&mut learned);
        self.lock().insert(&CompanyId::from(current_tenant()), key.to_owned(), learned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::in_tenant;

    fn overflow(window: Option<u32>, prompt: Option<u32>) -> AgentError {
        ContextSize { window, prompt }.add_to(AgentError::new(AgentErrorKind::ContextExceeded, "too long"))
    }

    fn resolved(limits: &ModelLimits, model: &str) -> (usize, usize) {
        let ResolvedLimits { context_window, max_output_tokens } = limits.resolve("openai", model, "k");
        (context_window, max_output_tokens)
    }

    #[test]
    fn models_that_read_only_text_are_known() {
        let limits = ModelLimits::default();
        let cases =
            [("gpt-5-mini", true), ("o3-mini", false), ("gpt-4-0613", false), ("our-own-model", true)];
        for (model, expected) in cases {
            assert_eq!(limits.supports_media("openai", model), expected, "{model}");
        }
    }

    #[test]
    fn the_window_is_the_roles_else_the_settings_else_the_catalogues() {
        let mut limits = ModelLimits::default();
        for (model, expected) in [
            ("gpt-4o-mini", (128_000, 16_384)),
            ("openai/gpt-4-turbo-2024-04-09", (128_000, 4_096)),
            ("gpt-4-0613", (8_192, 2_048)),
            ("GPT-4-0613", (8_192, 2_048)),
            ("gpt-5-mini", (272_000, 16_384)),
            ("qwen3", (128_000, 16_384)),
        ] {
            assert_eq!(resolved(&limits, model), expected, "{model}");
        }
        limits.max_output_tokens = 100_000;
        assert_eq!(resolved(&limits, "gpt-5-mini"), (272_000, 68_000), "a quarter at most");
        assert_eq!(resolved(&limits, "gpt-4o"), (128_000, 16_384));
        limits.context_window = Some(4_096);
        limits.max_output_tokens = 500;
        assert_eq!(resolved(&limits, "gpt-4o"), (4_096, 500));
        let role = TokenLimits { context_window: NonZeroU32::new(2_000), max_output_tokens: None };
        assert_eq!(resolved(&limits.with_role(role), "gpt-4o"), (2_000, 500));
        let role = TokenLimits { context_window: None, max_output_tokens: NonZeroU32::new(9_000) };
        assert_eq!(resolved(&limits.with_role(role), "gpt-4o"), (4_096, 1_024), "a quarter at most");
        let role = TokenLimits { context_window: None, max_output_tokens: NonZeroU32::new(9_000) };
        let of_role = ModelLimits::default().with_role(role);
        assert_eq!(resolved(&of_role, "gpt-4-turbo"), (128_000, 9_000), "the role knows better");
        let company = TokenLimits {
            context_window: NonZeroU32::new(64_000),
            max_output_tokens: NonZeroU32::new(2_048),
        };
        let of_company = ModelLimits { company, ..ModelLimits::default() };
        assert_eq!(resolved(&of_company, "gpt-4o"), (64_000, 2_048));
        assert_eq!(resolved(&of_company.with_role(role), "gpt-4o"), (64_000, 9_000));
        let of_setting = ModelLimits { context_window: Some(4_096), max_output_tokens: 500, ..of_company };
        assert_eq!(resolved(&of_setting, "gpt-4o"), (64_000, 500), "the company knows its window");
    }

    #[test]
    fn a_files_limits_take_precedence_over_the_built_in_ones() {
        let file = r#"{"asOf":"2026-01-31","models":[
            {"provider":"openai","model":"gpt-4o","contextWindow":32768},
            {"provider":"openai","model":"million","contextWindow":1048576,"maxOutputTokens":8192},
            {"provider":"ollama","model":"small","contextWindow":4096,"maxOutputTokens":64}]}"#;
        let catalog = Catalog::clone(&Catalog::built_in()).merged(file).expect("a catalogue");
        let limits = ModelLimits { catalog: Arc::new(catalog), ..ModelLimits::default() };
        assert_eq!(resolved(&limits, "gpt-4o"), (32_768, 8_192));
        assert_eq!(resolved(&limits, "million"), (1_048_576, 8_192));
        for (model, expected) in
            [("small", (4_096, 64)), ("large", (8_192, 2_048)), ("gpt-4o", (8_192, 2_048))]
        {
            let limits = limits.with_server_window(8_192, "ollama", model).resolve("ollama", model, "k");
            assert_eq!((limits.context_window, limits.max_output_tokens), expected, "{model}");
        }
    }

    #[test]
    fn a_learned_window_cuts_the_next_prompt() {
        let cases = [
            // Window and prompt that the server reports; estimate; least and most of the learned window.
            (Some(4_096), Some(9_000), Some(9_000), 4_096, 4_096),
            (Some(4_096), Some(9_000), Some(12_000), 4_096, 4_096),
            (Some(4_096), Some(10_000), Some(5_000), 2_048, 2_048),
            (Some(4_096), None, Some(9_000), 4_096, 4_096),
            (Some(4_096), None, Some(1_000), 1_000, 1_000),
            (None, None, Some(9_000), 9_000, 9_000),
            (Some(1), Some(u32::MAX), Some(9_000), MIN_CONTEXT_WINDOW, MIN_CONTEXT_WINDOW),
        ];
        for (window, prompt, estimated, least, most) in cases {
            let limits = ModelLimits::default();
            limits.learn(("openai", "m"), "k", &overflow(window, prompt), estimated);
            let learned = limits.resolve("openai", "m", "k");
            assert!((least..=most).contains(&learned.context_window), "{window:?} {prompt:?}: {learned:?}");
            let budget = learned.prompt_budget().max_prompt_tokens;
            assert!(estimated.is_none_or(|estimated| budget < estimated), "{budget} for {estimated:?}");
            assert_eq!(limits.resolve("openai", "m", "other").context_window, DEFAULT_CONTEXT_WINDOW);
        }
        let limits = ModelLimits::default();
        limits.learn(("openai", "m"), "k", &overflow(None, None), None);
        limits.learn(("openai", "m"), "k", &AgentError::new(AgentErrorKind::Failed, "no"), Some(9_000));
        assert_eq!(limits.resolve("openai", "m", "k").context_window, DEFAULT_CONTEXT_WINDOW);
    }

    #[test]
    fn windows_learned_from_one_company_are_not_used_for_another() {
        let limits = ModelLimits::default();
        let of = |company: &str, known: &dyn Fn() -> bool| in_tenant(company.into(), known);
        in_tenant("c1".into(), || {
            limits.learn(("openai", "m"), "k", &overflow(Some(4_096), None), None);
            limits.learned.record_refusal("k", "stream_options");
        });
        let is_window_known = || limits.resolve("openai", "m", "k").context_window == 4_096;
        let is_refusal_known = || limits.learned.refuses("k", "stream_options");
        assert!(of("c1", &is_window_known) && of("c1", &is_refusal_known));
        assert!(!of("c2", &is_window_known) && !of("c2", &is_refusal_known));
        assert!(!is_window_known() && !is_refusal_known(), "without a company");
    }

    #[test]
    fn learned_windows_are_bounded() {
        let limits = ModelLimits::default();
        for index in 0..MAX_LEARNED_MODELS + 100 {
            limits.learn(("openai", "m"), &index.to_string(), &overflow(Some(4_096), None), None);
            assert_eq!(limits.resolve("openai", "m", &index.to_string()).context_window, 4_096);
        }
        assert_eq!(limits.learned.lock().len(), MAX_LEARNED_MODELS);
    }
}
