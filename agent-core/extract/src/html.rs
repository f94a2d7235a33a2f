//! HTML documents as Markdown.

mod css;
mod definitions;
mod formulas;
mod leveled_lists;
mod lists;
mod movement;
mod placeholders;
mod preformatted;
mod sheets;
mod tables;
#[cfg(test)]
mod tests;
mod visibility;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use agent_retrieval::document::TextFormat;
use agent_retrieval::extract::{ExtractError, ExtractedDocument};
use htmd::element_handler::{HandlerResult, Handlers};
use htmd::options::{BulletListMarker, HrStyle, Options};
use htmd::{Element, HtmlToMarkdown, Node};
use markup5ever_rcdom::NodeData;

use self::placeholders::{protect, restore, restore_text};
use self::sheets::StyleSheets;
use self::visibility::{TextVisibility, VisualElement};
use crate::encoding::decode_html;
use crate::limits::ExtractionLimits;
use crate::superscript::raised;
use crate::text_builder::TextBuilder;

/// Elements without text for readers, readings beside a text, other forms of a formula, and the navigation between pages.
const SKIPPED_ELEMENTS: [&str; 26] = [
    "annotation",
    "annotation-xml",
    "audio",
    "button",
    "canvas",
    "datalist",
    "dialog",
    "embed",
    "head",
    "iframe",
    "link",
    "meta",
    "nav",
    "noscript",
    "object",
    "rp",
    "rt",
    "rtc",
    "script",
    "select",
    "style",
    "svg",
    "template",
    "textarea",
    "title",
    "video",
];
/// Roles of elements that correspond to skipped elements.
const SKIPPED_ROLES: [&str; 3] = ["navigation", "dialog", "search"];
/// Elements that Markdown writes with markers, which would remain if only the element's text were removed.
const MARKED_ELEMENTS: [&str; 17] = [
    "a",
    "b",
    "blockquote",
    "code",
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "i",
    "li",
    "ol",
    "pre",
    "strong",
    "ul",
];
/// Texts of links to a place of the same page that mark the place, such as that of a heading, or lead back from a footnote.
const MARKS_OF_PLACES: &str = "#¶↩↑🔗\u{fe0e}\u{fe0f}";

pub(crate) fn extract(bytes: &[u8], limits: &ExtractionLimits) -> Result<ExtractedDocument, ExtractError> {
    let malformed = |_| ExtractError::Malformed("not a valid HTML document".to_owned());
    let converter = converter();
    let tree = converter.html_to_tree(&decode_html(bytes)).map_err(malformed)?;
    // Before the depth is checked, which this increases.
    leveled_lists::nest_lists(&tree);
    let title = prepare(&tree, limits.max_depth)?;
    let markdown = converter.tree_to_markdown(&tree);
    let mut builder = TextBuilder::new(limits);
    builder.push(&restore_text(&markdown))?;
    Ok(builder.finish(title.as_deref(), TextFormat::Markdown))
}

fn converter() -> HtmlToMarkdown {
    let options = Options {
        bullet_list_marker: BulletListMarker::Dash,
        hr_style: HrStyle::Dashes,
        ul_bullet_spacing: 1,
        ol_number_spacing: 1,
        ..Options::default()
    };
    let depth = Arc::new(AtomicUsize::new(0));
    let depth_of_text = depth.clone();
    HtmlToMarkdown::builder()
        .options(options)
        .add_handler(vec!["a"], convert_link)
        .add_handler(vec!["img"], convert_image)
        .add_handler(vec!["sup"], convert_superscript)
        .add_handler(vec!["q"], convert_quotation)
        .add_handler(vec!["h1", "h2", "h3", "h4", "h5", "h6"], convert_heading)
        .add_handler(vec!["ol"], lists::convert_ordered_list)
        .add_handler(vec!["dl"], definitions::convert_list)
        .add_handler(vec!["del", "s", "strike"], convert_deletion)
        .add_handler(vec!["input"], convert_checkbox)
        .add_handler(vec!["pre"], move |_: &dyn Handlers, element: Element| {
            preformatted::convert(&depth_of_text, element)
        })
        .add_handler(formulas::ELEMENTS.to_vec(), formulas::convert)
        .add_handler(vec!["table"], move |handlers: &dyn Handlers, element: Element| {
            tables::convert_table(&depth, handlers, element)
        })
        .build()
}

