//! Styles of the cells of workbooks: number formats, and the fonts and fills that determine the visibility and form of text.

use std::collections::HashMap;

use quick_xml::events::{BytesStart, Event};

use super::color::{Color, are_indistinguishable, parse_color};
use super::number_format::NumberFormat;
use super::xml::{XmlEvents, attribute};

/// Maximum number of styles of cells that are read.
const MAX_STYLES: usize = 1 << 16;
/// Maximum size of text that counts as hidden, in points.
pub(super) const MAX_HIDDEN_SIZE: f64 = 1.0;

/// A color of text or of a fill.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CellColor {
    Known(Color),
    /// A color of the theme or the palette by its number, and its tint.
    Numbered(&'static str, u32, f64),
    Unknown,
}

impl CellColor {
    pub(super) const WHITE: Self = Self::Known([255; 3]);

    /// Reads the color of an element. The usual numbers of white may stand for another color.
    fn read(element: &BytesStart<'_>, has_usual_white: bool) -> Self {
        let tint: f64 = attribute(element, "tint").and_then(|tint| tint.parse().ok()).unwrap_or_default();
        if let Some(value) = attribute(element, "rgb") {
            // The opacity comes first, and is not applied.
            let color = value.get(2..).filter(|_| value.len() == 8 && tint == 0.0).and_then(parse_color);
            return color.map_or(Self::Unknown, Self::Known);
        }
        for list in ["theme", "indexed"] {
            if let Some(number) = attribute(element, list).and_then(|number| number.parse::<u32>().ok()) {
                return match (list, number) {
                    // The first color of themes is the background.
                    ("theme", 0) | ("indexed", 9) if tint == 0.0 && has_usual_white => Self::WHITE,
                    _ => Self::Numbered(list, number, tint),
                };
            }
        }
        Self::Unknown
    }

    /// Returns true for colors that a reader certainly cannot distinguish.
    pub(super) fn is_indistinguishable_from(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Known(color), Self::Known(other)) => are_indistinguishable(*color, *other),
            (Self::Unknown, _) => false,
            _ => self == other,
        }
    }
}

/// A font of cells.
#[derive(Debug, Clone)]
pub(super) struct CellFont {
    pub(super) color: CellColor,
    pub(super) size: f64,
    /// True for superscripts.
    pub(super) is_raised: bool,
}

impl Default for CellFont {
    fn default() -> Self {
        Self { color: CellColor::Unknown, size: f64::MAX, is_raised: false }
    }
}

impl CellFont {
    /// Applies an element of its properties.
    pub(super) fn apply(&mut self, element: &BytesStart<'_>, has_usual_white: bool) {
        let value = || attribute(element, "val");
        match element.name().into_inner() {
            "color" => self.color = CellColor::read(element, has_usual_white),
            "sz" => {
                let size = value().and_then(|size| size.parse().ok());
                self.size = size.unwrap_or(self.size);
            }
            "vertAlign" => self.is_raised = value().is_some_and(|script| script == "superscript"),
            _ => {}
        }
    }
}

/// A fill of cells.
#[derive(Debug, Clone)]
struct CellFill {
    color: CellColor,
    is_solid: bool,
}

/// A style of cells.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CellStyle {
    pub(super) format: NumberFormat,
    /// True for a format with a code. The reader would take any letter of it for that of a date.
    pub(super) has_code: bool,
    /// True for text of a point or less.
    pub(super) is_tiny: bool,
    /// True for text of the color of its fill, or in white without one.
    pub(super) has_color_of_fill: bool,
    pub(super) has_white_fill: bool,
}

/// Reads the styles of cells by their numbers.
pub(super) fn read_styles(xml: &str, has_usual_white: bool) -> Vec<CellStyle> {
    let mut formats: HashMap<u32, NumberFormat> = HashMap::new();
    let (mut fonts, mut fills): (Vec<CellFont>, Vec<CellFill>) = (Vec::new(), Vec::new());
    let mut styles = Vec::new();
    let mut list = String::new();
    let mut events = XmlEvents::new(xml);
    while let Some((event, _)) = events.next() {
        let (Event::Start(element) | Event::Empty(element)) = event else { continue };
        let number = |name: &str| attribute(&element, name).and_then(|value| value.parse::<u32>().ok());
        match (list.as_str(), element.name().into_inner()) {
            (_, name @ ("numFmts" | "fonts" | "fills" | "cellXfs" | "cellStyleXfs" | "dxfs")) => {
                list = name.to_owned();
            }
            ("numFmts", "numFmt") => {
                if let (Some(id), Some(code)) = (number("numFmtId"), attribute(&element, "formatCode")) {
                    formats.insert(id, NumberFormat::parse(&code));
                }
            }
            ("fonts", "font") => fonts.push(CellFont::default()),
            ("fonts", _) => {
                if let Some(font) = fonts.last_mut() {
                    font.apply(&element, has_usual_white);
                }
            }
            // A fill that is not a pattern is a gradient.
            ("fills", "fill") => fills.push(CellFill { color: CellColor::Unknown, is_solid: false }),
            ("fills", name) => apply_to_fill(fills.last_mut(), name, &element, has_usual_white),
            ("cellXfs", "xf") if styles.len() < MAX_STYLES => {
                let id = number("numFmtId").unwrap_or_default();
                let font = number("fontId").and_then(|number| fonts.get(number as usize));
                let fill = number("fillId").and_then(|number| fills.get(number as usize));
                styles.push(CellStyle {
                    format: formats.get(&id).copied().unwrap_or_else(|| NumberFormat::built_in(id)),
                    has_code: formats.contains_key(&id),
                    has_white_fill: fill.is_some_and(|fill| fill.color == CellColor::WHITE),
                    is_tiny: font.is_some_and(|font| font.size <= MAX_HIDDEN_SIZE),
                    has_color_of_fill: font
                        .zip(fill)
                        .is_some_and(|(font, fill)| font.color.is_indistinguishable_from(&fill.color)),
                });
            }
            _ => {}
        }
    }
    styles
}

/// Applies an element within a fill. Of a solid pattern, only the foreground is visible.
fn apply_to_fill(fill: Option<&mut CellFill>, name: &str, element: &BytesStart<'_>, has_usual_white: bool) {
    let Some(fill) = fill else { return };
    match (name, attribute(element, "patternType").as_deref()) {
        ("patternFill", None | Some("none")) => fill.color = CellColor::WHITE,
        ("patternFill", Some("solid")) => fill.is_solid = true,
        ("fgColor", _) if fill.is_solid => fill.color = CellColor::read(element, has_usual_white),
        _ => {}
    }
}
