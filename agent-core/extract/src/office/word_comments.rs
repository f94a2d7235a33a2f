//! Comments on Word documents, whose texts are in a separate part.

use std::collections::BTreeMap;

use quick_xml::escape::unescape;
use quick_xml::events::Event;

use super::xml::{XmlEvents, attribute};

/// Returns the texts of comments by their identifiers, each as one line.
pub(super) fn comment_texts(xml: &str) -> BTreeMap<String, String> {
    let mut comments: BTreeMap<String, String> = BTreeMap::new();
    let (mut id, mut in_text) = (String::new(), false);
    let mut events = XmlEvents::new(xml);
    while let Some((event, range)) = events.next() {
        let text = match event {
            Event::Start(element) => match element.name().into_inner() {
                "w:comment" => {
                    id = attribute(&element, "w:id").unwrap_or_default();
                    continue;
                }
                "w:p" => " ",
                name => {
                    in_text = name == "w:t";
                    continue;
                }
            },
            Event::Empty(element) if matches!(element.name().into_inner(), "w:br" | "w:cr" | "w:tab") => " ",
            Event::Text(_) | Event::GeneralRef(_) if in_text => &xml[range],
            Event::End(_) => {
                in_text = false;
                continue;
            }
            _ => continue,
        };
        comments.entry(id.clone()).or_default().push_str(unescape(text).as_deref().unwrap_or(text));
    }
    for text in comments.values_mut() {
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    comments.retain(|_, text| !text.is_empty());
    comments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_of_a_comment_are_one_line() {
        let xml = "<w:comments><w:comment w:id=\"3\" w:author=\"Ada\"><w:p><w:r><w:t>Is R&amp;D</w:t></w:r></w:p>\n\
            <w:p><w:r><w:t xml:space=\"preserve\">meant </w:t><w:br/><w:t>here?</w:t></w:r></w:p></w:comment>\
            <w:comment w:id=\"4\"><w:p/></w:comment></w:comments>";
        let comments = comment_texts(xml);
        assert_eq!(
            comments.into_iter().collect::<Vec<_>>(),
            [("3".to_owned(), "Is R&D meant here?".to_owned())]
        );
    }
}
