//! The body of an HTTP tool's request: its template, media type, and expansion with a call's arguments.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::ToolSettingsError;
use super::file_parts::{FileReference, FormFiles};
use super::form::{
    FORM_CONTENT_TYPE, FilledBody, MULTIPART_CONTENT_TYPE, PartSettings, encode_multipart, encode_urlencoded,
    file_references, is_part_type,
};
use super::limits::is_header_value;
use super::template::{ArgumentError, BodyTemplate};
use crate::exact_json;
use crate::media_type::{essence, is_json};

/// Media type of a body whose settings name none.
pub(super) const DEFAULT_CONTENT_TYPE: &str = "application/json";

/// Settings of a body.
pub(super) struct BodySettings<'s> {
    pub(super) body: Option<&'s Value>,
    pub(super) content_type: Option<&'s str>,
    pub(super) part_types: &'s BTreeMap<String, String>,
    pub(super) file_parts: &'s [String],
}

/// A body with placeholders.
pub(super) struct RequestBody {
    template: BodyTemplate,
    /// Media type, without the boundary of the parts.
    content_type: String,
    parts: PartSettings,
}

impl RequestBody {
    /// Parses and checks a body. The path of the fault is within the tool.
    pub(super) fn parse(settings: &BodySettings<'_>) -> Result<Option<Self>, ToolSettingsError> {
        let body_fault = |(path, message): (String, &'static str)| {
            ToolSettingsError::new(format!("request.body{path}"), message)
        };
        let template = settings.body.map(BodyTemplate::parse).transpose().map_err(body_fault)?;
        let content_type = parse_content_type(settings)
            .map_err(|message| ToolSettingsError::new("request.contentType", message))?;
        if let Some(form) = template.as_ref().filter(|_| !is_json(&content_type)) {
            form.check_form(content_type == MULTIPART_CONTENT_TYPE).map_err(body_fault)?;
        }
        let parts = parse_parts(settings, &content_type)?;
        Ok(template.map(|template| Self { template, content_type, parts }))
    }

    /// Returns the names of the arguments.
    pub(super) fn arguments(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.template.collect_arguments(&mut names);
        names
    }

    /// Returns the stored files that the arguments name.
    pub(super) fn file_references(
        &self,
        arguments: &Map<String, Value>,
    ) -> Result<Vec<FileReference>, ArgumentError> {
        if self.parts.file_parts.is_empty() {
            return Ok(Vec::new());
        }
        match self.template.expand(arguments)? {
            Some(body) => file_references(&self.template, &body, &self.parts),
            None => Ok(Vec::new()),
        }
    }

    /// Fills the placeholders, and encodes the body by its media type.
    pub(super) fn fill(
        &self,
        arguments: &Map<String, Value>,
        files: &FormFiles,
    ) -> Result<Option<FilledBody>, ArgumentError> {
        let Some(body) = self.template.expand(arguments)? else { return Ok(None) };
        if self.content_type == MULTIPART_CONTENT_TYPE {
            return encode_multipart(&self.template, &body, (&self.parts, files)).map(Some);
        }
        let bytes = match is_json(&self.content_type) {
            true => exact_json::write(&body).into_bytes(),
            false => encode_urlencoded(&self.template, &body)?,
        };
        let content_type = self.content_type.clone();
        Ok(Some(FilledBody { content_type, pieces: vec![bytes.into()], file_bytes: 0 }))
    }
}

/// Returns the media type of the body.
fn parse_content_type(settings: &BodySettings<'_>) -> Result<String, &'static str> {
    match settings.content_type {
        None => Ok(DEFAULT_CONTENT_TYPE.to_owned()),
        Some(_) if settings.body.is_none() => Err("is not allowed without request.body"),
        Some(text) if is_header_value(text) && (is_json(text) || essence(text) == FORM_CONTENT_TYPE) => {
            Ok(text.to_owned())
        }
        Some(text) if text.eq_ignore_ascii_case(MULTIPART_CONTENT_TYPE) => {
            Ok(MULTIPART_CONTENT_TYPE.to_owned())
        }
        Some(_) => Err(
            "must be application/json, a media type that ends with +json, application/x-www-form-urlencoded, or \
             multipart/form-data without parameters",
        ),
    }
}

/// Returns the settings of the parts of a body.
fn parse_parts(settings: &BodySettings<'_>, content_type: &str) -> Result<PartSettings, ToolSettingsError> {
    let BodySettings { part_types, file_parts, .. } = settings;
    let part_settings = [("partTypes", !part_types.is_empty()), ("fileParts", !file_parts.is_empty())];
    if let Some((field, _)) = part_settings.iter().find(|(_, is_given)| *is_given)
        && content_type != MULTIPART_CONTENT_TYPE
    {
        let message = format!("is allowed with the contentType {MULTIPART_CONTENT_TYPE} only");
        return Err(ToolSettingsError::new(format!("request.{field}"), message));
    }
    let mut types = part_types.iter();
    if let Some((name, _)) =
        types.find(|(_, media_type)| !is_header_value(media_type) || !is_part_type(media_type))
    {
        let message = "must be application/json, or a media type that ends with +json or begins with text/";
        return Err(ToolSettingsError::new(format!("request.partTypes.{name}"), message));
    }
    for (i, name) in file_parts.iter().enumerate() {
        let message = match settings.body {
            _ if part_types.contains_key(name) => {
                "has an entry in partTypes; a file has a media type of its own"
            }
            Some(Value::Object(members)) if !members.contains_key(name) => "is not a member of request.body",
            _ => continue,
        };
        return Err(ToolSettingsError::new(format!("request.fileParts[{i}]"), message));
    }
    Ok(PartSettings { media_types: (*part_types).clone(), file_parts: file_parts.to_vec() })
}
