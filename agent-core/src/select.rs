//! Backend selection for a role: five rules in order, each with its result. Pure.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::role::{
    AgentServer, Container, EmbeddedAi, ResponseFormat, RoleBlock, SubscriptionConnector, WorkflowConnector,
};

/// The kinds of backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum BackendKind {
    /// A remote agent runtime.
    AgentServer,
    /// A workflow automation engine.
    Workflow,
    /// A model called by the application itself.
    Embedded,
    /// A subscription coding model.
    Subscription,
    /// A backend of the embedder, selected by a container with its own name.
    Custom,
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AgentServer => "agent server",
            Self::Workflow => "workflow",
            Self::Embedded => "embedded",
            Self::Subscription => "subscription",
            Self::Custom => "custom",
        })
    }
}

/// The selected backend with its settings.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum BackendChoice {
    /// A remote agent runtime; all seven fields are from the level that contains the address.
    AgentServer(Box<AgentServer>),
    /// A workflow automation engine.
    Workflow(Box<WorkflowConnector>),
    /// A model called by the application itself.
    Embedded(EmbeddedAi),
    /// A subscription coding model.
    Subscription(SubscriptionConnector),
    /// A backend of the embedder.
    Custom(CustomContainer),
}

/// A container of an embedder's own name, which selects the backend that is registered for this name.
#[derive(Debug, Clone, PartialEq)]
pub struct CustomContainer {
    /// The container's name.
    pub name: String,
    /// The container's content.
    pub content: Value,
}

impl BackendChoice {
    /// Returns the kind of backend.
    pub fn kind(&self) -> BackendKind {
        match self {
            Self::AgentServer(_) => BackendKind::AgentServer,
            Self::Workflow(_) => BackendKind::Workflow,
            Self::Embedded(_) => BackendKind::Embedded,
            Self::Subscription(_) => BackendKind::Subscription,
            Self::Custom(_) => BackendKind::Custom,
        }
    }

    /// Returns the format of the model's answers, if the backend has one.
    pub(crate) fn response_format(&self) -> Option<&Arc<ResponseFormat>> {
        match self {
            Self::Embedded(settings) => settings.response_format.as_ref(),
            _ => None,
        }
    }

    /// Returns the setting of the model's reasoning, if the backend has one.
    pub(crate) fn enable_thinking(&self) -> Option<bool> {
        match self {
            Self::AgentServer(server) => server.agent_server_enable_thinking,
            Self::Embedded(settings) => settings.enable_thinking,
            Self::Subscription(settings) => settings.enable_thinking,
            _ => None,
        }
    }
}

/// Selection rules, in the order of evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SelectionRule {
    /// `agentServerUrl` in the content of the role itself.
    #[serde(rename = "content.agentServerUrl")]
    AgentServerUrl,
    /// An `AgentServer` container.
    AgentServer,
    /// A `WorkflowConnector` container.
    WorkflowConnector,
    /// An `EmbeddedAI` container.
    #[serde(rename = "EmbeddedAI")]
    EmbeddedAi,
    /// A `SubscriptionConnector` container.
    SubscriptionConnector,
}

/// Reason for the result of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum RuleReason {
    /// The rule matched: all that it requires is present.
    Present,
    /// The role has no such container.
    NoContainer,
    /// The required field is missing.
    FieldMissing,
    /// The required field is blank, which counts as missing.
    FieldBlank,
}

/// Result of one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RuleOutcome {
    /// The rule.
    pub rule: SelectionRule,
    /// True if the role satisfies the rule. The first rule that matches selects the backend.
    pub matched: bool,
    /// Reason for the result.
    pub reason: RuleReason,
    /// The field that decided the result, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<&'static str>,
}

/// The selected backend and the results of all rules.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The backend; `None` if no rule matched.
    pub choice: Option<BackendChoice>,
    /// Results of all five rules, in order.
    pub rules: [RuleOutcome; 5],
}

