//! Errors of settings.

use std::fmt;

use super::source::SettingSource;

/// Error of one setting. The problem is worded to follow the setting's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError {
    /// Name of the setting, or path of the file that could not be read.
    pub name: String,
    /// Source of the invalid value; `None` for a missing setting.
    pub source: Option<SettingSource>,
    /// Description of the error. It never contains the value of a secret.
    pub message: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{} ({source}) {}", self.name, self.message),
            None => write!(f, "{} {}", self.name, self.message),
        }
    }
}

/// All errors of a configuration, displayed one per line; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub Vec<SettingError>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let line_break = if index > 0 { "\n" } else { "" };
            write!(f, "{line_break}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
