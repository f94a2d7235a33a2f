//! Parameters of model calls: their names and bounds, and those that an API or a model has no use for.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use serde_json::{Map, Number, Value};

use crate::messages_model::{MIN_THINKING_BUDGET, MessagesModel, SamplingSupport, ThinkingForm};

/// Bounds of the numbers.
const TEMPERATURE: RangeInclusive<f64> = 0.0..=2.0;
const TOP_P: RangeInclusive<f64> = 0.0..=1.0;
const TOP_K: RangeInclusive<u64> = 1..=1_000;
const PENALTY: RangeInclusive<f64> = -2.0..=2.0;
/// Largest seed: the whole numbers up to it are exact in every JSON implementation.
const MAX_SEED: u64 = (1 << 53) - 1;
/// Limits on stop sequences.
const MAX_STOP_SEQUENCES: usize = 4;
const MAX_STOP_BYTES: usize = 256;
/// Limit on the extra members of a request, in bytes of JSON.
const MAX_EXTRA_BYTES: usize = 4 << 10;
/// Names that extra members must not have: request members that adapters write, and members that add models, tools or context
/// without the knowledge of previews, budgets and approvals.
const RESERVED_MEMBERS: [&str; 49] = [
    "audio",
    "background",
    "cache_control",
    "container",
    "context_management",
    "conversation",
    "format",
    "frequency_penalty",
    "function_call",
    "functions",
    "include",
    "input",
    "instructions",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "mcp_servers",
    "messages",
    "modalities",
    "model",
    "models",
    "n",
    "options",
    "output_config",
    "parallel_tool_calls",
    "plugins",
    "presence_penalty",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "reasoning",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
    "stop_sequences",
    "store",
    "stream",
    "stream_options",
    "system",
    "temperature",
    "text",
    "think",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
    "web_search_options",
];
/// Beginnings of the names of models that reason and refuse to be sampled other than by their default.
const FIXED_SAMPLING: [&str; 4] = ["gpt-5", "o1", "o3", "o4"];
/// Names of the parameters that sample an answer, as far as the Messages API has them.
const MESSAGES_SAMPLING: [&str; 3] = ["temperature", "topP", "topK"];
/// Families of models that do not reason, and refuse a request for it.
const WITHOUT_REASONING: [&str; 6] = ["chatgpt-4o", "gpt-3.5", "gpt-4", "gpt-4.1", "gpt-4o", "gpt-5-chat"];

/// Parameters of an agent's model calls. Absent ones are left to the model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelParameters {
    /// Sampling temperature, 0 to 2.
    pub temperature: Option<Number>,
    /// Limit on the answer, in tokens.
    pub max_output_tokens: Option<NonZeroU32>,
    /// Share of the probability that is sampled from, 0 to 1.
    pub top_p: Option<Number>,
    /// Number of the most probable tokens that are sampled from, 1 to 1,000.
    pub top_k: Option<u64>,
    /// Penalty on tokens that occur in the text, -2 to 2.
    pub presence_penalty: Option<Number>,
    /// Penalty on tokens by the number of their occurrences, -2 to 2.
    pub frequency_penalty: Option<Number>,
    /// Texts that end the answer, at most 4.
    pub stop_sequences: Vec<String>,
    /// Seed of the sampling.
    pub seed: Option<u64>,
    /// Level of the model's reasoning; `None` leaves it to the model.
    pub reasoning: Option<ReasoningLevel>,
    /// Members that are added to the request as they are.
    pub extra_body: Map<String, Value>,
}

/// Level of a model's reasoning, the lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReasoningLevel {
    /// Reasoning is switched off.
    None,
    /// The lowest level.
    Minimal,
    /// Low.
    Low,
    /// Medium.
    Medium,
    /// High.
    High,
    /// The highest level.
    Xhigh,
}

impl ReasoningLevel {
    const ALL: [Self; 6] = [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh];

