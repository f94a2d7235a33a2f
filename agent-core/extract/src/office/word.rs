//! Rewrites Word documents without hidden text and replaced tracked changes, and with formulas as text.

use std::collections::BTreeMap;
use std::ops::Range;

use quick_xml::escape::escape;
use quick_xml::events::{BytesStart, Event};

use super::color::are_indistinguishable;
use super::diagram::{DIAGRAM, DIAGRAM_DATA, read_diagrams};
use super::formula::read_formula;
use super::parts::OfficeParts;
use super::symbol::symbol_text;
use super::theme::ThemeColors;
use super::word_comments::comment_texts;
use super::word_numbering::{ListPosition, WordNumbering};
use super::word_properties::{Shading, TextProperties};
use super::word_styles::WordStyles;
use super::xml::{XmlChanges, XmlEvents, attribute};
use crate::superscript::raised;

/// Elements with the text and the properties before tracked changes. The reader would take the properties for the present
/// ones. The last element is the reading beside a text, which would be read as a part of it.
const OMITTED_ELEMENTS: [&str; 10] = [
    "w:del",
    "w:moveFrom",
    "w:pPrChange",
    "w:rPrChange",
    "w:sectPrChange",
    "w:tblPrChange",
    "w:tblPrExChange",
    "w:tcPrChange",
    "w:trPrChange",
    "w:rt",
];
/// Signs of a picture or color behind the text of pages, which headers can have too.
const BACKGROUND_SIGNS: [&str; 4] = ["<w:background", "behindDoc=\"1\"", "behindDoc=\"true\"", "z-index:-"];
/// A space in the text of a note, whose lines and paragraphs would be joined.
const SPACE_IN_NOTE: &str = "<w:t> </w:t>";
/// The open elements of properties around the position of a paragraph in a list, and around the properties of its mark.
const LIST_PROPERTIES: [&str; 2] = ["w:pPr", "w:numPr"];
const MARK_PROPERTIES: [&str; 2] = ["w:pPr", "w:rPr"];
/// Part with the text of the document, which alone has diagrams and numbers. Copies of them for each part would exceed the
/// limits on the archive's expanded size.
const DOCUMENT: &str = "word/document.xml";
/// Parts with the comments and the lists.
const COMMENTS: &str = "word/comments.xml";
const NUMBERING: &str = "word/numbering.xml";
/// Maximum size of text that counts as hidden, in half points.
const MAX_HIDDEN_SIZE: u32 = 2;

/// The names of a theme's colors in a document, with those that they usually stand for.
const COLOR_MAPPING: [(&str, &str); 4] =
    [("w:bg1", "light1"), ("w:t1", "dark1"), ("w:bg2", "light2"), ("w:t2", "dark2")];

/// Rewrites the parts of a Word document so that they contain only visible content.
pub(super) fn rewrite_as_shown(parts: &mut OfficeParts<'_>) {
    let theme = read_theme(parts);
    let styles = parts.xml("word/styles.xml").unwrap_or_default();
    let styles = WordStyles::read(&styles, theme);
    let mut texts = Vec::new();
    for name in parts.names() {
        if name.ends_with(".xml") && name != "word/styles.xml" {
            let xml = parts.xml(&name).filter(|xml| xml.contains("<w:p"));
            texts.extend(xml.map(|xml| (name, xml)));
        }
    }
    let has_background = texts.iter().any(|(_, xml)| BACKGROUND_SIGNS.iter().any(|sign| xml.contains(sign)));
    for (name, xml) in texts {
        let mut editor = PartEditor::new(&xml, &styles, has_background);
        if name == DOCUMENT {
            editor.diagrams = read_diagrams(parts, DOCUMENT);
            if let Some(xml) = parts.xml(COMMENTS) {
                let shown = PartEditor::new(&xml, &styles, has_background).edit();
                editor.comments = comment_texts(shown.as_deref().unwrap_or(&xml));
            }
            editor.numbering = parts.xml(NUMBERING).map(|xml| WordNumbering::read(&xml)).unwrap_or_default();
        }
        if let Some(changed) = editor.edit() {
            parts.put(&name, changed);
        }
    }
}

