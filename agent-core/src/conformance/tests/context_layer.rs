//! The suite of context layers, against the core's own layers and against defective ones.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::json;

use super::*;
use crate::context::{ContextLayer, LayerError, RoleLayer, TurnInput};
use crate::prompt::{Fragment, Part, Stability};
use crate::request::TurnRequest;
use crate::tool::ExecutionContext;

/// Builds a turn to which every layer of the core contributes.
fn turn() -> TurnInput {
    let role = json!({"id": "agent", "companyId": "company", "content": {
        "systemPrompt": "You help.", "personality": "Calm.", "rules": ["Never lie.", "Ask."],
        "promptBlocks": ["Plain.", {"title": "Tone", "text": "Short."}], "agentConfig": {"a": 1, "b": [2]}}});
    TurnInput {
        role: Arc::new(serde_json::from_value(role).expect("a role")),
        context: ExecutionContext {
            user_id: "ada".into(),
            company_id: "company".into(),
            agent_id: "agent".into(),
            agent_name: Some("Ann".to_owned()),
            todo_list_id: Some("list".into()),
            timezone: Some("Europe/Berlin".to_owned()),
            ..ExecutionContext::default()
        },
        request: Arc::new(TurnRequest {
            page_context: Some(json!({"url": "/tasks"})),
            blocks_context: vec![json!({"id": 1})],
            ..TurnRequest::default()
        }),
        now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
        max_prompt_tokens: 100_000,
    }
}

#[tokio::test]
async fn the_layer_of_the_core_conforms() {
    context_layer(async |scenario| {
        let layer = Arc::new(RoleLayer::new(Arc::default()));
        (scenario == Scenario::Completes).then(|| ContextLayerSubject::new(layer, turn()))
    })
    .await;
}

/// Violation of the contract of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum LayerDefect {
    HasABadName,
    HasNoFragment,
    NamesAnotherSource,
    RepeatsAnId,
    SaysNothing,
    Counts,
    TellsTheTimeForASession,
    TellsTheUserForAnAgent,
    ForgetsTheCompany,
    SaysTooMuch,
    HidesFailures,
    AnswersAtOnce,
}

/// A layer that reads a company's plan, with at most one defect.
struct PlanLayer {
    defect: Option<LayerDefect>,
    scenario: Scenario,
    collected: AtomicUsize,
    open: Arc<AtomicUsize>,
}

struct OpenRead<'a>(&'a AtomicUsize);

impl Drop for OpenRead<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl ContextLayer for PlanLayer {
    fn name(&self) -> &'static str {
        if self.defect == Some(LayerDefect::HasABadName) { "The Plan" } else { "plan" }
    }

    async fn collect(&self, turn: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        self.open.fetch_add(1, Ordering::SeqCst);
        let _open = OpenRead(&self.open);
        match (self.scenario, self.defect) {
            (Scenario::Hangs, defect) if defect != Some(LayerDefect::AnswersAtOnce) => {
                std::future::pending::<()>().await;
            }
            (Scenario::Rejects, Some(LayerDefect::HidesFailures)) => return Ok(Vec::new()),
            (Scenario::Rejects, _) => return Err(LayerError::Internal("the plans are away".into())),
            _ => {}
        }
        let company = turn.role.company_id.to_string();
        let company = match self.defect {
            Some(LayerDefect::ForgetsTheCompany) => "company",
            _ => &company,
        };
        let mut fragments = vec![
            Fragment::new("plan", self.name(), Stability::Agent, Part::new(format!("Payer: {company}."))),
            Fragment::new("hint", self.name(), Stability::Session, Part::new("Payments are due on Monday.")),
        ];
        match self.defect {
            Some(LayerDefect::HasNoFragment) => fragments.clear(),
            Some(LayerDefect::NamesAnotherSource) => fragments[0].source = "role",
            Some(LayerDefect::RepeatsAnId) => fragments[1].id = "plan".into(),
            Some(LayerDefect::SaysNothing) => fragments[0].part = Part::new(" \n"),
            Some(LayerDefect::SaysTooMuch) => {
                fragments[0].part = Part::new(format!("Payer: {company}{}", "x".repeat(500)))
            }
            Some(LayerDefect::Counts) => {
                let count = self.collected.fetch_add(1, Ordering::SeqCst);
                fragments[0].part = Part::new(format!("Payer: {company}, asked {count} times."));
            }
            Some(LayerDefect::TellsTheTimeForASession) => {
                fragments[1].part = Part::new(format!("It is {:?}.", turn.now));
            }
            Some(LayerDefect::TellsTheUserForAnAgent) => {
                fragments[0].part = Part::new(format!("Payer: {company}, for {}.", turn.context.user_id));
            }
            _ => {}
        }
        Ok(fragments)
    }
}

fn plan_subject(scenario: Scenario, defect: Option<LayerDefect>) -> Option<ContextLayerSubject> {
    let open = Arc::<AtomicUsize>::default();
    let layer = PlanLayer { defect, scenario, collected: AtomicUsize::new(0), open: open.clone() };
    let mut subject = ContextLayerSubject::new(Arc::new(layer), turn());
    subject.company_text = Some("Payer: company".to_owned());
    subject.max_bytes = Some(400);
    subject.open = Some(Box::new(move || open.load(Ordering::SeqCst)));
    (scenario != Scenario::Truncates).then_some(subject)
}

#[tokio::test]
async fn a_layer_over_a_data_source_conforms() {
    context_layer(async |scenario| plan_subject(scenario, None)).await;
}

#[tokio::test]
async fn a_defective_layer_is_detected() {
    let cases = [
        (LayerDefect::HasABadName, "a layer's name is in kebab-case"),
        (LayerDefect::HasNoFragment, "the layer contributes to the suite's turn"),
        (LayerDefect::NamesAnotherSource, "a fragment names its layer"),
        (LayerDefect::RepeatsAnId, "a fragment's id is unique"),
        (LayerDefect::SaysNothing, "a fragment has a text"),
        (LayerDefect::Counts, "the same turn has the same fragments"),
        (LayerDefect::TellsTheTimeForASession, "changes with the turn is Stability::Turn"),
        (LayerDefect::TellsTheUserForAnAgent, "is at least Stability::Session"),
        (LayerDefect::ForgetsTheCompany, "a company gets no data of another"),
        (LayerDefect::SaysTooMuch, "at most 400 bytes together"),
        (LayerDefect::HidesFailures, "data that cannot be read are an error"),
        (LayerDefect::AnswersAtOnce, "it hangs and has no result"),
    ];
    for (defect, expected) in cases {
        let message =
            panic_message(context_layer(async |scenario| plan_subject(scenario, Some(defect)))).await;
        assert!(message.contains(expected), "{defect:?} is called: {message}");
    }
}
