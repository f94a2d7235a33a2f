//! Ligatures of scripts from right to left on PDF pages that are read with their tables, as the library reads them: with the letters
//! of each ligature in reverse order.

use std::collections::HashMap;

use unpdf::{Block, InlineContent, Page, Paragraph, TextRun};

/// The words of a page as the library reads them, with their letters in order; `None` for one that stands for several words.
#[derive(Debug, Default)]
pub(super) struct LigatureWords(HashMap<String, Option<String>>);

impl LigatureWords {
    /// Compares the words of a page as the library reads them with the same words with their letters in order. Of texts with different
    /// numbers of words, none is known.
    pub(super) fn new(read: &[String], ordered: &[String]) -> Self {
        let mut words = HashMap::new();
        if read.len() == ordered.len() {
            for (read, ordered) in read.iter().zip(ordered) {
                let known = words.entry(read.clone()).or_insert_with(|| Some(ordered.clone()));
                *known = known.take().filter(|known| known == ordered);
            }
        }
        Self(words)
    }

    /// Puts the letters of the words of a page in order.
    pub(super) fn put_in_order(&self, page: &mut Page) {
        for_each_text(page, |text| {
            if let Some(ordered) = self.ordered(text) {
                *text = ordered;
            }
        });
    }

    /// Returns a text with the letters of its words in order; `None` if they are.
    fn ordered(&self, text: &str) -> Option<String> {
        let mut ordered = String::with_capacity(text.len());
        for piece in text.split_inclusive(char::is_whitespace) {
            let word = piece.trim_end();
            let known = self.0.get(word).and_then(Option::as_deref);
            ordered.push_str(known.unwrap_or(word));
            ordered.push_str(&piece[word.len()..]);
        }
        (ordered != text).then_some(ordered)
    }
}

/// Returns true for a page with Arabic letters, of which some may be in ligatures.
pub(super) fn may_have_ligatures(page: &mut Page) -> bool {
    let mut has_arabic = false;
    for_each_text(page, |text| {
        has_arabic |= text.contains(|character: char| matches!(character, '\u{600}'..='\u{6ff}'))
    });
    has_arabic
}

/// Calls `change` with each text of the paragraphs and tables of a page.
fn for_each_text(page: &mut Page, mut change: impl FnMut(&mut String)) {
    let mut change_paragraph = |paragraph: &mut Paragraph| {
        for content in &mut paragraph.content {
            if let InlineContent::Text(TextRun { text, .. }) | InlineContent::Link { text, .. } = content {
                change(text);
            }
        }
    };
    for block in &mut page.elements {
        match block {
            Block::Paragraph(paragraph) => change_paragraph(paragraph),
            Block::Table(table) => {
                let cells = table.rows.iter_mut().flat_map(|row| &mut row.cells);
                cells.flat_map(|cell| &mut cell.content).for_each(&mut change_paragraph);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_put_in_order_unless_they_stand_for_several() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let known = LigatureWords::new(&words("ab cd ef cd gh"), &words("ba cd fe dc gh"));
        assert_eq!(known.ordered(" ab  cd\nef x").as_deref(), Some(" ba  cd\nfe x"));
        assert_eq!(known.ordered("cd gh"), None);
        assert_eq!(LigatureWords::new(&words("ab cd"), &words("ba")).ordered("ab"), None);
    }
}
