//! Settings of a role's compaction, and their bounds.

use std::ops::RangeInclusive;

use agent_core::role::{EmbeddedAi, RoleContent};
use serde_json::{Map, Value};

use crate::parameters::ModelParameters;

/// Bounds of the shares, in thousandths.
const AT: RangeInclusive<usize> = 300..=950;
const TO: RangeInclusive<usize> = 100..=450;
/// Bounds of the numbers of turns and tool results that are kept.
const KEEP_TURNS: RangeInclusive<usize> = 1..=50;
const KEEP_TOOL_RESULTS: RangeInclusive<usize> = 0..=100;
/// Maximum length of the instructions for the summary, in bytes.
const MAX_INSTRUCTIONS_BYTES: usize = 4_000;
/// Maximum length of a provider's or a model's name, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Treatment of a history that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionMode {
    /// Old tool results are left out, and old turns are summarized.
    Auto,
    /// The oldest messages are left out.
    Cut,
    /// The request is refused.
    Off,
}

/// Model that summarizes, in place of the agent's own.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SummaryModel {
    /// Provider, whose key and address are the operator's. If absent, provider, key and address are those of the agent's
    /// own container.
    pub provider: Option<String>,
    /// Name of the model at the provider.
    pub model: Option<String>,
    /// Parameters of its calls.
    pub parameters: Map<String, Value>,
}

/// Compaction of an agent's conversations. Shares are in thousandths.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactionSettings {
    /// The mode; `None` for `auto` in conversations that are kept, and `cut` in others.
    pub mode: Option<CompactionMode>,
    /// Share of the window that the conversation must exceed.
    pub at: usize,
    /// Share of the window that remains.
    pub to: usize,
    /// Number of the turns before the latest message that are kept as they are.
    pub keep_turns: usize,
    /// Number of the latest tool results that are kept.
    pub keep_tool_results: usize,
    /// The model that summarizes.
    pub model: Option<SummaryModel>,
    /// Instructions for the summary in addition to those of the platform.
    pub instructions: String,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self {
            mode: None,
            at: 800,
            to: 400,
            keep_turns: 2,
            keep_tool_results: 3,
            model: None,
            instructions: String::new(),
        }
    }
}

/// Error of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionSettingsError {
    /// Path of the setting below `compaction`; empty for the settings together.
    pub path: String,
    /// Description, worded to follow the path.
    pub message: String,
}

impl CompactionSettings {
    /// Returns the settings of a role. Invalid ones, which were stored before they were checked, count as absent.
    pub fn of(content: &RoleContent) -> Self {
        content.compaction.as_ref().and_then(|members| Self::read(members).ok()).unwrap_or_default()
    }

    /// Reads settings by their names.
    ///
    /// # Errors
    /// All invalid settings.
    pub fn read(members: &Map<String, Value>) -> Result<Self, Vec<CompactionSettingsError>> {
        let mut reader = SettingsReader::default();
        let mut settings = Self::default();
        for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
            match name.as_str() {
                "mode" => settings.mode = reader.mode(value),
                "at" => settings.at = reader.share(name, value, AT).unwrap_or(settings.at),
                "to" => settings.to = reader.share(name, value, TO).unwrap_or(settings.to),
                "keepTurns" => {
                    settings.keep_turns =
                        reader.number(name, value, KEEP_TURNS).unwrap_or(settings.keep_turns);
                }
                "keepToolResults" => {
                    let number = reader.number(name, value, KEEP_TOOL_RESULTS);
                    settings.keep_tool_results = number.unwrap_or(settings.keep_tool_results);
                }
                "model" => settings.model = reader.model(value),
                "instructions" => {
                    let text = reader.text(name, value, MAX_INSTRUCTIONS_BYTES);
                    settings.instructions = text.unwrap_or_default();
                }
                _ => reader.fault(name, "is not a setting of compaction"),
            }
        }
        if reader.faults.is_empty() && settings.at < 2 * settings.to {
            reader.fault("to", "must be at most half of at");
        }
        if reader.faults.is_empty() { Ok(settings) } else { Err(reader.faults) }
    }

    /// Returns the settings of the model that summarizes conversations with the agent's own model, if it has one.
    pub(crate) fn summary_model(&self, own: Option<&EmbeddedAi>) -> Option<EmbeddedAi> {
        let Some(SummaryModel { provider, model, parameters }) = &self.model else { return own.cloned() };
        Some(match (provider, own) {
            (None, Some(own)) => EmbeddedAi {
                model: model.clone().or_else(|| own.model.clone()),
                parameters: parameters.clone(),
                reasoning_effort: None,
                token_limits: Default::default(),
                // The prices are those of the agent's own model.
                prices: if model.is_none() { own.prices.clone() } else { Default::default() },
                ..own.clone()
            },
            _ => EmbeddedAi {
                provider: provider.clone(),
                model: model.clone(),
                parameters: parameters.clone(),
                ..EmbeddedAi::default()
            },
        })
    }
}

#[derive(Default)]
struct SettingsReader {
    faults: Vec<CompactionSettingsError>,
}

impl SettingsReader {
    fn fault(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.faults.push(CompactionSettingsError { path: path.into(), message: message.into() });
    }

    fn mode(&mut self, value: &Value) -> Option<CompactionMode> {
        match value.as_str() {
            Some("auto") => Some(CompactionMode::Auto),
            Some("cut") => Some(CompactionMode::Cut),
            Some("off") => Some(CompactionMode::Off),
            _ => {
                self.fault("mode", "must be auto, cut or off");
                None
            }
        }
    }