/// Keeps the addresses of links that lead out of the document's site.
fn convert_link(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let text = handlers.walk_children(element.node).content;
    let address = attribute(&element, "href").unwrap_or_default();
    if address.starts_with('#') && text.trim().chars().map(restore).all(|mark| MARKS_OF_PLACES.contains(mark))
    {
        return Some("".into());
    }
    Some(match Some(address).filter(|address| is_absolute(address)) {
        Some(address) if !text.trim().is_empty() && !text.chars().map(restore).eq(address.chars()) => {
            format!("[{text}]({address})").into()
        }
        _ => text.into(),
    })
}

fn is_absolute(address: &str) -> bool {
    ["http://", "https://", "mailto:"].iter().any(|scheme| address.starts_with(scheme))
        && !address.contains(char::is_whitespace)
}

fn convert_image(_: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    Some(attribute(&element, "alt")?.into())
}

/// Writes a heading on one line, although it may have line breaks or blocks.
fn convert_heading(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let text = tables::one_line(&handlers.walk_children(element.node).content);
    let level = element.tag.trim_start_matches('h').parse().unwrap_or(1);
    (!text.is_empty()).then(|| format!("\n\n{} {text}\n\n", "#".repeat(level)).into())
}

/// Writes the marks of text that is struck through: it no longer holds.
fn convert_deletion(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let text = handlers.walk_children(element.node).content;
    let deleted = text.trim();
    if deleted.is_empty() || text.contains('\n') {
        return Some(text.into());
    }
    let (before, after) = text.split_once(deleted).unwrap_or_default();
    Some(format!("{before}~~{deleted}~~{after}").into())
}

/// Writes the box of a task, see [`is_task_box`].
fn convert_checkbox(_: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let is_done = attribute(&element, "checked").is_some();
    let mark = if is_done { "[x] " } else { "[ ] " };
    Some(mark.into())
}

/// Writes the quotation marks that browsers show around the element.
fn convert_quotation(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let text = handlers.walk_children(element.node).content;
    let quoted = if text.trim().is_empty() { text } else { format!("“{}”", text.trim()) };
    Some(quoted.into())
}

fn convert_superscript(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let text = handlers.walk_children(element.node).content;
    let characters: String = text.chars().map(restore).collect();
    Some(raised(&characters).unwrap_or(text).into())
}

fn attribute(element: &Element, name: &str) -> Option<String> {
    let attribute = element.attrs.iter().find(|attribute| &*attribute.name.local == name)?;
    Some(attribute.value.trim().to_owned())
}

/// Removes the parts that readers do not see, protects the texts from escaping, and returns the title.
fn prepare(tree: &Rc<Node>, max_depth: usize) -> Result<Option<String>, ExtractError> {
    let sheets = style_sheets(tree);
    let mut title = None;
    let mut elements = Vec::new();
    let mut hides_text = false;
    // Recursion would exhaust the stack before the depth is known.
    let mut pending = vec![(tree.clone(), 0, TextVisibility::of_page(&sheets))];
    while let Some((node, depth, visibility)) = pending.pop() {
        if depth > max_depth {
            return Err(ExtractError::LimitExceeded("the nesting of elements".to_owned()));
        }
        if title.is_none() {
            title = title_in(&node);
        }
        if let NodeData::Text { contents } = &node.data {
            let mut contents = contents.borrow_mut();
            *contents = contents.chars().filter_map(protect).collect::<String>().into();
            continue;
        }
        node.children.borrow_mut().retain(|child| {
            if !is_content(child) {
                return false;
            }
            let inner = visibility_of(child, &visibility, &sheets);
            hides_text |= inner.is_none();
            let is_visible = inner.is_some();
            pending.extend(inner.map(|inner| (child.clone(), depth + 1, inner)));
            is_visible
        });
        elements.push(node);
    }
    if hides_text {
        // Elements are behind those that contain them.
        for element in elements.iter().rev() {
            element.children.borrow_mut().retain(|child| !is_emptied(child));
        }
    }
    Ok(title)
}

