//! Templates: texts with placeholders, and JSON values with such texts.

use serde_json::{Map, Value};

use crate::exact_json;

/// Maximum length of a placeholder's name, in bytes.
const MAX_PLACEHOLDER_BYTES: usize = 64;

/// Maximum number of items of a list in one text.
const MAX_LIST_ITEMS: usize = 1_000;

/// Message for the body of a form that has no fields.
pub(super) const NOT_FIELDS: &str = "must be an object, whose members are the fields of a form";

/// A text in which `{name}` stands for an argument. `{{` and `}}` are braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Argument(String),
}

/// Error of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ArgumentError {
    pub(super) argument: String,
    pub(super) message: &'static str,
}

impl ArgumentError {
    pub(super) fn new(argument: &str, message: &'static str) -> Self {
        Self { argument: argument.to_owned(), message }
    }
}

impl Template {
    /// Parses a text. The error follows the path of the field.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let (name, after) = match brace {
                "{" => rest.split_once('}').ok_or("has a placeholder without an end")?,
                _ => return Err("has a } without a {; write }} for a brace"),
            };
            if !is_placeholder_name(name) {
                return Err("has a placeholder that is not the name of an argument; write {{ for a brace");
            }
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Argument(name.to_owned()));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// Returns the names of the arguments.
    pub(super) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Argument(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// Returns the argument that is the whole text, if it is one.
    pub(super) fn sole_argument(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Argument(name)] => Some(name),
            _ => None,
        }
    }

    /// Fills the placeholders with the arguments' texts, as `encode` returns them.
    pub(super) fn expand(
        &self,
        arguments: &Map<String, Value>,
        encode: impl Fn(&str, &str) -> Result<String, ArgumentError>,
    ) -> Result<String, ArgumentError> {
        self.expand_values(arguments, |name, value| encode(name, &value_text(name, value)?))
    }

    /// Fills the placeholders with the arguments' values, as `encode` writes them.
    pub(super) fn expand_values(
        &self,
        arguments: &Map<String, Value>,
        encode: impl Fn(&str, &Value) -> Result<String, ArgumentError>,
    ) -> Result<String, ArgumentError> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Argument(name) => {
                    let value = arguments.get(name).ok_or_else(|| ArgumentError::new(name, "is missing"))?;
                    text.push_str(&encode(name, value)?);
                }
            }
        }
        Ok(text)
    }
}

