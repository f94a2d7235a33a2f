//! Tests of journals: repeated attempts, takeovers, and the calls that are not repeated.

use std::time::UNIX_EPOCH;

use futures_util::{FutureExt, StreamExt};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::memory::MemoryRecords;
use crate::roles::RecordRoleStore;
use crate::seal::Sealer;
use crate::tools::{self, ToolServices};
use crate::workspace::{MetricFilter, list_metrics};
use agent_core::backend::ModelSource as _;
use agent_core::message::{FinishReason, ProviderItem};
use agent_core::model::{Model, ModelEvent};
use agent_core::role::EmbeddedAi;
use agent_core::testing::{FakeTools, ManualClock, ScriptedAnswer, ScriptedModel};
use agent_core::tool::{NoProgress, ToolError, ToolOutput, ToolRegistry};

/// A process over shared records: its journals, the built-in tools, and tools outside.
struct Process {
    journals: Arc<Journals>,
    builtin: JournaledTools,
    outside: JournaledTools,
    calls: Arc<FakeTools>,
}

fn clock() -> ManualClock {
    ManualClock::at(UNIX_EPOCH + Duration::from_secs(1_000_000))
}

impl Process {
    fn start(records: &Arc<MemoryRecords>, clock: &ManualClock, outside: FakeTools) -> Self {
        let journals = Arc::new(Journals::new(records.clone(), Arc::new(clock.clone())));
        let roles = Arc::new(RecordRoleStore::new(records.clone(), Sealer::ephemeral()));
        let services = ToolServices { journals: Some(journals.clone()), ..ToolServices::default() };
        let builtin = Arc::new(tools::builtin_tools(records.clone(), roles, services));
        let calls = Arc::new(outside);
        Self {
            builtin: JournaledTools::new(builtin, journals.clone(), tools::is_repeatable),
            outside: JournaledTools::new(calls.clone(), journals.clone(), tools::is_repeatable),
            journals,
            calls,
        }
    }

    fn claim(&self, kind: JobKind) -> ClaimOutcome {
        let (job, payload) = (JobId::from("j"), payload(kind));
        let claim = self.journals.claim((&job, 1), &payload, Duration::from_secs(330));
        ready(claim).expect("the store works")
    }

    fn run(&self, kind: JobKind) -> ActiveRun {
        match self.claim(kind) {
            ClaimOutcome::Claimed(run, OccurrenceWork::Run) => run,
            ClaimOutcome::Claimed(_, OccurrenceWork::FollowUp(_)) => panic!("there is no follow-up"),
            ClaimOutcome::Busy(left) => panic!("busy for {left:?}"),
            ClaimOutcome::Done => panic!("done"),
        }
    }
}

fn payload(kind: JobKind) -> JobPayload {
    let payload =
        json!({"kind": kind, "userId": "u", "companyId": "c", "agentId": "a", "toolId": "t", "message": "m"});
    serde_json::from_value(payload).expect("a payload")
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("no wait")
}

/// Returns the context of a call in the occurrence; `occurrence_place` is its round and index in a turn.
fn context(occurrence_place: Option<&str>) -> ExecutionContext {
    ExecutionContext {
        user_id: "u".into(),
        company_id: "c".into(),
        agent_id: "a".into(),
        run_id: "j:1".into(),
        idempotency_key: occurrence_place.map(|occurrence_place| format!("j:1/{occurrence_place}")),
        ..ExecutionContext::default()
    }
}

fn call(
    tools: &JournaledTools,
    occurrence_place: Option<&str>,
    name: &str,
    arguments: Value,
) -> Result<ToolOutput, ToolError> {
    ready(tools.call(&context(occurrence_place), name, arguments, &NoProgress))
}

fn record_metric(
    process: &Process,
    occurrence_place: Option<&str>,
    value: u32,
) -> Result<ToolOutput, ToolError> {
    call(&process.builtin, occurrence_place, "recordMetric", json!({"name": "sales", "value": value}))
}

