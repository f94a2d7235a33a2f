//! A custom backend, selected by a container with its own name. It answers every turn with the same text.
//!
//! `cargo run -p examples --example custom_backend`

use agent_core::prelude::*;
use serde_json::json;

/// Answers from a fixed text.
pub(crate) struct FixedAnswerBackend;

#[async_trait]
impl Backend for FixedAnswerBackend {
    type Settings = CustomContainer;

    fn capabilities(&self, _: &CustomContainer) -> Result<BackendCapabilities, AgentError> {
        Ok(BackendCapabilities::new(TokenBudget { max_prompt_tokens: 4_000 }))
    }

    fn prepare(&self, _: &CustomContainer, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        let mut body = Payload::builder(256);
        let user_text = turn.prompt.latest_user_text();
        body.json(&json!({"system": turn.prompt.system_text(), "user": user_text}));
        Ok(PreparedRequest { payload: body.finish(), turn })
    }

    async fn start(
        &self,
        settings: &CustomContainer,
        prepared: PreparedRequest,
    ) -> Result<EventStream, AgentError> {
        // A real backend sends `prepared.payload` to a service. The stream adds `RUN_STARTED` and closes open messages.
        // Clients keep the messages of a conversation by their ids, so each answer has a separate id.
        let (message_id, role) = (Id::from(agent_core::new_id()), AssistantRole::Assistant);
        let delta = settings.content["answer"].as_str().unwrap_or("I do not know.").to_owned();
        let events: [SourceEvent; 3] = [
            Event::TextMessageStart { message_id: message_id.clone(), role }.into(),
            Event::TextMessageContent { message_id, delta }.into(),
            RunEnd::success().into(),
        ];
        Ok(EventStream::new(prepared.turn.run.clone(), futures_util::stream::iter(events.map(Ok))))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    futures_executor::block_on(async {
        let role = r#"{"id": "fixed", "companyId": "acme",
            "children": [{"name": "FixedAnswer", "content": {"answer": "Forty-two."}}]}"#;
        let roles = StaticRoles::new().with_role(serde_json::from_str(role)?);
        let platform = Platform::new(Arc::new(roles)).with_custom_backend("FixedAnswer", FixedAnswerBackend);

        let you = Principal::new("ada", "acme", Caller::Session);
        let request = TurnRequest::new("fixed", vec![Message::user("What is the answer?")]);
        examples::print(run_turn(&platform, &you, request).await?).await;
        Ok(())
    })
}
