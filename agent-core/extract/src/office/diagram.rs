//! Diagrams (SmartArt, ECMA-376 part 1, section 21.4), whose texts are in a separate part.

use std::collections::{BTreeMap, BTreeSet};

use quick_xml::escape::unescape;
use quick_xml::events::Event;

use super::chart::row;
use super::parts::OfficeParts;
use super::relations::relations_part;
use super::xml::{XmlEvents, attribute};

/// Element that stands for a diagram, and its attribute with the identifier of the relation to the texts.
pub(super) const DIAGRAM: &str = "relIds";
pub(super) const DIAGRAM_DATA: &str = "r:dm";
/// End of the type of that relation.
pub(super) const DIAGRAM_RELATION: &str = "/diagramData";
/// Maximum number of texts of a diagram.
const MAX_TEXTS: usize = 10_000;

/// Returns the texts of a diagram in their order, each as one line.
pub(super) fn diagram_texts(xml: &str) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut in_text = false;
    let mut events = XmlEvents::new(xml);
    while let Some((event, range)) = events.next() {
        match event {
            Event::Start(element) => match element.local_name().into_inner() {
                "pt" => {
                    let kind = attribute(&element, "type");
                    // Others are links between texts, and the shapes that show them.
                    let is_node = matches!(kind.as_deref(), None | Some("node" | "asst"));
                    if is_node && texts.len() < MAX_TEXTS {
                        texts.push(String::new());
                    } else {
                        events.skip(&element);
                    }
                }
                "p" => push(&mut texts, " "),
                // A text of the diagram contains texts of the drawing.
                "t" => in_text = element.name().into_inner() != "dgm:t",
                _ => {}
            },
            Event::Empty(element) if element.local_name().into_inner() == "br" => push(&mut texts, " "),
            Event::Text(_) | Event::GeneralRef(_) if in_text => {
                let raw = &xml[range];
                push(&mut texts, unescape(raw).as_deref().unwrap_or(raw));
            }
            Event::End(_) => in_text = false,
            _ => {}
        }
    }
    for text in &mut texts {
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    texts.retain(|text| !text.is_empty());
    texts
}

/// Reads the texts of the document's diagrams by the identifiers of their relations, each part once.
pub(super) fn read_diagrams(parts: &mut OfficeParts<'_>, document: &str) -> BTreeMap<String, String> {
    let (mut diagrams, mut read) = (BTreeMap::new(), BTreeSet::new());
    let relations = parts.xml(&relations_part(document)).unwrap_or_default();
    let mut events = XmlEvents::new(&relations);
    while let Some((event, _)) = events.next() {
        let (Event::Start(element) | Event::Empty(element)) = event else { continue };
        let is_diagram = attribute(&element, "Type").is_some_and(|kind| kind.ends_with(DIAGRAM_RELATION));
        let (Some(id), Some(target)) = (attribute(&element, "Id"), attribute(&element, "Target")) else {
            continue;
        };
        let part = target.strip_prefix('/').map_or_else(|| format!("word/{target}"), str::to_owned);
        if is_diagram
            && read.insert(part.clone())
            && let Some(xml) = parts.xml(&part)
        {
            diagrams.insert(id, diagram_texts(&xml).join("; "));
        }
    }
    diagrams
}

fn push(texts: &mut [String], text: &str) {
    if let Some(last) = texts.last_mut() {
        last.push_str(text);
    }
}

/// Returns a diagram as the table of a slide, with a row for each text; `None` if it has none.
pub(super) fn diagram_table(xml: &str) -> Option<String> {
    let texts = diagram_texts(xml);
    let rows: String = texts.iter().map(|text| row([text.as_str()].into_iter())).collect();
    (!texts.is_empty()).then(|| format!("<a:tbl>{rows}</a:tbl>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_diagrams_are_lines() {
        let point = |kind: &str, paragraphs: &[&str]| {
            let paragraphs: String =
                paragraphs.iter().map(|text| format!("<a:p><a:r><a:t>{text}</a:t></a:r></a:p>")).collect();
            format!("<dgm:pt modelId=\"1\"{kind}><dgm:t><a:bodyPr/>\n{paragraphs}</dgm:t></dgm:pt>")
        };
        let xml = format!(
            "<dgm:dataModel><dgm:ptLst>{}{}{}{}{}</dgm:ptLst></dgm:dataModel>",
            point(" type=\"doc\"", &["root"]),
            point("", &["Plan &amp; do", "then"]),
            point(" type=\"pres\"", &["shape"]),
            point("", &[]),
            point(" type=\"asst\"", &["Check"]),
        );
        assert_eq!(diagram_texts(&xml), ["Plan & do then", "Check"]);
        let table = diagram_table(&xml).unwrap();
        assert_eq!(table.matches("<a:tr>").count(), 2);
        assert!(table.contains("Plan &amp; do then"), "{table}");
        assert_eq!(diagram_table("<dgm:dataModel/>"), None);
    }
}
