//! Order, placement, trimming, manifest and dialects, tested by the prompt's output.

use std::fmt::Write as _;

use expect_test::expect;
use serde_json::{Value, json};

use super::*;
use crate::budget::TokenBudget;
use crate::error::{AgentError, AgentErrorKind};
use crate::message::{Content, Message, ToolCall};
use crate::role::RagPlacement;
use crate::tool::ToolSpec;

/// Counts one token per byte, so that the sums in the tables are easy to check.
struct ByteCounter;

impl TokenCounter for ByteCounter {
    fn id(&self) -> &'static str {
        "bytes"
    }

    fn count(&self, text: &str) -> usize {
        text.len()
    }
}

fn fragment(id: &str, source: &'static str, stability: Stability, text: &str) -> Fragment {
    Fragment::new(id, source, stability, Part::new(text))
}

/// Builds a fragment of each kind, none in its final position.
fn fragments() -> Vec<Fragment> {
    vec![
        fragment("time", "caller", Stability::Turn, "noon"),
        fragment("hit", RETRIEVAL_SOURCE, Stability::Turn, "a \"hit\""),
        fragment("zone", "tool-context", Stability::Session, "UTC"),
        fragment("doc:1", "documents", Stability::Agent, "doc"),
        fragment("system-prompt", "role", Stability::Role, "You\nhelp."),
        fragment("rules", "role", Stability::Role, "1. no"),
        fragment("page-context", "page", Stability::Turn, "{}"),
    ]
}

fn input<'a>(
    fragments: Vec<Fragment>,
    history: Vec<Message>,
    max_prompt_tokens: usize,
    cache: &'a PartCache,
) -> AssemblyInput<'a> {
    AssemblyInput {
        fragments,
        history: cache.history(&history.into_iter().map(Arc::new).collect::<Vec<_>>()),
        tools: &[],
        budget: TokenBudget { max_prompt_tokens },
        counter: Arc::new(ByteCounter),
        retrieval: Some(RagPlacement::SystemPrompt),
        cache,
        history_report: None,
    }
}

fn cache() -> PartCache {
    PartCache::new(1 << 20)
}

fn shown(prompt: &Prompt) -> String {
    let mut out = format!("--- system\n{}\n", prompt.system_text());
    for message in prompt.messages() {
        let mut text = String::new();
        message.push_text(&mut text);
        writeln!(out, "--- {:?}\n{text}", message.role()).expect("writes");
    }
    out
}

#[test]
fn stable_fragments_come_first_and_turn_fragments_last() {
    let cache = cache();
    let history = || vec![Message::user("old"), Message::assistant("yes"), Message::user("new")];
    let prompt = assemble(input(fragments(), history(), 1_000, &cache)).expect("fits");
    expect![[r#"
        --- system
        You
        help.

        1. no

        doc

        UTC

        a "hit"
        --- User
        old
        --- Assistant
        yes
        --- User
        <context>
        noon

        {}
        </context>

        new
    "#]]
    .assert_eq(&shown(&prompt));

    let latest_turn = RagPlacement::LatestTurn;
    let moved =
        AssemblyInput { retrieval: Some(latest_turn), ..input(fragments(), history(), 1_000, &cache) };
    expect![[r#"
        --- system
        You
        help.

        1. no

        doc

        UTC
        --- User
        old
        --- Assistant
        yes
        --- User
        <context>
        noon

        a "hit"

        {}
        </context>

        new
    "#]]
    .assert_eq(&shown(&assemble(moved).expect("fits")));
}

#[test]
fn the_turn_has_a_place_whatever_the_history() {
    let picture = json!([{"type": "image", "source": {"type": "url", "value": "https://h/p.png"}}]);
    let histories = json!([
        [],
        [{"role": "assistant", "content": "Hello!"}],
        [{"role": "user", "content": picture}],
        [{"role": "user"}],
        [{"role": "user", "content": "do"}, {"role": "assistant", "toolCalls": [call("c1")]},
         {"role": "tool", "toolCallId": "c1", "content": "done"}],
    ]);
    let histories: Vec<Vec<Message>> = serde_json::from_value(histories).expect("histories");
    let cache = cache();
    let mut out = String::new();
    for history in histories {
        let time = vec![fragment("time", "caller", Stability::Turn, "noon")];
        let prompt = assemble(input(time, history, 2_000, &cache)).expect("fits");
        writeln!(out, "{}", json_of(&prompt, Dialect::AgUi)).expect("writes");
    }
    expect![[r#"
        [{"role":"user","content":"<context>\nnoon\n</context>\n\n"}]
        [{"role":"assistant","content":"Hello!"},{"role":"user","content":"<context>\nnoon\n</context>\n\n"}]
        [{"role":"user","content":[{"type":"text","text":"<context>\nnoon\n</context>"},{"type":"image","source":{"type":"url","value":"https://h/p.png"}}]}]
        [{"role":"user","content":"<context>\nnoon\n</context>\n\n"}]
        [{"role":"user","content":"<context>\nnoon\n</context>\n\ndo"},{"role":"assistant","toolCalls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"at\": 1}"}}]},{"role":"tool","content":"done","toolCallId":"c1"}]
    "#]].assert_eq(&out);
}

const DIALECTS: [Dialect; 2] = [Dialect::AgUi, Dialect::ChatCompletions];

fn call(id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "look", "arguments": "{\"at\": 1}"}})
}

