//! The request of an HTTP tool: its template, and its expansion with a call's arguments.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

use super::ToolSettingsError;
use super::body::{BodySettings, RequestBody};
use super::file_parts::{FileReference, FormFiles};
use super::form::FilledBody;
use super::limits::is_header_value;
use super::template::{ArgumentError, Template, is_given, joined_text, value_text};
use crate::json::objects_only;

/// Request of a tool, with placeholders.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestSettings {
    pub(super) method: String,
    pub(super) url: String,
    #[serde(default)]
    pub(super) query: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) body: Option<Value>,
    /// Media type of the body; JSON if absent.
    #[serde(default, rename = "contentType")]
    content_type: Option<String>,
    /// Media types of the parts of a `multipart/form-data` body, by their names.
    #[serde(default, rename = "partTypes")]
    part_types: BTreeMap<String, String>,
    /// Names of the parts of a `multipart/form-data` body that are stored files.
    #[serde(default, rename = "fileParts")]
    pub(super) file_parts: Vec<String>,
}

/// Methods of tools.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/// Maximum length of a URL with its query, in bytes.
const MAX_URL_BYTES: usize = 8 * 1024;
/// Separator of the items of a list in a path or a header (OpenAPI 3, style `simple`).
const LIST_SEPARATOR: char = ',';
/// Separators of the items of a list in one query parameter.
const QUERY_SEPARATORS: [char; 4] = [',', ' ', '|', ';'];
/// Maximum number of headers and of query parameters.
pub(super) const MAX_FIELDS: usize = 32;
/// Maximum number of times that a value is percent-decoded in the search for a dot segment or a slash.
const MAX_DECODINGS: usize = 8;
/// Headers that a tool cannot set: those that frame and route a message, those of credentials, and the platform's own.
const RESERVED_HEADERS: [&str; 18] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "proxy-authorization",
    "te",
    "traceparent",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-agent-identity",
];

/// The request of a tool with placeholders.
pub(super) struct RequestTemplate {
    pub(super) method: &'static str,
    /// Scheme, host and port, followed by no slash.
    origin: String,
    /// Segments of the path.
    segments: Vec<Template>,
    query: Vec<(String, QueryValue)>,
    headers: Vec<(String, Template)>,
    body: Option<RequestBody>,
}

enum QueryValue {
    Constant(String),
    Text(Template),
    /// A list in one parameter.
    List {
        argument: String,
        separator: char,
    },
}

/// Setting of a list in one query parameter.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListSettings {
    /// Placeholder of the list.
    list: String,
    separator: char,
}

/// A request whose placeholders are filled.
pub(super) struct FilledRequest {
    pub(super) url: Url,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<FilledBody>,
}

impl RequestTemplate {
    /// Parses and checks a request. The path of the fault is within the tool.
    pub(super) fn parse(settings: &RequestSettings) -> Result<Self, ToolSettingsError> {
        let method = METHODS.into_iter().find(|method| *method == settings.method);
        let method = method.ok_or_else(|| {
            ToolSettingsError::new("request.method", format!("must be one of {}", METHODS.join(", ")))
        })?;
        let (origin, segments) =
            parse_url(&settings.url).map_err(|message| ToolSettingsError::new("request.url", message))?;
        if settings.query.len() > MAX_FIELDS || settings.headers.len() > MAX_FIELDS {
            let message = format!("has more than {MAX_FIELDS} query parameters or headers");
            return Err(ToolSettingsError::new("request", message));
        }
        let query = settings.query.iter().map(|(name, value)| Ok((name.clone(), parse_query(name, value)?)));
        let headers = settings.headers.iter().map(|(name, value)| {
            let fault = |message| ToolSettingsError::new(format!("request.headers.{name}"), message);
            check_header_name(name).map_err(fault)?;
            if name.eq_ignore_ascii_case("authorization") {
                return Err(fault("must be set by auth, which keeps its secret"));
            }
            let template = Template::parse(value).map_err(fault)?;
            if !is_header_value(value) {
                return Err(fault("has a character that is not allowed in a header"));
            }
            Ok((name.clone(), template))
        });
        if settings.body.is_some() && method == "GET" {
            return Err(ToolSettingsError::new("request.body", "is not allowed with GET"));
        }
        let body = RequestBody::parse(&BodySettings {
            body: settings.body.as_ref(),
            content_type: settings.content_type.as_deref(),
            part_types: &settings.part_types,
            file_parts: &settings.file_parts,
        })?;
        let (query, headers) = (query.collect::<Result<_, _>>()?, headers.collect::<Result<_, _>>()?);
        Ok(Self { method, origin, segments, query, headers, body })
    }

