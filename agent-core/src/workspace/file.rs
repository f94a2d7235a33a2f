//! The workspace file: users, agents, documents, todo lists and memory as one JSON text, for a first
//! start, a move between stores, or a test.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Document, Memory, TodoList, User, collection};
use crate::message::SharedJson;
use crate::records::{Key, Precondition, Record, Records, RecordsExt, StoreError, to_json};
use crate::role::{RoleBlock, RoleStore};

mod check;
mod locate;

use locate::{Path, locate};

/// The most bytes that a workspace file has.
pub const MAX_FILE_BYTES: usize = 64 * 1024 * 1024;

/// What a workspace file holds. All lists may be left out; unknown fields are ignored.
///
/// A todo list's owner and a memory's agent need not be in the file: they may come from elsewhere.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceFile {
    /// People.
    pub users: Vec<User>,
    /// Agents' role blocks.
    pub agents: Vec<RoleBlock>,
    /// Documents.
    pub documents: Vec<Document>,
    /// Todo lists with their todos.
    pub todo_lists: Vec<TodoList>,
    /// What agents remember from the start: `{"id","companyId","agentId","folder"?,"text"}`.
    pub memories: Vec<Memory>,
    /// Plans, kept as they are given.
    pub plans: Vec<Entry>,
    /// Epics, kept as they are given.
    pub epics: Vec<Entry>,
    /// Metrics, kept as they are given.
    pub metrics: Vec<Entry>,
    /// Tool assignments, kept as they are given.
    pub assignments: Vec<Entry>,
}

/// A thing of which only the identifier and the company are known here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The identifier, unique in its company and list.
    pub id: String,
    /// The company.
    pub company_id: String,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// What an import did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    /// How many roles were saved, whether or not they were the same before.
    pub agents: usize,
    /// How many records are new.
    pub created: usize,
    /// How many records were there and are different now.
    pub updated: usize,
    /// How many records were there as they are in the file.
    pub unchanged: usize,
}

impl WorkspaceFile {
    /// Reads and checks a whole file. Nothing that [`apply`](Self::apply) could refuse on its own is
    /// left to it.
    ///
    /// # Errors
    /// The first fault in the text, or all faults in what it says.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.len() > MAX_FILE_BYTES {
            return Err(FileError::whole(format!(
                "the file has {} bytes, and at most {MAX_FILE_BYTES} are taken",
                text.len()
            )));
        }
        // The reader would take a list for an object whose fields come in order.
        if text.trim_start().starts_with('[') {
            return Err(FileError::whole("the file is a list, and an object is expected".to_owned()));
        }
        let reader = &mut serde_json::Deserializer::from_str(text);
        let file: Self = serde_path_to_error::deserialize(&mut *reader)
            .map_err(|error| FileError { faults: vec![locate::fault_of(text, &error)] })?;
        reader.end().map_err(|error| FileError { faults: vec![locate::syntax_fault(&error)] })?;
        let faults = check::check(&file);
        if faults.is_empty() {
            return Ok(file);
        }
        let place = |(path, message): (Path, String)| {
            let (line, column) = locate(text, &path).unwrap_or((1, 1));
            Fault { line, column, path: path.to_string(), message }
        };
        Err(FileError { faults: faults.into_iter().map(place).collect() })
    }

    /// Saves everything. A thing that is there under its identifier becomes what the file says; of a
    /// todo list, todos that the file does not name stay. Doing it again changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Taken`] where another company has an agent of the same identifier, which only
    /// the store knows; roles come first, so that no record is written then. Otherwise the store's own
    /// troubles, after which the import can be repeated.
    pub async fn apply(&self, roles: &dyn RoleStore, records: &dyn Records) -> Result<Imported, StoreError> {
        let planned = self.records()?;
        let mut imported = Imported::default();
        for role in &self.agents {
            roles.put_role(role.clone()).await?;
            imported.agents += 1;
        }
        for (key, value) in planned {
            imported.count(put_if_other(records, &key, value).await?);
        }
        for list in &self.todo_lists {
            imported.count(merge_todos(records, list).await?);
        }
        Ok(imported)
    }

    /// Everything but roles and todo lists, as it is stored.
    fn records(&self) -> Result<Vec<(Key, SharedJson)>, StoreError> {
        let mut planned = Vec::new();
        for user in &self.users {
            planned.push((Key::new(&user.company_id, collection::USERS, &user.id)?, to_json(user)?));
        }
        for document in &self.documents {
            let key = Key::new(&document.company_id, collection::DOCUMENTS, &document.id)?;
            planned.push((key, to_json(document)?));
        }
        for memory in &self.memories {
            planned.push((memory.key()?, to_json(memory)?));
        }
        for (name, entries) in self.entries() {
            for entry in entries {
                planned.push((Key::new(&entry.company_id, name, &entry.id)?, to_json(entry)?));
            }
        }
        Ok(planned)
    }

    /// The lists that are kept as they are given, under the names that they have in the file and in
    /// the store.
    fn entries(&self) -> [(&'static str, &[Entry]); 4] {
        [
            (collection::PLANS, &self.plans),
            (collection::EPICS, &self.epics),
            (collection::METRICS, &self.metrics),
            (collection::ASSIGNMENTS, &self.assignments),
        ]
    }
}

#[derive(PartialEq)]
enum Change {
    Created,
    Updated,
    Unchanged,
}

impl Imported {
    fn count(&mut self, change: Change) {
        match change {
            Change::Created => self.created += 1,
            Change::Updated => self.updated += 1,
            Change::Unchanged => self.unchanged += 1,
        }
    }
}

async fn put_if_other(records: &dyn Records, key: &Key, value: SharedJson) -> Result<Change, StoreError> {
    let change = match records.get(key).await? {
        Some(found) if found.value.get() == value.get() => return Ok(Change::Unchanged),
        Some(_) => Change::Updated,
        None => Change::Created,
    };
    records.put(key, value, Precondition::Any).await?;
    Ok(change)
}

async fn merge_todos(records: &dyn Records, list: &TodoList) -> Result<Change, StoreError> {
    let key = Key::new(&list.company_id, collection::TODO_LISTS, &list.id)?;
    let merge = |found: Option<&TodoList>| {
        let mut merged = list.clone();
        let kept = found.into_iter().flat_map(|found| &found.todos);
        merged.todos.extend(kept.filter(|todo| list.todos.iter().all(|own| own.id != todo.id)).cloned());
        merged
    };
    let found = records.get_as::<TodoList>(&key).await?.map(|record| record.value);
    if found.as_ref().is_some_and(|found| merge(Some(found)) == *found) {
        return Ok(Change::Unchanged);
    }
    let change = if found.is_some() { Change::Updated } else { Change::Created };
    let merge = |found: Option<Record<TodoList>>| {
        Ok::<_, StoreError>(merge(found.as_ref().map(|record| &record.value)))
    };
    records.update(&key, merge).await?;
    Ok(change)
}

/// What is wrong with a workspace file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The faults: one where the text could not be read to its end, else all of them.
    pub faults: Vec<Fault>,
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// The column, in characters from 1.
    pub column: usize,
    /// The field, such as `agents[2].content.rules[0]`; empty for the file as a whole.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl FileError {
    fn whole(message: String) -> Self {
        Self { faults: vec![Fault { line: 1, column: 1, path: String::new(), message }] }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, path, message } = self;
        write!(f, "line {line}, column {column}: ")?;
        if path.is_empty() { f.write_str(message) } else { write!(f, "{path}: {message}") }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for FileError {}

#[cfg(test)]
mod tests;
