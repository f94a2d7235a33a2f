//! A custom backend that runs whole turns, with a fixed answer.
//!
//! `cargo run -p examples --example custom_backend`

use std::sync::Arc;

use agent_core::backend::{Backend, PreparedRequest, Turn};
use agent_core::budget::TokenBudget;
use agent_core::error::AgentError;
use agent_core::event::{AssistantRole, Id};
use agent_core::payload::Payload;
use agent_core::role::StaticRoles;
use agent_core::select::{BackendChoice, BackendKind};
use agent_core::tool::Caller;
use agent_core::{Event, EventStream, Message, Platform, Principal, TurnRequest, run_turn};
use async_trait::async_trait;
use futures_util::stream;

/// A backend with a single answer.
struct Oracle;

#[async_trait]
impl Backend for Oracle {
    fn budget(&self, _: &BackendChoice) -> Result<TokenBudget, AgentError> {
        Ok(TokenBudget { max_prompt_tokens: 4_000 })
    }

    fn prepare(&self, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        let mut body = Payload::builder(256);
        body.raw(r#"{"system":"#);
        turn.prompt.push_system_json(body.buffer());
        body.raw("}");
        Ok(PreparedRequest { payload: body.finish(), turn })
    }

    async fn start(&self, prepared: PreparedRequest) -> Result<EventStream, AgentError> {
        // A real backend sends `prepared.payload` to a service. The event stream emits `RUN_STARTED`, closes open
        // messages, and replaces these ids by its own.
        let id = Id::from("answer");
        let (thread_id, run_id) = (Id::default(), Id::default());
        let events = [
            Event::TextMessageStart { message_id: id.clone(), role: AssistantRole::Assistant },
            Event::TextMessageContent { message_id: id, delta: "Forty-two.".into() },
            Event::RunFinished { thread_id, run_id, result: None, outcome: None, usage: vec![] },
        ];
        Ok(EventStream::new(prepared.turn.run.clone(), stream::iter(events.map(Ok))))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    futures_executor::block_on(async {
        let role = serde_json::from_str(
            r#"{"id": "oracle", "companyId": "acme", "children": [{"name": "EmbeddedAI"}]}"#,
        )?;
        let roles = Arc::new(StaticRoles::new().with_role(role));
        // A custom backend can serve any of the kinds that roles select.
        let platform = Platform::new(roles).with_backend(BackendKind::Embedded, Oracle);

        let you = Principal::new("ada", "acme", Caller::Session);
        let request = TurnRequest::new("oracle", vec![Message::user("What is the answer?")]);
        examples::print(run_turn(&platform, &you, request).await?).await;
        Ok(())
    })
}
