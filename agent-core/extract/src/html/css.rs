//! Values and declarations of CSS that determine the visibility of text.

use std::borrow::Cow;

/// Size of text in pixels where nothing sets it.
pub(super) const MEDIUM_FONT_PIXELS: f32 = 16.0;
/// Width and height in pixels that a page is taken to have.
pub(super) const PAGE_PIXELS: f32 = 1000.0;
/// Units that are shares of the page, each also as that of the dynamic (`d`), large (`l`) and small (`s`) page.
const VIEWPORT_UNITS: [&str; 6] = ["vb", "vh", "vi", "vmax", "vmin", "vw"];
/// Maximum opacity at which nothing is seen.
const MAX_HIDDEN_OPACITY: f32 = 0.05;

/// Colors by name: the basic ones, and those that are nearly white.
const NAMED_COLORS: [(&str, u32); 29] = [
    ("aliceblue", 0xf0f8ff),
    ("aqua", 0x00ffff),
    ("azure", 0xf0ffff),
    ("black", 0x000000),
    ("blue", 0x0000ff),
    ("floralwhite", 0xfffaf0),
    ("fuchsia", 0xff00ff),
    ("ghostwhite", 0xf8f8ff),
    ("gray", 0x808080),
    ("green", 0x008000),
    ("grey", 0x808080),
    ("honeydew", 0xf0fff0),
    ("ivory", 0xfffff0),
    ("lavenderblush", 0xfff0f5),
    ("lime", 0x00ff00),
    ("maroon", 0x800000),
    ("mintcream", 0xf5fffa),
    ("navy", 0x000080),
    ("olive", 0x808000),
    ("orange", 0xffa500),
    ("purple", 0x800080),
    ("red", 0xff0000),
    ("seashell", 0xfff5ee),
    ("silver", 0xc0c0c0),
    ("snow", 0xfffafa),
    ("teal", 0x008080),
    ("white", 0xffffff),
    ("whitesmoke", 0xf5f5f5),
    ("yellow", 0xffff00),
];

/// The color of a text or of its background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    /// Red, green and blue.
    Solid([u8; 3]),
    /// No color: nothing is painted.
    Transparent,
    /// A picture, a gradient, a translucent color, or a value that is not understood.
    Unknown,
}

impl Paint {
    pub(super) const BLACK: Self = Self::Solid([0; 3]);
    pub(super) const WHITE: Self = Self::Solid([255; 3]);

    /// Parses a color in lower case.
    pub(super) fn parse(value: &str) -> Self {
        if let Some(digits) = value.strip_prefix('#') {
            return Self::parse_hexadecimal(digits).unwrap_or(Self::Unknown);
        }
        if let Some((function, arguments)) = value.strip_suffix(')').and_then(|value| value.split_once('(')) {
            let arguments: Vec<&str> =
                arguments.split([',', '/', ' ']).filter(|argument| !argument.is_empty()).collect();
            return match function {
                "rgb" | "rgba" => Self::from_rgb(&arguments),
                "hsl" | "hsla" => Self::from_hsl(&arguments),
                "hwb" => Self::from_hwb(&arguments),
                "lab" | "lch" => Self::from_lightness(&arguments, 100.0),
                "oklab" | "oklch" => Self::from_lightness(&arguments, 1.0),
                "color" => match arguments.split_first() {
                    Some((&"srgb", channels)) => Self::from_channels(channels, 1.0),
                    _ => Self::Unknown,
                },
                _ => Self::Unknown,
            };
        }
        if value == "transparent" {
            return Self::Transparent;
        }
        let found = NAMED_COLORS.iter().find(|(name, _)| *name == value);
        found.map_or(Self::Unknown, |&(_, color)| Self::from_number(color))
    }

    /// Parses the color of a background, whose value may have other parts.
    pub(super) fn parse_background(value: &str) -> Self {
        if matches!(value, "none" | "0" | "initial" | "unset" | "revert") {
            return Self::Transparent;
        }
        let mut paints = split_at_top_level(value, ' ').map(Self::parse);
        paints.find(|&paint| paint != Self::Unknown).unwrap_or(Self::Unknown)
    }

    fn from_number(color: u32) -> Self {
        let [_, red, green, blue] = color.to_be_bytes();
        Self::Solid([red, green, blue])
    }

    fn parse_hexadecimal(digits: &str) -> Option<Self> {
        let number = u32::from_str_radix(digits, 16).ok()?;
        let double = |nibble: u32| ((number >> (4 * nibble)) & 0xf) * 0x11;
        let joined = |red: u32, green: u32, blue: u32| Self::from_number((red << 16) | (green << 8) | blue);
        Some(match digits.len() {
            3 => joined(double(2), double(1), double(0)),
            4 => joined(double(3), double(2), double(1)).with_alpha(double(0) as f32),
            6 => Self::from_number(number),
            8 => Self::from_number(number >> 8).with_alpha((number & 0xff) as f32),
            _ => return None,
        })
    }

