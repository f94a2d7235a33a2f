//! Tools over the todo list that the conversation is about.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{arguments, spec};
use crate::records::Records;
use crate::tool::{ExecutionContext, Progress, Tool, ToolAnnotations, ToolError, ToolOutput, ToolSpec};
use crate::workspace::{MAX_TITLE_BYTES, create_todo, todo_list};

static READ_TODOS: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| {
    spec(
        "readTodos",
        "Reads the user's todo list: every todo with its id, its title and whether it is done.",
        &json!({"type": "object", "properties": {}}),
        &json!({
            "type": "object",
            "properties": {"todos": {"type": "array", "items": todo_schema()}},
            "required": ["todos"],
        }),
        ToolAnnotations { read_only_hint: true, destructive_hint: false, idempotent_hint: true },
    )
});

static CREATE_TODO: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| {
    spec(
        "createTodo",
        "Adds a todo at the end of the user's todo list and gives it back with its id.",
        &json!({
            "type": "object",
            "properties": {"title": {
                "type": "string",
                "description": "What is to be done, in one line.",
                "minLength": 1,
                "maxLength": MAX_TITLE_BYTES,
            }},
            "required": ["title"],
        }),
        &json!({"type": "object", "properties": {"todo": todo_schema()}, "required": ["todo"]}),
        ToolAnnotations { read_only_hint: false, destructive_hint: false, idempotent_hint: false },
    )
});

fn todo_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "title": {"type": "string"},
            "done": {"type": "boolean"},
        },
        "required": ["id", "title", "done"],
    })
}

/// `readTodos`: `{}` → `{"todos": [{"id", "title", "done"}]}`.
pub struct ReadTodos {
    records: Arc<dyn Records>,
}

impl ReadTodos {
    /// The tool over `records`.
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self { records }
    }
}

#[async_trait]
impl Tool for ReadTodos {
    fn spec(&self) -> Arc<ToolSpec> {
        READ_TODOS.clone()
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        given: Value,
        _: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        #[derive(Deserialize)]
        struct Arguments {}
        let Arguments {} = arguments(given)?;
        let list = todo_list(&*self.records, context).await?;
        ToolOutput::structured(json!({ "todos": list.todos }))
    }
}

/// `createTodo`: `{"title"}` → `{"todo": {"id", "title", "done"}}`.
pub struct CreateTodo {
    records: Arc<dyn Records>,
}

impl CreateTodo {
    /// The tool over `records`.
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self { records }
    }
}

#[async_trait]
impl Tool for CreateTodo {
    fn spec(&self) -> Arc<ToolSpec> {
        CREATE_TODO.clone()
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        given: Value,
        _: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        #[derive(Deserialize)]
        struct Arguments {
            title: String,
        }
        let Arguments { title } = arguments(given)?;
        let todo = create_todo(&*self.records, context, &title).await?;
        ToolOutput::structured(json!({ "todo": todo }))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use crate::memory::MemoryRecords;
    use crate::records::{Key, Precondition, RecordsExt};
    use crate::tool::{Caller, LocalTools, NoProgress, ToolRegistry};
    use crate::tools::builtin_tools;
    use crate::workspace::{TodoList, collection};

    use super::*;

    fn tools() -> LocalTools {
        let records = MemoryRecords::default();
        let list = TodoList {
            id: "l".into(),
            owner_id: "ada".into(),
            company_id: "c".into(),
            name: "Home".into(),
            todos: vec![],
        };
        let key = Key::new("c", collection::TODO_LISTS, "l").expect("a key");
        records.put_as(&key, &list, Precondition::Absent).now_or_never().expect("no wait").expect("put");
        builtin_tools(Arc::new(records))
    }

    fn ada() -> ExecutionContext {
        ExecutionContext {
            user_id: "ada".into(),
            company_id: "c".into(),
            todo_list_id: Some("l".into()),
            ..ExecutionContext::default()
        }
    }

    fn call(
        tools: &LocalTools,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
    ) -> Result<Value, String> {
        let output = tools.call(context, name, arguments, &NoProgress).now_or_never().expect("no wait");
        let output = output.map_err(|error| error.to_string())?;
        let structured = output.structured.expect("structured");
        assert_eq!(serde_json::from_str::<Value>(&output.text).expect("JSON"), structured);
        Ok(structured)
    }

    #[test]
    fn what_is_created_is_read() {
        let tools = tools();
        assert_eq!(call(&tools, &ada(), "readTodos", json!(null)), Ok(json!({"todos": []})));
        let created = call(&tools, &ada(), "createTodo", json!({"title": "water", "later": 1}));
        let todo = created.expect("created")["todo"].take();
        assert_eq!((&todo["title"], &todo["done"]), (&json!("water"), &json!(false)));
        assert_eq!(call(&tools, &ada(), "readTodos", json!({})), Ok(json!({ "todos": [todo] })));
    }

    #[test]
    fn calls_side_by_side_all_count() {
        let (tools, ada) = (tools(), ada());
        let calls =
            (0..20).map(|n| tools.call(&ada, "createTodo", json!({"title": n.to_string()}), &NoProgress));
        let results = join_all(calls).now_or_never().expect("no wait");
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        let read = call(&tools, &ada, "readTodos", json!({})).expect("read");
        assert_eq!(read["todos"].as_array().map(Vec::len), Some(20));
    }

    #[test]
    fn a_failure_tells_the_model_what_it_can_mend() {
        let no_list = ExecutionContext { todo_list_id: None, ..ada() };
        let visitor = ExecutionContext { user_id: "widget:1".into(), caller: Caller::Widget, ..ada() };
        for (context, name, arguments, expected) in [
            (ada(), "createTodo", json!({}), "invalid arguments: missing field `title`"),
            (ada(), "createTodo", json!(["x"]), "invalid arguments: they must be a JSON object"),
            (
                ada(),
                "createTodo",
                json!({"title": 7}),
                "invalid arguments: title: invalid type: integer `7`, expected a string",
            ),
            (ada(), "createTodo", json!({"title": " "}), "invalid arguments: title: is blank"),
            // Whom a tool works for is no argument.
            (
                visitor.clone(),
                "createTodo",
                json!({"title": "x", "userId": "ada"}),
                r#"there is no todo list "l""#,
            ),
            (visitor, "readTodos", json!({}), r#"there is no todo list "l""#),
            (no_list, "readTodos", json!({}), "no todo list is connected to this conversation"),
        ] {
            assert_eq!(call(&tools(), &context, name, arguments), Err(expected.to_owned()));
        }
    }

    #[test]
    fn the_catalogue_is_sorted_and_its_schemas_are_objects() {
        let specs = tools().list(&ada()).now_or_never().expect("no wait").expect("listed");
        assert_eq!(
            specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(),
            ["createTodo", "readTodos"]
        );
        for spec in specs {
            for schema in [&spec.input_schema, spec.output_schema.as_ref().expect("an output schema")] {
                let schema: Value = serde_json::from_str(schema.get()).expect("JSON");
                assert_eq!(schema["type"], "object", "{}", spec.name);
            }
        }
    }
}
