//! Rules of the style sheets within a page, and which of them apply to an element.
//!
//! A rule whose selector is a single compound of tag, identifier and classes is exact. Of any other selector, only the last
//! compound is read: the rule may apply to an element that matches it. Rules within `@media` and similar blocks are not exact
//! either. In a page with scripts, or with sheets that are not read, no rule is exact, since they may change its effect.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use super::css::{
    Declaration, find_at_top_level, is_transparent, parse_declarations, split_at_top_level, without_comments,
};

/// Maximum number of rules that are kept; with more, the sheets are incomplete.
const MAX_RULES: usize = 4_096;
/// Maximum number of steps in which elements of a page are compared with rules; the styles of further elements are uncertain.
const MAX_STEPS: usize = 64 * 1024 * 1024;
/// Steps of a rule or declaration without the comparison of classes.
const STEPS_PER_RULE: usize = 4;
/// Maximum number of classes of a selector that are compared.
const MAX_CLASSES: usize = 8;
/// Maximum nesting depth of `@media` and similar rules that are read.
const MAX_NESTING: usize = 4;
/// Pseudo-classes that match no element when a page is opened, and pseudo-elements without text of the page. A hidden element
/// cannot enter these states. `:target` is not among them, since pages show tabs by it.
const OTHER_STATES: [&str; 12] = [
    "active",
    "after",
    "before",
    "checked",
    "first-letter",
    "first-line",
    "focus",
    "focus-visible",
    "focus-within",
    "hover",
    "placeholder",
    "visited",
];

/// The style sheets of a page.
#[derive(Debug, Default)]
pub(super) struct StyleSheets {
    rules: Vec<Rule>,
    /// The numbers of the rules by the identifier, class or tag that an element must have.
    rules_by_key: HashMap<String, Vec<usize>>,
    /// Number of steps in which elements were compared with rules.
    steps: Cell<usize>,
    is_incomplete: bool,
    /// True if something may be painted between a text and the backgrounds of the elements that contain it.
    is_layered: bool,
}

/// A rule for one selector.
#[derive(Debug)]
struct Rule {
    selector: Selector,
    declarations: Rc<[Declaration]>,
}

/// The last compound of a selector.
#[derive(Debug, Default)]
struct Selector {
    tag: Option<String>,
    id: Option<String>,
    classes: Vec<String>,
    /// True if every element that matches the compound matches the selector.
    is_exact: bool,
}

/// Name, attributes and inline style of an element, for matching rules.
#[derive(Debug, Default)]
pub(super) struct StyledElement<'a> {
    pub(super) tag: &'a str,
    pub(super) id: &'a str,
    pub(super) classes: Vec<&'a str>,
    /// The style of the element itself.
    pub(super) style: &'a str,
}

/// The values of an element's properties.
#[derive(Debug, Default)]
pub(super) struct Cascade {
    /// `None` for a property whose value depends on rules that may apply or not.
    values: HashMap<&'static str, Option<String>>,
    /// True if the rules of the element were not read.
    is_uncertain: bool,
}

/// Value of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PropertyValue<'a> {
    Unset,
    Set(&'a str),
    /// Rules that may apply or not set it.
    Uncertain,
}

impl StyleSheets {
    /// Returns true if there are scripts, or rules that were not read, such as rules in other files.
    pub(super) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Records that the page has scripts, or rules that are not read.
    pub(super) fn set_incomplete(&mut self) {
        self.is_incomplete = true;
    }

    /// Returns true if the background of a text may come from an element that does not contain it: an element that lies behind
    /// it, or a table column.
    pub(super) fn is_layered(&self) -> bool {
        self.is_layered
    }

    /// Records that something may be between a text and the backgrounds of the elements that contain it.
    pub(super) fn set_layered(&mut self) {
        self.is_layered = true;
    }

    /// Adds a style sheet for some media, which are all without a value.
    pub(super) fn add(&mut self, css: &str, media: &str) {
        let css = without_comments(css).replace("<!--", " ").replace("-->", " ");
        match media.trim().to_ascii_lowercase().as_str() {
            "" | "all" | "screen" => self.add_rules(&css, true, 0),
            media => self.add_conditional(&format!("media {media}"), &css, 0),
        }
    }

