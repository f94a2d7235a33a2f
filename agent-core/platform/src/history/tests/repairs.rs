//! Repair of conversations whose calls and results do not match.

use agent_core::message::ToolCall;

use super::*;

/// Builds a conversation from a short notation: `u` is a user message, `e` an empty answer, `a` an answer, `12` the
/// calls 1 and 2, `=1` the result of call 1.
fn conversation(short: &str) -> Vec<Arc<Message>> {
    let message = |(index, word): (usize, &str)| match word {
        "u" => Message::user(format!("u{index}")),
        "a" => Message::assistant(format!("a{index}")),
        "e" => Message::assistant(""),
        word if word.starts_with('=') => Message::tool_result(&word[1..], format!("r{index}")),
        word => {
            let calls = word.chars().map(|id| ToolCall::new(id, "f", "{}"));
            Message::with_tool_calls("", calls.collect())
        }
    };
    let words = short.split(' ').filter(|word| !word.is_empty());
    words.enumerate().map(message).map(Arc::new).collect()
}

fn short(messages: &[Arc<Message>]) -> String {
    let word = |message: &Arc<Message>| match message.role {
        Role::Tool => {
            let lost = matches!(&message.content, Content::Text(text) if text == MISSING_TOOL_RESULT);
            let content = if lost { "?".into() } else { message.content.to_text() };
            format!("={}:{content}", message.tool_call_id.as_deref().unwrap_or("none"))
        }
        Role::Assistant if !message.tool_calls.is_empty() => {
            message.tool_calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>().join("+")
        }
        _ => message.content.to_text().into_owned(),
    };
    messages.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_call_is_paired_with_one_result() {
    for (input, expected) in [
        ("", ""),
        ("u 12 =1 =2 a", "u0 1+2 =1:r2 =2:r3 a4"),
        // Calls without results.
        ("u 1 u", "u0 1 =1:? u2"),
        ("u 12 =2 u", "u0 1+2 =1:? =2:r2 u3"),
        // Results at other positions.
        ("u 12 =2 =1 u", "u0 1+2 =1:r3 =2:r2 u4"),
        ("u 1 u =1 u", "u0 1 =1:r3 u2 u4"),
        ("u 1 2 =1 =2 u", "u0 1 =1:r3 2 =2:r4 u5"),
        ("u =1 1 u", "u0 1 =1:r1 u3"),
        // Results without calls, and duplicate results.
        ("u =1 u", "u0 u2"),
        ("u 1 =1 =1 u", "u0 1 =1:r2 u4"),
        ("u =1 1 =1 u", "u0 1 =1:r3 u4"),
        ("u =1 =1 1 u", "u0 1 =1:r1 u4"),
        // Repeated ids.
        ("u 1 =1 u 1 =1 u 1 =1", "u0 1 =1:r2 u3 1-2 =1-2:r5 u6 1-3 =1-3:r8"),
        ("u 11 =1 =1", "u0 1+1-2 =1:r2 =1-2:r3"),
        ("u 1 u 1 =1 =1", "u0 1 =1:? u2 1-2 =1-2:r4"),
        // Empty messages.
        ("u e u", "u0 u2"),
        ("e", ""),
    ] {
        assert_eq!(short(&repair(conversation(input))), expected, "for {input}");
    }
}

#[test]
fn calls_without_whole_arguments_were_never_made() {
    for (arguments, kept) in [("{}", true), ("[1]", true), ("{\"a\":", false), ("", false)] {
        let messages =
            vec![Message::user("x"), Message::with_tool_calls("", vec![ToolCall::new("1", "f", arguments)])];
        let messages = messages.into_iter().map(Arc::new).collect();
        assert_eq!(repair(messages).len(), if kept { 3 } else { 1 }, "for {arguments}");
    }
    // A call with a result was executed, even if its arguments are invalid.
    let call = Message::with_tool_calls("", vec![ToolCall::new("1", "f", "{\"a\":")]);
    assert_eq!(repair([call, Message::tool_result("1", "x")].map(Arc::new).into()).len(), 2);
}

#[test]
fn changed_ids_stay_short_and_distinct() {
    let long = "ä".repeat(64);
    let call = |id: &str| Arc::new(Message::with_tool_calls("", vec![ToolCall::new(id, "f", "{}")]));
    let repaired = repair(vec![call("x-2"), call("x"), call("x"), call("x-2"), call(&long), call(&long)]);
    let ids: Vec<&str> = repaired.iter().filter_map(|message| message.tool_call_id.as_deref()).collect();
    let shortened = format!("{}-2", "ä".repeat(60));
    assert_eq!(ids, ["x-2", "x", "x-3", "x-2-2", &long, &shortened]);
    assert!(ids.iter().all(|id| id.len() <= MAX_ID_BYTES));
}

/// Checks the guarantees of repair over many conversations with few ids, which collide often.
#[test]
fn repaired_conversations_are_whole() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..5_000 {
        let mut input_text = String::new();
        for _ in 0..next(12) {
            input_text += &match next(8) {
                0 => "u ".to_owned(),
                1 => "a ".to_owned(),
                2 => "e ".to_owned(),
                3..=5 => format!("={} ", next(4)),
                _ => (0..=next(3)).map(|_| next(4).to_string()).collect::<String>() + " ",
            };
        }
        let given_messages = conversation(&input_text);
        let summaries = |messages: &[Arc<Message>]| -> Vec<String> {
            let spoken = messages.iter().filter(|m| m.role != Role::Tool && !m.content.is_empty());
            spoken.map(|message| message.content.to_text().into_owned()).collect()
        };
        let (calls, spoken) = (count_calls(&given_messages), summaries(&given_messages));
        let shared = Arc::new(given_messages.clone());
        let repaired = repair(given_messages);
        let is_valid = *shared == repaired;
        let found = repair_shared(Arc::clone(&shared));
        assert_eq!(*found, repaired, "{input_text}");
        assert_eq!(Arc::ptr_eq(&found, &shared), is_valid, "a valid list stays shared: {input_text}");
        assert_whole(&repaired, &input_text);
        assert_eq!(count_calls(&repaired), calls, "no call is lost: {input_text}");
        assert_eq!(summaries(&repaired), spoken, "no text is lost: {input_text}");
        let again = repair(repaired.clone());
        assert!(again.len() == repaired.len(), "complete messages stay: {input_text}");
        assert!(
            again.iter().zip(&repaired).all(|(a, b)| Arc::ptr_eq(a, b)),
            "complete messages are shared: {input_text}"
        );
        // The start of a growing history is stable.
        let mut longer = repaired.clone();
        longer.extend(conversation("u 01 =0 =1"));
        assert_eq!(repair(longer)[..repaired.len()], repaired[..], "{input_text}");
    }
}

fn count_calls(messages: &[Arc<Message>]) -> usize {
    messages.iter().map(|message| message.tool_calls.len()).sum()
}

fn assert_whole(messages: &[Arc<Message>], description: &str) {
    let mut remaining_messages = messages.iter();
    let mut ids = std::collections::HashSet::new();
    while let Some(message) = remaining_messages.next() {
        assert_ne!(message.role, Role::Tool, "a stray result: {description}");
        for call in &message.tool_calls {
            assert!(ids.insert(&call.id), "an id came twice: {description}");
            let result = remaining_messages
                .next()
                .unwrap_or_else(|| panic!("a call without its result: {description}"));
            assert_eq!(
                (result.role, result.tool_call_id.as_ref()),
                (Role::Tool, Some(&call.id)),
                "{description}"
            );
        }
    }
}
