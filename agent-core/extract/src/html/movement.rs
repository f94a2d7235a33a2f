//! Translations by which elements are moved off the page.

use super::css::{PAGE_PIXELS, pixels, split_at_top_level};
use super::sheets::{Cascade, PropertyValue};

/// Offset in pixels, to the left or upwards, from which an element counts as moved off the page. A row of slides, of which one
/// is seen, is moved by the widths of those before.
const OFF_PAGE_PIXELS: f32 = -9_000.0;
/// Minimum width of an element that may reach back into the page, in pixels.
const MIN_WIDE_PIXELS: f32 = 5_000.0;
/// Minimum height of an element that may have sections of which one is seen, in pixels.
const MIN_TALL_PIXELS: f32 = 900.0;
/// Minimum offset by another property that may bring an element back to the page, in pixels.
const MIN_RETURN_PIXELS: f32 = 900.0;
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
}

impl Movement {
    /// Returns true if an element with this offset is outside of the page.
    pub(super) fn is_off_page(self) -> bool {
        self.right <= OFF_PAGE_PIXELS || self.down <= OFF_PAGE_PIXELS
    }

    /// Returns the offset of an element within one with this offset; no offset if it is not certain. Translations have no effect
    /// on an element without a box.
    pub(super) fn within(self, has_box: bool, cascade: &Cascade, font_pixels: f32) -> Self {
        if may_return(cascade, font_pixels) {
            return Self::default();
        }
        match translation(cascade, font_pixels) {
            Some(_) if !has_box => self,
            Some(moved) => Self { right: self.right + moved.right, down: self.down + moved.down },
            None => Self::default(),
        }
    }
}

/// Returns true for an element that may be seen although it is moved: other properties move it, too, or it is wide or tall.
fn may_return(cascade: &Cascade, font_pixels: f32) -> bool {
    let reaches = |name: &str, limit: f32| match cascade.get(name) {
        PropertyValue::Unset | PropertyValue::Set("auto" | "initial" | "none" | "unset") => false,
        PropertyValue::Set(value) => {
            pixels(value, font_pixels, PAGE_PIXELS).is_none_or(|length| length.abs() >= limit)
        }
        PropertyValue::Uncertain => true,
    };
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

/// Returns the sum of an element's translations; `None` if it has other transformations, or if one is not understood.
fn translation(cascade: &Cascade, font_pixels: f32) -> Option<Movement> {
    let length = |value: &str| {
        // A share of the element's own size is not known.
        let value = value.trim();
        pixels(value, font_pixels, 0.0).filter(|_| !value.ends_with('%') || value == "0%")
    };
    let mut moved = Movement::default();
    let mut add = |right: Option<&str>, down: Option<&str>| {
        moved.right += right.map_or(Some(0.0), length)?;
        moved.down += down.map_or(Some(0.0), length)?;
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