    fn share(&mut self, name: &str, value: &Value, bounds: RangeInclusive<usize>) -> Option<usize> {
        let (min, max) = (*bounds.start() as f64 / 1_000.0, *bounds.end() as f64 / 1_000.0);
        let share = value.as_f64().filter(|share| (min..=max).contains(share));
        if share.is_none() {
            self.fault(name, format!("must be a number from {min} to {max}"));
        }
        // Within the bounds, so that the number is small and positive.
        share.map(|share| (share * 1_000.0).round() as usize)
    }

    fn number(&mut self, name: &str, value: &Value, bounds: RangeInclusive<usize>) -> Option<usize> {
        let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
        let number = number.filter(|number| bounds.contains(number));
        if number.is_none() {
            let message = format!("must be a whole number from {} to {}", bounds.start(), bounds.end());
            self.fault(name, message);
        }
        number
    }

    fn text(&mut self, path: &str, value: &Value, max_bytes: usize) -> Option<String> {
        let text = value.as_str().filter(|text| text.len() <= max_bytes).map(|text| text.trim().to_owned());
        if text.is_none() {
            self.fault(path, format!("must be a text of at most {max_bytes} bytes"));
        }
        text
    }

    fn model(&mut self, value: &Value) -> Option<SummaryModel> {
        let Some(members) = value.as_object() else {
            self.fault("model", "must be an object");
            return None;
        };
        let mut model = SummaryModel::default();
        for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
            let path = format!("model.{name}");
            let non_blank = |text: String| Some(text).filter(|text| !text.is_empty());
            match name.as_str() {
                "provider" => {
                    model.provider = self.text(&path, value, MAX_NAME_BYTES).and_then(non_blank);
                }
                "model" => model.model = self.text(&path, value, MAX_NAME_BYTES).and_then(non_blank),
                "parameters" => match value.as_object() {
                    Some(parameters) => {
                        for fault in ModelParameters::read(parameters).err().into_iter().flatten() {
                            self.fault(format!("{path}.{}", fault.name), fault.message);
                        }
                        model.parameters.clone_from(parameters);
                    }
                    None => self.fault(path, "must be an object"),
                },
                _ => self.fault(path, "is not a setting of the model of compaction"),
            }
        }
        Some(model)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<CompactionSettings, Vec<String>> {
        let Value::Object(members) = value else { panic!("an object") };
        let paths =
            |faults: Vec<CompactionSettingsError>| faults.into_iter().map(|fault| fault.path).collect();
        CompactionSettings::read(&members).map_err(paths)
    }

    #[test]
    fn settings_are_read_with_their_defaults() {
        assert_eq!(read(json!({})), Ok(CompactionSettings::default()));
        assert_eq!(read(json!({"mode": null, "model": null})), Ok(CompactionSettings::default()));
        let all = json!({"mode": "auto", "at": 0.9, "to": 0.45, "keepTurns": 1, "keepToolResults": 0,
            "model": {"provider": "openai", "model": "gpt-5-nano", "parameters": {"temperature": 0}},
            "instructions": " Keep order numbers. "});
        let model = SummaryModel {
            provider: Some("openai".to_owned()),
            model: Some("gpt-5-nano".to_owned()),
            parameters: Map::from_iter([("temperature".to_owned(), json!(0))]),
        };
        let expected = CompactionSettings {
            mode: Some(CompactionMode::Auto),
            at: 900,
            to: 450,
            keep_turns: 1,
            keep_tool_results: 0,
            model: Some(model),
            instructions: "Keep order numbers.".to_owned(),
        };
        assert_eq!(read(all), Ok(expected));
    }

    #[test]
    fn each_fault_is_named_with_its_place() {
        for (members, expected) in [
            (json!({"mode": "on"}), &["mode"][..]),
            (json!({"at": 0.29}), &["at"]),
            (json!({"at": "0.8"}), &["at"]),
            (json!({"to": 0.46, "at": 0.95}), &["to"]),
            (json!({"at": 0.7}), &["to"]),
            (json!({"at": 0.7, "to": 0.35}), &[]),
            (json!({"keepTurns": 0}), &["keepTurns"]),
            (json!({"keepTurns": 2.5, "keepToolResults": 101}), &["keepTurns", "keepToolResults"]),
            (json!({"model": "gpt-5"}), &["model"]),
            (json!({"model": {"apiKey": "sk"}}), &["model.apiKey"]),
            (json!({"model": {"parameters": {"temperature": 3}}}), &["model.parameters.temperature"]),
            (json!({"instructions": "x".repeat(4_001)}), &["instructions"]),
            (json!({"threshold": 1}), &["threshold"]),
        ] {
            let faults = read(members.clone()).err().unwrap_or_default();
            assert_eq!(faults, expected, "{members}");
        }
    }

    #[test]
    fn the_summary_is_made_by_the_agents_own_model_or_by_one_of_the_operator() {
        let agent_model = EmbeddedAi {
            provider: Some("openai".to_owned()),
            model: Some("gpt-5".to_owned()),
            base_url: Some("https://own.example".to_owned()),
            ..EmbeddedAi::default()
        };
        let of = |members: Value| {
            read(members).expect("valid").summary_model(Some(&agent_model)).expect("a model")
        };
        assert_eq!(of(json!({})), agent_model);
        let other = of(json!({"model": {"model": "gpt-5-nano"}}));
        assert_eq!((other.model.as_deref(), &other.base_url), (Some("gpt-5-nano"), &agent_model.base_url));
        let operators = of(json!({"model": {"provider": "ollama", "model": "qwen3"}}));
        assert_eq!((operators.provider.as_deref(), operators.base_url), (Some("ollama"), None));
        assert_eq!(CompactionSettings::default().summary_model(None), None);
    }
}
