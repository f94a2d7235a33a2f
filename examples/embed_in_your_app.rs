//! A chat turn in an application, with agent-core alone: without HTTP and without an async runtime.
//!
//! `cargo run -p examples --example embed_in_your_app`

use agent_core::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    futures_executor::block_on(async {
        let role = r#"{"id": "echo", "companyId": "acme", "content": {"personality": "Polite."},
            "children": [{"name": "EmbeddedAI"}]}"#;
        let roles = StaticRoles::new().with_role(serde_json::from_str(role)?);
        let platform = Platform::new(Arc::new(roles))
            .with_layer(RoleLayer::new(Arc::default()))
            .with_backend(EmbeddedBackend::new(Arc::new(examples::EchoModel)));

        let you = Principal::new("ada", "acme", Caller::Session);
        let request = TurnRequest::new("echo", vec![Message::user("Hello!")]);
        examples::print(run_turn(&platform, &you, request).await?).await;
        Ok(())
    })
}
