//! Styles of Word documents.

use std::collections::HashMap;

use quick_xml::events::{BytesStart, Event};

use super::theme::ThemeColors;
use super::word_numbering::ListPosition;
use super::word_properties::{Shading, TextProperties};
use super::xml::{XmlEvents, attribute};

/// Maximum length of the chain of styles that a style is based on.
const MAX_BASES: usize = 16;
/// Outline level of body text.
const BODY_LEVEL: u32 = 9;

/// A style of paragraphs, characters or tables.
#[derive(Debug, Default)]
struct WordStyle {
    base: Option<String>,
    properties: TextProperties,
    list: ListPosition,
    /// True for a style of headings.
    is_heading: bool,
}

/// The styles of a document.
#[derive(Debug, Default)]
pub(super) struct WordStyles {
    styles: HashMap<String, WordStyle>,
    pub(super) default_paragraph: Option<String>,
    pub(super) defaults: TextProperties,
    pub(super) theme: ThemeColors,
}

impl WordStyles {
    pub(super) fn read(xml: &str, theme: ThemeColors) -> Self {
        let mut styles = Self { theme, ..Self::default() };
        let mut open: Option<(String, WordStyle)> = None;
        let mut in_defaults = false;
        let mut events = XmlEvents::new(xml);
        while let Some((event, _)) = events.next() {
            match event {
                Event::Start(element) if element.name().into_inner() == "w:docDefaults" => in_defaults = true,
                Event::End(element) if element.name().into_inner() == "w:docDefaults" => in_defaults = false,
                Event::Start(element) if element.name().into_inner() == "w:style" => {
                    let id = attribute(&element, "w:styleId").unwrap_or_default();
                    let is = |name: &str, value: &str| {
                        attribute(&element, name).is_some_and(|found| found == value)
                    };
                    if is("w:type", "paragraph") && is("w:default", "1") {
                        styles.default_paragraph = Some(id.clone());
                    }
                    open = Some((id, WordStyle::default()));
                }
                Event::End(element) if element.name().into_inner() == "w:style" => {
                    styles.styles.extend(open.take())
                }
                Event::Start(element) if element.name().into_inner() == "w:rPrChange" => {
                    events.skip(&element);
                }
                Event::Start(element) | Event::Empty(element) => match &mut open {
                    Some((_, style)) => style.apply(&element, &styles.theme),
                    None if in_defaults => styles.defaults.apply(&element, &styles.theme),
                    None => {}
                },
                _ => {}
            }
        }
        styles
    }

    /// Returns the properties of a style, including its base styles.
    pub(super) fn properties(&self, id: Option<&str>) -> TextProperties {
        self.chain(id).fold(TextProperties::default(), |properties, style| properties.or(&style.properties))
    }

    /// Returns the position of a style's paragraphs in a list, as far as the style and its base styles define it.
    pub(super) fn list_position(&self, id: Option<&str>) -> ListPosition {
        self.chain(id).fold(ListPosition::default(), |position, style| position.or(&style.list))
    }

    /// Returns true for a style of headings.
    pub(super) fn is_heading(&self, id: Option<&str>) -> bool {
        self.chain(id).any(|style| style.is_heading)
    }

    /// Returns a style and its base styles.
    fn chain<'s>(&'s self, id: Option<&'s str>) -> impl Iterator<Item = &'s WordStyle> {
        let first = id.and_then(|id| self.styles.get(id));
        let base = move |style: &&'s WordStyle| style.base.as_deref().and_then(|id| self.styles.get(id));
        std::iter::successors(first, base).take(MAX_BASES)
    }
}

impl WordStyle {
    fn apply(&mut self, element: &BytesStart<'_>, theme: &ThemeColors) {
        let value = || attribute(element, "w:val");
        match element.name().into_inner() {
            "w:basedOn" => self.base = value(),
            "w:outlineLvl" => {
                self.is_heading = value()
                    .and_then(|level| level.parse::<u32>().ok())
                    .is_some_and(|level| level < BODY_LEVEL);
            }
            name @ ("w:numId" | "w:ilvl") => self.list.apply(name, value()),
            _ => self.properties.apply(element, theme),
        }
        // A table's style has several shadings for its parts.
        if self.properties.shading.is_some() {
            self.properties.shading = Some(Shading::Unknown);
        }
    }
}