    /// Returns the name used in roles, which is also that of OpenAI's APIs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
        }
    }

    /// Returns `low`, `medium` or `high`, for APIs that have these levels alone; `None` without reasoning.
    pub fn as_low_medium_high(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Minimal | Self::Low => Some("low"),
            Self::Medium => Some("medium"),
            Self::High | Self::Xhigh => Some("high"),
        }
    }
}

/// API through which a model is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelApi {
    /// OpenAI's Chat Completions, and the servers that are compatible with it.
    ChatCompletions,
    /// OpenAI's Responses.
    Responses,
    /// Ollama's own.
    Ollama,
    /// Anthropic's Messages.
    Messages,
    /// A model in the process.
    InProcess,
}

impl ModelApi {
    /// Returns the API of a provider's name; `None` for `auto` and unknown names.
    pub(crate) fn of_provider(provider: &str) -> Option<Self> {
        match provider {
            "openai" => Some(Self::ChatCompletions),
            "openai-responses" => Some(Self::Responses),
            "ollama" => Some(Self::Ollama),
            "anthropic" => Some(Self::Messages),
            "local" => Some(Self::InProcess),
            _ => None,
        }
    }

    /// Returns true if the API has the parameter.
    fn has(self, name: &str) -> bool {
        match self {
            Self::ChatCompletions => name != "topK",
            Self::Responses => {
                !matches!(name, "topK" | "presencePenalty" | "frequencyPenalty" | "stopSequences" | "seed")
            }
            Self::Ollama => true,
            Self::Messages => !matches!(name, "presencePenalty" | "frequencyPenalty" | "seed"),
            Self::InProcess => false,
        }
    }
}

/// Error of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterError {
    /// Name of the parameter.
    pub name: String,
    /// Description, worded to follow the name.
    pub message: String,
}

impl ModelParameters {
    /// Names of the parameters.
    pub const NAMES: [&str; 10] = [
        "temperature",
        "maxOutputTokens",
        "topP",
        "topK",
        "presencePenalty",
        "frequencyPenalty",
        "stopSequences",
        "seed",
        "reasoning",
        "extraBody",
    ];

    /// Reads parameters. `null` counts as absent.
    ///
    /// # Errors
    /// The faults of all values: unknown names, wrong types and values out of their bounds.
    pub fn read(json: &Map<String, Value>) -> Result<Self, Vec<ParameterError>> {
        let (mut read, mut faults) = (Self::default(), Vec::new());
        for (name, value) in json.iter().filter(|(_, value)| !value.is_null()) {
            let set = match name.as_str() {
                "temperature" => number(value, TEMPERATURE).map(|number| read.temperature = Some(number)),
                "maxOutputTokens" => tokens(value).map(|tokens| read.max_output_tokens = Some(tokens)),
                "topP" => number(value, TOP_P).map(|number| read.top_p = Some(number)),
                "topK" => whole(value, TOP_K).map(|number| read.top_k = Some(number)),
                "presencePenalty" => {
                    number(value, PENALTY).map(|number| read.presence_penalty = Some(number))
                }
                "frequencyPenalty" => {
                    number(value, PENALTY).map(|number| read.frequency_penalty = Some(number))
                }
                "stopSequences" => stop_sequences(value).map(|texts| read.stop_sequences = texts),
                "seed" => whole(value, 0..=MAX_SEED).map(|seed| read.seed = Some(seed)),
                "reasoning" => reasoning(value).map(|level| read.reasoning = level),
                "extraBody" => extra_body(value).map(|members| read.extra_body = members),
                _ => Err("is not a parameter of models".to_owned()),
            };
            if let Err(message) = set {
                faults.push(ParameterError { name: name.clone(), message });
            }
        }
        if faults.is_empty() { Ok(read) } else { Err(faults) }
    }

