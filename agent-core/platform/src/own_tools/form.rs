//! Bodies of forms: `application/x-www-form-urlencoded`, and `multipart/form-data` (RFC 7578).

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest, Sha256};
use url::form_urlencoded;

use super::file_parts::{FileReference, FormFile, FormFiles};
use super::limits::MAX_REQUEST_BYTES;
use super::template::{ArgumentError, BodyTemplate, NOT_FIELDS, value_text};
use crate::exact_json;
use crate::media_type::{essence, is_json};

/// Media type of the body of a form.
pub(super) const FORM_CONTENT_TYPE: &str = "application/x-www-form-urlencoded";
/// Media type of the body of a form that has parts. A request adds the boundary.
pub(super) const MULTIPART_CONTENT_TYPE: &str = "multipart/form-data";
/// Media type of the part of an object or of a nested list whose settings name none.
const JSON_CONTENT_TYPE: &str = "application/json";
/// Maximum number of parts.
const MAX_PARTS: usize = 1_000;
/// Message for a field that makes a body of more than [`MAX_REQUEST_BYTES`], since its name is repeated for each item.
const TOO_LONG: &str = "makes a form of more than 262,144 bytes";
/// Maximum number of boundaries that are tried. Each is a hash of all parts, so that the first does not occur in them.
const MAX_BOUNDARIES: u32 = 16;

/// Member of a filled template: its name, the path of its argument, and its values.
type Member<'b> = (&'b str, String, &'b [Value]);

/// A body whose placeholders are filled.
pub(super) struct FilledBody {
    pub(super) content_type: String,
    /// The body's bytes, in order.
    pub(super) pieces: Vec<Bytes>,
    /// Size of the stored files among the pieces, in bytes.
    pub(super) file_bytes: usize,
}

impl FilledBody {
    /// Returns the size without the stored files, in bytes.
    pub(super) fn own_bytes(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum::<usize>() - self.file_bytes
    }
}

/// Settings of the parts of a form.
#[derive(Default)]
pub(super) struct PartSettings {
    /// Media types by the names of the parts.
    pub(super) media_types: BTreeMap<String, String>,
    /// Names of the parts that are stored files.
    pub(super) file_parts: Vec<String>,
}

impl PartSettings {
    fn is_file(&self, name: &str) -> bool {
        self.file_parts.iter().any(|part| part == name)
    }
}

/// A part of a form.
struct FormPart<'a> {
    /// The name as the part's header has it.
    name: String,
    media_type: Option<&'a str>,
    content: PartContent<'a>,
}

enum PartContent<'a> {
    Text(String),
    File(&'a FormFile),
}

/// Returns true for a media type of a part that can be sent: JSON, or one of text.
pub(super) fn is_part_type(media_type: &str) -> bool {
    is_json(media_type) || essence(media_type).starts_with("text/")
}

/// Encodes the members of a filled template as the fields of a form. A list is repeated for each of its items, and null is left
/// out.
pub(super) fn encode_urlencoded(template: &BodyTemplate, body: &Value) -> Result<Vec<u8>, ArgumentError> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    let mut bytes = 0;
    for (name, argument, items) in members(template, body)? {
        for item in items {
            let value = value_text(&argument, item)?;
            count_bytes(&mut bytes, (name, &value), &argument)?;
            form.append_pair(name, &value);
        }
    }
    Ok(form.finish().into_bytes())
}

/// Adds the lengths of a name and a value to the length of the form so far. Encoded, they are at least as long.
fn count_bytes(bytes: &mut usize, (name, value): (&str, &str), argument: &str) -> Result<(), ArgumentError> {
    *bytes += name.len() + value.len();
    match *bytes <= MAX_REQUEST_BYTES {
        true => Ok(()),
        false => Err(ArgumentError::new(argument, TOO_LONG)),
    }
}

/// Encodes the members of a filled template as the parts of a form. A list is repeated for each of its items, and null is left
/// out. The same members and files make the same body.
pub(super) fn encode_multipart(
    template: &BodyTemplate,
    body: &Value,
    (settings, files): (&PartSettings, &FormFiles),
) -> Result<FilledBody, ArgumentError> {
    let (mut parts, mut last_argument, mut bytes, mut file_bytes) = (Vec::new(), String::new(), 0, 0);
    for (name, argument, items) in members(template, body)? {
        let media_type = settings.media_types.get(name).map(String::as_str);
        if parts.len() + items.len() > MAX_PARTS {
            return Err(ArgumentError::new(&argument, "makes more than 1,000 parts of a form"));
        }
        for item in items {
            let part = match settings.is_file(name) {
                true => {
                    let file = files.find(&argument, reference_text(&argument, item)?)?;
                    file_bytes += file.content.len();
                    let (name, media_type) = (escape_name(name), Some(file.media_type.as_str()));
                    FormPart { name, media_type, content: PartContent::File(file) }
                }
                false => part(name, media_type, (&argument, item))?,
            };
            count_bytes(&mut bytes, (&part.name, part.text()), &argument)?;
            parts.push(part);
        }
        last_argument = argument;
    }
    let boundary = choose_boundary(&parts, boundaries(&parts));
    let boundary = boundary.ok_or_else(|| {
        ArgumentError::new(&last_argument, "contains every boundary that was tried for the form")
    })?;
    let content_type = format!("{MULTIPART_CONTENT_TYPE}; boundary={boundary}");
    Ok(FilledBody { content_type, pieces: write_parts(&parts, &boundary), file_bytes })
}

