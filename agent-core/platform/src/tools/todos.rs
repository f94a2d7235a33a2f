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
struct ReadTodosArguments {}

#[derive(Serialize, JsonSchema)]
struct ReadTodosResult {
    /// The todos, oldest first.
    todos: Vec<Todo>,
    /// The version of the list.
    version: u64,
}

async fn read_todos(
    stores: &Stores,
    context: &ExecutionContext,
    _: ReadTodosArguments,
) -> Result<ReadTodosResult, ToolError> {
    let list = workspace::get_todo_list_record(&*stores.records, context).await?;
    Ok(ReadTodosResult { todos: list.value.todos, version: list.version })
}

#[derive(Deserialize, JsonSchema)]
struct CreateTodoArguments {
    /// The title, in one line.
    #[schemars(length(min = 1, max = MAX_TITLE_BYTES))]
    title: String,
}

#[derive(Serialize, JsonSchema)]
struct ChangeTodoResult {
    /// The todo.
    todo: Todo,
    /// The new version of the list.
    version: u64,
}

async fn create_todo(
    stores: &Stores,
    context: &ExecutionContext,
    new: CreateTodoArguments,
) -> Result<ChangeTodoResult, ToolError> {
    let (todo, version) = workspace::create_todo(&*stores.records, context, &new.title).await?;
    Ok(ChangeTodoResult { todo, version })
}

#[derive(Deserialize, JsonSchema)]
struct UpdateTodoArguments {
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
    update: UpdateTodoArguments,
) -> Result<ChangeTodoResult, ToolError> {
    let UpdateTodoArguments { id, title, done, version } = update;
    let change = TodoChange { title, done };
    let (todo, version) = workspace::update_todo(&*stores.records, context, &id, &change, version).await?;
    Ok(ChangeTodoResult { todo, version })
}

#[derive(Deserialize, JsonSchema)]
struct DeleteTodoArguments {
    /// The todo's id.
    id: String,
    /// The list's version as read: the call fails if it has changed since. If omitted, the todo is removed in any
    /// case.
    version: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
struct DeleteTodoResult {
    /// The removed todo.
    deleted: Todo,
    /// The new version of the list.
    version: u64,
}

async fn delete_todo(
    stores: &Stores,
    context: &ExecutionContext,
    delete: DeleteTodoArguments,
) -> Result<DeleteTodoResult, ToolError> {
    let DeleteTodoArguments { id, version } = delete;
    let (deleted, version) = workspace::delete_todo(&*stores.records, context, &id, version).await?;
    Ok(DeleteTodoResult { deleted, version })
}
