//! Settings of the repetition of models' calls.

use std::time::Duration;

use agent_core::role::FallbackModel;
use agent_platform::fallback::{FallbackDefaults, MAX_FALLBACKS};

use super::SettingError;
use super::resolve::ResolvedSettings;
use super::values::SettingValues;

const MODEL_FALLBACKS: &str = "MODEL_FALLBACKS";
/// Providers of fallbacks.
const PROVIDERS: [&str; 5] = ["anthropic", "local", "ollama", "openai", "openai-responses"];

/// Configuration of the repetition of models' calls.
#[derive(Debug, Clone)]
pub struct FallbackConfig {
    /// Limits and fallbacks of agents whose roles set none.
    pub defaults: FallbackDefaults,
    /// Time in which an answer's first content must arrive.
    pub first_content: Duration,
}

/// Returns the configuration. Adds the error of fallbacks that are invalid, and uses no fallbacks then.
pub(super) fn load(
    resolved: &ResolvedSettings,
    values: &SettingValues,
    errors: &mut Vec<SettingError>,
) -> Option<FallbackConfig> {
    let text = values.text(MODEL_FALLBACKS).unwrap_or_default();
    let fallbacks = parse_fallbacks(&text).unwrap_or_else(|message| {
        let source = resolved.get(MODEL_FALLBACKS).map(|(_, source)| source.clone());
        errors.push(SettingError { name: MODEL_FALLBACKS.to_owned(), source, message });
        Vec::new()
    });
    let max_attempts = u32::try_from(values.number("MODEL_ATTEMPTS")?).ok()?;
    let max_wait = values.millis("MODEL_RETRY_WAIT_MS")?;
    let defaults = FallbackDefaults { max_attempts, max_wait, fallbacks };
    Some(FallbackConfig { defaults, first_content: values.millis("FIRST_CONTENT_MS")? })
}

fn parse_fallbacks(text: &str) -> Result<Vec<FallbackModel>, String> {
    let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.len() > MAX_FALLBACKS {
        return Err(format!("must name at most {MAX_FALLBACKS} models"));
    }
    let parse = |name: &str| {
        let (provider, model) = name.split_once('/')?;
        let is_valid = PROVIDERS.contains(&provider) && (!model.is_empty() || provider == "local");
        let model = Some(model.to_owned()).filter(|model| !model.is_empty());
        is_valid.then(|| FallbackModel {
            provider: Some(provider.to_owned()),
            model,
            ..FallbackModel::default()
        })
    };
    let expected =
        || format!("must list models as PROVIDER/MODEL, with a provider of {}", PROVIDERS.join(", "));
    names.into_iter().map(|name| parse(name).ok_or_else(expected)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallbacks_are_listed_by_provider_and_model() {
        let names = |text: &str| {
            let models = parse_fallbacks(text).expect("valid");
            models.into_iter().map(|found| (found.provider, found.model)).collect::<Vec<_>>()
        };
        let pair = |provider: &str, model: &str| (Some(provider.to_owned()), Some(model.to_owned()));
        assert_eq!(names(""), []);
        assert_eq!(
            names("openai/gpt-5-nano, ollama/library/qwen3:8b,anthropic/claude-haiku-4-5"),
            [
                pair("openai", "gpt-5-nano"),
                pair("ollama", "library/qwen3:8b"),
                pair("anthropic", "claude-haiku-4-5")
            ]
        );
        for invalid in ["gpt-5-nano", "openai/", "abacus/m", "openai/a,openai/b,openai/c,openai/d,openai/e"] {
            assert!(parse_fallbacks(invalid).is_err(), "{invalid}");
        }
    }
}