fn metrics(records: &MemoryRecords) -> usize {
    let (company, filter, list) = (CompanyId::from("c"), MetricFilter::default(), ListQuery::default());
    ready(list_metrics(records, &company, &filter, &list)).expect("read").items.len()
}

fn entries(records: &MemoryRecords) -> Vec<String> {
    let entries = Collection::new("c", JOURNAL_COLLECTION).expect("a name");
    let page = ready(records.list(&entries, &ListQuery::default())).expect("read");
    page.records.into_iter().map(|record| record.id).collect()
}

#[test]
fn the_effect_of_a_tool_job_is_one_transaction_with_its_completion() {
    let (records, clock) = (Arc::new(MemoryRecords::default()), clock());
    let process = Process::start(&records, &clock, FakeTools::new());
    let run = process.run(JobKind::Tool);
    record_metric(&process, None, 7).expect("recorded");
    assert!(run.is_complete());
    let key = Key::new("c", occurrence::OCCURRENCE_COLLECTION, "j:1").expect("a key");
    let state: Record<OccurrenceState> = ready(records.get_as(&key)).expect("read").expect("a state");
    assert!(matches!(state.value, OccurrenceState::Done { .. }), "{state:?}");
    // The process ends here, before it could record anything else.
    let next = Process::start(&records, &clock, FakeTools::new());
    assert!(matches!(next.claim(JobKind::Tool), ClaimOutcome::Done));
    ready(run.complete(Vec::new())).expect("nothing is left to write");
    assert_eq!((metrics(&records), entries(&records)), (1, Vec::new()));
}

#[test]
fn a_process_that_has_lost_its_claim_has_no_effect() {
    let (records, clock) = (Arc::new(MemoryRecords::default()), clock());
    for kind in [JobKind::Tool, JobKind::Agent] {
        let records = if kind == JobKind::Tool { records.clone() } else { Arc::default() };
        let first = Process::start(&records, &clock, FakeTools::new().answers("send", "sent"));
        let run = first.run(kind);
        let second = Process::start(&records, &clock, FakeTools::new());
        assert!(matches!(second.claim(kind), ClaimOutcome::Busy(left) if left <= Duration::from_secs(1)));
        clock.advance(crate::occurrence::PROCESS_LEASE);
        let taken_over = second.run(kind);
        let late = record_metric(&first, Some("1/0"), 7).expect_err("the claim is lost");
        assert!(late.to_string().contains("unavailable"), "{late}");
        call(&first.outside, Some("1/1"), "send", json!({})).expect_err("the claim is lost");
        assert_eq!((metrics(&records), first.calls.calls().len()), (0, 0));
        let late = ready(run.complete(Vec::new()));
        assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
        record_metric(&second, Some("1/0"), 7).expect("it holds the claim");
        assert_eq!(metrics(&records), 1);
        drop(taken_over);
    }
}

#[test]
fn a_running_process_keeps_its_claim_and_does_not_share_it() {
    let (records, clock) = (Arc::new(MemoryRecords::default()), clock());
    let process = Process::start(&records, &clock, FakeTools::new());
    let run = process.run(JobKind::Tool);
    assert!(matches!(process.claim(JobKind::Tool), ClaimOutcome::Busy(_)));
    let other = Process::start(&records, &clock, FakeTools::new());
    for _ in 0..10 {
        clock.advance(Duration::from_secs(1));
        ready(process.journals.extend_lease()).expect("extended");
        assert!(matches!(other.claim(JobKind::Tool), ClaimOutcome::Busy(_)));
    }
    // The process gives up without being able to say so, and takes the occurrence over from itself.
    drop(run);
    process.run(JobKind::Tool);
}

