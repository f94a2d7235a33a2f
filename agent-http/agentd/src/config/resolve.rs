//! Resolution of settings: flag, environment, file, or default.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::file::read_file;
use super::setting::Setting;
use super::source::SettingSource;
use super::suggestion::suggest;
use super::table::{self, find};
use super::{ConfigError, Env, Service, SettingError, parse};

/// Parsed command-line flags.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// Path of the TOML configuration file.
    pub config: Option<PathBuf>,
    /// Values by setting name. Secrets must not be passed here, since command lines are visible to other users.
    pub values: BTreeMap<&'static str, String>,
}

/// Unparsed settings of one service, each with its source, and the errors of resolving them.
pub(crate) struct ResolvedSettings {
    service: Service,
    values: BTreeMap<&'static str, (String, SettingSource)>,
    errors: Vec<SettingError>,
}

impl fmt::Debug for ResolvedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.print())
    }
}

impl ResolvedSettings {
    /// Looks up every setting of `service`. Errors of single settings are kept for the validation that follows.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration file cannot be read or is not TOML, since no other setting is then
    /// reliable.
    pub(crate) fn new(service: Service, flags: &Flags, env: &dyn Env) -> Result<Self, ConfigError> {
        let mut errors = Vec::new();
        let file = match &flags.config {
            Some(path) => read_toml(path, &mut errors)?,
            None => BTreeMap::new(),
        };
        let mut resolved = Self { service, values: BTreeMap::new(), errors };
        for setting in resolved.settings() {
            if let Some(value) = resolved.resolve_setting(setting, flags, env, &file) {
                resolved.values.insert(setting.name, value);
            }
        }
        Ok(resolved)
    }

    /// Returns the settings that the service reads.
    pub(crate) fn settings(&self) -> impl Iterator<Item = &'static Setting> + use<> {
        let service = self.service;
        table::settings().filter(move |setting| setting.services.contains(&service))
    }

    /// Returns true if a setting has a value other than its default.
    fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(|(_, source)| *source != SettingSource::Default)
    }

    /// Returns true if a setting is given, also by a file that cannot be read or by an invalid value in it.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        let is_of_setting =
            |error: &SettingError| error.name == name || error.name.strip_suffix("_FILE") == Some(name);
        self.is_set(name) || self.errors.iter().any(is_of_setting)
    }

    pub(super) fn get(&self, name: &str) -> Option<&(String, SettingSource)> {
        self.values.get(name)
    }

    pub(super) fn errors(&self) -> &[SettingError] {
        &self.errors
    }

    /// Formats the settings as TOML, one per line with its source. Secrets are masked. An invalid setting is a
    /// comment without its value, since an invalid URL may contain a password. Errors of the file's keys and of
    /// secret files come last.
    pub(crate) fn print(&self) -> String {
        let line = |setting: &Setting| {
            let name = setting.name;
            match self.get(name) {
                None => format!("# {name} is not set"),
                Some((value, source)) => match parse::check(setting.kind, value) {
                    Err(problem) => format!("# {name} ({source}) {problem}"),
                    Ok(()) if setting.kind.should_mask(value) => format!("{name} = \"***\" # {source}"),
                    Ok(()) => format!("{name} = {} # {source}", toml::Value::String(value.clone())),
                },
            }
        };
        let errors = self.errors.iter().map(|error| format!("# {error}\n"));
        self.settings().map(|setting| line(setting) + "\n").chain(errors).collect()
    }

    fn resolve_setting(
        &mut self,
        setting: &'static Setting,
        flags: &Flags,
        env: &dyn Env,
        file: &BTreeMap<String, String>,
    ) -> Option<(String, SettingSource)> {
        if let Some(value) = flags.values.get(setting.name) {
            return Some((value.clone(), SettingSource::Flag));
        }
        let read_env = |name: &str| match env.var(name) {
            Ok(value) => Ok(value),
            Err(error) => Err(SettingError {
                name: name.to_owned(),
                source: Some(SettingSource::Environment),
                message: format!("cannot be read: {error}"),
            }),
        };
        let read_file = |name: &str| Ok(file.get(name).cloned());
        let configured = self
            .resolve_from_source(setting, &SettingSource::Environment, &read_env)
            .or_else(|| self.resolve_from_source(setting, &SettingSource::File, &read_file));
        let default =
            || setting.default_for(self.service).map(|value| (value.to_owned(), SettingSource::Default));
        configured.or_else(default)
    }

    /// Returns the value from one source. A blank value counts as unset, since many tools that pass on environment
    /// variables cannot omit one.
    fn resolve_from_source(
        &mut self,
        setting: &'static Setting,
        source: &SettingSource,
        read: &dyn Fn(&str) -> Result<Option<String>, SettingError>,
    ) -> Option<(String, SettingSource)> {
        let mut read = |name: &str| match read(name) {
            Ok(value) => value.filter(|value| !value.trim().is_empty()),
            Err(error) => {
                self.errors.push(error);
                None
            }
        };
        let value = read(setting.name);
        if !setting.kind.may_be_in_file() {
            return value.map(|value| (value, source.clone()));
        }
        let file_name = format!("{}_FILE", setting.name);
        let Some(path) = read(&file_name) else { return value.map(|value| (value, source.clone())) };
        let secret = if value.is_some() {
            Err(format!("conflicts with {file_name}: set only one of the two"))
        } else {
            read_value(setting, Path::new(&path))
        };
        match secret {
            Ok(secret) => Some((secret, source.clone())),
            Err(problem) => {
                let name = if value.is_some() { setting.name.to_owned() } else { file_name };
                self.errors.push(SettingError { name, source: Some(source.clone()), message: problem });
                None
            }
        }
    }
}

