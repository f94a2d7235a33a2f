//! Todo lists. A list belongs to one user and is absent for all others, in particular for widget visitors.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{self, MAX_TITLE_BYTES, checked_line};
use super::{WorkspaceError, check_version, collection};
use crate::records::{Key, Record, Records, RecordsExt};
use agent_core::ids::{CompanyId, UserId};
use agent_core::tool::ExecutionContext;

/// Maximum number of todos in a list. With titles of maximum size, every byte escaped, they fit into one record.
pub(crate) const MAX_TODOS: usize = 500;

/// Todo list. Stored with its todos as one record, so that a read is a consistent snapshot; todos are in the order of
/// creation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TodoList {
    /// Identifier of the list, unique in its company.
    pub id: String,
    /// User who owns the list.
    pub owner_id: UserId,
    /// Company of the list.
    pub company_id: CompanyId,
    /// Name of the list.
    #[serde(default)]
    pub name: String,
    /// Todos, oldest first.
    #[serde(default)]
    pub todos: Vec<Todo>,
}

/// Todo of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Todo {
    /// Identifier of the todo, unique in its list.
    pub id: String,
    /// Title of the todo.
    pub title: String,
    /// True if the todo is done.
    #[serde(default)]
    pub done: bool,
}

/// Partial update of a todo; absent fields stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TodoChange {
    /// New title.
    pub title: Option<String>,
    /// New state: true for done.
    pub done: Option<bool>,
}

/// Returns the todo list of the conversation.
pub async fn get_todo_list(
    records: &dyn Records,
    context: &ExecutionContext,
) -> Result<TodoList, WorkspaceError> {
    Ok(get_todo_list_record(records, context).await?.value)
}

/// Returns the todo list of the conversation with its record version.
pub async fn get_todo_list_record(
    records: &dyn Records,
    context: &ExecutionContext,
) -> Result<Record<TodoList>, WorkspaceError> {
    let (id, key) = key(context)?;
    check_owner(id, records.get_as(&key).await?, context)
}

/// Appends a todo to the conversation's list and returns it with the list's version.
pub async fn create_todo(
    records: &dyn Records,
    context: &ExecutionContext,
    title: &str,
) -> Result<(Todo, u64), WorkspaceError> {
    let title = checked_title(title).map_err(text::invalid_field("title"))?;
    let todo = Todo { id: agent_core::new_id(), title: title.to_owned(), done: false };
    let add = |list: &mut TodoList| {
        if list.todos.len() >= MAX_TODOS {
            return Err(WorkspaceError::Full { what: "todo list", limit: MAX_TODOS });
        }
        list.todos.push(todo.clone());
        Ok(todo.clone())
    };
    change_list(records, context, None, add).await
}

/// Updates a todo of the conversation's list and returns it with the list's version. If `version` is given, the list
/// must be at it.
pub async fn update_todo(
    records: &dyn Records,
    context: &ExecutionContext,
    id: &str,
    change: &TodoChange,
    version: Option<u64>,
) -> Result<(Todo, u64), WorkspaceError> {
    let title =
        change.title.as_deref().map(checked_title).transpose().map_err(text::invalid_field("title"))?;
    if title.is_none() && change.done.is_none() {
        let fault = "or done is required".to_owned();
        return Err(WorkspaceError::Invalid { field: "title", fault });
    }
    let change = |list: &mut TodoList| {
        let position = position_of(list, id)?;
        let todo = &mut list.todos[position];
        if let Some(title) = title {
            title.clone_into(&mut todo.title);
        }
        todo.done = change.done.unwrap_or(todo.done);
        Ok(todo.clone())
    };
    change_list(records, context, version, change).await
}

/// Removes a todo from the conversation's list and returns it with the list's version. If `version` is given, the
/// list must be at it.
pub async fn delete_todo(
    records: &dyn Records,
    context: &ExecutionContext,
    id: &str,
    version: Option<u64>,
) -> Result<(Todo, u64), WorkspaceError> {
    let remove = |list: &mut TodoList| {
        let position = position_of(list, id)?;
        Ok(list.todos.remove(position))
    };
    change_list(records, context, version, remove).await
}

