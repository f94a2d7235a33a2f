//! The parts of the examples run the suites of their traits, as those of an application would.

// Each example is a separate program; here only its types are used.
#[path = "../custom_backend.rs"]
#[expect(dead_code, reason = "the example's main function is not called")]
mod custom_backend;
#[path = "../custom_layer.rs"]
#[expect(dead_code, reason = "the example's main function is not called")]
mod custom_layer;
#[path = "../custom_store.rs"]
#[expect(dead_code, reason = "the example's main function is not called")]
mod custom_store;
#[path = "../custom_tool.rs"]
#[expect(dead_code, reason = "the example's main function is not called")]
mod custom_tool;
#[path = "../external_index.rs"]
#[expect(dead_code, reason = "the example's main function is not called")]
mod external_index;

use agent_core::conformance::{
    self, BackendSubject, ContextLayerSubject, ModelSubject, SampleCall, Scenario, ToolRegistrySubject,
};
use agent_core::prelude::*;
use agent_core::testing::turn_input;
use futures_util::StreamExt as _;
use serde_json::json;

#[test]
fn the_model_conforms() {
    futures_executor::block_on(conformance::model(async |scenario| {
        (scenario == Scenario::Completes).then(|| ModelSubject::new(Arc::new(examples::EchoModel)))
    }));
}

#[test]
fn the_backend_conforms() {
    futures_executor::block_on(conformance::backend(async |scenario| {
        let settings = CustomContainer { name: "FixedAnswer".into(), content: json!({"answer": "42"}) };
        let backend = Arc::new(custom_backend::FixedAnswerBackend);
        (scenario == Scenario::Completes).then(|| BackendSubject::new(backend, settings))
    }));
}

#[test]
fn each_answer_of_the_backend_has_its_own_message_id() {
    let role = json!({"id": "fixed", "companyId": "acme", "children": [{"name": "FixedAnswer"}]});
    let roles = StaticRoles::new().with_role(serde_json::from_value(role).expect("a role"));
    let backend = custom_backend::FixedAnswerBackend;
    let platform = Platform::new(Arc::new(roles)).with_custom_backend("FixedAnswer", backend);
    let you = Principal::new("ada", "acme", Caller::Session);
    let answer_id = || {
        let request = TurnRequest::new("fixed", vec![Message::user("What is the answer?")]);
        let run =
            async { run_turn(&platform, &you, request).await.expect("a run").collect::<Vec<Event>>().await };
        let events = futures_executor::block_on(run);
        events.iter().find_map(|event| event.delta().map(|(id, _)| id.clone())).expect("an answer")
    };
    assert_ne!(answer_id(), answer_id());
}

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
        let turn = turn_input(json!({"id": "seller", "companyId": "acme"}));
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

#[test]
fn the_store_conforms() {
    futures_executor::block_on(agent_platform::conformance::records(async || {
        Arc::<custom_store::MapRecords>::default() as _
    }));
}
