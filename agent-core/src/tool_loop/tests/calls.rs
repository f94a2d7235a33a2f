//! Calls of tools: their order, arguments, faults, limits on time, progress and results.

use tokio::sync::{Barrier, oneshot};

use super::*;
use crate::event::Audience;
use crate::message::ToolCall;
use crate::tool::{Progress, ToolError, ToolOutput};

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
    let fixture = fixture(tools, [first.finish(FinishReason::ToolCalls), ScriptedAnswer::from_text("Done.")]);
    let run = read(fixture.start().await.expect("the run starts"));
    let events = tokio::time::timeout(Duration::from_secs(60), run).await.expect("each waits for all");
    assert_eq!(results(&events).len(), 3);
    assert_eq!(fixture.tools.max_running(), 3);
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
    let fixture = fixture(tools, [first.finish(FinishReason::ToolCalls), ScriptedAnswer::from_text("Done.")]);
    let events = read(fixture.start().await.expect("the run starts")).await;
    assert_eq!(results(&events), [("b", "fast result", true), ("a", "slow result", false)]);
    let sent = fixture.sent(1);
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
    let fixture = fixture(FakeTools::new().answers("x", "yes"), [first, ScriptedAnswer::from_text("Done.")]);
    fixture.run();
    let arguments: Vec<Value> = fixture.tools.calls().into_iter().map(|call| call.arguments).collect();
    assert_eq!(arguments, [json!({"n": 1}), json!({"n": 2})]);
}

#[test]
fn invalid_arguments_are_reported_to_the_model() {
    let not_json = "invalid arguments: they are not JSON";
    let no_object = "invalid arguments: they must be a JSON object";
    let cases: [(&[&str], Result<Value, &str>); 11] = [
        (&["{\"a\"", ":", "[1]}"], Ok(json!({"a": [1]}))),
        (&["{}"], Ok(json!({}))),
        (&[], Ok(json!({}))),
        (&[""], Ok(json!({}))),
        (&[" \n"], Ok(json!({}))),
        (&["{\"a\":"], Err(not_json)),
        (&["{} {}"], Err(not_json)),
        (&["[1]"], Err(no_object)),
        (&["nu", "ll\n"], Ok(json!({}))),
        (&["\"null\""], Err(no_object)),
        (&["\"{}\""], Err(no_object)),
    ];
    for (fragments, expected) in cases {
        let first =
            ScriptedAnswer::new().call("a", "x", fragments.iter().copied()).finish(FinishReason::ToolCalls);
        let fixture =
            fixture(FakeTools::new().answers("x", "yes"), [first, ScriptedAnswer::from_text("Done.")]);
        let events = fixture.run();
        let (_, content, is_error) = results(&events)[0];
        let called: Vec<Value> = fixture.tools.calls().into_iter().map(|call| call.arguments).collect();
        let given_back = fixture.sent(1)[1]["toolCalls"][0]["function"]["arguments"].clone();
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
        assert_eq!(fixture.sent(1)[2]["content"], content, "{fragments:?}");
    }
}