/// Applies `change` to the conversation's list and returns its result with the list's version.
async fn change_list(
    records: &dyn Records,
    context: &ExecutionContext,
    version: Option<u64>,
    mut change: impl FnMut(&mut TodoList) -> Result<Todo, WorkspaceError> + Send,
) -> Result<(Todo, u64), WorkspaceError> {
    let (id, key) = key(context)?;
    let mut todo = None;
    let update = |found: Option<Record<TodoList>>| {
        let found = check_owner(id, found, context)?;
        check_version("todo list", &found, version)?;
        let mut list = found.value;
        todo = Some(change(&mut list)?);
        Ok::<_, WorkspaceError>(list)
    };
    let (_, version) = records.update(&key, update).await?;
    Ok((todo.expect("an update that was written has run"), version))
}

fn position_of(list: &TodoList, id: &str) -> Result<usize, WorkspaceError> {
    let position = list.todos.iter().position(|todo| todo.id == id);
    position.ok_or_else(|| WorkspaceError::NotFound { what: "todo", id: id.to_owned() })
}

/// Returns the identifier and the record key of the conversation's list.
fn key(context: &ExecutionContext) -> Result<(&str, Key), WorkspaceError> {
    let id = context.todo_list_id.as_deref().map(str::trim).filter(|id| !id.is_empty());
    let id = id.ok_or(WorkspaceError::NoTodoList)?;
    // An invalid identifier cannot name a list, so it is reported as absent.
    let key = Key::new(context.company_id.as_str(), collection::TODO_LISTS, id);
    Ok((id, key.map_err(|_| absent(id))?))
}

/// Returns the list if it belongs to the caller.
fn check_owner(
    id: &str,
    found: Option<Record<TodoList>>,
    context: &ExecutionContext,
) -> Result<Record<TodoList>, WorkspaceError> {
    found.filter(|record| record.value.owner_id == context.user_id).ok_or_else(|| absent(id))
}

fn absent(id: &str) -> WorkspaceError {
    WorkspaceError::NotFound { what: "todo list", id: id.to_owned() }
}

