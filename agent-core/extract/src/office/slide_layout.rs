//! Backgrounds and shapes of the layouts and masters of slides, which are behind the shapes of the slides.

use std::collections::HashMap;
use std::rc::Rc;

use quick_xml::events::{BytesStart, Event};

use super::color::{Color, parse_color};
use super::parts::OfficeParts;
use super::relations::{related_part, relations_part};
use super::slide_text::may_be_filled;
use super::theme::{SlideColors, ThemeColors};
use super::xml::{XmlEvents, attribute};

/// Ends of the types of relations.
const LAYOUT_RELATION: &str = "/slideLayout";
const MASTER_RELATION: &str = "/slideMaster";
const THEME_RELATION: &str = "/theme";
/// Number of the first fill of backgrounds in a theme.
const FIRST_BACKGROUND: &str = "1001";
/// Beginning of a theme's fills of backgrounds, if the first one is the color that the slide states.
const PLAIN_FIRST_BACKGROUND: &str = "<a:bgFillStyleLst><a:solidFill><a:schemeClr val=\"phClr\"/>";
/// Element of a slide or layout with other names of colors than its master's.
const OTHER_COLOR_NAMES: &str = "overrideClrMapping";
/// Shapes that paint, except for those with text.
const PAINTED_SHAPES: [&str; 4] = ["pic", "graphicFrame", "cxnSp", "contentPart"];

/// The layout of slides, with its master and theme.
#[derive(Debug, Default)]
pub(super) struct SlideLayout {
    /// The colors that slides name.
    pub(super) colors: SlideColors,
    /// True if placeholders may have fills that slides do not state.
    pub(super) fills_placeholders: bool,
    /// True if the layout and its master have no shapes but placeholders, which slides do not show.
    is_plain: bool,
    /// The color of the background; `None` if it is not certain.
    background: Option<Color>,
    has_plain_first_background: bool,
}

impl SlideLayout {
    fn read(parts: &mut OfficeParts<'_>, layout: &str) -> Option<Self> {
        let layout_part = SlidePart::read(&parts.xml(layout)?);
        if layout_part.has_other_names {
            return None;
        }
        let master = related_part(&parts.xml(&relations_part(layout))?, MASTER_RELATION)?;
        let master_part = SlidePart::read(&parts.xml(&master)?);
        let theme = related_part(&parts.xml(&relations_part(&master))?, THEME_RELATION)?;
        let theme = parts.xml(&theme)?;
        let layout = Self {
            colors: SlideColors::new(ThemeColors::read(&theme), master_part.color_names),
            fills_placeholders: layout_part.fills_placeholders || master_part.fills_placeholders,
            is_plain: !layout_part.has_shapes && !master_part.has_shapes,
            background: None,
            has_plain_first_background: theme.contains(PLAIN_FIRST_BACKGROUND),
        };
        let background = layout_part.background.or(master_part.background);
        let background = layout.color(background.unwrap_or(Background::Color([255; 3])));
        Some(Self { background, ..layout })
    }

    /// Returns the color behind the shapes of a slide; `None` if it is not certain.
    pub(super) fn background_of(&self, slide: &str) -> Option<Color> {
        if !self.is_plain {
            return None;
        }
        match SlidePart::read(slide).background {
            Some(background) => self.color(background),
            None => self.background,
        }
    }

    fn color(&self, background: Background) -> Option<Color> {
        match background {
            Background::Color(color) => Some(color),
            Background::Named(name) => self.colors.color(&name),
            Background::FirstOfTheme(name) => {
                self.colors.color(&name).filter(|_| self.has_plain_first_background)
            }
            Background::Unknown => None,
        }
    }
}

/// The layouts of a presentation that were read.
#[derive(Debug, Default)]
pub(super) struct SlideLayouts(HashMap<String, Rc<SlideLayout>>);

impl SlideLayouts {
    /// Returns the layout of a slide. Nothing is certain about a layout that cannot be read, or for whose colors the slide has
    /// other names.
    pub(super) fn of_slide(
        &mut self,
        parts: &mut OfficeParts<'_>,
        name: &str,
        slide: &str,
    ) -> Rc<SlideLayout> {
        let relations = parts.xml(&relations_part(name)).filter(|_| !slide.contains(OTHER_COLOR_NAMES));
        let layout = relations.and_then(|relations| related_part(&relations, LAYOUT_RELATION));
        let Some(name) = layout else { return Rc::default() };
        let layout = self
            .0
            .entry(name)
            .or_insert_with_key(|name| Rc::new(SlideLayout::read(parts, name).unwrap_or_default()));
        Rc::clone(layout)
    }
}

/// The background of a slide, a layout or a master.
#[derive(Debug, PartialEq)]
enum Background {
    Color(Color),
    /// A color of the theme by its name.
    Named(String),
    /// The first fill of backgrounds in the theme, with a color by its name.
    FirstOfTheme(String),
    /// A picture, a gradient, or a color that is changed.
    Unknown,
}

/// A slide, a layout or a master.
#[derive(Debug, Default)]
struct SlidePart {
    /// The background; `None` for that of the layout or master.
    background: Option<Background>,
    /// True if it has shapes other than placeholders.
    has_shapes: bool,
    fills_placeholders: bool,
    /// True if it has other names of colors than its master.
    has_other_names: bool,
    /// The names of colors in the theme by those in slides.
    color_names: HashMap<String, String>,
}

