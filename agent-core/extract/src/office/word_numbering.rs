//! Numbers of the paragraphs of Word documents (ECMA-376 part 1, section 17.9), as the document shows them.

use std::collections::{HashMap, HashSet};

use quick_xml::events::{BytesStart, Event};

use super::xml::{XmlEvents, attribute};
use crate::numerals::roman;

/// Number of levels of a list.
const LEVELS: usize = 9;
/// Maximum length of a level's text, and about that of a number, in bytes. Each paragraph repeats them. Levels with a longer text
/// have no numbers.
const MAX_LEVEL_TEXT_BYTES: usize = 255;
/// Greatest number that is written with letters.
const MAX_LETTERS: u32 = 26 * 4;
/// Identifier of the list of paragraphs that are in none.
const NO_LIST: &str = "0";

/// Position of a paragraph in a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ListPosition {
    list: Option<String>,
    level: Option<usize>,
}

impl ListPosition {
    /// Applies an element of the properties.
    pub(super) fn apply(&mut self, name: &str, value: Option<String>) {
        match name {
            "w:numId" => self.list = value,
            "w:ilvl" => self.level = value.and_then(|level| level.parse().ok()),
            _ => {}
        }
    }

    /// Returns the position, completed by another one.
    pub(super) fn or(self, other: &Self) -> Self {
        Self { list: self.list.or_else(|| other.list.clone()), level: self.level.or(other.level) }
    }

    /// Returns true if the list is known.
    pub(super) fn has_list(&self) -> bool {
        self.list.is_some()
    }
}

/// The number of a paragraph.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParagraphNumber {
    pub(super) text: String,
    /// True for a decimal number of the list's own level alone, with nothing but dots and parentheses around it.
    pub(super) is_plain: bool,
}

/// The lists of a document with their numbers so far.
#[derive(Debug, Default)]
pub(super) struct WordNumbering {
    /// Levels of the abstract lists, by their identifiers.
    levels: HashMap<String, Vec<ListLevel>>,
    lists: HashMap<String, List>,
    /// The numbers of the levels of abstract lists.
    numbers: HashMap<String, [Option<u32>; LEVELS]>,
    /// Lists that have started.
    started: HashSet<String>,
}

/// A level of an abstract list.
#[derive(Debug, Clone)]
struct ListLevel {
    start: u32,
    format: String,
    /// Text with `%` and the number of a level, from 1, for the number of that level.
    text: String,
    /// True if the numbers of all levels are decimal.
    is_decimal: bool,
}

impl Default for ListLevel {
    fn default() -> Self {
        Self { start: 0, format: "decimal".to_owned(), text: String::new(), is_decimal: false }
    }
}

/// A list: an abstract one, some of whose levels begin with other numbers.
#[derive(Debug, Default)]
struct List {
    abstract_list: String,
    starts: HashMap<usize, u32>,
}

impl WordNumbering {
    /// Reads the part with the lists.
    pub(super) fn read(xml: &str) -> Self {
        let mut numbering = Self::default();
        let (mut abstract_list, mut list, mut level) = (String::new(), None, 0);
        let mut events = XmlEvents::new(xml);
        while let Some((event, _)) = events.next() {
            let is_start = matches!(event, Event::Start(_));
            let (Event::Start(element) | Event::Empty(element)) = event else { continue };
            let number = |name: &str| attribute(&element, name).and_then(|value| value.parse().ok());
            match element.name().into_inner() {
                "w:abstractNum" => {
                    abstract_list = attribute(&element, "w:abstractNumId").unwrap_or_default();
                    (list, level) = (None, LEVELS);
                }
                "w:num" => list = attribute(&element, "w:numId"),
                "w:lvlOverride" => level = number("w:ilvl").unwrap_or(LEVELS),
                // A level of a single list, which may have its own text, is rare.
                "w:lvl" if list.is_some() && is_start => {
                    events.skip(&element);
                }
                "w:lvl" => level = number("w:ilvl").unwrap_or(LEVELS),
                name => match list.clone() {
                    Some(list) => numbering.apply_to_list(list, level, name, attribute(&element, "w:val")),
                    None if level < LEVELS => {
                        let levels = numbering.levels.entry(abstract_list.clone()).or_default();
                        levels.resize_with(LEVELS, ListLevel::default);
                        levels[level].apply(&element);
                    }
                    None => {}
                },
            }
        }
        numbering
    }

    fn apply_to_list(&mut self, list: String, level: usize, name: &str, value: Option<String>) {
        let list = self.lists.entry(list).or_default();
        match name {
            "w:abstractNumId" => list.abstract_list = value.unwrap_or_default(),
            "w:startOverride" => {
                list.starts
                    .extend(value.and_then(|start| start.parse::<u32>().ok()).map(|start| (level, start)));
            }
            _ => {}
        }
    }

