//! Formulas of Word documents and slides (Office MathML, ECMA-376 part 1, section 22.1) as text on one line.
//!
//! The form is that in which Word shows a formula on a line (Unicode Technical Note 28): `(a+b)/2`, `x_i^2`, `√(x+1)`,
//! `∑_(i=1)^n i`. A root's degree is in brackets, and the rows of a matrix are separated by semicolons.

use quick_xml::escape::{escape, unescape};
use quick_xml::events::{BytesStart, Event};

use super::xml::{XmlEvents, attribute, is_on};

/// Elements of mathematical objects, such as fractions and roots, and of runs of text.
const OBJECTS: [&str; 18] = [
    "m:acc",
    "m:bar",
    "m:d",
    "m:eqArr",
    "m:f",
    "m:func",
    "m:limLow",
    "m:limUpp",
    "m:m",
    "m:mr",
    "m:nary",
    "m:phant",
    "m:r",
    "m:rad",
    "m:sPre",
    "m:sSub",
    "m:sSubSup",
    "m:sSup",
];
/// Elements that are arguments of other elements.
const ARGUMENTS: [&str; 8] = ["m:deg", "m:den", "m:e", "m:fName", "m:lim", "m:num", "m:sub", "m:sup"];
/// Maximum nesting depth of elements of a formula that are read. Each of its structures takes two.
const MAX_DEPTH: usize = 128;

/// Reads a formula whose start was the last event. Returns its text, escaped for XML, and the offset after it.
///
/// `is_hidden` decides by the element with the properties of a run if its text is left out.
pub(super) fn read_formula(
    xml: &str,
    events: &mut XmlEvents<'_>,
    is_hidden: &dyn Fn(&str) -> bool,
) -> (String, usize) {
    let mut reader = FormulaReader::default();
    let mut end = xml.len();
    while let Some((event, range)) = events.next() {
        match event {
            Event::Start(element) => {
                let name = element.name();
                let name = name.into_inner();
                if reader.is_full() || matches!(name, "w:del" | "w:moveFrom") {
                    events.skip(&element);
                } else if reader.is_run() && matches!(name, "w:rPr" | "a:rPr") {
                    let properties_end = events.skip(&element);
                    reader.top().is_hidden |= is_hidden(&xml[range.start..properties_end]);
                } else if name.starts_with("m:") && name.ends_with("Pr") {
                    read_properties(events, reader.top());
                } else {
                    reader.open(name);
                }
            }
            Event::Empty(element) => match element.name().into_inner() {
                "a:rPr" if reader.is_run() => reader.top().is_hidden |= is_hidden(&xml[range]),
                "w:br" => reader.top().text.push(' '),
                name => {
                    reader.open(name);
                    reader.close();
                }
            },
            Event::Text(_) | Event::GeneralRef(_) if reader.is_text() => {
                let raw = &xml[range];
                reader.push(unescape(raw).as_deref().unwrap_or(raw));
            }
            Event::CData(text) if reader.is_text() => reader.push(&text),
            Event::End(_) if !reader.close() => {
                end = range.end;
                break;
            }
            _ => {}
        }
    }
    (escape(reader.finish()).into_owned(), end)
}

/// Reads the properties of an object up to the end of their element.
fn read_properties(events: &mut XmlEvents<'_>, node: &mut Node) {
    let mut depth = 1;
    while let Some((event, _)) = events.next() {
        match event {
            Event::Start(element) => {
                node.set_property(&element);
                depth += 1;
            }
            Event::Empty(element) => node.set_property(&element),
            Event::End(_) => {
                depth -= 1;
                if depth == 0 {
                    return;
                }
            }
            _ => {}
        }
    }
}

/// A formula with its open elements.
#[derive(Debug, Default)]
struct FormulaReader {
    formula: Node,
    open: Vec<Node>,
}

impl FormulaReader {
    fn top(&mut self) -> &mut Node {
        self.open.last_mut().unwrap_or(&mut self.formula)
    }

    fn is_full(&self) -> bool {
        self.open.len() >= MAX_DEPTH
    }

