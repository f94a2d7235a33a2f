use std::sync::Arc;

use agent_core::event::{AssistantRole, Id, ReasoningRole, RunResult, ToolRole};
use agent_core::message::FinishReason;
use serde_json::{Value, json};

use super::*;

fn id(text: &str) -> Id {
    Arc::from(text)
}

/// Returns the events of a run with reasoning, two calls of one message, their results, and a text.
fn events() -> Vec<Event> {
    let reasoning =
        |delta: &str| Event::ReasoningMessageContent { message_id: id("r"), delta: delta.to_owned() };
    let text =
        |of: &str, delta: &str| Event::TextMessageContent { message_id: id(of), delta: delta.to_owned() };
    let start = |of: &str| Event::TextMessageStart { message_id: id(of), role: AssistantRole::Assistant };
    let call = |of: &str, name: &str| Event::ToolCallStart {
        tool_call_id: id(of),
        tool_call_name: name.to_owned(),
        parent_message_id: Some(id("m1")),
    };
    let args = |of: &str, delta: &str| Event::ToolCallArgs { tool_call_id: id(of), delta: delta.to_owned() };
    let result = |message: &str, of: &str| Event::ToolCallResult {
        message_id: id(message),
        tool_call_id: id(of),
        content: format!("result of {of}"),
        role: ToolRole::Tool,
        metadata: None,
    };
    vec![
        Event::RunStarted { thread_id: "t".into(), run_id: "run".into() },
        Event::StepStarted { step_name: id("1") },
        Event::ReasoningStart { message_id: id("r") },
        Event::ReasoningMessageStart { message_id: id("r"), role: ReasoningRole::Reasoning },
        reasoning("think"),
        reasoning("ing"),
        Event::ReasoningMessageEnd { message_id: id("r") },
        Event::ReasoningEnd { message_id: id("r") },
        start("m1"),
        text("m1", "I "),
        text("m1", "look"),
        Event::TextMessageEnd { message_id: id("m1") },
        call("c1", "first"),
        args("c1", "{\"a\""),
        args("c1", ":1}"),
        Event::ToolCallEnd { tool_call_id: id("c1") },
        call("c2", "second"),
        args("c2", "{}"),
        Event::ToolCallEnd { tool_call_id: id("c2") },
        result("t2", "c2"),
        result("t1", "c1"),
        Event::StepFinished { step_name: id("1") },
        start("m2"),
        text("m2", "Done"),
        Event::TextMessageEnd { message_id: id("m2") },
        Event::RunFinished {
            thread_id: "t".into(),
            run_id: "run".into(),
            result: Some(RunResult::from(FinishReason::Stop)),
            outcome: None,
            usage: Vec::new(),
        },
    ]
}

fn messages(folded: &FoldedRun) -> Vec<Value> {
    folded.nodes.iter().map(|node| serde_json::to_value(&node.message).expect("plain data")).collect()
}

#[test]
fn a_run_becomes_the_messages_that_a_client_builds() {
    let events = events();
    let folded = fold(&events, Some("user".into()), RunEndKind::Interrupted);
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    assert_eq!(
        messages(&folded),
        [
            json!({"id": "r", "role": "reasoning", "content": "thinking"}),
            json!({"id": "m1", "role": "assistant", "content": "I look",
                   "toolCalls": [call("c1", "first", "{\"a\":1}"), call("c2", "second", "{}")]}),
            json!({"id": "t2", "role": "tool", "toolCallId": "c2", "content": "result of c2"}),
            json!({"id": "t1", "role": "tool", "toolCallId": "c1", "content": "result of c1"}),
            json!({"id": "m2", "role": "assistant", "content": "Done"}),
        ]
    );
    let parents: Vec<Option<&str>> =
        folded.nodes.iter().map(|node| node.parent_id.as_ref().map(NodeId::as_str)).collect();
    assert_eq!(parents, [Some("user"), Some("r"), Some("m1"), Some("t2"), Some("t1")], "a chain");
    assert!(folded.nodes.iter().all(|node| node.status == NodeStatus::Complete));
    let expected = RunEnding { finish_reason: Some(FinishReason::Stop), ..RunEnding::default() };
    assert_eq!(folded.ending, expected, "the terminal event wins over the cut");
}

#[test]
fn a_call_without_a_message_has_one_of_its_own_id() {
    let events = [
        Event::ToolCallStart {
            tool_call_id: id("c"),
            tool_call_name: "look".to_owned(),
            parent_message_id: None,
        },
        Event::ToolCallEnd { tool_call_id: id("c") },
    ];
    let folded = fold(&events, None, RunEndKind::Completed);
    assert_eq!(folded.nodes.len(), 1);
    assert_eq!((folded.nodes[0].id.as_str(), &folded.nodes[0].parent_id), ("c", &None));
}

