//! The field `reasoning_effort` of the Chat Completions API.

/// Returns the value of `reasoning_effort` that switches a model's reasoning on or off, or `None` to leave it out.
///
/// Servers reject the field for models that do not reason, and levels that a model does not have. On is `medium`, which
/// all models that reason have. Off is the lowest level of a model family that is known to reason; to other models,
/// nothing is sent.
pub(super) fn effort(model: &str, thinking: bool) -> Option<&'static str> {
    if thinking {
        return Some("medium");
    }
    // Servers in front of several vendors prefix the vendor's name, and some write names with capitals.
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let is_version = |rest: &str| rest.is_empty() || rest.starts_with('-');
    if name.strip_prefix("gpt-5").is_some_and(is_version) {
        Some("minimal")
    } else if name.starts_with("gpt-5.") {
        Some("none")
    } else if ["o1", "o3", "o4"].iter().any(|family| name.strip_prefix(family).is_some_and(is_version)) {
        Some("low")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_a_level_that_the_model_has() {
        for (model, on, off) in [
            ("gpt-5", Some("medium"), Some("minimal")),
            ("gpt-5-mini", Some("medium"), Some("minimal")),
            ("openai/gpt-5-nano", Some("medium"), Some("minimal")),
            ("OpenAI/GPT-5.1", Some("medium"), Some("none")),
            ("O3-Mini", Some("medium"), Some("low")),
            ("gpt-5.1", Some("medium"), Some("none")),
            ("o3-mini", Some("medium"), Some("low")),
            ("gpt-4o", Some("medium"), None),
            ("o300", Some("medium"), None),
            ("llama-3.3-70b", Some("medium"), None),
        ] {
            assert_eq!((effort(model, true), effort(model, false)), (on, off), "{model}");
        }
    }
}
