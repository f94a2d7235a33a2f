//! Ordered lists of HTML documents with the numbers that browsers show.

use std::rc::Rc;

use htmd::element_handler::{HandlerResult, Handlers};
use htmd::{Element, Node};
use markup5ever_rcdom::NodeData;

use crate::numerals::roman;

/// Converts an ordered list with letters, Roman numerals or numbers of its own. The library's converter, which converts the others,
/// counts upwards in digits.
pub(super) fn convert_ordered_list(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let list = element.node;
    let style = attribute(list, "type").unwrap_or_default();
    let is_reversed = attribute(list, "reversed").is_some();
    let has_values =
        list.children.borrow().iter().any(|child| is_item(child) && attribute(child, "value").is_some());
    if !matches!(style.as_str(), "a" | "A" | "i" | "I") && !is_reversed && !has_values {
        return handlers.fallback(element);
    }
    let count = list.children.borrow().iter().filter(|child| is_item(child)).count();
    let first = if is_reversed { i64::try_from(count).unwrap_or(i64::MAX) } else { 1 };
    let mut number = attribute_number(list, "start").unwrap_or(first);
    let mut markdown = String::new();
    for child in list.children.borrow().iter() {
        let Some(result) = handlers.handle(child) else { continue };
        let content = result.content.trim();
        let mut marker = String::new();
        if is_item(child) {
            number = attribute_number(child, "value").unwrap_or(number);
            marker = format!("{}. ", label(number, &style));
            number = number.saturating_add(if is_reversed { -1 } else { 1 });
        }
        if !content.is_empty() {
            push_item(&mut markdown, &marker, content);
        }
    }
    let separator = if is_in_item(list) { "\n" } else { "\n\n" };
    (!markdown.is_empty()).then(|| format!("{separator}{markdown}{separator}").into())
}

/// Appends an item, whose further lines are indented below the first one.
fn push_item(markdown: &mut String, marker: &str, content: &str) {
    if !markdown.is_empty() {
        markdown.push('\n');
    }
    markdown.push_str(marker);
    for (index, line) in content.lines().enumerate() {
        if index > 0 {
            markdown.push('\n');
            let is_blank = line.trim().is_empty();
            markdown.push_str(&" ".repeat(if is_blank { 0 } else { marker.len() }));
        }
        markdown.push_str(line);
    }
}

/// Returns a number as letters or a Roman numeral, if the style of the list has one for it.
fn label(number: i64, style: &str) -> String {
    let label = match style {
        "a" | "A" => letters(number),
        "i" | "I" => u32::try_from(number).ok().and_then(roman),
        _ => None,
    };
    match label {
        Some(label) if matches!(style, "A" | "I") => label.to_ascii_uppercase(),
        Some(label) => label,
        None => number.to_string(),
    }
}

/// Writes a number from 1 with the letters that browsers show: `z` is followed by `aa` and `ab`.
fn letters(number: i64) -> Option<String> {
    let mut rest = u64::try_from(number).ok().filter(|&number| number > 0)?;
    let mut reversed = Vec::new();
    while rest > 0 {
        rest -= 1;
        reversed.push(char::from(b'a' + (rest % 26) as u8));
        rest /= 26;
    }
    Some(reversed.iter().rev().collect())
}

/// Returns true for an item of a list.
pub(super) fn is_item(node: &Node) -> bool {
    matches!(&node.data, NodeData::Element { name, .. } if &*name.local == "li")
}

/// Returns true for a list within an item of another one.
fn is_in_item(list: &Node) -> bool {
    parent(list).is_some_and(|parent| is_item(&parent))
}

/// Returns the node that contains a node.
pub(super) fn parent(node: &Node) -> Option<Rc<Node>> {
    let parent = node.parent.take();
    node.parent.set(parent.clone());
    parent?.upgrade()
}

fn attribute_number(node: &Node, name: &str) -> Option<i64> {
    attribute(node, name)?.parse().ok()
}

fn attribute(node: &Node, name: &str) -> Option<String> {
    let NodeData::Element { attrs, .. } = &node.data else { return None };
    let attributes = attrs.borrow();
    let attribute = attributes.iter().find(|attribute| &*attribute.name.local == name)?;
    Some(attribute.value.trim().to_owned())
}