    fn from_rgb(arguments: &[&str]) -> Self {
        Self::from_channels(arguments, 255.0)
    }

    /// Returns the color with this red, green and blue; `whole` is the maximum of each.
    fn from_channels(arguments: &[&str], whole: f32) -> Self {
        let [red, green, blue, rest @ ..] = arguments else { return Self::Unknown };
        let channels = [red, green, blue].map(|channel| fraction(channel, whole));
        let [Some(red), Some(green), Some(blue)] = channels else { return Self::Unknown };
        let solid = Self::Solid([red, green, blue].map(|channel| (channel * 255.0).round() as u8));
        solid.with_alpha(alpha(rest))
    }

    /// Parses an HSL color that is a grey; only greys are used to hide text.
    fn from_hsl(arguments: &[&str]) -> Self {
        let [_, saturation, lightness, rest @ ..] = arguments else { return Self::Unknown };
        let (Some(saturation), Some(lightness)) = (fraction(saturation, 100.0), fraction(lightness, 100.0))
        else {
            return Self::Unknown;
        };
        if saturation > 0.0 && lightness > 0.0 && lightness < 1.0 {
            return Self::Unknown;
        }
        Self::Solid([(lightness * 255.0).round() as u8; 3]).with_alpha(alpha(rest))
    }

    /// Parses an HWB color that mixes only white and black.
    fn from_hwb(arguments: &[&str]) -> Self {
        let [_, white, black, rest @ ..] = arguments else { return Self::Unknown };
        match (fraction(white, 100.0), fraction(black, 100.0)) {
            (Some(white), Some(black)) if white + black >= 1.0 => {
                Self::Solid([(white / (white + black) * 255.0).round() as u8; 3]).with_alpha(alpha(rest))
            }
            _ => Self::Unknown,
        }
    }

    /// Returns white for the greatest lightness, which is `whole`, and black for the least one.
    fn from_lightness(arguments: &[&str], whole: f32) -> Self {
        let [lightness, _, _, rest @ ..] = arguments else { return Self::Unknown };
        match fraction(lightness, whole) {
            Some(lightness) if lightness >= 1.0 => Self::WHITE.with_alpha(alpha(rest)),
            Some(lightness) if lightness <= 0.0 => Self::BLACK.with_alpha(alpha(rest)),
            _ => Self::Unknown,
        }
    }

    /// Returns the color with an alpha from 0 to 255.
    fn with_alpha(self, alpha: f32) -> Self {
        if alpha >= 255.0 {
            self
        } else if alpha <= 255.0 * MAX_HIDDEN_OPACITY {
            Self::Transparent
        } else {
            Self::Unknown
        }
    }
}

/// Returns the alpha of a color, from 0 to 255, by the arguments behind its channels. A value that is not understood makes
/// the color translucent.
fn alpha(arguments: &[&str]) -> f32 {
    match arguments {
        [] => 255.0,
        [alpha, ..] => fraction(alpha, 1.0).map_or(128.0, |alpha| alpha * 255.0),
    }
}

/// Returns a number or percentage as a fraction of `whole`, at most 1.
fn fraction(value: &str, whole: f32) -> Option<f32> {
    let fraction = match value.strip_suffix('%') {
        Some(number) => number.parse::<f32>().ok()? / 100.0,
        None => value.parse::<f32>().ok()? / whole,
    };
    Some(fraction.clamp(0.0, 1.0)).filter(|fraction| !fraction.is_nan())
}

/// Returns true for an opacity at which content is invisible.
pub(super) fn is_transparent(opacity: &str) -> bool {
    fraction(opacity, 1.0).is_some_and(|opacity| opacity < MAX_HIDDEN_OPACITY)
}

/// Returns a length in pixels. `em` is the size of the text in pixels, `whole` the length that 100 % stands for.
pub(super) fn pixels(value: &str, em: f32, whole: f32) -> Option<f32> {
    let unit = value.rfind(|character: char| character.is_ascii_digit() || character == '.')? + 1;
    let (number, unit) = value.split_at(unit);
    let number: f32 = number.parse().ok()?;
    let factor = match unit {
        "" if number == 0.0 => 1.0,
        "px" => 1.0,
        "em" => em,
        "rem" => MEDIUM_FONT_PIXELS,
        "%" => whole / 100.0,
        "pt" => 96.0 / 72.0,
        "pc" => 16.0,
        "in" => 96.0,
        "cm" => 96.0 / 2.54,
        "mm" => 96.0 / 25.4,
        "q" => 96.0 / 101.6,
        "ex" | "ch" => em / 2.0,
        unit if VIEWPORT_UNITS.contains(&unit.trim_start_matches(['d', 'l', 's'])) => PAGE_PIXELS / 100.0,
        _ => return None,
    };
    Some(number * factor)
}