#[test]
fn a_repeated_turn_is_answered_from_the_record() {
    let (records, clock) = (Arc::new(MemoryRecords::default()), clock());
    let outside = || {
        FakeTools::new()
            .answers("send", "sent")
            .behaves("fail", |_| async { Err(ToolError::Unavailable("away".to_owned())) })
    };
    let first = Process::start(&records, &clock, outside());
    let run = first.run(JobKind::Agent);
    let made = [
        record_metric(&first, Some("1/0"), 7).expect("recorded"),
        call(&first.outside, Some("1/1"), "send", json!({"to": "ada"})).expect("sent"),
    ];
    call(&first.outside, Some("2/0"), "fail", json!({})).expect_err("it fails");
    drop(run);
    clock.advance(crate::occurrence::PROCESS_LEASE);
    let second = Process::start(&records, &clock, outside());
    let run = second.run(JobKind::Agent);
    let again = [
        record_metric(&second, Some("1/0"), 7).expect("recorded"),
        call(&second.outside, Some("1/1"), "send", json!({"to": "ada"})).expect("sent"),
    ];
    assert_eq!(made, again);
    let failed = call(&second.outside, Some("2/0"), "fail", json!({})).expect("the recorded result");
    assert_eq!((failed.text.as_str(), failed.is_error), ("away", true));
    assert_eq!((metrics(&records), second.calls.calls().len()), (1, 0));
    // Other arguments, and another place, are another call.
    call(&second.outside, Some("1/1"), "send", json!({"to": "eve"})).expect("sent");
    call(&second.outside, Some("1/2"), "send", json!({"to": "ada"})).expect("sent");
    record_metric(&second, Some("3/0"), 7).expect("recorded");
    let keys: Vec<_> = second.calls.calls().into_iter().map(|call| call.context.idempotency_key).collect();
    let expected = [("1.1", json!({"to": "eve"})), ("1.2", json!({"to": "ada"}))];
    let key = |(occurrence_place, arguments): (&str, Value)| {
        Some(format!("j:1/{occurrence_place}/{}", entry::call_digest("send", &arguments)))
    };
    assert_eq!(keys, expected.map(key));
    assert_eq!(metrics(&records), 2);
    ready(run.complete(Vec::new())).expect("it holds the claim");
    assert_eq!(entries(&records), Vec::<String>::new(), "a done occurrence needs no entries");
}

#[test]
fn calls_from_outside_are_identified_by_their_number() {
    let (records, clock) = (Arc::new(MemoryRecords::default()), clock());
    let outside = || FakeTools::new().answers("send", "sent");
    let first = Process::start(&records, &clock, outside());
    let run = first.run(JobKind::Agent);
    for _ in 0..2 {
        call(&first.outside, None, "send", json!({"to": "ada"})).expect("sent");
    }
    drop(run);
    let run = first.run(JobKind::Agent);
    for _ in 0..3 {
        call(&first.outside, None, "send", json!({"to": "ada"})).expect("sent");
    }
    assert_eq!(first.calls.calls().len(), 3, "the third is new");
    drop(run);
    // Another user's run of the same identifier is none of the occurrence's.
    let _run = first.run(JobKind::Agent);
    let other = ExecutionContext { user_id: "eve".into(), ..context(None) };
    ready(first.outside.call(&other, "send", json!({"to": "ada"}), &NoProgress)).expect("sent");
    assert_eq!(first.calls.calls().len(), 4);
}

#[test]
fn an_interrupted_call_is_repeated_only_where_that_is_harmless() {
    let hanging = || FakeTools::new().hangs("send");
    for kind in [JobKind::Tool, JobKind::Agent] {
        let (records, clock) = (Arc::new(MemoryRecords::default()), clock());
        let first = Process::start(&records, &clock, hanging());
        let run = first.run(kind);
        let call_of = |process: &Process| {
            process.outside.call(&context(Some("1/0")), "send", json!({}), &NoProgress).now_or_never()
        };
        assert!(call_of(&first).is_none(), "the call is interrupted");
        ready(run.record_state(&OccurrenceState::Failed { at: Timestamp::UNIX_EPOCH })).expect("recorded");
        drop(run);
        let second = Process::start(&records, &clock, hanging());
        let run = second.run(kind);
        let unknown = call_of(&second).expect("no call").expect_err("the outcome is unknown");
        assert!(matches!(unknown, ToolError::OutcomeUnknown(_)), "{unknown}");
        assert_eq!(second.calls.calls().len(), 0);
        drop(run);
        clock.advance(crate::occurrence::PROCESS_LEASE);
        let harmless = JournaledTools::new(first.calls.clone(), first.journals.clone(), |_| true);
        let _run = first.run(kind);
        let again = harmless.call(&context(Some("1/0")), "send", json!({}), &NoProgress).now_or_never();
        assert!(again.is_none(), "it is called again");
        assert_eq!(first.calls.calls().len(), 2);
    }
}

