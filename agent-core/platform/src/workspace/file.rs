//! The workspace file: users, agents, documents, todo lists and memory as one JSON text, for a first
//! start, a move between stores, or a test.
//!
//! What a store exports and another imports is the same in both, but for agents' secrets: they leave the
//! store as their masks alone, and a mask says that a secret stays as it is. In the store that they come
//! from they do; in a new one they are absent and must be given again.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Document, Memory, TodoList, User, collection};
use crate::assignment::Assignment;
use agent_core::role::RoleBlock;

mod check;
mod export;
mod import;
mod locate;

pub use export::ExportError;
pub use import::Imported;
use locate::{Path, locate};

/// The most bytes that a workspace file has.
pub const MAX_FILE_BYTES: usize = 64 * 1024 * 1024;

/// What a workspace file holds. All lists may be left out; unknown fields are ignored.
///
/// A todo list's owner and a memory's agent need not be in the file: they may come from elsewhere.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceFile {
    /// People.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<User>,
    /// Agents' role blocks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<RoleBlock>,
    /// Documents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub documents: Vec<Document>,
    /// Todo lists with their todos.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub todo_lists: Vec<TodoList>,
    /// What agents remember from the start: `{"id","companyId","agentId","folder"?,"text"}`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memories: Vec<Memory>,
    /// Plans, kept as they are given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<Entry>,
    /// Epics, kept as they are given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub epics: Vec<Entry>,
    /// Metrics, kept as they are given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Entry>,
    /// Tool assignments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assignments: Vec<Assignment>,
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

impl WorkspaceFile {
    /// Reads and checks a whole file. What [`apply`](Self::apply) could refuse without a look
    /// at the store is found here.
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

    /// The file's text, which [`parse`](Self::parse) takes. The same content gives the same text.
    ///
    /// # Errors
    /// Why no import would take the text: it is too large, or what `parse` would find in it.
    pub fn to_text(&self) -> Result<String, FileError> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| FileError::whole(format!("the content is not JSON: {error}")))?;
        Self::parse(&text).map(|_| text)
    }

    /// The lists that are kept as they are given, under the names that they have in the file and in
    /// the store.
    fn entries(&self) -> [(&'static str, &[Entry]); 3] {
        [
            (collection::PLANS, &self.plans),
            (collection::EPICS, &self.epics),
            (collection::METRICS, &self.metrics),
        ]
    }
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
