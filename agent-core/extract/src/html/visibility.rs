//! Visibility of the text of HTML elements, by their attributes, their styles and the style sheets within the page.
//!
//! A text is hidden if a browser would not show it: it has no size, lies outside the page or a clip, is transparent, or has
//! the color of its background. If that is not certain, the text is kept:
//!
//! - Scripts and other files are not read.
//! - A rule whose selector is not evaluated can show an element and never hides one.
//! - The background of an element that overlaps others, and any background if the page has further style sheets, is known
//!   only if the element states it.

use super::css::{
    MEDIUM_FONT_PIXELS, PAGE_PIXELS, Paint, flattens, is_flat, is_transparent, pixels, split_at_top_level,
};
use super::movement::{Movement, ROW_DISPLAYS};
use super::sheets::{Cascade, PropertyValue, StyleSheets, StyledElement};

/// Maximum size of text that counts as hidden, in pixels: a point.
const MAX_HIDDEN_FONT_PIXELS: f32 = 1.34;
/// Distance from the page in pixels from which nothing is seen.
const OFF_PAGE_PIXELS: f32 = -900.0;
/// Maximum width and height of a box within which nothing is seen, in pixels.
const MAX_HIDDEN_BOX_PIXELS: f32 = 1.0;
/// Negative margin in pixels from which an element may overlap the one before it.
const OVERLAP_PIXELS: f32 = -24.0;
/// Parts of tables, which are as large as their content regardless of their size.
const TABLE_PARTS: [&str; 7] = ["table", "tbody", "td", "tfoot", "th", "thead", "tr"];
/// Elements that are boxes unless a style says otherwise. Others are within lines of text, where sizes, indents, upper margins
/// and transformations have no effect.
const BOXED_ELEMENTS: [&str; 49] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "caption",
    "center",
    "dd",
    "details",
    "dir",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hgroup",
    "hr",
    "html",
    "img",
    "legend",
    "li",
    "main",
    "menu",
    "ol",
    "optgroup",
    "option",
    "p",
    "pre",
    "search",
    "section",
    "summary",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "tr",
    "ul",
];
/// Values of `display` of elements without a box of their own.
const UNBOXED_DISPLAYS: [&str; 7] =
    ["contents", "inherit", "initial", "inline", "revert", "revert-layer", "unset"];
/// Maximum difference per channel of two colors that a reader cannot distinguish.
const MAX_COLOR_DIFFERENCE: u8 = 8;
/// Maximum number of classes of an element that are compared.
const MAX_CLASSES: usize = 256;
/// Colors that browsers give to links and marked text.
const LINK_COLOR: Paint = Paint::Solid([0, 0, 238]);
const MARK_COLOR: Paint = Paint::Solid([255, 255, 0]);

/// An HTML element with the attributes that determine whether its text is visible.
#[derive(Debug, Default)]
pub(super) struct VisualElement<'a> {
    pub(super) styled: StyledElement<'a>,
    is_link: bool,
    /// True for a picture as background by an attribute.
    has_picture: bool,
    /// The colors of text and background by attributes.
    colors: (Option<Paint>, Option<Paint>),
}

impl<'a> VisualElement<'a> {
    pub(super) fn new(tag: &'a str) -> Self {
        Self { styled: StyledElement { tag, ..StyledElement::default() }, ..Self::default() }
    }

    /// Adds an attribute.
    pub(super) fn add(&mut self, name: &str, value: &'a str) {
        let color = || Some(Paint::parse(&value.trim().to_ascii_lowercase()));
        match (name, self.styled.tag) {
            ("id", _) => self.styled.id = value.trim(),
            ("class", _) => self.styled.classes = value.split_ascii_whitespace().take(MAX_CLASSES).collect(),
            ("style", _) => self.styled.style = value,
            ("href", "a") => self.is_link = true,
            ("color", "font") | ("text", "body") => self.colors.0 = color(),
            ("bgcolor", _) => self.colors.1 = color(),
            ("background", _) => self.has_picture = true,
            _ => {}
        }
    }
}