/// Reads the colors of the theme; none if the document has other names for them.
fn read_theme(parts: &mut OfficeParts<'_>) -> ThemeColors {
    let settings = parts.xml("word/settings.xml").unwrap_or_default();
    let mut events = XmlEvents::new(&settings);
    while let Some((event, _)) = events.next() {
        let (Event::Start(element) | Event::Empty(element)) = event else { continue };
        let is_other =
            |(name, usual): (&str, &str)| attribute(&element, name).is_some_and(|color| color != usual);
        if element.name().into_inner() == "w:clrSchemeMapping" && COLOR_MAPPING.into_iter().any(is_other) {
            return ThemeColors::default();
        }
    }
    parts.xml("word/theme/theme1.xml").map(|xml| ThemeColors::read(&xml)).unwrap_or_default()
}

/// An element that contains text.
#[derive(Debug)]
struct Scope {
    kind: ScopeKind,
    start: usize,
    style: Option<String>,
    properties: TextProperties,
    /// The positions of texts in a run.
    texts: Vec<Range<usize>>,
    /// Position of the property that raises or lowers a run.
    script: Option<Range<usize>>,
    /// True if a field begins or ends in a run.
    has_field: bool,
    /// True if a run contains a shape, whose text has properties of its own.
    has_object: bool,
    /// True for a row that is hidden or deleted, and for a paragraph that is deleted.
    is_hidden: bool,
    /// Position of a paragraph in a list, and the place of the properties that say so.
    list: ListPosition,
    list_place: Option<Range<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScopeKind {
    Paragraph,
    Run,
    Row,
    Cell,
    Table,
    /// A shape, whose background is its own.
    TextBox,
}

impl ScopeKind {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "w:p" => Self::Paragraph,
            "w:r" => Self::Run,
            "w:tr" => Self::Row,
            "w:tc" => Self::Cell,
            "w:tbl" => Self::Table,
            "w:txbxContent" => Self::TextBox,
            _ => return None,
        })
    }

    /// Returns the name of the element with the properties of this one.
    fn properties(self) -> &'static str {
        match self {
            Self::Paragraph => "w:pPr",
            Self::Run => "w:rPr",
            Self::Row => "w:trPr",
            Self::Cell => "w:tcPr",
            Self::Table => "w:tblPr",
            Self::TextBox => "",
        }
    }
}

/// Editor of a part that contains text.
struct PartEditor<'x> {
    xml: &'x str,
    styles: &'x WordStyles,
    /// True if a picture or color may be behind the whole page.
    has_background: bool,
    /// True for footnotes and endnotes.
    has_notes: bool,
    scopes: Vec<Scope>,
    /// The elements of properties that are open.
    properties: Vec<String>,
    /// The lists, up to the paragraph that is read.
    numbering: WordNumbering,
    /// The end of the formula that was read last.
    formula_end: Option<usize>,
    /// Texts of comments, by their identifiers.
    comments: BTreeMap<String, String>,
    /// Texts of diagrams that were not placed yet, by the identifiers of their relations.
    diagrams: BTreeMap<String, String>,
    /// The text of the diagram in the open drawing.
    diagram: Option<String>,
    changes: XmlChanges<'x>,
}

impl<'x> PartEditor<'x> {
    fn new(xml: &'x str, styles: &'x WordStyles, has_background: bool) -> Self {
        Self {
            xml,
            styles,
            has_background,
            has_notes: xml.contains("<w:footnote ") || xml.contains("<w:endnote "),
            scopes: Vec::new(),
            properties: Vec::new(),
            numbering: WordNumbering::default(),
            formula_end: None,
            comments: BTreeMap::new(),
            diagrams: BTreeMap::new(),
            diagram: None,
            changes: XmlChanges::new(xml),
        }
    }

