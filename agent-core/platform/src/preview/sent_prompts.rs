//! Hashes of the latest prompts, for finding the part at which a later prompt differs.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use agent_core::backend::PreparedRequest;
use agent_core::ids::{AgentId, RunId, ThreadId, UserId};
use agent_core::message::{Content, Message};
use agent_core::payload::PromptSection;
use agent_core::prompt::{PartHash, Prompt, PromptMessage};
use agent_core::tool::ExecutionContext;
use agent_core::turn::{PrefixReuse, PromptComparison, SentPrompts};

use super::first_change::first_changed_part;
use crate::company_cache::CompanyCache;

/// Maximum size of the table in bytes: prompts of a few thousand threads, a few dozen parts each.
const MAX_LATEST_PROMPTS_BYTES: usize = 8 << 20;
/// Number of decimal places of a share, as a power of ten.
const SHARE_SCALE: f64 = 10_000.0;

/// In-process cache of the hashes of the latest prompt of each thread, and of each user to each agent. It holds hashes,
/// never texts.
pub struct LatestPrompts(Arc<CompanyCache<PromptKey, Arc<PromptHashes>>>);

impl std::fmt::Debug for LatestPrompts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LatestPrompts").finish_non_exhaustive()
    }
}

/// Key of a prompt within its company: its owner, and its thread, or `None` for the latest one of any thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PromptKey {
    agent_id: AgentId,
    user_id: UserId,
    thread_id: Option<ThreadId>,
}

/// Hashes of a prompt: its system prompt and tools in the order of the request, then its messages.
struct PromptHashes {
    run_id: RunId,
    parts: Arc<[PartHash]>,
    /// Empty for a comparison with other threads.
    messages: Vec<u64>,
}

impl Default for LatestPrompts {
    fn default() -> Self {
        Self(Arc::new(CompanyCache::new(MAX_LATEST_PROMPTS_BYTES)))
    }
}

impl SentPrompts for LatestPrompts {
    fn compare(&self, request: &PreparedRequest) -> PromptComparison {
        let (prompt, sections) = (&request.turn.prompt, request.payload.sections());
        let company_id = request.turn.context.company_id.clone();
        let in_thread = PromptKey::new(&request.turn.context);
        let in_any_thread = PromptKey { thread_id: None, ..in_thread.clone() };
        let parts: Arc<[PartHash]> = prompt.prefix_hashes(sections).into();
        let messages = prompt.messages().iter().map(|message| hash(message)).collect();
        let run_id = request.turn.run.run_id.clone();
        let hashes = PromptHashes { run_id: run_id.clone(), parts: parts.clone(), messages };
        let find = |key: &PromptKey| self.0.get(&company_id, key);
        let earlier = find(&in_thread).or_else(|| find(&in_any_thread));
        let reuse = earlier.map(|earlier| reuse(&earlier, &hashes, prompt, sections));
        let cache = Arc::clone(&self.0);
        let record = move || {
            let parts_alone = PromptHashes { run_id, parts, messages: Vec::new() };
            for (key, hashes) in [(in_thread, hashes), (in_any_thread, parts_alone)] {
                let bytes = cached_bytes(&key, &hashes);
                cache.insert(&company_id, key, Arc::new(hashes), bytes);
            }
        };
        PromptComparison { reuse, record: Box::new(record) }
    }
}

impl PromptKey {
    fn new(context: &ExecutionContext) -> Self {
        let ExecutionContext { agent_id, user_id, thread_id, .. } = context;
        Self { agent_id: agent_id.clone(), user_id: user_id.clone(), thread_id: Some(thread_id.clone()) }
    }
}

