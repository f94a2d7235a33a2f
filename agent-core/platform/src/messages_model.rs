//! [`MessagesModel`]: properties of models of Anthropic's Messages API, derived from their names.

/// Minimum budget of thinking that the API accepts, in tokens.
pub const MIN_THINKING_BUDGET: usize = 1024;
/// Families of models whose thinking can be switched off, unless a later version says otherwise. Others always think.
const THINKING_SWITCH_FAMILIES: [&str; 3] = ["haiku", "opus", "sonnet"];
/// Version of a name without one: that of a current model.
const CURRENT_VERSION: (u32, u32) = (u32::MAX, 0);

/// Properties of a model that is called through the Messages API, by its name.
///
/// Models of other vendors than Anthropic think within a budget, which is the older form, and take all parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagesModel {
    /// Form in which the model thinks.
    pub thinking: ThinkingForm,
    /// Sampling parameters that the model takes while it does not think. It takes none while it thinks.
    pub sampling: SamplingSupport,
    /// Tokenizer of the model; `None` for models of other vendors.
    pub tokenizer: Option<ClaudeTokenizer>,
}

/// Form in which a model thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingForm {
    /// The model does not think.
    None,
    /// The model thinks within a budget of tokens, if it is asked to.
    Budget,
    /// The model decides how much it thinks, guided by a level of effort.
    Adaptive {
        /// True if the model thinks unless the request disables it.
        is_default: bool,
        /// Setting that switches thinking off.
        switch_off: ThinkingOff,
    },
}

/// Setting that switches a model's thinking off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingOff {
    /// `disabled`.
    Disabled,
    /// `between_tools`: the model thinks between calls of tools alone.
    BetweenTools,
    /// None: the API rejects the request to stop.
    Unavailable,
}

/// Sampling parameters that a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingSupport {
    /// All, within the bounds of parameters.
    Any,
    /// All, with a temperature of at most 1.
    All,
    /// As [`All`](Self::All), but not the temperature together with `top_p`.
    OneOfTwo,
    /// None.
    None,
}

/// Tokenizer of Anthropic's models. They are not published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaudeTokenizer {
    /// Generation of the models before version 4.7.
    Earlier,
    /// Generation of version 4.7 and of later ones.
    Present,
}

impl ClaudeTokenizer {
    /// Returns the name of a counter of its tokens.
    pub fn counter_name(self) -> &'static str {
        match self {
            Self::Earlier => "claude",
            Self::Present => "claude_4_7",
        }
    }

    /// Estimates the tokens of a text from its count in `o200k_base`, by an average of texts and code.
    pub fn estimate(self, tokens: usize) -> usize {
        let percent = match self {
            Self::Earlier => 118,
            Self::Present => 153,
        };
        (tokens * percent).div_ceil(100)
    }
}

impl MessagesModel {
    /// Returns the properties of the model `name`: those of its version, as in `claude-3-7-sonnet-…` and `claude-opus-4-6`.
    /// A model of Anthropic without a version is taken to be a current one.
    pub fn of(name: &str) -> Self {
        // Gateways prefix the vendor's name, and some write versions with a dot, or names with capitals.
        let name = name.to_ascii_lowercase();
        let Some(start) = name.find("claude") else {
            let (thinking, sampling) = (ThinkingForm::Budget, SamplingSupport::Any);
            return Self { thinking, sampling, tokenizer: None };
        };
        let (name, version) = (&name[start..], version(&name[start..]));
        let is_switched = THINKING_SWITCH_FAMILIES.iter().any(|family| name.contains(family));
        let thinking = if version < (3, 7) {
            ThinkingForm::None
        } else if version < (4, 6) {
            ThinkingForm::Budget
        } else {
            ThinkingForm::Adaptive {
                is_default: !is_switched || version >= (5, 0),
                switch_off: if is_switched { switch_off(name, version) } else { ThinkingOff::Unavailable },
            }
        };
        let sampling = if version < (4, 1) {
            SamplingSupport::All
        } else if version < (4, 7) {
            SamplingSupport::OneOfTwo
        } else {
            SamplingSupport::None
        };
        let tokenizer = if version < (4, 7) { ClaudeTokenizer::Earlier } else { ClaudeTokenizer::Present };
        Self { thinking, sampling, tokenizer: Some(tokenizer) }
    }

    /// Returns true if the model reasons with this setting of its reasoning; `None` is the model's default.
    pub fn thinks(self, switch: Option<bool>) -> bool {
        match self.thinking {
            ThinkingForm::None => false,
            ThinkingForm::Budget => switch == Some(true),
            ThinkingForm::Adaptive { is_default, switch_off } => {
                switch.unwrap_or(is_default) || switch_off == ThinkingOff::Unavailable
            }
        }
    }

