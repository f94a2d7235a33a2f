//! Visibility of text on slides by its own properties, the fill of its shape, and the background of the shape.

use quick_xml::events::{BytesStart, Event};

use super::color::{Color, are_indistinguishable, parse_color};
use super::theme::SlideColors;
use super::xml::{XmlEvents, attribute};

/// Maximum size of text that counts as hidden, in hundredths of a point.
const MAX_HIDDEN_SIZE: u32 = 100;
/// Maximum opacity of text that counts as hidden, in thousandths of a percent: 8 of 255.
const MAX_HIDDEN_OPACITY: f64 = 3_137.0;
/// Maximum nesting depth of elements that are read.
const MAX_DEPTH: usize = 8;
/// Shapes whose fill is behind all of their text.
const FILLED_SHAPES: [&str; 2] = ["rect", "roundRect"];

/// Visibility of the text of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunVisibility {
    Shown,
    /// Too small or transparent.
    Hidden,
    /// In a color, with the fill of the shape behind it.
    Colored(Color),
}

/// A fill of text, or of its background.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fill {
    None,
    Color(Color),
    /// A gradient, a picture, or a color that is changed or not known.
    Unknown,
}

/// Returns the visibility of a run by its element or that of its properties.
pub(super) fn text_visibility(run: &str, colors: &SlideColors) -> RunVisibility {
    let mut properties = RunProperties::default();
    walk(run, |path, element| {
        let start = path.iter().position(|name| name == "rPr");
        let path: Vec<&str> = path.iter().skip(start.unwrap_or(path.len())).map(String::as_str).collect();
        properties.apply(&path, element, colors);
    });
    properties.visibility()
}

/// Returns the color behind the text of a shape or cell by the element with its properties. `None` if it is not certain.
pub(super) fn color_behind(properties: &str, colors: &SlideColors) -> Option<Color> {
    let (mut fill, mut is_filled) = (Fill::Unknown, false);
    walk(properties, |path, element| {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let name = element.local_name();
        match (path.as_slice(), name.into_inner()) {
            ([], name) => is_filled = name == "tcPr",
            (["spPr"], "prstGeom") => {
                let shape = attribute(element, "prst").unwrap_or_default();
                is_filled = FILLED_SHAPES.contains(&shape.as_str());
            }
            (["spPr" | "tcPr", "solidFill"], _) => fill = read_fill(element, colors),
            // A color with an opacity or another modification.
            (["spPr" | "tcPr", "solidFill", _], _) => fill = Fill::Unknown,
            _ => {}
        }
    });
    match fill {
        Fill::Color(color) if is_filled => Some(color),
        _ => None,
    }
}