    fn is_run(&self) -> bool {
        self.open.last().is_some_and(|node| node.name == "m:r")
    }

    fn is_text(&self) -> bool {
        self.open.last().is_some_and(|node| node.is_text)
    }

    fn push(&mut self, text: &str) {
        self.top().text.push_str(text);
    }

    fn open(&mut self, name: &str) {
        let known = OBJECTS.iter().chain(&ARGUMENTS).find(|known| **known == name).copied();
        self.open.push(Node {
            name: known.unwrap_or_default(),
            is_text: matches!(name, "m:t" | "w:t"),
            ..Node::default()
        });
    }

    /// Closes the innermost element. Returns false if none is open but the formula.
    fn close(&mut self) -> bool {
        let Some(node) = self.open.pop() else { return false };
        let name = node.name;
        let text = node.render();
        self.top().append(name, text);
        true
    }

    /// Returns the text of the formula, whose end may be missing.
    fn finish(mut self) -> String {
        while self.close() {}
        self.formula.render()
    }
}

/// An element of a formula.
#[derive(Debug, Default)]
struct Node {
    /// Name of the element, empty for one whose content stands for itself.
    name: &'static str,
    /// Text of the content outside of arguments.
    text: String,
    arguments: Vec<(&'static str, String)>,
    /// Values of properties by the names of their elements.
    properties: Vec<(String, Option<String>)>,
    /// True if the text ends with a fraction or the like, whose end the next character must not move.
    ends_with_object: bool,
    /// True for an element whose characters are text.
    is_text: bool,
    /// True for a run that is not shown.
    is_hidden: bool,
}

impl Node {
    fn set_property(&mut self, element: &BytesStart<'_>) {
        let name = element.name();
        let name = name.into_inner();
        if name.starts_with("m:") {
            self.properties.push((name.to_owned(), attribute(element, "m:val")));
        }
    }

    fn property(&self, name: &str) -> Option<Option<&str>> {
        let (_, value) = self.properties.iter().find(|(found, _)| found == name)?;
        Some(value.as_deref())
    }

    /// Returns true for a property that is switched on, as one without a value is.
    fn has(&self, name: &str) -> bool {
        self.property(name).is_some_and(|value| value.is_none_or(is_on))
    }

    /// Returns the character of a property. A property without a value has no character.
    fn character<'n>(&'n self, name: &str, default: &'n str) -> &'n str {
        self.property(name).map_or(default, Option::unwrap_or_default)
    }

    fn argument(&self, name: &str) -> &str {
        let argument = self.arguments.iter().find(|(found, _)| *found == name);
        argument.map_or("", |(_, text)| text.as_str())
    }

    fn joined(&self, name: &str, separator: &str) -> String {
        let texts = self.arguments.iter().filter(|(found, _)| *found == name);
        texts.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(separator)
    }

    /// Appends the text of a child.
    fn append(&mut self, name: &'static str, text: String) {
        let is_argument = ARGUMENTS.contains(&name) || name == "m:mr";
        if is_argument && OBJECTS.contains(&self.name) {
            self.arguments.push((name, text));
            return;
        }
        let is_object = OBJECTS.contains(&name) && name != "m:r";
        let (last, first) = (self.text.chars().next_back(), text.chars().next());
        if let (Some(last), Some(first)) = (last, first)
            && last.is_alphanumeric()
            && first.is_alphanumeric()
            && (self.ends_with_object
                || matches!(name, "m:f" | "m:func")
                || (is_object && first.is_numeric()))
        {
            self.text.push(' ');
        }
        if !text.is_empty() {
            self.ends_with_object = is_object;
        }
        self.text.push_str(&text);
    }

