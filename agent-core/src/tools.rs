//! The built-in tools, a file a domain, and who may use which.
//!
//! A tool reads whom it works for from its [`ExecutionContext`], never from its arguments.
//!
//! [`ExecutionContext`]: crate::tool::ExecutionContext

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value};

use crate::message::SharedJson;
use crate::records::{Records, StoreError};
use crate::tool::{LocalTools, ToolAnnotations, ToolError, ToolSpec};
use crate::workspace::WorkspaceError;

mod allowed;
mod todos;

pub use allowed::{AllowedTools, BASE_PRESET, NAMED_ONLY, allowed};
pub use todos::{CreateTodo, ReadTodos};

/// All built-in tools over `records`. What an agent may use of them is [`allowed`]'s business.
pub fn builtin_tools(records: Arc<dyn Records>) -> LocalTools {
    LocalTools::new().with(ReadTodos::new(records.clone())).with(CreateTodo::new(records))
}

/// Makes a definition of a built-in tool.
fn spec(
    name: &str,
    description: &str,
    input_schema: &Value,
    output_schema: &Value,
    annotations: ToolAnnotations,
) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: schema(input_schema),
        output_schema: Some(schema(output_schema)),
        annotations: Some(annotations),
    })
}

fn schema(schema: &Value) -> SharedJson {
    to_raw_value(schema).expect("a JSON value serialises").into()
}

/// Reads a tool's arguments; a fault names the field. A caller without arguments may leave them out.
fn arguments<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    let arguments = match arguments {
        Value::Object(_) => arguments,
        Value::Null => Value::Object(Map::new()),
        _ => return Err(ToolError::InvalidArguments("they must be a JSON object".to_owned())),
    };
    serde_path_to_error::deserialize(arguments)
        .map_err(|error| ToolError::InvalidArguments(error.to_string()))
}

impl From<WorkspaceError> for ToolError {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::Invalid { .. } => Self::InvalidArguments(error.to_string()),
            WorkspaceError::NotFound { .. } => Self::NotFound(error.to_string()),
            WorkspaceError::NoTodoList | WorkspaceError::Full { .. } => Self::Unavailable(error.to_string()),
            WorkspaceError::Store(StoreError::Conflict { .. }) => {
                Self::Conflict("somebody else is changing the same thing; try again".to_owned())
            }
            WorkspaceError::Store(error @ StoreError::Unavailable(_)) => Self::Unavailable(error.to_string()),
            WorkspaceError::Store(error) => Self::internal(error),
        }
    }
}
