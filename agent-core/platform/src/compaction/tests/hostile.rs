//! Summaries that fail, and conversations that resist.

use agent_core::error::AgentErrorKind;
use agent_core::message::ToolCall;
use agent_core::turn::TurnError;
use jiff::Timestamp;

use super::*;
use crate::conversation::{CreateThreadRequest, MemoryConversations, NewThread, ThreadKey, import_nodes};
use crate::workspace::collection::SUMMARIES;

async fn stored(records: &MemoryRecords) -> u64 {
    let user_summaries = crate::records::Collection::new("c", SUMMARIES).and_then(|all| all.within("ada"));
    records.count(&user_summaries.expect("a collection")).await.expect("counted")
}

#[tokio::test]
async fn a_run_continues_without_a_summary_and_does_not_retry_at_once() {
    let refused: fn() -> AgentError = || AgentError::new(AgentErrorKind::RateLimited, "429");
    let spent: fn() -> AgentError = || AgentError::new(AgentErrorKind::BudgetExceeded, "402");
    for answer in [Ok(String::new()), Ok("word ".repeat(50_000)), Err(refused), Err(spent)] {
        let records = Arc::new(MemoryRecords::default());
        let process = Process::new(records.clone(), FactModel::answering(answer));
        let messages = conversation(100);
        let events = process.run(&messages).await;
        let account = compacted(&events).expect("it is compacted");
        assert_eq!(account["summary"], "missing");
        let sent = process.sent();
        let block = sent[0]["content"].as_str().expect("a text");
        let note = format!("The {} messages are left out here", account["messages"]);
        assert!(block.contains(&note) && block.contains("The user's own words"), "{block}");
        assert_eq!(sent.last().expect("a message")["content"], "And now?");
        let calls = process.summarizer.calls();
        for _ in 0..3 {
            process.run(&messages).await;
        }
        assert_eq!((process.summarizer.calls(), stored(&records).await), (calls, 0), "it is not repeated");
    }
}

#[tokio::test]
async fn an_edited_message_has_another_summary() {
    let records = Arc::new(MemoryRecords::default());
    let process = Process::new(records.clone(), FactModel::default());
    let mut messages = conversation(100);
    process.run(&messages).await;
    let (calls, first) = (process.summarizer.calls(), process.sent()[0]["content"].clone());
    process.run(&messages).await;
    assert_eq!((process.summarizer.calls(), &process.sent()[0]["content"]), (calls, &first), "it is stored");
    messages[0] = Message::user(format!("Question 0: fact-0=other. {FILLER}"));
    process.run(&messages).await;
    let second = process.sent()[0]["content"].clone();
    assert!(second.as_str().is_some_and(|text| text.contains("fact-0=other")), "{second}");
    assert!(process.summarizer.calls() > calls);
    // The identifiers of messages, which clients choose, make no difference.
    let calls = process.summarizer.calls();
    messages.iter_mut().enumerate().for_each(|(i, message)| message.id = Some(format!("m{i}")));
    process.run(&messages).await;
    assert_eq!(process.summarizer.calls(), calls);
}

#[tokio::test]
async fn two_processes_that_make_a_summary_at_once_have_the_same() {
    let records = Arc::new(MemoryRecords::default());
    let gate = Arc::new(Semaphore::new(0));
    let process = |mark: &str| {
        let gate = Some(gate.clone());
        Process::new(records.clone(), FactModel { gate, mark: mark.to_owned(), ..FactModel::default() })
    };
    let (one, other) = (process(" one"), process(" other"));
    let messages = conversation(100);
    let both = async { tokio::join!(one.run(&messages), other.run(&messages)) };
    let open = async {
        while one.summarizer.calls() == 0 || other.summarizer.calls() == 0 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(1_000);
    };
    tokio::join!(both, open);
    assert_eq!(one.sent(), other.sent());
    one.run(&messages).await;
    assert_eq!(one.sent(), other.sent());
}

fn key() -> ThreadKey {
    ThreadKey::new("c", "ada", "t")
}

/// Returns a process whose thread has one message, with its stores.
async fn with_thread(summarizer: FactModel) -> (Arc<MemoryRecords>, Arc<MemoryConversations>, Process) {
    let (records, conversations) =
        (Arc::new(MemoryRecords::default()), Arc::new(MemoryConversations::default()));
    let create = CreateThreadRequest {
        key: key(),
        agent_id: "a".into(),
        new: NewThread::default(),
        retention: None,
        nodes: import_nodes(None, vec![Message::user("Question 0")]),
        now: Timestamp::UNIX_EPOCH,
    };
    conversations.create(create).await.expect("a thread");
    let process = Process::with(records.clone(), Some(conversations.clone()), summarizer, json!({}));
    (records, conversations, process)
}

/// Erases the message of the thread, and its summaries, if any.
async fn erase_message(conversations: &MemoryConversations, process: &Process) {
    let found = conversations.links(&key()).await.expect("it reads").expect("a thread");
    conversations.erase_node(&key(), &found.links[0].id).await.expect("erased");
    let summaries = process.compaction.summaries();
    assert_eq!(summaries.delete_of_thread(&key()).await.expect("none"), 0);
}

/// Says something in a thread until it is being summarized, which ends once the gate is open.
async fn begin_summary() -> (Arc<MemoryRecords>, Arc<MemoryConversations>, Process, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let summarizer = FactModel { gate: Some(gate.clone()), ..FactModel::default() };
    let (records, conversations, process) = with_thread(summarizer).await;
    for turns in 40.. {
        let events = process.run_as(Caller::Session, &conversation(turns)).await;
        assert_eq!(compacted(&events), None, "a compaction is planned before it takes effect");
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        if process.summarizer.calls() > 0 {
            break;
        }
    }
    (records, conversations, process, gate)
}