    /// Returns the names of the parameters that are set.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        let is_set = [
            self.temperature.is_some(),
            self.max_output_tokens.is_some(),
            self.top_p.is_some(),
            self.top_k.is_some(),
            self.presence_penalty.is_some(),
            self.frequency_penalty.is_some(),
            !self.stop_sequences.is_empty(),
            self.seed.is_some(),
            self.reasoning.is_some(),
            !self.extra_body.is_empty(),
        ];
        Self::NAMES.into_iter().zip(is_set).filter_map(|(name, is_set)| is_set.then_some(name))
    }

    /// Returns the names of the set parameters that are not sent to a model over an API: parameters that the API does not have or
    /// the model refuses, and reasoning that does not fit into the answer's limit. `thinking` is the [switch](thinking_switch) of
    /// its settings, and `max_output_tokens` the limit on its answer, if it is known to be another than that of the parameters.
    pub fn ignored(
        &self,
        api: ModelApi,
        model: &str,
        thinking: Option<bool>,
        max_output_tokens: Option<usize>,
    ) -> Vec<&'static str> {
        let refused = match api {
            ModelApi::Messages => {
                let own = || self.max_output_tokens.map(|tokens| tokens.get() as usize);
                self.refused_by_messages(MessagesModel::of(model), thinking, max_output_tokens.or_else(own))
            }
            _ => refused_by_openai(of_openai(api, model)),
        };
        self.names().filter(|name| !api.has(name) || refused.contains(name)).collect()
    }

    fn refused_by_messages(
        &self,
        model: MessagesModel,
        thinking: Option<bool>,
        max_output_tokens: Option<usize>,
    ) -> Vec<&'static str> {
        let switch = self.reasoning.map(|level| level != ReasoningLevel::None).or(thinking);
        let can_think = match model.thinking {
            ThinkingForm::None => false,
            // The budget is a part of the answer, at most its half.
            ThinkingForm::Budget => max_output_tokens.is_none_or(|tokens| tokens >= 2 * MIN_THINKING_BUDGET),
            ThinkingForm::Adaptive { .. } => true,
        };
        let mut refused = Vec::new();
        if !can_think && self.reasoning.is_some_and(|level| level != ReasoningLevel::None) {
            refused.push("reasoning");
        }
        let is_hot = || self.temperature.as_ref().and_then(Number::as_f64).is_some_and(|value| value > 1.0);
        match model.sampling {
            SamplingSupport::None => refused.extend(MESSAGES_SAMPLING),
            _ if can_think && model.thinks(switch) => refused.extend(MESSAGES_SAMPLING),
            SamplingSupport::All | SamplingSupport::OneOfTwo if is_hot() => refused.push("temperature"),
            SamplingSupport::OneOfTwo if self.temperature.is_some() => refused.push("topP"),
            _ => {}
        }
        refused
    }

    /// Returns the parameters that a model called through an API is sent regardless of the switch of its thinking. The limit on its
    /// answer is that of [`ignored`](Self::ignored).
    #[must_use]
    pub fn for_model(mut self, api: ModelApi, model: &str, max_output_tokens: Option<usize>) -> Self {
        for name in self.ignored(api, model, None, max_output_tokens) {
            match name {
                "temperature" => self.temperature = None,
                "maxOutputTokens" => self.max_output_tokens = None,
                "topP" => self.top_p = None,
                "topK" => self.top_k = None,
                "presencePenalty" => self.presence_penalty = None,
                "frequencyPenalty" => self.frequency_penalty = None,
                "stopSequences" => self.stop_sequences.clear(),
                "seed" => self.seed = None,
                "reasoning" => self.reasoning = None,
                _ => self.extra_body.clear(),
            }
        }
        self
    }
}

/// Returns true or false if the settings beside the parameters switch a model's thinking on or off: `enableThinking`, or the
/// level of its reasoning.
pub fn thinking_switch(enable_thinking: Option<bool>, reasoning_effort: Option<&str>) -> Option<bool> {
    let has_level = reasoning_effort.is_some_and(|level| !level.trim().is_empty());
    enable_thinking.or(has_level.then_some(true))
}

/// Family of a model of OpenAI, as far as its parameters are concerned.
enum OpenAiFamily {
    /// Models that reason. They accept no sampling parameters.
    Reasoning,
    /// Models that do not reason.
    Plain,
    /// Unknown models.
    Other,
}

