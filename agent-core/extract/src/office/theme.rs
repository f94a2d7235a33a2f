//! Colors of themes.

use std::collections::HashMap;

use quick_xml::events::{BytesStart, Event};

use super::color::{Color, parse_color};
use super::xml::{XmlEvents, attribute};

/// Names of the colors of a theme (ISO/IEC 29500-1, section 20.1.6.2).
const NAMES: [&str; 12] = [
    "dk1", "lt1", "dk2", "lt2", "accent1", "accent2", "accent3", "accent4", "accent5", "accent6", "hlink",
    "folHlink",
];

/// The colors of a theme.
#[derive(Debug, Default)]
pub(super) struct ThemeColors(HashMap<&'static str, Color>);

impl ThemeColors {
    /// Reads the colors of the part of a theme.
    pub(super) fn read(xml: &str) -> Self {
        let mut colors = HashMap::new();
        let mut open = None;
        let mut events = XmlEvents::new(xml);
        while let Some((event, _)) = events.next() {
            let (Event::Start(element) | Event::Empty(element)) = event else { continue };
            match element.local_name().into_inner() {
                "srgbClr" | "sysClr" => {
                    if let Some((name, color)) = open.take().zip(theme_color(&element)) {
                        // Further schemes follow that of the theme.
                        colors.entry(name).or_insert(color);
                    }
                }
                name => open = NAMES.into_iter().find(|known| *known == name),
            }
        }
        Self(colors)
    }

    /// Returns the color that is the background, if the theme states it.
    pub(super) fn background(&self) -> Option<Color> {
        self.0.get("lt1").copied()
    }

    /// Returns the color that an element of a Word document names by an attribute, unless a tint or shade changes it.
    pub(super) fn word_color(
        &self,
        element: &BytesStart<'_>,
        [name, tint, shade]: [&str; 3],
    ) -> Option<Color> {
        let is_changed =
            |name: &str| attribute(element, name).is_some_and(|value| !value.eq_ignore_ascii_case("FF"));
        if is_changed(tint) || is_changed(shade) {
            return None;
        }
        let name = attribute(element, name)?;
        let name = match name.as_str() {
            "background1" | "light1" => "lt1",
            "text1" | "dark1" => "dk1",
            "background2" | "light2" => "lt2",
            "text2" | "dark2" => "dk2",
            "hyperlink" => "hlink",
            "followedHyperlink" => "folHlink",
            name => name,
        };
        self.0.get(name).copied()
    }
}

/// The colors that slides name, of the theme of their master.
#[derive(Debug, Default)]
pub(super) struct SlideColors {
    theme: ThemeColors,
    /// The names of the theme's colors by those in slides.
    names: HashMap<String, String>,
}

impl SlideColors {
    pub(super) fn new(theme: ThemeColors, names: HashMap<String, String>) -> Self {
        Self { theme, names }
    }

    /// Returns a color by its name.
    pub(super) fn color(&self, name: &str) -> Option<Color> {
        let name = self.names.get(name).map_or(name, String::as_str);
        self.theme.0.get(name).copied()
    }
}

/// Returns the color of an element; that of the system is the usual one.
fn theme_color(element: &BytesStart<'_>) -> Option<Color> {
    let value = attribute(element, "val")?;
    match value.as_str() {
        "window" => Some([255; 3]),
        "windowText" => Some([0; 3]),
        _ => parse_color(&attribute(element, "lastClr").unwrap_or(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_read_by_their_names() {
        let xml = "<a:theme><a:clrScheme><a:dk1><a:sysClr val=\"windowText\" lastClr=\"111111\"/></a:dk1>\
            <a:lt1><a:srgbClr val=\"FEFEFE\"/></a:lt1><a:accent1><a:srgbClr val=\"102030\"></a:srgbClr></a:accent1>\
            </a:clrScheme><a:fmtScheme><a:srgbClr val=\"000000\"/></a:fmtScheme><a:lt1><a:srgbClr val=\"000000\"/></a:lt1>\
            </a:theme>";
        let theme = ThemeColors::read(xml);
        let color = |attributes: &str| {
            let xml = format!("<w:color {attributes}/>");
            let Some((Event::Empty(element), _)) = XmlEvents::new(&xml).next() else { panic!("an element") };
            theme.word_color(&element, ["w:themeColor", "w:themeTint", "w:themeShade"])
        };
        assert_eq!(color("w:themeColor=\"background1\""), Some([0xfe; 3]));
        assert_eq!(color("w:themeColor=\"dark1\" w:themeTint=\"ff\""), Some([0; 3]));
        assert_eq!(color("w:themeColor=\"accent1\""), Some([0x10, 0x20, 0x30]));
        assert_eq!(color("w:themeColor=\"accent1\" w:themeShade=\"BF\""), None);
        assert_eq!(color("w:themeColor=\"accent2\""), None);
        assert_eq!(color("w:val=\"FFFFFF\""), None);
    }
}
