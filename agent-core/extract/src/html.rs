//! HTML documents as Markdown.

use std::rc::Rc;

use agent_retrieval::document::TextFormat;
use agent_retrieval::extract::{ExtractError, Extraction};
use htmd::element_handler::{HandlerResult, Handlers};
use htmd::options::{BulletListMarker, HrStyle, Options};
use htmd::{Element, HtmlToMarkdown, Node};
use markup5ever_rcdom::NodeData;

use crate::encoding::decode_html;
use crate::limits::ExtractionLimits;
use crate::text_builder::TextBuilder;

/// Elements without text for readers, and the navigation between pages.
const SKIPPED_ELEMENTS: [&str; 22] = [
    "audio", "button", "canvas", "datalist", "dialog", "embed", "head", "iframe", "input", "link", "meta",
    "nav", "noscript", "object", "script", "select", "style", "svg", "template", "textarea", "title",
    "video",
];
/// Roles of elements that correspond to skipped elements.
const SKIPPED_ROLES: [&str; 3] = ["navigation", "dialog", "search"];
/// Characters that the converter would escape, although the text is read and not rendered.
const ESCAPED_CHARACTERS: &str = "\\*_`[]=~>-+#.<&";
/// First code point of the private-use characters that stand for escaped characters during the conversion.
const PLACEHOLDER_BASE: u32 = 0xf0000;

pub(crate) fn extract(bytes: &[u8], limits: &ExtractionLimits) -> Result<Extraction, ExtractError> {
    let malformed = |_| ExtractError::Malformed("no valid HTML document".to_owned());
    let converter = converter();
    let tree = converter.html_to_tree(&decode_html(bytes)).map_err(malformed)?;
    let title = prepare(&tree, limits.max_depth)?;
    let markdown = converter.tree_to_markdown(&tree);
    let mut builder = TextBuilder::new(limits);
    builder.push(&markdown.chars().map(restore).collect::<String>())?;
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
    HtmlToMarkdown::builder()
        .options(options)
        .add_handler(vec!["a"], convert_link)
        .add_handler(vec!["img"], convert_image)
        .build()
}

