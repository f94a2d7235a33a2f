//! Rounds: their events, messages, limits and failures.

use std::collections::HashMap;

use expect_test::{Expect, expect};

use super::*;
use crate::error::AgentErrorKind;
use crate::event::OutputLimits;

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
    let fixture = fixture(
        FakeTools::new(),
        [ScriptedAnswer::new().text("Hel").text("").text("lo").finish(FinishReason::Stop)],
    );
    check(
        &fixture.run(),
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
    let fixture = fixture(
        tools,
        [
            first.usage(10, 5).finish(FinishReason::ToolCalls),
            ScriptedAnswer::new().text("Done.").usage(20, 2).finish(FinishReason::Stop),
        ],
    );
    check(
        &fixture.run(),
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
    .assert_eq(&format!("{:#}", fixture.sent(1)));
}

#[test]
fn text_after_a_call_is_a_separate_message() {
    let tools = FakeTools::new().answers("x", "yes");
    let first =
        ScriptedAnswer::new().call("a", "x", ["{}"]).text("Wait.").call("b", "x", ["{}"]).text("Still.");
    let fixture = fixture(tools, [first.finish(FinishReason::ToolCalls), ScriptedAnswer::from_text("Done.")]);
    let events = fixture.run();
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
    assert_eq!(fixture.sent(1)[1]["content"], "Wait.Still.");
}

#[test]
fn rounds_are_limited() {
    let rounds = |count| {
        let answers = (0..count).map(|_| ScriptedAnswer::from_tool_call("a", "x", "{}"));
        let mut fixture = fixture(
            FakeTools::new().answers("x", "yes"),
            answers.chain([ScriptedAnswer::from_text("Done.")]),
        );
        fixture.limits.max_rounds = 3;
        fixture
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
        let fixture = fixture(FakeTools::new().answers("x", "yes"), [first]);
        let events = fixture.run();
        assert_eq!(finish_reason(&events), Some(reason));
        assert!(fixture.tools.calls().is_empty() && results(&events).is_empty());
    }
}

#[test]
fn calls_are_run_whatever_name_the_end_of_the_answer_has() {
    let first = ScriptedAnswer::new().call("a", "x", ["{}"]).finish(FinishReason::Stop);
    let last = ScriptedAnswer::new().text("Done.").finish(FinishReason::ToolCalls);
    let fixture = fixture(FakeTools::new().answers("x", "yes"), [first, last]);
    let events = fixture.run();
    assert_eq!(fixture.tools.finished(), 1);
    assert_eq!(finish_reason(&events), Some(FinishReason::Stop));
}

#[test]
fn an_answer_without_text_and_call_is_a_failure() {
    let stopped = |answer: ScriptedAnswer| answer.finish(FinishReason::Stop);
    for empty in [ScriptedAnswer::new(), ScriptedAnswer::new().reasoning("Hm").text("").usage(3, 0)] {
        let events = fixture(FakeTools::new(), [stopped(empty)]).run();
        assert_eq!(code(&events), "BACKEND_FAILED");
    }
    let cut = fixture(FakeTools::new(), [ScriptedAnswer::new().finish(FinishReason::Length)]).run();
    assert_eq!(finish_reason(&cut), Some(FinishReason::Length), "the reason tells the cause");
    let called = [ScriptedAnswer::from_tool_call("a", "x", "{}"), stopped(ScriptedAnswer::new())];
    let events = fixture(FakeTools::new().answers("x", "yes"), called).run();
    assert_eq!(finish_reason(&events), Some(FinishReason::Stop), "the run has called a tool");
}

#[test]
fn the_output_of_all_rounds_is_bounded() {
    let round = || ScriptedAnswer::from_tool_call("a", "x", "{}");
    let answers = || (0..4).map(|_| round()).chain([ScriptedAnswer::from_text("Done.")]);
    let bounded = |max_run_bytes| {
        let fixture = fixture(FakeTools::new().answers("x", "y".repeat(1_000)), answers());
        let limits = OutputLimits { max_run_bytes, ..OutputLimits::default() };
        let run = async { read(fixture.start().await.expect("it starts").with_output_limits(limits)).await };
        (run.now_or_never().expect("the run does not wait"), fixture)
    };
    let (events, fixture) = bounded(5_000);
    assert_eq!((text(&events).as_str(), fixture.model.unused_answers()), ("Done.", 0));
    let (events, fixture) = bounded(2_500);
    assert_eq!((code(&events), results(&events).len()), ("OUTPUT_TOO_LARGE", 2));
    assert_eq!(
        (fixture.model.unused_answers(), fixture.model.open_streams()),
        (2, 0),
        "no further round begins"
    );
}

#[test]
fn a_failure_before_the_first_delta_is_an_error_of_start() {
    let refused = ScriptedAnswer::from_start_error(AgentError::new(AgentErrorKind::RateLimited, "slow down"));
    let fixture = fixture(FakeTools::new(), [refused]);
    let started = fixture.start().now_or_never().expect("the run does not wait");
    assert_eq!(started.expect_err("refused").kind(), AgentErrorKind::RateLimited);
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
        let mut fixture = fixture(FakeTools::new().answers("x", "yes"), answers);
        fixture.limits.max_calls_per_round = 2;
        fixture.limits.max_argument_bytes = 10;
        assert_eq!(code(&fixture.run()), expected, "{name}");
        assert_eq!(fixture.model.open_streams(), 0, "{name}");
    }
}

#[test]
fn usage_is_summed_over_the_rounds() {
    let run = |first: ScriptedAnswer, second: ScriptedAnswer| {
        let first = first.call("a", "x", ["{}"]).finish(FinishReason::ToolCalls);
        let answers = [first, second.text("Done.").finish(FinishReason::Stop)];
        let events = fixture(FakeTools::new().answers("x", "yes"), answers).run();
        let Some(Event::RunFinished { usage, .. }) = events.last().cloned() else { panic!("{events:?}") };
        usage.into_iter().map(|usage| (usage.input_tokens, usage.output_tokens)).collect::<Vec<_>>()
    };
    assert_eq!(run(ScriptedAnswer::new(), ScriptedAnswer::new()), []);
    assert_eq!(run(ScriptedAnswer::new().usage(3, 4), ScriptedAnswer::new()), [(Some(3), Some(4))]);
    // A provider may report usage several times in a call; the last report counts.
    let reported_twice = ScriptedAnswer::new().usage(3, 1).usage(3, 4);
    assert_eq!(run(reported_twice, ScriptedAnswer::new().usage(10, 20)), [(Some(13), Some(24))]);
}