/// Compares a prompt with an earlier one.
fn reuse(
    earlier: &PromptHashes,
    now: &PromptHashes,
    prompt: &Prompt,
    sections: &[PromptSection],
) -> PrefixReuse {
    let same_parts = count_equal(&earlier.parts, &now.parts);
    let same_messages = match same_parts == now.parts.len() && same_parts == earlier.parts.len() {
        true => count_equal(&earlier.messages, &now.messages),
        false => 0,
    };
    let changed = match first_changed_part(&earlier.parts, &now.parts) {
        Some(part) => Some(part.to_owned()),
        None if same_messages < earlier.messages.len() => Some(format!("messages[{same_messages}]")),
        None => None,
    };
    let total = prompt.tokens().total();
    let tool_count = now.parts.len() - prompt.system_fragments().len();
    let same_tokens = part_tokens(same_parts, tool_count, prompt, sections)
        + prompt
            .messages()
            .iter()
            .take(same_messages)
            .map(|message| message.tokens(prompt.counter()))
            .sum::<usize>();
    let share = if total == 0 { 0.0 } else { (same_tokens as f64 / total as f64).min(1.0) };
    let reusable_share = (share * SHARE_SCALE).floor() / SHARE_SCALE;
    let previous_run_id = earlier.run_id.clone();
    PrefixReuse { reusable_share, first_changed_part: changed, previous_run_id }
}

fn count_equal<T: PartialEq>(earlier: &[T], now: &[T]) -> usize {
    earlier.iter().zip(now).take_while(|(earlier, now)| earlier == now).count()
}

/// Returns the tokens of a prompt's first `count` parts; the prompt has `tool_count` tools. Tools count once all of
/// them are among the parts.
fn part_tokens(count: usize, tool_count: usize, prompt: &Prompt, sections: &[PromptSection]) -> usize {
    let system = prompt.system_fragments();
    let (same_tools, same_system) = match sections.first() {
        Some(PromptSection::Tools) => (count.min(tool_count), count.saturating_sub(tool_count)),
        _ => (count.saturating_sub(system.len()), count.min(system.len())),
    };
    let tools = if tool_count > 0 && same_tools == tool_count { prompt.tokens().tools } else { 0 };
    tools + system[..same_system].iter().map(|fragment| fragment.part.tokens(prompt.counter())).sum::<usize>()
}

