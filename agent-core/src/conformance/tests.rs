//! Runs the suites against the core's own implementations, and against defective ones, which they must detect.

mod context_layer;
mod tool_registry;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;

use super::*;
use crate::backend::EmbeddedBackend;
use crate::error::{AgentError, AgentErrorKind};
use crate::message::FinishReason;
use crate::model::{Model, ModelEvent, ModelInfo, ModelRequest, ModelStream};
use crate::payload::Payload;
use crate::role::EmbeddedAi;
use crate::testing::{ScriptedAnswer, ScriptedModel};

fn scripted(scenario: Scenario) -> Arc<ScriptedModel> {
    Arc::new(match scenario {
        Scenario::Completes => ScriptedModel::repeating("Hello."),
        Scenario::Hangs => ScriptedModel::new([ScriptedAnswer::new().text("Hel").hang()]),
        Scenario::Truncates => ScriptedModel::new([ScriptedAnswer::new().text("Hel")]),
        Scenario::Rejects => ScriptedModel::new([ScriptedAnswer::from_start_error(AgentError::new(
            AgentErrorKind::RateLimited,
            "slow down",
        ))]),
    })
}

fn open_streams(model: &Arc<ScriptedModel>) -> OpenWorkCounter {
    let model = model.clone();
    Box::new(move || model.open_streams())
}

#[tokio::test]
async fn the_scripted_model_conforms() {
    model(async |scenario| {
        let model = scripted(scenario);
        Some(ModelSubject { open: Some(open_streams(&model)), model })
    })
    .await;
}

#[tokio::test]
async fn the_embedded_backend_conforms() {
    backend(async |scenario| {
        let model = scripted(scenario);
        Some(BackendSubject {
            open: Some(open_streams(&model)),
            backend: Arc::new(EmbeddedBackend::new(model)),
            settings: EmbeddedAi::default(),
        })
    })
    .await;
}

/// Runs a suite that must panic, and returns its message.
async fn panic_message(suite: impl Future<Output = ()>) -> String {
    let panic = AssertUnwindSafe(suite).catch_unwind().await.expect_err("the suite finds the fault");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or_default().to_owned(),
    }
}

/// A model that follows its script, but prepares different bytes at each call.
struct NondeterministicModel(Arc<ScriptedModel>);

#[async_trait]
impl Model for NondeterministicModel {
    fn info(&self) -> ModelInfo {
        self.0.info()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let mut payload = Payload::builder(64);
        payload.json(&(crate::new_id(), request.prompt.system_text()));
        Ok(payload.finish())
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        self.0.start(payload).await
    }
}

async fn complaint_about(answers: impl Fn() -> ScriptedAnswer, scenario: Scenario) -> String {
    panic_message(model(async |requested| {
        let model = match requested {
            Scenario::Completes if scenario == Scenario::Completes => {
                Arc::new(ScriptedModel::new([answers(), answers()]))
            }
            Scenario::Completes => scripted(requested),
            _ if requested == scenario => Arc::new(ScriptedModel::new([answers()])),
            _ => return None,
        };
        Some(ModelSubject::new(model))
    }))
    .await
}

#[tokio::test]
async fn a_defective_model_is_detected() {
    let capricious = async |_| {
        let model: Arc<dyn Model> = Arc::new(NondeterministicModel(scripted(Scenario::Completes)));
        Some(ModelSubject::new(model))
    };
    let message = panic_message(model(capricious)).await;
    assert!(message.contains("equal requests give the same bytes"), "{message}");

    let args = || ModelEvent::ToolCallArgs { index: 3, delta: "{".into() };
    let twice = || ScriptedAnswer::from_text("a").finish(FinishReason::Stop);
    let message = complaint_about(twice, Scenario::Completes).await;
    assert!(message.contains("nothing follows Finish"), "{message}");
    let message = complaint_about(
        || ScriptedAnswer::new().event(args()).finish(FinishReason::ToolCalls),
        Scenario::Completes,
    )
    .await;
    assert!(message.contains("arguments come after their call has begun"), "{message}");
    let message = complaint_about(|| ScriptedAnswer::new().text("a"), Scenario::Completes).await;
    assert!(message.contains("a whole answer ends with Finish"), "{message}");
    let message = complaint_about(|| ScriptedAnswer::from_text("a"), Scenario::Truncates).await;
    assert!(message.contains("cut off has no Finish"), "{message}");
    let message = complaint_about(|| ScriptedAnswer::from_text("a"), Scenario::Rejects).await;
    assert!(message.contains("is an error of start"), "{message}");
}

#[tokio::test]
async fn a_backend_that_accepts_a_truncated_answer_is_detected() {
    let message = panic_message(backend(async |scenario| {
        let model = match scenario {
            Scenario::Truncates => scripted(Scenario::Completes),
            other => scripted(other),
        };
        Some(BackendSubject::new(Arc::new(EmbeddedBackend::new(model)), EmbeddedAi::default()))
    }))
    .await;
    assert!(message.contains("ends with RUN_ERROR"), "{message}");
}