/// Selects the backend for `role`.
pub fn select_backend(role: &RoleBlock) -> Selection {
    let evaluations = [
        evaluate_role_url(role),
        evaluate_rule(role, SelectionRule::AgentServer, Some("agentServerUrl"), |child| match child {
            Container::AgentServer(server) => {
                Some((reason_of(&server.agent_server_url), BackendChoice::AgentServer(server.clone())))
            }
            _ => None,
        }),
        evaluate_rule(role, SelectionRule::WorkflowConnector, Some("webhookUrl"), |child| match child {
            Container::WorkflowConnector(workflow) => {
                Some((reason_of(&workflow.webhook_url), BackendChoice::Workflow(workflow.clone())))
            }
            _ => None,
        }),
        evaluate_rule(role, SelectionRule::EmbeddedAi, None, |child| match child {
            Container::EmbeddedAi(embedded) => {
                Some((RuleReason::Present, BackendChoice::Embedded(embedded.clone())))
            }
            _ => None,
        }),
        evaluate_rule(role, SelectionRule::SubscriptionConnector, Some("model"), |child| match child {
            Container::SubscriptionConnector(subscription) => {
                Some((reason_of(&subscription.model), BackendChoice::Subscription(subscription.clone())))
            }
            _ => None,
        }),
    ];
    let rules = std::array::from_fn(|i| evaluations[i].0);
    let mut choice = evaluations.into_iter().find_map(|(_, choice)| choice);
    match &mut choice {
        Some(BackendChoice::AgentServer(server)) => server.token_limits = role.content.token_limits,
        Some(BackendChoice::Embedded(embedded)) => embedded.token_limits = role.content.token_limits,
        Some(BackendChoice::Subscription(settings)) => settings.token_limits = role.content.token_limits,
        _ => {}
    }
    Selection { choice, rules }
}

/// Selects the backend for `role`; if no rule matches, the custom one of the first container that `is_registered` accepts.
pub(crate) fn select_with_custom(role: &RoleBlock, is_registered: impl Fn(&str) -> bool) -> Selection {
    let selection = select_backend(role);
    let custom = || {
        role.children.iter().find_map(|child| match child {
            Container::Other { name, content } if is_registered(name) => {
                Some(BackendChoice::Custom(CustomContainer { name: name.clone(), content: content.clone() }))
            }
            _ => None,
        })
    };
    Selection { choice: selection.choice.or_else(custom), ..selection }
}

/// Returns the result for a field that a rule requires.
fn reason_of(value: &Option<String>) -> RuleReason {
    match value {
        None => RuleReason::FieldMissing,
        Some(text) if text.trim().is_empty() => RuleReason::FieldBlank,
        Some(_) => RuleReason::Present,
    }
}

type RuleEvaluation = (RuleOutcome, Option<BackendChoice>);

fn evaluate_role_url(role: &RoleBlock) -> RuleEvaluation {
    let server = &role.content.agent_server;
    let reason = reason_of(&server.agent_server_url);
    rule_evaluation(SelectionRule::AgentServerUrl, Some("agentServerUrl"), reason, || {
        BackendChoice::AgentServer(server.clone().into())
    })
}

/// Evaluates a rule for containers of one name: the first container with the required field counts, else the first one.
fn evaluate_rule(
    role: &RoleBlock,
    rule: SelectionRule,
    field: Option<&'static str>,
    view: impl Fn(&Container) -> Option<(RuleReason, BackendChoice)>,
) -> RuleEvaluation {
    let mut options: Vec<(RuleReason, BackendChoice)> = role.children.iter().filter_map(view).collect();
    let best = options.iter().position(|(reason, _)| *reason == RuleReason::Present).unwrap_or(0);
    if options.is_empty() {
        return (RuleOutcome { rule, matched: false, reason: RuleReason::NoContainer, field: None }, None);
    }
    let (reason, choice) = options.swap_remove(best);
    rule_evaluation(rule, field, reason, || choice)
}

fn rule_evaluation(
    rule: SelectionRule,
    field: Option<&'static str>,
    reason: RuleReason,
    choice: impl FnOnce() -> BackendChoice,
) -> RuleEvaluation {
    let matched = reason == RuleReason::Present;
    (RuleOutcome { rule, matched, reason, field }, matched.then(choice))
}

#[cfg(test)]
mod tests;
