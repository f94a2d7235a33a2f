//! Items of the provider that a later request repeats.

use super::*;
use crate::message::{ProviderItem, Role};
use crate::model::ModelStream;
use crate::payload::Payload;

/// A model that keeps the appended messages of each request.
struct RequestRecorder {
    model: ScriptedModel,
    appended: Mutex<Vec<Vec<Message>>>,
}

#[async_trait]
impl Model for RequestRecorder {
    fn info(&self) -> crate::model::ModelInfo {
        self.model.info()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        self.appended.lock().expect("unpoisoned").push(request.appended_messages.clone());
        self.model.prepare(request)
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        self.model.start(payload).await
    }
}

fn provider_item(json: String, calls_before: usize) -> ProviderItem {
    let json = serde_json::value::RawValue::from_string(json).expect("JSON").into();
    ProviderItem { json, text_before: 0, calls_before }
}

/// Runs answers that each call the tool `x` after the provider's items. Returns the events, and the items of the
/// assistant messages in the last request.
fn run_with_items(answers: &[Vec<ProviderItem>]) -> (Vec<Event>, Vec<Vec<ProviderItem>>) {
    let script = answers.iter().map(|items| {
        let item = |answer: ScriptedAnswer, item: &ProviderItem| {
            answer.event(ModelEvent::ProviderItem(item.clone()))
        };
        let answer = items.iter().fold(ScriptedAnswer::new(), item);
        answer.call("", "x", ["{}"]).finish(FinishReason::ToolCalls)
    });
    let model = ScriptedModel::new(script.chain([ScriptedAnswer::from_text("done")]));
    let model = Arc::new(RequestRecorder { model, appended: Mutex::default() });
    let fixture = fixture(FakeTools::new().answers("x", "ok"), []);
    let events = async {
        let payload = model.prepare(&fixture.request).expect("prepared");
        let tool_loop = ToolLoop {
            model: model.clone(),
            tools: fixture.tools.clone(),
            clock: Arc::new(fixture.clock.clone()),
            limits: fixture.limits,
        };
        let run = RunIds { thread_id: "t".into(), run_id: "r".into() };
        read(tool_loop.start(payload, fixture.request.clone(), context(), run).await.expect("started")).await
    };
    let events = events.now_or_never().expect("nothing in this run waits");
    let sent = model.appended.lock().expect("unpoisoned").pop().expect("a request");
    let answers = sent.into_iter().filter(|message| message.role == Role::Assistant);
    (events, answers.map(|message| message.provider_items).collect())
}

#[test]
fn the_providers_items_stay_with_the_answer_of_their_round() {
    let item = |name: &str, calls_before| provider_item(format!(r#"{{"sealed":"{name}"}}"#), calls_before);
    let answers = [vec![item("a", 0), item("b", 1)], vec![], vec![item("c", 0)]];
    let (events, sent) = run_with_items(&answers);
    assert_eq!(sent, answers);
    assert_eq!(text(&events), "done");
    let shown = serde_json::to_string(&events).expect("events serialise");
    assert!(!shown.contains("sealed"), "{shown}");
    let message = Message { provider_items: answers[0].clone(), ..Message::assistant("a") };
    let written = serde_json::to_string(&message).expect("messages serialise");
    assert_eq!(written, r#"{"role":"assistant","content":"a"}"#);
    let supplied = r#"{"role":"assistant","content":"a","provider_items":[{}],"providerItems":[{}]}"#;
    assert_eq!(serde_json::from_str::<Message>(supplied).expect("a message"), Message::assistant("a"));
}

#[test]
fn the_providers_items_of_a_run_are_bounded() {
    let answer = || vec![provider_item(format!("\"{}\"", "x".repeat((2 << 20) - 2)), 0)];
    let (events, sent) = run_with_items(&[answer(), answer()]);
    assert_eq!((text(&events).as_str(), sent.len()), ("done", 2));
    let (events, _) = run_with_items(&[answer(), answer(), vec![provider_item("1".into(), 0)]]);
    assert_eq!(code(&events), "OUTPUT_TOO_LARGE");
}