    /// Counts a paragraph and returns its number; `None` for one without a number.
    pub(super) fn next(&mut self, position: &ListPosition) -> Option<ParagraphNumber> {
        let id = position.list.as_deref().filter(|list| *list != NO_LIST)?;
        let list = self.lists.get(id)?;
        let levels = self.levels.get(&list.abstract_list)?;
        let level = position.level.unwrap_or(0);
        let ListLevel { format, text, .. } = levels.get(level)?;
        let numbers = self.numbers.entry(list.abstract_list.clone()).or_default();
        if self.started.insert(id.to_owned()) {
            list.starts.keys().filter(|level| **level < LEVELS).for_each(|level| numbers[*level] = None);
        }
        let start = |level: usize| list.starts.get(&level).copied().unwrap_or(levels[level].start);
        numbers[level] = Some(numbers[level].map_or_else(|| start(level), |number| number.saturating_add(1)));
        for (above, number) in numbers[..level].iter_mut().enumerate() {
            number.get_or_insert_with(|| start(above));
        }
        numbers[level + 1..].fill(None);
        if matches!(&**format, "bullet" | "none") || text.is_empty() {
            return None;
        }
        let text = levels[level].text_of(&numbers[..=level], levels);
        let is_plain = format == "decimal"
            && levels[level].text.matches('%').count() == 1
            && text.chars().all(|character| character.is_ascii_digit() || ".()".contains(character));
        Some(ParagraphNumber { text: text.trim().to_owned(), is_plain })
    }
}

impl ListLevel {
    fn apply(&mut self, element: &BytesStart<'_>) {
        let value = attribute(element, "w:val");
        match element.name().into_inner() {
            "w:start" => self.start = value.and_then(|start| start.parse().ok()).unwrap_or(0),
            "w:numFmt" => self.format = value.unwrap_or_default(),
            "w:lvlText" => {
                self.text = value.filter(|text| text.len() <= MAX_LEVEL_TEXT_BYTES).unwrap_or_default();
            }
            "w:isLgl" => self.is_decimal = value.is_none_or(|value| value != "0" && value != "false"),
            _ => {}
        }
    }

    /// Returns the text of the level with the numbers of the levels up to it.
    fn text_of(&self, numbers: &[Option<u32>], levels: &[Self]) -> String {
        let mut written = String::new();
        let mut characters = self.text.chars().peekable();
        while let Some(character) = characters.next().filter(|_| written.len() <= MAX_LEVEL_TEXT_BYTES) {
            let level = characters.peek().and_then(|digit| digit.to_digit(10)).filter(|_| character == '%');
            let Some(level) = level.and_then(|level| (level as usize).checked_sub(1)) else {
                written.push(character);
                continue;
            };
            characters.next();
            if let Some(number) = numbers.get(level).copied().flatten() {
                let format = if self.is_decimal { "decimal" } else { levels[level].format.as_str() };
                written.push_str(&format_number(number, format));
            }
        }
        written
    }
}

/// Writes a number in a format (ECMA-376 part 1, section 17.18.59), of which the rare ones are decimal.
fn format_number(number: u32, format: &str) -> String {
    match format {
        "lowerLetter" if (1..=MAX_LETTERS).contains(&number) => letters(number),
        "upperLetter" if (1..=MAX_LETTERS).contains(&number) => letters(number).to_uppercase(),
        "lowerRoman" => roman(number).unwrap_or_else(|| number.to_string()),
        "upperRoman" => roman(number).map_or_else(|| number.to_string(), |numeral| numeral.to_uppercase()),
        "decimalZero" => format!("{number:02}"),
        "bullet" | "none" => String::new(),
        _ => number.to_string(),
    }
}

