//! The step by itself: backends of other kinds, and prompts with much besides the history.

use agent_core::budget::{EstimateCounter, TokenBudget};
use agent_core::prompt::{AssemblyInput, Fragment, Part, PartCache, RETRIEVAL_SOURCE, Stability, assemble};
use agent_core::testing::turn_input;
use agent_core::tool::ExecutionContext;
use agent_core::turn::HistoryStep;

use super::*;

/// Texts of a shortened history, and its account.
struct ShortenedPrompt {
    texts: Vec<String>,
    account: Value,
    /// Messages that the assembly has left out afterwards.
    trimmed: usize,
}

/// Applies the step to a turn of an agent with these containers and settings.
async fn applied(
    process: &Process,
    role: Value,
    messages: &[Message],
    fragments: Vec<Fragment>,
) -> ShortenedPrompt {
    let cache = PartCache::default();
    let mut turn = turn_input(role);
    turn.context = ExecutionContext {
        company_id: "c".into(),
        user_id: "ada".into(),
        agent_id: "a".into(),
        thread_id: "t".into(),
        ..ExecutionContext::default()
    };
    turn.request = Arc::new(request(messages));
    let mut assembly = AssemblyInput {
        fragments,
        history: cache.history(&turn.request.messages),
        tools: &[],
        budget: TokenBudget { max_prompt_tokens: WINDOW },
        counter: Arc::new(EstimateCounter),
        retrieval: Some(Default::default()),
        cache: &cache,
        history_report: None,
    };
    process.compaction.apply(&turn, &mut assembly).await.expect("applied");
    let prompt = assemble(assembly).expect("it fits");
    let texts = prompt.messages().iter().map(|message| message.original().content.to_text().into_owned());
    let account = prompt.reports().next().map(|report| report.preview().1).unwrap_or_default();
    let trimmed = prompt.trimmed().iter().map(|trimmed| trimmed.messages).sum();
    ShortenedPrompt { texts: texts.collect(), account, trimmed }
}

fn role_with(children: Value, compaction: Value) -> Value {
    json!({"id": "a", "companyId": "c", "content": {"compaction": compaction}, "children": children})
}

#[tokio::test]
async fn each_kind_of_backend_gets_its_history() {
    let messages = conversation(100);
    let runtime = json!([{"name": "AgentServer", "content": {"agentServerUrl": "http://runtime.example"}}]);
    let workflow = json!([{"name": "WorkflowConnector", "content": {"webhookUrl": "http://n8n.example"}}]);
    let embedded_content = json!({"model": {"provider": "openai", "model": "m"}});
    for (children, compaction, summary) in [
        (json!([{"name": "EmbeddedAI"}]), json!({}), json!("made")),
        (runtime.clone(), json!({}), json!("missing")),
        (runtime, embedded_content.clone(), json!("made")),
        (workflow, embedded_content, Value::Null),
    ] {
        let process = Process::new(Arc::new(MemoryRecords::default()), FactModel::default());
        let shown = applied(&process, role_with(children.clone(), compaction), &messages, Vec::new()).await;
        assert_eq!(shown.account["summary"], summary, "{children}");
        assert_eq!(shown.texts[0].starts_with("<summary"), summary != Value::Null, "{children}");
        assert_eq!(process.summarizer.calls() > 0, summary == "made", "{children}");
        assert_eq!(shown.texts.last().map(String::as_str), Some("And now?"));
        assert_eq!(shown.trimmed > 0, summary == Value::Null, "{children}");
    }
}

#[tokio::test]
async fn turns_without_room_are_left_out_after_the_summary() {
    let process = Process::new(Arc::new(MemoryRecords::default()), FactModel::default());
    let role = role_with(json!([{"name": "EmbeddedAI"}]), json!({}));
    let messages = conversation(100);
    let retrieved =
        || Fragment::new("found", RETRIEVAL_SOURCE, Stability::Turn, Part::new("found ".repeat(5_000)));
    let shown = applied(&process, role, &messages, vec![retrieved()]).await;
    let left_out = shown.account["leftOut"].as_u64().expect("some are left out");
    assert!(shown.texts[0].starts_with("<summary of="), "{}", shown.texts[0]);
    assert_eq!(shown.texts[1], format!("[{left_out} messages of the conversation are left out here]"));
    let summarized = shown.account["messages"].as_u64().expect("some are summarized");
    assert_eq!(summarized + left_out + shown.texts.len() as u64 - 2, messages.len() as u64);
    assert_eq!((shown.trimmed, shown.texts.last().map(String::as_str)), (0, Some("And now?")));
}
