//! Renders conversations in ChatML, the prompt format that the model was trained on.

use std::borrow::Cow;
use std::collections::HashMap;

use agent_core::message::{Message, Role};

use crate::vocabulary::{Piece, TURN_END, TURN_START};

/// System prompt for conversations without one.
const DEFAULT_SYSTEM: &str = "You are a helpful assistant.";
/// Maximum length of a tool result or of tool-call arguments in the prompt, in characters.
const MAX_TOOL_RESULT_CHARS: usize = 1_600;

/// Renders a conversation up to the start of the next turn.
pub(crate) fn conversation<'a>(
    system: String,
    messages: impl Iterator<Item = &'a Message>,
) -> Vec<Piece<'static>> {
    let mut pieces = Vec::new();
    let system = if system.trim().is_empty() { DEFAULT_SYSTEM.to_owned() } else { system };
    push_turn(&mut pieces, "system", &system);
    let mut called: HashMap<&str, &str> = HashMap::new();
    for message in messages {
        let text = message.content.to_text();
        match message.role {
            Role::System | Role::Developer => push_turn(&mut pieces, "system", &text),
            Role::User => push_turn(&mut pieces, "user", &text),
            Role::Assistant => {
                called.extend(message.tool_calls.iter().map(|c| (c.id.as_str(), c.function.name.as_str())));
                push_turn(&mut pieces, "assistant", &with_calls(&text, message));
            }
            Role::Tool => {
                let name = message.tool_call_id.as_deref().and_then(|id| called.get(id));
                let name = name.copied().unwrap_or("tool");
                push_turn(
                    &mut pieces,
                    "user",
                    &format!(
                        "{name} gave this result: {}\nTell me what it says.",
                        truncate_chars(&text, MAX_TOOL_RESULT_CHARS)
                    ),
                );
            }
        }
    }
    pieces
}

/// Appends a complete turn.
pub(crate) fn push_turn(pieces: &mut Vec<Piece<'static>>, role: &str, text: &str) {
    pieces.push(Piece::Control(TURN_START.into()));
    pieces.push(Piece::Text(format!("{role}\n{text}").into()));
    pieces.push(Piece::Control(TURN_END.into()));
    pieces.push(Piece::Text("\n".into()));
}

/// Renders the start of the assistant turn.
pub(crate) fn assistant_start() -> Vec<Piece<'static>> {
    vec![Piece::Control(TURN_START.into()), Piece::Text("assistant\n".into())]
}

/// Truncates a text to at most `max` characters and appends an ellipsis if anything was cut.
pub(crate) fn truncate_chars(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        None => text.into(),
        Some((end, _)) => format!("{}\u{2026}", &text[..end]).into(),
    }
}

fn with_calls(text: &str, message: &Message) -> String {
    let calls = message.tool_calls.iter().map(|call| {
        format!(
            "I call {} with {}",
            call.function.name,
            truncate_chars(&call.function.arguments, MAX_TOOL_RESULT_CHARS)
        )
    });
    std::iter::once(text.to_owned())
        .filter(|text| !text.is_empty())
        .chain(calls)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use agent_core::message::ToolCall;

    use super::*;

    fn shown(pieces: &[Piece<'_>]) -> String {
        pieces
            .iter()
            .map(|piece| match piece {
                Piece::Control(name) => format!("[{name}]"),
                Piece::Text(text) => text.to_string(),
            })
            .collect()
    }

    #[test]
    fn a_conversation_with_a_call_reads_as_turns() {
        let call = ToolCall::new("c1", "readTodos", "{\"done\":false}");
        let messages = [
            Message::user("What is left? <|im_end|>"),
            Message::with_tool_calls("", vec![call]),
            Message::tool_result("c1", "[\"milk\"]"),
            Message::tool_result("c9", "lost"),
        ];
        expect_test::expect![[r#"
            [<|im_start|>]system
            Be brief.[<|im_end|>]
            [<|im_start|>]user
            What is left? <|im_end|>[<|im_end|>]
            [<|im_start|>]assistant
            I call readTodos with {"done":false}[<|im_end|>]
            [<|im_start|>]user
            readTodos gave this result: ["milk"]
            Tell me what it says.[<|im_end|>]
            [<|im_start|>]user
            tool gave this result: lost
            Tell me what it says.[<|im_end|>]
        "#]]
        .assert_eq(&shown(&conversation("Be brief.".into(), messages.iter())));
    }

    #[test]
    fn long_results_are_clipped_at_a_character() {
        assert_eq!(truncate_chars("añb", 3), "añb");
        assert_eq!(truncate_chars("añbc", 2), "añ\u{2026}");
        let result = [Message::tool_result("c", "x".repeat(MAX_TOOL_RESULT_CHARS * 2))];
        assert!(shown(&conversation(String::new(), result.iter())).len() < MAX_TOOL_RESULT_CHARS + 200);
    }
}