/// Returns the stored files that the members of a filled template name.
pub(super) fn file_references(
    template: &BodyTemplate,
    body: &Value,
    settings: &PartSettings,
) -> Result<Vec<FileReference>, ArgumentError> {
    let mut references = Vec::new();
    for (_, argument, items) in
        members(template, body)?.into_iter().filter(|(name, ..)| settings.is_file(name))
    {
        for item in items {
            let reference = reference_text(&argument, item)?.to_owned();
            references.push(FileReference { argument: argument.clone(), reference });
        }
    }
    Ok(references)
}

fn reference_text<'b>(argument: &str, item: &'b Value) -> Result<&'b str, ArgumentError> {
    item.as_str()
        .ok_or_else(|| ArgumentError::new(argument, "must be the id of a stored file, which is a text"))
}

fn members<'b>(template: &BodyTemplate, body: &'b Value) -> Result<Vec<Member<'b>>, ArgumentError> {
    let Value::Object(fields) = body else {
        let mut names = Vec::new();
        template.collect_arguments(&mut names);
        return Err(ArgumentError::new(names.first().copied().unwrap_or_default(), NOT_FIELDS));
    };
    let non_null = fields.iter().filter(|(_, value)| !value.is_null());
    let member = |(name, value): (&'b String, &'b Value)| {
        let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        (name.as_str(), template.member_argument(name), items)
    };
    Ok(non_null.map(member).collect())
}

fn part<'a>(
    name: &str,
    media_type: Option<&'a str>,
    (argument, item): (&str, &Value),
) -> Result<FormPart<'a>, ArgumentError> {
    let (media_type, value) = match (media_type, item) {
        (Some(media_type), item) if is_json(media_type) => (Some(media_type), exact_json::write(item)),
        (None, Value::Object(_) | Value::Array(_)) => (Some(JSON_CONTENT_TYPE), exact_json::write(item)),
        (media_type, item) => (media_type, value_text(argument, item)?),
    };
    Ok(FormPart { name: escape_name(name), media_type, content: PartContent::Text(value) })
}

impl FormPart<'_> {
    /// Returns the value of a part, or the name of its file.
    fn text(&self) -> &str {
        match &self.content {
            PartContent::Text(value) => value,
            PartContent::File(file) => &file.name,
        }
    }

    /// Returns the text that identifies the content: the value, or a hash of a file.
    fn distinguishing_text(&self) -> &str {
        match &self.content {
            PartContent::Text(value) => value,
            PartContent::File(file) => &file.sha256,
        }
    }
}