fn json_of(prompt: &Prompt, dialect: Dialect) -> String {
    let mut out = b"[".to_vec();
    prompt.push_messages_json(dialect, &mut out);
    out.push(b']');
    let value: Value = serde_json::from_slice(&out).expect("JSON");
    assert!(value.is_array());
    String::from_utf8(out).expect("UTF-8")
}

/// Builds a history from letters: `u`, `a` and `s` are messages of ten tokens; `c` is a call and `r` its result, also
/// of ten tokens.
fn history(letters: &str) -> Vec<Message> {
    let text = |n: usize| format!("{n:06}");
    let letters = letters.chars().enumerate();
    letters
        .map(|(i, letter)| match letter {
            'u' => Message::user(text(i)),
            'a' => Message::assistant(text(i)),
            's' => Message::text(Role::System, text(i)),
            // Four tokens for the message, eight for the call.
            'c' => Message::with_tool_calls("", vec![ToolCall::new("id", "", "")]),
            'r' => Message::tool_result("id", text(i)),
            other => panic!("no message {other:?}"),
        })
        .collect()
}

#[test]
fn a_history_over_budget_loses_whole_units_from_its_beginning() {
    let cache = cache();
    let mut out = String::new();
    for (letters, budget) in [
        ("uauau", 50), // fits to the token
        ("uauau", 49), // one over: a step of 14, two messages
        ("uauauauau", 49),
        ("uauauauauau", 49),    // the next step
        ("uauauauauauau", 100), // on to the person's next message
        ("ucrrrau", 60),        // a call goes with all its results
        ("ucrau", 30),
        ("suauau", 40), // instructions stay
        ("uauacr", 60), // the latest turn stays, calls and all
        ("uauacr", 32), // nothing of the history is left
        ("uauacr", 31), // the latest turn alone is too much
        ("suu", 19),
        ("aacrr", 32), // nobody has said anything: the last unit stays
        ("rrauu", 30), // results without a call
        ("", 0),
    ] {
        let first = |prompt: &Prompt| {
            prompt.messages().iter().map(|m| format!("{:?} ", m.role())).collect::<String>()
        };
        let line = match assemble(input(vec![], history(letters), budget, &cache)) {
            Ok(prompt) => {
                assert!(prompt.tokens().total() <= budget);
                let counted: usize = prompt.messages().iter().map(|m| m.tokens(&ByteCounter)).sum();
                assert_eq!(counted, prompt.tokens().messages, "{letters}");
                let trimmed: Vec<_> = prompt.trimmed().iter().map(|t| (t.messages, t.tokens)).collect();
                format!("{trimmed:?} {} tokens: {}", prompt.tokens().total(), first(&prompt))
            }
            Err(error) => error.to_string(),
        };
        writeln!(out, "{letters} {budget}: {}", line.trim_end()).expect("writes");
    }
    expect![[r#"
        uauau 50: [] 50 tokens: User Assistant User Assistant User
        uauau 49: [(2, 20)] 30 tokens: User Assistant User
        uauauauau 49: [(5, 50)] 40 tokens: Assistant User Assistant User
        uauauauauau 49: [(7, 70)] 40 tokens: Assistant User Assistant User
        uauauauauauau 100: [(4, 40)] 90 tokens: User Assistant User Assistant User Assistant User Assistant User
        ucrrrau 60: [(5, 52)] 20 tokens: Assistant User
        ucrau 30: [(3, 32)] 20 tokens: Assistant User
        suauau 40: [(3, 30)] 30 tokens: System Assistant User
        uauacr 60: [(2, 20)] 42 tokens: User Assistant Assistant Tool
        uauacr 32: the prompt exceeds the model's context window: it needs 42 tokens without any history (system prompt 0, tools 0, latest turn 42); 32 are available
        uauacr 31: the prompt exceeds the model's context window: it needs 42 tokens without any history (system prompt 0, tools 0, latest turn 42); 31 are available
        suu 19: the prompt exceeds the model's context window: it needs 20 tokens without any history (system prompt 0, tools 0, latest turn 20); 19 are available
        aacrr 32: [(2, 20)] 32 tokens: Assistant Tool Tool
        rrauu 30: [(3, 30)] 20 tokens: User User
         0: [] 0 tokens:
    "#]].assert_eq(&out);
}

#[test]
fn a_growing_history_is_cut_at_few_places() {
    let cache = cache();
    let mut starts = Vec::new();
    for turns in 1..60 {
        let letters = "ua".repeat(turns) + "u";
        let prompt = assemble(input(vec![], history(&letters), 200, &cache)).expect("fits");
        starts.push(prompt.messages()[0].original().content.to_text().into_owned());
        if !prompt.trimmed().is_empty() {
            assert!((130..=200).contains(&prompt.tokens().total()), "{}", prompt.tokens().total());
        }
    }
    let turns = starts.len();
    starts.dedup();
    assert!(starts.len() * 3 <= turns + 3, "{} beginnings in {turns} turns: {starts:?}", starts.len());
}

#[test]
fn instructions_tools_and_the_turn_count_but_are_not_cut() {
    let cache = cache();
    let spec = json!({"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}});
    let tools: Vec<Arc<ToolSpec>> = vec![Arc::new(serde_json::from_value(spec).expect("a tool"))];
    let with_tools =
        |budget| AssemblyInput { tools: &tools, ..input(fragments(), history("uau"), budget, &cache) };
    let prompt = assemble(with_tools(1_000)).expect("fits");
    expect![[r#"
        PromptTokens {
            system: 27,
            tools: 30,
            messages: 44,
        }
    "#]]
    .assert_debug_eq(&prompt.tokens());
    for dialect in DIALECTS {
        let mut json = Vec::new();
        prompt.push_tools_json(dialect, &mut json);
        prompt.push_system_json(&mut json);
        prompt.push_messages_json(dialect, &mut json);
        assert!((json.len()..json.len() + 8).contains(&prompt.json_len(dialect)));
    }
    let error = assemble(with_tools(80)).expect_err("does not fit");
    expect!["the prompt exceeds the model's context window: it needs 81 tokens without any history (system prompt 27, tools 30, latest turn 24); 80 are available"].assert_eq(&error.to_string());
    assert_eq!(AgentError::from(error).kind(), AgentErrorKind::InvalidRequest);
}

#[test]
fn the_parts_of_the_prefix_are_in_the_order_of_the_request() {
    const FIRST: &[PromptSection] = &[PromptSection::Tools, PromptSection::System];
    const LAST: &[PromptSection] = &[PromptSection::System, PromptSection::Tools];
    let cache = cache();
    let tool = |schema: &str| -> Arc<ToolSpec> {
        let spec = format!(r#"{{"name":"a","description":"d","inputSchema":{schema}}}"#);
        Arc::new(serde_json::from_str(&spec).expect("a tool"))
    };
    let prefix = |rules: &str, tools: &[Arc<ToolSpec>], sections: &[PromptSection]| {
        let mut fragments = fragments();
        fragments[5].part = Part::new(rules);
        let input = AssemblyInput { tools, ..input(fragments, history("u"), 1_000, &cache) };
        assemble(input).expect("fits").prefix_hashes(sections)
    };
    let ids = |parts: &[PartHash]| parts.iter().map(|part| part.id.to_string()).collect::<Vec<_>>();
    let system = ids(&prefix("1. no", &[], &[]));
    assert!(system.contains(&"rules".to_owned()) && !system.contains(&"time".to_owned()), "{system:?}");
    let tools = [tool("{}")];
    let (first, last) = (prefix("1. no", &tools, FIRST), prefix("1. no", &tools, LAST));
    assert_eq!(ids(&first), [&["tool:a".to_owned()][..], &system].concat());
    assert_eq!(ids(&last), [&system[..], &["tool:a".to_owned()]].concat());
    // A request without tools has no section for them.
    assert_eq!(ids(&prefix("1. no", &tools, &[])), system);
    let changed = |other: &[PartHash]| {
        let differing = first.iter().zip(other).filter(|(one, other)| one.sha256 != other.sha256);
        ids(&differing.map(|(part, _)| part.clone()).collect::<Vec<_>>())
    };
    assert!(changed(&prefix("1. no", &[tool("{}")], FIRST)).is_empty());
    assert_eq!(changed(&prefix("2. yes", &tools, FIRST)), ["rules"]);
    assert_eq!(changed(&prefix("1. no", &[tool(r#"{"type":"object"}"#)], FIRST)), ["tool:a"]);
}

#[test]
fn every_dialect_spells_every_kind_of_message() {
    let data = |kind: &str, mime: &str| json!({"type": kind, "source": {"type": "data", "value": "QUJD", "mimeType": mime}});
    let url = |kind: &str| json!({"type": kind, "source": {"type": "url", "value": "https://h/x"}});
    let parts = json!([
        {"type": "text", "text": "see \"this\""},
        data("image", "image/png"), url("image"),
        data("audio", "audio/wav"), data("audio", "audio/ogg"), url("audio"),
        data("document", "application/pdf"), url("document"),
        data("video", "video/mp4"),
    ]);
    let messages = json!([
        {"id": "m1", "role": "system", "content": "a\nb"},
        {"role": "developer", "content": "c"},
        {"id": "m2", "role": "user", "content": parts},
        {"role": "user", "content": []},
        {"role": "assistant", "toolCalls": [call("c1")]},
        {"role": "assistant", "content": "and", "toolCalls": [call("c2")]},
        {"role": "tool", "toolCallId": "c1"},
        {"role": "assistant"},
    ]);
    let messages: Vec<Message> = serde_json::from_value(messages).expect("messages");
    let mut out = String::new();
    for dialect in DIALECTS {
        writeln!(out, "{dialect:?}").expect("writes");
        for message in &messages {
            let mut json = Vec::new();
            push_message_json(message, dialect, &mut json);
            serde_json::from_slice::<Value>(&json).expect("JSON");
            let cached = PromptMessage::new(message.clone());
            let mut again = Vec::new();
            cached.push_json(dialect, &mut again);
            assert_eq!(again, json);
            assert_eq!(cached.json_len(dialect), json.len());
            writeln!(out, "{}", String::from_utf8(json).expect("UTF-8")).expect("writes");
        }
    }
    expect![[r#"
        AgUi
        {"id":"m1","role":"system","content":"a\nb"}
        {"role":"developer","content":"c"}
        {"id":"m2","role":"user","content":[{"type":"text","text":"see \"this\""},{"type":"image","source":{"type":"data","value":"QUJD","mimeType":"image/png"}},{"type":"image","source":{"type":"url","value":"https://h/x"}},{"type":"audio","source":{"type":"data","value":"QUJD","mimeType":"audio/wav"}},{"type":"audio","source":{"type":"data","value":"QUJD","mimeType":"audio/ogg"}},{"type":"audio","source":{"type":"url","value":"https://h/x"}},{"type":"document","source":{"type":"data","value":"QUJD","mimeType":"application/pdf"}},{"type":"document","source":{"type":"url","value":"https://h/x"}},{"type":"video","source":{"type":"data","value":"QUJD","mimeType":"video/mp4"}}]}
        {"role":"user","content":""}
        {"role":"assistant","toolCalls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"at\": 1}"}}]}
        {"role":"assistant","content":"and","toolCalls":[{"id":"c2","type":"function","function":{"name":"look","arguments":"{\"at\": 1}"}}]}
        {"role":"tool","content":"","toolCallId":"c1"}
        {"role":"assistant","content":""}
        ChatCompletions
        {"role":"system","content":"a\nb"}
        {"role":"developer","content":"c"}
        {"role":"user","content":[{"type":"text","text":"see \"this\""},{"type":"image_url","image_url":{"url":"data:image/png;base64,QUJD"}},{"type":"image_url","image_url":{"url":"https://h/x"}},{"type":"input_audio","input_audio":{"data":"QUJD","format":"wav"}},{"type":"text","text":"[audio of type audio/ogg, not shown]"},{"type":"text","text":"[audio at https://h/x]"},{"type":"file","file":{"filename":"document.pdf","file_data":"data:application/pdf;base64,QUJD"}},{"type":"text","text":"[document at https://h/x]"},{"type":"text","text":"[video of type video/mp4, not shown]"}]}
        {"role":"user","content":""}
        {"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"at\": 1}"}}]}
        {"role":"assistant","content":"and","tool_calls":[{"id":"c2","type":"function","function":{"name":"look","arguments":"{\"at\": 1}"}}]}
        {"role":"tool","content":"","tool_call_id":"c1"}
        {"role":"assistant","content":""}
    "#]].assert_eq(&out);
    let Content::Parts(parts) = &messages[2].content else { panic!("parts") };
    let taken: Vec<bool> = parts.iter().map(|part| Dialect::ChatCompletions.supports(part)).collect();
    assert_eq!(taken, [true, true, true, true, false, false, true, false, false]);
}

#[test]
fn a_message_with_context_is_spelt_like_one_that_was_written_so() {
    let parts = json!([{"type": "text", "text": "hi"}]);
    let picture =
        json!({"type": "image", "source": {"type": "data", "value": "QUJD", "mimeType": "image/png"}});
    let wordless = json!([picture, {"type": "text", "text": ""}]);
    let both = json!([{"type": "text", "text": "see"}, picture, {"type": "text", "text": "this"}]);
    for content in [json!("say \"hi\""), json!(""), parts, wordless, both, json!([])] {
        let message = json!({"id": "m", "role": "user", "content": content});
        let message: Message = serde_json::from_value(message).expect("a message");
        let cache = cache();
        let prompt = assemble(input(fragments(), vec![message], 5_000, &cache)).expect("fits");
        let [latest] = prompt.messages() else { panic!("one message") };
        let mut text = String::new();
        latest.push_text(&mut text);
        assert_eq!(text, latest.message().content.to_text());
        assert_eq!(prompt.text_len(), prompt.system_len() + text.len());
        for dialect in DIALECTS {
            let (mut cached, mut written) = (Vec::new(), Vec::new());
            latest.push_json(dialect, &mut cached);
            push_message_json(latest.message(), dialect, &mut written);
            assert_eq!(String::from_utf8_lossy(&cached), String::from_utf8_lossy(&written));
            assert_eq!(latest.json_len(dialect), cached.len());
        }
        assert_eq!(prompt.latest_user_text(), Some(latest.original().content.to_text()));
        let plain = latest.without_context();
        assert_eq!((plain.message(), plain.context().len()), (latest.original(), 0));
        assert!(std::ptr::eq(plain.without_context(), plain));
    }
}

#[test]
fn the_system_prompt_as_json_is_its_text() {
    let cache = cache();
    let mut prompts = vec![Prompt::new(vec![], vec![]), Prompt::new(fragments(), vec![])];
    let only_volatile = vec![fragment("zone", "tool-context", Stability::Session, "UTC\t")];
    for fragments in [vec![], fragments(), only_volatile] {
        prompts.push(assemble(input(fragments, vec![], 1_000, &cache)).expect("fits"));
    }
    for prompt in prompts {
        let mut json = Vec::new();
        prompt.push_system_json(&mut json);
        assert_eq!(serde_json::from_slice::<String>(&json).expect("a string"), prompt.system_text());
        let len = json.len();
        prompt.push_messages_json(Dialect::AgUi, &mut json);
        assert!((json.len()..json.len() + 8).contains(&prompt.json_len(Dialect::AgUi)), "{len}");
        assert_eq!(prompt.system_text().len(), prompt.system_len());
    }
}

#[test]
fn every_dialect_spells_tools() {
    let spec = json!({
        "name": "look", "description": "Looks \"closely\".", "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true},
    });
    let look: Arc<ToolSpec> = Arc::new(serde_json::from_value(spec).expect("a tool"));
    let cache = cache();
    let tools = [Arc::clone(&look), look];
    let input = AssemblyInput { tools: &tools, ..input(vec![], vec![], 1_000, &cache) };
    let prompt = assemble(input).expect("fits");
    let mut out = String::new();
    for dialect in DIALECTS {
        let mut json = Vec::new();
        prompt.push_tools_json(dialect, &mut json);
        writeln!(out, "{}", String::from_utf8(json).expect("UTF-8")).expect("writes");
    }
    expect![[r#"
        {"name":"look","description":"Looks \"closely\".","inputSchema":{"type":"object"}},{"name":"look","description":"Looks \"closely\".","inputSchema":{"type":"object"}}
        {"type":"function","function":{"name":"look","description":"Looks \"closely\".","parameters":{"type":"object"}}},{"type":"function","function":{"name":"look","description":"Looks \"closely\".","parameters":{"type":"object"}}}
    "#]].assert_eq(&out);
}

#[test]
fn the_cache_distinguishes_messages_by_all_their_fields() {
    let cache = PartCache::new(4 << 20);
    let calls = |id: &str| Message::with_tool_calls("", vec![ToolCall::new(id, "look", "{}")]);
    let with_id = Message { id: Some("m".into()), ..Message::user("a") };
    let different = [
        Message::user("a"),
        Message::assistant("a"),
        with_id,
        calls("1"),
        calls("2"),
        Message::tool_result("1", "a"),
        Message { content: Content::Parts(vec![]), ..Message::user("") },
        Message::user(""),
    ];
    let shared = different.clone().map(Arc::new);
    let first = cache.history(&shared);
    let second = cache.history(&different.clone().map(Arc::new));
    for (i, (one, other)) in first.iter().zip(&second).enumerate() {
        assert!(Arc::ptr_eq(one, other));
        assert!(std::ptr::eq(one.message(), &*shared[i]), "it is not copied");
        assert_eq!(*one.message(), different[i]);
    }
}

#[test]
fn segments_are_found_by_address_or_by_content() {
    let fragments = |text| [Fragment::new("id", "test", Stability::Role, Part::new(text))];
    for (cache, finds_equal_text) in
        [(PartCache::new(1 << 20), false), (PartCache::by_content(1 << 20), true)]
    {
        let known = fragments("the same");
        let segment = cache.segment(&known);
        assert!(Arc::ptr_eq(&segment, &cache.segment(&known)));
        let equal = cache.segment(&fragments("the same"));
        assert_eq!(Arc::ptr_eq(&segment, &equal), finds_equal_text);
        assert_eq!(equal.joined.text(), segment.joined.text());
        assert!(!Arc::ptr_eq(&segment, &cache.segment(&fragments("another"))));
    }
}

#[test]
fn the_cache_is_bounded() {
    let cache = PartCache::new(1 << 20);
    let texts = (0..4_000).map(|i| cache.part(format!("{i} {}", "x".repeat(1_000))));
    assert_eq!(texts.filter(|part| part.text().len() > 1_000).count(), 4_000);
    assert!(cache.texts_len() < 1_000, "{}", cache.texts_len());
}

#[test]
fn the_default_cache_keeps_a_conversation_of_ten_thousand_messages() {
    let cache = PartCache::default();
    let message = |n: usize| Arc::new(Message::user(format!("{n} {}", "x".repeat(150))));
    let messages: Vec<_> = (0..10_000).map(message).collect();
    let (first, second) = (cache.history(&messages), cache.history(&messages));
    let kept = first.iter().zip(&second).filter(|(one, other)| Arc::ptr_eq(one, other));
    assert_eq!(kept.count(), 10_000);
}

#[test]
fn a_derived_form_is_kept_and_one_of_another_type_is_not() {
    let (message, derivations) = (PromptMessage::new(Message::user("abc")), std::cell::Cell::new(0));
    let length = |message: &Message| {
        derivations.set(derivations.get() + 1);
        message.content.to_text().len()
    };
    assert_eq!([*message.derived(length), *message.derived(length)], [3, 3]);
    let text = |message: &Message| message.content.to_text().into_owned();
    assert_eq!((message.derived(text).as_str(), derivations.get()), ("abc", 1));
    let fragment = Fragment::new("time", "caller", Stability::Turn, Part::new("noon"));
    let latest = PromptMessage::with_context(message, vec![fragment]);
    assert_eq!(*latest.derived(text), "<context>\nnoon\n</context>\n\nabc");
}