impl SlidePart {
    fn read(xml: &str) -> Self {
        let mut part = Self::default();
        let mut events = XmlEvents::new(xml);
        while let Some((event, range)) = events.next() {
            let is_empty = matches!(event, Event::Empty(_));
            let (Event::Start(element) | Event::Empty(element)) = event else { continue };
            match element.local_name().into_inner() {
                "bg" if !is_empty => {
                    part.background = Some(read_background(&xml[range.start..events.skip(&element)]));
                }
                "clrMap" => {
                    let names = element.attributes().flatten();
                    let pair = |name: &str| Some((name.to_owned(), attribute(&element, name)?));
                    part.color_names = names.filter_map(|name| pair(name.key.into_inner())).collect();
                }
                OTHER_COLOR_NAMES => part.has_other_names = true,
                "sp" if !is_empty => {
                    let shape = &xml[range.start..events.skip(&element)];
                    let is_placeholder = shape.contains("<p:ph");
                    part.has_shapes |= !is_placeholder;
                    part.fills_placeholders |= is_placeholder && may_be_filled(shape);
                }
                name => part.has_shapes |= PAINTED_SHAPES.contains(&name),
            }
        }
        part
    }
}

/// Reads the element of a background.
fn read_background(xml: &str) -> Background {
    let mut background = Background::Unknown;
    let mut is_first_of_theme = false;
    let mut path: Vec<String> = Vec::new();
    let mut events = XmlEvents::new(xml);
    while let Some((event, _)) = events.next() {
        let is_start = matches!(event, Event::Start(_));
        match event {
            Event::Start(element) | Event::Empty(element) => {
                let outer: Vec<&str> = path.iter().map(String::as_str).collect();
                match (outer.as_slice(), element.local_name().into_inner()) {
                    (["bg"], "bgRef") => {
                        is_first_of_theme =
                            attribute(&element, "idx").is_some_and(|number| number == FIRST_BACKGROUND);
                    }
                    (["bg", "bgRef"], _) if is_first_of_theme => {
                        background = read_color(&element, Background::FirstOfTheme);
                    }
                    (["bg", "bgPr", "solidFill"], _) => {
                        background = read_color(&element, Background::Named);
                    }
                    // A change of the color.
                    (["bg", "bgRef", _] | ["bg", "bgPr", "solidFill", _], _) => return Background::Unknown,
                    _ => {}
                }
                if is_start {
                    path.push(element.local_name().into_inner().to_owned());
                }
            }
            Event::End(_) => {
                path.pop();
            }
            _ => {}
        }
    }
    background
}

fn read_color(element: &BytesStart<'_>, named: impl FnOnce(String) -> Background) -> Background {
    let Some(value) = attribute(element, "val") else { return Background::Unknown };
    match element.local_name().into_inner() {
        "srgbClr" => parse_color(&value).map_or(Background::Unknown, Background::Color),
        "schemeClr" => named(value),
        _ => Background::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backgrounds_are_colors_or_unknown() {
        let named = |name: &str| Background::Named(name.to_owned());
        for (content, expected) in [
            (
                "<p:bgPr><a:solidFill><a:srgbClr val=\"102030\"/></a:solidFill></p:bgPr>",
                Background::Color([16, 32, 48]),
            ),
            ("<p:bgPr><a:solidFill><a:schemeClr val=\"bg1\"/></a:solidFill></p:bgPr>", named("bg1")),
            (
                "<p:bgPr><a:solidFill><a:schemeClr val=\"bg1\"><a:lumMod val=\"50000\"/></a:schemeClr></a:solidFill></p:bgPr>",
                Background::Unknown,
            ),
            ("<p:bgPr><a:blipFill><a:blip/></a:blipFill></p:bgPr>", Background::Unknown),
            (
                "<p:bgRef idx=\"1001\"><a:schemeClr val=\"bg1\"/></p:bgRef>",
                Background::FirstOfTheme("bg1".to_owned()),
            ),
            ("<p:bgRef idx=\"1002\"><a:schemeClr val=\"bg1\"/></p:bgRef>", Background::Unknown),
        ] {
            assert_eq!(read_background(&format!("<p:bg>{content}</p:bg>")), expected, "{content}");
        }
    }

    #[test]
    fn layout_shapes_are_distinguished_from_placeholders() {
        let fill = "<p:spPr><a:solidFill/></p:spPr>";
        for (shape, has_shapes, fills_placeholders) in [
            ("<p:sp><p:nvPr><p:ph type=\"title\"/></p:nvPr><p:spPr/></p:sp>".to_owned(), false, false),
            (format!("<p:sp><p:nvPr><p:ph type=\"title\"/></p:nvPr>{fill}</p:sp>"), false, true),
            (format!("<p:sp>{fill}</p:sp>"), true, false),
            ("<p:grpSp><p:pic/></p:grpSp>".to_owned(), true, false),
        ] {
            let part = SlidePart::read(&format!("<p:sldLayout><p:spTree>{shape}</p:spTree></p:sldLayout>"));
            assert_eq!(
                (part.has_shapes, part.fills_placeholders),
                (has_shapes, fills_placeholders),
                "{shape}"
            );
        }
    }
}
