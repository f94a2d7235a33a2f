//! Compilation of an operation to the settings of an HTTP tool.

mod body;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::request::{MAX_FIELDS, check_header_name};
use super::document::{OpenApiDocument, OpenApiOperation};
use super::schemas::{Schemas, cut};

/// Maximum number of parameters.
const MAX_PARAMETERS: usize = 64;
/// Styles of query parameters whose values are lists or single values.
const LIST_STYLES: [&str; 3] = ["form", "pipeDelimited", "spaceDelimited"];
/// Headers that a parameter cannot describe (OpenAPI 3, Parameter Object).
const IGNORED_HEADERS: [&str; 3] = ["accept", "content-type", "authorization"];

/// Location and name of the parameter that the credential of a document's entry sets, so that no argument does.
pub(super) type CredentialParameter<'d> = (&'d str, &'d str);

/// Returns the settings of the tool `name` at `server`, with the parts that are not sent as the `omission` in its `annotations`.
///
/// # Errors
/// Reason why the operation cannot be represented.
pub(super) fn compile<'d>(
    document: &'d OpenApiDocument<'d>,
    operation: &OpenApiOperation<'d>,
    (name, server): (&str, &str),
    credential: Option<CredentialParameter<'d>>,
) -> Result<Map<String, Value>, String> {
    if !operation.path.starts_with('/') {
        return Err("has a path that does not begin with a slash".to_owned());
    }
    let mut builder = RequestBuilder::new(document, credential);
    for parameter in parameters(document, operation)? {
        builder.add_parameter(parameter)?;
    }
    builder.add_optional_objects();
    if let Some(body) = operation.fields.get("requestBody") {
        builder.add_body(operation.method, document.resolve(body)?)?;
    }
    let path = rename_placeholders(operation.path, &builder.path_arguments);
    let url = format!("{}{path}", server.trim_end_matches('/'));
    let request = builder.request(operation.method, url);
    let RequestBuilder { schemas, mut properties, required, omission, .. } = builder;
    properties.sort_keys();
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if let Some(definitions) = schemas.into_definitions()? {
        schema["$defs"] = definitions;
    }
    let mut tool = json!({
        "name": name,
        "description": description(operation),
        "inputSchema": schema,
        "request": request,
    });
    if let Some(omission) = omission {
        tool["annotations"] = json!({"omission": omission});
    }
    match tool {
        Value::Object(settings) => Ok(settings),
        _ => Err("cannot be compiled".to_owned()),
    }
}

fn description(operation: &OpenApiOperation<'_>) -> String {
    let text = |field: &str| operation.fields.get(field).and_then(Value::as_str).unwrap_or_default().trim();
    let (summary, description) = (text("summary"), text("description"));
    let whole = match (summary, description) {
        ("", "") => format!("{} {}", operation.method.to_ascii_uppercase(), operation.path),
        ("", text) | (text, "") => text.to_owned(),
        (summary, description) if description.starts_with(summary) => description.to_owned(),
        (summary, description) => format!("{summary}\n{description}"),
    };
    cut(&whole)
}

/// Returns the parameters of an operation; its own replace those of the path with the same name and location.
fn parameters<'d>(
    document: &'d OpenApiDocument<'d>,
    operation: &OpenApiOperation<'d>,
) -> Result<Vec<&'d Map<String, Value>>, String> {
    let mut all: Vec<&Map<String, Value>> = Vec::new();
    let lists = [operation.shared_parameters, operation.fields.get("parameters")];
    for parameter in lists.into_iter().flatten().filter_map(Value::as_array).flatten() {
        let parameter =
            document.resolve(parameter)?.as_object().ok_or("has a parameter that is not an object")?;
        all.retain(|other| {
            (other.get("name"), other.get("in")) != (parameter.get("name"), parameter.get("in"))
        });
        all.push(parameter);
    }
    match all.len() <= MAX_PARAMETERS {
        true => Ok(all),
        false => Err(format!("has more than {MAX_PARAMETERS} parameters")),
    }
}

/// Returns a path with the names of arguments in place of the parameters' names.
fn rename_placeholders(path: &str, arguments: &BTreeMap<String, String>) -> String {
    let mut renamed = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        renamed.push_str(before);
        renamed.push('{');
        rest = after;
        if let Some((argument, after)) =
            after.split_once('}').and_then(|(name, after)| Some((arguments.get(name)?, after)))
        {
            renamed.push_str(argument);
            renamed.push('}');
            rest = after;
        }
    }
    renamed.push_str(rest);
    renamed
}

/// Returns the placeholder of an argument.
fn placeholder(argument: &str) -> String {
    format!("{{{argument}}}")
}

