//! Tests of the tool loop with a scripted model and fake tools. Every run is checked against the event grammar.

use std::collections::HashMap;
use std::sync::Mutex;

use async_trait::async_trait;
use expect_test::{Expect, expect};
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::{Barrier, oneshot};

use super::*;
use crate::error::{AgentError, AgentErrorKind};
use crate::event::{Audience, Event, EventGrammar, EventStream, OutputLimits, RunIds};
use crate::message::{FinishReason, Message, ProviderItem, Role, ToolCall};
use crate::model::{ModelEvent, ModelRequest, ModelStream};
use crate::payload::Payload;
use crate::prompt::{Prompt, PromptMessage};
use crate::testing::{FakeTools, ManualClock, ScriptedAnswer, ScriptedModel};
use crate::tool::{ExecutionContext, Progress, ToolChoice, ToolError, ToolOutput, ToolSpec};

/// A loop with access to its parts.
struct LoopFixture {
    model: Arc<ScriptedModel>,
    tools: Arc<FakeTools>,
    clock: ManualClock,
    limits: LoopLimits,
    request: ModelRequest,
}

fn bench(tools: FakeTools, answers: impl IntoIterator<Item = ScriptedAnswer>) -> LoopFixture {
    LoopFixture {
        model: Arc::new(ScriptedModel::new(answers)),
        clock: ManualClock::new(),
        limits: LoopLimits::default(),
        request: request(vec![Message::user("hi")], tools.specs()),
        tools: Arc::new(tools),
    }
}

fn request(messages: Vec<Message>, tools: Arc<[Arc<ToolSpec>]>) -> ModelRequest {
    let messages = messages.into_iter().map(PromptMessage::new).collect();
    ModelRequest {
        prompt: Arc::new(Prompt::new(Vec::new(), messages)),
        appended_messages: Vec::new(),
        tools,
        tool_choice: ToolChoice::Auto,
        thinking: None,
        response_format: None,
    }
}

fn context() -> ExecutionContext {
    ExecutionContext { user_id: "ada".into(), company_id: "c".into(), ..ExecutionContext::default() }
}

impl LoopFixture {
    async fn start(&self) -> Result<EventStream, AgentError> {
        self.start_with(self.tools.clone()).await
    }

    async fn start_with(&self, tools: Arc<dyn ToolRegistry>) -> Result<EventStream, AgentError> {
        let tool_loop = ToolLoop {
            model: self.model.clone(),
            tools,
            clock: Arc::new(self.clock.clone()),
            limits: self.limits,
        };
        let payload = self.model.prepare(&self.request)?;
        let run = RunIds { thread_id: "t".into(), run_id: "r".into() };
        tool_loop.start(payload, self.request.clone(), context(), run).await
    }

    /// Runs the loop to its end without waiting.
    fn run(&self) -> Vec<Event> {
        let run = async { read(self.start().await.expect("the run starts")).await };
        run.now_or_never().expect("nothing in this run waits")
    }

    /// Returns the messages sent to the model in a round, counted from 0.
    fn sent(&self, round: usize) -> Value {
        self.model.sent_requests()[round]["messages"].clone()
    }
}

async fn read(stream: EventStream) -> Vec<Event> {
    let events: Vec<Event> = stream.collect().await;
    EventGrammar::check(&events).unwrap_or_else(|violation| panic!("{violation}: {events:?}"));
    events
}

fn text(answer: &[Event]) -> String {
    let deltas = answer.iter().filter_map(|event| match event {
        Event::TextMessageContent { delta, .. } => Some(delta.as_str()),
        _ => None,
    });
    deltas.collect()
}

/// Returns call id, content and error flag of all tool results.
fn results(events: &[Event]) -> Vec<(&str, &str, bool)> {
    let results = events.iter().filter_map(|event| match event {
        Event::ToolCallResult { tool_call_id, content, metadata, .. } => {
            Some((&**tool_call_id, content.as_str(), metadata.is_some_and(|metadata| metadata.is_error)))
        }
        _ => None,
    });
    results.collect()
}

fn call_ids(events: &[Event]) -> Vec<&str> {
    let ids = events.iter().filter_map(|event| match event {
        Event::ToolCallStart { tool_call_id, .. } => Some(&**tool_call_id),
        _ => None,
    });
    ids.collect()
}

fn finish_reason(events: &[Event]) -> Option<FinishReason> {
    match events.last() {
        Some(Event::RunFinished { result, .. }) => result.as_ref().map(|result| result.finish_reason),
        other => panic!("the run did not finish but {other:?}"),
    }
}

fn code(events: &[Event]) -> &str {
    match events.last() {
        Some(Event::RunError { code, .. }) => code,
        other => panic!("the run did not fail but {other:?}"),
    }
}