/// Writes a number from 1 as a letter, which is repeated once for each time that the alphabet has ended.
fn letters(number: u32) -> String {
    let letter = char::from(b'a' + ((number - 1) % 26) as u8);
    std::iter::repeat_n(letter, (number as usize - 1) / 26 + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(number: usize, properties: &str) -> String {
        format!("<w:lvl w:ilvl=\"{number}\">{properties}</w:lvl>")
    }

    fn numbers(numbering: &mut WordNumbering, positions: &[(&str, usize)]) -> Vec<String> {
        let position = |(list, level): &(&str, usize)| ListPosition {
            list: Some((*list).to_owned()),
            level: Some(*level),
        };
        let numbers = positions.iter().map(|of| numbering.next(&position(of)));
        numbers.map(|number| number.map_or_else(|| "-".to_owned(), |number| number.text)).collect()
    }

    #[test]
    fn lists_count_their_levels() {
        let start = "<w:start w:val=\"1\"/>";
        let levels = [
            level(0, &format!("{start}<w:numFmt w:val=\"upperRoman\"/><w:lvlText w:val=\"Article %1\"/>")),
            level(1, &format!("{start}<w:isLgl/><w:lvlText w:val=\"§ %1.%2\"/>")),
            level(2, &format!("{start}<w:numFmt w:val=\"lowerLetter\"/><w:lvlText w:val=\"(%3)\"/>")),
            level(3, "<w:numFmt w:val=\"bullet\"/><w:lvlText w:val=\"•\"/>"),
        ];
        let xml = format!(
            "<w:numbering><w:abstractNum w:abstractNumId=\"7\">{}</w:abstractNum>\
             <w:num w:numId=\"1\"><w:abstractNumId w:val=\"7\"/></w:num>\
             <w:num w:numId=\"2\"><w:abstractNumId w:val=\"7\"/><w:lvlOverride w:ilvl=\"1\"><w:startOverride w:val=\"5\"/>\
             </w:lvlOverride></w:num></w:numbering>",
            levels.concat()
        );
        let mut numbering = WordNumbering::read(&xml);
        let positions = [
            ("1", 0),
            ("1", 1),
            ("1", 1),
            ("1", 2),
            ("1", 2),
            ("1", 3),
            ("1", 1),
            ("1", 2),
            ("1", 0),
            ("1", 1),
        ];
        let expected =
            ["Article I", "§ 1.1", "§ 1.2", "(a)", "(b)", "-", "§ 1.3", "(a)", "Article II", "§ 2.1"];
        assert_eq!(numbers(&mut numbering, &positions), expected);
        // A further list of the same abstract one goes on, except for levels with a separate beginning.
        assert_eq!(
            numbers(&mut numbering, &[("2", 1), ("2", 1), ("2", 0)]),
            ["§ 2.5", "§ 2.6", "Article III"]
        );
        assert_eq!(numbers(&mut numbering, &[("0", 0), ("3", 0), ("1", 9), ("1", 4)]), ["-"; 4]);
        // A level whose levels above have no paragraph yet.
        assert_eq!(numbers(&mut WordNumbering::read(&xml), &[("1", 2), ("1", 1)]), ["(a)", "§ 1.2"]);
    }

    #[test]
    fn plain_numbers_are_decimals_of_one_level() {
        let is_plain = |format: &str, text: &str| {
            let levels = [
                level(0, "<w:start w:val=\"4\"/>"),
                level(1, &format!("<w:numFmt w:val=\"{format}\"/><w:lvlText w:val=\"{text}\"/>")),
            ];
            let xml = format!(
                "<w:abstractNum w:abstractNumId=\"7\">{}</w:abstractNum><w:num w:numId=\"1\"><w:abstractNumId w:val=\"7\"/></w:num>",
                levels.concat()
            );
            let position = ListPosition { list: Some("1".to_owned()), level: Some(1) };
            WordNumbering::read(&xml).next(&position).expect("it is numbered").is_plain
        };
        assert!(is_plain("decimal", "%2.") && is_plain("decimal", "(%2)"));
        assert!(
            !is_plain("decimal", "%1.%2") && !is_plain("lowerLetter", "%2.") && !is_plain("decimal", "§ %2")
        );
    }

    #[test]
    fn the_numbers_that_paragraphs_repeat_are_short() {
        let number = |text: &str| {
            let start = "<w:start w:val=\"3888\"/><w:numFmt w:val=\"lowerRoman\"/>";
            let level = level(0, &format!("{start}<w:lvlText w:val=\"{text}\"/>"));
            let xml = format!(
                "<w:abstractNum w:abstractNumId=\"7\">{level}</w:abstractNum><w:num w:numId=\"1\"><w:abstractNumId w:val=\"7\"/></w:num>"
            );
            numbers(&mut WordNumbering::read(&xml), &[("1", 0)]).concat()
        };
        assert_eq!(number(&"§".repeat(100)).chars().count(), 100);
        assert_eq!(number(&"§".repeat(1_000)), "-");
        let repeated = number(&"%1".repeat(120));
        assert!(repeated.len() <= MAX_LEVEL_TEXT_BYTES + "mmmdccclxxxviii".len(), "{} bytes", repeated.len());
    }

    #[test]
    fn numbers_have_their_formats() {
        let formats =
            ["decimal", "lowerLetter", "upperLetter", "lowerRoman", "upperRoman", "decimalZero", "ordinal"];
        let written = |number: u32| formats.map(|format| format_number(number, format));
        assert_eq!(written(4), ["4", "d", "D", "iv", "IV", "04", "4"]);
        assert_eq!(written(28), ["28", "bb", "BB", "xxviii", "XXVIII", "28", "28"]);
        assert_eq!(written(1_999), ["1999", "1999", "1999", "mcmxcix", "MCMXCIX", "1999", "1999"]);
        assert_eq!(written(u32::MAX)[3], "4294967295");
        assert_eq!(written(0), ["0", "0", "0", "0", "0", "00", "0"]);
    }
}