fn has_type(schema: Option<&Value>, name: &str) -> bool {
    match schema.and_then(|schema| schema.get("type")) {
        Some(Value::String(of)) => of == name,
        Some(Value::Array(of)) => of.iter().any(|of| of == name),
        _ => false,
    }
}

/// Returns the separator of the items of a list that is one query parameter; `None` if each item is a parameter, or the value is
/// no list.
fn list_separator(parameter: &Map<String, Value>, schema: Option<&Value>) -> Option<char> {
    let style = parameter.get("style").and_then(Value::as_str).unwrap_or("form");
    let explode = parameter.get("explode").and_then(Value::as_bool);
    let is_one = has_type(schema, "array") && !explode.unwrap_or(style == "form");
    match style {
        "form" if is_one => Some(','),
        "spaceDelimited" if is_one => Some(' '),
        "pipeDelimited" if is_one => Some('|'),
        _ => None,
    }
}

/// Property of an object in the query that is a separate parameter there: name, schema, and true if it is required.
type ObjectPart<'d> = (String, &'d Value, bool);

/// The request and the arguments of a tool under construction.
struct RequestBuilder<'d> {
    document: &'d OpenApiDocument<'d>,
    credential: Option<CredentialParameter<'d>>,
    schemas: Schemas<'d>,
    /// Arguments of the path by the names of their parameters.
    path_arguments: BTreeMap<String, String>,
    query: Map<String, Value>,
    /// Properties of the optional objects in the query.
    optional_objects: Vec<Vec<ObjectPart<'d>>>,
    headers: Map<String, Value>,
    body: Option<Value>,
    /// Media type of the body, if it is not the default.
    content_type: Option<&'d str>,
    /// Media types of the parts of a form, by their names.
    part_types: Map<String, Value>,
    /// Names of the parts of a form that are files.
    file_parts: Vec<&'d str>,
    /// Description of what is not sent, worded to follow the operation.
    omission: Option<String>,
    properties: Map<String, Value>,
    required: Vec<String>,
}

impl<'d> RequestBuilder<'d> {
    fn new(document: &'d OpenApiDocument<'d>, credential: Option<CredentialParameter<'d>>) -> Self {
        Self {
            document,
            credential,
            schemas: Schemas::new(document),
            path_arguments: BTreeMap::new(),
            query: Map::new(),
            optional_objects: Vec::new(),
            headers: Map::new(),
            body: None,
            content_type: None,
            part_types: Map::new(),
            file_parts: Vec::new(),
            omission: None,
            properties: Map::new(),
            required: Vec::new(),
        }
    }

    /// Returns the settings of the request.
    fn request(&self, method: &str, url: String) -> Value {
        let mut request = json!({"method": method.to_ascii_uppercase(), "url": url});
        for (field, values) in
            [("query", &self.query), ("headers", &self.headers), ("partTypes", &self.part_types)]
        {
            if !values.is_empty() {
                request[field] = Value::Object(values.clone());
            }
        }
        if let Some(body) = &self.body {
            request["body"] = body.clone();
        }
        if !self.file_parts.is_empty() {
            request["fileParts"] = json!(self.file_parts);
        }
        if let Some(content_type) = self.content_type {
            request["contentType"] = content_type.into();
        }
        request
    }

    /// Returns true for the parameter that the entry's credential sets.
    fn is_credential(&self, location: &str, name: &str) -> bool {
        self.credential.is_some_and(|(credential_location, credential_name)| {
            credential_location == location
                && match location {
                    "header" => credential_name.eq_ignore_ascii_case(name),
                    _ => credential_name == name,
                }
        })
    }

    fn add_parameter(&mut self, parameter: &'d Map<String, Value>) -> Result<(), String> {
        let text = |field: &str| parameter.get(field).and_then(Value::as_str).unwrap_or_default();
        let (name, location) = (text("name"), text("in"));
        let is_required = location == "path" || parameter.get("required") == Some(&Value::Bool(true));
        let is_ignored =
            location == "header" && IGNORED_HEADERS.iter().any(|other| name.eq_ignore_ascii_case(other));
        if is_ignored || self.is_credential(location, name) {
            return Ok(());
        }
        if location == "query"
            && let Some(parts) = self.object_parts(parameter, (name, is_required))
        {
            match is_required {
                true => parts.into_iter().try_for_each(|part| self.add_part(part))?,
                false => self.optional_objects.push(parts),
            }
            return Ok(());
        }
        match self.unsupported(parameter, (name, location)) {
            // The operation can be called without it.
            Some(_) if !is_required => return Ok(()),
            Some(reason) => return Err(format!("has the parameter {name:?}, {reason}")),
            None => {}
        }
        let mut schema = match parameter.get("schema") {
            Some(schema) => self.schemas.convert(schema)?,
            None => json!({}),
        };
        if let (Some(text), Some(fields)) = (parameter.get("description"), schema.as_object_mut())
            && let Some(text) = text.as_str()
        {
            fields.insert("description".to_owned(), cut(text).into());
        }
        let argument = self.argument(name, schema, is_required);
        let value = placeholder(&argument);
        match location {
            "path" => drop(self.path_arguments.insert(name.to_owned(), argument)),
            "query" => {
                let value = match list_separator(parameter, self.schema(parameter)) {
                    Some(separator) => json!({"list": value, "separator": separator}),
                    None => value.into(),
                };
                self.query.insert(name.to_owned(), value);
            }
            _ => drop(self.headers.insert(name.to_owned(), value.into())),
        }
        Ok(())
    }

