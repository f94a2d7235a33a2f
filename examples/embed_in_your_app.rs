//! A chat turn inside an application: `agent-core` alone, without HTTP, on any async executor.
//!
//! `cargo run -p examples --example embed_in_your_app`

use std::sync::Arc;

use agent_core::backend::EmbeddedBackend;
use agent_core::context::RoleLayer;
use agent_core::role::StaticRoles;
use agent_core::select::BackendKind;
use agent_core::tool::Caller;
use agent_core::{Message, Platform, Principal, TurnRequest, run_turn};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    futures_executor::block_on(async {
        let role = serde_json::from_str(
            r#"{"id": "echo", "companyId": "acme", "content": {"personality": "Polite."},
                "children": [{"name": "EmbeddedAI"}]}"#,
        )?;
        let roles = Arc::new(StaticRoles::new().with_role(role));

        let backend = EmbeddedBackend::new(Arc::new(examples::Parrot));
        let platform = Platform::new(roles)
            .with_layer(RoleLayer::new(Arc::default()))
            .with_backend(BackendKind::Embedded, backend);

        let you = Principal::new("ada", "acme", Caller::Session);
        let request = TurnRequest::new("echo", vec![Message::user("Hello!")]);
        examples::print(run_turn(&platform, &you, request).await?).await;
        Ok(())
    })
}