    /// Returns true if the query has a parameter of this name.
    pub(super) fn has_query_parameter(&self, name: &str) -> bool {
        self.query.iter().any(|(other, _)| other == name)
    }

    /// Returns each placeholder: the field's path, the argument's name, and true if the request cannot be made without it.
    pub(super) fn arguments(&self) -> Vec<(String, &str, bool)> {
        let mut all = Vec::new();
        for segment in &self.segments {
            all.extend(segment.arguments().map(|name| ("request.url".to_owned(), name, true)));
        }
        for (name, value) in &self.query {
            let path = || format!("request.query.{name}");
            match value {
                QueryValue::Constant(_) => {}
                QueryValue::Text(template) => {
                    all.extend(template.arguments().map(|argument| (path(), argument, false)));
                }
                QueryValue::List { argument, .. } => all.push((path(), argument.as_str(), false)),
            }
        }
        for (name, template) in &self.headers {
            let path = || format!("request.headers.{name}");
            all.extend(template.arguments().map(|argument| (path(), argument, false)));
        }
        let names = self.body.as_ref().map(RequestBody::arguments).unwrap_or_default();
        all.extend(names.into_iter().map(|name| ("request.body".to_owned(), name, false)));
        all
    }

    /// Returns the stored files that the arguments name, in the order in which the body has them.
    pub(super) fn file_references(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<Vec<FileReference>, ArgumentError> {
        self.body.as_ref().map_or_else(|| Ok(Vec::new()), |body| body.file_references(arguments))
    }

    /// Fills the placeholders. Query parameters and headers whose argument is not given are left out.
    pub(super) fn fill(
        &self,
        arguments: &Map<String, Value>,
        files: &FormFiles,
    ) -> Result<FilledRequest, ArgumentError> {
        let mut url = self.fill_path(arguments)?;
        for (name, value) in &self.query {
            match value {
                QueryValue::Constant(value) => append_query(&mut url, name, value),
                QueryValue::Text(template) if is_complete(template, arguments) => {
                    fill_query(&mut url, name, template, arguments)?;
                }
                QueryValue::Text(_) => {}
                QueryValue::List { argument, separator } => match arguments.get(argument) {
                    None | Some(Value::Null) => {}
                    Some(Value::Array(items)) if items.is_empty() => {}
                    Some(list) => {
                        let encode = |text: &str| bounded_text(argument, text);
                        append_query(&mut url, name, &joined_text(argument, list, *separator, encode)?);
                    }
                },
            }
        }
        if url.as_str().len() > MAX_URL_BYTES {
            let name = self.arguments().first().map(|(_, name, _)| (*name).to_owned()).unwrap_or_default();
            return Err(ArgumentError::new(&name, "makes the address too long"));
        }
        let mut headers = Vec::new();
        for (name, template) in self.headers.iter().filter(|(_, value)| is_complete(value, arguments)) {
            headers.push((name.clone(), fill_header(template, arguments)?));
        }
        let body = match &self.body {
            Some(body) => body.fill(arguments, files)?,
            None => None,
        };
        Ok(FilledRequest { url, headers, body })
    }

    fn fill_path(&self, arguments: &Map<String, Value>) -> Result<Url, ArgumentError> {
        let mut path = String::new();
        for segment in &self.segments {
            path.push('/');
            let filled = segment.expand_values(arguments, |name, value| {
                joined_text(name, value, LIST_SEPARATOR, |text| path_text(name, text))
            })?;
            // Values that are harmless alone may make a dot segment together.
            if let Some(name) = segment.arguments().next()
                && is_unsafe_segment(&filled)
            {
                return Err(ArgumentError::new(name, "is not allowed in the address"));
            }
            path.push_str(&filled);
            if path.len() > MAX_URL_BYTES {
                let name = segment.arguments().next().unwrap_or_default();
                return Err(ArgumentError::new(name, "makes the address too long"));
            }
        }
        let refused = || {
            let name = self.segments.iter().flat_map(Template::arguments).next().unwrap_or_default();
            ArgumentError::new(name, "is not allowed in the address")
        };
        let url = Url::parse(&format!("{}{path}", self.origin)).map_err(|_| refused())?;
        // The parser would normalize a path that leaves its place.
        let is_unchanged = url.path() == if path.is_empty() { "/" } else { &path };
        if is_unchanged && url.query().is_none() && url.fragment().is_none() {
            Ok(url)
        } else {
            Err(refused())
        }
    }
}

/// Splits a URL into its origin and the templates of its path's segments.
fn parse_url(text: &str) -> Result<(String, Vec<Template>), &'static str> {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme).unwrap_or_default();
    if !matches!(scheme, "http" | "https") {
        return Err("must begin with https:// or http://");
    }
    if text.len() > MAX_URL_BYTES {
        return Err("is too long");
    }
    let rest = &text[scheme.len() + 3..];
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len()));
    if authority.contains(['{', '}', '%']) {
        return Err("must not have a placeholder in its host or port");
    }
    if authority.contains('@') {
        return Err("must not have a user; use auth");
    }
    if path.contains(['?', '#', '\\']) {
        return Err("must not have a query, a fragment or a backslash; use request.query");
    }
    let origin = format!("{scheme}://{authority}");
    let base = Url::parse(&origin).map_err(|_| "is not a URL")?;
    if base.host_str().is_none_or(str::is_empty) {
        return Err("has no host");
    }
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let segments = segments.into_iter().map(Template::parse).collect::<Result<Vec<_>, _>>()?;
    // With a letter for each value, the path must be as the parser writes it, so that a call's can be compared.
    let mut sample = String::new();
    for segment in &segments {
        let arguments = segment.arguments().map(|name| (name.to_owned(), Value::from("x"))).collect();
        sample.push('/');
        sample.push_str(&segment.expand(&arguments, |_, text| Ok(text.to_owned())).unwrap_or_default());
    }
    let parsed = Url::parse(&format!("{origin}{sample}")).map_err(|_| "is not a URL")?;
    let expected = if sample.is_empty() { "/" } else { &sample };
    match parsed.path() == expected {
        true => Ok((origin, segments)),
        false => {
            Err("has a path that is not in normalized form: percent-encode it, without . and .. segments")
        }
    }
}