    fn edit(mut self) -> Option<String> {
        let mut events = XmlEvents::new(self.xml);
        while let Some((event, range)) = events.next() {
            match event {
                Event::Start(element) if OMITTED_ELEMENTS.contains(&element.name().into_inner()) => {
                    let end = events.skip(&element);
                    self.changes.remove(range.start..end);
                }
                Event::Start(element) if element.name().into_inner() == "w:t" => {
                    let end = events.skip(&element);
                    if let Some(run) = self.scopes.last_mut() {
                        run.texts.push(range.start..end);
                    }
                }
                Event::Start(element) if element.name().into_inner() == "m:oMath" => {
                    self.replace_formula(range.start, &mut events);
                }
                Event::Start(element) => self.open(&element, range.start),
                Event::Empty(element) if element.name().into_inner() == "w:sym" => {
                    self.replace_symbol(&element, range);
                }
                // The reader takes the cell for one of its own unless the value is left out.
                Event::Empty(element)
                    if element.name().into_inner() == "w:vMerge"
                        && attribute(&element, "w:val").is_some_and(|value| value == "continue") =>
                {
                    self.changes.replace(range, "<w:vMerge/>".to_owned());
                }
                Event::Empty(element) if element.name().into_inner() == "w:commentReference" => {
                    if let Some(text) = attribute(&element, "w:id").and_then(|id| self.comments.remove(&id)) {
                        self.changes.replace(
                            range,
                            format!("<w:t xml:space=\"preserve\"> [Comment: {}]</w:t>", escape(text)),
                        );
                    }
                }
                Event::Empty(element) if element.name().into_inner() == "w:vertAlign" => {
                    if let Some(run) = self.scopes.last_mut().filter(|scope| scope.kind == ScopeKind::Run) {
                        run.script = Some(range);
                    }
                    self.apply(&element);
                }
                Event::Empty(element) => {
                    let is_blank = matches!(element.name().into_inner(), "w:br" | "w:cr" | "w:tab");
                    if self.has_notes && is_blank && self.properties.is_empty() {
                        self.changes.replace(range, SPACE_IN_NOTE.to_owned());
                    } else {
                        self.apply(&element);
                    }
                }
                Event::End(element) => self.close(element.name().into_inner(), range),
                _ => {}
            }
        }
        self.changes.finish()
    }

    /// Puts the text of a symbol in its place.
    fn replace_symbol(&mut self, symbol: &BytesStart<'_>, place: Range<usize>) {
        let Some(text) = symbol_text(attribute(symbol, "w:font"), attribute(symbol, "w:char")) else {
            return;
        };
        if let Some(run) = self.scopes.last_mut() {
            run.texts.push(place.clone());
        }
        self.changes.replace(place, format!("<w:t xml:space=\"preserve\">{}</w:t>", escape(text)));
    }

    /// Puts a run with the text of a formula in its place. A space parts it from a formula directly before it.
    fn replace_formula(&mut self, start: usize, events: &mut XmlEvents<'_>) {
        let (text, end) = read_formula(self.xml, events, &|properties: &str| self.hides_formula(properties));
        let follows_formula =
            self.formula_end.is_some_and(|before| self.xml[before..start].trim().is_empty());
        let space = if follows_formula { " " } else { "" };
        let run = format!("<w:r><w:t xml:space=\"preserve\">{space}{text}</w:t></w:r>");
        self.changes.replace(start..end, run);
        self.formula_end = Some(end);
    }

    /// Returns true if the properties of a formula's run, as XML, make its text unseen.
    fn hides_formula(&self, properties: &str) -> bool {
        let mut run_properties = TextProperties::default();
        let mut style = None;
        let mut events = XmlEvents::new(properties);
        while let Some((event, _)) = events.next() {
            match event {
                Event::Start(element) if OMITTED_ELEMENTS.contains(&element.name().into_inner()) => {
                    events.skip(&element);
                }
                Event::Start(element) | Event::Empty(element) => match element.name().into_inner() {
                    "w:rStyle" => style = attribute(&element, "w:val"),
                    _ => run_properties.apply(&element, &self.styles.theme),
                },
                _ => {}
            }
        }
        let properties = self.with_styles(&run_properties, style.as_deref());
        properties.is_hidden == Some(true) || self.is_unseen(&properties)
    }