/// Returns the style sheets of a page.
fn style_sheets(tree: &Rc<Node>) -> StyleSheets {
    let mut sheets = StyleSheets::default();
    let mut pending = vec![tree.clone()];
    while let Some(node) = pending.pop() {
        pending.extend(node.children.borrow().iter().rev().cloned());
        let NodeData::Element { name, attrs, .. } = &node.data else { continue };
        let attributes = attrs.borrow();
        let has = |name: &str, part: &str| {
            attributes.iter().any(|attribute| {
                &*attribute.name.local == name && attribute.value.to_ascii_lowercase().contains(part)
            })
        };
        let is_behind = has("style", "z-index:-") || has("style", "z-index: -");
        // The backgrounds of columns are behind cells, which they do not contain.
        let is_column = matches!(&*name.local, "col" | "colgroup")
            && (has("bgcolor", "") || has("class", "") || has("style", "background"));
        if is_behind || is_column {
            sheets.set_layered();
        }
        match &*name.local {
            "style" => {
                let media = attributes.iter().find(|attribute| &*attribute.name.local == "media");
                let media = media.map_or("", |attribute| &*attribute.value);
                for child in node.children.borrow().iter() {
                    if let NodeData::Text { contents } = &child.data {
                        sheets.add(&contents.borrow(), media);
                    }
                }
            }
            "script" if !has("type", "json") => sheets.set_incomplete(),
            "link" if has("rel", "stylesheet") => sheets.set_incomplete(),
            "meta" if has("name", "color-scheme") && has("content", "dark") => sheets.set_incomplete(),
            _ if attributes.iter().any(|attribute| attribute.name.local.starts_with("on")) => {
                sheets.set_incomplete();
            }
            _ => {}
        }
    }
    sheets
}

/// Returns the visibility of an element or text within an element; `None` if it is invisible.
fn visibility_of(node: &Rc<Node>, outer: &TextVisibility, sheets: &StyleSheets) -> Option<TextVisibility> {
    let NodeData::Element { name, attrs, .. } = &node.data else {
        return (!outer.hides_text()).then(|| outer.clone());
    };
    let attributes = attrs.borrow();
    let mut element = VisualElement::new(&name.local);
    for attribute in attributes.iter() {
        element.add(&attribute.name.local, &attribute.value);
    }
    let inner = outer.within(&element, sheets)?;
    let is_hidden_picture = &*name.local == "img" && inner.hides_pictures();
    (!is_hidden_picture).then_some(inner)
}

/// Returns true for an element whose marker would be left, although nothing within it is seen.
fn is_emptied(node: &Rc<Node>) -> bool {
    let NodeData::Element { name, .. } = &node.data else { return false };
    let is_blank = |child: &Rc<Node>| match &child.data {
        NodeData::Text { contents } => contents.borrow().trim().is_empty(),
        _ => false,
    };
    MARKED_ELEMENTS.contains(&&*name.local) && node.children.borrow().iter().all(is_blank)
}

/// Returns the document's title if the node is the element that contains it.
fn title_in(node: &Rc<Node>) -> Option<String> {
    let is_element =
        |node: &Node, tag: &str| matches!(&node.data, NodeData::Element { name, .. } if &*name.local == tag);
    if !is_element(node, "html") {
        return None;
    }
    let children = node.children.borrow();
    let head = children.iter().find(|child| is_element(child, "head"))?.children.borrow();
    let title = head.iter().find(|child| is_element(child, "title"))?.children.borrow();
    title.iter().find_map(|child| match &child.data {
        NodeData::Text { contents } => Some(contents.borrow().to_string()),
        _ => None,
    })
}

/// Returns false for elements without text for readers, comments, and navigation.
fn is_content(node: &Rc<Node>) -> bool {
    let NodeData::Element { name, attrs, .. } = &node.data else {
        return matches!(node.data, NodeData::Text { .. });
    };
    if SKIPPED_ELEMENTS.contains(&&*name.local) || (&*name.local == "input" && !is_task_box(node)) {
        return false;
    }
    attrs.borrow().iter().all(|attribute| match &*attribute.name.local {
        "hidden" => false,
        "aria-hidden" => !attribute.value.eq_ignore_ascii_case("true"),
        "role" => !SKIPPED_ROLES.contains(&&*attribute.value.to_ascii_lowercase()),
        _ => true,
    })
}

/// Returns true for a checkbox in an item of a list, which shows if a task is done. Other fields have no text.
fn is_task_box(input: &Rc<Node>) -> bool {
    let NodeData::Element { attrs, .. } = &input.data else { return false };
    let is_checkbox = attrs.borrow().iter().any(|attribute| {
        &*attribute.name.local == "type" && attribute.value.trim().eq_ignore_ascii_case("checkbox")
    });
    let parent = lists::parent(input);
    // A label or paragraph may be between them.
    let outer = parent.as_deref().and_then(lists::parent);
    is_checkbox && [parent, outer].iter().flatten().any(|element| lists::is_item(element))
}