/// Hashes a message with its context. The hash is of this process alone.
fn hash(message: &PromptMessage) -> u64 {
    let mut hasher = DefaultHasher::new();
    // A context of former turns is one text, which was sent in several.
    for (index, fragment) in message.context().iter().enumerate() {
        if index > 0 {
            hasher.write(b"\n\n");
        }
        hasher.write(fragment.part.text().as_bytes());
    }
    hasher.write_u8(0xff);
    let Message { id: _, role, content, tool_calls, tool_call_id, provider_items, sent_context: _ } =
        message.original();
    (role, tool_call_id).hash(&mut hasher);
    match content {
        Content::Text(text) => text.hash(&mut hasher),
        Content::Parts(parts) => parts.hash(&mut hasher),
    }
    for call in tool_calls {
        (&call.id, &call.function.name, &call.function.arguments).hash(&mut hasher);
    }
    for item in provider_items {
        item.json.get().hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns the size of a prompt in the cache, in bytes.
fn cached_bytes(key: &PromptKey, hashes: &PromptHashes) -> usize {
    let ids = key.agent_id.len() + key.user_id.len();
    let thread = key.thread_id.as_ref().map_or(0, |thread| thread.len());
    // The texts of the parts' ids and hashes are shared with the prompt's cached parts, which may be evicted.
    let parts = hashes.parts.iter().map(|part| size_of::<PartHash>() + part.id.len() + part.sha256.len());
    let messages = hashes.messages.len() * size_of::<u64>();
    256 + ids + thread + hashes.run_id.len() + messages + parts.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use agent_core::backend::EmbeddedBackend;
    use agent_core::context::{ContextLayer, LayerError, TurnInput};
    use agent_core::error::{AgentError, AgentErrorKind};
    use agent_core::ids::CompanyId;
    use agent_core::message::{ContentPart, MediaSource};
    use agent_core::prompt::{Fragment, Part, Stability};
    use agent_core::request::{Principal, TurnRequest};
    use agent_core::role::{RoleBlock, StaticRoles};
    use agent_core::testing::{ScriptedAnswer, ScriptedModel};
    use agent_core::tool::Caller;
    use agent_core::turn::{Platform, prepare_turn, run_turn};
    use async_trait::async_trait;
    use futures_util::StreamExt;
    use serde_json::json;
    use std::collections::HashSet;
    use std::sync::Mutex;

    use super::*;

    /// A context layer with texts that the test changes: of the role, and of the turn.
    struct MutableTexts(Arc<Mutex<(&'static str, &'static str)>>);

    #[async_trait]
    impl ContextLayer for MutableTexts {
        fn name(&self) -> &'static str {
            "says"
        }

        async fn collect(&self, _: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
            let (role, turn) = *self.0.lock().expect("unpoisoned");
            let fragment = |id: &str, stability, text| Fragment::new(id, "says", stability, Part::new(text));
            Ok(vec![fragment("saying", Stability::Role, role), fragment("time", Stability::Turn, turn)])
        }
    }

    struct Fixture {
        platform: Platform,
        texts: Arc<Mutex<(&'static str, &'static str)>>,
    }

    impl Fixture {
        fn new(answers: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
            let role = json!({"id": "a", "companyId": "c", "children": [{"name": "EmbeddedAI"}]});
            let role: RoleBlock = serde_json::from_value(role).expect("a role");
            let texts = Arc::new(Mutex::new(("You are the assistant of a library.", "noon")));
            let platform = Platform::new(Arc::new(StaticRoles::new().with_role(role)))
                .with_layer(MutableTexts(texts.clone()))
                .with_backend(EmbeddedBackend::new(Arc::new(ScriptedModel::new(answers))))
                .with_sent_prompts(Arc::new(LatestPrompts::default()));
            Self { platform, texts }
        }

        fn set(&self, role: &'static str, turn: &'static str) {
            *self.texts.lock().expect("unpoisoned") = (role, turn);
        }

        fn request(thread: &str, messages: &[&str]) -> TurnRequest {
            let message = |(at, text): (usize, &&str)| match at % 2 {
                0 => Message::user(*text),
                _ => Message::assistant(*text),
            };
            let messages = messages.iter().enumerate().map(message).collect();
            TurnRequest { thread_id: thread.into(), ..TurnRequest::new("a", messages) }
        }

        /// Returns the comparison that a preview has.
        async fn compared(&self, thread: &str, messages: &[&str]) -> Option<PrefixReuse> {
            let request = Self::request(thread, messages);
            let prepared = prepare_turn(&self.platform, &ada(), request).await.expect("a turn");
            self.platform.compare_prompt(&prepared.request).and_then(|comparison| comparison.reuse)
        }

        async fn changed(&self, thread: &str, messages: &[&str]) -> Option<String> {
            self.compared(thread, messages).await.expect("an earlier prompt").first_changed_part
        }

        async fn run(&self, principal: &Principal, thread: &str, messages: &[&str]) -> Result<(), String> {
            let run = run_turn(&self.platform, principal, Self::request(thread, messages)).await;
            run.map_err(|error| error.to_string())?.for_each(|_| async {}).await;
            Ok(())
        }
    }

    fn ada() -> Principal {
        Principal::new("ada", "c", Caller::Session)
    }

    #[tokio::test]
    async fn a_preview_is_compared_with_the_latest_run_that_was_accepted() {
        let fixture = Fixture::new([
            ScriptedAnswer::from_text("Hi."),
            ScriptedAnswer::from_start_error(AgentError::new(AgentErrorKind::Failed, "no")),
            ScriptedAnswer::from_text("Hi."),
        ]);
        assert_eq!(fixture.compared("t", &["hi"]).await, None, "no run has been seen");
        fixture.run(&ada(), "t", &["hi"]).await.expect("a run");
        fixture.set("You are another one.", "noon");
        assert_eq!(fixture.changed("t", &["hi"]).await.as_deref(), Some("saying"));
        assert_eq!(fixture.changed("another", &["hi"]).await.as_deref(), Some("saying"));
        fixture.run(&ada(), "t", &["hi"]).await.expect_err("a refusal");
        assert_eq!(fixture.changed("t", &["hi"]).await.as_deref(), Some("saying"), "a refused one is no run");
        fixture.run(&Principal::new("ada", "c", Caller::Widget), "t", &["hi"]).await.expect("a run");
        assert_eq!(
            fixture.changed("t", &["hi"]).await.as_deref(),
            Some("saying"),
            "a visitor's is not remembered"
        );
    }

    #[tokio::test]
    async fn a_prompt_that_has_only_grown_reuses_the_one_before() {
        let fixture = Fixture::new(["Hi.", "Yes.", "No."].map(ScriptedAnswer::from_text));
        fixture.run(&ada(), "t", &["hi"]).await.expect("a run");
        fixture.set("You are the assistant of a library.", "one");
        let grown = fixture.compared("t", &["hi", "Hi.", "more"]).await.expect("an earlier prompt");
        assert_eq!(grown.first_changed_part, None);
        assert!((0.3..0.9).contains(&grown.reusable_share), "{grown:?}");
        let comparison = fixture.compared("t", &["hi"]).await.expect("an earlier prompt");
        assert_eq!(comparison.first_changed_part.as_deref(), Some("messages[0]"), "the time differs");
        fixture.set("You are the assistant of a library.", "noon");
        let comparison = fixture.compared("t", &["hi"]).await.expect("an earlier prompt");
        assert_eq!((comparison.reusable_share, comparison.first_changed_part), (1.0, None));
        let edited = ["hi", "Hello.", "more"];
        fixture.run(&ada(), "t", &["hi", "Hi.", "more"]).await.expect("a run");
        assert_eq!(fixture.changed("t", &edited).await.as_deref(), Some("messages[1]"));
        let other = fixture.compared("other", &["ho", "Ho.", "more"]).await.expect("an earlier prompt");
        assert_eq!(other.first_changed_part, None, "messages of other threads are not compared");
        assert!(other.reusable_share < grown.reusable_share, "{other:?}");
    }

    #[test]
    fn messages_with_other_parts_have_other_hashes() {
        let source = |value: &str| MediaSource::Url { value: value.to_owned(), mime_type: None };
        let text = |text: &str| ContentPart::Text { text: text.to_owned() };
        let contents = [
            vec![text("a"), text("b")],
            vec![text("ab")],
            vec![text("b"), text("a")],
            vec![ContentPart::Image { source: source("https://a.example/b") }],
            vec![ContentPart::Document { source: source("https://a.example/b") }],
            vec![ContentPart::Image { source: source("https://a.example/c") }],
        ];
        let message = |parts: &Vec<ContentPart>| {
            let message = Message { content: Content::Parts(parts.clone()), ..Message::user("") };
            hash(&PromptMessage::new(message))
        };
        let hashes: HashSet<u64> = contents.iter().map(message).collect();
        assert_eq!(hashes.len(), contents.len());
        assert!(contents.iter().map(message).all(|again| hashes.contains(&again)));
    }

    #[test]
    fn memory_is_bounded_and_a_company_pushes_out_its_own_prompts() {
        let latest = LatestPrompts::default();
        let [large, small] = ["large", "small"].map(CompanyId::from);
        let key = |user: usize| PromptKey {
            agent_id: "a".into(),
            user_id: user.to_string().into(),
            thread_id: None,
        };
        let long = PartHash { id: "x".repeat(1 << 20).into(), sha256: "1".into() };
        let insert = |company: &CompanyId, user: usize| {
            let hashes =
                PromptHashes { run_id: RunId::default(), parts: [long.clone()].into(), messages: Vec::new() };
            let bytes = cached_bytes(&key(user), &hashes);
            latest.0.insert(company, key(user), Arc::new(hashes), bytes);
        };
        insert(&small, 0);
        (0..32).for_each(|user| insert(&large, user));
        let known = (0..32).filter(|user| latest.0.get(&large, &key(*user)).is_some()).count();
        assert!((1..=7).contains(&known), "{known} of a mebibyte each");
        assert!(latest.0.get(&small, &key(0)).is_some());
    }
}
