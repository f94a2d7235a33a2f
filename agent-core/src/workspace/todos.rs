//! Todo lists. A list belongs to one person; for everybody else, a widget's visitor above all, it is
//! not there.

use serde::{Deserialize, Serialize};

use super::{WorkspaceError, collection};
use crate::records::{Key, Record, Records, RecordsExt};
use crate::tool::ExecutionContext;

/// How many todos a list has at most; with titles of their full size, every byte of them escaped,
/// they fit into one record.
pub const MAX_TODOS: usize = 500;
/// How many bytes a title has at most.
pub const MAX_TITLE_BYTES: usize = 800;

/// A list of things to do. It is one record with its todos, so that reading it is one look at one
/// moment, and its order is the order in which the todos were added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TodoList {
    /// The list's identifier, unique in its company.
    pub id: String,
    /// The person whose list it is.
    pub owner_id: String,
    /// The company.
    pub company_id: String,
    /// The list's name.
    #[serde(default)]
    pub name: String,
    /// The todos, oldest first.
    #[serde(default)]
    pub todos: Vec<Todo>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Todo {
    /// The todo's identifier, unique in its list.
    pub id: String,
    /// What is to be done.
    pub title: String,
    /// Whether it is done.
    #[serde(default)]
    pub done: bool,
}

/// The todo list that the conversation is about.
pub async fn todo_list(
    records: &dyn Records,
    context: &ExecutionContext,
) -> Result<TodoList, WorkspaceError> {
    let (id, key) = key(context)?;
    owned(id, records.get_as(&key).await?.map(|record| record.value), context)
}

/// Adds a todo at the end of the list that the conversation is about.
pub async fn create_todo(
    records: &dyn Records,
    context: &ExecutionContext,
    title: &str,
) -> Result<Todo, WorkspaceError> {
    let title = checked_title(title).map_err(|fault| WorkspaceError::Invalid { field: "title", fault })?;
    let (id, key) = key(context)?;
    let todo = Todo { id: crate::new_id(), title: title.to_owned(), done: false };
    let add = |found: Option<Record<TodoList>>| {
        let mut list = owned(id, found.map(|record| record.value), context)?;
        if list.todos.len() >= MAX_TODOS {
            return Err(WorkspaceError::Full { what: "todo list", limit: MAX_TODOS });
        }
        list.todos.push(todo.clone());
        Ok(list)
    };
    records.update(&key, add).await?;
    Ok(todo)
}

/// The identifier and the place of the list that the conversation is about.
fn key(context: &ExecutionContext) -> Result<(&str, Key), WorkspaceError> {
    let id = context.todo_list_id.as_deref().map(str::trim).filter(|id| !id.is_empty());
    let id = id.ok_or(WorkspaceError::NoTodoList)?;
    // An identifier that no list can have names no list.
    let key = Key::new(context.company_id.as_str(), collection::TODO_LISTS, id);
    Ok((id, key.map_err(|_| absent(id))?))
}

/// The list, if it is the caller's own.
fn owned(id: &str, found: Option<TodoList>, context: &ExecutionContext) -> Result<TodoList, WorkspaceError> {
    found.filter(|list| list.owner_id == context.user_id).ok_or_else(|| absent(id))
}

fn absent(id: &str) -> WorkspaceError {
    WorkspaceError::NotFound { what: "todo list", id: id.to_owned() }
}

/// The title without blanks around it, or what is wrong with it.
pub(super) fn checked_title(title: &str) -> Result<&str, String> {
    let title = title.trim();
    if title.is_empty() {
        Err("is blank".to_owned())
    } else if title.len() > MAX_TITLE_BYTES {
        Err(format!("has {} bytes, and at most {MAX_TITLE_BYTES} are taken", title.len()))
    } else if title.chars().any(char::is_control) {
        Err("has a line break or another control character".to_owned())
    } else {
        Ok(title)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;
    use crate::records::Precondition;
    use crate::tool::Caller;

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
        let todo = todo.expect("created");
        assert_eq!((todo.title.as_str(), todo.done), ("water the plants", false));
        let list = todo_list(&records, &ada).now_or_never().expect("no wait").expect("there");
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
                todo_list(&records, &context).now_or_never().expect("no wait").map(drop),
                create_todo(&records, &context, "x").now_or_never().expect("no wait").map(drop),
            ] {
                assert!(matches!(error, Err(WorkspaceError::NotFound { .. })), "{case}: {error:?}");
            }
        }
        for none in [None, Some(" ")] {
            let context = context("ada", "c", none, Caller::Session);
            let error = todo_list(&records, &context).now_or_never().expect("no wait");
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
}