#[test]
fn a_run_may_be_cut_after_any_event() {
    let events = events();
    let complete_run = fold(&events, None, RunEndKind::Completed);
    for cut in 0..events.len() {
        let folded = fold(&events[..cut], None, RunEndKind::Interrupted);
        assert_eq!(folded.ending.kind, RunEndKind::Interrupted);
        let (last, before) = match folded.nodes.split_last() {
            Some((last, before)) => (Some(last), before),
            None => (None, &[][..]),
        };
        if let Some(last) = last {
            assert_eq!(last.status, NodeStatus::Incomplete, "cut after {cut}: the last message says so");
        }
        assert!(before.iter().all(|node| node.status == NodeStatus::Complete), "cut after {cut}");
        for (node, complete) in folded.nodes.iter().zip(&complete_run.nodes) {
            assert_eq!((&node.id, &node.parent_id), (&complete.id, &complete.parent_id), "cut after {cut}");
            let (Some(part), Some(all)) = (node.message.as_message(), complete.message.as_message()) else {
                continue;
            };
            assert!(all.content.to_text().starts_with(&*part.content.to_text()), "cut after {cut}");
            let is_whole = |call: &ToolCall| all.tool_calls.contains(call);
            assert!(
                part.tool_calls.iter().all(is_whole),
                "a call without all its arguments is left out: {cut}"
            );
            assert!(!part.content.is_empty() || !part.tool_calls.is_empty() || part.role == Role::Tool);
        }
    }
    assert!(fold([], None, RunEndKind::Interrupted).nodes.is_empty());
}

#[test]
fn the_terminal_event_determines_the_end() {
    let finished = |outcome| Event::RunFinished {
        thread_id: "t".into(),
        run_id: "r".into(),
        result: None,
        outcome,
        usage: Vec::new(),
    };
    let error = Event::RunError { message: "no".to_owned(), code: "UPSTREAM".to_owned(), usage: Vec::new() };
    let failure = PublicRunError { code: "UPSTREAM".to_owned(), message: "no".to_owned() };
    let cut = || RunEndKind::Cancelled(CancelReason::Disconnected);
    let cases = [
        (finished(None), RunEndKind::Completed, NodeStatus::Complete),
        (finished(Some(RunOutcome::Cancelled)), cut(), NodeStatus::Cancelled),
        (error, RunEndKind::Failed(failure), NodeStatus::Incomplete),
    ];
    for (event, kind, status) in cases {
        let mut all = events();
        all.pop();
        all.extend([event.clone(), event]);
        let folded = fold(&all, None, cut());
        assert_eq!(folded.ending.kind, kind);
        assert_eq!(folded.nodes.last().map(|node| node.status), Some(status));
    }
}

#[test]
fn hidden_results_are_nodes_only_where_another_run_needs_them() {
    use agent_core::event::Interrupt;

    let fold_hidden = |events: Vec<Event>| {
        let mut fold = RunFold::default();
        for event in &events {
            match event {
                Event::ToolCallResult { .. } => fold.push_hidden_result(event),
                event => fold.push(event),
            }
        }
        let folded = fold.finish(Some("user".into()), RunEndKind::Interrupted);
        let is_result = |node: &&NewNode| node.message.role() == super::super::NodeRole::Tool;
        for pair in folded.nodes.windows(2) {
            assert_eq!(pair[1].parent_id.as_ref(), Some(&pair[0].id), "a path has no holes");
        }
        folded.nodes.iter().filter(is_result).map(|node| node.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(fold_hidden(events()), Vec::<String>::new(), "a run that is complete");
    let mut waits = events();
    let Some(Event::RunFinished { outcome, .. }) = waits.last_mut() else { panic!("an end") };
    *outcome =
        Some(RunOutcome::Interrupt { interrupts: vec![Interrupt::default()], pending_tool_call_ids: vec![] });
    assert_eq!(fold_hidden(waits), ["t2", "t1"], "a run that waits");
    let mut continues = events();
    let mut awaited = continues[19].clone();
    let Event::ToolCallResult { message_id, tool_call_id, .. } = &mut awaited else { panic!("a result") };
    (*message_id, *tool_call_id) = (id("t0"), id("of-an-earlier-run"));
    continues.insert(1, awaited);
    assert_eq!(fold_hidden(continues.clone()), ["t0", "t2", "t1"], "a run that continues another");
    continues.truncate(2);
    assert_eq!(fold_hidden(continues), ["t0"], "one that is cut after it");
}
