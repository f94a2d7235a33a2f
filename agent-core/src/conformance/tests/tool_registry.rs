//! The suite of tool registries, against the core's own registries and against defective ones.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};

use super::*;
use crate::testing::FakeTools;
use crate::tool::{
    ExecutionContext, LocalToolRegistry, Progress, Tool, ToolError, ToolOutput, ToolRegistry, ToolSpec,
};

fn context(company: &str) -> ExecutionContext {
    ExecutionContext { user_id: "ada".into(), company_id: company.into(), ..ExecutionContext::default() }
}

/// Builds the subject of registries with the tools `a`, `b` and `slow`, without those in `forbidden`.
fn fake_subject(
    scenario: Scenario,
    fakes: &Arc<FakeTools>,
    tools: Arc<dyn ToolRegistry>,
) -> ToolRegistrySubject {
    let name = if scenario == Scenario::Hangs { "slow" } else { "a" };
    let (running, calls) = (fakes.clone(), fakes.clone());
    let mut subject = ToolRegistrySubject::new(tools, context("company"), [SampleCall::new(name, json!({}))]);
    subject.open = Some(Box::new(move || running.running()));
    subject.effects = Some(Box::new(move || calls.finished()));
    subject
}

fn fakes(scenario: Scenario) -> Arc<FakeTools> {
    let fakes = FakeTools::new().hangs("slow").answers("b", "no");
    Arc::new(match scenario {
        Scenario::Completes | Scenario::Hangs => fakes.answers("a", "yes"),
        Scenario::Truncates => {
            fakes.behaves("a", |_| async { Err(ToolError::Unavailable("the answer broke off".into())) })
        }
        Scenario::Rejects => fakes.behaves("a", |_| async { Ok(ToolOutput::error("not today")) }),
    })
}

#[tokio::test]
async fn fake_tools_conform() {
    tool_registry(async |scenario| {
        let fakes = fakes(scenario);
        Some(fake_subject(scenario, &fakes, fakes.clone()))
    })
    .await;
}

/// One of the tools of [`NoteTools`].
struct NoteTool(&'static str, Arc<NoteTools>);

#[async_trait]
impl Tool for NoteTool {
    fn spec(&self) -> Arc<ToolSpec> {
        specs().into_iter().find(|spec| spec.name == self.0).expect("it is one of them")
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        self.1.call(context, self.0, arguments, progress).await
    }
}

#[tokio::test]
async fn a_local_registry_conforms() {
    tool_registry(async |scenario| {
        let notes = NoteTools::new(scenario, None)?;
        let tools = ["steps", "readNotes", "addNote"]
            .into_iter()
            .fold(LocalToolRegistry::new(), |tools, name| tools.with_tool(NoteTool(name, notes.clone())));
        Some(note_subject(&notes, Arc::new(tools)))
    })
    .await;
}

/// Violation of the contract of a registry.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ToolDefect {
    ListsUnsorted,
    ListsForbidden,
    ChangesTheList,
    HasNoObjectSchema,
    FailsForUnknown,
    RunsForbidden,
    IgnoresTypes,
    HidesThePath,
    WritesBeforeChecking,
    AnswersWithoutStructure,
    AnswersTooMuch,
    WritesWhileReading,
    ForgetsProgress,
    MixesProgress,
    ForgetsTheCompany,
    WritesWhenDropped,
    HidesFailures,
    AnswersAtOnce,
}

/// A registry that stores notes for each company, with at most one defect.
struct NoteTools {
    defect: Option<ToolDefect>,
    scenario: Scenario,
    notes: Mutex<Vec<(String, String)>>,
    lists: AtomicUsize,
    effects: AtomicUsize,
    running: AtomicUsize,
    shared_reports: AtomicUsize,
}

