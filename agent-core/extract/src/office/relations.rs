//! Relations between the parts of a presentation.

use quick_xml::events::Event;

use super::xml::{XmlEvents, attribute};

/// Returns the name of the part with the relations of a part.
pub(super) fn relations_part(name: &str) -> String {
    match name.rsplit_once('/') {
        Some((folder, file)) => format!("{folder}/_rels/{file}.rels"),
        None => format!("_rels/{name}.rels"),
    }
}

/// Returns the name of the part that is the target of the first relation whose type ends with `type_end`.
pub(super) fn related_part(relations: &str, type_end: &str) -> Option<String> {
    let mut events = XmlEvents::new(relations);
    while let Some((event, _)) = events.next() {
        let (Event::Start(element) | Event::Empty(element)) = event else { continue };
        if attribute(&element, "Type").is_some_and(|kind| kind.ends_with(type_end)) {
            return Some(part_name(&attribute(&element, "Target")?));
        }
    }
    None
}

/// Resolves the target of a relation of a slide, or of another part in a folder beside that of the slides, to the name of a
/// part.
pub(super) fn part_name(target: &str) -> String {
    match (target.strip_prefix('/'), target.strip_prefix("../")) {
        (Some(absolute), _) => absolute.to_owned(),
        (None, Some(sibling)) => format!("ppt/{sibling}"),
        (None, None) => format!("ppt/slides/{target}"),
    }
}