/// Returns a name for a quoted parameter, as browsers escape it: control characters and quotation marks are percent-encoded.
fn escape_name(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '"' => escaped.push_str("%22"),
            c if c.is_ascii_control() => escaped.push_str(&format!("%{:02X}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns boundaries for the parts, each a hash of all of them. A file is included by its hash, so that a file that contains a
/// boundary cannot be constructed.
fn boundaries(parts: &[FormPart<'_>]) -> impl Iterator<Item = String> {
    let mut hash = Sha256::new();
    for text in parts.iter().flat_map(|part| [&*part.name, part.distinguishing_text(), part.text()]) {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    (0..MAX_BOUNDARIES).map(move |number| {
        let hash = hash.clone().chain_update(number.to_be_bytes()).finalize();
        format!("agentd-{}", hex::encode(&hash[..16]))
    })
}

/// Returns the first boundary that occurs in no text of a part.
fn choose_boundary(parts: &[FormPart<'_>], mut boundaries: impl Iterator<Item = String>) -> Option<String> {
    boundaries.find(|boundary| {
        parts.iter().all(|part| !part.text().contains(boundary) && !part.name.contains(boundary))
    })
}

/// Returns the bytes of a form in pieces; the contents of files are shared, not copied.
fn write_parts(parts: &[FormPart<'_>], boundary: &str) -> Vec<Bytes> {
    let (mut pieces, mut text) = (Vec::new(), String::new());
    for FormPart { name, media_type, content } in parts {
        text.push_str(&format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\""));
        if let PartContent::File(file) = content {
            text.push_str(&format!("; filename=\"{}\"", escape_name(&file.name)));
        }
        text.push_str("\r\n");
        if let Some(media_type) = media_type {
            text.push_str(&format!("Content-Type: {media_type}\r\n"));
        }
        text.push_str("\r\n");
        match content {
            PartContent::Text(value) => text.push_str(value),
            PartContent::File(file) => {
                pieces.extend([Bytes::from(std::mem::take(&mut text)), file.content.clone()]);
            }
        }
        text.push_str("\r\n");
    }
    text.push_str(&format!("--{boundary}--\r\n"));
    pieces.push(text.into());
    pieces
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn encode(body: &Value, part_types: &[(&str, &str)]) -> Result<(String, String), ArgumentError> {
        let template = BodyTemplate::parse(&json!("{body}")).expect("a template");
        let part_types = part_types.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()));
        let part_types: BTreeMap<String, String> = part_types.collect();
        let settings = PartSettings { media_types: part_types, file_parts: Vec::new() };
        let body = encode_multipart(&template, body, (&settings, &FormFiles::default()))?;
        let boundary = body.content_type.strip_prefix("multipart/form-data; boundary=").expect("a boundary");
        let text = String::from_utf8(body.pieces.concat()).expect("text").replace(boundary, "B");
        Ok((boundary.to_owned(), text))
    }

    #[test]
    fn parts_have_the_type_of_their_value_or_the_given_one() {
        let body = json!({"a": "x\r\n--y", "b": {"c": [1]}, "d": [2, true, "z"], "e": null, "f": "q", "g": [{"h": 1}]});
        let (boundary, text) =
            encode(&body, &[("a", "text/csv"), ("f", "application/json")]).expect("a form");
        let part = |name: &str, kind: &str, value: &str| {
            format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n{kind}\r\n{value}\r\n")
        };
        let json_type = "Content-Type: application/json\r\n";
        let expected = [
            part("a", "Content-Type: text/csv\r\n", "x\r\n--y"),
            part("b", json_type, r#"{"c":[1]}"#),
            part("d", "", "2"),
            part("d", "", "true"),
            part("d", "", "z"),
            part("f", json_type, "\"q\""),
            part("g", json_type, r#"{"h":1}"#),
            "--B--\r\n".to_owned(),
        ];
        assert_eq!(text, expected.concat());
        assert_eq!(
            encode(&body, &[("a", "text/csv"), ("f", "application/json")]).expect("a form").0,
            boundary
        );
        assert_ne!(encode(&json!({"a": "other"}), &[]).expect("a form").0, boundary);
        assert_eq!(encode(&json!({}), &[]).expect("a form").1, "--B--\r\n");
        for (body, part_types, argument) in [
            (json!([1]), vec![], "body"),
            (json!({"a": {"b": 1}}), vec![("a", "text/plain")], "body/a"),
            (json!({"a": ["x", null]}), vec![], "body/a"),
            (json!({"a": vec![0; MAX_PARTS], "b": 1}), vec![], "body/b"),
        ] {
            assert_eq!(encode(&body, &part_types).expect_err("no form").argument, argument);
        }
    }

    #[test]
    fn a_form_is_bounded_before_its_name_is_repeated() {
        let template = BodyTemplate::parse(&json!("{body}")).expect("a template");
        let name = "n".repeat(MAX_REQUEST_BYTES / 4);
        for (items, is_short) in [(3, true), (4, false), (MAX_PARTS, false)] {
            let body = json!({(name.as_str()): vec![0; items]});
            let too_long = (!is_short).then(|| ArgumentError::new(&format!("body/{name}"), TOO_LONG));
            assert_eq!(encode_urlencoded(&template, &body).err(), too_long, "{items}");
            let parts = (&PartSettings::default(), &FormFiles::default());
            assert_eq!(encode_multipart(&template, &body, parts).err(), too_long, "{items}");
        }
    }

    #[test]
    fn a_boundary_occurs_in_no_part_and_a_name_ends_no_header() {
        let candidates = || ["one", "two", "three"].map(str::to_owned).into_iter();
        let parts = [("name", "x--one"), ("two", "")].map(|(name, value)| FormPart {
            name: name.to_owned(),
            media_type: None,
            content: PartContent::Text(value.to_owned()),
        });
        assert_eq!(choose_boundary(&parts, candidates()).as_deref(), Some("three"));
        assert_eq!(choose_boundary(&parts, candidates().take(2)), None);
        let (_, text) = encode(&json!({"a\"\r\nX-Evil: 1\u{0}": "v"}), &[]).expect("a form");
        assert_eq!(
            text,
            "--B\r\nContent-Disposition: form-data; name=\"a%22%0D%0AX-Evil: 1%00\"\r\n\r\nv\r\n--B--\r\n"
        );
    }
}
