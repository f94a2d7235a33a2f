//! Settings whose names resemble a name that is none, such as a misspelt environment variable.

use super::setting::Setting;
use super::table::settings;
use super::{Env, SettingError, SettingSource};

/// Maximum edit distance between a name and the setting that is suggested for it.
const MAX_DISTANCE: usize = 2;
/// Minimum length of a setting that is suggested for a name at distance 1. Shorter ones, such as `PORT`, resemble variables of
/// other programs.
const MIN_LENGTH: usize = 6;
/// Minimum length of a setting that is suggested for a name at [`MAX_DISTANCE`], or for a name without its unit.
const MIN_LENGTH_OF_DISTANT: usize = 8;
/// Suffix of settings in milliseconds.
const UNIT_SUFFIX: &str = "_MS";
/// Prefix by the program's name, which settings do not have.
const PROGRAM_PREFIX: &str = "AGENTD_";
/// Variables of other programs that resemble settings.
const VARIABLES_OF_OTHER_PROGRAMS: &[&str] = &["OLLAMA_MODELS"];

/// Returns a warning for each environment variable that is probably a misspelt setting, in the order of their names.
/// A variable whose likely setting is set as well is taken for one of another program.
pub(crate) fn misspelt_variables(env: &dyn Env) -> Vec<SettingError> {
    let mut names = env.names();
    names.sort();
    let is_set = |name: &str| !matches!(env.var(name), Ok(None));
    let warning = |name: String| {
        let suggested = suggest(&name).filter(|suggested| !is_set(suggested))?;
        let message = format!("is not a setting; did you mean {suggested}?");
        Some(SettingError { name, source: Some(SettingSource::Environment), message })
    };
    names.into_iter().filter_map(warning).collect()
}

