//! Private-use characters in place of those that the converter would escape.

/// Characters that the converter would escape, although the text is read and not rendered.
const ESCAPED_CHARACTERS: &str = "\\*_`[]=~>-+#.<&";
/// First code point of the private-use characters that stand for escaped characters during the conversion.
const PLACEHOLDER_BASE: u32 = 0xf0000;

/// Restores the characters of a Markdown text that were protected. A line of text that would be a heading gets a backslash.
pub(super) fn restore_text(markdown: &str) -> String {
    let number_sign = char::from_u32(PLACEHOLDER_BASE + u32::from('#')).unwrap_or('#');
    let mut text = String::with_capacity(markdown.len());
    let mut in_code = false;
    for line in markdown.split_inclusive('\n') {
        // Backquotes of texts are protected, so that these are a fence.
        let is_fence = line.contains("```");
        in_code ^= is_fence;
        let content = line.trim_start_matches(' ');
        let after = content.trim_start_matches(number_sign);
        if !in_code && !is_fence && after.len() < content.len() && after.starts_with(char::is_whitespace) {
            text.push_str(&line[..line.len() - content.len()]);
            text.push('\\');
            text.extend(content.chars().map(restore));
        } else {
            text.extend(line.chars().map(restore));
        }
    }
    text
}

/// Returns the placeholder of a character that the converter would escape; drops text that looks like a placeholder.
pub(super) fn protect(character: char) -> Option<char> {
    if ESCAPED_CHARACTERS.contains(character) {
        return char::from_u32(PLACEHOLDER_BASE + u32::from(character));
    }
    (restore(character) == character).then_some(character)
}

/// Returns the character for which a placeholder stands.
pub(super) fn restore(character: char) -> char {
    let original = u32::from(character).checked_sub(PLACEHOLDER_BASE).and_then(char::from_u32);
    original.filter(|&original| ESCAPED_CHARACTERS.contains(original)).unwrap_or(character)
}