/// Returns true for a transformation that leaves an element no width or no height.
pub(super) fn flattens(transform: &str) -> bool {
    split_at_top_level(transform, ' ').any(|function| {
        let Some((name, arguments)) =
            function.strip_suffix(')').and_then(|function| function.split_once('('))
        else {
            return false;
        };
        matches!(name, "scale" | "scalex" | "scaley" | "scale3d") && is_flat(arguments, ',')
    })
}

/// Returns true for scale factors that leave an element without width or height.
pub(super) fn is_flat(factors: &str, separator: char) -> bool {
    let is_zero =
        |factor: &str| factor.trim_end_matches('%').parse::<f32>().is_ok_and(|factor| factor == 0.0);
    factors.split(separator).take(2).any(|factor| is_zero(factor.trim()))
}

/// A property with its value, both in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declaration {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) is_important: bool,
}

/// Properties that determine the visibility of text. Shorthands stand for some of them.
const PROPERTIES: [&str; 48] = [
    "-webkit-background-clip",
    "-webkit-text-fill-color",
    "-webkit-text-stroke",
    "animation-name",
    "background-clip",
    "background-color",
    "background-image",
    "bottom",
    "clip",
    "clip-path",
    "color",
    "color-scheme",
    "content-visibility",
    "display",
    "filter",
    "flex",
    "flex-basis",
    "flex-grow",
    "float",
    "font-size",
    "grid-area",
    "height",
    "left",
    "margin-left",
    "margin-top",
    "max-height",
    "max-width",
    "min-height",
    "min-width",
    "mix-blend-mode",
    "opacity",
    "overflow",
    "padding-bottom",
    "padding-left",
    "padding-right",
    "padding-top",
    "position",
    "right",
    "scale",
    "text-indent",
    "text-shadow",
    "top",
    "transform",
    "translate",
    "visibility",
    "white-space",
    "width",
    "z-index",
];

/// Parses the declarations of a style, without its comments, that determine the visibility of text.
pub(super) fn parse_declarations(style: &str) -> Vec<Declaration> {
    let mut declarations = Vec::new();
    for declaration in split_at_top_level(style, ';') {
        let Some((name, value)) = declaration.split_once(':') else { continue };
        let value = value.trim().to_ascii_lowercase();
        let important = value.strip_suffix("important").and_then(|rest| rest.trim_end().strip_suffix('!'));
        let important = important.map(|rest| rest.trim_end().to_owned());
        let is_important = important.is_some();
        let value = important.unwrap_or(value);
        let mut add = |name: &'static str, value: &str| {
            declarations.push(Declaration { name, value: value.to_owned(), is_important });
        };
        let parts: Vec<&str> = split_at_top_level(&value, ' ').collect();
        let [top, right, bottom, left] = four_sides(&parts);
        match name.trim().to_ascii_lowercase().as_str() {
            _ if parts.is_empty() => {}
            "-webkit-text-stroke-color" | "-webkit-text-stroke-width" => add("-webkit-text-stroke", &value),
            "animation" => add("animation-name", &value),
            "background" => {
                add("background-color", &value);
                add("background-image", &value);
            }
            "font" => {
                let mut sizes = parts.iter().map(|part| part.split('/').next().unwrap_or_default());
                let size = sizes.find(|size| pixels(size, 1.0, 1.0).is_some());
                add("font-size", size.unwrap_or("medium"));
            }
            "grid-column" | "grid-column-start" | "grid-row" | "grid-row-start" => add("grid-area", &value),
            "inset" => {
                add("top", top);
                add("left", left);
            }
            "margin" => {
                add("margin-top", top);
                add("margin-left", left);
            }
            "overflow-x" | "overflow-y" => add("overflow", &value),
            "padding" => {
                add("padding-top", top);
                add("padding-right", right);
                add("padding-bottom", bottom);
                add("padding-left", left);
            }
            name => {
                if let Some(property) = PROPERTIES.into_iter().find(|property| *property == name) {
                    add(property, &value);
                }
            }
        }
    }
    declarations
}

/// Returns the values of a shorthand for the four sides: top, right, bottom and left.
fn four_sides<'a>(parts: &[&'a str]) -> [&'a str; 4] {
    match *parts {
        [] => [""; 4],
        [all] => [all; 4],
        [vertical, horizontal] => [vertical, horizontal, vertical, horizontal],
        [top, horizontal, bottom] => [top, horizontal, bottom, horizontal],
        [top, right, bottom, left, ..] => [top, right, bottom, left],
    }
}