/// Counts a running call, and adds an effect when dropped if the defect says so.
struct Running<'a>(&'a NoteTools);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        if self.0.has(ToolDefect::WritesWhenDropped) {
            self.0.effects.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn specs() -> Vec<Arc<ToolSpec>> {
    let specs = json!([
        {"name": "addNote", "inputSchema": {"type": "object", "required": ["text"],
            "properties": {"text": {"type": "string"}, "priority": {"type": "integer"}}},
         "outputSchema": {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}},
        {"name": "readNotes", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
        {"name": "steps", "inputSchema": {"type": "object"}},
    ]);
    serde_json::from_value(specs).expect("the definitions are well formed")
}

impl NoteTools {
    fn new(scenario: Scenario, defect: Option<ToolDefect>) -> Option<Arc<Self>> {
        let tools = Self {
            defect,
            scenario,
            notes: Mutex::default(),
            lists: AtomicUsize::new(0),
            effects: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            shared_reports: AtomicUsize::new(0),
        };
        (scenario != Scenario::Truncates).then(|| Arc::new(tools))
    }

    fn has(&self, defect: ToolDefect) -> bool {
        self.defect == Some(defect)
    }

    fn add(&self, context: &ExecutionContext, text: &str) -> Result<ToolOutput, ToolError> {
        self.effects.fetch_add(1, Ordering::SeqCst);
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push((context.company_id.to_string(), text.to_owned()));
        if self.has(ToolDefect::AnswersWithoutStructure) {
            return Ok(ToolOutput::text("added"));
        }
        ToolOutput::structured(json!({"count": notes.len()}))
    }

    fn read(&self, context: &ExecutionContext) -> ToolOutput {
        if self.has(ToolDefect::WritesWhileReading) {
            self.effects.fetch_add(1, Ordering::SeqCst);
        }
        if self.has(ToolDefect::AnswersTooMuch) {
            return ToolOutput::text("x".repeat(2_000));
        }
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let company_notes = notes.iter().filter(|(company, _)| {
            self.has(ToolDefect::ForgetsTheCompany) || *company == *context.company_id
        });
        ToolOutput::text(company_notes.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n"))
    }

    async fn report_steps(&self, progress: &dyn Progress) -> ToolOutput {
        if self.has(ToolDefect::ForgetsProgress) {
            return ToolOutput::text("done");
        }
        for step in 1..=3 {
            // Concurrent calls that share their reports: each gets a part of them.
            let shared = self.shared_reports.fetch_add(1, Ordering::SeqCst);
            if !self.has(ToolDefect::MixesProgress)
                || self.running.load(Ordering::SeqCst) < 2
                || shared.is_multiple_of(2)
            {
                progress.report(f64::from(step), Some(3.0), None);
            }
            tokio::task::yield_now().await;
        }
        ToolOutput::text("done")
    }

    fn text_argument(&self, arguments: &Map<String, Value>) -> Result<String, ToolError> {
        let fail = |text: &str| {
            let text = if self.has(ToolDefect::HidesThePath) { "they are wrong" } else { text };
            Err(ToolError::InvalidArguments(text.to_owned()))
        };
        if arguments.get("priority").is_some_and(|priority| !priority.is_i64()) {
            return fail("priority: it must be an integer");
        }
        match arguments.get("text") {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) if self.has(ToolDefect::IgnoresTypes) => Ok(other.to_string()),
            _ => fail("text: it must be a string"),
        }
    }
}

#[async_trait]
impl ToolRegistry for NoteTools {
    async fn list(&self, _: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        let mut specs = specs();
        match self.defect {
            Some(ToolDefect::ListsUnsorted) => specs.reverse(),
            Some(ToolDefect::ChangesTheList) => {
                let count = self.lists.fetch_add(1, Ordering::SeqCst);
                Arc::make_mut(&mut specs[0]).description = count.to_string();
            }
            Some(ToolDefect::ListsForbidden) => {
                specs.insert(1, Arc::new(ToolSpec { name: "clearNotes".to_owned(), ..(*specs[2]).clone() }));
            }
            Some(ToolDefect::HasNoObjectSchema) => {
                let schema = serde_json::value::to_raw_value(&json!({"type": "string"})).expect("it is JSON");
                Arc::make_mut(&mut specs[1]).input_schema = schema.into();
            }
            _ => {}
        }
        Ok(specs)
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let is_known = specs().iter().any(|spec| spec.name == name);
        if name == "clearNotes" && self.has(ToolDefect::RunsForbidden) {
            return Ok(ToolOutput::text("cleared"));
        }
        if !is_known && self.has(ToolDefect::FailsForUnknown) {
            return Err(ToolError::internal("an index out of bounds"));
        }
        if !is_known {
            return Err(ToolError::Unknown(name.to_owned()));
        }
        if self.has(ToolDefect::WritesBeforeChecking) {
            self.effects.fetch_add(1, Ordering::SeqCst);
        }
        let Value::Object(arguments) = arguments else {
            return Err(ToolError::InvalidArguments("they must be a JSON object".to_owned()));
        };
        match self.scenario {
            Scenario::Hangs if self.has(ToolDefect::AnswersAtOnce) => return Ok(ToolOutput::text("")),
            Scenario::Rejects if self.has(ToolDefect::HidesFailures) => return Ok(ToolOutput::text("")),
            Scenario::Rejects => return Err(ToolError::Unavailable("the notes are away".to_owned())),
            _ => {}
        }
        self.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(self);
        if self.scenario == Scenario::Hangs {
            std::future::pending::<()>().await;
        }
        let result = match name {
            "addNote" => self.text_argument(&arguments).and_then(|text| self.add(context, &text)),
            "readNotes" => Ok(self.read(context)),
            _ => Ok(self.report_steps(progress).await),
        };
        drop(running);
        result
    }
}

fn note_subject(notes: &Arc<NoteTools>, tools: Arc<dyn ToolRegistry>) -> ToolRegistrySubject {
    let add = |text: &str| SampleCall::new("addNote", json!({"text": text, "priority": 1}));
    let (running, effects) = (notes.clone(), notes.clone());
    ToolRegistrySubject {
        forbidden: vec![SampleCall::new("clearNotes", json!({}))],
        progress: Some(SampleCall::new("steps", json!({}))),
        tenants: Some(TenantProbe {
            other_context: context("other"),
            write: add("the marker"),
            read: SampleCall::new("readNotes", json!({})),
            marker: "the marker".to_owned(),
        }),
        max_output_bytes: 1_000,
        effects: Some(Box::new(move || effects.effects.load(Ordering::SeqCst))),
        open: Some(Box::new(move || running.running.load(Ordering::SeqCst))),
        ..ToolRegistrySubject::new(
            tools,
            context("company"),
            [add("water the basil"), SampleCall::new("readNotes", json!({}))],
        )
    }
}

#[tokio::test]
async fn a_defective_registry_is_detected() {
    let cases = [
        (ToolDefect::ListsUnsorted, "tools are sorted by name"),
        (ToolDefect::ListsForbidden, "a tool that is not allowed is not listed"),
        (ToolDefect::ChangesTheList, "the list is the same each time"),
        (ToolDefect::HasNoObjectSchema, "a schema describes an object"),
        (ToolDefect::FailsForUnknown, "is ToolError::Unknown"),
        (ToolDefect::RunsForbidden, "is not allowed is ToolError::Unknown: \"clearNotes\""),
        (ToolDefect::IgnoresTypes, "arguments that break the schema are refused"),
        (ToolDefect::HidesThePath, "a refusal names the path"),
        (ToolDefect::WritesBeforeChecking, "a call that is refused has no effect"),
        (ToolDefect::AnswersWithoutStructure, "has a structured result"),
        (ToolDefect::AnswersTooMuch, "a result has at most 1000 bytes"),
        (ToolDefect::WritesWhileReading, "a read-only tool has no effect"),
        (ToolDefect::ForgetsProgress, "progress reaches the caller"),
        (ToolDefect::MixesProgress, "progress of concurrent calls reaches its own call"),
        (ToolDefect::ForgetsTheCompany, "a company sees nothing of another"),
        (ToolDefect::WritesWhenDropped, "has no later effect"),
        (ToolDefect::HidesFailures, "a call that fails is an error"),
        (ToolDefect::AnswersAtOnce, "dropping a call cancels it: it hangs and has no result"),
    ];
    for (defect, expected) in cases {
        let make = async |scenario| {
            let notes = NoteTools::new(scenario, Some(defect))?;
            // A defect at the end of a call would also be one of a call that completes.
            if defect == ToolDefect::WritesWhenDropped && scenario == Scenario::Completes {
                let notes = NoteTools::new(scenario, None)?;
                return Some(note_subject(&notes, notes.clone()));
            }
            Some(note_subject(&notes, notes.clone()))
        };
        let message = panic_message(tool_registry(make)).await;
        assert!(message.contains(expected), "{defect:?} is called: {message}");
    }
}
