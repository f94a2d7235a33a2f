//! The tool and the context layer of the examples run the suites of their traits, as those of an application would.

// Each example is a separate program; here only its types are used.
#[path = "../custom_layer.rs"]
#[expect(dead_code, reason = "the example's main function is not called")]
mod custom_layer;
#[path = "../custom_tool.rs"]
#[expect(dead_code, reason = "the example's main function is not called")]
mod custom_tool;
#[path = "../external_index.rs"]
#[expect(dead_code, reason = "the example's main function is not called")]
mod external_index;

use std::time::SystemTime;

use agent_core::conformance::{self, ContextLayerSubject, SampleCall, Scenario, ToolRegistrySubject};
use agent_core::prelude::*;
use serde_json::json;

#[test]
fn the_tool_conforms() {
    futures_executor::block_on(conformance::tool_registry(async |scenario| {
        let tools = Arc::new(LocalToolRegistry::new().with_tool(custom_tool::Weather));
        let call = SampleCall::new("weather", json!({"city": "Berlin"}));
        let subject = ToolRegistrySubject::new(tools, ExecutionContext::default(), [call.clone()]);
        let subject = ToolRegistrySubject { progress: Some(call), ..subject };
        (scenario == Scenario::Completes).then_some(subject)
    }));
}

#[test]
fn the_layer_conforms() {
    futures_executor::block_on(conformance::context_layer(async |scenario| {
        let turn = TurnInput {
            role: Arc::default(),
            context: ExecutionContext { user_id: "ada".into(), ..ExecutionContext::default() },
            request: Arc::default(),
            now: SystemTime::now(),
            max_prompt_tokens: 100_000,
        };
        let layer = Arc::new(custom_layer::Plan);
        (scenario == Scenario::Completes).then(|| ContextLayerSubject::new(layer, turn))
    }));
}

#[test]
fn the_index_conforms() {
    futures_executor::block_on(agent_retrieval::conformance::index(async || {
        Arc::<external_index::WordIndex>::default() as _
    }));
}
