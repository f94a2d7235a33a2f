//! Runs the suites against the core's own implementations, and against defective ones, which they must detect.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;

use super::*;
use crate::backend::EmbeddedBackend;
use crate::error::{Failure, FailureKind};
use crate::message::FinishReason;
use crate::model::{Model, ModelEvent, ModelInfo, ModelRequest, ModelStream};
use crate::payload::Payload;
use crate::role::EmbeddedAi;
use crate::select::Choice;
use crate::testing::{Answer, ScriptedModel};

#[cfg(feature = "jobs")]
mod jobs_suite;

fn scripted(scenario: Scenario) -> Arc<ScriptedModel> {
    Arc::new(match scenario {
        Scenario::Answers => ScriptedModel::always("Hello."),
        Scenario::Hangs => ScriptedModel::new([Answer::new().text("Hel").hang()]),
        Scenario::CutOff => ScriptedModel::new([Answer::new().text("Hel")]),
        Scenario::Refuses => {
            ScriptedModel::new([Answer::refuses(Failure::new(FailureKind::RateLimited, "slow down"))])
        }
    })
}

fn open_streams(model: &Arc<ScriptedModel>) -> OpenWork {
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
            choice: Choice::Embedded(EmbeddedAi::default()),
        })
    })
    .await;
}

/// Runs a suite that must panic, and returns its message.
async fn complaint(suite: impl Future<Output = ()>) -> String {
    let panic = AssertUnwindSafe(suite).catch_unwind().await.expect_err("the suite finds the fault");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or_default().to_owned(),
    }
}

/// A model that follows its script, but prepares different bytes at each call.
struct Capricious(Arc<ScriptedModel>);

#[async_trait]
impl Model for Capricious {
    fn info(&self) -> ModelInfo {
        self.0.info()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, Failure> {
        let mut payload = Payload::builder(64);
        payload.json(&(crate::new_id(), request.prompt.system_text()));
        Ok(payload.finish())
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, Failure> {
        self.0.start(payload).await
    }
}

async fn complaint_about(answers: impl Fn() -> Answer, scenario: Scenario) -> String {
    complaint(model(async |asked| {
        let model = match asked {
            Scenario::Answers if scenario == Scenario::Answers => {
                Arc::new(ScriptedModel::new([answers(), answers()]))
            }
            Scenario::Answers => scripted(asked),
            _ if asked == scenario => Arc::new(ScriptedModel::new([answers()])),
            _ => return None,
        };
        Some(ModelSubject { open: None, model })
    }))
    .await
}

#[tokio::test]
async fn a_defective_model_is_found_out() {
    let capricious = async |_| {
        let model: Arc<dyn Model> = Arc::new(Capricious(scripted(Scenario::Answers)));
        Some(ModelSubject { model, open: None })
    };
    let said = complaint(model(capricious)).await;
    assert!(said.contains("equal requests give the same bytes"), "{said}");

    let args = || ModelEvent::ToolCallArgs { index: 3, delta: "{".into() };
    let twice = || Answer::says("a").finish(FinishReason::Stop);
    let said = complaint_about(twice, Scenario::Answers).await;
    assert!(said.contains("nothing follows Finish"), "{said}");
    let said =
        complaint_about(|| Answer::new().event(args()).finish(FinishReason::ToolCalls), Scenario::Answers)
            .await;
    assert!(said.contains("arguments come after their call has begun"), "{said}");
    let said = complaint_about(|| Answer::new().text("a"), Scenario::Answers).await;
    assert!(said.contains("a whole answer ends with Finish"), "{said}");
    let said = complaint_about(|| Answer::says("a"), Scenario::CutOff).await;
    assert!(said.contains("cut off has no Finish"), "{said}");
    let said = complaint_about(|| Answer::says("a"), Scenario::Refuses).await;
    assert!(said.contains("is an error of start"), "{said}");
}

#[tokio::test]
async fn a_backend_that_takes_an_early_end_for_a_whole_answer_is_found_out() {
    let said = complaint(backend(async |scenario| {
        let model = match scenario {
            Scenario::CutOff => scripted(Scenario::Answers),
            other => scripted(other),
        };
        Some(BackendSubject {
            open: None,
            backend: Arc::new(EmbeddedBackend::new(model)),
            choice: Choice::Embedded(EmbeddedAi::default()),
        })
    }))
    .await;
    assert!(said.contains("ends with RUN_ERROR"), "{said}");
}