/// Calls a function for each element with the local names of those around it. Elements that are nested deeper than any
/// property is are left out.
fn walk(xml: &str, mut visit: impl FnMut(&[String], &BytesStart<'_>)) {
    let mut path: Vec<String> = Vec::new();
    let mut events = XmlEvents::new(xml);
    while let Some((event, _)) = events.next() {
        match event {
            Event::Start(element) if path.len() >= MAX_DEPTH => {
                events.skip(&element);
            }
            Event::Start(element) => {
                visit(&path, &element);
                path.push(element.local_name().into_inner().to_owned());
            }
            Event::Empty(element) => visit(&path, &element),
            Event::End(_) => {
                path.pop();
            }
            _ => {}
        }
    }
}

/// Returns true for a shape that may have a fill: its own, unless it is none, or that of a style.
pub(super) fn may_be_filled(shape: &str) -> bool {
    let (mut is_filled, mut has_style) = (None, false);
    walk(shape, |path, element| match (path.last().map(String::as_str), element.local_name().into_inner()) {
        (Some("spPr"), "noFill") => is_filled = Some(false),
        (Some("spPr"), "solidFill" | "gradFill" | "blipFill" | "pattFill" | "grpFill") => {
            is_filled = Some(true);
        }
        (_, "style") => has_style = true,
        _ => {}
    });
    is_filled.unwrap_or(has_style)
}

/// The area of a shape on a slide, as its edges at the left, the top, the right and the bottom.
pub(super) type Area = [i64; 4];

/// Returns the area of a shape; `None` if it is turned, or has that of a placeholder.
pub(super) fn area_of(shape: &str) -> Option<Area> {
    let (mut offset, mut size, mut is_turned) = (None, None, false);
    walk(shape, |path, element| {
        let pair = |first: &str, second: &str| {
            let number = |name: &str| attribute(element, name)?.parse::<i64>().ok();
            Some((number(first)?, number(second)?))
        };
        match (path.last().map(String::as_str), element.local_name().into_inner()) {
            (_, "xfrm") => is_turned |= attribute(element, "rot").is_some_and(|angle| angle != "0"),
            (Some("xfrm"), "off") => offset = offset.or(pair("x", "y")),
            (Some("xfrm"), "ext") => size = size.or(pair("cx", "cy")),
            _ => {}
        }
    });
    let ((left, top), (width, height)) = offset.zip(size).filter(|_| !is_turned)?;
    Some([left, top, left.saturating_add(width), top.saturating_add(height)])
}

/// Returns true for areas that may overlap. One that is not known may be anywhere.
pub(super) fn may_overlap(area: Option<Area>, other: Option<Area>) -> bool {
    let (Some([left, top, right, bottom]), Some(other)) = (area, other) else { return true };
    left < other[2] && other[0] < right && top < other[3] && other[1] < bottom
}

/// Reads the color of a fill.
fn read_fill(color: &BytesStart<'_>, colors: &SlideColors) -> Fill {
    let value = attribute(color, "val");
    let color = match color.local_name().into_inner() {
        "srgbClr" => value.as_deref().and_then(parse_color),
        "schemeClr" => value.as_deref().and_then(|name| colors.color(name)),
        _ => None,
    };
    color.map_or(Fill::Unknown, Fill::Color)
}

/// Parses an opacity in thousandths of a percent, or in percent with a sign.
fn parse_opacity(value: &str) -> Option<f64> {
    match value.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok().map(|percent| percent * 1_000.0),
        None => value.parse().ok(),
    }
}

/// Properties of a run of text.
#[derive(Debug, Default)]
struct RunProperties {
    size: Option<u32>,
    /// The fill of the text; `None` for that of its style.
    fill: Option<Fill>,
    is_transparent: bool,
    highlight: Option<Fill>,
    has_outline: bool,
    /// True for text with shadows or the like, or in the color of links.
    has_effects: bool,
}

impl RunProperties {
    /// Applies an element by the names of those around it, from that of the properties on.
    fn apply(&mut self, path: &[&str], element: &BytesStart<'_>, colors: &SlideColors) {
        let name = element.local_name();
        match (path, name.into_inner()) {
            ([], "rPr") => self.size = attribute(element, "sz").and_then(|size| size.parse().ok()),
            (["rPr"], "noFill") => self.fill = Some(Fill::None),
            (["rPr"], "solidFill" | "gradFill" | "blipFill" | "pattFill" | "grpFill") => {
                self.fill = Some(Fill::Unknown);
            }
            (["rPr", "solidFill"], _) => self.fill = Some(read_fill(element, colors)),
            (["rPr", "solidFill", _], "alpha") => {
                let opacity = attribute(element, "val").as_deref().and_then(parse_opacity);
                self.is_transparent |= opacity.is_some_and(|opacity| opacity <= MAX_HIDDEN_OPACITY);
            }
            (["rPr", "solidFill", _], _) => self.fill = Some(Fill::Unknown),
            (["rPr"], "highlight") => self.highlight = Some(Fill::Unknown),
            (["rPr", "highlight"], _) => self.highlight = Some(read_fill(element, colors)),
            (["rPr"], "ln") => self.has_outline = true,
            (["rPr", "ln"], "noFill") => self.has_outline = false,
            (["rPr"], "hlinkClick") | (["rPr", "effectLst" | "effectDag"], _) => {
                self.has_effects = true;
            }
            _ => {}
        }
    }