/// Returns the family of a model, by its name behind that of a vendor. A server at home may give any name to a model.
fn of_openai(api: ModelApi, model: &str) -> OpenAiFamily {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let is_of = |family: &&str| {
        name.strip_prefix(*family).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
    };
    if !matches!(api, ModelApi::ChatCompletions | ModelApi::Responses) {
        OpenAiFamily::Other
    } else if WITHOUT_REASONING.iter().any(is_of) {
        OpenAiFamily::Plain
    } else if FIXED_SAMPLING.iter().any(is_of) {
        OpenAiFamily::Reasoning
    } else {
        OpenAiFamily::Other
    }
}

fn refused_by_openai(family: OpenAiFamily) -> Vec<&'static str> {
    match family {
        OpenAiFamily::Reasoning => {
            vec!["temperature", "topP", "presencePenalty", "frequencyPenalty", "stopSequences"]
        }
        OpenAiFamily::Plain => vec!["reasoning"],
        OpenAiFamily::Other => Vec::new(),
    }
}

fn number(value: &Value, bounds: RangeInclusive<f64>) -> Result<Number, String> {
    match value {
        Value::Number(number) if number.as_f64().is_some_and(|value| bounds.contains(&value)) => {
            Ok(number.clone())
        }
        _ => Err(format!("must be a number from {} to {}", bounds.start(), bounds.end())),
    }
}

fn whole(value: &Value, bounds: RangeInclusive<u64>) -> Result<u64, String> {
    let number = value.as_u64().filter(|number| bounds.contains(number));
    number.ok_or_else(|| format!("must be a whole number from {} to {}", bounds.start(), bounds.end()))
}

fn tokens(value: &Value) -> Result<NonZeroU32, String> {
    let tokens = whole(value, 1..=u32::MAX.into())?;
    u32::try_from(tokens).ok().and_then(NonZeroU32::new).ok_or_else(|| "is too large".to_owned())
}

fn stop_sequences(value: &Value) -> Result<Vec<String>, String> {
    let message = || {
        format!("must be an array of at most {MAX_STOP_SEQUENCES} texts of 1 to {MAX_STOP_BYTES} bytes each")
    };
    let texts = value.as_array().filter(|texts| texts.len() <= MAX_STOP_SEQUENCES).ok_or_else(message)?;
    let text = |value: &Value| {
        let text = value.as_str().filter(|text| (1..=MAX_STOP_BYTES).contains(&text.len()));
        text.map(str::to_owned).ok_or_else(message)
    };
    texts.iter().map(text).collect()
}

fn reasoning(value: &Value) -> Result<Option<ReasoningLevel>, String> {
    match value.as_str() {
        Some("default") => Ok(None),
        name => {
            let level = ReasoningLevel::ALL.into_iter().find(|level| Some(level.as_str()) == name);
            let message = || {
                let names: Vec<_> = ReasoningLevel::ALL.into_iter().map(ReasoningLevel::as_str).collect();
                format!("must be one of default, {}", names.join(", "))
            };
            level.map(Some).ok_or_else(message)
        }
    }
}

