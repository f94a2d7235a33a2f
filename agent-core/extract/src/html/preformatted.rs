//! Preformatted text of HTML documents as blocks of code, which have no headings.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use htmd::element_handler::HandlerResult;
use htmd::{Element, Node};
use markup5ever_rcdom::NodeData;

use super::placeholders::restore;

/// Minimum length of a fence.
const MIN_FENCE: usize = 3;
/// Elements that are lines of their own within preformatted text.
const LINES: [&str; 4] = ["div", "li", "p", "tr"];
/// Prefix of the class that names the language of code.
const LANGUAGE: &str = "language-";

/// Converts preformatted text. `depth` is the number of tables in whose cells the conversion is: a cell has one line, and no blocks.
pub(super) fn convert(depth: &AtomicUsize, element: Element) -> Option<HandlerResult> {
    let (text, language) = text_and_language(element.node);
    let text = text.trim_matches('\n');
    if text.trim().is_empty() {
        return None;
    }
    if depth.load(Ordering::Relaxed) > 0 {
        return Some(format!("\n{text}\n").into());
    }
    let fence = "`".repeat(MIN_FENCE.max(longest_run(text) + 1));
    Some(format!("\n\n{fence}{language}\n{text}\n{fence}\n\n").into())
}

/// Returns the number of backquotes in the longest run of them.
fn longest_run(text: &str) -> usize {
    let (mut longest, mut run) = (0, 0);
    for character in text.chars().map(restore) {
        run = if character == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// Returns the text of an element without markup, and the language that the first class of its kind names.
fn text_and_language(element: &Rc<Node>) -> (String, String) {
    let (mut text, mut language) = (String::new(), None);
    // A node, or the end of a line.
    let mut pending = vec![Some(element.clone())];
    while let Some(next) = pending.pop() {
        let Some(node) = next else {
            end_line(&mut text);
            continue;
        };
        match &node.data {
            NodeData::Text { contents } => text.push_str(&contents.borrow()),
            NodeData::Element { name, attrs, .. } => {
                if LINES.contains(&&*name.local) {
                    end_line(&mut text);
                    pending.push(None);
                }
                if &*name.local == "br" {
                    text.push('\n');
                }
                for attribute in attrs.borrow().iter().filter(|attribute| &*attribute.name.local == "class") {
                    let mut classes = attribute.value.split_ascii_whitespace();
                    let named = classes.find_map(|class| class.strip_prefix(LANGUAGE));
                    let named = named.filter(|name| name.chars().all(is_language_character));
                    language = language.or_else(|| named.map(str::to_owned));
                }
            }
            _ => {}
        }
        pending.extend(node.children.borrow().iter().rev().cloned().map(Some));
    }
    (text, language.unwrap_or_default())
}

fn is_language_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "+-#._".contains(character)
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}
