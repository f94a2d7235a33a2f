//! A custom context layer that adds the application's own data to every prompt.
//!
//! `cargo run -p examples --example custom_layer`

use agent_core::prelude::*;

/// Adds the user's subscription plan to the prompt.
pub(crate) struct Plan;

#[async_trait]
impl ContextLayer for Plan {
    fn name(&self) -> &'static str {
        "plan"
    }

    async fn collect(&self, turn: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        // A real layer queries a database. The plan of a user seldom changes, so the fragment precedes the history.
        let text = format!("The user {} is on the free plan.", turn.context.user_id);
        Ok(vec![Fragment::new("plan", self.name(), Stability::Session, Part::new(text))])
    }
}

#[expect(clippy::print_stdout, reason = "it is what an example is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    futures_executor::block_on(async {
        let role = serde_json::from_str(
            r#"{"id": "seller", "companyId": "acme", "content": {"systemPrompt": "You sell bicycles."},
                "children": [{"name": "EmbeddedAI"}]}"#,
        )?;
        let roles = Arc::new(StaticRoles::new().with_role(role));

        let backend = EmbeddedBackend::new(Arc::new(examples::EchoModel));
        let platform = Platform::new(roles)
            .with_layer(RoleLayer::new(Arc::default()))
            .with_layer(Plan)
            .with_backend(backend);

        // Prepares the request without sending it.
        let you = Principal::new("ada", "acme", Caller::Session);
        let request = TurnRequest::new("seller", vec![Message::user("What do I get?")]);
        let turn = prepare_turn(&platform, &you, request).await?;
        println!("{}", turn.request.turn.prompt.system_text());
        Ok(())
    })
}