fn extra_body(value: &Value) -> Result<Map<String, Value>, String> {
    let Value::Object(members) = value else { return Err("must be an object".to_owned()) };
    if let Some(name) = members.keys().find(|name| RESERVED_MEMBERS.contains(&name.as_str())) {
        return Err(format!("must not name {name}, which the platform sets"));
    }
    let bytes = serde_json::to_vec(members).map_or(usize::MAX, |json| json.len());
    match bytes <= MAX_EXTRA_BYTES {
        true => Ok(members.clone()),
        false => Err(format!("is larger than {MAX_EXTRA_BYTES} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(json: Value) -> Result<ModelParameters, Vec<ParameterError>> {
        let Value::Object(json) = json else { panic!("an object") };
        ModelParameters::read(&json)
    }

    fn all() -> Value {
        json!({"temperature": 0.7, "maxOutputTokens": 500, "topP": 0.9, "topK": 40, "presencePenalty": -0.5,
            "frequencyPenalty": 1, "stopSequences": ["END"], "seed": 7, "reasoning": "low",
            "extraBody": {"service_tier": "flex"}})
    }

    #[test]
    fn every_parameter_is_read() {
        let parameters = read(all()).expect("valid fields");
        let Value::Object(members) = all() else { panic!("an object") };
        assert_eq!(parameters.names().collect::<Vec<_>>(), members.keys().collect::<Vec<_>>());
        assert_eq!(parameters.ignored(ModelApi::Ollama, "qwen3", None, None), Vec::<&str>::new());
        assert_eq!(parameters.clone().for_model(ModelApi::Ollama, "qwen3", None), parameters);
        assert_eq!(parameters.clone().for_model(ModelApi::InProcess, "m", None), ModelParameters::default());
        assert_eq!(
            read(json!({"temperature": null, "reasoning": "default"})),
            Ok(ModelParameters::default())
        );
    }

    #[test]
    fn ignored_parameters_are_named_and_left_out() {
        let parameters = read(all()).expect("valid fields");
        for (api, model, expected) in [
            (ModelApi::ChatCompletions, "gpt-4o", &["topK", "reasoning"][..]),
            (ModelApi::ChatCompletions, "house-model", &["topK"]),
            (ModelApi::ChatCompletions, "gpt-5-chat-latest", &["topK", "reasoning"]),
            (
                ModelApi::ChatCompletions,
                "openai/gpt-5.1-mini",
                &["temperature", "topP", "topK", "presencePenalty", "frequencyPenalty", "stopSequences"],
            ),
            (
                ModelApi::Responses,
                "gpt-4.1",
                &["topK", "presencePenalty", "frequencyPenalty", "stopSequences", "seed", "reasoning"],
            ),
            (ModelApi::Ollama, "o1", &[]),
            // The budget of thinking has no room in an answer of 500 tokens.
            (
                ModelApi::Messages,
                "claude-haiku-4-5",
                &["topP", "presencePenalty", "frequencyPenalty", "seed", "reasoning"],
            ),
            (
                ModelApi::Messages,
                "claude-opus-5",
                &["temperature", "topP", "topK", "presencePenalty", "frequencyPenalty", "seed"],
            ),
        ] {
            assert_eq!(parameters.ignored(api, model, None, None), expected, "{model}");
            let sent = parameters.clone().for_model(api, model, None);
            assert_eq!(sent.ignored(api, model, None, None), Vec::<&str>::new(), "{model}");
            assert_eq!(sent.names().count() + expected.len(), parameters.names().count());
        }
    }

    #[test]
    fn models_of_the_messages_api_refuse_parameters_by_their_version_and_thinking() {
        let sampling = || json!({"temperature": 0.7, "topP": 0.9, "topK": 40});
        let with = |name: &str, value: Value| {
            let mut parameters = sampling();
            parameters[name] = value;
            parameters
        };
        let all = &["temperature", "topP", "topK"][..];
        for (model, parameters, thinking, expected) in [
            ("claude-3-haiku-20240307", with("reasoning", json!("low")), None, &["reasoning"][..]),
            ("claude-3-haiku-20240307", sampling(), None, &[]),
            ("claude-3-haiku-20240307", sampling(), Some(true), &[]),
            ("claude-3-haiku-20240307", with("reasoning", json!("none")), None, &[]),
            ("claude-3-haiku-20240307", with("temperature", json!(1.5)), None, &["temperature"]),
            ("claude-sonnet-4-5", sampling(), None, &["topP"]),
            ("claude-sonnet-4-5", with("temperature", json!(1.5)), None, &["temperature"]),
            ("claude-sonnet-4-5", with("temperature", json!(null)), None, &[]),
            ("claude-sonnet-4-5", sampling(), Some(true), all),
            ("claude-sonnet-4-5", with("reasoning", json!("low")), None, all),
            ("claude-sonnet-4-5", with("reasoning", json!("none")), Some(true), &["topP"]),
            ("claude-opus-4-6", sampling(), None, &["topP"]),
            ("claude-opus-4-6", sampling(), Some(true), all),
            ("claude-opus-4-7", with("reasoning", json!("none")), None, all),
            ("claude-opus-5-5", with("reasoning", json!("none")), None, all),
            ("house-model", with("temperature", json!(1.5)), None, &[]),
            ("house-model", sampling(), Some(true), all),
        ] {
            let set = read(parameters.clone()).expect("valid fields");
            let ignored = set.ignored(ModelApi::Messages, model, thinking, None);
            assert_eq!(ignored, expected, "{model} {parameters} {thinking:?}");
        }
    }

    #[test]
    fn reasoning_is_ignored_where_the_answer_has_no_room_for_it() {
        let set = |tokens: Option<u32>| {
            read(json!({"temperature": 0.7, "reasoning": "low", "maxOutputTokens": tokens})).expect("right")
        };
        for (model, own, limit, expected) in [
            ("claude-haiku-4-5", None, None, "temperature"),
            ("claude-haiku-4-5", None, Some(2047), "reasoning"),
            ("claude-haiku-4-5", None, Some(2048), "temperature"),
            ("claude-haiku-4-5", Some(1000), None, "reasoning"),
            // A quarter of the window is less than the parameter.
            ("claude-haiku-4-5", Some(4000), Some(1000), "reasoning"),
            // A level of effort needs no room.
            ("claude-opus-4-6", None, Some(1000), "temperature"),
        ] {
            let ignored = set(own).ignored(ModelApi::Messages, model, None, limit);
            assert_eq!(ignored, [expected], "{model} {own:?} {limit:?}");
            let sent = set(own).for_model(ModelApi::Messages, model, limit);
            assert_eq!(sent.temperature.is_none(), expected == "temperature", "{model} {own:?} {limit:?}");
        }
    }

    #[test]
    fn faults_name_their_parameters() {
        let long = "x".repeat(MAX_STOP_BYTES + 1);
        let huge = "x".repeat(MAX_EXTRA_BYTES);
        for (parameters_json, name) in [
            (json!({"temprature": 1}), "temprature"),
            (json!({"temperature": 2.1}), "temperature"),
            (json!({"temperature": "1"}), "temperature"),
            (json!({"topP": -0.1}), "topP"),
            (json!({"topK": 0}), "topK"),
            (json!({"topK": 1.5}), "topK"),
            (json!({"maxOutputTokens": 0}), "maxOutputTokens"),
            (json!({"maxOutputTokens": 4_294_967_296_u64}), "maxOutputTokens"),
            (json!({"presencePenalty": 3}), "presencePenalty"),
            (json!({"stopSequences": "END"}), "stopSequences"),
            (json!({"stopSequences": [""]}), "stopSequences"),
            (json!({"stopSequences": [long]}), "stopSequences"),
            (json!({"stopSequences": ["a", "b", "c", "d", "e"]}), "stopSequences"),
            (json!({"seed": -1}), "seed"),
            (json!({"seed": 9_007_199_254_740_992_u64}), "seed"),
            (json!({"reasoning": "much"}), "reasoning"),
            (json!({"reasoning": true}), "reasoning"),
            (json!({"extraBody": []}), "extraBody"),
            (json!({"extraBody": {"model": "other"}}), "extraBody"),
            (json!({"extraBody": {"stream": false}}), "extraBody"),
            (json!({"extraBody": {"top_k": 3}}), "extraBody"),
            (json!({"extraBody": {"previous_response_id": "resp_1"}}), "extraBody"),
            (json!({"extraBody": {"mcp_servers": []}}), "extraBody"),
            (json!({"extraBody": {"x": huge}}), "extraBody"),
        ] {
            let faults = read(parameters_json.clone()).expect_err("a fault");
            assert_eq!(
                faults.iter().map(|fault| &*fault.name).collect::<Vec<_>>(),
                [name],
                "{parameters_json}"
            );
        }
        assert!(RESERVED_MEMBERS.is_sorted());
    }
}