/// Compares the events as JSON lines, with generated identifiers replaced by numbers.
fn check(events: &[Event], expected: Expect) {
    fn rename(value: &mut Value, names: &mut HashMap<String, String>) {
        match value {
            Value::String(text) if text.len() >= 36 => {
                let next = format!("#{}", names.len() + 1);
                *text = names.entry(text.clone()).or_insert(next).clone();
            }
            Value::Object(members) => members.values_mut().for_each(|member| rename(member, names)),
            _ => {}
        }
    }
    let mut names = HashMap::new();
    let lines = events.iter().map(|event| {
        let mut value = serde_json::to_value(event).expect("events serialise");
        rename(&mut value, &mut names);
        format!("{value}\n")
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn an_answer_of_text_is_one_round() {
    let bench = bench(
        FakeTools::new(),
        [ScriptedAnswer::new().text("Hel").text("").text("lo").finish(FinishReason::Stop)],
    );
    check(
        &bench.run(),
        expect![[r##"
            {"type":"RUN_STARTED","threadId":"t","runId":"r"}
            {"type":"STEP_STARTED","stepName":"round-1"}
            {"type":"TEXT_MESSAGE_START","messageId":"#1","role":"assistant"}
            {"type":"TEXT_MESSAGE_CONTENT","messageId":"#1","delta":"Hel"}
            {"type":"TEXT_MESSAGE_CONTENT","messageId":"#1","delta":"lo"}
            {"type":"TEXT_MESSAGE_END","messageId":"#1"}
            {"type":"STEP_FINISHED","stepName":"round-1"}
            {"type":"RUN_FINISHED","threadId":"t","runId":"r","result":{"finishReason":"stop"}}
        "##]],
    );
}

#[test]
fn reasoning_is_closed_before_the_text_and_text_before_the_calls() {
    let tools = FakeTools::new().answers("readTodos", "none").answers("listDocs", "two");
    let first = ScriptedAnswer::new().reasoning("Hm").reasoning(", well").text("Let me look.");
    let first = first.call("a", "readTodos", ["{\"li", "st\":1}"]).call("b", "listDocs", ["{}"]);
    let bench = bench(
        tools,
        [
            first.usage(10, 5).finish(FinishReason::ToolCalls),
            ScriptedAnswer::new().text("Done.").usage(20, 2).finish(FinishReason::Stop),
        ],
    );
    check(
        &bench.run(),
        expect![[r##"
            {"type":"RUN_STARTED","threadId":"t","runId":"r"}
            {"type":"STEP_STARTED","stepName":"round-1"}
            {"type":"REASONING_START","messageId":"#1"}
            {"type":"REASONING_MESSAGE_START","messageId":"#1","role":"reasoning"}
            {"type":"REASONING_MESSAGE_CONTENT","messageId":"#1","delta":"Hm"}
            {"type":"REASONING_MESSAGE_CONTENT","messageId":"#1","delta":", well"}
            {"type":"REASONING_MESSAGE_END","messageId":"#1"}
            {"type":"REASONING_END","messageId":"#1"}
            {"type":"TEXT_MESSAGE_START","messageId":"#2","role":"assistant"}
            {"type":"TEXT_MESSAGE_CONTENT","messageId":"#2","delta":"Let me look."}
            {"type":"TEXT_MESSAGE_END","messageId":"#2"}
            {"type":"TOOL_CALL_START","toolCallId":"a","toolCallName":"readTodos","parentMessageId":"#2"}
            {"type":"TOOL_CALL_ARGS","toolCallId":"a","delta":"{\"li"}
            {"type":"TOOL_CALL_ARGS","toolCallId":"a","delta":"st\":1}"}
            {"type":"TOOL_CALL_START","toolCallId":"b","toolCallName":"listDocs","parentMessageId":"#2"}
            {"type":"TOOL_CALL_ARGS","toolCallId":"b","delta":"{}"}
            {"type":"TOOL_CALL_END","toolCallId":"a"}
            {"type":"TOOL_CALL_END","toolCallId":"b"}
            {"type":"TOOL_CALL_RESULT","messageId":"#3","toolCallId":"a","content":"none","role":"tool"}
            {"type":"TOOL_CALL_RESULT","messageId":"#4","toolCallId":"b","content":"two","role":"tool"}
            {"type":"STEP_FINISHED","stepName":"round-1"}
            {"type":"STEP_STARTED","stepName":"round-2"}
            {"type":"TEXT_MESSAGE_START","messageId":"#5","role":"assistant"}
            {"type":"TEXT_MESSAGE_CONTENT","messageId":"#5","delta":"Done."}
            {"type":"TEXT_MESSAGE_END","messageId":"#5"}
            {"type":"STEP_FINISHED","stepName":"round-2"}
            {"type":"RUN_FINISHED","threadId":"t","runId":"r","result":{"finishReason":"stop"},"usage":[{"model":"script-1","provider":"scripted","inputTokens":30,"outputTokens":7}]}
        "##]],
    );
    expect![[r#"
        [
          {
            "role": "user",
            "content": "hi"
          },
          {
            "role": "assistant",
            "content": "Let me look.",
            "toolCalls": [
              {
                "id": "a",
                "type": "function",
                "function": {
                  "name": "readTodos",
                  "arguments": "{\"list\":1}"
                }
              },
              {
                "id": "b",
                "type": "function",
                "function": {
                  "name": "listDocs",
                  "arguments": "{}"
                }
              }
            ]
          },
          {
            "role": "tool",
            "content": "none",
            "toolCallId": "a"
          },
          {
            "role": "tool",
            "content": "two",
            "toolCallId": "b"
          }
        ]"#]]
    .assert_eq(&format!("{:#}", bench.sent(1)));
}

#[test]
fn text_after_a_call_is_a_message_of_its_own() {
    let tools = FakeTools::new().answers("x", "yes");
    let first =
        ScriptedAnswer::new().call("a", "x", ["{}"]).text("Wait.").call("b", "x", ["{}"]).text("Still.");
    let bench = bench(tools, [first.finish(FinishReason::ToolCalls), ScriptedAnswer::from_text("Done.")]);
    let events = bench.run();
    let parents: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::ToolCallStart { parent_message_id, .. } => parent_message_id.clone(),
            _ => None,
        })
        .collect();
    let messages: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::TextMessageStart { message_id, .. } => Some(message_id.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(parents.len(), 2);
    assert_eq!(messages.len(), 3);
    for (i, id) in messages.iter().enumerate() {
        assert!(!parents.contains(id), "a call has made a message of this id: {events:?}");
        assert!(!messages[..i].contains(id), "{events:?}");
    }
    assert_eq!(bench.sent(1)[1]["content"], "Wait.Still.");
}

#[tokio::test]
async fn the_calls_of_a_round_run_side_by_side() {
    let barrier = Arc::new(Barrier::new(3));
    let tools = FakeTools::new().behaves("meet", move |_| {
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
            Ok(ToolOutput::text("met"))
        }
    });
    let first =
        ScriptedAnswer::new().call("a", "meet", ["{}"]).call("b", "meet", ["{}"]).call("c", "meet", ["{}"]);
    let bench = bench(tools, [first.finish(FinishReason::ToolCalls), ScriptedAnswer::from_text("Done.")]);
    let run = read(bench.start().await.expect("the run starts"));
    let events = tokio::time::timeout(Duration::from_secs(10), run).await.expect("each waits for all");
    assert_eq!(results(&events).len(), 3);
    assert_eq!(bench.tools.max_running(), 3);
}

#[tokio::test]
async fn results_are_shown_as_they_come_and_sent_in_the_order_of_the_calls() {
    let (open, gate) = oneshot::channel::<()>();
    let gate = Mutex::new(Some(gate));
    let open = Mutex::new(Some(open));
    let tools = FakeTools::new()
        .behaves("slow", move |_| {
            let gate = gate.lock().expect("unpoisoned").take().expect("called once");
            async move {
                gate.await.expect("the other call opens it");
                Ok(ToolOutput::text("slow result"))
            }
        })
        .behaves("fast", move |_| {
            open.lock().expect("unpoisoned").take().expect("called once").send(()).expect("awaited");
            async { Ok(ToolOutput::error("fast result")) }
        });
    let first = ScriptedAnswer::new().call("a", "slow", ["{}"]).call("b", "fast", ["{}"]);
    let bench = bench(tools, [first.finish(FinishReason::ToolCalls), ScriptedAnswer::from_text("Done.")]);
    let events = read(bench.start().await.expect("the run starts")).await;
    assert_eq!(results(&events), [("b", "fast result", true), ("a", "slow result", false)]);
    let sent = bench.sent(1);
    let call =
        |id, name| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
    assert_eq!(
        sent,
        json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "toolCalls": [call("a", "slow"), call("b", "fast")]},
            {"role": "tool", "toolCallId": "a", "content": "slow result"},
            {"role": "tool", "toolCallId": "b", "content": "fast result"},
        ])
    );
}

#[test]
fn fragments_belong_to_the_call_of_their_index() {
    let start = |index, id: &str| ModelEvent::ToolCallStart { index, id: id.into(), name: "x".into() };
    let more = |index, delta: &str| ModelEvent::ToolCallArgs { index, delta: delta.into() };
    let steps = [
        start(7, "a"),
        more(7, "{\"n\""),
        start(2, "b"),
        more(2, "{\"n\":"),
        more(7, ":1}"),
        more(2, ""),
        more(2, "2}"),
    ];
    let first =
        steps.into_iter().fold(ScriptedAnswer::new(), ScriptedAnswer::event).finish(FinishReason::ToolCalls);
    let bench = bench(FakeTools::new().answers("x", "yes"), [first, ScriptedAnswer::from_text("Done.")]);
    bench.run();
    let arguments: Vec<Value> = bench.tools.calls().into_iter().map(|call| call.arguments).collect();
    assert_eq!(arguments, [json!({"n": 1}), json!({"n": 2})]);
}

#[test]
fn arguments_are_an_object_or_the_model_is_told() {
    let not_json = "invalid arguments: they are not JSON";
    let no_object = "invalid arguments: they must be a JSON object";
    let cases: [(&[&str], Result<Value, &str>); 10] = [
        (&["{\"a\"", ":", "[1]}"], Ok(json!({"a": [1]}))),
        (&["{}"], Ok(json!({}))),
        (&[], Ok(json!({}))),
        (&[""], Ok(json!({}))),
        (&[" \n"], Ok(json!({}))),
        (&["{\"a\":"], Err(not_json)),
        (&["{} {}"], Err(not_json)),
        (&["[1]"], Err(no_object)),
        (&["null"], Err(no_object)),
        (&["\"{}\""], Err(no_object)),
    ];
    for (fragments, expected) in cases {
        let first =
            ScriptedAnswer::new().call("a", "x", fragments.iter().copied()).finish(FinishReason::ToolCalls);
        let bench = bench(FakeTools::new().answers("x", "yes"), [first, ScriptedAnswer::from_text("Done.")]);
        let events = bench.run();
        let (_, content, is_error) = results(&events)[0];
        let called: Vec<Value> = bench.tools.calls().into_iter().map(|call| call.arguments).collect();
        let given_back = bench.sent(1)[1]["toolCalls"][0]["function"]["arguments"].clone();
        let given_back: Value = serde_json::from_str(given_back.as_str().expect("text")).expect("JSON");
        assert_eq!(&given_back, expected.as_ref().unwrap_or(&json!({})), "{fragments:?}");
        match expected {
            Ok(arguments) => assert_eq!((called, content), (vec![arguments], "yes"), "{fragments:?}"),
            Err(problem) => {
                assert!(called.is_empty() && is_error, "{fragments:?}");
                assert!(content.starts_with(problem), "{fragments:?}: {content}");
            }
        }
        assert_eq!(text(&events), "Done.", "{fragments:?}");
        assert_eq!(finish_reason(&events), Some(FinishReason::Stop), "{fragments:?}");
        assert_eq!(bench.sent(1)[2]["content"], content, "{fragments:?}");
    }
}

#[test]
fn what_a_tool_does_wrong_is_its_result() {
    let fails =
        |error: fn() -> ToolError| FakeTools::new().behaves("x", move |_| async move { Err(error()) });
    let cases = [
        ("unknown", FakeTools::new(), "there is no tool named \"x\""),
        (
            "refused",
            fails(|| ToolError::InvalidArguments("n is missing".into())),
            "invalid arguments: n is missing",
        ),
        (
            "not found",
            fails(|| ToolError::NotFound("there is no todo \"7\"".into())),
            "there is no todo \"7\"",
        ),
        ("defect", fails(|| ToolError::internal("disk on fire")), "the tool failed"),
        ("panic", FakeTools::new().panics("x", "boom"), "the tool failed"),
        ("error output", FakeTools::new().behaves("x", |_| async { Ok(ToolOutput::error("no")) }), "no"),
    ];
    for (name, tools, expected) in cases {
        let bench = bench(
            tools,
            [ScriptedAnswer::from_tool_call("a", "x", "{}"), ScriptedAnswer::from_text("Sorry.")],
        );
        let events = bench.run();
        assert_eq!(results(&events), [("a", expected, true)], "{name}");
        assert_eq!(
            bench.sent(1)[2],
            json!({"role": "tool", "toolCallId": "a", "content": expected}),
            "{name}"
        );
        assert_eq!(text(&events), "Sorry.", "{name}");
    }
}

#[test]
fn only_tools_on_offer_are_called() {
    let script =
        || [ScriptedAnswer::from_tool_call("a", "secret", "{}"), ScriptedAnswer::from_text("Sorry.")];
    let tools = || FakeTools::new().answers("open", "yes").answers("secret", "treasure");
    let mut not_listed = bench(tools(), script());
    not_listed.request.tools = not_listed.tools.specs().iter().take(1).cloned().collect();
    let mut forbidden = bench(tools(), script());
    forbidden.request.tool_choice = ToolChoice::None;
    let mut not_chosen = bench(tools(), script());
    not_chosen.request.tool_choice = ToolChoice::Tool("open".into());
    for bench in [not_listed, forbidden, not_chosen] {
        let events = bench.run();
        assert_eq!(results(&events), [("a", "there is no tool named \"secret\"", true)]);
        assert!(bench.tools.calls().is_empty());
    }
}

#[test]
fn tools_work_for_the_caller() {
    let bench = bench(
        FakeTools::new().answers("x", "yes"),
        [ScriptedAnswer::from_tool_call("a", "x", "{}"), ScriptedAnswer::from_text("Done.")],
    );
    bench.run();
    let expected = ExecutionContext { idempotency_key: Some("/1/0".to_owned()), ..context() };
    assert_eq!(bench.tools.calls()[0].context, expected);
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_dropped_and_the_model_told() {
    let tools = FakeTools::new().hangs("slow").answers("fast", "yes");
    let first = ScriptedAnswer::new().call("a", "slow", ["{}"]).call("b", "fast", ["{}"]);
    let bench = bench(tools, [first.finish(FinishReason::ToolCalls), ScriptedAnswer::from_text("Done.")]);
    let mut events = bench.start().await.expect("the run starts");
    let result = async {
        while !matches!(events.next().await, Some(Event::ToolCallResult { tool_call_id, .. }) if &*tool_call_id == "b")
        {
        }
        events.next().await
    };
    let time = async {
        bench.clock.wait_for_sleepers(1).await;
        assert_eq!(bench.clock.advance_to_next(), Some(bench.limits.tool_timeout));
    };
    let (result, ()) = futures_util::future::join(result, time).await;
    let Some(Event::ToolCallResult { tool_call_id, content, metadata, .. }) = result else {
        panic!("no result but {result:?}");
    };
    assert_eq!(&*tool_call_id, "a");
    assert_eq!(content, "the tool call timed out after 60000 ms");
    assert!(metadata.is_some_and(|metadata| metadata.is_error));
    assert_eq!((bench.tools.running(), bench.clock.sleepers()), (0, 0));
    let later_events: Vec<Event> = events.collect().await;
    assert_eq!(text(&later_events), "Done.");
}

#[test]
fn rounds_are_limited() {
    let rounds = |count| {
        let answers = (0..count).map(|_| ScriptedAnswer::from_tool_call("a", "x", "{}"));
        let mut bench =
            bench(FakeTools::new().answers("x", "yes"), answers.chain([ScriptedAnswer::from_text("Done.")]));
        bench.limits.max_rounds = 3;
        bench
    };
    let within = rounds(2);
    assert_eq!(text(&within.run()), "Done.");
    let beyond = rounds(3);
    let events = beyond.run();
    assert_eq!(code(&events), "TOOL_LOOP_LIMIT");
    assert_eq!((beyond.model.sent_requests().len(), beyond.model.unused_answers()), (3, 1));
}

#[test]
fn calls_of_an_answer_that_was_cut_short_are_not_run() {
    for reason in [FinishReason::Length, FinishReason::ContentFilter] {
        let first = ScriptedAnswer::new().text("I").call("a", "x", ["{\"all\":tr"]).finish(reason);
        let bench = bench(FakeTools::new().answers("x", "yes"), [first]);
        let events = bench.run();
        assert_eq!(finish_reason(&events), Some(reason));
        assert!(bench.tools.calls().is_empty() && results(&events).is_empty());
    }
}

#[test]
fn calls_are_run_whatever_name_the_end_of_the_answer_has() {
    let first = ScriptedAnswer::new().call("a", "x", ["{}"]).finish(FinishReason::Stop);
    let last = ScriptedAnswer::new().text("Done.").finish(FinishReason::ToolCalls);
    let bench = bench(FakeTools::new().answers("x", "yes"), [first, last]);
    let events = bench.run();
    assert_eq!(bench.tools.finished(), 1);
    assert_eq!(finish_reason(&events), Some(FinishReason::Stop));
}

#[test]
fn an_answer_without_text_and_call_is_a_failure() {
    let stopped = |answer: ScriptedAnswer| answer.finish(FinishReason::Stop);
    for empty in [ScriptedAnswer::new(), ScriptedAnswer::new().reasoning("Hm").text("").usage(3, 0)] {
        let events = bench(FakeTools::new(), [stopped(empty)]).run();
        assert_eq!(code(&events), "BACKEND_FAILED");
    }
    let cut = bench(FakeTools::new(), [ScriptedAnswer::new().finish(FinishReason::Length)]).run();
    assert_eq!(finish_reason(&cut), Some(FinishReason::Length), "the reason tells the cause");
    let called = [ScriptedAnswer::from_tool_call("a", "x", "{}"), stopped(ScriptedAnswer::new())];
    let events = bench(FakeTools::new().answers("x", "yes"), called).run();
    assert_eq!(finish_reason(&events), Some(FinishReason::Stop), "the run has called a tool");
}

#[test]
fn the_output_of_all_rounds_is_bounded() {
    let round = || ScriptedAnswer::from_tool_call("a", "x", "{}");
    let answers = || (0..4).map(|_| round()).chain([ScriptedAnswer::from_text("Done.")]);
    let bounded = |max_run_bytes| {
        let bench = bench(FakeTools::new().answers("x", "y".repeat(1_000)), answers());
        let limits = OutputLimits { max_run_bytes, ..OutputLimits::default() };
        let run = async { read(bench.start().await.expect("it starts").with_output_limits(limits)).await };
        (run.now_or_never().expect("nothing waits"), bench)
    };
    let (events, bench) = bounded(5_000);
    assert_eq!((text(&events).as_str(), bench.model.unused_answers()), ("Done.", 0));
    let (events, bench) = bounded(2_500);
    assert_eq!((code(&events), results(&events).len()), ("OUTPUT_TOO_LARGE", 2));
    assert_eq!((bench.model.unused_answers(), bench.model.open_streams()), (2, 0), "no further round begins");
}

#[test]
fn a_failure_before_the_first_delta_is_an_error_of_start() {
    let refused = ScriptedAnswer::from_start_error(AgentError::new(AgentErrorKind::RateLimited, "slow down"));
    let bench = bench(FakeTools::new(), [refused]);
    let started = bench.start().now_or_never().expect("nothing waits");
    assert_eq!(started.err().expect("refused").kind(), AgentErrorKind::RateLimited);
}

#[test]
fn later_failures_are_the_runs_one_error() {
    let begun = || ScriptedAnswer::new().reasoning("Hm").text("I");
    let calls = || ScriptedAnswer::from_tool_call("a", "x", "{}");
    let failure = || AgentError::new(AgentErrorKind::Timeout, "silent");
    let start = |index| ModelEvent::ToolCallStart { index, id: String::new(), name: "x".into() };
    let more = |delta: &str| ModelEvent::ToolCallArgs { index: 0, delta: delta.into() };
    let many = (0..3).fold(ScriptedAnswer::new(), |answer, index| answer.event(start(index)));
    let cases = [
        ("cut off at once", vec![ScriptedAnswer::new()], "STREAM_TRUNCATED"),
        ("cut off in the text", vec![begun()], "STREAM_TRUNCATED"),
        ("cut off in a call", vec![begun().call("a", "x", ["{"])], "STREAM_TRUNCATED"),
        ("cut off in the second round", vec![calls(), begun()], "STREAM_TRUNCATED"),
        ("fails", vec![begun().fail(failure())], "BACKEND_TIMEOUT"),
        (
            "refuses the second round",
            vec![calls(), ScriptedAnswer::from_start_error(failure())],
            "BACKEND_TIMEOUT",
        ),
        (
            "begins a call twice",
            vec![ScriptedAnswer::new().event(start(0)).event(start(0))],
            "BACKEND_FAILED",
        ),
        ("continues no call", vec![begun().event(more("{}"))], "BACKEND_FAILED"),
        ("makes too many calls", vec![many], "TOOL_LOOP_LIMIT"),
        (
            "writes too much",
            vec![ScriptedAnswer::new().call("a", "x", ["12345", "678901"])],
            "BACKEND_FAILED",
        ),
    ];
    for (name, answers, expected) in cases {
        let mut bench = bench(FakeTools::new().answers("x", "yes"), answers);
        bench.limits.max_calls_per_round = 2;
        bench.limits.max_argument_bytes = 10;
        assert_eq!(code(&bench.run()), expected, "{name}");
        assert_eq!(bench.model.open_streams(), 0, "{name}");
    }
}

#[test]
fn every_call_has_an_id_of_its_own() {
    let first = ScriptedAnswer::new().call("", "x", ["{}"]).call("0", "x", ["{}"]).call("0", "x", ["{}"]);
    let second =
        ScriptedAnswer::new().call("0", "x", ["{}"]).call("old", "x", ["{}"]).call("new", "x", ["{}"]);
    let answers = [
        first.finish(FinishReason::ToolCalls),
        second.finish(FinishReason::ToolCalls),
        ScriptedAnswer::from_text("Done."),
    ];
    let mut bench = bench(FakeTools::new().answers("x", "yes"), answers);
    let history = vec![
        Message::user("before"),
        Message::with_tool_calls("", vec![ToolCall::new("old", "x", "{}")]),
        Message::tool_result("old", "yes"),
        Message::user("now"),
    ];
    bench.request.prompt = request(history, bench.tools.specs()).prompt;
    let events = bench.run();
    let ids = call_ids(&events);
    assert_eq!(ids.len(), 6);
    assert_eq!((ids[1], ids[5]), ("0", "new"));
    for (i, id) in ids.iter().enumerate() {
        assert!(!id.is_empty() && *id != "old" && !ids[..i].contains(id), "{ids:?}");
    }
    let sent = bench.sent(2);
    let answered: Vec<&str> = sent
        .as_array()
        .expect("an array")
        .iter()
        .filter_map(|message| message["toolCallId"].as_str())
        .filter(|id| *id != "old")
        .collect();
    assert_eq!(answered, ids);
}

#[test]
fn a_call_is_forced_once_and_forbidden_throughout() {
    let cases = [
        (ToolChoice::Auto, "Auto", "Auto"),
        (ToolChoice::Required, "Required", "Auto"),
        (ToolChoice::Tool("x".into()), "Tool(\"x\")", "Auto"),
        (ToolChoice::None, "None", "None"),
    ];
    for (choice, first, second) in cases {
        let mut bench = bench(
            FakeTools::new().answers("x", "yes"),
            [ScriptedAnswer::from_tool_call("a", "x", "{}"), ScriptedAnswer::from_text("Done.")],
        );
        bench.request.tool_choice = choice;
        bench.run();
        let sent: Vec<Value> =
            bench.model.sent_requests().into_iter().map(|sent| sent["toolChoice"].clone()).collect();
        assert_eq!(sent, [first, second]);
    }
}

#[test]
fn a_notice_is_told_beside_the_answer_and_not_to_visitors() {
    let value = json!({"kind": "promptCut", "estimatedTokens": 900, "readTokens": 258, "contextWindow": 512});
    let notice = value.as_object().expect("an object").clone();
    let answer = || ScriptedAnswer::new().text("Hel").event(ModelEvent::Notice(notice.clone())).text("lo");
    let bench = bench(FakeTools::new(), [answer(), answer()].map(|answer| answer.finish(FinishReason::Stop)));
    let events = bench.run();
    assert_eq!(text(&events), "Hello");
    assert_eq!(progress(&events), [&value]);
    let shown = async { read(bench.start().await.expect("it starts").for_audience(Audience::Visitor)).await };
    let shown = shown.now_or_never().expect("nothing waits");
    assert_eq!((text(&shown).as_str(), progress(&shown).len()), ("Hello", 0));
}

/// A tool registry whose tool reports progress before and after it yields once.
struct ProgressReportingTools {
    reports: usize,
}

#[async_trait]
impl ToolRegistry for ProgressReportingTools {
    async fn list(&self, _: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        Ok(Vec::new())
    }

    async fn call(
        &self,
        _: &ExecutionContext,
        _: &str,
        _: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        progress.report(0.0, None, None);
        tokio::task::yield_now().await;
        for number in 1..=self.reports {
            progress.report(number as f64, Some(self.reports as f64), Some("working"));
        }
        Ok(ToolOutput::text("yes"))
    }
}

fn progress(events: &[Event]) -> Vec<&Value> {
    let reports = events.iter().filter_map(|event| match event {
        Event::Custom { name, value } if name == "agent.debug" => Some(value),
        _ => None,
    });
    reports.collect()
}

#[tokio::test]
async fn progress_is_shown_before_the_result_and_only_the_latest_of_much() {
    let run = async |reports| {
        let bench = bench(
            FakeTools::new().answers("x", ""),
            [ScriptedAnswer::from_tool_call("a", "x", "{}"), ScriptedAnswer::from_text("Done.")],
        );
        read(bench.start_with(Arc::new(ProgressReportingTools { reports })).await.expect("the run starts"))
            .await
    };
    let few = run(2).await;
    let report = |number: f64| json!({"kind": "toolProgress", "toolCallId": "a", "progress": number, "total": 2.0, "message": "working"});
    let begun = json!({"kind": "toolProgress", "toolCallId": "a", "progress": 0.0});
    assert_eq!(progress(&few), [&begun, &report(1.0), &report(2.0)]);
    let last_report = few.iter().rposition(|event| matches!(event, Event::Custom { .. }));
    let result = few.iter().position(|event| matches!(event, Event::ToolCallResult { .. }));
    assert!(last_report < result, "{few:?}");
    let many = run(1000).await;
    let many = progress(&many);
    assert_eq!(many.len(), 65, "the first, and as many as may wait");
    assert_eq!(many[64]["progress"], 1000.0);
}

#[test]
fn usage_is_summed_over_the_rounds() {
    let run = |first: ScriptedAnswer, second: ScriptedAnswer| {
        let first = first.call("a", "x", ["{}"]).finish(FinishReason::ToolCalls);
        let answers = [first, second.text("Done.").finish(FinishReason::Stop)];
        let events = bench(FakeTools::new().answers("x", "yes"), answers).run();
        let Some(Event::RunFinished { usage, .. }) = events.last().cloned() else { panic!("{events:?}") };
        usage.into_iter().map(|usage| (usage.input_tokens, usage.output_tokens)).collect::<Vec<_>>()
    };
    assert_eq!(run(ScriptedAnswer::new(), ScriptedAnswer::new()), []);
    assert_eq!(run(ScriptedAnswer::new().usage(3, 4), ScriptedAnswer::new()), [(Some(3), Some(4))]);
    // A provider may report usage several times in a call; the last report counts.
    let reported_twice = ScriptedAnswer::new().usage(3, 1).usage(3, 4);
    assert_eq!(run(reported_twice, ScriptedAnswer::new().usage(10, 20)), [(Some(13), Some(24))]);
}

#[tokio::test]
async fn dropping_the_stream_drops_what_is_under_way() {
    let answering = bench(FakeTools::new(), [ScriptedAnswer::new().text("I").hang()]);
    let mut events = answering.start().await.expect("the run starts");
    while !matches!(events.next().await, Some(Event::TextMessageContent { .. }) | None) {}
    assert!(events.next().now_or_never().is_none());
    assert_eq!(answering.model.open_streams(), 1);
    drop(events);
    assert_eq!(answering.model.open_streams(), 0);

    let first =
        ScriptedAnswer::new().call("a", "x", ["{}"]).call("b", "x", ["{}"]).finish(FinishReason::ToolCalls);
    let calling = bench(FakeTools::new().hangs("x"), [first]);
    let mut events = calling.start().await.expect("the run starts");
    while events.next().now_or_never().flatten().is_some() {}
    assert_eq!((calling.tools.running(), calling.clock.sleepers()), (2, 2));
    assert_eq!(calling.model.open_streams(), 0, "the answer was over");
    drop(events);
    assert_eq!((calling.tools.running(), calling.clock.sleepers(), calling.tools.finished()), (0, 0, 0));
}

#[test]
fn long_results_are_cut_between_characters() {
    let run = |result: &str| {
        let mut bench = bench(
            FakeTools::new().answers("x", result),
            [ScriptedAnswer::from_tool_call("a", "x", "{}"), ScriptedAnswer::from_text("Done.")],
        );
        bench.limits.max_result_bytes = 5;
        let content = results(&bench.run())[0].1.to_owned();
        assert_eq!(bench.sent(1)[2]["content"], content);
        content
    };
    assert_eq!(run("12345"), "12345");
    assert_eq!(run("123456"), "12345\n[truncated: 6 bytes in total]");
    assert_eq!(run("1234ö"), "1234\n[truncated: 6 bytes in total]");
}

/// A model that keeps the appended messages of each request.
struct RequestRecorder {
    model: ScriptedModel,
    appended: Mutex<Vec<Vec<Message>>>,
}

#[async_trait]
impl Model for RequestRecorder {
    fn info(&self) -> crate::model::ModelInfo {
        self.model.info()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        self.appended.lock().expect("unpoisoned").push(request.appended_messages.clone());
        self.model.prepare(request)
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        self.model.start(payload).await
    }
}

fn provider_item(json: String, calls_before: usize) -> ProviderItem {
    let json = serde_json::value::RawValue::from_string(json).expect("JSON").into();
    ProviderItem { json, text_before: 0, calls_before }
}

/// Runs answers that each call the tool `x` after the provider's items. Returns the events, and the items of the
/// assistant messages in the last request.
fn run_with_items(answers: &[Vec<ProviderItem>]) -> (Vec<Event>, Vec<Vec<ProviderItem>>) {
    let script = answers.iter().map(|items| {
        let item = |answer: ScriptedAnswer, item: &ProviderItem| {
            answer.event(ModelEvent::ProviderItem(item.clone()))
        };
        let answer = items.iter().fold(ScriptedAnswer::new(), item);
        answer.call("", "x", ["{}"]).finish(FinishReason::ToolCalls)
    });
    let model = ScriptedModel::new(script.chain([ScriptedAnswer::from_text("done")]));
    let model = Arc::new(RequestRecorder { model, appended: Mutex::default() });
    let bench = bench(FakeTools::new().answers("x", "ok"), []);
    let events = async {
        let payload = model.prepare(&bench.request).expect("prepared");
        let tool_loop = ToolLoop {
            model: model.clone(),
            tools: bench.tools.clone(),
            clock: Arc::new(bench.clock.clone()),
            limits: bench.limits,
        };
        let run = RunIds { thread_id: "t".into(), run_id: "r".into() };
        read(tool_loop.start(payload, bench.request.clone(), context(), run).await.expect("started")).await
    };
    let events = events.now_or_never().expect("nothing in this run waits");
    let sent = model.appended.lock().expect("unpoisoned").pop().expect("a request");
    let answers = sent.into_iter().filter(|message| message.role == Role::Assistant);
    (events, answers.map(|message| message.provider_items).collect())
}

#[test]
fn the_providers_items_stay_with_the_answer_of_their_round() {
    let item = |name: &str, calls_before| provider_item(format!(r#"{{"sealed":"{name}"}}"#), calls_before);
    let answers = [vec![item("a", 0), item("b", 1)], vec![], vec![item("c", 0)]];
    let (events, sent) = run_with_items(&answers);
    assert_eq!(sent, answers);
    assert_eq!(text(&events), "done");
    let shown = serde_json::to_string(&events).expect("events serialise");
    assert!(!shown.contains("sealed"), "{shown}");
    let message = Message { provider_items: answers[0].clone(), ..Message::assistant("a") };
    let written = serde_json::to_string(&message).expect("messages serialise");
    assert_eq!(written, r#"{"role":"assistant","content":"a"}"#);
    let supplied = r#"{"role":"assistant","content":"a","provider_items":[{}],"providerItems":[{}]}"#;
    assert_eq!(serde_json::from_str::<Message>(supplied).expect("a message"), Message::assistant("a"));
}

#[test]
fn the_providers_items_of_a_run_are_bounded() {
    let answer = || vec![provider_item(format!("\"{}\"", "x".repeat((2 << 20) - 2)), 0)];
    let (events, sent) = run_with_items(&[answer(), answer()]);
    assert_eq!((text(&events).as_str(), sent.len()), ("done", 2));
    let (events, _) = run_with_items(&[answer(), answer(), vec![provider_item("1".into(), 0)]]);
    assert_eq!(code(&events), "OUTPUT_TOO_LARGE");
}
