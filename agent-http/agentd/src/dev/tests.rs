//! Questions over the demo's documents, answered by the embedded model with its default settings.
//!
//! The weights are those that `agentd model pull` stores, or the file in `EMBEDDED_MODEL_PATH`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use agent_core::Message;
use agent_core::event::Event;
use agent_core::request::{Principal, TurnRequest};
use agent_core::tool::Caller;
use agent_core::turn::{Platform, run_turn};
use agent_embedded::{EmbeddedConfig, EmbeddedModel, catalog};
use agent_http::shutdown::Shutdown;
use futures_util::StreamExt;
use serde::Deserialize;

use super::*;
use crate::compose;

/// The questions with their accepted answers.
const QUESTIONS: &str = include_str!("../../demo/questions.json");
/// Number of questions that must be answered right.
const MIN_RIGHT: usize = 16;

#[derive(Deserialize)]
struct Question {
    question: String,
    /// Alternatives; each is a list of phrases that the answer must contain.
    accept: Vec<Vec<String>>,
    /// Phrases that the answer must not contain.
    reject: Vec<String>,
}

impl Question {
    fn is_answered_by(&self, answer: &str) -> bool {
        let answer = words(answer);
        let says = |phrase: &String| answer.contains(&words(phrase));
        self.accept.iter().any(|phrases| phrases.iter().all(says)) && !self.reject.iter().any(says)
    }
}

/// Returns the words of a text in lower case with a space around each, so that phrases match whole words.
fn words(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(" ".to_owned(), |text, word| text + &word.to_lowercase() + " ")
}

async fn demo_platform() -> Platform {
    let pulled = || {
        catalog::default_model().path_in(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/models").as_ref())
    };
    let weights = std::env::var_os("EMBEDDED_MODEL_PATH").map_or_else(pulled, PathBuf::from);
    let model = EmbeddedModel::open(EmbeddedConfig::new(weights)).expect("`agentd model pull` has been run");
    let stores = Stores::in_memory("the demo workspace", DEMO_WORKSPACE).await.expect("a workspace");
    let config = AppConfig::load(&Flags::default(), &BTreeMap::<&str, &str>::new()).expect("settings");
    let listen = config.server.listen;
    let model: Arc<dyn Model> = Arc::new(model);
    compose::application(&config, listen, stores, Some(model), &Shutdown::default())
        .expect("composed")
        .platform
}

async fn ask(platform: &Platform, question: &str) -> String {
    let principal = Principal::new(DEMO_ID, DEMO_ID, Caller::Session);
    let turn = TurnRequest {
        thread_id: "thread".into(),
        run_id: "run".into(),
        ..TurnRequest::new(DEMO_AGENT_ID, vec![Message::user(question)])
    };
    let events = run_turn(platform, &principal, turn).await.expect("the turn starts");
    let texts = events.filter_map(async |event| match event {
        Event::TextMessageContent { delta, .. } => Some(delta),
        _ => None,
    });
    texts.collect().await
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "the figure belongs into the test's output")]
async fn the_demo_answers_questions_over_its_documents() {
    let questions: Vec<Question> = serde_json::from_str(QUESTIONS).expect("the questions are valid");
    assert_eq!(questions.len(), 20);
    let platform = demo_platform().await;
    let (mut right, mut report) = (0, String::new());
    for question in &questions {
        let answer = ask(&platform, &question.question).await;
        let is_right = question.is_answered_by(&answer);
        right += usize::from(is_right);
        let mark = if is_right { "right" } else { "WRONG" };
        report += &format!("{mark}  {}\n       {answer}\n", question.question);
    }
    eprintln!("{right} of {} are right:\n{report}", questions.len());
    assert!(right >= MIN_RIGHT, "{right} of {} are right:\n{report}", questions.len());
}

/// A value of the environment precedes the data folder, as for all variables but those that `dev` fixes.
#[test]
fn models_are_in_the_data_folder_by_default() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let data = folder.path().to_owned();
    let options = DevOptions { data: data.clone(), port: 4000, workspace: None, postgres: false };
    let env = build_env(&options, None).expect("an environment").with_port(4000);
    let config = AppConfig::load(&Flags::default(), &env).expect("settings");
    let expected = std::env::var_os("MODEL_DIR").map_or_else(|| data.join("models"), PathBuf::from);
    assert_eq!(config.model_dir, expected);
}

#[test]
fn phrases_match_whole_words() {
    let question = Question {
        question: String::new(),
        accept: vec![vec!["9".into()], vec!["6 pm".into(), "Friday".into()]],
        reject: vec!["no".into()],
    };
    for (answer, is_right) in [
        ("We open at 9.", true),
        ("At 6 PM on friday!", true),
        ("At 6 pm.", false),
        ("In 1990.", false),
        ("No, at 9.", false),
        ("You know: 9.", true),
    ] {
        assert_eq!(question.is_answered_by(answer), is_right, "{answer}");
    }
}
