//! Metrics of runs, of their calls of models and tools, and of budgets and circuits, for Prometheus.
//!
//! Labels have a bounded number of values: models beyond the first `MAX_MODELS` are `other`, and tools that are not built in are
//! `custom`. No label names a company, a user or an agent. The metrics are public, and the names of models and of runtimes'
//! providers are a tenant's choice, such as those of models that it has trained: names that the operator has not given are
//! `custom`, too.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use agent_core::error::AgentErrorKind;
use agent_core::select::BackendKind;
use agent_platform::catalog::Catalog;
use agent_platform::fallback::Circuits;
use agent_platform::tools::is_built_in;
use agent_platform::usage::{RunSummary, TokenCounts, UsageEntry, UsageObserver};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::metrics::Metrics;

/// Maximum number of models with separate counters.
const MAX_MODELS: usize = 200;
/// Bounds of the buckets of runs' durations, in seconds.
const RUN_BUCKETS_SECONDS: [f64; 11] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];
/// Bounds of the buckets of the times until the first content, in seconds.
const FIRST_CONTENT_BUCKETS_SECONDS: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Label of all other providers.
const OTHER: &str = "other";
/// Label of the tools that are not built in, and of models and providers whose names a tenant has chosen.
const CUSTOM: &str = "custom";
/// Names of the platform's providers, and the name for calls whose provider is not known.
const PROVIDERS: [&str; 9] = [
    "anthropic",
    "local",
    "ollama",
    "openai",
    "openai-responses",
    "runtime",
    "subscription",
    "workflow",
    OTHER,
];
/// Number of nano-dollars in a dollar.
const NANOS_PER_USD: f64 = 1e9;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    provider: String,
    model: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    provider: String,
    model: String,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CostLabels {
    provider: String,
    model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabels {
    tool: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RunLabels {
    backend: &'static str,
    caller: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabel {
    backend: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    kind: &'static str,
    unit: &'static str,
}

/// Metrics of a process.
#[derive(Debug)]
pub struct UsageMetrics {
    runs: Family<RunLabels, Counter>,
    durations: Family<BackendLabel, Histogram>,
    first_contents: Family<BackendLabel, Histogram>,
    budget_refusals: Family<RefusalLabels, Counter>,
    attempts: Family<AttemptLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    cost: Family<CostLabels, Counter<f64, AtomicU64>>,
    tool_calls: Family<ToolLabels, Counter>,
    models: Mutex<HashSet<(String, String)>>,
    operator: OperatorModels,
}

/// Models with names from the operator: of the catalogue, and of settings.
#[derive(Debug)]
struct OperatorModels {
    catalog: Arc<Catalog>,
    /// Providers and models.
    names: HashSet<(String, String)>,
    providers: HashSet<String>,
}

impl OperatorModels {
    /// Returns the labels of a provider and its model.
    fn labels(&self, provider: &str, model: &str) -> (String, String) {
        let names = (provider.to_owned(), model.to_owned());
        if self.names.contains(&names) {
            return names;
        }
        let is_known = self.providers.contains(provider) || PROVIDERS.contains(&provider);
        // The catalogue has the name without a date or a vendor.
        let known = self.catalog.model_with_window(provider, model);
        let model = known.map_or(if model.is_empty() { "" } else { CUSTOM }, |known| known.model.as_str());
        (if is_known { provider } else { CUSTOM }.to_owned(), model.to_owned())
    }
}

impl UsageMetrics {
    /// Creates the metrics, and registers them. `configured` are the providers and models that settings name, in addition to
    /// the catalogue's.
    pub fn new(
        metrics: &Metrics,
        catalog: Arc<Catalog>,
        configured: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let of_catalog = catalog.models().map(|model| (model.provider.clone(), model.model.clone()));
        let names: HashSet<_> = of_catalog.chain(configured).collect();
        let providers = names.iter().map(|(provider, _)| provider.clone()).collect();
        let operator = OperatorModels { catalog, names, providers };
        let all = Self {
            runs: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(RUN_BUCKETS_SECONDS)),
            first_contents: Family::new_with_constructor(|| Histogram::new(FIRST_CONTENT_BUCKETS_SECONDS)),
            budget_refusals: Family::default(),
            attempts: Family::default(),
            tokens: Family::default(),
            cost: Family::default(),
            tool_calls: Family::default(),
            models: Mutex::default(),
            operator,
        };
        metrics.register(|registry| {
            let text = "Number of calls of models that have ended";
            registry.register("model_attempts", text, all.attempts.clone());
            let text = "Number of tokens of ended calls; cached, written and reasoning tokens are parts of the others";
            registry.register("tokens", text, all.tokens.clone());
            registry.register("cost_usd", "Price of ended calls in US dollars", all.cost.clone());
            registry.register("tool_calls", "Number of tool calls that have ended", all.tool_calls.clone());
            registry.register("runs", "Number of runs that have ended", all.runs.clone());
            let text = "Time from the admission of a run to its end";
            registry.register("run_seconds", text, all.durations.clone());
            let text = "Time from the admission of a run to its first text, reasoning or tool call";
            registry.register("first_content_seconds", text, all.first_contents.clone());
            let text = "Number of runs and calls that a limit has not admitted";
            registry.register("budget_refusals", text, all.budget_refusals.clone());
        });
        all
    }

    /// Returns the provider and the model as labels.
    fn model_labels(&self, provider: &str, model: &str) -> (String, String) {
        let key = self.operator.labels(provider, model);
        let mut known = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        match known.contains(&key) || (known.len() < MAX_MODELS && known.insert(key.clone())) {
            true => key,
            false => (OTHER.to_owned(), OTHER.to_owned()),
        }
    }
}

/// Returns the label of an outcome. Codes of other services are not bounded.
fn outcome_label(outcome: &str) -> &'static str {
    match outcome {
        "ok" => "ok",
        "cancelled" => "cancelled",
        "lost" => "lost",
        code => AgentErrorKind::from_code(code).map_or(OTHER, AgentErrorKind::code),
    }
}

impl UsageObserver for UsageMetrics {
    fn on_model_call(&self, entry: &UsageEntry, provider: &str) {
        let (provider, model) = self.model_labels(provider, &entry.model);
        let outcome = outcome_label(&entry.outcome);
        let attempt = AttemptLabels { provider: provider.clone(), model: model.clone(), outcome };
        self.attempts.get_or_create(&attempt).inc();
        let TokenCounts {
            input_tokens,
            cached_input_tokens,
            cache_write_tokens,
            output_tokens,
            reasoning_tokens,
        } = entry.tokens;
        for (kind, count) in [
            ("input", input_tokens),
            ("cached_input", cached_input_tokens),
            ("cache_write", cache_write_tokens),
            ("output", output_tokens),
            ("reasoning", reasoning_tokens),
        ] {
            if count > 0 {
                let labels = TokenLabels { provider: provider.clone(), model: model.clone(), kind };
                self.tokens.get_or_create(&labels).inc_by(count);
            }
        }
        if let Some(cost) = entry.cost {
            self.cost
                .get_or_create(&CostLabels { provider, model })
                .inc_by(cost.get() as f64 / NANOS_PER_USD);
        }
    }

    fn on_tool_call(&self, tool: &str, outcome: &'static str) {
        // The names of other tools are the tenants' choice.
        let tool = if is_built_in(tool) { tool } else { CUSTOM };
        self.tool_calls.get_or_create(&ToolLabels { tool: tool.to_owned(), outcome }).inc();
    }

    fn on_run_end(&self, run: &RunSummary<'_>) {
        let backend = backend_label(run.backend);
        let labels = RunLabels { backend, caller: run.caller, outcome: outcome_label(run.outcome) };
        self.runs.get_or_create(&labels).inc();
        let label = BackendLabel { backend };
        self.durations.get_or_create(&label).observe(run.duration.as_secs_f64());
        if let Some(time) = run.first_content {
            self.first_contents.get_or_create(&label).observe(time.as_secs_f64());
        }
    }

    fn on_budget_refusal(&self, kind: &'static str, unit: &'static str) {
        self.budget_refusals.get_or_create(&RefusalLabels { kind, unit }).inc();
    }
}

fn backend_label(kind: BackendKind) -> &'static str {
    match kind {
        BackendKind::AgentServer => "agentServer",
        BackendKind::Workflow => "workflow",
        BackendKind::Embedded => "embedded",
        BackendKind::Subscription => "subscription",
        BackendKind::Custom => "custom",
        _ => OTHER,
    }
}

