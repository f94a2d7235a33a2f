//! Parameters of a model's thinking, which depend on the model's version.

use agent_core::message::{Message, ProviderItem, Role};
use agent_core::model::ModelRequest;
use agent_core::payload::PayloadBuilder;
use agent_core::tool::ToolChoice;
use agent_platform::messages_model::{MIN_THINKING_BUDGET, MessagesModel, ThinkingForm, ThinkingOff};
use serde_json::{Map, Value, json};

use crate::models::answer_parts::ItemMaker;
use crate::models::response_format::messages_format;
use crate::models::spec::ModelSpec;

/// Budgets of the reasoning levels for models without levels, in tokens. An answer's limit caps them.
const BUDGETS: [(&str, usize); 3] = [("low", 2048), ("medium", 8192), ("high", 16_384)];
/// Level at which thinking is switched on without one.
const DEFAULT_LEVEL: &str = "medium";
/// Level of a model whose thinking cannot be switched off, although the settings ask for it.
const LOWEST_EFFORT: &str = "low";
/// Levels that the API rejects for disabled thinking, and the level that replaces them.
const HIGHEST_EFFORTS: [&str; 2] = ["max", "xhigh"];
const HIGHEST_EFFORT_OFF: &str = "high";

/// Appends the members `thinking` and `output_config` of a request.
///
/// Nothing is sent if neither the settings nor the request ask for it. Thinking is left out where the API would reject
/// it: with a forced call and, within a budget, in a turn that has called tools without it. Returns the form in which the
/// model thinks.
pub(super) fn push(model: &ModelSpec, request: &ModelRequest, body: &mut PayloadBuilder) -> ThinkingForm {
    let properties = MessagesModel::of(&model.name);
    let form = properties.thinking;
    let known = || Some(model.nearest_level()?.as_str());
    let level = model.reasoning_effort.as_deref().or_else(known);
    let level = level.or_else(|| model.parameters.reasoning?.as_low_medium_high());
    let switch = model.thinking(request);
    let is_forced = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Tool(_))
        && !request.tools.is_empty()
        && properties.takes_forced_calls();
    let is_off = switch == Some(false) || is_forced;
    let effort = match form {
        ThinkingForm::Adaptive { switch_off: ThinkingOff::Unavailable, .. } if is_off => {
            level.or(Some(LOWEST_EFFORT))
        }
        ThinkingForm::Adaptive { switch_off: ThinkingOff::Disabled, .. } if is_off => {
            level.map(|level| if HIGHEST_EFFORTS.contains(&level) { HIGHEST_EFFORT_OFF } else { level })
        }
        ThinkingForm::Adaptive { .. } => level,
        _ => None,
    };
    let members = [("effort", effort.map(Value::from)), ("format", messages_format(request))];
    let output_config: Map<String, Value> =
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    if !output_config.is_empty() {
        body.raw(r#","output_config":"#).json(&output_config);
    }
    let is_wanted = switch.unwrap_or(level.is_some());
    match form {
        ThinkingForm::Adaptive { switch_off, .. } if is_off => push_switch_off(switch_off, form, body),
        ThinkingForm::Adaptive { is_default, .. } => {
            if is_wanted {
                body.raw(r#","thinking":{"type":"adaptive","display":"summarized"}"#);
            }
            if is_wanted || is_default { form } else { ThinkingForm::None }
        }
        ThinkingForm::Budget if is_wanted && !is_forced && !has_begun_without(&model.name, request) => {
            push_budget(level, model.limits().max_output_tokens, body)
        }
        _ => ThinkingForm::None,
    }
}

/// Switches the thinking of an adaptive model off, if it can be. Returns the form in which the model thinks nevertheless.
fn push_switch_off(switch_off: ThinkingOff, form: ThinkingForm, body: &mut PayloadBuilder) -> ThinkingForm {
    let kind = match switch_off {
        ThinkingOff::Disabled => "disabled",
        ThinkingOff::BetweenTools => "between_tools",
        ThinkingOff::Unavailable => return form,
    };
    body.raw(r#","thinking":"#).json(&json!({ "type": kind }));
    ThinkingForm::None
}

fn push_budget(level: Option<&str>, max_output_tokens: usize, body: &mut PayloadBuilder) -> ThinkingForm {
    let level = level.unwrap_or(DEFAULT_LEVEL);
    let budget = BUDGETS.iter().find(|(name, _)| *name == level).or(BUDGETS.last());
    // The budget is part of the answer's limit, and what is left must suffice for the answer.
    let budget = budget.map_or(0, |(_, tokens)| *tokens).min(max_output_tokens / 2);
    if budget < MIN_THINKING_BUDGET {
        return ThinkingForm::None;
    }
    body.raw(r#","thinking":"#).json(&json!({ "type": "enabled", "budget_tokens": budget }));
    ThinkingForm::Budget
}

/// Returns true if the latest turn's first calls were made without thinking: by another model, or before a restart. The
/// API requires that such a turn continues without it.
fn has_begun_without(model: &str, request: &ModelRequest) -> bool {
    let prompt = request.prompt.messages().iter().map(|message| message.original());
    let messages: Vec<&Message> = prompt.chain(&request.appended_messages).collect();
    let turn = messages.iter().rposition(|message| message.role == Role::User).map_or(0, |index| index + 1);
    let mut calls = messages[turn..].iter().filter(|message| !message.tool_calls.is_empty());
    let is_own = |item: &ProviderItem| ItemMaker::thinking(model).matching_item(item).is_some();
    calls.next().is_some_and(|message| !message.provider_items.iter().any(is_own))
}
