//! Parsing and validation of setting values.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use agent_client::outbound::AllowList;
use agent_core::secret::Secret;
use agent_http::cors::{self, CorsError, Origins};
use tracing_subscriber::filter::{LevelFilter, Targets};
use url::Url;

use super::SettingKind;

/// Database of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Database {
    /// SQLite database file.
    Sqlite(PathBuf),
    /// PostgreSQL connection URL, which may contain a password.
    Postgres(Secret),
}

/// Parsed value, of the variant for its setting's [`SettingKind`].
#[derive(Debug, Clone)]
pub(super) enum SettingValue {
    Host(IpAddr),
    Number(u64),
    Millis(Duration),
    Url(Url),
    Database(Database),
    Origins(Origins),
    Allow(AllowList),
    Hosts(Vec<String>),
    Path(PathBuf),
    Text(String),
    Secret(Secret),
}

/// Returns an error if `text` is not a valid value of the kind.
pub(super) fn check(kind: SettingKind, text: &str) -> Result<(), String> {
    parse(kind, text).map(drop)
}

/// Parses a value of the kind.
pub(super) fn parse(kind: SettingKind, text: &str) -> Result<SettingValue, String> {
    // White space around a value comes from files and shells; in a secret it is part of the value.
    let trimmed = text.trim();
    match kind {
        SettingKind::Host => parse_host(trimmed).map(SettingValue::Host),
        SettingKind::Number { min, max } => parse_number(trimmed, min, max).map(SettingValue::Number),
        SettingKind::Millis { min, max } => {
            parse_number(trimmed, min, max).map(|millis| SettingValue::Millis(Duration::from_millis(millis)))
        }
        SettingKind::Duration { min, max } => parse_duration(trimmed, min, max).map(SettingValue::Millis),
        SettingKind::Url => parse_url(trimmed).map(SettingValue::Url),
        SettingKind::Database => parse_database(trimmed).map(SettingValue::Database),
        SettingKind::Origins => parse_origins(trimmed).map(SettingValue::Origins),
        SettingKind::Allow => parse_allow(trimmed).map(SettingValue::Allow),
        SettingKind::Hosts => parse_hosts(trimmed).map(SettingValue::Hosts),
        SettingKind::Path => Ok(SettingValue::Path(PathBuf::from(text))),
        SettingKind::Text => Ok(SettingValue::Text(trimmed.to_owned())),
        SettingKind::LogFilter => parse_log_filter(trimmed).map(SettingValue::Text),
        SettingKind::Word(words) if words.contains(&trimmed) => Ok(SettingValue::Text(trimmed.to_owned())),
        SettingKind::Word(words) => Err(format!("must be one of {}", words.join(", "))),
        SettingKind::Secret { min_bytes } => parse_secret(text, min_bytes).map(SettingValue::Secret),
    }
}

fn parse_host(text: &str) -> Result<IpAddr, String> {
    if text == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().map_err(|_| "must be an IP address or localhost".to_owned())
}

fn parse_number(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("must be a whole number from {min} to {max}"))
}

fn parse_duration(text: &str, min: u64, max: u64) -> Result<Duration, String> {
    let (min, max) = (Duration::from_secs(min), Duration::from_secs(max));
    let duration = humantime::parse_duration(text).ok().filter(|duration| (min..=max).contains(duration));
    duration.ok_or_else(|| {
        let example = if (min..=max).contains(&Duration::from_secs(30 * 60)) { "30m" } else { "30d" };
        let [min, max] = [min, max].map(format_bound);
        format!("must be a duration from {min} to {max}, such as {example}")
    })
}

/// Formats a bound of durations as `Duration` settings are written: in days from one day on.
fn format_bound(bound: Duration) -> String {
    const DAY_SECONDS: u64 = 24 * 60 * 60;
    match bound.as_secs() {
        seconds if seconds >= DAY_SECONDS && seconds.is_multiple_of(DAY_SECONDS) => {
            format!("{}d", seconds / DAY_SECONDS)
        }
        _ => humantime::format_duration(bound).to_string(),
    }
}

/// Parses an HTTP base URL. Errors omit the value, since an invalid URL may contain a password.
fn parse_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or("must be an http or https URL, such as https://agents.example")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a user name or password".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must be a base URL, without query and fragment".to_owned());
    }
    Ok(url)
}

