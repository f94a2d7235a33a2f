//! Bodies of operations: JSON, and forms.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::super::super::body::DEFAULT_CONTENT_TYPE;
use super::super::super::form::{FORM_CONTENT_TYPE, MULTIPART_CONTENT_TYPE, is_part_type};
use super::super::super::settings::list_names;
use super::super::schemas::cut;
use super::{RequestBuilder, has_type, placeholder};
use crate::media_type::{essence, is_json};

/// Maximum depth of the lists and choices that are searched for a file.
const MAX_FILE_DEPTH: usize = 8;

/// Reason why a part is left out, worded to follow its name.
const NOT_SENDABLE: &str =
    "which cannot be sent: its media type is neither JSON nor text, or it needs further headers";
/// Description of an argument that names a file.
const FILE_DESCRIPTION: &str = "Id of a stored file of the user, which is sent.";

/// A body that can be sent.
struct SendableBody<'d> {
    content_type: &'d str,
    /// Schema in the document's revision, without the parts that are left out.
    schema: Option<Cow<'d, Value>>,
    /// Media types of the parts of a form, by their names.
    part_types: Map<String, Value>,
    /// Names of the parts that are files.
    file_parts: Vec<&'d str>,
    /// Names of the parts that are left out.
    left_out: Vec<&'d str>,
}

/// Encoding of a part of a form.
enum PartEncoding<'d> {
    /// That of its value: text, or JSON for an object.
    OfValue,
    MediaType(&'d str),
    File(FileCount),
    /// A media type or a header that a tool cannot send.
    Unsupported,
}

/// Number of files of a part.
#[derive(Clone, Copy)]
enum FileCount {
    One,
    List,
}

impl<'d> RequestBuilder<'d> {
    /// Adds the body. An optional one that cannot be sent is left out, as are such parts of a form.
    pub(super) fn add_body(&mut self, method: &str, body: &'d Value) -> Result<(), String> {
        let is_required = body.get("required") == Some(&Value::Bool(true));
        let body = match body.get("content").and_then(Value::as_object) {
            Some(content) => self.sendable_body(content),
            None => Err("has a body that is neither JSON nor a form".to_owned()),
        };
        let body = match body {
            Ok(_) if method == "get" => Err("has a body, which GET does not allow".to_owned()),
            body => body,
        };
        let SendableBody { content_type, schema, part_types, file_parts, left_out } = match body {
            Ok(body) => body,
            // The operation can be called without it.
            Err(reason) if !is_required => {
                self.omission = Some(format!("{reason}, so it is called without a body"));
                return Ok(());
            }
            Err(reason) => return Err(reason),
        };
        let schema = match schema {
            Some(schema) => self.schemas.convert(&schema)?,
            None => json!({}),
        };
        let argument = self.argument("body", schema, is_required);
        self.body = Some(placeholder(&argument).into());
        self.content_type = Some(content_type).filter(|name| *name != DEFAULT_CONTENT_TYPE);
        self.part_types = part_types;
        self.file_parts = file_parts;
        if !left_out.is_empty() {
            let names = list_names(left_out.iter().map(|name| format!("{name:?}")));
            self.omission = Some(format!("is called without {names}, {NOT_SENDABLE}"));
        }
        Ok(())
    }