/// The styles that determine whether the text of an element is visible, with those that its descendants inherit.
#[derive(Debug, Clone)]
pub(super) struct TextVisibility {
    color: Paint,
    /// The color that letters are filled with in place of that of the text.
    fill: Option<Paint>,
    background: Paint,
    font_pixels: f32,
    is_invisible: bool,
    is_indented_away: bool,
    movement: Movement,
    /// True if the elements that are directly in this one have boxes of their own.
    has_items: bool,
    /// True if a shadow, an outline, a filter or a clipped background shows the text regardless of its color.
    has_effects: bool,
}

impl TextVisibility {
    /// Returns the visibility of a page's text that has no style.
    pub(super) fn of_page(sheets: &StyleSheets) -> Self {
        Self {
            color: Paint::BLACK,
            fill: None,
            background: if sheets.is_incomplete() || sheets.is_layered() {
                Paint::Unknown
            } else {
                Paint::WHITE
            },
            font_pixels: MEDIUM_FONT_PIXELS,
            is_invisible: false,
            is_indented_away: false,
            movement: Movement::default(),
            has_items: false,
            has_effects: false,
        }
    }

    /// Returns true if the text directly within the element is invisible.
    pub(super) fn hides_text(&self) -> bool {
        let has_color_of_background = match (self.fill.unwrap_or(self.color), self.background) {
            (Paint::Transparent, _) => true,
            (Paint::Solid(text), Paint::Solid(behind)) => {
                text.iter().zip(behind).all(|(&text, behind)| text.abs_diff(behind) <= MAX_COLOR_DIFFERENCE)
            }
            _ => false,
        };
        self.is_invisible
            || self.is_indented_away
            || self.movement.is_off_page()
            || self.font_pixels <= MAX_HIDDEN_FONT_PIXELS
            || (has_color_of_background && !self.has_effects)
    }

    /// Returns true if pictures directly within the element are invisible.
    pub(super) fn hides_pictures(&self) -> bool {
        self.is_invisible || self.movement.is_off_page()
    }

    /// Returns the visibility of the text of an element within this one; `None` if nothing within it is seen.
    pub(super) fn within(&self, element: &VisualElement<'_>, sheets: &StyleSheets) -> Option<Self> {
        let cascade = sheets.cascade(&element.styled);
        let font_pixels = self.font_pixels(&cascade);
        let has_box = has_box(element.styled.tag, self.has_items, &cascade);
        if hides_all(element.styled.tag, has_box, &cascade, font_pixels) {
            return None;
        }
        let has_items = ROW_DISPLAYS.contains(&cascade.certain("display"));
        let mut inner = Self { font_pixels, has_items, ..self.clone() };
        inner.set_colors(element, &cascade);
        inner.set_background(element, &cascade, sheets.is_layered());
        match cascade.get("visibility") {
            PropertyValue::Set("inherit" | "unset") | PropertyValue::Unset => {}
            PropertyValue::Set(value) => inner.is_invisible = matches!(value, "hidden" | "collapse"),
            PropertyValue::Uncertain => inner.is_invisible = false,
        }
        match cascade.get("text-indent") {
            PropertyValue::Set("inherit" | "unset") | PropertyValue::Unset => {}
            PropertyValue::Set(value) if is_indented_away(value, &cascade, font_pixels) => {
                inner.is_indented_away |= has_box;
            }
            PropertyValue::Set(_) | PropertyValue::Uncertain => inner.is_indented_away = false,
        }
        // A script may move the page's elements, as slides.
        inner.movement = match sheets.is_incomplete() {
            true => Movement::default(),
            false => self.movement.within((has_box, self.has_items), &cascade, font_pixels),
        };
        Some(inner)
    }