/// Returns a style without its comments.
pub(super) fn without_comments(style: &str) -> Cow<'_, str> {
    let mut rest = style;
    let mut stripped = String::new();
    while let Some((before, comment)) = rest.split_once("/*") {
        stripped.push_str(before);
        stripped.push(' ');
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    if stripped.is_empty() && rest.len() == style.len() {
        return Cow::Borrowed(style);
    }
    stripped.push_str(rest);
    Cow::Owned(stripped)
}

/// Returns the offset of the first of some ASCII characters that is in no string, block or brackets.
pub(super) fn find_at_top_level(text: &str, is_sought: impl Fn(u8) -> bool) -> Option<usize> {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut is_escaped = false;
    for (offset, byte) in text.bytes().enumerate() {
        if std::mem::take(&mut is_escaped) {
            continue;
        }
        match (byte, quote) {
            (b'\\', _) => is_escaped = true,
            (_, Some(open)) if byte == open => quote = None,
            (_, Some(_)) => {}
            _ if depth == 0 && is_sought(byte) => return Some(offset),
            (b'"' | b'\'', None) => quote = Some(byte),
            (b'(' | b'[' | b'{', None) => depth += 1,
            (b')' | b']' | b'}', None) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Returns the parts of a text between separators that are in no string, block or brackets, without empty ones.
pub(super) fn split_at_top_level(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let is_separator =
            |byte: u8| byte == separator as u8 || (separator == ' ' && byte.is_ascii_whitespace());
        let (part, after) = match find_at_top_level(text, is_separator) {
            Some(offset) => (&text[..offset], Some(&text[offset + 1..])),
            None => (text, None),
        };
        rest = after;
        Some(part.trim())
    })
    .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_parsed() {
        for (value, expected) in [
            ("#fff", Paint::WHITE),
            ("#1a2b3c", Paint::Solid([0x1a, 0x2b, 0x3c])),
            ("#ffff", Paint::WHITE),
            ("#fff0", Paint::Transparent),
            ("#ffffff80", Paint::Unknown),
            ("white", Paint::WHITE),
            ("rgb(255, 255, 255)", Paint::WHITE),
            ("rgb(100% 100% 100% / 1)", Paint::WHITE),
            ("rgba(0,0,0,0)", Paint::Transparent),
            ("rgba(0,0,0,.5)", Paint::Unknown),
            ("hsl(0, 0%, 100%)", Paint::WHITE),
            ("hsl(120 50% 50%)", Paint::Unknown),
            ("transparent", Paint::Transparent),
            ("var(--ink)", Paint::Unknown),
            ("#ééé", Paint::Unknown),
            ("rgb(nan,1,1)", Paint::Unknown),
            ("", Paint::Unknown),
        ] {
            assert_eq!(Paint::parse(value), expected, "{value}");
        }
        assert_eq!(Paint::parse_background("no-repeat #000 center"), Paint::BLACK);
        assert_eq!(Paint::parse_background("none"), Paint::Transparent);
        for value in ["var(--page)", "tomato", "rgb(0 0 0 / 50%)", "url(a.png)"] {
            assert_eq!(Paint::parse_background(value), Paint::Unknown, "{value}");
        }
    }

    #[test]
    fn lengths_are_converted_to_pixels() {
        for (value, expected) in [
            ("0", Some(0.0)),
            ("-9999px", Some(-9999.0)),
            ("2em", Some(20.0)),
            ("50%", Some(100.0)),
            (".5rem", Some(8.0)),
            ("-100vw", Some(-1000.0)),
            ("12", None),
            ("auto", None),
            ("calc(1px + 2px)", None),
            ("é1px", None),
        ] {
            assert_eq!(pixels(value, 10.0, 200.0), expected, "{value}");
        }
    }

    #[test]
    fn declarations_are_split_outside_of_strings_and_brackets() {
        let style =
            "Background: url(a;b) #FFF !important; content: ';color:red'; COLOR : White;font:0/0 a;x:y; top";
        let declarations = parse_declarations(style);
        let found: Vec<_> = declarations
            .iter()
            .map(|declaration| (declaration.name, declaration.value.as_str(), declaration.is_important))
            .collect();
        let background = "url(a;b) #fff";
        let expected = [
            ("background-color", background, true),
            ("background-image", background, true),
            ("color", "white", false),
            ("font-size", "0", false),
        ];
        assert_eq!(found, expected);
        assert_eq!(without_comments("a/* ; */b/*"), "a b ");
    }
}
