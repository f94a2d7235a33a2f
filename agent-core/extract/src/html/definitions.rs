//! Lists of definitions of HTML documents, in the form of Markdown dialects: a term, and `: ` before each definition below it. A term
//! and its definition are one paragraph, so that a chunk rather has both.

use std::rc::Rc;

use htmd::element_handler::{HandlerResult, Handlers};
use htmd::{Element, Node};
use markup5ever_rcdom::NodeData;

/// Marker of a definition.
const MARKER: &str = ": ";

/// Converts a list of terms and definitions.
pub(super) fn convert_list(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let mut markdown = String::new();
    let mut is_below_definition = false;
    for part in parts(element.node) {
        let is_term = is_element(&part, "dt");
        let content = if is_term || is_element(&part, "dd") {
            handlers.walk_children(&part).content
        } else {
            handlers.handle(&part).map(|result| result.content).unwrap_or_default()
        };
        let content = content.trim();
        if content.is_empty() {
            continue;
        }
        if is_term && is_below_definition {
            markdown.push('\n');
        }
        is_below_definition = !is_term;
        let marker = if is_element(&part, "dd") { MARKER } else { "" };
        markdown.push_str(marker);
        for (index, line) in content.lines().enumerate() {
            if index > 0 && !line.trim().is_empty() {
                markdown.push_str(&" ".repeat(marker.len()));
            }
            markdown.push_str(line);
            markdown.push('\n');
        }
    }
    Some(format!("\n\n{markdown}\n").into())
}

/// Returns the parts of a list, also those that are in groups.
fn parts(list: &Rc<Node>) -> Vec<Rc<Node>> {
    let children = list.children.borrow();
    children
        .iter()
        .flat_map(|child| {
            if is_element(child, "div") { child.children.borrow().to_vec() } else { vec![child.clone()] }
        })
        .collect()
}

fn is_element(node: &Node, tag: &str) -> bool {
    matches!(&node.data, NodeData::Element { name, .. } if &*name.local == tag)
}
