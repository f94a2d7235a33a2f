//! The workspace file: users, agents, documents, todo lists and memory as one JSON text, for provisioning, for moving
//! between stores, and for tests.
//!
//! Export followed by import preserves everything except agents' secrets, which are exported as masks. On import a
//! mask keeps the stored secret: importing into the original store changes none, while in a new store the secrets are
//! absent and must be entered again.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::exact_json;
use crate::json::objects_only;
use crate::roles::{RoleFinding, rounded_numbers, unknown_fields, unknown_names, warnings};

mod check;
mod content;
mod export;
mod fault;
mod import;
mod locate;
mod references;

use check::MAX_FAULTS;
use content::LISTS;
pub use content::{FreeFormItem, WorkspaceFile};
pub use export::ExportError;
pub use fault::FileFault;
pub use import::ImportSummary;
use locate::{JsonPath, locate};
pub use references::ReferenceError;

/// Maximum size of a workspace file, in bytes.
pub const MAX_FILE_BYTES: usize = 64 * 1024 * 1024;

impl WorkspaceFile {
    /// Parses and validates a file. All faults that [`apply`](Self::apply) could report without reading the store are
    /// reported here, and names that nothing has: lists of the file, and fields, tools and providers of its agents.
    ///
    /// # Errors
    /// The first syntax or type error, or all faults of the content.
    pub fn parse(text: &str) -> Result<Self, WorkspaceFileError> {
        Self::parse_with_tools(text, &[])
    }

    /// Parses and validates a file as [`parse`](Self::parse) does, whose agents may also name `own_tools` of the
    /// embedder.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_with_tools(text: &str, own_tools: &[String]) -> Result<Self, WorkspaceFileError> {
        let file = Self::parse_stored(text)?;
        let faults: Vec<_> =
            list_faults(text).chain(file.agent_faults(text, own_tools)).take(MAX_FAULTS).collect();
        if faults.is_empty() { Ok(file) } else { Err(WorkspaceFileError::locate(text, faults)) }
    }

    /// Parses and validates a file whose agents may name any field, tool and provider, such as roles that were stored
    /// before names were checked.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), without those of names.
    pub fn parse_stored(text: &str) -> Result<Self, WorkspaceFileError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.len() > MAX_FILE_BYTES {
            return Err(WorkspaceFileError::for_whole_file(format!(
                "the file has {} bytes; the limit is {MAX_FILE_BYTES}",
                text.len()
            )));
        }
        if text.trim_start().starts_with('[') {
            return Err(WorkspaceFileError::for_whole_file(
                "the file is a JSON array; an object is expected".to_owned(),
            ));
        }
        let reader = &mut serde_json::Deserializer::from_str(text);
        let file: Self = serde_path_to_error::deserialize(objects_only(&mut *reader))
            .map_err(|error| WorkspaceFileError { faults: vec![locate::fault_of(text, &error)] })?;
        reader.end().map_err(|error| WorkspaceFileError { faults: vec![locate::syntax_fault(&error)] })?;
        let faults = check::find_faults(&file);
        if faults.is_empty() {
            return Ok(file);
        }
        Err(WorkspaceFileError::locate(text, faults))
    }

    /// Returns the names in the file's agents that nothing has, and numbers that would be rounded.
    fn agent_faults(&self, text: &str, own_tools: &[String]) -> Vec<(JsonPath, String)> {
        #[derive(Deserialize)]
        struct Agents<'a> {
            #[serde(borrow, default)]
            agents: Vec<&'a RawValue>,
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let raw = serde_json::from_str::<Agents<'_>>(text).map_or_else(|_| Vec::new(), |file| file.agents);
        let found = |role: &RawValue| {
            let plain: Value = serde_json::from_str(role.get()).unwrap_or_default();
            let exact = exact_json::read(role.get()).unwrap_or_default();
            [unknown_fields(&plain), rounded_numbers(&exact)].concat()
        };
        let fields = raw.into_iter().enumerate().flat_map(|(i, role)| at_agent(i, found(role)));
        let agents = self.agents.iter().enumerate();
        let names = agents.flat_map(|(i, role)| at_agent(i, unknown_names(role, own_tools)));
        fields.chain(names).take(MAX_FAULTS).collect()
    }

    /// Returns the settings of the file's agents that are legal and have no effect, with their paths in the file.
    pub fn warnings(&self) -> Vec<RoleFinding> {
        let found = self.agents.iter().enumerate().flat_map(|(i, role)| at_agent(i, warnings(role)));
        found.map(|(path, message)| RoleFinding { path: path.to_string(), message }).collect()
    }

    /// Serializes the file as text that [`parse`](Self::parse) accepts, unless an agent was stored before its names were
    /// checked. Equal content gives equal text.
    ///
    /// # Errors
    /// The faults for which an import would reject the text: its size, or what `parse` reports otherwise.
    pub fn to_text(&self) -> Result<String, WorkspaceFileError> {
        let text = serde_json::to_string_pretty(self).map_err(|error| {
            WorkspaceFileError::for_whole_file(format!("the content is not JSON: {error}"))
        })?;
        Self::parse_stored(&text).map(|_| text)
    }
}

/// Returns faults for the lists of the file that an import would leave out, such as those with a misspelt name. Numbers and
/// texts, such as `$schema`, hold nothing that could be imported.
fn list_faults(text: &str) -> impl Iterator<Item = (JsonPath, String)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let members = serde_json::from_str::<BTreeMap<String, &RawValue>>(text).unwrap_or_default();
    let unknown = members
        .into_iter()
        .filter(|(name, value)| value.get().starts_with(['[', '{']) && !LISTS.contains(&name.as_str()));
    unknown.map(|(name, _)| {
        let message = format!("is not a list of a workspace file: expected one of {}", LISTS.join(", "));
        (JsonPath::default().field(&name), message)
    })
}

/// Converts findings in the agent at this index to findings in the file.
fn at_agent(index: usize, found: Vec<RoleFinding>) -> impl Iterator<Item = (JsonPath, String)> {
    let at = JsonPath::default().field("agents").index(index);
    found.into_iter().map(move |RoleFinding { path, message }| {
        // The name of an unknown field may look like no path at all.
        let inner = JsonPath::read(&path).unwrap_or_else(|| JsonPath::default().field(&path));
        (at.clone().join(inner), message)
    })
}

/// Validation error of a workspace file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceFileError {
    /// Faults: one if the text could not be parsed, else all faults of the content.
    pub faults: Vec<FileFault>,
}

impl WorkspaceFileError {
    /// Creates an error of faults at these paths in `text`.
    fn locate(text: &str, faults: Vec<(JsonPath, String)>) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let file_fault = |(path, message): (JsonPath, String)| {
            let (line, column) = locate(text, &path).unwrap_or((1, 1));
            FileFault { line, column, path: path.to_string(), message }
        };
        Self { faults: faults.into_iter().map(file_fault).collect() }
    }

    fn for_whole_file(message: String) -> Self {
        Self { faults: vec![FileFault { line: 1, column: 1, path: String::new(), message }] }
    }
}

impl fmt::Display for WorkspaceFileError {
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

impl std::error::Error for WorkspaceFileError {}

#[cfg(test)]
mod tests;