/// Reads the value of a setting from the file that `NAME_FILE` names, and checks it, so that an error names that variable.
fn read_value(setting: &Setting, path: &Path) -> Result<String, String> {
    let value = read_secret(path).map_err(|problem| format!("names a file that {problem}"))?;
    match parse::check(setting.kind, &value) {
        Ok(()) => Ok(value),
        Err(problem) => Err(format!("names a file whose value {problem}")),
    }
}

/// Reads a secret from a file, without the trailing newline that editors and `echo` append.
fn read_secret(path: &Path) -> Result<String, String> {
    let text = read_file(path)?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() { Err("is empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// Reads the values of a configuration file, by setting name.
fn read_toml(path: &Path, errors: &mut Vec<SettingError>) -> Result<BTreeMap<String, String>, ConfigError> {
    let refuse = |problem: String| {
        ConfigError(vec![SettingError {
            name: path.display().to_string(),
            source: Some(SettingSource::File),
            message: problem,
        }])
    };
    let text = read_file(path).map_err(refuse)?;
    let table: toml::Table = text.parse().map_err(|error| refuse(toml_problem(&text, &error)))?;
    let mut values = BTreeMap::new();
    for (key, value) in table {
        let error = |problem: &str| SettingError {
            name: key.clone(),
            source: Some(SettingSource::File),
            message: problem.to_owned(),
        };
        let Some(name) = setting_name(&key) else {
            let suggested =
                suggest(&key).map(|name| format!("; did you mean {}?", name.to_ascii_lowercase()));
            errors.push(error(&format!("is not a known setting{}", suggested.unwrap_or_default())));
            continue;
        };
        match toml_value_text(value) {
            None => errors.push(error("must be text, a whole number, or a list of texts")),
            Some(text) => {
                if values.insert(name, text).is_some() {
                    errors.push(error("is set twice, in different spellings"));
                }
            }
        }
    }
    Ok(values)
}

/// Returns an error message without the parser's excerpt of the file, which may contain a secret.
fn toml_problem(text: &str, error: &toml::de::Error) -> String {
    let preceding = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = preceding.matches('\n').count() + 1;
    format!("is not valid TOML at line {line}")
}

/// Returns the setting name of a TOML key: `session_secret` is `SESSION_SECRET`, and `session_secret_file` is
/// `SESSION_SECRET_FILE`.
fn setting_name(key: &str) -> Option<String> {
    let name = key.to_ascii_uppercase();
    let in_file =
        name.strip_suffix("_FILE").and_then(find).is_some_and(|setting| setting.kind.may_be_in_file());
    (in_file || find(&name).is_some()).then_some(name)
}

fn toml_value_text(value: toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Array(items) => {
            let texts: Option<Vec<String>> = items
                .into_iter()
                .map(|item| match item {
                    toml::Value::String(text) => Some(text),
                    _ => None,
                })
                .collect();
            Some(texts?.join(","))
        }
        _ => None,
    }
}
