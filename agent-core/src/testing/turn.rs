//! Turns, as inputs of context layers and of backends.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;

use crate::backend::Turn;
use crate::context::TurnInput;
use crate::event::RunIds;
use crate::message::Message;
use crate::prompt::{Fragment, Part, Prompt, PromptMessage, Stability};
use crate::role::RoleBlock;
use crate::select::BackendChoice;
use crate::tool::{ExecutionContext, ToolChoice};

/// Builds a context layer's input: a turn of an agent with this valid role, at the Unix epoch, with 100,000 tokens.
pub fn turn_input(role: Value) -> TurnInput {
    TurnInput {
        role: Arc::new(serde_json::from_value(role).expect("the role is valid")),
        context: ExecutionContext::default(),
        request: Arc::default(),
        now: SystemTime::UNIX_EPOCH,
        max_prompt_tokens: 100_000,
    }
}

/// Formats fragments as text for comparison: source, stability, id and text of each.
pub fn format_fragments(fragments: &[Fragment]) -> String {
    fragments
        .iter()
        .map(|f| format!("[{}/{:?}] {}\n{}\n", f.source, f.stability, f.id, f.part.text()))
        .collect()
}

/// Builds a turn for a backend: the user `ada` says `hi` to the agent `Ann`, without tools.
pub fn backend_turn(choice: BackendChoice) -> Turn {
    let role =
        RoleBlock { id: "a".into(), name: "Ann".to_owned(), company_id: "c".into(), ..RoleBlock::default() };
    let context = ExecutionContext {
        user_id: "ada".into(),
        company_id: "c".into(),
        agent_id: "a".into(),
        agent_name: Some("Ann".to_owned()),
        todo_list_id: Some("l".to_owned()),
        thread_id: "thread-1".into(),
        run_id: "run-1".into(),
        ..ExecutionContext::default()
    };
    Turn {
        run: RunIds { thread_id: "thread-1".into(), run_id: "run-1".into() },
        role: Arc::new(role),
        choice,
        prompt: Arc::new(backend_prompt(vec![Message::user("hi")])),
        tools: Arc::new([]),
        context,
        tool_choice: ToolChoice::Auto,
        thinking: None,
        response_format: None,
        run_token: None,
    }
}

/// Builds a prompt with a system text and these messages.
pub fn backend_prompt(messages: Vec<Message>) -> Prompt {
    let system = Fragment::new("role", "test", Stability::Role, Part::new("You are \"terse\"."));
    Prompt::new(vec![system], messages.into_iter().map(PromptMessage::new).collect())
}
