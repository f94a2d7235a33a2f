//! Titles of documents.

use agent_retrieval::analysis::is_hidden;
use agent_retrieval::document::front_matter;

/// Maximum length of a title in characters.
const MAX_TITLE_CHARACTERS: usize = 300;
/// Default titles that programs write, such as "Untitled".
const NO_TITLES: [&str; 4] = ["untitled", "(untitled)", "(anonymous)", "powerpoint presentation"];

/// Returns a title as one line without hidden characters.
pub(crate) fn normalize(title: &str) -> String {
    let visible: String = title.chars().filter(|&character| !is_hidden(character)).collect();
    let line = visible.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(MAX_TITLE_CHARACTERS).collect::<String>().trim_end().to_owned()
}

/// Returns true for a title that is neither empty nor a program's default, such as "Untitled".
pub(crate) fn is_meaningful(title: &str) -> bool {
    !title.is_empty() && !NO_TITLES.iter().any(|none| title.eq_ignore_ascii_case(none))
}

/// Returns the text of the first heading of a Markdown text. Of underlined (setext) headings, it is one of a single line.
pub(crate) fn first_heading(markdown: &str) -> Option<String> {
    let mut in_code = false;
    // The two lines above.
    let mut above = ["", ""];
    for line in markdown[front_matter(markdown).len()..].lines() {
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            in_code = !in_code;
        }
        let [before, text] = above;
        above = [text, line];
        if !in_code && before.trim().is_empty() && is_underline(line) && can_be_underlined(text) {
            return Some(normalize(text.trim().trim_matches(['*', '_', '`'])));
        }
        let heading = line.trim_start_matches('#');
        let level = line.len() - heading.len();
        if in_code || !(1..=6).contains(&level) || !heading.starts_with([' ', '\t']) {
            continue;
        }
        let title = normalize(heading.trim().trim_end_matches('#').trim().trim_matches(['*', '_', '`']));
        if !title.is_empty() {
            return Some(title);
        }
    }
    None
}

/// Returns true for the line below an underlined heading.
fn is_underline(line: &str) -> bool {
    let line = line.trim_end();
    line.len() >= 2 && (line.bytes().all(|byte| byte == b'=') || line.bytes().all(|byte| byte == b'-'))
}

/// Returns true for a line of text that is not indented and begins neither a quotation, a list item, a table nor markup.
fn can_be_underlined(line: &str) -> bool {
    let is_item = line.split_once(' ').is_some_and(|(marker, _)| {
        matches!(marker, "-" | "*" | "+")
            || matches!(marker.trim_start_matches(|digit: char| digit.is_ascii_digit()), "." | ")")
    });
    let is_text = line.contains(char::is_alphanumeric) && line.len() <= MAX_TITLE_CHARACTERS;
    is_text && !is_item && !line.starts_with([' ', '\t', '>', '|', '<'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_found() {
        for (markdown, expected) in [
            ("text\n\n## **Leave policy** ##\n# later", Some("Leave policy")),
            ("```\n# comment\n```\n### Title", Some("Title")),
            ("**Leave policy**\n===\n\n# later", Some("Leave policy")),
            ("text\n\nLeave\n-----", Some("Leave")),
            ("---\n# comment\nauthor: Ada\n---\n# Leave", Some("Leave")),
            ("---\nauthor: Ada\n---\none\ntwo\n---\n\n- item\n---\n> quoted\n---\n", None),
            (
                "```\n\nLeave\n-----\n```\n\n| a |\n---\n\n1. item\n---\n\n2) item\n---\n\n    code\n---\n",
                None,
            ),
            ("#tag\n####### seven\n#\n", None),
            ("", None),
        ] {
            assert_eq!(first_heading(markdown).as_deref(), expected, "{markdown}");
        }
    }

    #[test]
    fn titles_by_programs_are_ignored() {
        for (title, expected) in
            [("Untitled", false), ("(anonymous)", false), ("", false), ("Untitled works", true)]
        {
            assert_eq!(is_meaningful(title), expected, "{title}");
        }
    }

    #[test]
    fn titles_are_one_short_line() {
        assert_eq!(normalize(" Annual\r\n\treport\u{200b} "), "Annual report");
        assert_eq!(normalize(&"x".repeat(1000)).len(), MAX_TITLE_CHARACTERS);
    }
}