    fn add_rules(&mut self, mut css: &str, is_exact: bool, nesting: usize) {
        while let Some(end) = find_at_top_level(css, |byte| matches!(byte, b'{' | b';')) {
            let prelude = css[..end].trim();
            let is_block = css.as_bytes()[end] == b'{';
            css = &css[end + 1..];
            if !is_block {
                self.is_incomplete |= prelude.to_ascii_lowercase().starts_with("@import");
                continue;
            }
            let end = find_at_top_level(css, |byte| byte == b'}').unwrap_or(css.len());
            let block = &css[..end];
            css = css.get(end + 1..).unwrap_or_default();
            match prelude.strip_prefix('@') {
                Some(condition) => self.add_conditional(&condition.to_ascii_lowercase(), block, nesting),
                None => self.add_rule(prelude, block, is_exact),
            }
        }
    }

    /// Adds the rules of `@media` and similar rules, except those for print and for preferences of the user.
    fn add_conditional(&mut self, condition: &str, block: &str, nesting: usize) {
        let has_rules = ["media", "supports", "layer", "container", "scope", "starting-style"]
            .iter()
            .any(|name| condition.starts_with(name));
        let is_print = condition.strip_prefix("media").is_some_and(is_print);
        if !has_rules || is_print || condition.contains("prefers-") {
            return;
        }
        if nesting == MAX_NESTING {
            self.is_incomplete = true;
            return;
        }
        self.add_rules(block, false, nesting + 1);
    }

    fn add_rule(&mut self, selectors: &str, block: &str, is_exact: bool) {
        // Nested rules are not read.
        self.is_incomplete |= block.contains('{');
        let mut declarations = parse_declarations(block);
        let is_revealed_later = ["animation", "transition"].iter().any(|name| block.contains(name));
        if is_revealed_later {
            declarations.retain(|declaration| declaration.name != "opacity");
        }
        self.is_layered |= declarations
            .iter()
            .any(|declaration| declaration.name == "z-index" && declaration.value.starts_with('-'));
        if declarations.is_empty() {
            return;
        }
        let declarations: Rc<[Declaration]> = declarations.into();
        for selector in split_at_top_level(selectors, ',').filter_map(Selector::parse) {
            if self.rules.len() == MAX_RULES {
                self.is_incomplete = true;
                return;
            }
            let selector = Selector { is_exact: selector.is_exact && is_exact, ..selector };
            let key = self.key_of(&selector);
            self.rules_by_key.entry(key).or_default().push(self.rules.len());
            self.rules.push(Rule { selector, declarations: declarations.clone() });
        }
    }

    /// Returns the key of a rule: its identifier, otherwise the class that the fewest rules use so far, otherwise its tag.
    fn key_of(&self, selector: &Selector) -> String {
        if let Some(id) = &selector.id {
            return format!("#{id}");
        }
        let classes = selector.classes.iter().map(|class| format!(".{class}"));
        let rarest = classes.min_by_key(|class| self.rules_by_key.get(class).map_or(0, Vec::len));
        rarest.or_else(|| selector.tag.clone()).unwrap_or_default()
    }

    /// Returns the values of an element's properties.
    pub(super) fn cascade(&self, element: &StyledElement<'_>) -> Cascade {
        let Some(rules) = self.rules_for(element) else {
            return Cascade { is_uncertain: true, ..Cascade::default() };
        };
        let own = parse_declarations(&without_comments(element.style));
        // The rank of a declaration: whether it is important, whether it is the element's own, and the specificity.
        let mut ranked: Vec<((bool, bool, usize), bool, &Declaration)> = Vec::new();
        for rule in rules {
            let is_exact = rule.selector.is_exact && !self.is_incomplete;
            // Conditions that are not evaluated add to the specificity.
            let specificity = if is_exact { rule.selector.specificity() } else { usize::MAX };
            ranked.extend(
                rule.declarations.iter().map(|declaration| {
                    ((declaration.is_important, false, specificity), is_exact, declaration)
                }),
            );
        }
        ranked.extend(own.iter().map(|declaration| ((declaration.is_important, true, 0), true, declaration)));
        ranked.sort_by_key(|&(rank, ..)| rank);
        let mut values = HashMap::new();
        for (_, is_exact, declaration) in ranked {
            if is_exact {
                values.insert(declaration.name, Some(declaration.value.clone()));
            } else if !hides(declaration) {
                // A rule that may apply shows the element, or gives it other colors.
                values.insert(declaration.name, None);
            }
        }
        Cascade { values, is_uncertain: false }
    }

