//! Titles of documents.

use agent_retrieval::analysis::is_hidden;

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

/// Returns the text of the first heading of a Markdown text.
pub(crate) fn first_heading(markdown: &str) -> Option<String> {
    let mut in_code = false;
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            in_code = !in_code;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_found() {
        for (markdown, expected) in [
            ("text\n\n## **Leave policy** ##\n# later", Some("Leave policy")),
            ("```\n# comment\n```\n### Title", Some("Title")),
            ("#tag\n####### seven\n#\n", None),
            ("", None),
        ] {
            assert_eq!(first_heading(markdown).as_deref(), expected, "{markdown}");
        }
    }

    #[test]
    fn programs_write_titles_too() {
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