/// Parses a database URL. Errors omit the value, since it may contain a password.
pub(crate) fn parse_database(text: &str) -> Result<Database, String> {
    match text.split_once("://") {
        Some(("sqlite", path)) if !path.is_empty() && !path.contains(['?', '#', '\0']) => {
            Ok(Database::Sqlite(PathBuf::from(path)))
        }
        Some(("postgres" | "postgresql", rest)) if !rest.is_empty() => {
            #[cfg(feature = "postgres")]
            agent_store::postgres::check_url(text).map_err(|error| format!("cannot be used: {error}"))?;
            Ok(Database::Postgres(Secret::new(text)))
        }
        _ => {
            Err("must be sqlite:// and a path, such as sqlite://data/app.db, or a postgres:// URL".to_owned())
        }
    }
}

fn parse_origins(text: &str) -> Result<Origins, String> {
    cors::parse_origins(text).map_err(|error| match error {
        CorsError::Wildcard => "must list exact origins; `*` would let any page use a visitor's session".into(),
        _ => {
            "must list exact origins as browsers write them, such as https://app.example or http://localhost:5173"
                .into()
        }
    })
}

fn parse_allow(text: &str) -> Result<AllowList, String> {
    AllowList::parse(text).map_err(|error| {
        // An entry with `@` may contain a password, which must not be logged.
        let entry = if error.entry.contains('@') { "…" } else { &error.entry };
        format!("has the entry `{entry}`, which is not a host, host:port or CIDR: {}", error.reason)
    })
}

/// Parses a list of host names, in the form to which browsers normalize them.
fn parse_hosts(text: &str) -> Result<Vec<String>, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let url = Url::parse(&format!("http://{name}/")).ok();
            let is_bare = |url: &Url| url.port().is_none() && url.path() == "/" && url.username().is_empty();
            // The port 80 is not part of the parsed address.
            let has_port = name.rsplit(']').next().is_some_and(|end| end.contains(':'));
            let is_name = !has_port && !name.contains(['@', '?', '#', '*', '/']);
            let host = url.filter(|url| is_bare(url) && is_name);
            let host = host.and_then(|url| url.host_str().map(str::to_owned));
            host.ok_or_else(|| "must list host names without ports, such as agents.example".to_owned())
        })
        .collect()
}

/// Checks the directives of the log filter, and returns them without blanks. The filter takes every text for a target, also what
/// `tracing`'s environment filter has for spans and fields.
fn parse_log_filter(text: &str) -> Result<String, String> {
    let invalid_filter =
        |error: String| format!("must be a log filter, such as info,agent_http=debug: {error}");
    let directives: Vec<&str> = text.split(',').map(str::trim).collect();
    let text = directives.join(",");
    let parsed: Result<Targets, _> = text.parse();
    parsed.map_err(|error| invalid_filter(error.to_string()))?;
    for (index, directive) in directives.iter().enumerate() {
        let (target, level) =
            directive.split_once('=').map_or((*directive, None), |(target, level)| (target, Some(level)));
        let number = index + 1;
        if target.is_empty() {
            return Err(invalid_filter(format!("directive {number} is empty")));
        }
        let is_target = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '.');
        if !target.chars().all(is_target) {
            let message = format!("directive {number} is not a level, a target, or a target and its level");
            return Err(invalid_filter(format!("{message}; spans and fields are not supported")));
        }
        // A misspelt level is taken for a target, which would silence every other one.
        if level.is_none() && target.parse::<LevelFilter>().is_err() {
            let message = "is not a level (off, error, warn, info, debug, trace); a target needs one, as in agent_http=debug";
            return Err(invalid_filter(format!("directive {number} {message}")));
        }
    }
    Ok(text)
}

/// Parses a secret. Secrets are sent as bearer tokens, which cannot contain white space or control characters.
fn parse_secret(text: &str, min_bytes: usize) -> Result<Secret, String> {
    if text.len() < min_bytes {
        return Err(format!("must have at least {min_bytes} bytes"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("must be printable ASCII without blanks".to_owned());
    }
    Ok(Secret::new(text))
}