/// Registers the number of a process's open circuits.
pub fn register_circuits(metrics: &Metrics, circuits: Arc<Circuits>) {
    metrics.register(|registry| registry.register_collector(Box::new(OpenCircuits(circuits))));
}

struct OpenCircuits(Arc<Circuits>);

impl std::fmt::Debug for OpenCircuits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenCircuits").finish_non_exhaustive()
    }
}

impl Collector for OpenCircuits {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let count = ConstGauge::new(self.0.open_count(Instant::now()) as f64);
        let text = "Number of open circuits, through which no call is made to a model or an agent server";
        let kind = count.metric_type();
        count.encode(encoder.encode_descriptor("circuit_open", text, None, kind)?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_core::tool::Caller;
    use agent_platform::usage::{NanoUsd, RunScope, UsageOperation};
    use jiff::Timestamp;

    use super::*;

    fn entry(model: &str, outcome: &str) -> UsageEntry {
        UsageEntry {
            id: "1".to_owned(),
            scope: RunScope {
                company_id: "secret-company".into(),
                run_id: "r".into(),
                agent_id: "secret-agent".into(),
                user_id: "secret-user".into(),
                caller: Caller::Session,
                token_id: None,
                visitor: None,
            },
            round: 1,
            attempt: 1,
            operation: UsageOperation::Chat,
            provider: "secret-provider".to_owned(),
            model: model.to_owned(),
            tokens: TokenCounts { input_tokens: 7, output_tokens: 2, ..TokenCounts::default() },
            tool_calls: 0,
            cost: Some(NanoUsd::new(500_000_000)),
            price_as_of: None,
            estimated: false,
            outcome: outcome.to_owned(),
            ended_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn calls_are_counted_without_tenants_and_with_few_models() {
        let registry = Metrics::default();
        let configured = (0..MAX_MODELS + 50).map(|n| ("openai".to_owned(), format!("model-{n}")));
        let metrics = UsageMetrics::new(&registry, Catalog::built_in(), configured);
        for outcome in ["ok", "ok", "RATE_LIMITED", "THEIR_CODE", "cancelled", "lost"] {
            metrics.on_model_call(&entry("gpt-5", outcome), "openai");
        }
        for n in 0..MAX_MODELS + 50 {
            metrics.on_model_call(&entry(&format!("model-{n}"), "ok"), "openai");
            metrics.on_tool_call(&format!("secret-tool-{n}"), "error");
        }
        metrics.on_tool_call("createTodo", "ok");
        // Other spellings of a model are the model, and a workflow has none.
        for (provider, model) in
            [("openai", "gpt-5-2025-08-07"), ("openai", "secret-vendor/gpt-5"), ("workflow", "")]
        {
            metrics.on_model_call(&entry(model, "cancelled"), provider);
        }
        let text = registry.encode();
        for line in [
            "agentd_model_attempts_total{provider=\"openai\",model=\"gpt-5\",outcome=\"ok\"} 2\n",
            "agentd_model_attempts_total{provider=\"openai\",model=\"gpt-5\",outcome=\"RATE_LIMITED\"} 1\n",
            "agentd_model_attempts_total{provider=\"openai\",model=\"gpt-5\",outcome=\"other\"} 1\n",
            "agentd_model_attempts_total{provider=\"openai\",model=\"gpt-5\",outcome=\"cancelled\"} 3\n",
            "agentd_model_attempts_total{provider=\"other\",model=\"other\",outcome=\"cancelled\"} 1\n",
            "agentd_model_attempts_total{provider=\"openai\",model=\"gpt-5\",outcome=\"lost\"} 1\n",
            "agentd_model_attempts_total{provider=\"other\",model=\"other\",outcome=\"ok\"} 51\n",
            "agentd_tokens_total{provider=\"openai\",model=\"gpt-5\",kind=\"input\"} 56\n",
            "agentd_tokens_total{provider=\"openai\",model=\"gpt-5\",kind=\"output\"} 16\n",
            "agentd_cost_usd_total{provider=\"openai\",model=\"gpt-5\"} 4.0\n",
            "agentd_tool_calls_total{tool=\"createTodo\",outcome=\"ok\"} 1\n",
            "agentd_tool_calls_total{tool=\"custom\",outcome=\"error\"} 250\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("kind=\"reasoning\""), "what is not there has no counter");
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn names_that_tenants_choose_are_no_labels() {
        let registry = Metrics::default();
        let configured = [("ollama".to_owned(), "llama3.2".to_owned())];
        let metrics = UsageMetrics::new(&registry, Catalog::built_in(), configured);
        for (provider, model) in [
            ("openai", "ft:gpt-4.1-mini:secret-company::1"),
            ("ollama", "secret-model"),
            ("secret-runtime", "gpt-5"),
            ("runtime", "secret-model"),
            ("ollama", "llama3.2"),
            ("workflow", ""),
        ] {
            metrics.on_model_call(&entry(model, "ok"), provider);
        }
        let text = registry.encode();
        for labels in [
            "provider=\"openai\",model=\"custom\"",
            "provider=\"ollama\",model=\"custom\"",
            "provider=\"runtime\",model=\"custom\"",
            "provider=\"ollama\",model=\"llama3.2\"",
            "provider=\"workflow\",model=\"\"",
        ] {
            let line = format!("agentd_model_attempts_total{{{labels},outcome=\"ok\"}} 1\n");
            assert!(text.contains(&line), "{line}: {text}");
        }
        assert!(text.contains("provider=\"custom\"") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn runs_and_refusals_are_counted_with_few_outcomes() {
        let registry = Metrics::default();
        let metrics = UsageMetrics::new(&registry, Catalog::built_in(), []);
        let run = RunSummary {
            backend: BackendKind::AgentServer,
            caller: "widget",
            outcome: "ok",
            duration: Duration::from_secs(3),
            first_content: Some(Duration::from_millis(200)),
        };
        metrics.on_run_end(&run);
        metrics.on_run_end(&RunSummary { outcome: "THEIR_CODE", first_content: None, ..run });
        metrics.on_budget_refusal("company", "cost");
        let text = registry.encode();
        for line in [
            "agentd_runs_total{backend=\"agentServer\",caller=\"widget\",outcome=\"ok\"} 1\n",
            "agentd_runs_total{backend=\"agentServer\",caller=\"widget\",outcome=\"other\"} 1\n",
            "agentd_run_seconds_bucket{le=\"2.5\",backend=\"agentServer\"} 0\n",
            "agentd_run_seconds_bucket{le=\"5.0\",backend=\"agentServer\"} 2\n",
            "agentd_first_content_seconds_bucket{le=\"0.1\",backend=\"agentServer\"} 0\n",
            "agentd_first_content_seconds_bucket{le=\"0.25\",backend=\"agentServer\"} 1\n",
            "agentd_budget_refusals_total{kind=\"company\",unit=\"cost\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