    /// Returns the rules whose last compound matches an element, in their order; `None` if the page has taken too many steps.
    fn rules_for(&self, element: &StyledElement<'_>) -> Option<Vec<&Rule>> {
        if self.rules.is_empty() {
            return Some(Vec::new());
        }
        let classes = element.classes.iter().map(|class| format!(".{class}"));
        let keys = classes.chain([format!("#{}", element.id), element.tag.to_owned(), String::new()]);
        let candidates: Vec<&Vec<usize>> = keys.filter_map(|key| self.rules_by_key.get(&key)).collect();
        let count: usize = candidates.iter().map(|numbers| numbers.len()).sum();
        if count == 0 {
            return Some(Vec::new());
        }
        self.take_steps(count.saturating_mul(STEPS_PER_RULE + element.classes.len()))?;
        let mut numbers: Vec<usize> = candidates.into_iter().flatten().copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let rules = numbers.into_iter().map(|number| &self.rules[number]);
        let rules: Vec<&Rule> = rules.filter(|rule| rule.selector.matches(element)).collect();
        let declarations: usize = rules.iter().map(|rule| rule.declarations.len()).sum();
        self.take_steps(declarations.saturating_mul(STEPS_PER_RULE))?;
        Some(rules)
    }

    /// Counts steps; `None` if there are more than the maximum number.
    fn take_steps(&self, steps: usize) -> Option<()> {
        self.steps.set(self.steps.get().saturating_add(steps));
        (self.steps.get() <= MAX_STEPS).then_some(())
    }
}

/// Returns true for a media query that matches printed pages only.
fn is_print(media: &str) -> bool {
    media.split(',').all(|query| {
        let query = query.trim_start();
        query.strip_prefix("only ").unwrap_or(query).trim_start().starts_with("print")
    })
}

/// Returns true for a declaration that hides its element.
fn hides(declaration: &Declaration) -> bool {
    let value = declaration.value.as_str();
    match declaration.name {
        "display" => value == "none",
        "visibility" => matches!(value, "hidden" | "collapse"),
        "opacity" => is_transparent(value),
        _ => false,
    }
}

impl Cascade {
    /// Returns the value of a property.
    pub(super) fn get(&self, name: &str) -> PropertyValue<'_> {
        match self.values.get(name) {
            None if self.is_uncertain => PropertyValue::Uncertain,
            None => PropertyValue::Unset,
            Some(None) => PropertyValue::Uncertain,
            Some(Some(value)) => PropertyValue::Set(value),
        }
    }

    /// Returns the value of a property if it is certain, and an empty text otherwise.
    pub(super) fn certain(&self, name: &str) -> &str {
        match self.get(name) {
            PropertyValue::Set(value) => value,
            PropertyValue::Unset | PropertyValue::Uncertain => "",
        }
    }

    /// Returns true if a property has, or may have, another value than `known`.
    pub(super) fn may_differ(&self, name: &str, known: &[&str]) -> bool {
        match self.get(name) {
            PropertyValue::Unset => false,
            PropertyValue::Set(value) => !known.contains(&value),
            PropertyValue::Uncertain => true,
        }
    }
}

