//! Presentations without hidden slides, shapes and text, with formulas as text and charts as tables, and with the notes of
//! each slide at the name where they are looked for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use quick_xml::events::{BytesStart, Event};

use super::chart::chart_table;
use super::color::{Color, look_alike};
use super::formula::read_formula;
use super::parts::OfficeParts;
use super::slide_text::{TextVisibility, color_behind, text_visibility};
use super::xml::{XmlChanges, XmlEvents, attribute, is_on};

/// Placeholders of notes with what is no text of their author.
const NOTES_PLACEHOLDERS: [&str; 5] = ["dt", "ftr", "hdr", "sldImg", "sldNum"];
/// Placeholders of slides with what is no text of their author.
const SLIDE_PLACEHOLDERS: [&str; 1] = ["sldNum"];
/// A slide without content, whose number is that of a hidden one.
const EMPTY_SLIDE: &str = "<p:sld xmlns:p=\"http://schemas.openxmlformats.org/presentationml/2006/main\">\
    <p:cSld><p:spTree/></p:cSld></p:sld>";
/// Ends of the types of relations between a slide and its notes and charts.
const NOTES_RELATION: &str = "/notesSlide";
const CHART_RELATION: &str = "/chart";

/// Changes the parts of a presentation.
pub(super) fn change(parts: &mut OfficeParts<'_>) {
    let names = parts.names();
    let (mut hidden_slides, mut placed_charts) = (BTreeSet::new(), BTreeSet::new());
    for name in names.iter().filter(|name| is_slide(name)) {
        let Some(xml) = parts.xml(name) else { continue };
        if is_hidden_slide(&xml) {
            parts.put(name, EMPTY_SLIDE);
            // The reader finds the slide's charts by its relations.
            parts.remove(&relations_of(name));
            hidden_slides.insert(name.as_str());
            continue;
        }
        let charts = take_charts(parts, name, &mut placed_charts);
        if let Some(changed) = ShapeEditor::new(&xml, &SLIDE_PLACEHOLDERS, charts).edit() {
            parts.put(name, changed);
        }
    }
    place_notes(parts, &names, &hidden_slides);
}

fn is_slide(name: &str) -> bool {
    name.starts_with("ppt/slides/slide") && name.ends_with(".xml")
}

fn is_notes(name: &str) -> bool {
    name.starts_with("ppt/notesSlides/notesSlide") && name.ends_with(".xml")
}

/// Gives the notes of each slide its number, by which the reader looks for them. They are numbered by themselves in the
/// document.
fn place_notes(parts: &mut OfficeParts<'_>, names: &[String], hidden_slides: &BTreeSet<&str>) {
    let mut notes_by_slide = BTreeMap::new();
    // Notes belong to one slide. Copies for each would exceed the limits of what the archive expands to.
    let mut placed = BTreeSet::new();
    for slide in names.iter().filter(|name| is_slide(name) && !hidden_slides.contains(name.as_str())) {
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
        let changed = ShapeEditor::new(&xml, &NOTES_PLACEHOLDERS, BTreeMap::new()).edit();
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
        return Some(part_name(&attribute(&element, "Target")?));
    }
    None
}

/// Returns the name of a part by the target of a slide's relation.
fn part_name(target: &str) -> String {
    match (target.strip_prefix('/'), target.strip_prefix("../")) {
        (Some(absolute), _) => absolute.to_owned(),
        (None, Some(sibling)) => format!("ppt/{sibling}"),
        (None, None) => format!("ppt/slides/{target}"),
    }
}

/// Returns the tables of a slide's charts by the identifiers of their relations. Removes the relations, by which the reader
/// would find the charts in any order, also those of hidden shapes. A chart is placed on one slide only, like notes.
fn take_charts(
    parts: &mut OfficeParts<'_>,
    slide: &str,
    placed: &mut BTreeSet<String>,
) -> BTreeMap<String, String> {
    let mut tables = BTreeMap::new();
    let name = relations_of(slide);
    let Some(relations) = parts.xml(&name) else { return tables };
    let mut changes = XmlChanges::new(&relations);
    let mut events = XmlEvents::new(&relations);
    while let Some((event, range)) = events.next() {
        let (element, end) = match event {
            Event::Empty(element) => (element, range.end),
            Event::Start(element) if element.local_name().into_inner() == "Relationship" => {
                let end = events.skip(&element);
                (element, end)
            }
            _ => continue,
        };
        let is_chart = attribute(&element, "Type").is_some_and(|kind| kind.ends_with(CHART_RELATION));
        if !is_chart {
            continue;
        }
        changes.remove(range.start..end);
        let part = attribute(&element, "Target").map(|target| part_name(&target));
        let chart = part.filter(|part| placed.insert(part.clone())).and_then(|part| parts.xml(&part));
        if let (Some(id), Some(chart)) = (attribute(&element, "Id"), chart) {
            tables.extend(chart_table(&chart).map(|table| (id, table)));
        }
    }
    if let Some(changed) = changes.finish() {
        parts.put(&name, changed);
    }
    tables
}