    /// Sets the color of the text.
    fn set_colors(&mut self, element: &VisualElement<'_>, cascade: &Cascade) {
        let inherited = self.color;
        if element.is_link {
            self.color = LINK_COLOR;
        }
        if element.styled.tag == "mark" {
            self.color = Paint::BLACK;
        }
        self.color = element.colors.0.unwrap_or(self.color);
        match cascade.get("color") {
            PropertyValue::Unset => {}
            // Links and marked text have colors of their own without it.
            PropertyValue::Set("inherit" | "unset" | "currentcolor") => self.color = inherited,
            PropertyValue::Set(value) => self.color = Paint::parse(value),
            PropertyValue::Uncertain => self.color = Paint::Unknown,
        }
        match cascade.get("-webkit-text-fill-color") {
            PropertyValue::Unset | PropertyValue::Set("inherit" | "unset") => {}
            PropertyValue::Set("currentcolor" | "initial") => self.fill = None,
            PropertyValue::Set(value) => self.fill = Some(Paint::parse(value)),
            PropertyValue::Uncertain => self.fill = Some(Paint::Unknown),
        }
        let effects = ["-webkit-text-stroke", "filter", "mix-blend-mode", "text-shadow"];
        let clips = ["background-clip", "-webkit-background-clip"];
        self.has_effects |= effects.iter().any(|name| cascade.may_differ(name, &["none", "normal", "0"]))
            || clips.iter().any(|name| {
                matches!(cascade.get(name), PropertyValue::Set("text") | PropertyValue::Uncertain)
            });
    }

    /// Sets the background of the text by the attributes and styles of the element.
    fn set_background(&mut self, element: &VisualElement<'_>, cascade: &Cascade, is_layered: bool) {
        let may_overlap = may_overlap(cascade, self.font_pixels);
        let is_cell = matches!(element.styled.tag, "td" | "th");
        let outer = if may_overlap || (is_cell && is_layered) { Paint::Unknown } else { self.background };
        let mark = (element.styled.tag == "mark").then_some(MARK_COLOR);
        self.background = element.colors.1.or(mark).unwrap_or(outer);
        match cascade.get("background-color") {
            PropertyValue::Unset => {}
            PropertyValue::Set(value) => match Paint::parse_background(value) {
                Paint::Transparent => self.background = outer,
                paint => self.background = paint,
            },
            PropertyValue::Uncertain => self.background = Paint::Unknown,
        }
        // The shorthand for color and picture may have a color in brackets.
        let is_picture = |value: &str| value.contains('(') && Paint::parse(value) == Paint::Unknown;
        let has_picture = match cascade.get("background-image") {
            PropertyValue::Unset => false,
            PropertyValue::Set(value) => is_picture(value),
            PropertyValue::Uncertain => true,
        };
        // The element may contain some that are behind its text and over its background.
        let has_layers = may_overlap && is_layered;
        let is_dark = cascade.certain("color-scheme").contains("dark");
        if has_picture || element.has_picture || has_layers || is_dark {
            self.background = Paint::Unknown;
        }
    }

    /// Returns the size of an element's text in pixels.
    fn font_pixels(&self, cascade: &Cascade) -> f32 {
        match cascade.get("font-size") {
            PropertyValue::Unset | PropertyValue::Set("inherit" | "unset") => self.font_pixels,
            PropertyValue::Set("larger" | "smaller") => self.font_pixels,
            PropertyValue::Set(value) => {
                pixels(value, self.font_pixels, self.font_pixels).unwrap_or(MEDIUM_FONT_PIXELS)
            }
            PropertyValue::Uncertain => MEDIUM_FONT_PIXELS,
        }
    }
}