impl Selector {
    /// Parses the last compound of a selector. Returns `None` for an invalid selector, and for one with a pseudo-class that no
    /// element has when the page is opened.
    fn parse(text: &str) -> Option<Self> {
        let is_combinator = |byte: u8| byte.is_ascii_whitespace() || matches!(byte, b'>' | b'+' | b'~');
        let mut compound = text;
        while let Some(end) = find_at_top_level(compound, is_combinator) {
            compound = &compound[end + 1..];
        }
        let mut selector = Self { is_exact: compound.len() == text.len(), ..Self::default() };
        let mut rest = compound;
        while let Some(first) = rest.chars().next() {
            rest = match first {
                '#' | '.' | ':' => &rest[1..],
                '*' => {
                    rest = &rest[1..];
                    continue;
                }
                '[' => {
                    selector.is_exact = false;
                    rest = after_brackets(rest, b']');
                    continue;
                }
                _ => rest,
            };
            let begins_with_digit = rest.starts_with(|character: char| character.is_ascii_digit());
            let (name, after) = identifier(rest.trim_start_matches(':'));
            rest = after;
            match first {
                // A rule with such a name has no effect.
                '#' | '.' if name.is_empty() || begins_with_digit => return None,
                '#' => selector.id = Some(name),
                '.' if selector.classes.len() < MAX_CLASSES => selector.classes.push(name),
                '.' => selector.is_exact = false,
                ':' if name == "root" => selector.tag = Some("html".to_owned()),
                ':' if OTHER_STATES.contains(&name.as_str()) => return None,
                ':' => {
                    selector.is_exact = false;
                    if rest.starts_with('(') {
                        rest = after_brackets(rest, b')');
                    }
                }
                _ if name.is_empty() => return Some(Self::default()),
                _ => selector.tag = Some(name.to_ascii_lowercase()),
            }
        }
        Some(selector)
    }

    fn specificity(&self) -> usize {
        let id = usize::from(self.id.is_some()) * 1_000_000;
        id + self.classes.len() * 1_000 + usize::from(self.tag.is_some())
    }

    fn matches(&self, element: &StyledElement<'_>) -> bool {
        self.tag.as_ref().is_none_or(|tag| tag == element.tag)
            && self.id.as_ref().is_none_or(|id| id == element.id)
            && self.classes.iter().all(|class| element.classes.contains(&class.as_str()))
    }
}

/// Returns the text after its leading brackets.
fn after_brackets(text: &str, close: u8) -> &str {
    let inner = text.get(1..).unwrap_or_default();
    find_at_top_level(inner, |byte| byte == close).map_or("", |end| &inner[end + 1..])
}

