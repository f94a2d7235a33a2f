//! An OpenAPI document as it is read: its operations, and local references.

use serde_json::{Map, Value};

use super::super::request::percent_decode;

/// Maximum number of references that are followed to one value.
const MAX_REFERENCES: usize = 16;
/// Methods of operations that can be tools.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// An OpenAPI document.
pub(super) struct OpenApiDocument<'d> {
    root: &'d Value,
    /// True for revision 3.0, whose schemas are not JSON Schema.
    pub(super) is_3_0: bool,
}

/// An operation of a document.
pub(super) struct OpenApiOperation<'d> {
    pub(super) method: &'static str,
    pub(super) path: &'d str,
    pub(super) fields: &'d Map<String, Value>,
    /// Parameters of all operations of the path.
    pub(super) shared_parameters: Option<&'d Value>,
}

impl<'d> OpenApiDocument<'d> {
    /// Reads a document.
    ///
    /// # Errors
    /// Description of the fault.
    pub(super) fn new(root: &'d Value) -> Result<Self, &'static str> {
        let version = root.get("openapi").and_then(Value::as_str).unwrap_or_default();
        let is_3_0 = version.starts_with("3.0.");
        if !is_3_0 && !version.starts_with("3.1.") {
            return Err("is not an OpenAPI document of revision 3.0 or 3.1 in JSON");
        }
        match root.get("paths") {
            Some(Value::Object(_)) => Ok(Self { root, is_3_0 }),
            _ => Err("has no paths"),
        }
    }

    /// Returns the value that a local reference names.
    ///
    /// # Errors
    /// Description of the fault.
    pub(super) fn target(&self, reference: &str) -> Result<&'d Value, String> {
        let pointer = reference.strip_prefix('#').ok_or("refers to another document")?;
        let pointer =
            String::from_utf8(percent_decode(pointer.as_bytes())).map_err(|_| "has an invalid reference")?;
        let found = self.root.pointer(&pointer).filter(|_| pointer.starts_with('/'));
        found.ok_or_else(|| "refers to a part that the document does not have".to_owned())
    }

    /// Follows the references of a value that is not a schema.
    ///
    /// # Errors
    /// Description of the fault.
    pub(super) fn resolve(&self, mut value: &'d Value) -> Result<&'d Value, String> {
        for _ in 0..MAX_REFERENCES {
            match value.get("$ref").and_then(Value::as_str) {
                Some(reference) => value = self.target(reference)?,
                None => return Ok(value),
            }
        }
        Err("has a reference that leads to itself".to_owned())
    }

    /// Returns true for a schema, or a reference to one, of a value that only the service sets.
    pub(super) fn is_read_only(&self, schema: &Value) -> bool {
        let is_marked = |schema: &Value| schema.get("readOnly") == Some(&Value::Bool(true));
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| self.resolve(self.target(reference).ok()?).ok());
        is_marked(schema) || target.is_some_and(is_marked)
    }

    /// Returns the operation with this `operationId`, or with this method and path, such as `GET /pets`; `None` if there is
    /// none, and an error if there are several.
    pub(super) fn operation(&self, key: &str) -> Option<Result<OpenApiOperation<'d>, String>> {
        let mut found = self.operations().filter(|operation| {
            operation.fields.get("operationId").and_then(Value::as_str) == Some(key)
                || key.split_once(' ').is_some_and(|(method, path)| {
                    method.eq_ignore_ascii_case(operation.method) && path == operation.path
                })
        });
        let first = found.next()?;
        match found.next() {
            None => Some(Ok(first)),
            Some(_) => Some(Err("is the name of several operations".to_owned())),
        }
    }

    /// Returns the `operationId` of each operation, or its method and path if it has none.
    pub(super) fn operation_names(&self) -> impl Iterator<Item = String> {
        self.operations().map(|OpenApiOperation { method, path, fields, .. }| {
            match fields.get("operationId").and_then(Value::as_str) {
                Some(id) => id.to_owned(),
                None => format!("{} {path}", method.to_ascii_uppercase()),
            }
        })
    }

    /// Returns all operations that can be tools by their method.
    pub(super) fn operations(&self) -> impl Iterator<Item = OpenApiOperation<'d>> {
        let paths = self.root.get("paths").and_then(Value::as_object).into_iter().flatten();
        paths.flat_map(|(path, item)| {
            let item = self.resolve(item).unwrap_or(&Value::Null);
            METHODS.into_iter().filter_map(move |method| {
                let fields = item.get(method)?.as_object()?;
                Some(OpenApiOperation { method, path, fields, shared_parameters: item.get("parameters") })
            })
        })
    }
}
