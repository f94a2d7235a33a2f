//! Rewrites presentations without hidden slides, shapes and text, with formulas as text, charts and diagrams as tables, and with the
//! notes of each slide under the name where readers look for them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use quick_xml::events::{BytesStart, Event};

use super::chart::chart_table;
use super::color::{Color, are_indistinguishable};
use super::diagram::{DIAGRAM, DIAGRAM_DATA, DIAGRAM_RELATION, diagram_table};
use super::formula::read_formula;
use super::parts::OfficeParts;
use super::relations::{part_name, related_part, relations_part};
use super::slide_layout::{SlideLayout, SlideLayouts};
use super::slide_text::{
    Area, RunVisibility, area_of, color_behind, may_be_filled, may_overlap, text_visibility,
};
use super::xml::{XmlChanges, XmlEvents, attribute, is_on};
use crate::superscript::raised;

/// Types of placeholders on pages of notes whose text is not the author's, such as page numbers.
const NOTES_PLACEHOLDERS: [&str; 5] = ["dt", "ftr", "hdr", "sldImg", "sldNum"];
/// Types of placeholders on slides whose text is not the author's.
const SLIDE_PLACEHOLDERS: [&str; 1] = ["sldNum"];
/// A slide without content, which replaces a hidden slide so that the others keep their numbers.
const EMPTY_SLIDE: &str = "<p:sld xmlns:p=\"http://schemas.openxmlformats.org/presentationml/2006/main\">\
    <p:cSld><p:spTree/></p:cSld></p:sld>";
/// Maximum number of painted shapes that are compared with the areas of texts. Behind further ones, nothing is certain.
const MAX_PAINTED_AREAS: usize = 1_024;
/// Maximum number of shapes around a shape whose fills are read.
const MAX_OUTER_SHAPES: usize = 16;
/// Ends of the types of relations between a slide and its notes and charts.
const NOTES_RELATION: &str = "/notesSlide";
const CHART_RELATION: &str = "/chart";