    fn add_part(&mut self, (name, schema, is_required): ObjectPart<'d>) -> Result<(), String> {
        let schema = self.schemas.convert(schema)?;
        let argument = self.argument(&name, schema, is_required);
        self.query.insert(name, placeholder(&argument).into());
        Ok(())
    }

    /// Adds the optional objects in the query for which there is room beside the other parameters. The operation can be called
    /// without the others, and without properties that cannot be represented or have the name of a parameter.
    fn add_optional_objects(&mut self) {
        for parts in std::mem::take(&mut self.optional_objects) {
            if self.query.len() + parts.len() > MAX_FIELDS {
                continue;
            }
            for part in parts {
                if !self.query.contains_key(&part.0) {
                    let _ = self.add_part(part);
                }
            }
        }
    }

    /// Returns the schema of a parameter, with references followed.
    fn schema(&self, parameter: &'d Map<String, Value>) -> Option<&'d Value> {
        parameter.get("schema").map(|schema| self.document.resolve(schema).unwrap_or(&Value::Null))
    }

    /// Returns the properties of an object in the query. `None` for a parameter of another kind or style. Properties that are
    /// lists or objects are left out, and so are properties that only the service sets.
    fn object_parts(
        &self,
        parameter: &'d Map<String, Value>,
        (name, is_required): (&str, bool),
    ) -> Option<Vec<ObjectPart<'d>>> {
        let schema = self.schema(parameter)?;
        let properties = schema.get("properties")?.as_object()?;
        let is_exploded = parameter.get("explode") != Some(&Value::Bool(false));
        let is_deep = match parameter.get("style").and_then(Value::as_str) {
            None | Some("form") if is_exploded => false,
            Some("deepObject") => true,
            _ => return None,
        };
        let required =
            schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut parts = Vec::new();
        for (property, schema) in properties {
            let is_required = is_required && required.iter().any(|name| name == property);
            let resolved = self.document.resolve(schema).ok();
            let is_plain = !has_type(resolved, "array") && !has_type(resolved, "object");
            let is_sent = !self.document.is_read_only(schema);
            let part_name = if is_deep { format!("{name}[{property}]") } else { property.clone() };
            if self.is_credential("query", &part_name) {
                continue;
            }
            match is_plain && is_sent {
                true => parts.push((part_name, schema, is_required)),
                false if is_required && is_sent => return None,
                false => {}
            }
        }
        Some(parts)
    }

    /// Returns the reason why a parameter cannot be sent, if there is one.
    fn unsupported(
        &self,
        parameter: &'d Map<String, Value>,
        (name, location): (&str, &str),
    ) -> Option<&'static str> {
        if parameter.contains_key("content") {
            return Some("which is serialized as a media type");
        }
        let is_object = has_type(self.schema(parameter), "object");
        let style = parameter.get("style").and_then(Value::as_str);
        match location {
            "path" if style.is_some_and(|style| style != "simple") => Some("whose style is not supported"),
            "query" if style.is_some_and(|style| !LIST_STYLES.contains(&style)) => {
                Some("whose style is not supported")
            }
            "path" | "query" | "header" if is_object => Some("which is an object"),
            "path" | "query" => None,
            "header" => check_header_name(name).err(),
            _ => Some("which is a cookie"),
        }
    }

    /// Adds an argument and returns its unique name.
    fn argument(&mut self, name: &str, schema: Value, is_required: bool) -> String {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let mut plain: String = name.chars().map(|c| if is_allowed(c) { c } else { '_' }).take(56).collect();
        if plain.is_empty() {
            plain.push('_');
        }
        let mut unique = plain.clone();
        for n in 2..=MAX_PARAMETERS + 2 {
            if !self.properties.contains_key(&unique) {
                break;
            }
            unique = format!("{plain}_{n}");
        }
        self.properties.insert(unique.clone(), schema);
        if is_required {
            self.required.push(unique.clone());
        }
        unique
    }
}