/// Returns true for an element that hides everything within it, regardless of the styles of the elements within it.
fn hides_all(tag: &str, has_box: bool, cascade: &Cascade, font_pixels: f32) -> bool {
    let value = |name: &str| cascade.certain(name);
    if value("display") == "none" || value("content-visibility") == "hidden" {
        return true;
    }
    // An animation may show the element, or move it into the page.
    if cascade.may_differ("animation-name", &["none"]) {
        return false;
    }
    let is_positioned = !matches!(value("position"), "" | "static");
    let lies_off_page = |name: &str| is_off_page(value(name), font_pixels);
    let clips = has_box
        && ["hidden", "clip"].iter().any(|clip| value("overflow").contains(clip))
        && !TABLE_PARTS.contains(&tag)
        && !value("display").contains("table");
    is_transparent(value("opacity"))
        || ["opacity(0)", "opacity(0%)"].iter().any(|filter| value("filter").contains(filter))
        || (has_box && flattens(value("transform")))
        || (has_box && is_flat(value("scale"), ' '))
        || (is_positioned && ["left", "top", "right", "bottom"].into_iter().any(lies_off_page))
        || is_beside_page(cascade, "margin-left", "padding-left", font_pixels)
        || (has_box && is_beside_page(cascade, "margin-top", "padding-top", font_pixels))
        || (clips && WIDTHS.is_too_small(cascade, font_pixels))
        || (clips && HEIGHTS.is_too_small(cascade, font_pixels))
        || (is_positioned && clips_all(value("clip")))
        || clips_path(value("clip-path"))
}

/// Returns true for an element that certainly has a box of its own, as an item beside others or by itself, and is no part of a line
/// of text.
fn has_box(tag: &str, is_item: bool, cascade: &Cascade) -> bool {
    let is_outside_lines = is_item
        || matches!(cascade.certain("position"), "absolute" | "fixed")
        || matches!(cascade.certain("float"), "left" | "right");
    if is_outside_lines && cascade.get("display") != PropertyValue::Set("contents") {
        return true;
    }
    match cascade.get("display") {
        PropertyValue::Unset => BOXED_ELEMENTS.contains(&tag),
        PropertyValue::Set(display) => !UNBOXED_DISPLAYS.contains(&display),
        PropertyValue::Uncertain => false,
    }
}

/// Returns true for an element that may overlap elements that do not contain it.
fn may_overlap(cascade: &Cascade, font_pixels: f32) -> bool {
    let is_pulled = |name: &str| {
        pixels(cascade.certain(name), font_pixels, PAGE_PIXELS).is_some_and(|offset| offset <= OVERLAP_PIXELS)
    };
    cascade.may_differ("position", &["static"])
        || cascade.may_differ("grid-area", &["auto"])
        || cascade.may_differ("transform", &["none"])
        || cascade.may_differ("translate", &["none"])
        || ["margin-left", "margin-top"].into_iter().any(is_pulled)
}

/// Returns true for a margin that moves an element off the page, unless its padding brings the text back. A margin in percent
/// does not count: layouts move columns by it, beside others that float.
fn is_beside_page(cascade: &Cascade, margin: &str, padding: &str, font_pixels: f32) -> bool {
    let length = |value: &str| pixels(value, font_pixels, PAGE_PIXELS);
    let padding = match cascade.get(padding) {
        PropertyValue::Unset => Some(0.0),
        PropertyValue::Set(padding) => length(padding),
        PropertyValue::Uncertain => None,
    };
    let margin = Some(cascade.certain(margin)).filter(|margin| !margin.ends_with('%')).and_then(length);
    margin.zip(padding).is_some_and(|(margin, padding)| margin + padding <= OFF_PAGE_PIXELS)
}