/// Rewrites the parts of a presentation so that they contain only visible content, with notes and charts as text.
pub(super) fn rewrite_as_shown(parts: &mut OfficeParts<'_>) {
    let names = parts.names();
    let (mut hidden_slides, mut placed_charts) = (BTreeSet::new(), BTreeSet::new());
    let mut layouts = SlideLayouts::default();
    for name in names.iter().filter(|name| is_slide(name)) {
        let Some(xml) = parts.xml(name) else { continue };
        if is_hidden_slide(&xml) {
            parts.put(name, EMPTY_SLIDE);
            // The reader finds the slide's charts by its relations.
            parts.remove(&relations_part(name));
            hidden_slides.insert(name.as_str());
            continue;
        }
        let layout = layouts.of_slide(parts, name, &xml);
        let charts = take_charts(parts, name, &mut placed_charts);
        let editor = ShapeEditor::new(&xml, &SLIDE_PLACEHOLDERS, &layout);
        let editor = ShapeEditor { charts, background: layout.background_of(&xml), ..editor };
        if let Some(changed) = editor.edit() {
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

/// Names the notes of each slide by the slide's number, by which the reader looks them up. They are numbered by themselves in the
/// document.
fn place_notes(parts: &mut OfficeParts<'_>, names: &[String], hidden_slides: &BTreeSet<&str>) {
    let mut notes_by_slide = BTreeMap::new();
    // Notes belong to one slide. Copies for each would exceed the limits on the archive's expanded size.
    let mut placed = BTreeSet::new();
    for slide in names.iter().filter(|name| is_slide(name) && !hidden_slides.contains(name.as_str())) {
        let relations = parts.xml(&relations_part(slide)).unwrap_or_default();
        if let Some(notes) = related_part(&relations, NOTES_RELATION).filter(|notes| names.contains(notes))
            && placed.insert(notes.clone())
        {
            notes_by_slide.insert(slide, notes);
        }
    }
    let no_layout = SlideLayout::default();
    for (slide, notes) in notes_by_slide {
        let expected = slide.replace("slides/slide", "notesSlides/notesSlide");
        let Some(xml) = parts.xml(&notes) else { continue };
        let changed = ShapeEditor::new(&xml, &NOTES_PLACEHOLDERS, &no_layout).edit();
        parts.put(&expected, changed.unwrap_or(xml));
        if let Some(relations) = parts.bytes(&relations_part(&notes)) {
            parts.put(&relations_part(&expected), relations);
        }
    }
    // Notes of other slides would be taken for those of the slide with their number.
    for name in names.iter().filter(|name| is_notes(name)) {
        parts.remove(name);
    }
}

/// Returns the tables of a slide's charts and diagrams by the identifiers of their relations. Removes the relations of charts, by
/// which the reader would find charts in any order and also in hidden shapes. A chart or diagram is placed on one slide only,
/// like notes.
fn take_charts(
    parts: &mut OfficeParts<'_>,
    slide: &str,
    placed: &mut BTreeSet<String>,
) -> BTreeMap<String, String> {
    let mut tables = BTreeMap::new();
    let name = relations_part(slide);
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
        let kind = attribute(&element, "Type").unwrap_or_default();
        let is_chart = kind.ends_with(CHART_RELATION);
        if is_chart {
            changes.remove(range.start..end);
        } else if !kind.ends_with(DIAGRAM_RELATION) {
            continue;
        }
        let part = attribute(&element, "Target").map(|target| part_name(&target));
        let chart = part.filter(|part| placed.insert(part.clone())).and_then(|part| parts.xml(&part));
        if let (Some(id), Some(chart)) = (attribute(&element, "Id"), chart) {
            let table = if is_chart { chart_table(&chart) } else { diagram_table(&chart) };
            tables.extend(table.map(|table| (id, table)));
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
    /// The name of its element.
    name: String,
    start: usize,
    is_removed: bool,
    /// The color behind its text, if that is certain.
    color: Option<Color>,
    /// Texts with their colors. They are removed if they look like the color behind them.
    texts: Vec<(Color, Range<usize>)>,
}

/// Removes shapes that are hidden, placeholders of some kinds, the older of two forms of the same content, and text
/// that is not seen. Replaces formulas by text, and charts by tables.
struct ShapeEditor<'x> {
    xml: &'x str,
    placeholders: &'x [&'x str],
    layout: &'x SlideLayout,
    /// The color behind the shapes, if that is certain.
    background: Option<Color>,
    /// The areas of shapes that paint; `None` for one that may be anywhere. They are kept only where the background is certain.
    painted: Vec<Option<Area>>,
    /// Tables of charts and diagrams that were not placed yet, by the identifiers of their relations.
    charts: BTreeMap<String, String>,
    /// The shapes that are open.
    shapes: Vec<Shape>,
    changes: XmlChanges<'x>,
}

impl<'x> ShapeEditor<'x> {
    fn new(xml: &'x str, placeholders: &'x [&'x str], layout: &'x SlideLayout) -> Self {
        Self {
            xml,
            placeholders,
            layout,
            background: None,
            painted: Vec::new(),
            charts: BTreeMap::new(),
            shapes: Vec::new(),
            changes: XmlChanges::new(xml),
        }
    }

    fn edit(mut self) -> Option<String> {
        let mut events = XmlEvents::new(self.xml);
        while let Some((event, range)) = events.next() {
            match event {
                Event::Start(element) => self.open(&element, range.start, &mut events),
                Event::Empty(element) if matches!(element.local_name().into_inner(), "chart" | DIAGRAM) => {
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
                let colors = &self.layout.colors;
                let is_hidden = |run: &str| text_visibility(run, colors) == RunVisibility::Hidden;
                let (text, end) = read_formula(self.xml, events, &is_hidden);
                self.changes.replace(start..end, format!("<a:r><a:t>{text}</a:t></a:r>"));
            }
            _ if is_older_form => self.changes.remove(start..events.skip(element)),
            "r" | "fld" => {
                let range = start..events.skip(element);
                self.check_text(range);
            }
            "chart" | DIAGRAM => {
                let range = start..events.skip(element);
                self.place_chart(element, range);
            }
            "spPr" | "tcPr" => {
                let color = color_behind(&self.xml[start..events.skip(element)], &self.layout.colors);
                if let Some(shape) = self.shapes.last_mut() {
                    shape.color = color;
                }
            }
            name if is_shape(name) => {
                let name = name.to_owned();
                self.shapes.push(Shape { name, start, is_removed: false, color: None, texts: Vec::new() });
            }
            _ => self.apply(element),
        }
    }

    /// Replaces a chart or diagram by its table.
    fn place_chart(&mut self, element: &BytesStart<'_>, range: Range<usize>) {
        let id = attribute(element, "r:id").or_else(|| attribute(element, DIAGRAM_DATA));
        if let Some(table) = id.and_then(|id| self.charts.remove(&id)) {
            self.changes.replace(range, table);
        }
    }

    /// Removes the text of a run that is not seen. Text in a color is checked at the end of its shape.
    fn check_text(&mut self, run: Range<usize>) {
        self.raise_text(&run);
        match text_visibility(&self.xml[run.clone()], &self.layout.colors) {
            RunVisibility::Shown => {}
            RunVisibility::Hidden => self.changes.remove(run),
            RunVisibility::Colored(color) => {
                if let Some(shape) = self.shapes.last_mut() {
                    shape.texts.push((color, run));
                }
            }
        }
    }

    /// Writes a superscript as superscript characters: its digits would otherwise be read as part of the number before it.
    fn raise_text(&mut self, run: &Range<usize>) {
        let xml = self.xml;
        let xml = &xml[run.clone()];
        if !xml.contains(" baseline=") {
            return;
        }
        let mut is_raised = false;
        let mut events = XmlEvents::new(xml);
        while let Some((event, range)) = events.next() {
            match event {
                Event::Start(element) | Event::Empty(element)
                    if element.local_name().into_inner() == "rPr" =>
                {
                    let baseline = attribute(&element, "baseline").unwrap_or_default();
                    let height = baseline.trim_end_matches('%').parse::<f64>();
                    is_raised = height.is_ok_and(|height| height > 0.0);
                }
                Event::Text(_) if is_raised => {
                    let place = run.start + range.start..run.start + range.end;
                    if let Some(text) = raised(&xml[range]) {
                        self.changes.replace(place, text);
                    }
                }
                _ => {}
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
            return;
        }
        let behind = shape.color.or_else(|| self.background_of(&shape, end));
        for (color, text) in &shape.texts {
            if behind.is_some_and(|behind| are_indistinguishable(*color, behind)) {
                self.changes.remove(text.clone());
            }
        }
        if self.background.is_some() && self.paints(&shape, end) {
            self.painted.push(self.area_of(&shape, end));
            if self.painted.len() > MAX_PAINTED_AREAS {
                self.background = None;
            }
        }
    }

    /// Returns the color behind the text of a shape without a fill, if no other shape may be behind it.
    fn background_of(&self, shape: &Shape, end: usize) -> Option<Color> {
        let background = self.background.filter(|_| shape.name == "sp" && !shape.texts.is_empty())?;
        if self.may_be_filled(shape, end) {
            return None;
        }
        let area = self.area_of(shape, end);
        let is_free = self.painted.iter().all(|painted| !may_overlap(*painted, area));
        is_free.then_some(background)
    }

    /// Returns true for a shape that may paint something behind the shapes that follow it.
    fn paints(&self, shape: &Shape, end: usize) -> bool {
        match shape.name.as_str() {
            "sp" => self.may_be_filled(shape, end),
            // Their shapes and cells are shapes of their own, or within one.
            "grpSp" | "tc" => false,
            _ => true,
        }
    }

    /// Returns true for a shape that may have a fill, also that of a placeholder of the layout.
    fn may_be_filled(&self, shape: &Shape, end: usize) -> bool {
        let xml = &self.xml[shape.start..end];
        self.shapes.len() > MAX_OUTER_SHAPES
            || may_be_filled(xml)
            || (self.layout.fills_placeholders && is_placeholder(xml))
    }

    /// Returns the area of a shape; `None` within a group, which has coordinates of its own.
    fn area_of(&self, shape: &Shape, end: usize) -> Option<Area> {
        self.shapes.is_empty().then(|| area_of(&self.xml[shape.start..end])).flatten()
    }
}

/// Returns true for a shape whose properties may be those of a placeholder of the layout.
fn is_placeholder(shape: &str) -> bool {
    shape.contains("<p:ph")
}

/// Returns true for the elements of shapes and of the cells of tables.
fn is_shape(name: &str) -> bool {
    matches!(name, "sp" | "grpSp" | "graphicFrame" | "pic" | "cxnSp" | "tc")
}
