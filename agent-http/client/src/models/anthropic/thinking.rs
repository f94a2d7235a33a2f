//! Parameters of a model's thinking, which depend on the model's version.

use agent_core::message::{Message, Role};
use agent_core::model::ModelRequest;
use agent_core::payload::PayloadBuilder;
use agent_core::tool::ToolChoice;
use serde_json::{Map, Value, json};

use crate::models::answer_parts::is_thinking;
use crate::models::response_format::messages_format;
use crate::models::spec::ModelSpec;

/// Least budget that the API accepts, in tokens.
const MIN_BUDGET: usize = 1024;
/// Budgets of the reasoning levels for models without levels, in tokens. An answer's limit caps them.
const BUDGETS: [(&str, usize); 3] = [("low", 2048), ("medium", 8192), ("high", 16_384)];
/// Level at which thinking is switched on without one.
const DEFAULT_LEVEL: &str = "medium";
/// Families of models whose thinking can be switched off. Others always think, and reject the request to stop.
const SWITCHED_FAMILIES: [&str; 3] = ["haiku", "opus", "sonnet"];

/// Form of the parameter that a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThinkingForm {
    /// The model does not think.
    None,
    /// The model thinks within a budget of tokens, if it is asked to.
    Budget,
    /// The model decides how much it thinks, guided by a level of effort. Newer models do so unless told otherwise.
    Adaptive {
        /// True if the model's thinking can be switched off.
        can_disable: bool,
    },
}

/// Appends the members `thinking` and `output_config` of a request.
///
/// Nothing is sent if neither the settings nor the request ask for it. Thinking is left out where the API would reject
/// it: with a forced call and, within a budget, in a turn that has called tools without it. Returns the form in which the
/// model thinks.
pub(super) fn push(model: &ModelSpec, request: &ModelRequest, body: &mut PayloadBuilder) -> ThinkingForm {
    let form = form_of(&model.name);
    let level = model.reasoning_effort.as_deref().or_else(|| model.parameters.reasoning?.as_one_of_three());
    let switch = model.thinking(request);
    let effort = level.filter(|_| matches!(form, ThinkingForm::Adaptive { .. })).map(Value::from);
    let members = [("effort", effort), ("format", messages_format(request))];
    let output_config: Map<String, Value> =
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    if !output_config.is_empty() {
        body.raw(r#","output_config":"#).json(&output_config);
    }
    let is_forced = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Tool(_))
        && !request.tools.is_empty();
    let is_wanted = switch.unwrap_or(level.is_some());
    match form {
        ThinkingForm::Adaptive { can_disable: true } if switch == Some(false) || is_forced => {
            body.raw(r#","thinking":{"type":"disabled"}"#);
            ThinkingForm::None
        }
        ThinkingForm::Adaptive { .. } => {
            if is_wanted && !is_forced {
                body.raw(r#","thinking":{"type":"adaptive","display":"summarized"}"#);
            }
            form
        }
        ThinkingForm::Budget if is_wanted && !is_forced && !has_begun_without(request) => {
            push_budget(level, model.limits().max_output_tokens, body)
        }
        _ => ThinkingForm::None,
    }
}

fn push_budget(level: Option<&str>, max_output_tokens: usize, body: &mut PayloadBuilder) -> ThinkingForm {
    let level = level.unwrap_or(DEFAULT_LEVEL);
    let budget = BUDGETS.iter().find(|(name, _)| *name == level).or(BUDGETS.last());
    // The budget is part of the answer's limit, and what is left must suffice for the answer.
    let budget = budget.map_or(0, |(_, tokens)| *tokens).min(max_output_tokens / 2);
    if budget < MIN_BUDGET {
        return ThinkingForm::None;
    }
    body.raw(r#","thinking":"#).json(&json!({ "type": "enabled", "budget_tokens": budget }));
    ThinkingForm::Budget
}

/// Returns true if the latest turn's first calls were made without thinking: by another model, or before a restart. The
/// API requires that such a turn continues without it.
fn has_begun_without(request: &ModelRequest) -> bool {
    let prompt = request.prompt.messages().iter().map(|message| message.original());
    let messages: Vec<&Message> = prompt.chain(&request.appended_messages).collect();
    let turn = messages.iter().rposition(|message| message.role == Role::User).map_or(0, |place| place + 1);
    let mut calls = messages[turn..].iter().filter(|message| !message.tool_calls.is_empty());
    calls.next().is_some_and(|message| !message.provider_items.iter().any(is_thinking))
}

/// Returns the form that the model `name` takes: by its version, as in `claude-3-7-sonnet-…` and `claude-opus-4-6`. A
/// model of that vendor without a version is taken to be a current one. Other vendors' servers of this API know the
/// budget, which is older.
fn form_of(name: &str) -> ThinkingForm {
    // Gateways prefix the vendor's name, and some write versions with a dot.
    let Some(start) = name.find("claude") else { return ThinkingForm::Budget };
    let name = &name[start..];
    let mut numbers = name.split(['-', '.', '@', ':']).filter_map(|part| part.parse::<u32>().ok());
    // A date follows the version, or its major part alone.
    let (major, minor) = (numbers.next(), numbers.next().filter(|minor| *minor < 100));
    match (major, minor.unwrap_or(0)) {
        (Some(major), _) if major < 3 => ThinkingForm::None,
        (Some(3), minor) if minor < 7 => ThinkingForm::None,
        (Some(3), _) => ThinkingForm::Budget,
        (Some(4), minor) if minor < 6 => ThinkingForm::Budget,
        _ => ThinkingForm::Adaptive {
            can_disable: SWITCHED_FAMILIES.iter().any(|family| name.contains(family)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_that_of_the_models_version() {
        use ThinkingForm::{Adaptive, Budget};
        for (name, expected) in [
            ("claude-2", ThinkingForm::None),
            ("claude-instant-1.2", ThinkingForm::None),
            ("claude-3-haiku-20240307", ThinkingForm::None),
            ("claude-3-5-sonnet-latest", ThinkingForm::None),
            ("claude-3-7-sonnet-20250219", Budget),
            ("claude-sonnet-4-20250514", Budget),
            ("claude-opus-4-1-20250805", Budget),
            ("claude-haiku-4-5", Budget),
            ("anthropic/claude-opus-4-5@20251101", Budget),
            ("house-model", Budget),
            ("claude-opus-4-6", Adaptive { can_disable: true }),
            ("anthropic.claude-sonnet-4-6", Adaptive { can_disable: true }),
            ("anthropic/claude-opus-4.6", Adaptive { can_disable: true }),
            ("us.anthropic.claude-opus-4-6-v1:0", Adaptive { can_disable: true }),
            ("claude-opus-5", Adaptive { can_disable: true }),
            ("claude-fable-5", Adaptive { can_disable: false }),
            ("claude-mythos-preview", Adaptive { can_disable: false }),
        ] {
            assert_eq!(form_of(name), expected, "{name}");
        }
    }
}