    fn open(&mut self, element: &BytesStart<'_>, start: usize) {
        let name = element.name().into_inner();
        if let Some(kind) = ScopeKind::of(name) {
            self.scopes.push(Scope {
                kind,
                start,
                style: None,
                properties: TextProperties::default(),
                texts: Vec::new(),
                script: None,
                has_field: false,
                has_object: false,
                is_hidden: false,
                list: ListPosition::default(),
                list_place: None,
            });
        } else if name.ends_with("Pr") {
            self.properties.push(name.to_owned());
            if self.properties == LIST_PROPERTIES
                && let Some(paragraph) = self.scopes.last_mut()
            {
                paragraph.list_place = Some(start..start);
            }
        } else {
            self.apply(element);
        }
    }

    /// Applies an element to the innermost scope, if it is one of its properties.
    fn apply(&mut self, element: &BytesStart<'_>) {
        let Some(scope) = self.scopes.last_mut() else { return };
        let name = element.name().into_inner();
        scope.has_field |= matches!(name, "w:fldChar" | "w:instrText");
        scope.has_object |= matches!(name, "w:drawing" | "w:pict" | "w:object");
        if element.local_name().into_inner() == DIAGRAM {
            self.diagram = attribute(element, DIAGRAM_DATA).and_then(|id| self.diagrams.remove(&id));
            return;
        }
        if self.properties == LIST_PROPERTIES {
            scope.list.apply(name, attribute(element, "w:val"));
        }
        // The mark of the paragraph is hidden, or a tracked change has deleted it.
        scope.is_hidden |= self.properties == MARK_PROPERTIES
            && (name == "w:del"
                || name == "w:vanish"
                    && attribute(element, "w:val").is_none_or(|value| value != "0" && value != "false"));
        // The properties of a paragraph contain those of its mark.
        if self.properties.len() != 1 || self.properties[0] != scope.kind.properties() {
            return;
        }
        match name {
            "w:pStyle" | "w:rStyle" | "w:tblStyle" => scope.style = attribute(element, "w:val"),
            "w:hidden" => {
                scope.is_hidden =
                    attribute(element, "w:val").is_none_or(|value| value != "0" && value != "false");
            }
            // A row that a tracked change has deleted.
            "w:del" if scope.kind == ScopeKind::Row => scope.is_hidden = true,
            _ => scope.properties.apply(element, &self.styles.theme),
        }
    }

    fn close(&mut self, name: &str, Range { start, end }: Range<usize>) {
        if name == "w:drawing"
            && let Some(text) = self.diagram.take()
        {
            self.changes.replace(end..end, format!("<w:t xml:space=\"preserve\">{}</w:t>", escape(text)));
        }
        if self.properties.last().is_some_and(|open| open == name) {
            let closes_list = self.properties == LIST_PROPERTIES;
            self.properties.pop();
            match self.scopes.last_mut() {
                Some(scope) if closes_list => {
                    scope.list_place = scope.list_place.take().map(|place| place.start..end);
                }
                Some(scope) if name == "w:pPr" && scope.kind == ScopeKind::Paragraph => {
                    self.write_number(end)
                }
                _ => {}
            }
            return;
        }
        let Some(kind) = ScopeKind::of(name) else { return };
        let Some(scope) = self.scopes.pop_if(|scope| scope.kind == kind) else { return };
        match kind {
            ScopeKind::Paragraph if self.has_notes => {
                self.changes.replace(start..start, format!("<w:r>{SPACE_IN_NOTE}</w:r>"));
            }
            ScopeKind::Row if scope.is_hidden => self.changes.remove(scope.start..end),
            ScopeKind::Run => {
                let properties = self.with_styles(&scope.properties, scope.style.as_deref());
                let is_hidden = properties.is_hidden == Some(true);
                if !is_hidden && !self.is_unseen(&properties) {
                    self.write_script(scope, properties.is_raised == Some(true));
                    return;
                }
                if scope.has_field || (scope.has_object && !is_hidden) {
                    // Fields begin and end in different runs. Size and color are those of text alone.
                    scope.texts.into_iter().for_each(|text| self.changes.remove(text));
                } else {
                    self.changes.remove(scope.start..end);
                }
            }
            _ => {}
        }
    }

