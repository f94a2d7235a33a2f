//! Conformance suite for [`ToolRegistry`].

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{join, join_all};
use serde_json::{Value, json};

use super::{EffectCounter, OpenWorkCounter, Scenario, drop_in_progress, wait_until_idle, with_timeout};
use crate::tool::{ExecutionContext, NoProgress, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};

/// Maximum size of a tool's result unless the subject says otherwise, in bytes.
const MAX_OUTPUT_BYTES: usize = 4 << 20;

/// A call that a suite may make.
#[derive(Debug, Clone)]
pub struct SampleCall {
    /// The tool's name.
    pub tool: String,
    /// Arguments that conform to the tool's input schema.
    pub arguments: Value,
}

impl SampleCall {
    /// Creates a call of `tool`.
    pub fn new(tool: &str, arguments: Value) -> Self {
        Self { tool: tool.to_owned(), arguments }
    }
}

/// Calls that show whether one company's data reaches another.
#[derive(Debug, Clone)]
pub struct TenantProbe {
    /// Execution context in another company.
    pub other_context: ExecutionContext,
    /// A call that stores `marker` for the company of the subject's context.
    pub write: SampleCall,
    /// A call that returns `marker` to the company that has stored it.
    pub read: SampleCall,
    /// A text that occurs nowhere else.
    pub marker: String,
}

/// A tool registry under test, the context of its calls, and calls that the suite may make.
pub struct ToolRegistrySubject {
    /// The registry.
    pub tools: Arc<dyn ToolRegistry>,
    /// Execution context of the calls.
    pub context: ExecutionContext,
    /// Calls that behave as the scenario says, at least one. In [`Scenario::Completes`] each can be repeated.
    pub calls: Vec<SampleCall>,
    /// Tools that exist but are not allowed in the context.
    pub forbidden: Vec<SampleCall>,
    /// A call that reports progress, if there is one.
    pub progress: Option<SampleCall>,
    /// Calls in two companies, if the tools store data.
    pub tenants: Option<TenantProbe>,
    /// Maximum size of a result's text, in bytes.
    pub max_output_bytes: usize,
    /// Counter of the calls' effects, if they can be counted.
    pub effects: Option<EffectCounter>,
    /// Counter of the calls in progress, if they can be counted.
    pub open: Option<OpenWorkCounter>,
}

impl ToolRegistrySubject {
    /// Creates a subject without the optional parts.
    pub fn new(
        tools: Arc<dyn ToolRegistry>,
        context: ExecutionContext,
        calls: impl IntoIterator<Item = SampleCall>,
    ) -> Self {
        Self {
            tools,
            context,
            calls: calls.into_iter().collect(),
            forbidden: Vec::new(),
            progress: None,
            tenants: None,
            max_output_bytes: MAX_OUTPUT_BYTES,
            effects: None,
            open: None,
        }
    }

    async fn call(&self, sample: &SampleCall) -> Result<ToolOutput, ToolError> {
        self.call_in(&self.context, sample, &NoProgress).await
    }

    async fn call_in(
        &self,
        context: &ExecutionContext,
        sample: &SampleCall,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let result = self.tools.call(context, &sample.tool, sample.arguments.clone(), progress);
        with_timeout(&format!("the result of {}", sample.tool), result).await
    }

    /// Calls a tool and returns its result, which must not be an error.
    async fn call_ok(&self, sample: &SampleCall) -> ToolOutput {
        match self.call(sample).await {
            Ok(output) if !output.is_error => output,
            other => panic!("a valid call has a result: {sample:?}: {other:?}"),
        }
    }

    async fn specs(&self) -> Vec<Arc<ToolSpec>> {
        let listed = with_timeout("the list of tools", self.tools.list(&self.context)).await;
        listed.unwrap_or_else(|error| panic!("listing the tools failed: {error:?}"))
    }

    fn count_effects(&self) -> Option<usize> {
        self.effects.as_ref().map(|count| count())
    }
}

/// Runs the conformance suite of [`ToolRegistry`] against registries whose calls behave as the scenario says: they
/// complete, hang, lose their result on the way, or fail. The factory must provide the first scenario,
/// [`Scenario::Completes`].
///
/// Arguments that break a schema are derived from the input schemas and the subject's calls: a missing required
/// member, a member of another type, and no object at all.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn tool_registry(make: impl AsyncFn(Scenario) -> Option<ToolRegistrySubject>) {
    let subject = make(Scenario::Completes).await.expect("the factory provides Scenario::Completes");
    assert!(!subject.calls.is_empty(), "the subject has a sample call");
    the_list_is_sorted_and_stable(&subject).await;
    every_schema_is_an_object_schema(&subject).await;
    unknown_and_forbidden_tools_are_refused_alike(&subject).await;
    arguments_that_break_the_schema_are_refused(&subject).await;
    results_conform(&subject).await;
    a_call_that_was_never_polled_has_no_effect(&subject).await;
    progress_reaches_its_own_call(&subject).await;
    companies_are_isolated(&subject).await;
    if let Some(open) = &subject.open {
        wait_until_idle("calls that are over leave no work behind", open).await;
    }
    if let Some(subject) = make(Scenario::Hangs).await {
        dropping_a_call_cancels_it(&subject).await;
    }
    for scenario in [Scenario::Truncates, Scenario::Rejects] {
        if let Some(subject) = make(scenario).await {
            a_failed_call_has_no_result(&subject, scenario).await;
        }
    }
}

