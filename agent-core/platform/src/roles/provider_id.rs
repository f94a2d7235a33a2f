//! Rule for the identifiers of companies' providers, which containers name in place of a built-in provider.

use crate::catalog::LOCAL_PROVIDER;

/// Maximum length of an identifier in bytes.
const MAX_BYTES: usize = 64;
/// Providers that containers may name without a company's own.
pub(super) const EMBEDDED_PROVIDERS: [&str; 6] =
    ["anthropic", "auto", LOCAL_PROVIDER, "ollama", "openai", "openai-responses"];
/// Further names that the ledger has in place of a provider.
const LEDGER_NAMES: [&str; 5] = ["embedded", "other", "runtime", "subscription", "workflow"];

/// Violation of the rule; worded to follow the name of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderIdError {
    /// The text has other characters, begins with none of those, or is too long.
    #[error(
        "must have 1 to {MAX_BYTES} characters of a-z, A-Z, 0-9, \".\", \"_\" and \"-\", and begin with a letter or digit"
    )]
    Form,
    /// The name belongs to a built-in provider.
    #[error("is the name of a built-in provider")]
    BuiltIn,
}

/// Checks the identifier of a company's provider.
///
/// # Errors
/// The first violation.
pub fn check_provider_id(id: &str) -> Result<(), ProviderIdError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let begins = id.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !begins || id.len() > MAX_BYTES || !id.bytes().all(is_allowed) {
        return Err(ProviderIdError::Form);
    }
    let mut reserved = EMBEDDED_PROVIDERS.iter().chain(&LEDGER_NAMES);
    match reserved.any(|name| name.eq_ignore_ascii_case(id)) {
        true => Err(ProviderIdError::BuiltIn),
        false => Ok(()),
    }
}

/// Returns the identifier of the company's provider that a container names; `None` for a built-in provider, and for a
/// text that is not an identifier.
pub fn company_provider_id(provider: Option<&str>) -> Option<&str> {
    provider.map(str::trim).filter(|id| check_provider_id(id).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_names_and_other_texts_are_not_identifiers() {
        let longest = "x".repeat(MAX_BYTES);
        for id in ["acme-azure", "a", "7", "A.b_c-d", "openai2", &longest] {
            assert_eq!(check_provider_id(id), Ok(()), "{id}");
            assert_eq!(company_provider_id(Some(&format!(" {id}\n"))), Some(id));
        }
        for id in EMBEDDED_PROVIDERS.into_iter().chain(LEDGER_NAMES).chain(["OpenAI", "AUTO"]) {
            assert_eq!(check_provider_id(id), Err(ProviderIdError::BuiltIn), "{id}");
            assert_eq!(company_provider_id(Some(id)), None);
        }
        let long = "x".repeat(MAX_BYTES + 1);
        for id in ["", ".", "..", "-a", "a b", "a/b", "ä", "a\n", "*", &long] {
            assert_eq!(check_provider_id(id), Err(ProviderIdError::Form), "{id}");
        }
        assert_eq!(company_provider_id(None), None);
    }
}