/// Properties that determine the size of a box in one direction.
struct BoxSizes {
    sizes: [&'static str; 2],
    /// Properties that enlarge the box beyond `sizes`.
    enlargements: [&'static str; 6],
}

const WIDTHS: BoxSizes = BoxSizes {
    sizes: ["width", "max-width"],
    enlargements: ["flex", "flex-basis", "flex-grow", "min-width", "padding-left", "padding-right"],
};
const HEIGHTS: BoxSizes = BoxSizes {
    sizes: ["height", "max-height"],
    enlargements: ["flex", "flex-basis", "flex-grow", "min-height", "padding-bottom", "padding-top"],
};

impl BoxSizes {
    /// Returns true for a box that is too small for a text.
    fn is_too_small(&self, cascade: &Cascade, font_pixels: f32) -> bool {
        let is_small = |value: &str| {
            pixels(value, font_pixels, PAGE_PIXELS).is_some_and(|size| size <= MAX_HIDDEN_BOX_PIXELS)
        };
        self.sizes.iter().any(|size| is_small(cascade.certain(size)))
            && self.enlargements.iter().all(|name| match cascade.get(name) {
                PropertyValue::Unset | PropertyValue::Set("none" | "auto") => true,
                PropertyValue::Set(value) => is_small(value),
                PropertyValue::Uncertain => false,
            })
    }
}

/// Returns true for an indent that moves the text of a line out of the page, or beyond the right side of a box that clips it.
/// Without `nowrap`, only the first word of a text begins there.
fn is_indented_away(indent: &str, cascade: &Cascade, font_pixels: f32) -> bool {
    let is_clipped = matches!(cascade.certain("white-space"), "nowrap" | "pre")
        && matches!(cascade.certain("overflow"), "hidden" | "clip");
    let is_beyond = |offset: f32| is_clipped && offset >= PAGE_PIXELS;
    is_off_page(indent, font_pixels) || pixels(indent, font_pixels, PAGE_PIXELS).is_some_and(is_beyond)
}

/// Returns true for a negative offset that places an element or text outside the page.
fn is_off_page(value: &str, font_pixels: f32) -> bool {
    pixels(value, font_pixels, PAGE_PIXELS).is_some_and(|offset| offset <= OFF_PAGE_PIXELS)
}

/// Returns true for a rectangle of the property `clip` that shows nothing.
fn clips_all(clip: &str) -> bool {
    let Some(sides) = clip.strip_prefix("rect(").and_then(|sides| sides.strip_suffix(')')) else {
        return false;
    };
    let sides: Vec<Option<f32>> = sides
        .split([',', ' '])
        .filter(|side| !side.is_empty())
        .map(|side| pixels(side, MEDIUM_FONT_PIXELS, PAGE_PIXELS))
        .collect();
    let [Some(top), Some(right), Some(bottom), Some(left)] = sides[..] else { return false };
    bottom - top <= MAX_HIDDEN_BOX_PIXELS || right - left <= MAX_HIDDEN_BOX_PIXELS
}

/// Returns true for a shape of the property `clip-path` that shows nothing.
fn clips_path(path: &str) -> bool {
    if let Some(radius) = path.strip_prefix("circle(").or_else(|| path.strip_prefix("ellipse(")) {
        return ["0)", "0 ", "0px", "0%"].iter().any(|zero| radius.starts_with(zero));
    }
    if let Some(points) = path.strip_prefix("polygon(").and_then(|points| points.strip_suffix(')')) {
        return is_line(points);
    }
    let Some(sides) = path.strip_prefix("inset(").and_then(|sides| sides.strip_suffix(')')) else {
        return false;
    };
    let sides: Vec<&str> = split_at_top_level(sides, ' ').take_while(|&side| side != "round").collect();
    // Lengths cannot be compared with the element's size, which is not known.
    let percent = |numbers: &[usize]| {
        let side = numbers.iter().find_map(|&number| sides.get(number))?;
        match side.strip_suffix('%') {
            Some(number) => number.parse::<f32>().ok(),
            None => side.starts_with('0').then_some(0.0),
        }
    };
    let [top, right, bottom, left] = [&[0][..], &[1, 0], &[2, 0], &[3, 1, 0]].map(percent);
    let covers = |first: Option<f32>, second: Option<f32>| {
        first.zip(second).is_some_and(|(first, second)| first + second >= 100.0)
    };
    covers(top, bottom) || covers(left, right)
}

/// Returns true for the points of a polygon that all have the same horizontal or the same vertical position.
fn is_line(points: &str) -> bool {
    let positions = |axis: usize| {
        let points = split_at_top_level(points, ',').filter(|point| !matches!(*point, "evenodd" | "nonzero"));
        points.map(move |point| match split_at_top_level(point, ' ').nth(axis) {
            Some("0" | "0px" | "0%") => Some("0"),
            position => position,
        })
    };
    (0..2).any(|axis| {
        let first = positions(axis).next().flatten();
        first.is_some() && positions(axis).all(|position| position == first)
    })
}