    /// Writes the number of a heading or list item, whose properties end here, at the beginning of its text, unless the reader writes
    /// it as the document shows it: it leaves out those of headings, styles and cells, and the numbers of the levels above.
    fn write_number(&mut self, end: usize) {
        let is_in_cell = self.scopes.iter().any(|scope| scope.kind == ScopeKind::Cell);
        let Some(paragraph) = self.scopes.last() else { return };
        let place = paragraph.list_place.clone();
        if paragraph.is_hidden {
            place.into_iter().for_each(|place| self.changes.remove(place));
            return;
        }
        let style = paragraph.style.as_deref().or(self.styles.default_paragraph.as_deref());
        let position = paragraph.list.clone().or(&self.styles.list_position(style));
        let Some(number) = self.numbering.next(&position) else { return };
        let is_heading = self.styles.is_heading(style) && !is_in_cell;
        if number.is_plain && paragraph.list.has_list() && !is_heading && !is_in_cell {
            return;
        }
        // The reader counts headings for the list items behind them.
        if let Some(place) = place.filter(|_| !is_heading) {
            self.changes.remove(place);
        }
        let text = escape(&number.text);
        self.changes.replace(end..end, format!("<w:r><w:t xml:space=\"preserve\">{text} </w:t></w:r>"));
    }

    /// Writes a superscript as such, and text that cannot be as that of its line: the reader's markup is part of no word.
    fn write_script(&mut self, run: Scope, is_raised: bool) {
        for text in run.texts.into_iter().filter(|_| is_raised) {
            let part = self.xml;
            let xml = &part[text.clone()];
            let content = xml.find('>').map_or(0, |end| end + 1)..xml.rfind("</").unwrap_or(xml.len());
            if let Some(raised) = xml.get(content.clone()).and_then(raised) {
                self.changes.replace(text.start + content.start..text.start + content.end, raised);
            }
        }
        run.script.into_iter().for_each(|script| self.changes.remove(script));
    }

    /// Returns the properties of a run in the open paragraph with those of its styles.
    fn with_styles(&self, run: &TextProperties, run_style: Option<&str>) -> TextProperties {
        let paragraph = self.scopes.iter().rev().find(|scope| scope.kind == ScopeKind::Paragraph);
        let paragraph_style = paragraph.and_then(|paragraph| paragraph.style.as_deref());
        let paragraph_style = paragraph_style.or(self.styles.default_paragraph.as_deref());
        run.clone()
            .or(&self.styles.properties(run_style))
            .or(&self.styles.properties(paragraph_style))
            .or(&self.styles.defaults)
    }

    /// Returns true if the size or color of a text makes it unseen.
    fn is_unseen(&self, properties: &TextProperties) -> bool {
        if properties.size.is_some_and(|size| size <= MAX_HIDDEN_SIZE) {
            return true;
        }
        if properties.has_effects == Some(true) || properties.has_outline == Some(true) {
            return false;
        }
        let Some(Some(color)) = properties.color else { return false };
        match properties.shading.unwrap_or_else(|| self.background()) {
            Shading::Color(behind) => are_indistinguishable(color, behind),
            Shading::Unknown => false,
        }
    }

    /// Returns the background of a run without its own shading.
    fn background(&self) -> Shading {
        for scope in self.scopes.iter().rev() {
            if scope.kind == ScopeKind::TextBox {
                return Shading::Unknown;
            }
            let style = self.styles.properties(scope.style.as_deref());
            if let Some(shading) = scope.properties.shading.or(style.shading) {
                return shading;
            }
        }
        if self.has_background { Shading::Unknown } else { Shading::Color([255; 3]) }
    }
}