/// Keeps the addresses of links that lead out of the document's site.
fn convert_link(handlers: &dyn Handlers, element: Element) -> Option<HandlerResult> {
    let text = handlers.walk_children(element.node).content;
    let address = attribute(&element, "href").filter(|address| is_absolute(address));
    Some(match address {
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

fn attribute(element: &Element, name: &str) -> Option<String> {
    let attribute = element.attrs.iter().find(|attribute| &*attribute.name.local == name)?;
    Some(attribute.value.trim().to_owned())
}

/// Removes what readers do not see, protects the texts from escaping, and returns the title.
fn prepare(tree: &Rc<Node>, max_depth: usize) -> Result<Option<String>, ExtractError> {
    let mut title = None;
    // Recursion would exhaust the stack before the depth is known.
    let mut pending = vec![(tree.clone(), 0)];
    while let Some((node, depth)) = pending.pop() {
        if depth > max_depth {
            return Err(ExtractError::LimitExceeded("the nesting of elements".to_owned()));
        }
        if title.is_none() {
            title = title_in(&node);
        }
        if let NodeData::Text { contents } = &node.data {
            let mut contents = contents.borrow_mut();
            *contents = contents.chars().filter_map(protect).collect::<String>().into();
        }
        node.children.borrow_mut().retain(is_visible);
        pending.extend(node.children.borrow().iter().map(|child| (child.clone(), depth + 1)));
    }
    Ok(title)
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

/// Returns false for elements that a browser does not show, comments, and navigation.
fn is_visible(node: &Rc<Node>) -> bool {
    let NodeData::Element { name, attrs, .. } = &node.data else {
        return matches!(node.data, NodeData::Text { .. });
    };
    if SKIPPED_ELEMENTS.contains(&&*name.local) {
        return false;
    }
    attrs.borrow().iter().all(|attribute| match &*attribute.name.local {
        "hidden" => false,
        "aria-hidden" => !attribute.value.eq_ignore_ascii_case("true"),
        "role" => !SKIPPED_ROLES.contains(&&*attribute.value.to_ascii_lowercase()),
        "style" => !attribute.value.split(';').any(hides),
        _ => true,
    })
}

/// Returns true for a declaration of a style by which an element is not seen.
fn hides(declaration: &str) -> bool {
    let declaration = declaration.to_ascii_lowercase();
    let Some((name, value)) = declaration.split_once(':') else { return false };
    let value = value.trim().trim_end_matches("!important").trim_end();
    match name.trim() {
        "display" => value == "none",
        "visibility" => matches!(value, "hidden" | "collapse"),
        "font-size" | "opacity" => {
            let number =
                value.trim_end_matches(|character: char| character.is_ascii_lowercase() || character == '%');
            number.parse::<f32>().is_ok_and(|number| number <= 0.0)
        }
        _ => false,
    }
}

/// Returns the placeholder of a character that the converter would escape; drops what looks like a placeholder.
fn protect(character: char) -> Option<char> {
    if ESCAPED_CHARACTERS.contains(character) {
        return char::from_u32(PLACEHOLDER_BASE + u32::from(character));
    }
    (restore(character) == character).then_some(character)
}

/// Returns the character for which a placeholder stands.
fn restore(character: char) -> char {
    let original = u32::from(character).checked_sub(PLACEHOLDER_BASE).and_then(char::from_u32);
    original.filter(|&original| ESCAPED_CHARACTERS.contains(original)).unwrap_or(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn markdown(html: &str) -> String {
        extract(html.as_bytes(), &ExtractionLimits::default()).unwrap().document.text
    }

    #[test]
    fn structure_is_kept() {
        let html = "<!doctype html><html><head><title>Leave &amp; absence</title><style>p{}</style></head><body>\
            <h1>Leave</h1><p>All <b>employees</b> have 30&nbsp;days.<ul><li>full time<li>part time</ul>\
            <table><tr><th>Years</th><th>Days</th></tr><tr><td>1</td><td>30</td></tr></table>\
            <pre><code>if a_b &lt; *c {\n  x[0]\n}</code></pre></body></html>";
        let document = extract(html.as_bytes(), &ExtractionLimits::default()).unwrap().document;
        assert_eq!(document.title, "Leave & absence");
        assert_eq!(document.format, TextFormat::Markdown);
        let expected = "# Leave\n\nAll **employees** have 30\u{a0}days.\n\n- full time\n- part time\n\n\
            | Years | Days |\n| ----- | ---- |\n| 1     | 30   |\n\n```\nif a_b < *c {\n  x[0]\n}\n```";
        assert_eq!(document.text, expected);
    }

    #[test]
    fn what_readers_do_not_see_is_dropped() {
        let html = "<nav><a href=/>Home</a></nav><script>alert(1)</script><!-- ignore --><p>seen</p>\
            <p hidden>h1</p><p aria-hidden=true>h2</p><div style='Display : None'>h3</div><p style='font-size:0'>h4</p>\
            <div role=navigation>h5</div><noscript>h6</noscript><template>h7</template><svg><text>h8</text></svg>\
            <style>h9</style><p style='opacity:0.5'>faint</p><button>Accept</button>\
            <p style='color:red;font-size: 0px'>h10</p><p style='opacity:0.0 !important'>h11</p>\
            <p style='visibility:collapse'>h12</p><p style='opacity:0%;'>h13</p>";
        assert_eq!(markdown(html), "seen\n\nfaint");
    }

    #[test]
    fn text_is_not_escaped() {
        assert_eq!(
            markdown("<p>snake_case *p = a[0] &lt;b&gt; C:\\dir</p>"),
            "snake_case *p = a[0] <b> C:\\dir"
        );
        assert_eq!(markdown("<p>1. one</p><p># two</p><p>- three</p>"), "1. one\n\n# two\n\n- three");
        assert_eq!(markdown("a\u{f003c}b"), "ab");
    }

    #[test]
    fn links_and_pictures_are_text() {
        let html = "<p><a href=https://x.example/a_b>Docs</a>, <a href=/local>local</a>, <a href='javascript:x'>no</a>, \
            <a href=https://x.example>https://x.example</a> <img src='data:image/png;base64,AAAA' alt='a chart'><img src=a></p>";
        assert_eq!(markdown(html), "[Docs](https://x.example/a_b), local, no, https://x.example a chart");
    }

    #[test]
    fn nesting_is_limited() {
        let nested = |depth: usize| format!("{}text", "<div>".repeat(depth));
        assert_eq!(markdown(&nested(200)), "text");
        let error = extract(nested(5_000).as_bytes(), &ExtractionLimits::default()).unwrap_err();
        assert_eq!(error, ExtractError::LimitExceeded("the nesting of elements".to_owned()));
    }
}
