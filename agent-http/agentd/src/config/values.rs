//! Parsed values of a service's settings.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use agent_client::outbound::AllowList;
use agent_core::secret::Secret;
use agent_http::cors::Origins;
use url::Url;

use super::parse::{SettingValue, parse};
use super::resolve::ResolvedSettings;
use super::{Database, SettingError};

/// Parsed values of one service, by setting name.
pub(super) struct SettingValues(BTreeMap<&'static str, SettingValue>);

macro_rules! getters {
    ($($getter:ident: $variant:ident -> $value:ty;)*) => {
        impl SettingValues {
            $(pub(super) fn $getter(&self, name: &str) -> Option<$value> {
                match self.0.get(name)? {
                    SettingValue::$variant(value) => Some(value.clone()),
                    other => unreachable!("{name} is asked for as another kind than it is: {other:?}"),
                }
            })*
        }
    };
}

getters! {
    host: Host -> IpAddr;
    number: Number -> u64;
    millis: Millis -> Duration;
    url: Url -> Url;
    database: Database -> Database;
    origins: Origins -> Origins;
    allow: Allow -> AllowList;
    hosts: Hosts -> Vec<String>;
    path: Path -> PathBuf;
    text: Text -> String;
    secret: Secret -> Secret;
}

impl SettingValues {
    /// Parses every setting. Returns the valid values together with all errors so far.
    pub(super) fn parse(resolved: &ResolvedSettings) -> (Self, Vec<SettingError>) {
        let mut errors = resolved.errors().to_vec();
        let mut values = BTreeMap::new();
        for setting in resolved.settings() {
            let Some((text, source)) = resolved.get(setting.name) else { continue };
            match parse(setting.kind, text) {
                Ok(value) => {
                    values.insert(setting.name, value);
                }
                Err(problem) => {
                    let (name, source) = (setting.name.to_owned(), Some(source.clone()));
                    errors.push(SettingError { name, source, message: problem });
                }
            }
        }
        (Self(values), errors)
    }
}

/// Unwraps the value of a setting that is required or has a default.
pub(super) fn required<T>(value: Option<T>) -> T {
    value.expect("the setting has a default in the table, or was refused")
}

pub(super) fn required_usize(value: Option<u64>) -> usize {
    usize::try_from(required(value)).expect("the table's bounds are below the least usize")
}