fn parse_query(name: &str, value: &Value) -> Result<QueryValue, ToolSettingsError> {
    let fault = |message| ToolSettingsError::new(format!("request.query.{name}"), message);
    match value {
        Value::String(text) => Template::parse(text).map(QueryValue::Text).map_err(fault),
        Value::Number(_) | Value::Bool(_) => Ok(QueryValue::Constant(value.to_string())),
        _ => parse_list(value)
            .ok_or_else(|| fault("must be a text, a number, a boolean, or a list with its separator")),
    }
}

fn parse_list(value: &Value) -> Option<QueryValue> {
    let ListSettings { list, separator } = ListSettings::deserialize(objects_only(value)).ok()?;
    let argument = Template::parse(&list).ok()?.sole_argument()?.to_owned();
    QUERY_SEPARATORS.contains(&separator).then_some(QueryValue::List { argument, separator })
}

/// Returns true if all arguments of the template are given.
fn is_complete(template: &Template, arguments: &Map<String, Value>) -> bool {
    template.arguments().all(|name| is_given(arguments, name))
}

/// Appends a query parameter. A list that is the whole value is repeated for each of its items.
fn fill_query(
    url: &mut Url,
    name: &str,
    template: &Template,
    arguments: &Map<String, Value>,
) -> Result<(), ArgumentError> {
    let list = template.sole_argument().and_then(|argument| Some((argument, arguments.get(argument)?)));
    match list {
        Some((argument, Value::Array(items))) => {
            for item in items {
                append_query(url, name, &value_text(argument, item)?);
                if url.as_str().len() > MAX_URL_BYTES {
                    return Err(ArgumentError::new(argument, "makes the address too long"));
                }
            }
        }
        _ => append_query(url, name, &template.expand(arguments, bounded_text)?),
    }
    Ok(())
}