fn is_placeholder_name(name: &str) -> bool {
    (1..=MAX_PLACEHOLDER_BYTES).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

/// Returns true if the argument is given and not null.
pub(super) fn is_given(arguments: &Map<String, Value>, name: &str) -> bool {
    arguments.get(name).is_some_and(|value| !value.is_null())
}

/// Returns the text of a value, or those of a list's items with a separator between them, each as `encode` writes it.
pub(super) fn joined_text(
    name: &str,
    value: &Value,
    separator: char,
    encode: impl Fn(&str) -> Result<String, ArgumentError>,
) -> Result<String, ArgumentError> {
    let Value::Array(items) = value else { return encode(&value_text(name, value)?) };
    if items.is_empty() {
        return Err(ArgumentError::new(name, "is an empty list"));
    }
    if items.len() > MAX_LIST_ITEMS {
        return Err(ArgumentError::new(name, "is a list of more than 1,000 items"));
    }
    let mut joined = String::new();
    for (i, item) in items.iter().enumerate() {
        let text = encode(&value_text(name, item)?)?;
        if text.contains(separator) {
            return Err(ArgumentError::new(name, "has an item with the character that separates the items"));
        }
        if i > 0 {
            joined.push(separator);
        }
        joined.push_str(&text);
    }
    Ok(joined)
}

/// Returns a text, number or boolean as text.
pub(super) fn value_text(name: &str, value: &Value) -> Result<String, ArgumentError> {
    match value {
        Value::String(text) => Ok(exact_json::text(text).to_owned()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Null => Err(ArgumentError::new(name, "is missing")),
        Value::Array(_) | Value::Object(_) => {
            Err(ArgumentError::new(name, "must be a text, a number or a boolean"))
        }
    }
}

/// A JSON value whose texts are templates. Keys are constant.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum BodyTemplate {
    /// A value without placeholders.
    Constant(Value),
    /// A text with placeholders.
    Text(Template),
    List(Vec<BodyTemplate>),
    Object(Vec<(String, BodyTemplate)>),
}

impl BodyTemplate {
    /// Parses a value. The error is the path below the value, and the message.
    pub(super) fn parse(value: &Value) -> Result<Self, (String, &'static str)> {
        Ok(match value {
            Value::String(text) => {
                let template = Template::parse(text).map_err(|message| (String::new(), message))?;
                Self::Text(template)
            }
            Value::Array(items) => {
                let item = |(index, item)| {
                    Self::parse(item).map_err(|(path, message)| (format!("[{index}]{path}"), message))
                };
                Self::List(items.iter().enumerate().map(item).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let field = |(name, value): (&String, &Value)| match Self::parse(value) {
                    Ok(value) => Ok((name.clone(), value)),
                    Err((path, message)) => Err((format!(".{name}{path}"), message)),
                };
                Self::Object(fields.iter().map(field).collect::<Result<_, _>>()?)
            }
            constant => Self::Constant(constant.clone()),
        })
    }

    /// Appends the names of the arguments.
    pub(super) fn collect_arguments<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Self::Constant(_) => {}
            Self::Text(template) => names.extend(template.arguments()),
            Self::List(items) => items.iter().for_each(|item| item.collect_arguments(names)),
            Self::Object(fields) => fields.iter().for_each(|(_, value)| value.collect_arguments(names)),
        }
    }

    /// Checks that the value can be encoded as a form: an object of texts, numbers, booleans and lists of these, and also of other
    /// values if the form has parts. An argument in place of the object or of a member is checked once it is given. The error is
    /// the path below the value, and the message.
    pub(super) fn check_form(&self, has_parts: bool) -> Result<(), (String, &'static str)> {
        let fields = match self {
            Self::Object(fields) => fields,
            Self::Text(template) if template.sole_argument().is_some() => return Ok(()),
            _ => return Err((String::new(), NOT_FIELDS)),
        };
        for (name, value) in fields {
            let is_field = match value {
                Self::Constant(_) | Self::Text(_) => true,
                Self::List(items) => items.iter().all(|item| match item {
                    Self::Constant(value) => !value.is_null(),
                    Self::Text(_) => true,
                    Self::List(_) | Self::Object(_) => has_parts,
                }),
                Self::Object(_) => has_parts,
            };
            if !is_field {
                let message = match has_parts {
                    true => "must not have null in its list",
                    false => "must be a text, a number, a boolean, or a list of these",
                };
                return Err((format!(".{name}"), message));
            }
        }
        Ok(())
    }

    /// Returns the path of the argument whose value a member of the filled value has.
    pub(super) fn member_argument(&self, member: &str) -> String {
        let mut names = Vec::new();
        match self {
            Self::Object(fields) => {
                let values = fields.iter().filter(|(name, _)| name == member);
                values.for_each(|(_, value)| value.collect_arguments(&mut names));
                names.first().copied().unwrap_or_default().to_owned()
            }
            _ => {
                self.collect_arguments(&mut names);
                format!("{}/{member}", names.first().copied().unwrap_or_default())
            }
        }
    }

    /// Fills the placeholders. A text that is one placeholder becomes the argument's value, of any type; if the argument is not
    /// given, the result is `None`, and the text is left out of its list or object.
    pub(super) fn expand(&self, arguments: &Map<String, Value>) -> Result<Option<Value>, ArgumentError> {
        Ok(Some(match self {
            Self::Constant(value) => value.clone(),
            Self::Text(template) => match template.sole_argument() {
                Some(name) => return Ok(arguments.get(name).cloned()),
                None => Value::String(template.expand(arguments, |_, text| Ok(text.to_owned()))?),
            },
            Self::List(items) => {
                let items = items.iter().filter_map(|item| item.expand(arguments).transpose());
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Self::Object(fields) => {
                let mut filled = Map::new();
                for (name, value) in fields {
                    if let Some(value) = value.expand(arguments)? {
                        filled.insert(name.clone(), value);
                    }
                }
                Value::Object(filled)
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("an object") };
        map
    }

    #[test]
    fn placeholders_are_filled_and_braces_are_doubled() {
        let filled = |text: &str| {
            let template = Template::parse(text).expect("a template");
            template.expand(&arguments(json!({"a": "x", "n": 2, "b": true})), |_, text| Ok(text.to_owned()))
        };
        for (text, expected) in
            [("", ""), ("{a}", "x"), ("a{a}{n}-{b}", "ax2-true"), ("{{a}}", "{a}"), ("{{{a}}}", "{x}")]
        {
            assert_eq!(filled(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(filled("{z}"), Err(ArgumentError::new("z", "is missing")));
        for text in ["{", "{}", "{a", "a}", "{a b}", "{ä}", "{a{b}}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_list_that_cannot_be_joined_has_its_own_error() {
        let joined = |list: Value| joined_text("a", &list, ',', |text| Ok(text.to_owned()));
        assert_eq!(joined(json!(vec![0; MAX_LIST_ITEMS])).map(|text| text.len()), Ok(2 * MAX_LIST_ITEMS - 1));
        for (list, message) in [
            (json!([]), "is an empty list"),
            (json!(vec![0; MAX_LIST_ITEMS + 1]), "is a list of more than 1,000 items"),
            (json!(["a,b"]), "has an item with the character that separates the items"),
        ] {
            assert_eq!(joined(list), Err(ArgumentError::new("a", message)));
        }
    }

    #[test]
    fn a_body_keeps_types_and_leaves_out_what_is_not_given() {
        let template = json!({"note": "{note}", "text": "n: {n}", "tags": ["{tag}", "fixed"], "deep": {"x": "{x}"}, "n": 1});
        let template = BodyTemplate::parse(&template).expect("a template");
        let filled = template.expand(&arguments(json!({"n": 3, "x": {"a": [1, null]}}))).expect("a body");
        let expected = json!({"text": "n: 3", "tags": ["fixed"], "deep": {"x": {"a": [1, null]}}, "n": 1});
        assert_eq!(filled, Some(expected));
        let mut names = Vec::new();
        template.collect_arguments(&mut names);
        names.sort_unstable();
        assert_eq!(names, ["n", "note", "tag", "x"]);
        let error = BodyTemplate::parse(&json!({"a": [1, "{"]})).expect_err("no template");
        assert_eq!(error.0, ".a[1]");
    }
}