    fn visibility(&self) -> RunVisibility {
        if self.size.is_some_and(|size| size <= MAX_HIDDEN_SIZE) {
            return RunVisibility::Hidden;
        }
        if self.has_outline || self.has_effects {
            return RunVisibility::Shown;
        }
        match (self.fill, self.highlight) {
            _ if self.is_transparent => RunVisibility::Hidden,
            (Some(Fill::None), _) => RunVisibility::Hidden,
            (Some(Fill::Color(color)), None) => RunVisibility::Colored(color),
            (Some(Fill::Color(color)), Some(Fill::Color(behind))) if are_indistinguishable(color, behind) => {
                RunVisibility::Hidden
            }
            _ => RunVisibility::Shown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_judged_by_their_properties() {
        let white = "<a:solidFill><a:srgbClr val=\"FFFFFF\"/></a:solidFill>";
        let highlight =
            |color: &str| format!("{white}<a:highlight><a:srgbClr val=\"{color}\"/></a:highlight>");
        let alpha = |value: &str| {
            format!(
                "<a:solidFill><a:schemeClr val=\"tx1\"><a:alpha val=\"{value}\"/></a:schemeClr></a:solidFill>"
            )
        };
        for (attributes, properties, expected) in [
            ("", String::new(), RunVisibility::Shown),
            ("sz=\"100\"", String::new(), RunVisibility::Hidden),
            ("sz=\"800\"", String::new(), RunVisibility::Shown),
            ("", white.to_owned(), RunVisibility::Colored([255; 3])),
            ("", "<a:noFill/>".to_owned(), RunVisibility::Hidden),
            ("", "<a:ln><a:solidFill/></a:ln><a:noFill/>".to_owned(), RunVisibility::Shown),
            ("", "<a:ln><a:noFill/></a:ln><a:noFill/>".to_owned(), RunVisibility::Hidden),
            (
                "",
                "<a:noFill/><a:effectLst><a:glow rad=\"1\"/></a:effectLst>".to_owned(),
                RunVisibility::Shown,
            ),
            ("", "<a:noFill/><a:effectLst/>".to_owned(), RunVisibility::Hidden),
            ("", format!("{white}<a:hlinkClick r:id=\"rId1\"/>"), RunVisibility::Shown),
            ("", "<a:solidFill><a:schemeClr val=\"bg1\"/></a:solidFill>".to_owned(), RunVisibility::Shown),
            ("", highlight("FEFEFE"), RunVisibility::Hidden),
            ("", highlight("000000"), RunVisibility::Shown),
            ("", alpha("0"), RunVisibility::Hidden),
            ("", alpha("2%"), RunVisibility::Hidden),
            ("", alpha("50000"), RunVisibility::Shown),
            ("", alpha("100%"), RunVisibility::Shown),
        ] {
            let properties = format!("<a:rPr {attributes}>{properties}</a:rPr>");
            assert_eq!(text_visibility(&properties, &SlideColors::default()), expected, "{properties}");
            let run = format!("<a:r>{properties}<a:t>text</a:t></a:r>");
            assert_eq!(text_visibility(&run, &SlideColors::default()), expected, "{run}");
        }
    }

    #[test]
    fn fills_are_recognized_by_color_and_shape() {
        let fill = "<a:solidFill><a:srgbClr val=\"102030\"/></a:solidFill>";
        let shape = |kind: &str| format!("<a:prstGeom prst=\"{kind}\"><a:avLst/></a:prstGeom>");
        let known = Some([0x10, 0x20, 0x30]);
        for (properties, expected) in [
            (format!("<p:spPr>{}{fill}</p:spPr>", shape("rect")), known),
            (format!("<p:spPr>{}{fill}</p:spPr>", shape("frame")), None),
            (format!("<p:spPr>{fill}</p:spPr>"), None),
            (format!("<p:spPr>{}<a:ln>{fill}</a:ln></p:spPr>", shape("rect")), None),
            (format!("<a:tcPr>{fill}</a:tcPr>"), known),
            (format!("<a:tcPr><a:lnL>{fill}</a:lnL></a:tcPr>"), None),
            ("<a:tcPr><a:solidFill><a:srgbClr val=\"102030\"><a:alpha val=\"5\"/></a:srgbClr></a:solidFill></a:tcPr>".to_owned(), None),
        ] {
            assert_eq!(color_behind(&properties, &SlideColors::default()), expected, "{properties}");
        }
    }
}
