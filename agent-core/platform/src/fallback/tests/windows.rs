//! Prompts that exceed the window of the container's own model.

use agent_core::backend::EmbeddedBackend;
use agent_core::context::{ContextLayer, LayerError, RoleLayer, TurnInput};
use agent_core::event::Event;
use agent_core::prompt::{AssemblyInput, Fragment, Part, Stability};
use agent_core::request::{Principal, TurnRequest};
use agent_core::role::{RoleBlock, StaticRoles};
use agent_core::turn::{HistoryStep, Platform, TurnError, run_turn};
use async_trait::async_trait;
use serde_json::json;

use super::*;

/// A step that does not change the history.
struct UnchangedHistory;

#[async_trait]
impl HistoryStep for UnchangedHistory {
    async fn apply(&self, _: &TurnInput, _: &mut AssemblyInput<'_>) -> Result<(), AgentError> {
        Ok(())
    }
}

/// A layer with a long text for the latest turn.
struct LongTurnLayer;

#[async_trait]
impl ContextLayer for LongTurnLayer {
    fn name(&self) -> &'static str {
        "long-turn"
    }

    async fn collect(&self, _: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        Ok(vec![Fragment::new("page", "long-turn", Stability::Turn, Part::new(words(6_000)))])
    }
}

/// Returns the platform with an agent whose model is `first` and whose fallback is `large`.
fn platform(fixture: &FallbackFixture, content: &Value) -> Platform {
    let defaults =
        FallbackDefaults { max_attempts: 2, max_wait: Duration::from_secs(10), fallbacks: Vec::new() };
    let metered = MeteredModels::new(fixture.source.clone(), fixture.recorder.clone());
    let clock = Arc::new(fixture.clock.clone());
    let models = FallbackModels::new(metered, defaults, fixture.circuits.clone(), clock);
    let limits = models.limits();
    let embedded = json!({"model": "first", "fallbacks": [{"model": "large"}]});
    let role: RoleBlock = serde_json::from_value(json!({"id": "a", "companyId": "c", "content": content,
        "children": [{"name": "EmbeddedAI", "content": embedded}]}))
    .expect("a role");
    Platform::new(Arc::new(StaticRoles::new().with_role(role)))
        .with_layer(RoleLayer::new(Arc::default()))
        .with_backend(EmbeddedBackend::new(models))
        .with_history_step(FallbackBudget::new(UnchangedHistory, [limits]))
}

async fn run(platform: &Platform, messages: Vec<Message>) -> Result<Vec<Event>, TurnError> {
    let principal = Principal::new("ada", "c", Caller::Session);
    let events = run_turn(platform, &principal, TurnRequest::new("a", messages)).await?;
    Ok(events.collect().await)
}

/// Runs a turn, which waits for nothing.
fn ask(platform: &Platform, messages: Vec<Message>) -> Result<Vec<Event>, TurnError> {
    run(platform, messages).now_or_never().expect("no wait")
}

fn answer(events: &[Event]) -> String {
    let text = |event: &Event| match event {
        Event::TextMessageContent { delta, .. } => Some(delta.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

/// Returns the index of the entry, the number of the call and the reason of each attempt that a run reports.
fn attempts(events: &[Event]) -> Vec<(u64, Option<u64>, Option<String>)> {
    let report = |event: &Event| match event {
        Event::Custom { value, .. } if value["kind"] == "modelAttempt" => {
            let reason = value["reason"].as_str().map(str::to_owned);
            Some((value["entry"].as_u64().expect("an entry"), value["attempt"].as_u64(), reason))
        }
        _ => None,
    };
    events.iter().filter_map(report).collect()
}

fn words(count: usize) -> String {
    "word ".repeat(count)
}

fn long_question() -> Vec<Message> {
    vec![Message::user(words(3_000))]
}

#[test]
fn a_fallback_with_a_larger_window_answers_after_the_smaller_one_is_known() {
    let fixture = FallbackFixture::new();
    let exceeded = error(AgentErrorKind::ContextExceeded).with_member("contextWindow", json!(2_000));
    let first =
        fixture.model("first", 9_000, vec![failing(exceeded), ScriptedAnswer::from_text("by the first")]);
    let answers = ["the call failed", "the window is known"].map(ScriptedAnswer::from_text);
    fixture.model("large", 9_000, answers.into());
    let platform = platform(&fixture, &json!({}));
    let events = ask(&platform, long_question()).expect("a run");
    assert_eq!(answer(&events), "the call failed");
    let events = ask(&platform, long_question()).expect("a run");
    assert_eq!((answer(&events).as_str(), first.unused_answers()), ("the window is known", 1));
    let left_out = (0, None, Some("CONTEXT_LENGTH_EXCEEDED".to_owned()));
    assert_eq!(attempts(&events), [left_out, (1, Some(1), None)]);
    let events = ask(&platform, vec![Message::user("Hello")]).expect("a run");
    assert_eq!((answer(&events).as_str(), attempts(&events)), ("by the first", Vec::new()));
}

#[test]
fn a_prompt_that_fits_no_window_is_refused_with_the_largest() {
    let fixture = FallbackFixture::new();
    fixture.model("first", 2_000, Vec::new());
    fixture.model("large", 9_000, Vec::new());
    let refused = ask(&platform(&fixture, &json!({})), vec![Message::user(words(20_000))]);
    let Err(TurnError::Backend(error)) = refused else { panic!("it is too long") };
    assert_eq!(error.kind(), AgentErrorKind::InvalidRequest);
    assert!(error.message().contains("8984 are available"), "{}", error.message());
}

#[test]
fn a_history_that_must_not_be_shortened_is_for_the_larger_window() {
    for (content, expected) in [
        (json!({}), "by the first"),
        (json!({"compaction": {"mode": "cut"}}), "by the first"),
        (json!({"compaction": {"mode": "off"}}), "by the large one"),
    ] {
        let fixture = FallbackFixture::new();
        fixture.model("first", 2_000, vec![ScriptedAnswer::from_text("by the first")]);
        let large = fixture.model("large", 9_000, vec![ScriptedAnswer::from_text("by the large one")]);
        let turn = |_| [Message::user(words(80)), Message::assistant(words(80))];
        let mut messages: Vec<Message> = (0..20).flat_map(turn).collect();
        messages.push(Message::user("And now?"));
        let count = messages.len();
        let events = ask(&platform(&fixture, &content), messages).expect("a run");
        assert_eq!(answer(&events), expected, "{content}");
        for request in large.sent_requests() {
            assert_eq!(request["messages"].as_array().map(Vec::len), Some(count), "the whole history");
        }
    }
}

#[test]
fn the_context_of_a_continued_turn_is_counted_once() {
    for (sent_context, expected) in [(Some(words(700).into()), "by the first"), (None, "by the large one")] {
        let fixture = FallbackFixture::new();
        fixture.model("first", 5_000, vec![ScriptedAnswer::from_text("by the first")]);
        fixture.model("large", 30_000, vec![ScriptedAnswer::from_text("by the large one")]);
        let turn = |_| [Message::user(words(80)), Message::assistant(words(80))];
        let mut messages: Vec<Message> = (0..40).flat_map(turn).collect();
        messages.push(Message { sent_context, ..Message::user("And now?") });
        let platform = platform(&fixture, &json!({})).with_layer(LongTurnLayer);
        assert_eq!(answer(&ask(&platform, messages).expect("a run")), expected);
    }
}
