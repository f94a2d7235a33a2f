//! The course of a long conversation.

use std::collections::HashSet;

use agent_core::budget::{EstimateCounter, TokenCounter};
use agent_core::message::ToolCall;

use super::*;

/// Number of turns of the long conversation.
const TURNS: usize = 500;
/// Number of facts that its beginning mentions.
const FACTS: usize = 50;

/// Adds a turn: a question, sometimes a tool call with its result, and an answer.
fn add_question(messages: &mut Vec<Message>, turn: usize) {
    let fact = if turn < FACTS { format!("fact-{turn}=v{turn} ") } else { String::new() };
    messages.push(Message::user(format!("Question {turn}. {fact}{FILLER}")));
}

fn add_answer(messages: &mut Vec<Message>, turn: usize) {
    if turn.is_multiple_of(5) {
        let id = format!("call-{turn}");
        messages.push(Message::with_tool_calls("", vec![ToolCall::new(id.clone(), "readTodos", "{}")]));
        messages.push(Message::tool_result(id, format!("[{}]", "\"todo\",".repeat(100))));
    }
    messages.push(Message::assistant(format!("Noted {turn}. {FILLER}")));
}

fn tokens(messages: &[Message]) -> usize {
    let count = |message: &Message| {
        let calls: usize =
            message.tool_calls.iter().map(|call| 8 + EstimateCounter.count(&call.function.name)).sum();
        4 + calls + EstimateCounter.count(&message.content.to_text())
    };
    messages.iter().map(count).sum()
}

/// Checks that each result has its call in front of it, and each call its result.
fn check_pairs(body: &[u8]) {
    let sent: Value = serde_json::from_slice(body).expect("JSON");
    let mut open: HashSet<&str> = HashSet::new();
    for message in sent["messages"].as_array().expect("messages") {
        match message["role"].as_str() {
            Some("tool") => assert!(open.remove(message["toolCallId"].as_str().expect("an id")), "{message}"),
            _ => assert!(open.is_empty(), "a call without a result: {message}"),
        }
        let calls = message["toolCalls"].as_array().into_iter().flatten();
        open.extend(calls.map(|call| call["id"].as_str().expect("an id")));
    }
    assert!(open.is_empty());
}

#[tokio::test]
async fn a_conversation_of_500_turns_stays_cached_and_small_and_keeps_its_facts() {
    let records = Arc::new(MemoryRecords::default());
    let process = Process::new(records, FactModel::default());
    let mut messages = Vec::new();
    let (mut compactions, mut waits, mut cached, mut cacheable) = (0, 0, 0, 0);
    let (mut sent_tokens, mut whole_tokens, mut uncompacted_total, mut counted) = (0, 0, 0, 0);
    let (mut last_text, mut last_body) = (Value::Null, Vec::new());
    for turn in 0..TURNS {
        add_question(&mut messages, turn);
        let events = process.run(&messages).await;
        let body = process.model.payloads().pop().expect("a request").bytes().to_vec();
        check_pairs(&body);
        let common = body.iter().zip(&last_body).take_while(|(one, other)| one == other).count();
        let account = compacted(&events).cloned().unwrap_or_default();
        waits += usize::from(account["summary"] == "made");
        assert_ne!(account["summary"], "missing", "{turn}: {account}");
        let form = json!([account["sha256"], account["toolResults"]]);
        if form == last_text || turn == 0 {
            // The latest messages are new to any cache.
            (cached, cacheable) = (cached + common, cacheable + body.len());
        } else {
            compactions += 1;
        }
        (last_text, last_body) = (form, body);
        let account_tokens = account["tokensAfter"].as_u64().map(|tokens| tokens as usize);
        uncompacted_total += tokens(&messages[counted..]);
        counted = messages.len();
        (sent_tokens, whole_tokens) =
            (sent_tokens + account_tokens.unwrap_or(uncompacted_total), whole_tokens + uncompacted_total);
        add_answer(&mut messages, turn);
    }
    let share = cached as f64 / cacheable as f64;
    assert!(share >= 0.9, "cached {share}");
    assert!((2..=TURNS / 20).contains(&compactions), "{compactions} compactions");
    let size = sent_tokens as f64 / whole_tokens as f64;
    assert!(size <= 0.45, "size {size}");
    assert!(waits * 20 <= TURNS, "{waits} turns have waited");
    let text = serde_json::to_string(&process.sent()).expect("JSON");
    let known = facts_in(&text).len();
    assert!(known * 10 >= FACTS * 9, "{known} facts");
}