    /// Returns the content of a body that can be sent. The order of preference is: `application/json`, types with the suffix
    /// `+json`, ranges (for which `application/json` is sent), forms, and forms with parts.
    ///
    /// # Errors
    /// Reason why there is none.
    fn sendable_body(&self, content: &'d Map<String, Value>) -> Result<SendableBody<'d>, String> {
        let ranked = content.iter().filter_map(|(name, media_type)| {
            let (rank, sent) = match essence(name).as_str() {
                DEFAULT_CONTENT_TYPE => (0, name.trim()),
                "application/*" | "application/*+json" | "*/*" => (2, DEFAULT_CONTENT_TYPE),
                FORM_CONTENT_TYPE => (3, FORM_CONTENT_TYPE),
                MULTIPART_CONTENT_TYPE => (4, MULTIPART_CONTENT_TYPE),
                _ if is_json(name) => (1, name.trim()),
                _ => return None,
            };
            Some((rank, sent, media_type))
        });
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_by_key(|(rank, ..)| *rank);
        let mut reason = "has a body that is neither JSON nor a form".to_owned();
        for (_, content_type, media_type) in ranked {
            let body = match content_type {
                MULTIPART_CONTENT_TYPE => self.multipart_body(media_type),
                FORM_CONTENT_TYPE if !self.is_plain_form(media_type) => {
                    Err("has a form that is not an object of plain values".to_owned())
                }
                content_type => {
                    let schema = media_type.get("schema").map(Cow::Borrowed);
                    let (part_types, file_parts, left_out) = Default::default();
                    Ok(SendableBody { content_type, schema, part_types, file_parts, left_out })
                }
            };
            match body {
                Ok(body) => return Ok(body),
                Err(error) => reason = error,
            }
        }
        Err(reason)
    }

    /// Returns true for a form each of whose fields is a text, a number, a boolean or a list.
    fn is_plain_form(&self, media_type: &'d Value) -> bool {
        let resolve = |schema: &'d Value| self.document.resolve(schema).ok();
        let Some(schema) = media_type.get("schema").and_then(resolve) else { return false };
        let mut properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        has_type(Some(schema), "object") && properties.all(|(_, field)| !has_type(resolve(field), "object"))
    }

    /// Returns a form with the parts that can be sent.
    ///
    /// # Errors
    /// Reason why the form cannot be sent: it requires another part, or has no part that can be sent.
    fn multipart_body(&self, media_type: &'d Value) -> Result<SendableBody<'d>, String> {
        let schema = media_type.get("schema").unwrap_or(&Value::Null);
        let schema = self.document.resolve(schema)?;
        let Value::Object(fields) = schema else {
            return Err("has a form whose parts are not described".to_owned());
        };
        let is_composed = ["allOf", "anyOf", "oneOf"].iter().any(|keyword| fields.contains_key(*keyword));
        let properties = fields.get("properties").and_then(Value::as_object);
        if is_composed || (properties.is_none() && !has_type(Some(schema), "object")) {
            return Err("has a form whose parts are not the properties of one object".to_owned());
        }
        let is_required = |name: &str| {
            let required = fields.get("required").and_then(Value::as_array);
            required.is_some_and(|required| required.iter().any(|item| item == name))
        };
        // The conversion of the schema leaves out what only the service sets.
        let is_read_only = |property: &Value| self.document.is_read_only(property);
        let encodings = media_type.get("encoding");
        let (mut sendable, mut part_types) = (Map::new(), Map::new());
        let (mut file_parts, mut left_out) = (Vec::new(), Vec::new());
        for (name, property) in properties.into_iter().flatten() {
            match self.part_encoding(property, encodings.and_then(|encodings| encodings.get(name))) {
                _ if is_read_only(property) => {}
                PartEncoding::OfValue => {}
                PartEncoding::MediaType(sent) => drop(part_types.insert(name.clone(), sent.into())),
                PartEncoding::File(count) => {
                    file_parts.push(name.as_str());
                    sendable.insert(name.clone(), self.file_schema(property, count));
                    continue;
                }
                PartEncoding::Unsupported if is_required(name) => {
                    return Err(format!("requires {name:?}, {NOT_SENDABLE}"));
                }
                PartEncoding::Unsupported => {
                    left_out.push(name.as_str());
                    continue;
                }
            }
            sendable.insert(name.clone(), property.clone());
        }
        if sendable.values().all(is_read_only) && !left_out.is_empty() {
            return Err("has a form without a part that can be sent".to_owned());
        }
        let mut fields = fields.clone();
        if properties.is_some() {
            fields.insert("properties".to_owned(), Value::Object(sendable));
        }
        let schema = Some(Cow::Owned(Value::Object(fields)));
        Ok(SendableBody { content_type: MULTIPART_CONTENT_TYPE, schema, part_types, file_parts, left_out })
    }

    /// Returns the schema of the ids of a part's files.
    fn file_schema(&self, property: &'d Value, count: FileCount) -> Value {
        let resolved = self.document.resolve(property).unwrap_or(property);
        let described =
            [property, resolved].into_iter().find_map(|schema| schema.get("description")?.as_str());
        let description = match described.map(str::trim).filter(|text| !text.is_empty()) {
            Some(text) => format!("{}\n{FILE_DESCRIPTION}", cut(text)),
            None => FILE_DESCRIPTION.to_owned(),
        };
        match count {
            FileCount::One => json!({"type": "string", "description": description}),
            FileCount::List => {
                json!({"type": "array", "items": {"type": "string"}, "description": description})
            }
        }
    }

    /// Returns the encoding of a part. A list is a part for each of its items, which have the encoding.
    fn part_encoding(&self, property: &'d Value, encoding: Option<&'d Value>) -> PartEncoding<'d> {
        if self.requires_header(encoding) {
            return PartEncoding::Unsupported;
        }
        if let Some(count) = self.file_count(property, 0) {
            return PartEncoding::File(count);
        }
        let media_types = encoding.and_then(|encoding| encoding.get("contentType")).and_then(Value::as_str);
        let Some(media_types) = media_types else { return PartEncoding::OfValue };
        let schema = self.document.resolve(property).ok();
        let item = match schema.and_then(|schema| schema.get("items")) {
            Some(items) if has_type(schema, "array") => self.document.resolve(items).ok(),
            _ => schema,
        };
        let is_text = !has_type(item, "object") && !has_type(item, "array");
        for media_type in media_types.split(',').map(str::trim) {
            match essence(media_type).as_str() {
                "*/*" => return PartEncoding::OfValue,
                "text/*" if is_text => return PartEncoding::OfValue,
                "application/*" if !is_text => return PartEncoding::OfValue,
                _ if is_json(media_type) || (is_text && is_part_type(media_type)) => {
                    return PartEncoding::MediaType(media_type);
                }
                _ => {}
            }
        }
        PartEncoding::Unsupported
    }

    /// Returns true if a part must have further headers.
    fn requires_header(&self, encoding: Option<&'d Value>) -> bool {
        let headers = encoding.and_then(|encoding| encoding.get("headers")).and_then(Value::as_object);
        let mut headers = headers.into_iter().flatten();
        headers.any(|(name, header)| {
            let header = self.document.resolve(header).unwrap_or(header);
            !name.eq_ignore_ascii_case("content-type") && header.get("required") == Some(&Value::Bool(true))
        })
    }

    /// Returns the number of files for the schema of a file, or of a list of files: binary data (`format: binary` in revision 3.0,
    /// and `contentMediaType` without `contentEncoding` in 3.1). A choice is a file if all its alternatives but null are.
    fn file_count(&self, schema: &'d Value, depth: usize) -> Option<FileCount> {
        let schema = self.document.resolve(schema).ok().filter(|_| depth < MAX_FILE_DEPTH)?;
        let text = |field: &str| schema.get(field).and_then(Value::as_str);
        if let Some(items) = schema.get("items")
            && has_type(Some(schema), "array")
        {
            return self.file_count(items, depth + 1).map(|_| FileCount::List);
        }
        let choices = ["anyOf", "oneOf"].into_iter().find_map(|keyword| schema.get(keyword)?.as_array());
        if let Some(choices) = choices {
            let is_null = |choice: &&Value| choice.get("type").and_then(Value::as_str) == Some("null");
            let choices = choices.iter().filter(|choice| !is_null(choice));
            let counts: Option<Vec<_>> = choices.map(|choice| self.file_count(choice, depth + 1)).collect();
            return counts?.first().copied();
        }
        let is_binary = |media_type: &str| !is_part_type(media_type);
        let is_file = has_type(Some(schema), "file")
            || text("format") == Some("binary")
            || (text("contentMediaType").is_some_and(is_binary) && text("contentEncoding").is_none());
        is_file.then_some(FileCount::One)
    }
}
