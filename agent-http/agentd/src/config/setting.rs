//! Definition of one setting: its services, the type of its value, its default and its description.

use super::Service;

/// Definition of a setting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// Name, as in the environment.
    pub(crate) name: &'static str,
    /// Services that read it.
    pub(crate) services: &'static [Service],
    /// Type and bounds of its value.
    pub(crate) kind: SettingKind,
    /// Default values: none, one for all services, or one per service in the order of `services`.
    pub(crate) default: &'static [&'static str],
    /// Description in one sentence.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the check of docs/configuration.md"))]
    pub(crate) doc: &'static str,
}

impl Setting {
    /// Returns the default for `service`.
    pub(crate) fn default_for(&self, service: Service) -> Option<&'static str> {
        let index = self.services.iter().position(|other| *other == service)?;
        self.default.get(index).or(self.default.first()).copied()
    }
}

/// Type of a setting's value, with its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum SettingKind {
    /// IP address, or `localhost`.
    Host,
    /// Integer within inclusive bounds.
    Number {
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// Duration in milliseconds, within inclusive bounds.
    Millis {
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// Duration with a unit, such as `90s`, `30m` or `1h`, within inclusive bounds in seconds.
    Duration {
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// `http` or `https` URL without user, query and fragment.
    Url,
    /// Database: `sqlite://` and a path, or a PostgreSQL connection URL.
    Database,
    /// Comma-separated list of exact origins.
    Origins,
    /// Comma-separated list of hosts, `host:port` pairs, addresses and CIDRs.
    Allow,
    /// Comma-separated list of host names without ports.
    Hosts,
    /// Path of a file or directory.
    Path,
    /// One line of text.
    Text,
    /// Directives of the log filter.
    LogFilter,
    /// One of the listed words.
    Word(&'static [&'static str]),
    /// Secret of a minimum length in bytes; never shown.
    Secret {
        /// Minimum length in bytes.
        min_bytes: usize,
    },
}

impl SettingKind {
    /// Returns true if values of this kind are secrets.
    pub(crate) fn is_secret(self) -> bool {
        matches!(self, Self::Secret { .. })
    }

    /// Returns true if the value may be given in a file that `NAME_FILE` names: a secret, or a URL that may contain a
    /// password.
    pub(crate) fn may_be_in_file(self) -> bool {
        self.is_secret() || matches!(self, Self::Database)
    }

    /// Returns true if `value` must be masked: a secret, or a PostgreSQL URL, which may contain a password.
    pub(crate) fn should_mask(self, value: &str) -> bool {
        self.is_secret() || matches!(self, Self::Database) && !value.trim_start().starts_with("sqlite:")
    }
}
