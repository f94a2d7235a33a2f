//! Translations that move elements off the page.

use super::css::{PAGE_PIXELS, pixels, split_at_top_level};
use super::sheets::{Cascade, PropertyValue};

/// Offset in pixels, to the left or upwards, from which an element counts as moved off the page. A row of slides with one
/// visible slide is moved by the widths of those before.
const OFF_PAGE_PIXELS: f32 = -9_000.0;
/// Minimum width of an element that may reach back into the page, in pixels.
const MIN_WIDE_PIXELS: f32 = 5_000.0;
/// Minimum height in pixels of an element that may have several sections and show one of them.
const MIN_TALL_PIXELS: f32 = 900.0;
/// Minimum offset by another property that may bring an element back to the page, in pixels.
const MIN_RETURN_PIXELS: f32 = 900.0;
/// Properties of elements that lie beside others.
const SIDE_BY_SIDE_PROPERTIES: [&str; 5] = ["flex", "flex-basis", "flex-grow", "float", "grid-area"];
/// Properties that move an element or its text.
const OFFSET_PROPERTIES: [&str; 9] = [
    "bottom",
    "left",
    "margin-left",
    "margin-top",
    "padding-left",
    "padding-top",
    "right",
    "text-indent",
    "top",
];
/// Values of `display` of elements that place their children beside one another, each in a box. The children may be wider than
/// the element.
pub(super) const ROW_DISPLAYS: [&str; 4] = ["flex", "grid", "inline-flex", "inline-grid"];

/// Offset of an element from its place, with the offsets of the elements that contain it, in pixels.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Movement {
    right: f32,
    down: f32,
    /// Part of `right` that is stated in widths of the page, in such widths.
    page_widths: f32,
}

impl Movement {
    /// Returns true if an element with this offset is outside of the page.
    ///
    /// An element whose place is within the page is beside it once it is moved by the page's width to the left. How far down
    /// its place is, and how wide the page is in other units, is not known.
    pub(super) fn is_off_page(self) -> bool {
        self.right <= OFF_PAGE_PIXELS
            || self.down <= OFF_PAGE_PIXELS
            || (self.page_widths <= -1.0 && self.right <= -PAGE_PIXELS)
    }

    /// Returns the offset of an element within one with this offset; no offset if it is not certain. Translations have no effect
    /// on an element without a box. `is_item` is true for one that its parent puts beside others.
    pub(super) fn within(
        self,
        (has_box, is_item): (bool, bool),
        cascade: &Cascade,
        font_pixels: f32,
    ) -> Self {
        if may_return(cascade, font_pixels) {
            return Self::default();
        }
        let moved = match translation(cascade, font_pixels) {
            Some(_) if !has_box => self,
            Some(moved) => self.plus(moved),
            None => return Self::default(),
        };
        match is_item || may_be_slide(cascade, font_pixels) {
            true => Self { page_widths: 0.0, ..moved },
            false => moved,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            right: self.right + other.right,
            down: self.down + other.down,
            page_widths: self.page_widths + other.page_widths,
        }
    }
}

/// Returns true for an element that may be in a row of elements, and so may lie beside the page, or that may be wider than the
/// page.
fn may_be_slide(cascade: &Cascade, font_pixels: f32) -> bool {
    SIDE_BY_SIDE_PROPERTIES
        .iter()
        .any(|name| cascade.may_differ(name, &["0", "auto", "initial", "none", "unset"]))
        || ["width", "min-width"].iter().any(|name| reaches(cascade, name, MIN_RETURN_PIXELS, font_pixels))
}

/// Returns true for an element that may be seen although it is moved: other properties move it, too, or it is wide or tall.
fn may_return(cascade: &Cascade, font_pixels: f32) -> bool {
    let reaches = |name: &str, limit: f32| reaches(cascade, name, limit, font_pixels);
    let is_row = match cascade.get("display") {
        PropertyValue::Unset => false,
        PropertyValue::Set(value) => ROW_DISPLAYS.contains(&value),
        PropertyValue::Uncertain => true,
    };
    is_row
        || cascade.may_differ("animation-name", &["none"])
        || cascade.may_differ("white-space", &["normal"])
        || OFFSET_PROPERTIES.iter().any(|name| reaches(name, MIN_RETURN_PIXELS))
        || ["width", "min-width"].iter().any(|name| reaches(name, MIN_WIDE_PIXELS))
        || ["height", "min-height"].iter().any(|name| reaches(name, MIN_TALL_PIXELS))
}

/// Returns true for a property whose length is at least `limit` pixels to either side, or is not known.
fn reaches(cascade: &Cascade, name: &str, limit: f32, font_pixels: f32) -> bool {
    match cascade.get(name) {
        PropertyValue::Unset | PropertyValue::Set("auto" | "initial" | "none" | "unset") => false,
        PropertyValue::Set(value) => {
            pixels(value, font_pixels, PAGE_PIXELS).is_none_or(|length| length.abs() >= limit)
        }
        PropertyValue::Uncertain => true,
    }
}

/// Returns the sum of an element's translations; `None` if it has other transformations, or if one is not understood.
fn translation(cascade: &Cascade, font_pixels: f32) -> Option<Movement> {
    let length = |value: &str| {
        // A share of the element's own size is not known.
        let value = value.trim();
        pixels(value, font_pixels, 0.0).filter(|_| !value.ends_with('%') || value == "0%")
    };
    let mut moved = Movement::default();
    let mut add = |right: Option<&str>, down: Option<&str>| {
        let distance = right.map_or(Some(0.0), length)?;
        moved.right += distance;
        moved.down += down.map_or(Some(0.0), length)?;
        if right.is_some_and(|right| ["vw", "vi"].iter().any(|unit| right.trim().ends_with(unit))) {
            moved.page_widths += distance / PAGE_PIXELS;
        }
        Some(())
    };
    match cascade.get("translate") {
        PropertyValue::Unset | PropertyValue::Set("none" | "initial" | "unset") => {}
        PropertyValue::Set(value) => {
            let mut lengths = split_at_top_level(value, ' ');
            add(lengths.next(), lengths.next())?;
        }
        PropertyValue::Uncertain => return None,
    }
    match cascade.get("transform") {
        PropertyValue::Unset | PropertyValue::Set("none" | "initial" | "unset") => {}
        PropertyValue::Set(value) => {
            for function in split_at_top_level(value, ' ') {
                let (name, arguments) = function.strip_suffix(')')?.split_once('(')?;
                let mut arguments = arguments.split(',');
                match name {
                    "translate" | "translate3d" => add(arguments.next(), arguments.next())?,
                    "translatex" => add(arguments.next(), None)?,
                    "translatey" => add(None, arguments.next())?,
                    "translatez" => {}
                    _ => return None,
                }
            }
        }
        PropertyValue::Uncertain => return None,
    }
    Some(moved)
}