/// Validates a title and returns it trimmed; the error describes the fault.
pub(super) fn checked_title(title: &str) -> Result<&str, String> {
    checked_line(title, MAX_TITLE_BYTES)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;
    use crate::records::Precondition;
    use agent_core::tool::Caller;

    fn context(user: &str, company: &str, list: Option<&str>, caller: Caller) -> ExecutionContext {
        ExecutionContext {
            user_id: user.into(),
            company_id: company.into(),
            todo_list_id: list.map(Into::into),
            caller,
            ..ExecutionContext::default()
        }
    }

    fn store(todos: usize) -> MemoryRecords {
        let records = MemoryRecords::default();
        let todo = |n| Todo { id: format!("{n:0>128}"), title: "\"".repeat(MAX_TITLE_BYTES), done: false };
        let list = TodoList {
            id: "l".into(),
            owner_id: "ada".into(),
            company_id: "c".into(),
            name: "Home".into(),
            todos: (0..todos).map(todo).collect(),
        };
        let key = Key::new("c", collection::TODO_LISTS, "l").expect("a key");
        records.put_as(&key, &list, Precondition::Absent).now_or_never().expect("no wait").expect("put");
        records
    }

    #[test]
    fn a_todo_goes_to_the_end_of_the_own_list() {
        let records = store(1);
        let ada = context("ada", "c", Some("l"), Caller::Session);
        let todo = create_todo(&records, &ada, "  water the plants ").now_or_never().expect("no wait");
        let (todo, _) = todo.expect("created");
        assert_eq!((todo.title.as_str(), todo.done), ("water the plants", false));
        let list = get_todo_list(&records, &ada).now_or_never().expect("no wait").expect("there");
        assert_eq!(list.todos.last(), Some(&todo));
        assert_eq!(list.todos.len(), 2);
    }

    #[test]
    fn anybody_elses_list_is_absent() {
        let records = store(0);
        let long = "x".repeat(300);
        for (case, context) in [
            ("another person", context("bob", "c", Some("l"), Caller::Session)),
            ("another company", context("ada", "d", Some("l"), Caller::Session)),
            ("a widget's visitor", context("widget:7", "c", Some("l"), Caller::Widget)),
            ("no such list", context("ada", "c", Some("m"), Caller::Session)),
            ("no such list can be", context("ada", "c", Some(&long), Caller::Session)),
        ] {
            for error in [
                get_todo_list(&records, &context).now_or_never().expect("no wait").map(drop),
                create_todo(&records, &context, "x").now_or_never().expect("no wait").map(drop),
                delete_todo(&records, &context, "x", None).now_or_never().expect("no wait").map(drop),
            ] {
                assert!(matches!(error, Err(WorkspaceError::NotFound { .. })), "{case}: {error:?}");
            }
        }
        for none in [None, Some(" ")] {
            let context = context("ada", "c", none, Caller::Session);
            let error = get_todo_list(&records, &context).now_or_never().expect("no wait");
            assert!(matches!(error, Err(WorkspaceError::NoTodoList)), "{error:?}");
        }
    }

    #[test]
    fn a_full_list_and_a_bad_title_are_refused() {
        let records = store(MAX_TODOS - 1);
        let ada = context("ada", "c", Some("l"), Caller::Session);
        let create = |title: &str| create_todo(&records, &ada, title).now_or_never().expect("no wait");
        for title in [String::new(), " ".into(), "a\nb".into(), "x".repeat(MAX_TITLE_BYTES + 1)] {
            let error = create(&title);
            assert!(matches!(error, Err(WorkspaceError::Invalid { field: "title", .. })), "{error:?}");
        }
        create(&"\"".repeat(MAX_TITLE_BYTES)).expect("there is room for one more");
        let error = create("y");
        assert!(matches!(error, Err(WorkspaceError::Full { limit: MAX_TODOS, .. })), "{error:?}");
    }

    #[test]
    fn a_todo_is_changed_and_removed_at_the_version_that_was_read() {
        let records = store(2);
        let ada = context("ada", "c", Some("l"), Caller::Session);
        let read = || get_todo_list_record(&records, &ada).now_or_never().expect("no wait").expect("there");
        let update = |id: &str, change: TodoChange, version| {
            update_todo(&records, &ada, id, &change, version).now_or_never().expect("no wait")
        };
        let delete =
            |id: &str, version| delete_todo(&records, &ada, id, version).now_or_never().expect("no wait");
        let first = read();
        let (id, other) = (first.value.todos[0].id.clone(), first.value.todos[1].clone());
        let done = TodoChange { done: Some(true), ..TodoChange::default() };
        let (todo, version) = update(&id, done.clone(), Some(first.version)).expect("changed");
        assert_eq!((todo.done, &todo.title), (true, &first.value.todos[0].title));
        assert_eq!(
            (read().version, &read().value.todos[0], &read().value.todos[1]),
            (version, &todo, &other)
        );

        let renamed = TodoChange { title: Some(" new ".to_owned()), done: None };
        for lost in [update(&id, renamed.clone(), Some(first.version)), delete(&id, Some(first.version))] {
            let message = lost.expect_err("the todo has changed").to_string();
            let expected = format!(
                "the todo list \"l\" has changed since it was read and is now at version {version}: read it again"
            );
            assert_eq!(message, expected);
        }
        let (todo, _) = update(&id, renamed, None).expect("changed whatever others did");
        assert_eq!((todo.title.as_str(), todo.done), ("new", true));
        let (removed, _) = delete(&id, None).expect("removed");
        assert_eq!((removed, read().value.todos), (todo, vec![other]));

        for gone in [update(&id, done, None), delete(&id, None)] {
            assert!(matches!(gone, Err(WorkspaceError::NotFound { what: "todo", .. })), "{gone:?}");
        }
        let nothing = update("t", TodoChange::default(), None).expect_err("nothing to change").to_string();
        assert_eq!(nothing, "title: or done is required");
    }
}
