//! Sources of settings.

use std::fmt;

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSource {
    /// Command-line flag.
    Flag,
    /// Environment variable.
    Environment,
    /// Configuration file.
    File,
    /// Default of the table.
    Default,
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File => "file",
            Self::Default => "default",
        })
    }
}
