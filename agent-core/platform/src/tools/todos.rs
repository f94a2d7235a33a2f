//! Tools over the conversation's todo list.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::builtin::{ADDITIVE, DESTRUCTIVE, READ_ONLY, Stores, tool};
use crate::workspace::{self, MAX_TITLE_BYTES, Todo, TodoChange};
use agent_core::tool::{ExecutionContext, LocalToolRegistry, ToolError};

pub(super) fn add(tools: LocalToolRegistry, stores: &Arc<Stores>) -> LocalToolRegistry {
    tools
        .with_tool(tool(
            stores,
            "readTodos",
            "Reads the user's todo list: every todo with its id, its title and whether it is done.",
            READ_ONLY,
            read_todos,
        ))
        .with_tool(tool(
            stores,
            "createTodo",
            "Adds a todo at the end of the user's todo list and gives it back with its id.",
            ADDITIVE,
            create_todo,
        ))
        .with_tool(tool(
            stores,
            "updateTodo",
            "Changes the title of a todo of the user's list, or whether it is done. What is left out stays.",
            DESTRUCTIVE,
            update_todo,
        ))
        .with_tool(tool(
            stores,
            "deleteTodo",
            "Removes a todo from the user's list.",
            DESTRUCTIVE,
            delete_todo,
        ))
}

/// Arguments of `readTodos`: none. A list has a bounded number of todos and is returned whole, and a small model cannot
/// fill in an argument wrongly.
#[derive(Deserialize, JsonSchema)]
struct ReadTodos {}

#[derive(Serialize, JsonSchema)]
struct Todos {
    /// The todos, oldest first.
    todos: Vec<Todo>,
    /// The version of the list.
    version: u64,
}

async fn read_todos(stores: &Stores, context: &ExecutionContext, _: ReadTodos) -> Result<Todos, ToolError> {
    let list = workspace::get_todo_list_record(&*stores.records, context).await?;
    Ok(Todos { todos: list.value.todos, version: list.version })
}

#[derive(Deserialize, JsonSchema)]
struct CreateTodo {
    /// The title, in one line.
    #[schemars(length(min = 1, max = MAX_TITLE_BYTES))]
    title: String,
}

#[derive(Serialize, JsonSchema)]
struct ChangedTodo {
    /// The todo.
    todo: Todo,
    /// The new version of the list.
    version: u64,
}

async fn create_todo(
    stores: &Stores,
    context: &ExecutionContext,
    new: CreateTodo,
) -> Result<ChangedTodo, ToolError> {
    let (todo, version) = workspace::create_todo(&*stores.records, context, &new.title).await?;
    Ok(ChangedTodo { todo, version })
}

#[derive(Deserialize, JsonSchema)]
struct UpdateTodo {
    /// The todo's id.
    id: String,
    /// The title, in one line.
    #[schemars(length(min = 1, max = MAX_TITLE_BYTES))]
    title: Option<String>,
    /// True if the todo is done.
    done: Option<bool>,
    /// The list's version as read: the call fails if it has changed since. If omitted, the todo is changed in any
    /// case.
    version: Option<u64>,
}

async fn update_todo(
    stores: &Stores,
    context: &ExecutionContext,
    update: UpdateTodo,
) -> Result<ChangedTodo, ToolError> {
    let UpdateTodo { id, title, done, version } = update;
    let change = TodoChange { title, done };
    let (todo, version) = workspace::update_todo(&*stores.records, context, &id, &change, version).await?;
    Ok(ChangedTodo { todo, version })
}

#[derive(Deserialize, JsonSchema)]
struct Delete {
    /// The todo's id.
    id: String,
    /// The list's version as read: the call fails if it has changed since. If omitted, the todo is removed in any
    /// case.
    version: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
struct Deleted {
    /// The removed todo.
    deleted: Todo,
    /// The new version of the list.
    version: u64,
}

async fn delete_todo(
    stores: &Stores,
    context: &ExecutionContext,
    delete: Delete,
) -> Result<Deleted, ToolError> {
    let Delete { id, version } = delete;
    let (deleted, version) = workspace::delete_todo(&*stores.records, context, &id, version).await?;
    Ok(Deleted { deleted, version })
}
