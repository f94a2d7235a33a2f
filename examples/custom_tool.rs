//! A custom tool that the model calls during a turn.
//!
//! `cargo run -p examples --example custom_tool`

use std::sync::LazyLock;

use agent_core::prelude::*;
use serde_json::{Value, json};

/// A weather tool with a fixed forecast.
pub(crate) struct Weather;

static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let annotations = Some(ToolAnnotations { read_only_hint: true, ..ToolAnnotations::default() });
    Arc::new(ToolSpec { annotations, ..ToolSpec::new("weather", "Tells the weather of a city.", &schema) })
});

#[async_trait]
impl Tool for Weather {
    fn spec(&self) -> Arc<ToolSpec> {
        SPEC.clone()
    }

    async fn call(
        &self,
        _context: &ExecutionContext,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let city = arguments["city"].as_str();
        let city = city.ok_or_else(|| ToolError::InvalidArguments("city must be a string".into()))?;
        progress.report(1.0, Some(1.0), Some("looking out of the window"));
        ToolOutput::structured(json!({"city": city, "sky": "clear"}))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    futures_executor::block_on(async {
        // A role must list the tools that it may use.
        let role = serde_json::from_str(
            r#"{"id": "sky", "companyId": "acme", "content": {"tools": ["weather"]},
                "children": [{"name": "EmbeddedAI"}]}"#,
        )?;
        let roles = Arc::new(StaticRoles::new().with_role(role));

        let tools = Arc::new(LocalToolRegistry::new().with_tool(Weather));
        let backend = EmbeddedBackend::new(Arc::new(examples::EchoModel)).with_tools(tools.clone());
        let platform = Platform::new(roles).with_tools(tools).with_backend(backend);

        let you = Principal::new("ada", "acme", Caller::Session);
        let request = TurnRequest::new("sky", vec![Message::user("Berlin")]);
        examples::print(run_turn(&platform, &you, request).await?).await;
        Ok(())
    })
}