    fn render(self) -> String {
        match self.name {
            "m:r" if self.is_hidden => String::new(),
            "m:phant" if self.property("m:show").is_some_and(|value| !value.is_none_or(is_on)) => {
                String::new()
            }
            "m:f" => {
                let bar = if self.property("m:type") == Some(Some("noBar")) { '¦' } else { '/' };
                format!("{}{bar}{}", grouped(self.argument("m:num")), grouped(self.argument("m:den")))
            }
            "m:sSup" | "m:sSub" | "m:sSubSup" | "m:limLow" | "m:limUpp" => {
                grouped(self.argument("m:e")) + &self.scripts()
            }
            "m:sPre" => format!("({}){}", self.scripts(), grouped(self.argument("m:e"))),
            "m:nary" => {
                format!("{}{} {}", self.character("m:chr", "∫"), self.scripts(), self.argument("m:e"))
            }
            "m:rad" => {
                let degree = if self.has("m:degHide") { "" } else { self.argument("m:deg") };
                let degree = if degree.is_empty() { String::new() } else { format!("[{degree}]") };
                format!("√{degree}{}", grouped(self.argument("m:e")))
            }
            "m:d" => {
                let (begin, end) = (self.character("m:begChr", "("), self.character("m:endChr", ")"));
                format!("{begin}{}{end}", self.joined("m:e", self.character("m:sepChr", "|")))
            }
            "m:func" => {
                let (name, argument) = (self.argument("m:fName"), self.argument("m:e"));
                let space = if argument.starts_with('(') { "" } else { " " };
                format!("{name}{space}{argument}")
            }
            "m:acc" => grouped(self.argument("m:e")) + self.character("m:chr", "\u{302}"),
            "m:bar" => {
                let is_above = self.property("m:pos") == Some(Some("top"));
                grouped(self.argument("m:e")) + if is_above { "\u{305}" } else { "\u{332}" }
            }
            "m:eqArr" => self.joined("m:e", "; "),
            "m:mr" => self.joined("m:e", ", "),
            "m:m" => self.joined("m:mr", "; "),
            _ => self.text + &self.arguments.into_iter().map(|(_, text)| text).collect::<String>(),
        }
    }