fn append_query(url: &mut Url, name: &str, value: &str) {
    url.query_pairs_mut().append_pair(name, value);
}

/// Checks a header's name.
pub(super) fn check_header_name(name: &str) -> Result<(), &'static str> {
    if !is_token(name) {
        return Err("is not the name of a header, which has no placeholders");
    }
    match RESERVED_HEADERS.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
        true => Err("is a header that a tool cannot set"),
        false => Ok(()),
    }
}

/// Returns true for a token (RFC 9110, section 5.6.2) of at most 64 bytes. A percent sign counts as none.
pub(super) fn is_token(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte))
}

/// Fills a header's value. The items of a list are separated by commas.
fn fill_header(template: &Template, arguments: &Map<String, Value>) -> Result<String, ArgumentError> {
    let value = template.expand_values(arguments, |name, value| {
        joined_text(name, value, LIST_SEPARATOR, |text| header_text(name, text))
    })?;
    let name = template.arguments().next().unwrap_or_default();
    header_text(name, &value)
}

fn header_text(name: &str, text: &str) -> Result<String, ArgumentError> {
    match is_header_value(text) {
        true => Ok(text.to_owned()),
        false => {
            Err(ArgumentError::new(name, "has a character that is not allowed in a header, or is too long"))
        }
    }
}

fn bounded_text(name: &str, text: &str) -> Result<String, ArgumentError> {
    match text.len() <= MAX_URL_BYTES {
        true => Ok(text.to_owned()),
        false => Err(ArgumentError::new(name, "makes the address too long")),
    }
}

/// Encodes a value for a segment of a path.
fn path_text(name: &str, text: &str) -> Result<String, ArgumentError> {
    if text.is_empty() {
        return Err(ArgumentError::new(name, "is empty"));
    }
    let text = bounded_text(name, text)?;
    if is_unsafe_segment(&text) || text.chars().any(char::is_control) {
        return Err(ArgumentError::new(name, "is not allowed in the address"));
    }
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(byte.into()),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    Ok(encoded)
}

/// Returns true if a text is a dot segment or has a slash or a backslash, however often it is percent-encoded: servers and
/// proxies may decode it more than once.
fn is_unsafe_segment(text: &str) -> bool {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..MAX_DECODINGS {
        if matches!(bytes.as_slice(), b"." | b"..") || bytes.iter().any(|byte| b"/\\\0\r\n".contains(byte)) {
            return true;
        }
        let decoded = percent_decode(&bytes);
        if decoded == bytes {
            return false;
        }
        bytes = decoded;
    }
    // No legitimate value has this many layers of encoding.
    true
}

/// Decodes percent-encoded bytes; what is not encoded is kept.
pub(super) fn percent_decode(bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let byte = digits.and_then(|digits| hex::decode(digits).ok()).map(|decoded| decoded[0]);
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    decoded
}