/// Returns the setting that a name was probably meant to be; `None` for the name of a setting, and for one that resembles none.
pub(super) fn suggest(name: &str) -> Option<String> {
    if is_known(name) || VARIABLES_OF_OTHER_PROGRAMS.contains(&name) {
        return None;
    }
    let upper = name.to_ascii_uppercase();
    let unprefixed = upper.strip_prefix(PROGRAM_PREFIX);
    if let Some(setting) = unprefixed.filter(|unprefixed| is_known(unprefixed)) {
        return Some(setting.to_owned());
    }
    let name = unprefixed.unwrap_or(&upper);
    let candidates = settings().flat_map(names_of);
    let distances =
        candidates.filter_map(|candidate| Some((distance_within_limit(name, &candidate)?, candidate)));
    distances.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

fn is_known(name: &str) -> bool {
    settings().flat_map(names_of).any(|known| known == name)
}

/// Returns the names under which a setting can be set.
fn names_of(setting: &Setting) -> impl Iterator<Item = String> + use<> {
    let in_file = setting.kind.may_be_in_file().then(|| format!("{}_FILE", setting.name));
    std::iter::once(setting.name.to_owned()).chain(in_file)
}

/// Returns the edit distance of a name to a setting; `None` if they are too different.
fn distance_within_limit(name: &str, setting: &str) -> Option<usize> {
    if setting.len() >= MIN_LENGTH_OF_DISTANT && setting.strip_suffix(UNIT_SUFFIX) == Some(name) {
        return Some(UNIT_SUFFIX.len());
    }
    let limit = if setting.len() >= MIN_LENGTH_OF_DISTANT { MAX_DISTANCE } else { 1 };
    if setting.len() < MIN_LENGTH || name.len().abs_diff(setting.len()) > limit {
        return None;
    }
    Some(edit_distance(name.as_bytes(), setting.as_bytes())).filter(|distance| *distance <= limit)
}

/// Returns the number of insertions, deletions, substitutions and swaps of neighbours between two texts (optimal string
/// alignment).
fn edit_distance(left: &[u8], right: &[u8]) -> usize {
    let mut before_previous: Vec<usize> = Vec::new();
    let mut previous: Vec<usize> = (0..=right.len()).collect();
    for (i, &left_byte) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &right_byte) in right.iter().enumerate() {
            let substituted = previous[j] + usize::from(left_byte != right_byte);
            let mut distance = substituted.min(previous[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && left_byte == right[j - 1] && left[i - 1] == right_byte {
                distance = distance.min(before_previous[j - 1] + 1);
            }
            row.push(distance);
        }
        before_previous = std::mem::replace(&mut previous, row);
    }
    previous[right.len()]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn misspelt_names_are_recognized() {
        for (name, expected) in [
            ("SESSION_SECRT", "SESSION_SECRET"),
            ("SESION_SECRET", "SESSION_SECRET"),
            ("DATABSE_URL", "DATABASE_URL"),
            ("DATBASE_URL_FILE", "DATABASE_URL_FILE"),
            ("PUBLIC_ULR", "PUBLIC_URL"),
            ("public_url", "PUBLIC_URL"),
            ("RUN_TIMEOUT", "RUN_TIMEOUT_MS"),
            ("LAME_DUCK", "LAME_DUCK_MS"),
            ("OUTBOUND_ALLOWED", "OUTBOUND_ALLOW"),
            ("AGENTD_PORT", "PORT"),
            ("AGENTD_DATA_SECRET", "DATA_SECRET"),
            ("CONSOL", "CONSOLE"),
        ] {
            assert_eq!(suggest(name).as_deref(), Some(expected), "{name}");
        }
    }

    #[test]
    fn settings_and_variables_of_other_programs_give_no_warning() {
        for setting in settings() {
            assert_eq!(suggest(setting.name), None);
        }
        let others = "PATH HOME USER LOGNAME SHELL LANG TERM PWD OLDPWD HOSTNAME EDITOR PAGER TMPDIR COLUMNS LINES SHLVL \
            http_proxy HTTPS_PROXY NO_PROXY SSL_CERT_FILE SSL_CERT_DIR XDG_RUNTIME_DIR XDG_CONFIG_HOME SSH_AUTH_SOCK PGHOST \
            PGPORT PGUSER PGPASSWORD PGDATABASE POSTGRES_USER POSTGRES_PASSWORD POSTGRES_DB POSTGRES_URL REDIS_URL MYSQL_URL \
            DATABASE_HOST DATABASE_USER DATABASE_NAME DATABASE_PASSWORD RUST_LOG RUST_BACKTRACE TOKIO_WORKER_THREADS NODE_ENV \
            OPENAI_API_BASE OPENAI_ORG_ID OPENAI_API_TYPE ANTHROPIC_AUTH_TOKEN OLLAMA_HOST OLLAMA_MODELS OLLAMA_ORIGINS \
            OLLAMA_DEBUG HF_HOME HF_TOKEN GROQ_API_KEY MISTRAL_API_KEY KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT \
            POD_NAME AWS_REGION AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN PULSE_SERVER PULSE_COOKIE NOTIFY_SOCKET \
            INVOCATION_ID JOURNAL_STREAM CREDENTIALS_DIRECTORY RUNTIME_DIRECTORY STATE_DIRECTORY SECRET_KEY SECRET_KEY_BASE \
            JWT_SECRET API_KEY APP_SECRET AUTH_SECRET CLIENT_SECRET LOG_LEVEL DEBUG CI BASE_URL API_URL SERVICE_URL TZ \
            AGENTD_CONSOLE_DIR COST POST SORT HOSTS";
        for name in others.split_whitespace() {
            assert_eq!(suggest(name), None, "{name}");
        }
    }

    #[test]
    fn a_variable_beside_its_likely_setting_gives_no_warning() {
        let mut env = BTreeMap::from([("SESSION_SECRTE", "secret-canary"), ("PATH", "/bin")]);
        let warnings: Vec<String> = misspelt_variables(&env).iter().map(ToString::to_string).collect();
        assert_eq!(warnings, ["SESSION_SECRTE (environment) is not a setting; did you mean SESSION_SECRET?"]);
        env.insert("SESSION_SECRET", "0123456789abcdef");
        assert!(misspelt_variables(&env).is_empty());
    }
}