async fn the_list_is_sorted_and_stable(subject: &ToolRegistrySubject) {
    let specs = subject.specs().await;
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert!(names.iter().all(|name| !name.is_empty()), "a tool has a name: {names:?}");
    assert!(names.is_sorted_by(|a, b| a < b), "tools are sorted by name, and a name is unique: {names:?}");
    let text = |specs: &[Arc<ToolSpec>]| serde_json::to_string(specs).expect("a definition serialises");
    assert_eq!(text(&specs), text(&subject.specs().await), "the list is the same each time");
    for call in &subject.calls {
        assert!(names.contains(&call.tool.as_str()), "a tool that can be called is listed: {}", call.tool);
    }
    for call in &subject.forbidden {
        assert!(
            !names.contains(&call.tool.as_str()),
            "a tool that is not allowed is not listed: {}",
            call.tool
        );
    }
}

/// Parses a schema, which must describe an object.
fn object_schema(spec: &ToolSpec, schema: &str) -> Value {
    let name = &spec.name;
    let schema: Value =
        serde_json::from_str(schema).unwrap_or_else(|error| panic!("a schema is JSON: {name}: {error}"));
    assert_eq!(schema["type"], "object", "a schema describes an object: {name}: {schema}");
    schema
}

fn required_members(schema: &Value) -> Vec<&str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

async fn every_schema_is_an_object_schema(subject: &ToolRegistrySubject) {
    for spec in subject.specs().await {
        for schema in [Some(&spec.input_schema), spec.output_schema.as_ref()].into_iter().flatten() {
            let schema = object_schema(&spec, schema.get());
            for name in required_members(&schema) {
                assert!(
                    schema["properties"].get(name).is_some(),
                    "a required member is described: {}: {name}",
                    spec.name
                );
            }
        }
    }
}

async fn unknown_and_forbidden_tools_are_refused_alike(subject: &ToolRegistrySubject) {
    let before = subject.count_effects();
    let unknown = ["", "no such tool", "\u{0}/../\u{202e}", &"x".repeat(4096)]
        .map(|name| SampleCall::new(name, json!({})));
    for call in unknown.iter().chain(&subject.forbidden) {
        let result = subject.call(call).await;
        assert!(
            matches!(&result, Err(ToolError::Unknown(name)) if *name == call.tool),
            "a tool that does not exist or is not allowed is ToolError::Unknown: {:?}: {result:?}",
            call.tool
        );
    }
    assert_eq!(subject.count_effects(), before, "a tool that is not allowed has no effect");
}

/// Returns arguments that break the schema, each with the path that the error must name.
fn broken_arguments(schema: &Value, arguments: &Value) -> Vec<(String, Value)> {
    let mut broken = vec![(String::new(), json!([1])), (String::new(), json!("text"))];
    let Some(members) = arguments.as_object() else { return broken };
    for name in required_members(schema) {
        let mut arguments = members.clone();
        arguments.remove(name);
        broken.push((name.to_owned(), arguments.into()));
    }
    for name in members.keys() {
        let wrong = match schema["properties"][name]["type"].as_str() {
            Some("string") => json!(1),
            Some(_) => json!("of another type"),
            None => continue,
        };
        let mut arguments = members.clone();
        arguments[name] = wrong;
        broken.push((name.clone(), arguments.into()));
    }
    broken
}

async fn arguments_that_break_the_schema_are_refused(subject: &ToolRegistrySubject) {
    let specs = subject.specs().await;
    let before = subject.count_effects();
    for call in &subject.calls {
        let Some(spec) = specs.iter().find(|spec| spec.name == call.tool) else { continue };
        let schema = object_schema(spec, spec.input_schema.get());
        for (path, arguments) in broken_arguments(&schema, &call.arguments) {
            let call = SampleCall { arguments, ..call.clone() };
            let text = match subject.call(&call).await {
                Ok(output) if !output.is_error => {
                    panic!("arguments that break the schema are refused: {call:?}: {output:?}")
                }
                Ok(output) => output.text,
                Err(error) => error.to_string(),
            };
            assert!(text.contains(&path), "a refusal names the path {path:?}: {call:?}: {text}");
        }
    }
    assert_eq!(subject.count_effects(), before, "a call that is refused has no effect");
}