/// Returns the leading identifier of a text, without escapes, and the text after it.
fn identifier(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((offset, character)) = characters.next() {
        match character {
            '-' | '_' => name.push(character),
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            _ if character.is_alphanumeric() || !character.is_ascii() => name.push(character),
            _ => return (name, &text[offset..]),
        }
    }
    (name, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the values of `display` and `color` of an element by its tag, identifier and classes.
    fn values(css: &str, tag: &str, id: &str, classes: &[&str]) -> String {
        let mut sheets = StyleSheets::default();
        sheets.add(css, "");
        let element = StyledElement { tag, id, classes: classes.to_vec(), style: "" };
        let cascade = sheets.cascade(&element);
        format!("{:?} {:?}", cascade.get("display"), cascade.get("color"))
    }

    #[test]
    fn selectors_are_matched() {
        for (css, expected) in [
            ("p.a { display: none }", "Set(\"none\") Unset"),
            ("p.c { display: none }", "Unset Unset"),
            ("P , div { color: red }", "Unset Set(\"red\")"),
            ("#x{color:red} .a{color:blue} p{color:lime}", "Unset Set(\"red\")"),
            (".a{color:blue} .b{color:lime}", "Unset Set(\"lime\")"),
            (".a{color:blue!important} #x{color:lime}", "Unset Set(\"blue\")"),
            ("*{color:blue}", "Unset Set(\"blue\")"),
            (".a.b{color:blue}.a.c{color:lime}", "Unset Set(\"blue\")"),
            // Selectors and conditions that are not evaluated may show the element and never hide it.
            (".a{display:none}div > .b{display:block}", "Uncertain Unset"),
            (".a{display:none}[x] .b{display:none}", "Set(\"none\") Unset"),
            ("div .a{display:none}", "Unset Unset"),
            ("@media (min-width:1px){.a{color:red}}", "Unset Uncertain"),
            (".b:not(:hover){color:red}", "Unset Uncertain"),
            // Neither other states nor printed pages are what a reader sees at first.
            (".a:hover,.a::before,p:focus{color:red}", "Unset Unset"),
            ("@media print{.a{color:red}}@font-face{color:red}", "Unset Unset"),
            ("@media only print , print{.a{color:red}}", "Unset Unset"),
            ("@media screen, print{.a{color:red}}", "Unset Uncertain"),
            ("@media not print{.a{color:red}}", "Unset Uncertain"),
            ("/* .a{color:red} */ .m\\:b{color:red}", "Unset Unset"),
            ("}}} .a{color:red", "Unset Uncertain"),
            (".a{color:red", "Unset Set(\"red\")"),
        ] {
            assert_eq!(values(css, "p", "x", &["a", "b"]), expected, "{css}");
        }
        assert_eq!(values(".m\\:b{color:red}", "p", "", &["m:b"]), "Unset Set(\"red\")");
        assert_eq!(values("#{color:red}.1a{display:none}", "p", "", &["1a"]), "Unset Unset");
        assert_eq!(values(".\\1a{color:red}", "p", "", &["1a"]), "Unset Set(\"red\")");
    }

    #[test]
    fn rules_of_a_common_class_are_found_by_their_others() {
        let rules = (0..100).map(|number| format!(".a.b{number}{{color:red}}"));
        let mut sheets = StyleSheets::default();
        sheets.add(&rules.collect::<String>(), "");
        assert!(sheets.rules_by_key.values().all(|numbers| numbers.len() == 1), "{:?}", sheets.rules_by_key);
        for (classes, expected) in [
            (vec!["a", "b50"], PropertyValue::Set("red")),
            (vec!["b0", "a"], PropertyValue::Set("red")),
            (vec!["b50"], PropertyValue::Unset),
            (vec!["a"], PropertyValue::Unset),
        ] {
            let element = StyledElement { tag: "p", classes, ..StyledElement::default() };
            assert_eq!(sheets.cascade(&element).get("color"), expected, "{:?}", element.classes);
        }
    }

    #[test]
    fn styles_are_uncertain_after_too_many_steps() {
        let element = |classes: &[&'static str]| StyledElement {
            tag: "p",
            classes: classes.to_vec(),
            style: "display:none",
            ..StyledElement::default()
        };
        let mut sheets = StyleSheets::default();
        sheets.add(".a{color:red;top:0}", "");
        sheets.cascade(&element(&["a", "c"]));
        assert_eq!(sheets.steps.get(), STEPS_PER_RULE + 2 + 2 * STEPS_PER_RULE);
        sheets.steps.set(MAX_STEPS - STEPS_PER_RULE);
        let cascade = sheets.cascade(&element(&["a"]));
        for property in ["display", "color", "opacity"] {
            assert_eq!(cascade.get(property), PropertyValue::Uncertain, "{property}");
        }
        // No rule concerns it.
        assert_eq!(sheets.cascade(&element(&["b"])).get("display"), PropertyValue::Set("none"));
    }

    #[test]
    fn sheets_that_are_not_read_wholly_are_incomplete() {
        for (css, expected) in [
            (".a{color:red}", false),
            ("@charset 'x'; @media print{.a{color:red}}", false),
            ("@import url(a.css);", true),
            (".a{color:red; &:hover{color:blue}}", true),
            (&".a{color:red}".repeat(5_000), true),
            (&format!("{}.a{{color:red}}", "@media x{".repeat(9)), true),
        ] {
            let mut sheets = StyleSheets::default();
            sheets.add(css, "");
            assert_eq!(sheets.is_incomplete(), expected, "{}", &css[..20.min(css.len())]);
        }
    }
}