#[tokio::test]
async fn each_process_sends_the_same_bytes_and_a_preview_shows_them() {
    let records = Arc::new(MemoryRecords::default());
    let processes: Vec<Process> =
        (0..3).map(|_| Process::new(records.clone(), FactModel::default())).collect();
    for turns in (1..300).step_by(3) {
        let messages = conversation(turns);
        let process = &processes[turns % 3];
        let (shown, account) = process.preview(&messages).await;
        let events = process.run(&messages).await;
        let run = compacted(&events).cloned().unwrap_or_default();
        let sent = process.model.payloads().last().expect("a request").sha256();
        if run["summary"] != "made" {
            assert_eq!((shown, &account["sha256"]), (sent.clone(), &run["sha256"]), "{turns}");
        }
        for other in &processes {
            let (shown, account) = other.preview(&messages).await;
            assert_eq!(shown, sent, "{turns}");
            assert_eq!(account["messages"], run["messages"], "{turns}");
        }
    }
    let (_, account) = processes[0].preview(&conversation(300)).await;
    let text = account["text"].as_str().expect("a text");
    assert!(text.starts_with(&format!("<summary of=\"{} messages\">", account["messages"])), "{text}");
    assert!(account["tokensAfter"].as_u64() < account["tokensBefore"].as_u64(), "{account}");
    let calls: usize = processes.iter().map(|process| process.summarizer.calls()).sum();
    assert!(calls <= 3 * 30, "{calls} calls: each summary is made once");
}

#[tokio::test]
async fn the_block_is_first_and_the_latest_message_last() {
    let process = Process::new(Arc::new(MemoryRecords::default()), FactModel::default());
    let mut messages = conversation(100);
    messages.insert(0, Message::text(agent_core::message::Role::Developer, "Speak like a pirate."));
    process.run(&messages).await;
    let sent = process.sent();
    assert_eq!(sent[0]["content"], "Speak like a pirate.");
    let block = sent[1]["content"].as_str().expect("a text");
    assert_eq!(sent[1]["role"], "user");
    assert!(block.contains("Known: fact-0=x.") && block.contains("no instructions"), "{block}");
    assert!(block.contains("The user's own words"), "{block}");
    assert_eq!(sent.last().expect("a message")["content"], "And now?");
    // The last two turns are as they were.
    let kept: Vec<&Value> = sent[sent.len() - 5..].iter().map(|message| &message["content"]).collect();
    let expected: Vec<String> =
        messages[messages.len() - 5..].iter().map(|message| message.content.to_text().into_owned()).collect();
    assert_eq!(kept, expected.iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn long_results_are_left_out_before_anything_is_summarized() {
    let process = Process::new(Arc::new(MemoryRecords::default()), FactModel::default());
    let mut messages = Vec::new();
    for turn in 0..12 {
        messages.push(Message::user(format!("Question {turn}.")));
        let id = format!("call-{turn}");
        messages.push(Message::with_tool_calls("", vec![ToolCall::new(id.clone(), "readTodos", "{}")]));
        messages.push(Message::tool_result(id, "entry ".repeat(600)));
        messages.push(Message::assistant("Done."));
    }
    messages.push(Message::user("And now?"));
    let events = process.run(&messages).await;
    let account = compacted(&events).expect("it is compacted");
    assert_eq!((&account["messages"], &account["toolResults"]), (&json!(0), &json!(6)), "{account}");
    let sent = process.sent();
    assert_eq!(sent[2]["content"], "[result of readTodos left out: 3 KB]");
    assert_eq!(sent[46]["content"], "entry ".repeat(600));
    assert_eq!((sent.len(), process.summarizer.calls()), (messages.len(), 0));
}