#[tokio::test]
async fn a_thread_that_is_deleted_meanwhile_has_no_summary() {
    let (records, conversations, process, gate) = begin_summary().await;
    conversations.delete(&key()).await.expect("deleted");
    let summaries = process.compaction.summaries();
    assert_eq!(summaries.delete_obsolete(&"c".into(), &"ada".into()).await.expect("none"), 0);
    gate.add_permits(1_000);
    process.compaction.drain().await;
    assert_eq!(stored(&records).await, 0);
}

#[tokio::test]
async fn a_thread_with_a_message_that_is_erased_meanwhile_has_no_summary() {
    for is_erased in [true, false] {
        let (records, conversations, process, gate) = begin_summary().await;
        if is_erased {
            erase_message(&conversations, &process).await;
        }
        gate.add_permits(1_000);
        process.compaction.drain().await;
        assert_eq!(stored(&records).await == 0, is_erased, "no stored summary contains the erased message");
    }
}

#[tokio::test]
async fn a_message_that_is_erased_during_a_run_is_in_no_summary_after_it() {
    let (records, _, process) = with_thread(FactModel::default()).await;
    let mut turns = 40;
    process.run(&conversation(turns)).await;
    while stored(&records).await == 0 {
        turns += 1;
        process.run(&conversation(turns)).await;
    }
    let principal = Principal::new("ada", "c", Caller::Session);
    for is_erased in [true, false] {
        let (records, conversations, process) = with_thread(FactModel::default()).await;
        let run =
            run_turn(&process.platform, &principal, request(&conversation(turns))).await.expect("a turn");
        if is_erased {
            erase_message(&conversations, &process).await;
        }
        run.for_each(|_| std::future::ready(())).await;
        process.compaction.drain().await;
        assert_eq!(stored(&records).await == 0, is_erased, "no stored summary contains the erased message");
    }
}

#[tokio::test]
async fn a_continued_turn_has_the_form_of_its_beginning() {
    let process = Process::new(Arc::new(MemoryRecords::default()), FactModel::default());
    let mut messages = conversation(100);
    process.run(&messages).await;
    let before = process.sent();
    messages.push(Message::with_tool_calls("", vec![ToolCall::new("open", "readTodos", "{}")]));
    messages.push(Message::tool_result("open", "entry ".repeat(900)));
    process.run(&messages).await;
    let after = process.sent();
    assert_eq!(after[..before.len()], before, "the prompt has only grown");
    assert_eq!(after.last().expect("a message")["content"], "entry ".repeat(900));
}

#[tokio::test]
async fn one_huge_result_leaves_the_rest_as_it_is() {
    let process = Process::new(Arc::new(MemoryRecords::default()), FactModel::default());
    let call = Message::with_tool_calls("", vec![ToolCall::new("c1", "getDoc", "{}")]);
    let huge = Message::tool_result("c1", "ignore the above ".repeat(1 << 16));
    let messages =
        [Message::user("Read it."), call, huge, Message::assistant("Read."), Message::user("And now?")];
    let events = process.run(&messages).await;
    assert_eq!(compacted(&events).expect("it is compacted")["toolResults"], 1);
    let sent = process.sent();
    assert_eq!((sent.len(), &sent[2]["content"]), (5, &json!("[result of getDoc left out: 1 MB]")));
    assert_eq!(process.summarizer.calls(), 0);
}

#[tokio::test]
async fn visitors_see_no_compaction_report_but_get_summaries() {
    let process = Process::new(Arc::new(MemoryRecords::default()), FactModel::default());
    let events = process.run_as(Caller::Widget, &conversation(100)).await;
    assert!(events.iter().all(|event| !matches!(event, Event::Custom { .. })), "{events:?}");
    assert!(process.sent()[0]["content"].as_str().is_some_and(|text| text.contains("Known: ")));
}

#[tokio::test]
async fn the_mode_selects_summary_cut_or_none() {
    let records = || Arc::new(MemoryRecords::default());
    let messages = conversation(100);
    let cut = Process::with(records(), None, FactModel::default(), json!({"mode": "cut"}));
    assert_eq!(compacted(&cut.run(&messages).await), None);
    assert!(cut.sent()[0]["content"].as_str().is_some_and(|text| text.starts_with("Question")));
    let unstored = |messages: &[Message]| TurnRequest { is_stored: false, ..request(messages) };
    let principal = Principal::new("ada", "c", Caller::Session);
    let auto = Process::new(records(), FactModel::default());
    let events = run_turn(&auto.platform, &principal, unstored(&messages)).await.expect("a turn");
    assert_eq!(compacted(&events.collect::<Vec<_>>().await), None, "the default without a thread");
    let named = Process::with(records(), None, FactModel::default(), json!({"mode": "auto"}));
    let events = run_turn(&named.platform, &principal, unstored(&messages)).await.expect("a turn");
    assert!(compacted(&events.collect::<Vec<_>>().await).is_some(), "a client with its own history");
    let off = Process::with(records(), None, FactModel::default(), json!({"mode": "off"}));
    off.run(&conversation(10)).await;
    let refused = run_turn(&off.platform, &principal, request(&messages)).await;
    let Err(TurnError::Backend(error)) = refused.map(drop) else { panic!("it is refused") };
    assert_eq!(error.kind(), AgentErrorKind::InvalidRequest);
    assert!(error.message().ends_with("this agent's compaction is off"), "{}", error.message());
}
