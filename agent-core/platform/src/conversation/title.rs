//! Titles of threads, made without a model.

use super::NodeMessage;
use super::node::NodeRole;

/// Maximum length of a title that is made from a message, in characters.
pub const MAX_MESSAGE_TITLE_CHARS: usize = 80;

/// Returns the title of a thread that begins with these messages: the first line with text of the first user message,
/// at most [`MAX_MESSAGE_TITLE_CHARS`]. Empty if no user message has text.
pub fn title<'m>(messages: impl IntoIterator<Item = &'m NodeMessage>) -> String {
    let mut users = messages.into_iter().filter(|message| message.role() == NodeRole::User);
    let first = users.find_map(|message| {
        let text = message.as_message()?.content.to_text();
        text.lines().map(line_title).find(|line| !line.is_empty())
    });
    first.unwrap_or_default()
}

/// Returns a line without control characters and repeated white space, cut after a character that a title may have.
fn line_title(line: &str) -> String {
    let mut title = String::new();
    let mut chars = 0;
    for word in
        line.split(|char: char| char.is_whitespace() || char.is_control()).filter(|word| !word.is_empty())
    {
        if chars > 0 {
            title.push(' ');
            chars += 1;
        }
        for char in word.chars() {
            if chars >= MAX_MESSAGE_TITLE_CHARS - 1 {
                title.truncate(title.trim_end().len());
                title.push('…');
                return title;
            }
            title.push(char);
            chars += 1;
        }
    }
    title
}

#[cfg(test)]
mod tests {
    use agent_core::message::Message;

    use super::*;

    #[test]
    fn a_title_is_the_first_line_of_the_first_user_message() {
        let long = "word ".repeat(40);
        let cases = [
            (vec![Message::assistant("Welcome"), Message::user("\n  Hello,\t there \nmore")], "Hello, there"),
            (vec![Message::user(" \n"), Message::user("second")], "second"),
            (vec![Message::user("a\0b\u{1b}c")], "a b c"),
            (vec![Message::assistant("only me")], ""),
            (vec![], ""),
        ];
        for (messages, expected) in cases {
            let messages: Vec<NodeMessage> = messages.into_iter().map(NodeMessage::from).collect();
            assert_eq!(title(&messages), expected);
        }
        for text in [long, "😀".repeat(500), "x".repeat(1 << 20)] {
            let cut = title([&NodeMessage::from(Message::user(&text))]);
            assert!(cut.chars().count() <= MAX_MESSAGE_TITLE_CHARS && cut.ends_with('…'), "{cut}");
            assert!(text.starts_with(cut.trim_end_matches('…')), "{cut}");
        }
    }
}