#[test]
fn a_failed_call_of_a_tool_job_is_made_again() {
    let (records, clock) = (Arc::new(MemoryRecords::default()), clock());
    let failing =
        FakeTools::new().behaves("send", |_| async { Err(ToolError::Unavailable("away".to_owned())) });
    let process = Process::start(&records, &clock, failing);
    for attempt in 1..=2 {
        let run = process.run(JobKind::Tool);
        let failed = call(&process.outside, None, "send", json!({})).expect_err("it fails");
        assert!(matches!(failed, ToolError::Unavailable(_)), "{failed}");
        ready(run.record_state(&OccurrenceState::Failed { at: Timestamp::UNIX_EPOCH })).expect("recorded");
        assert_eq!(process.calls.calls().len(), attempt);
    }
}

#[test]
fn a_turn_continues_after_the_recorded_answers() {
    let (records, clock) = (Arc::new(MemoryRecords::default()), clock());
    let item = ModelEvent::ProviderItem(ProviderItem {
        json: RawValue::from_string(r#"{"type": "reasoning", "n": 1.0}"#.into()).expect("JSON").into(),
        text_before: 3,
        calls_before: 0,
    });
    let script = || {
        let calling = ScriptedAnswer::new().text("One moment.").event(item.clone());
        calling.call("c1", "send", ["{\"n\":", "1}"]).finish(FinishReason::ToolCalls)
    };
    let model = Arc::new(ScriptedModel::new([script(), ScriptedAnswer::from_text("Done.")]));
    let process = Process::start(&records, &clock, FakeTools::new());
    let models = JournaledModels::new(model.clone(), process.journals.clone());
    let answer = |model: &dyn Model| {
        let payload = agent_core::payload::Payload::builder(0).finish();
        let stream = ready(model.start(payload)).expect("started");
        ready(stream.collect::<Vec<_>>())
            .into_iter()
            .map(|event| event.expect("an event"))
            .collect::<Vec<_>>()
    };
    let text_and_arguments = |events: &[ModelEvent]| {
        let texts = events.iter().filter_map(|event| match event {
            ModelEvent::Text(text) => Some(text.as_str()),
            ModelEvent::ToolCallArgs { delta, .. } => Some(delta.as_str()),
            _ => None,
        });
        texts.collect::<String>()
    };
    let run = process.run(JobKind::Agent);
    let of_run = models.model_for_run(&EmbeddedAi::default(), &context(None)).expect("a model");
    let first = answer(&*of_run);
    drop(run);
    let run = process.run(JobKind::Agent);
    let of_run = models.model_for_run(&EmbeddedAi::default(), &context(None)).expect("a model");
    let again = answer(&*of_run);
    assert_eq!(text_and_arguments(&again), text_and_arguments(&first));
    assert_eq!(again.last(), Some(&ModelEvent::Finish(FinishReason::ToolCalls)));
    assert!(first.contains(&item) && again.contains(&item), "{again:?}");
    assert!(
        again.iter().any(|event| matches!(event, ModelEvent::ToolCallStart { name, .. } if name == "send"))
    );
    assert_eq!(model.unused_answers(), 1, "the model was not asked again");
    assert_eq!(text_and_arguments(&answer(&*of_run)), "Done.");
    assert_eq!(entries(&records), ["j:1/answer.1"], "an answer without calls is not recorded");
    drop(run);
    let outside = models.model_for_run(&EmbeddedAi::default(), &context(None)).expect("a model");
    assert_eq!(outside.info(), model.info());
}

#[test]
fn recorded_calls_keep_the_order_of_their_start() {
    let (records, clock) = (Arc::new(MemoryRecords::default()), clock());
    let start = |index, name: &str| ModelEvent::ToolCallStart { index, id: name.into(), name: name.into() };
    let script = ScriptedAnswer::new().event(start(1, "second")).event(start(0, "first"));
    let model = Arc::new(ScriptedModel::new([script.finish(FinishReason::ToolCalls)]));
    let process = Process::start(&records, &clock, FakeTools::new());
    let models = JournaledModels::new(model, process.journals.clone());
    // The second attempt is answered from the record. A run numbers calls by the order of their start, also in their keys.
    for _ in 0..2 {
        let _run = process.run(JobKind::Agent);
        let of_run = models.model_for_run(&EmbeddedAi::default(), &context(None)).expect("a model");
        let payload = agent_core::payload::Payload::builder(0).finish();
        let stream = ready(of_run.start(payload)).expect("started");
        let events = ready(stream.collect::<Vec<_>>()).into_iter().map(|event| event.expect("an event"));
        let names = events.filter_map(|event| match event {
            ModelEvent::ToolCallStart { name, .. } => Some(name),
            _ => None,
        });
        assert_eq!(names.collect::<Vec<_>>(), ["second", "first"]);
    }
}

#[test]
fn entries_end_with_their_occurrence() {
    let (records, clock) = (Arc::new(MemoryRecords::default()), clock());
    let process = Process::start(&records, &clock, FakeTools::new().answers("send", "sent"));
    let run = process.run(JobKind::Agent);
    call(&process.outside, Some("1/0"), "send", json!({})).expect("sent");
    let clean = || ready(delete_obsolete_entries(&*records, &"c".into(), None)).expect("cleaned");
    assert_eq!(clean(), None);
    assert_eq!(entries(&records).len(), 1, "the occurrence is being run");
    ready(run.record_state(&OccurrenceState::Failed { at: Timestamp::UNIX_EPOCH })).expect("recorded");
    clean();
    assert_eq!(entries(&records).len(), 1, "the occurrence may be tried again");
    let key = Key::new("c", occurrence::OCCURRENCE_COLLECTION, "j:1").expect("a key");
    ready(records.delete(&key, Precondition::Any)).expect("deleted");
    clean();
    assert_eq!(entries(&records), Vec::<String>::new());
}

#[test]
fn entries_end_with_their_user() {
    let (records, clock) = (Arc::new(MemoryRecords::default()), clock());
    let process = Process::start(&records, &clock, FakeTools::new().answers("send", "private"));
    let run = process.run(JobKind::Agent);
    call(&process.outside, Some("1/0"), "send", json!({})).expect("sent");
    record_metric(&process, Some("1/1"), 7).expect("recorded");
    ready(run.record_state(&OccurrenceState::Failed { at: Timestamp::UNIX_EPOCH })).expect("recorded");
    drop(run);
    let states = Collection::new("c", occurrence::OCCURRENCE_COLLECTION).expect("a name");
    let schedule = agent_jobs::schedule::ScheduleSpec::default();
    let request = crate::pulse::JobRequest::new(payload(JobKind::Agent), schedule);
    let follow_up =
        OccurrenceState::FollowUp { until: Timestamp::UNIX_EPOCH, owner: None, request: Box::new(request) };
    let key = states.key("j:2").expect("a key");
    ready(records.put_as(&key, &follow_up, Precondition::Absent)).expect("stored");
    let delete = |user: &str, until: SystemTime| {
        ready(delete_user_entries(&*records, (&"c".into(), &user.into()), until)).expect("deleted");
        let states = ready(records.list(&states, &ListQuery::default())).expect("read").records;
        (entries(&records).len(), states.len())
    };
    let later = SystemTime::now() + Duration::from_secs(60);
    assert_eq!(delete("eve", later), (2, 2), "another user's");
    assert_eq!(delete("u", UNIX_EPOCH), (2, 2), "written later, by a person with the same id");
    assert_eq!(delete("u", later), (0, 1));
    // The remaining record says that the occurrence has failed.
    let run = process.run(JobKind::Agent);
    call(&process.outside, Some("1/0"), "send", json!({})).expect("sent");
    assert_eq!(process.calls.calls().len(), 2, "nothing is recorded");
    drop(run);
}