    /// Returns the subscript and the superscript of the base, or its limits, with their signs.
    fn scripts(&self) -> String {
        let limit = self.argument("m:lim");
        let (below, above) = match self.name {
            "m:limLow" => (limit, ""),
            "m:limUpp" => ("", limit),
            _ => (self.argument("m:sub"), self.argument("m:sup")),
        };
        let mut scripts = String::new();
        for (sign, text) in [('_', below), ('^', above)] {
            if !text.is_empty() {
                scripts.push(sign);
                scripts.push_str(&grouped(text));
            }
        }
        scripts
    }
}

/// Returns an operand in parentheses, unless it is a number, a word, a single character or in parentheses already.
fn grouped(text: &str) -> String {
    let is_number = text.chars().all(|character| character.is_numeric() || matches!(character, '.' | ','));
    let is_word = text.chars().all(char::is_alphabetic);
    if is_number || is_word || text.chars().nth(1).is_none() || is_parenthesized(text) {
        return text.to_owned();
    }
    format!("({text})")
}

/// Returns true if the first parenthesis of a text is closed by its last character.
fn is_parenthesized(text: &str) -> bool {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at > 0 && at + character.len_utf8() == text.len();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> String {
        format!("<m:r><m:t>{text}</m:t></m:r>")
    }

    fn linear(content: &str) -> String {
        let xml = format!("<w:p><m:oMath>{content}</m:oMath><w:r/></w:p>");
        let mut events = XmlEvents::new(&xml);
        events.next();
        events.next();
        let (text, end) =
            read_formula(&xml, &mut events, &|properties: &str| properties.contains("w:vanish"));
        assert_eq!(&xml[end..], "<w:r/></w:p>");
        text
    }

    #[test]
    fn structures_are_written_on_a_line() {
        let argument = |name: &str, text: &str| format!("<m:{name}>{}</m:{name}>", run(text));
        let object = |name: &str, arguments: &[(&str, &str)]| {
            let arguments: String = arguments.iter().map(|(name, text)| argument(name, text)).collect();
            format!("<m:{name}>{arguments}</m:{name}>")
        };
        let fraction = object("f", &[("num", "a+b"), ("den", "2")]);
        let delimited = format!("<m:d><m:e>{}</m:e></m:d>", run("x"));
        let limit = object("limLow", &[("e", "lim"), ("lim", "x→0")]);
        let row = format!("<m:mr>{}{}</m:mr>", argument("e", "a"), argument("e", "b"));
        for (content, expected) in [
            (fraction.clone(), "(a+b)/2"),
            (run("3") + &object("f", &[("num", "1"), ("den", "2")]) + &run("x"), "3 1/2 x"),
            (run("E=m") + &object("sSup", &[("e", "c"), ("sup", "2")]), "E=mc^2"),
            (object("sSubSup", &[("e", "x"), ("sub", "i+1"), ("sup", "10")]), "x_(i+1)^10"),
            (object("sPre", &[("sub", "92"), ("sup", "238"), ("e", "U")]), "(_92^238)U"),
            (format!("<m:sSup><m:e>{fraction}</m:e>{}</m:sSup>", argument("sup", "n")), "((a+b)/2)^n"),
            (
                format!(
                    "<m:nary><m:naryPr><m:chr m:val=\"∑\"/><m:ctrlPr><w:rPr/></m:ctrlPr></m:naryPr>{}{}{}</m:nary>",
                    argument("sub", "i=1"),
                    argument("sup", "n"),
                    argument("e", "i"),
                ),
                "∑_(i=1)^n i",
            ),
            (
                format!(
                    "<m:rad><m:radPr><m:degHide m:val=\"1\"/></m:radPr><m:deg/>{}</m:rad>",
                    argument("e", "x+1")
                ),
                "√(x+1)",
            ),
            (object("rad", &[("deg", "3"), ("e", "x")]), "√[3]x"),
            (
                format!("<m:func><m:fName>{limit}</m:fName><m:e>{}{delimited}</m:e></m:func>", run("f")),
                "lim_(x→0) f(x)",
            ),
            (format!("<m:func>{}<m:e>{delimited}</m:e></m:func>", argument("fName", "sin")), "sin(x)"),
            (
                format!(
                    "<m:d><m:dPr><m:begChr m:val=\"[\"/><m:endChr m:val=\"]\"/></m:dPr><m:e><m:m>{row}{row}</m:m></m:e></m:d>"
                ),
                "[a, b; a, b]",
            ),
            (
                format!(
                    "<m:d><m:dPr><m:begChr m:val=\"{{\"/><m:endChr m:val=\"\"/></m:dPr><m:e>{}</m:e></m:d>",
                    object("eqArr", &[("e", "x"), ("e", "y")])
                ),
                "{x; y",
            ),
            (object("acc", &[("e", "x")]), "x\u{302}"),
            (object("unknown", &[("e", "a"), ("e", "b")]), "ab"),
        ] {
            assert_eq!(linear(&content), expected, "{content}");
        }
    }

    #[test]
    fn text_is_escaped_and_white_space_between_elements_is_none() {
        let content = "\n <m:r>\n <m:t>a&lt;b &amp; </m:t> <m:t><![CDATA[c<d]]></m:t></m:r>\n";
        assert_eq!(linear(content), "a&lt;b &amp; c&lt;d");
    }

    #[test]
    fn hidden_and_deleted_parts_are_dropped() {
        let hidden = "<m:r><m:rPr/><w:rPr><w:vanish/></w:rPr><m:t>h</m:t></m:r>";
        let deleted = format!("<w:del w:id=\"1\">{}</w:del>", run("d"));
        let phantom =
            format!("<m:phant><m:phantPr><m:show m:val=\"0\"/></m:phantPr><m:e>{}</m:e></m:phant>", run("p"));
        assert_eq!(linear(&[hidden, &deleted, &phantom, &run("seen")].concat()), "seen");
    }

    #[test]
    fn the_depth_is_limited() {
        let nested = |depth: usize| {
            format!("{}{}{}", "<m:box><m:e>".repeat(depth), run("x"), "</m:e></m:box>".repeat(depth))
        };
        assert_eq!(linear(&(nested(60) + &run("y"))), "xy");
        assert_eq!(linear(&(nested(50_000) + &run("y"))), "y");
    }
}
