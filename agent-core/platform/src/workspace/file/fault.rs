//! Faults of a workspace file.

use std::fmt;

/// Fault of a workspace file, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFault {
    /// Line, from 1.
    pub line: usize,
    /// Column, in characters from 1.
    pub column: usize,
    /// Path of the field, such as `agents[2].content.rules[0]`; empty for the file as a whole.
    pub path: String,
    /// Description of the fault.
    pub message: String,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, path, message } = self;
        write!(f, "line {line}, column {column}: ")?;
        if path.is_empty() { f.write_str(message) } else { write!(f, "{path}: {message}") }
    }
}
