//! Sources of environment variables.

use std::collections::BTreeMap;

/// Source of environment variables, so that only a program's `main` depends on the process.
pub trait Env {
    /// Returns the variable's value if it is set.
    ///
    /// # Errors
    ///
    /// Returns [`NotUnicodeError`] if the value is not Unicode.
    fn var(&self, name: &str) -> Result<Option<String>, NotUnicodeError>;

    /// Returns the names of all variables, to find misspelt ones; none if the source cannot list them.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Error of a variable whose value is not Unicode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the value is not Unicode")]
pub struct NotUnicodeError;

/// Environment of the current process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnv;

impl Env for ProcessEnv {
    fn var(&self, name: &str) -> Result<Option<String>, NotUnicodeError> {
        match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(NotUnicodeError),
        }
    }

    fn names(&self) -> Vec<String> {
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
    }
}

impl Env for BTreeMap<&str, &str> {
    fn var(&self, name: &str) -> Result<Option<String>, NotUnicodeError> {
        Ok(self.get(name).map(|value| (*value).to_owned()))
    }

    fn names(&self) -> Vec<String> {
        self.keys().map(|name| (*name).to_owned()).collect()
    }
}
