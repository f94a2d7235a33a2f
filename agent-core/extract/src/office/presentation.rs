//! Presentations without hidden shapes, and with the notes of each slide at the name where they are looked for.

use std::collections::{BTreeMap, BTreeSet};

use quick_xml::events::Event;

use super::parts::OfficeParts;
use super::xml::{XmlChanges, XmlEvents, attribute, is_on};

/// Placeholders of notes with what is no text of their author.
const NOTES_PLACEHOLDERS: [&str; 5] = ["dt", "ftr", "hdr", "sldImg", "sldNum"];
/// Placeholders of slides with what is no text of their author.
const SLIDE_PLACEHOLDERS: [&str; 1] = ["sldNum"];
/// End of the types of relations between a slide and its notes.
const NOTES_RELATION: &str = "/notesSlide";

/// Changes the parts of a presentation.
pub(super) fn change(parts: &mut OfficeParts<'_>) {
    let names = parts.names();
    for name in names.iter().filter(|name| is_slide(name)) {
        let Some(xml) = parts.xml(name) else { continue };
        if let Some(changed) = without_hidden_shapes(&xml, &SLIDE_PLACEHOLDERS) {
            parts.put(name, changed);
        }
    }
    place_notes(parts, &names);
}

fn is_slide(name: &str) -> bool {
    name.starts_with("ppt/slides/slide") && name.ends_with(".xml")
}

fn is_notes(name: &str) -> bool {
    name.starts_with("ppt/notesSlides/notesSlide") && name.ends_with(".xml")
}

/// Gives the notes of each slide its number, by which the reader looks for them. They are numbered by themselves in the
/// document.
fn place_notes(parts: &mut OfficeParts<'_>, names: &[String]) {
    let mut notes_by_slide = BTreeMap::new();
    // Notes belong to one slide. Copies for each would exceed the limits of what the archive expands to.
    let mut placed = BTreeSet::new();
    for slide in names.iter().filter(|name| is_slide(name)) {
        let relations = parts.xml(&relations_of(slide)).unwrap_or_default();
        if let Some(notes) = notes_of(&relations).filter(|notes| names.contains(notes))
            && placed.insert(notes.clone())
        {
            notes_by_slide.insert(slide, notes);
        }
    }
    for (slide, notes) in notes_by_slide {
        let expected = slide.replace("slides/slide", "notesSlides/notesSlide");
        let Some(xml) = parts.xml(&notes) else { continue };
        let changed = without_hidden_shapes(&xml, &NOTES_PLACEHOLDERS);
        parts.put(&expected, changed.unwrap_or(xml));
        if let Some(relations) = parts.bytes(&relations_of(&notes)) {
            parts.put(&relations_of(&expected), relations);
        }
    }
    // Notes of other slides would be taken for those of the slide with their number.
    for name in names.iter().filter(|name| is_notes(name)) {
        parts.remove(name);
    }
}

/// Returns the name of the part with the relations of a part.
fn relations_of(name: &str) -> String {
    match name.rsplit_once('/') {
        Some((folder, file)) => format!("{folder}/_rels/{file}.rels"),
        None => format!("_rels/{name}.rels"),
    }
}

/// Returns the name of a slide's notes by the slide's relations.
fn notes_of(relations: &str) -> Option<String> {
    let mut events = XmlEvents::new(relations);
    while let Some((event, _)) = events.next() {
        let (Event::Start(element) | Event::Empty(element)) = event else { continue };
        let is_notes = attribute(&element, "Type").is_some_and(|kind| kind.ends_with(NOTES_RELATION));
        if !is_notes {
            continue;
        }
        let target = attribute(&element, "Target")?;
        return Some(match (target.strip_prefix('/'), target.strip_prefix("../")) {
            (Some(absolute), _) => absolute.to_owned(),
            (None, Some(sibling)) => format!("ppt/{sibling}"),
            (None, None) => format!("ppt/slides/{target}"),
        });
    }
    None
}

/// Removes shapes that are hidden, placeholders of some kinds, and the older forms of what is there twice.
fn without_hidden_shapes(xml: &str, placeholders: &[&str]) -> Option<String> {
    let mut changes = XmlChanges::new(xml);
    let mut events = XmlEvents::new(xml);
    // The shapes that are open, by their starts, and whether they are removed.
    let mut shapes: Vec<(usize, bool)> = Vec::new();
    while let Some((event, range)) = events.next() {
        match event {
            Event::Start(element) if element.name().into_inner() == "mc:Fallback" => {
                let end = events.skip(&element);
                changes.remove(range.start..end);
            }
            Event::Start(element) if is_shape(element.local_name().into_inner()) => {
                shapes.push((range.start, false));
            }
            Event::Start(element) | Event::Empty(element) => {
                let is_removed = match element.local_name().into_inner() {
                    "cNvPr" => attribute(&element, "hidden").is_some_and(|value| is_on(&value)),
                    "ph" => {
                        let kind = attribute(&element, "type").unwrap_or_default();
                        placeholders.contains(&kind.as_str())
                    }
                    _ => false,
                };
                if let Some(shape) = shapes.last_mut() {
                    shape.1 |= is_removed;
                }
            }
            Event::End(element) if is_shape(element.local_name().into_inner()) => {
                if let Some((start, true)) = shapes.pop() {
                    changes.remove(start..range.end);
                }
            }
            _ => {}
        }
    }
    changes.finish()
}

fn is_shape(name: &str) -> bool {
    matches!(name, "sp" | "grpSp" | "graphicFrame" | "pic" | "cxnSp")
}