/// Returns true for a slide that a presentation leaves out.
fn is_hidden_slide(xml: &str) -> bool {
    let mut events = XmlEvents::new(xml);
    while let Some((event, _)) = events.next() {
        if let Event::Start(element) = event {
            let is_off = |value: String| matches!(value.as_str(), "0" | "false" | "off");
            return element.local_name().into_inner() == "sld"
                && attribute(&element, "show").is_some_and(is_off);
        }
    }
    false
}

/// A shape or a cell of a table.
struct Shape {
    start: usize,
    is_removed: bool,
    /// The color behind its text, if that is certain.
    color: Option<Color>,
    /// Texts with their colors. They are removed if they look like the color behind them.
    texts: Vec<(Color, Range<usize>)>,
}

/// Removes shapes that are hidden, placeholders of some kinds, the older forms of what is there twice, and text that is
/// not seen; puts text in the place of formulas, and tables in that of charts.
struct ShapeEditor<'x> {
    xml: &'x str,
    placeholders: &'x [&'x str],
    /// Tables of charts that were not placed yet, by the identifiers of their relations.
    charts: BTreeMap<String, String>,
    /// The shapes that are open.
    shapes: Vec<Shape>,
    changes: XmlChanges<'x>,
}

impl<'x> ShapeEditor<'x> {
    fn new(xml: &'x str, placeholders: &'x [&'x str], charts: BTreeMap<String, String>) -> Self {
        Self { xml, placeholders, charts, shapes: Vec::new(), changes: XmlChanges::new(xml) }
    }

    fn edit(mut self) -> Option<String> {
        let mut events = XmlEvents::new(self.xml);
        while let Some((event, range)) = events.next() {
            match event {
                Event::Start(element) => self.open(&element, range.start, &mut events),
                Event::Empty(element) if element.local_name().into_inner() == "chart" => {
                    self.place_chart(&element, range);
                }
                Event::Empty(element) => self.apply(&element),
                Event::End(element) if is_shape(element.local_name().into_inner()) => self.close(range.end),
                _ => {}
            }
        }
        self.changes.finish()
    }

    fn open(&mut self, element: &BytesStart<'_>, start: usize, events: &mut XmlEvents<'_>) {
        let is_formula = element.name().into_inner() == "m:oMath";
        let is_older_form = element.name().into_inner() == "mc:Fallback";
        match element.local_name().into_inner() {
            _ if is_formula => {
                let is_hidden = |run: &str| text_visibility(run) == TextVisibility::Hidden;
                let (text, end) = read_formula(self.xml, events, &is_hidden);
                self.changes.replace(start..end, format!("<a:r><a:t>{text}</a:t></a:r>"));
            }
            _ if is_older_form => self.changes.remove(start..events.skip(element)),
            "r" | "fld" => {
                let range = start..events.skip(element);
                self.check_text(range);
            }
            "chart" => {
                let range = start..events.skip(element);
                self.place_chart(element, range);
            }
            "spPr" | "tcPr" => {
                let color = color_behind(&self.xml[start..events.skip(element)]);
                if let Some(shape) = self.shapes.last_mut() {
                    shape.color = color;
                }
            }
            name if is_shape(name) => {
                self.shapes.push(Shape { start, is_removed: false, color: None, texts: Vec::new() });
            }
            _ => self.apply(element),
        }
    }

    /// Puts the table of a chart in its place.
    fn place_chart(&mut self, element: &BytesStart<'_>, range: Range<usize>) {
        if let Some(table) = attribute(element, "r:id").and_then(|id| self.charts.remove(&id)) {
            self.changes.replace(range, table);
        }
    }

    /// Removes the text of a run that is not seen. Text in a color is checked at the end of its shape.
    fn check_text(&mut self, run: Range<usize>) {
        match text_visibility(&self.xml[run.clone()]) {
            TextVisibility::Shown => {}
            TextVisibility::Hidden => self.changes.remove(run),
            TextVisibility::Colored(color) => {
                if let Some(shape) = self.shapes.last_mut() {
                    shape.texts.push((color, run));
                }
            }
        }
    }

    /// Applies an element to the innermost shape, if it is one of its properties.
    fn apply(&mut self, element: &BytesStart<'_>) {
        let is_removed = match element.local_name().into_inner() {
            "cNvPr" => attribute(element, "hidden").is_some_and(|value| is_on(&value)),
            "ph" => {
                let kind = attribute(element, "type").unwrap_or_default();
                self.placeholders.contains(&kind.as_str())
            }
            _ => false,
        };
        if let Some(shape) = self.shapes.last_mut() {
            shape.is_removed |= is_removed;
        }
    }

    /// Closes the innermost shape.
    fn close(&mut self, end: usize) {
        let Some(shape) = self.shapes.pop() else { return };
        if shape.is_removed {
            self.changes.remove(shape.start..end);
        }
        for (color, text) in shape.texts {
            if shape.color.is_some_and(|behind| look_alike(color, behind)) {
                self.changes.remove(text);
            }
        }
    }
}

/// Returns true for the elements of shapes and of the cells of tables.
fn is_shape(name: &str) -> bool {
    matches!(name, "sp" | "grpSp" | "graphicFrame" | "pic" | "cxnSp" | "tc")
}