#[test]
fn tool_failures_become_error_results() {
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
        let fixture = fixture(
            tools,
            [ScriptedAnswer::from_tool_call("a", "x", "{}"), ScriptedAnswer::from_text("Sorry.")],
        );
        let events = fixture.run();
        assert_eq!(results(&events), [("a", expected, true)], "{name}");
        assert_eq!(
            fixture.sent(1)[2],
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
    let mut not_listed = fixture(tools(), script());
    not_listed.request.tools = not_listed.tools.specs().iter().take(1).cloned().collect();
    let mut forbidden = fixture(tools(), script());
    forbidden.request.tool_choice = ToolChoice::None;
    let mut not_chosen = fixture(tools(), script());
    not_chosen.request.tool_choice = ToolChoice::Tool("open".into());
    for fixture in [not_listed, forbidden, not_chosen] {
        let events = fixture.run();
        assert_eq!(results(&events), [("a", "there is no tool named \"secret\"", true)]);
        assert!(fixture.tools.calls().is_empty());
    }
}

#[test]
fn tools_work_for_the_caller() {
    let fixture = fixture(
        FakeTools::new().answers("x", "yes"),
        [ScriptedAnswer::from_tool_call("a", "x", "{}"), ScriptedAnswer::from_text("Done.")],
    );
    fixture.run();
    let (key, text) = (Some("/1/0".to_owned()), Some("{}".into()));
    let expected = ExecutionContext { idempotency_key: key, arguments_text: text, ..context() };
    assert_eq!(fixture.tools.calls()[0].context, expected);
}

#[tokio::test]
async fn a_call_that_times_out_is_dropped_with_an_error_result() {
    let tools = FakeTools::new().hangs("slow").answers("fast", "yes");
    let first = ScriptedAnswer::new().call("a", "slow", ["{}"]).call("b", "fast", ["{}"]);
    let fixture = fixture(tools, [first.finish(FinishReason::ToolCalls), ScriptedAnswer::from_text("Done.")]);
    let mut events = fixture.start().await.expect("the run starts");
    let result = async {
        while !matches!(events.next().await, Some(Event::ToolCallResult { tool_call_id, .. }) if &*tool_call_id == "b")
        {
        }
        events.next().await
    };
    let time = async {
        fixture.clock.wait_for_sleepers(1).await;
        assert_eq!(fixture.clock.advance_to_next(), Some(fixture.limits.tool_timeout));
    };
    let (result, ()) = futures_util::future::join(result, time).await;
    let Some(Event::ToolCallResult { tool_call_id, content, metadata, .. }) = result else {
        panic!("no result but {result:?}");
    };
    assert_eq!(&*tool_call_id, "a");
    assert_eq!(content, "the tool call timed out after 60000 ms");
    assert!(metadata.is_some_and(|metadata| metadata.is_error));
    assert_eq!((fixture.tools.running(), fixture.clock.sleepers()), (0, 0));
    let later_events: Vec<Event> = events.collect().await;
    assert_eq!(text(&later_events), "Done.");
}

#[test]
fn every_call_has_its_own_id() {
    let first = ScriptedAnswer::new().call("", "x", ["{}"]).call("0", "x", ["{}"]).call("0", "x", ["{}"]);
    let second =
        ScriptedAnswer::new().call("0", "x", ["{}"]).call("old", "x", ["{}"]).call("new", "x", ["{}"]);
    let answers = [
        first.finish(FinishReason::ToolCalls),
        second.finish(FinishReason::ToolCalls),
        ScriptedAnswer::from_text("Done."),
    ];
    let mut fixture = fixture(FakeTools::new().answers("x", "yes"), answers);
    let history = vec![
        Message::user("before"),
        Message::with_tool_calls("", vec![ToolCall::new("old", "x", "{}")]),
        Message::tool_result("old", "yes"),
        Message::user("now"),
    ];
    fixture.request.prompt = request(history, fixture.tools.specs()).prompt;
    let events = fixture.run();
    let ids = call_ids(&events);
    assert_eq!(ids.len(), 6);
    assert_eq!((ids[1], ids[5]), ("0", "new"));
    for (i, id) in ids.iter().enumerate() {
        assert!(!id.is_empty() && *id != "old" && !ids[..i].contains(id), "{ids:?}");
    }
    let sent = fixture.sent(2);
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
        let mut fixture = fixture(
            FakeTools::new().answers("x", "yes"),
            [ScriptedAnswer::from_tool_call("a", "x", "{}"), ScriptedAnswer::from_text("Done.")],
        );
        fixture.request.tool_choice = choice;
        fixture.run();
        let sent: Vec<Value> =
            fixture.model.sent_requests().into_iter().map(|sent| sent["toolChoice"].clone()).collect();
        assert_eq!(sent, [first, second]);
    }
}

#[test]
fn a_notice_is_reported_beside_the_answer_but_not_to_visitors() {
    let value = json!({"kind": "promptCut", "estimatedTokens": 900, "readTokens": 258, "contextWindow": 512});
    let notice = value.as_object().expect("an object").clone();
    let answer = || ScriptedAnswer::new().text("Hel").event(ModelEvent::Notice(notice.clone())).text("lo");
    let fixture =
        fixture(FakeTools::new(), [answer(), answer()].map(|answer| answer.finish(FinishReason::Stop)));
    let events = fixture.run();
    assert_eq!(text(&events), "Hello");
    assert_eq!(progress(&events), [&value]);
    let shown =
        async { read(fixture.start().await.expect("it starts").for_audience(Audience::Visitor)).await };
    let shown = shown.now_or_never().expect("the run does not wait");
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
        let fixture = fixture(
            FakeTools::new().answers("x", ""),
            [ScriptedAnswer::from_tool_call("a", "x", "{}"), ScriptedAnswer::from_text("Done.")],
        );
        read(fixture.start_with(Arc::new(ProgressReportingTools { reports })).await.expect("the run starts"))
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

#[tokio::test]
async fn dropping_the_stream_drops_what_is_under_way() {
    let answering = fixture(FakeTools::new(), [ScriptedAnswer::new().text("I").hang()]);
    let mut events = answering.start().await.expect("the run starts");
    while !matches!(events.next().await, Some(Event::TextMessageContent { .. }) | None) {}
    assert!(events.next().now_or_never().is_none());
    assert_eq!(answering.model.open_streams(), 1);
    drop(events);
    assert_eq!(answering.model.open_streams(), 0);

    let first =
        ScriptedAnswer::new().call("a", "x", ["{}"]).call("b", "x", ["{}"]).finish(FinishReason::ToolCalls);
    let calling = fixture(FakeTools::new().hangs("x"), [first]);
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
        let mut fixture = fixture(
            FakeTools::new().answers("x", result),
            [ScriptedAnswer::from_tool_call("a", "x", "{}"), ScriptedAnswer::from_text("Done.")],
        );
        fixture.limits.max_result_bytes = 5;
        let content = results(&fixture.run())[0].1.to_owned();
        assert_eq!(fixture.sent(1)[2]["content"], content);
        content
    };
    assert_eq!(run("12345"), "12345");
    assert_eq!(run("123456"), "12345\n[truncated: 6 bytes in total]");
    assert_eq!(run("1234ö"), "1234\n[truncated: 6 bytes in total]");
}
