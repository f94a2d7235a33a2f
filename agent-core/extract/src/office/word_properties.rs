//! Properties of text in Word documents that determine its visibility and form.

use quick_xml::events::BytesStart;

use super::color::{Color, parse_color};
use super::theme::ThemeColors;
use super::xml::attribute;

/// Colors of a theme that text and shadings name, with the attributes that change them.
const TEXT_THEME_COLOR: [&str; 3] = ["w:themeColor", "w:themeTint", "w:themeShade"];
const FILL_THEME_COLOR: [&str; 3] = ["w:themeFill", "w:themeFillTint", "w:themeFillShade"];

/// A color or pattern behind a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shading {
    Color(Color),
    /// A pattern, a picture, a shape, or the shading of a style.
    Unknown,
}

/// Properties of text.
#[derive(Debug, Clone, Default)]
pub(super) struct TextProperties {
    pub(super) is_hidden: Option<bool>,
    /// The color; `None` within for the automatic one, which differs from the background.
    pub(super) color: Option<Option<Color>>,
    pub(super) size: Option<u32>,
    pub(super) shading: Option<Shading>,
    /// True for text that a shadow, a glow, a relief or a gradient shows, regardless of its color.
    pub(super) has_effects: Option<bool>,
    pub(super) has_outline: Option<bool>,
    /// True for superscripts.
    pub(super) is_raised: Option<bool>,
    /// True after the element of the fill; what follows describes the outline.
    has_text_fill: bool,
}

impl TextProperties {
    /// Applies an element of properties.
    pub(super) fn apply(&mut self, element: &BytesStart<'_>, theme: &ThemeColors) {
        let value = attribute(element, "w:val");
        let is_off = value.as_deref().is_some_and(|value| matches!(value, "0" | "false" | "off" | "none"));
        match element.name().into_inner() {
            "w:vanish" => self.is_hidden = Some(!is_off),
            "w:outline" | "w:shadow" | "w:emboss" | "w:imprint" => {
                self.has_effects = Some(self.has_effects == Some(true) || !is_off);
            }
            "w14:glow" | "w14:shadow" | "w14:gradFill" => self.has_effects = Some(true),
            "w14:textOutline" => self.has_outline = Some(true),
            "w14:textFill" => self.has_text_fill = true,
            "w14:noFill" if !self.has_text_fill => self.has_outline = Some(false),
            "w:color" => {
                // The value is that for readers without themes.
                let color = theme.word_color(element, TEXT_THEME_COLOR);
                self.color = Some(color.or_else(|| value.as_deref().and_then(parse_color)));
            }
            "w:vertAlign" => self.is_raised = value.map(|value| value == "superscript"),
            "w:sz" => self.size = value.and_then(|value| value.parse().ok()),
            "w:shd" => self.shading = parse_shading(element, theme).or(self.shading),
            "w:highlight" => {
                self.shading = match value.as_deref() {
                    None | Some("none") => self.shading,
                    Some("white") => Some(Shading::Color([255; 3])),
                    Some(_) => Some(Shading::Unknown),
                }
            }
            _ => {}
        }
    }

    /// Returns these properties where they are set, and the others elsewhere.
    pub(super) fn or(self, other: &Self) -> Self {
        Self {
            is_hidden: self.is_hidden.or(other.is_hidden),
            color: self.color.or(other.color),
            size: self.size.or(other.size),
            shading: self.shading.or(other.shading),
            has_effects: self.has_effects.or(other.has_effects),
            has_outline: self.has_outline.or(other.has_outline),
            is_raised: self.is_raised.or(other.is_raised),
            has_text_fill: self.has_text_fill,
        }
    }
}

/// Parses a shading; `None` for one that paints nothing.
fn parse_shading(element: &BytesStart<'_>, theme: &ThemeColors) -> Option<Shading> {
    let fill = attribute(element, "w:fill");
    let is_clear = attribute(element, "w:val").is_none_or(|value| matches!(value.as_str(), "clear" | "nil"));
    let has_theme_fill = attribute(element, "w:themeFill").is_some();
    if let Some(color) = theme.word_color(element, FILL_THEME_COLOR).filter(|_| is_clear) {
        return Some(Shading::Color(color));
    }
    match fill.as_deref() {
        None | Some("auto") if is_clear && !has_theme_fill => None,
        Some(fill) if is_clear => Some(parse_color(fill).map_or(Shading::Unknown, Shading::Color)),
        _ => Some(Shading::Unknown),
    }
}
