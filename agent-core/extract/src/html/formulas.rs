//! Formulas of HTML documents (MathML) as text on one line.

use std::rc::Rc;

use htmd::element_handler::{HandlerResult, Handlers};
use htmd::{Element, Node};
use markup5ever_rcdom::NodeData;

/// MathML elements whose children are at different heights.
pub(super) const ELEMENTS: [&str; 6] = ["mfrac", "mroot", "msqrt", "msub", "msubsup", "msup"];

/// Converts an element of a formula: `(a+b)/2`, `x_i^2`, `√(x+1)`.
pub(super) fn convert(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let is_element = |child: &&Rc<Node>| matches!(child.data, NodeData::Element { .. });
    let arguments: Vec<Rc<Node>> =
        element.node.children.borrow().iter().filter(is_element).cloned().collect();
    let part = |node: &Rc<Node>| {
        handlers.handle(node).map_or_else(String::new, |result| result.content.trim().to_owned())
    };
    let group = |node: &Rc<Node>| grouped(part(node));
    let whole = || handlers.walk_children(element.node).content;
    let text = match (element.tag, arguments.as_slice()) {
        ("mfrac", [numerator, denominator]) => format!("{}/{}", group(numerator), group(denominator)),
        ("mroot", [radicand, degree]) => format!("[{}]√({})", part(degree), part(radicand)),
        ("msqrt", _) => format!("√({})", whole().trim()),
        ("msub", [base, index]) => format!("{}_{}", part(base), group(index)),
        ("msup", [base, exponent]) => format!("{}^{}", part(base), group(exponent)),
        ("msubsup", [base, index, exponent]) => {
            format!("{}_{}^{}", part(base), group(index), group(exponent))
        }
        _ => whole(),
    };
    Some(text.into())
}

/// Returns a part of a formula in brackets if it has several characters that are not one word or number.
fn grouped(part: String) -> String {
    if part.chars().all(char::is_alphanumeric) { part } else { format!("({part})") }
}