    /// Returns true if a request may force the model to call a tool. Models that cannot stop to think reject it.
    pub fn takes_forced_calls(self) -> bool {
        !matches!(
            self.thinking,
            ThinkingForm::Adaptive { switch_off: ThinkingOff::BetweenTools | ThinkingOff::Unavailable, .. }
        )
    }
}

/// Returns the setting that switches off the thinking of a model of a switched family.
fn switch_off(name: &str, version: (u32, u32)) -> ThinkingOff {
    if version < (5, 5) || name.contains("haiku") {
        ThinkingOff::Disabled
    } else if name.contains("sonnet") {
        ThinkingOff::BetweenTools
    } else {
        ThinkingOff::Unavailable
    }
}

/// Returns the version in a name.
fn version(name: &str) -> (u32, u32) {
    let mut numbers = name.split(['-', '.', '@', ':']).filter_map(|part| part.parse::<u32>().ok());
    // A date follows the version, or its major part alone.
    match (numbers.next(), numbers.next().filter(|minor| *minor < 100)) {
        (Some(major), minor) => (major, minor.unwrap_or(0)),
        (None, _) => CURRENT_VERSION,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_properties_depend_on_the_models_version() {
        use SamplingSupport::{All, Any, OneOfTwo};
        use ThinkingForm::{Adaptive, Budget};
        use ThinkingOff::{BetweenTools, Disabled, Unavailable};
        let asked = Adaptive { is_default: false, switch_off: Disabled };
        let adaptive = |switch_off| Adaptive { is_default: true, switch_off };
        for (name, thinking, sampling) in [
            ("claude-2", ThinkingForm::None, All),
            ("claude-instant-1.2", ThinkingForm::None, All),
            ("claude-3-haiku-20240307", ThinkingForm::None, All),
            ("claude-3-5-sonnet-latest", ThinkingForm::None, All),
            ("claude-3-7-sonnet-20250219", Budget, All),
            ("claude-sonnet-4-20250514", Budget, All),
            ("claude-opus-4-1-20250805", Budget, OneOfTwo),
            ("claude-haiku-4-5", Budget, OneOfTwo),
            ("anthropic/claude-opus-4-5@20251101", Budget, OneOfTwo),
            ("house-model", Budget, Any),
            ("claude-opus-4-6", asked, OneOfTwo),
            ("anthropic.claude-sonnet-4-6", asked, OneOfTwo),
            ("anthropic/claude-opus-4.6", asked, OneOfTwo),
            ("us.anthropic.claude-opus-4-6-v1:0", asked, OneOfTwo),
            ("Claude-Opus-4-6", asked, OneOfTwo),
            ("Anthropic/Claude-Sonnet-4.6", asked, OneOfTwo),
            ("Claude-3-Haiku-20240307", ThinkingForm::None, All),
            ("claude-opus-4-7", asked, SamplingSupport::None),
            ("claude-opus-5", adaptive(Disabled), SamplingSupport::None),
            ("claude-sonnet-5", adaptive(Disabled), SamplingSupport::None),
            ("claude-haiku-5-5", adaptive(Disabled), SamplingSupport::None),
            ("claude-sonnet-5-5", adaptive(BetweenTools), SamplingSupport::None),
            ("claude-opus-5-5", adaptive(Unavailable), SamplingSupport::None),
            ("anthropic/claude-opus-5.5", adaptive(Unavailable), SamplingSupport::None),
            ("claude-fable-5", adaptive(Unavailable), SamplingSupport::None),
            ("claude-mythos-preview", adaptive(Unavailable), SamplingSupport::None),
        ] {
            let model = MessagesModel::of(name);
            assert_eq!((model.thinking, model.sampling), (thinking, sampling), "{name}");
            let tokenizer = match sampling {
                Any => None,
                All | OneOfTwo => Some(ClaudeTokenizer::Earlier),
                SamplingSupport::None => Some(ClaudeTokenizer::Present),
            };
            assert_eq!(model.tokenizer, tokenizer, "{name}");
        }
    }

    #[test]
    fn thinking_follows_the_setting_if_the_model_supports_it() {
        for (name, by_default, on, off, is_forced) in [
            ("claude-3-haiku-20240307", false, false, false, true),
            ("claude-haiku-4-5", false, true, false, true),
            ("claude-opus-4-8", false, true, false, true),
            ("claude-opus-5", true, true, false, true),
            ("claude-sonnet-5-5", true, true, false, false),
            ("claude-opus-5-5", true, true, true, false),
            ("claude-fable-5-1", true, true, true, false),
        ] {
            let model = MessagesModel::of(name);
            let thinks = [None, Some(true), Some(false)].map(|switch| model.thinks(switch));
            assert_eq!(thinks, [by_default, on, off], "{name}");
            assert_eq!(model.takes_forced_calls(), is_forced, "{name}");
        }
    }
}