async fn results_conform(subject: &ToolRegistrySubject) {
    let specs = subject.specs().await;
    for call in &subject.calls {
        let spec = specs.iter().find(|spec| spec.name == call.tool).expect("the list was checked");
        let is_read_only = spec.annotations.is_some_and(|annotations| annotations.read_only_hint);
        let before = subject.count_effects();
        let output = subject.call_ok(call).await;
        check_output(subject, spec, &output);
        // Concurrent calls get their own results.
        for concurrent in join_all((0..3).map(|_| subject.call_ok(call))).await {
            check_output(subject, spec, &concurrent);
            assert!(
                !is_read_only || concurrent == output,
                "a read-only tool repeats its result: {call:?}: {concurrent:?}"
            );
        }
        if is_read_only {
            assert_eq!(subject.count_effects(), before, "a read-only tool has no effect: {}", spec.name);
        }
    }
}

fn check_output(subject: &ToolRegistrySubject, spec: &ToolSpec, output: &ToolOutput) {
    let name = &spec.name;
    let (size, max) = (output.text.len(), subject.max_output_bytes);
    assert!(size <= max, "a result has at most {max} bytes: {name}: {size}");
    let Some(schema) = &spec.output_schema else { return };
    let schema = object_schema(spec, schema.get());
    let members = output.structured.as_ref().and_then(Value::as_object);
    let members = members.unwrap_or_else(|| {
        panic!("a tool with an output schema has a structured result: {name}: {output:?}")
    });
    for member in required_members(&schema) {
        assert!(members.contains_key(member), "a structured result is complete: {name}: {member}");
    }
    assert!(!output.text.is_empty(), "a structured result has a text for the model: {name}");
}

async fn a_call_that_was_never_polled_has_no_effect(subject: &ToolRegistrySubject) {
    let before = subject.count_effects();
    for call in &subject.calls {
        drop(subject.tools.call(&subject.context, &call.tool, call.arguments.clone(), &NoProgress));
    }
    assert_eq!(subject.count_effects(), before, "a call that was never polled has no effect");
    if let Some(open) = &subject.open {
        wait_until_idle("a call that was never polled begins no work", open).await;
    }
}

/// Records the reports of one call.
#[derive(Default)]
struct RecordedProgress(Mutex<Vec<f64>>);

impl RecordedProgress {
    fn take(&self) -> Vec<f64> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Progress for RecordedProgress {
    fn report(&self, progress: f64, _: Option<f64>, _: Option<&str>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(progress);
    }
}

async fn progress_reaches_its_own_call(subject: &ToolRegistrySubject) {
    let Some(reporting) = &subject.progress else { return };
    let (first, second) = (RecordedProgress::default(), RecordedProgress::default());
    let run = async |sample: &SampleCall, progress: &RecordedProgress| {
        let result = subject.call_in(&subject.context, sample, progress).await;
        assert!(result.is_ok(), "a call that reports progress has a result: {result:?}");
        progress.take()
    };
    let alone = run(reporting, &first).await;
    assert!(!alone.is_empty(), "progress reaches the caller");
    assert!(alone.is_sorted_by(|a, b| a < b), "progress increases: {alone:?}");
    let together = join(run(reporting, &first), run(reporting, &second)).await;
    assert_eq!(together, (alone.clone(), alone), "progress of concurrent calls reaches its own call");
    if let Some(silent) = subject.calls.iter().find(|call| call.tool != reporting.tool) {
        let (_, reports) = join(run(reporting, &first), run(silent, &second)).await;
        assert!(reports.is_empty(), "progress reaches no other call: {reports:?}");
    }
}

async fn companies_are_isolated(subject: &ToolRegistrySubject) {
    let Some(probe) = &subject.tenants else { return };
    subject.call_ok(&probe.write).await;
    let company_result = subject.call_ok(&probe.read).await;
    assert!(
        company_result.text.contains(&probe.marker),
        "a company reads what it has written: {company_result:?}"
    );
    let text = match subject.call_in(&probe.other_context, &probe.read, &NoProgress).await {
        Ok(output) => format!("{output:?}"),
        Err(error) => error.to_string(),
    };
    assert!(!text.contains(&probe.marker), "a company sees nothing of another: {text}");
}

async fn dropping_a_call_cancels_it(subject: &ToolRegistrySubject) {
    for sample in &subject.calls {
        let before = subject.count_effects();
        let call = subject.tools.call(&subject.context, &sample.tool, sample.arguments.clone(), &NoProgress);
        drop_in_progress("dropping a call cancels it", call, subject.open.as_ref()).await;
        assert_eq!(subject.count_effects(), before, "a call that was dropped has no later effect");
        subject.specs().await;
    }
}

async fn a_failed_call_has_no_result(subject: &ToolRegistrySubject, scenario: Scenario) {
    for sample in &subject.calls {
        let result = subject.call(sample).await;
        assert!(
            !matches!(&result, Ok(output) if !output.is_error),
            "a call that fails is an error ({scenario:?}): {sample:?}: {result:?}"
        );
        if let Err(error) = result {
            assert!(!error.to_string().is_empty(), "an error has a text for the model: {error:?}");
        }
    }
    if let Some(open) = &subject.open {
        wait_until_idle("a call that failed leaves no work behind", open).await;
    }
}
