//! Backend selection for a role: five rules in order, each with its result. Pure.

use std::fmt;

use serde::Serialize;

use crate::role::{AgentServer, Container, EmbeddedAi, RoleBlock, SubscriptionConnector, WorkflowConnector};

/// The kinds of backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AgentServer => "agent server",
            Self::Workflow => "workflow",
            Self::Embedded => "embedded",
            Self::Subscription => "subscription",
        })
    }
}

/// The selected backend with its settings.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Choice {
    /// A remote agent runtime; all seven fields are from the level that contains the address.
    AgentServer(Box<AgentServer>),
    /// A workflow automation engine.
    Workflow(Box<WorkflowConnector>),
    /// A model called by the application itself.
    Embedded(EmbeddedAi),
    /// A subscription coding model.
    Subscription(SubscriptionConnector),
}

impl Choice {
    /// Returns the kind of backend.
    pub fn kind(&self) -> BackendKind {
        match self {
            Self::AgentServer(_) => BackendKind::AgentServer,
            Self::Workflow(_) => BackendKind::Workflow,
            Self::Embedded(_) => BackendKind::Embedded,
            Self::Subscription(_) => BackendKind::Subscription,
        }
    }
}

/// Selection rules, in the order of evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Rule {
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
pub enum Reason {
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
    pub rule: Rule,
    /// True if the role satisfies the rule. The first rule that matches selects the backend.
    pub matched: bool,
    /// Reason for the result.
    pub reason: Reason,
    /// The field that decided the result, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<&'static str>,
}

/// The selected backend and the results of all rules.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The backend; `None` if no rule matched.
    pub choice: Option<Choice>,
    /// Results of all five rules, in order.
    pub rules: [RuleOutcome; 5],
}

/// Selection as shown by the debug routes and the `NO_CONNECTOR` problem, without settings and secrets.
#[derive(Debug, Clone, Serialize)]
pub struct SelectionReport {
    /// Kind of the selected backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<BackendKind>,
    /// Results of all five rules, in order.
    pub rules: [RuleOutcome; 5],
}

impl Selection {
    /// Returns the part of the selection that is safe to show.
    pub fn report(&self) -> SelectionReport {
        SelectionReport { chosen: self.choice.as_ref().map(Choice::kind), rules: self.rules }
    }
}

/// Selects the backend for `role`.
pub fn select(role: &RoleBlock) -> Selection {
    let tried = [
        own_address(role),
        container(role, Rule::AgentServer, Some("agentServerUrl"), |found| match found {
            Container::AgentServer(server) => {
                Some((Field::of(&server.agent_server_url), Choice::AgentServer(server.clone())))
            }
            _ => None,
        }),
        container(role, Rule::WorkflowConnector, Some("webhookUrl"), |found| match found {
            Container::WorkflowConnector(workflow) => {
                Some((Field::of(&workflow.webhook_url), Choice::Workflow(workflow.clone())))
            }
            _ => None,
        }),
        container(role, Rule::EmbeddedAi, None, |found| match found {
            Container::EmbeddedAi(embedded) => Some((Field::Present, Choice::Embedded(embedded.clone()))),
            _ => None,
        }),
        container(role, Rule::SubscriptionConnector, Some("model"), |found| match found {
            Container::SubscriptionConnector(subscription) => {
                Some((Field::of(&subscription.model), Choice::Subscription(subscription.clone())))
            }
            _ => None,
        }),
    ];
    let rules = std::array::from_fn(|i| tried[i].0);
    let choice = tried.into_iter().find_map(|(_, choice)| choice);
    Selection { choice, rules }
}

/// State of the field that a rule requires.
#[derive(Clone, Copy, PartialEq)]
enum Field {
    Present,
    Blank,
    Missing,
}

impl Field {
    fn of(value: &Option<String>) -> Self {
        match value {
            None => Self::Missing,
            Some(text) if text.trim().is_empty() => Self::Blank,
            Some(_) => Self::Present,
        }
    }

    fn reason(self) -> Reason {
        match self {
            Self::Present => Reason::Present,
            Self::Blank => Reason::FieldBlank,
            Self::Missing => Reason::FieldMissing,
        }
    }
}

type Tried = (RuleOutcome, Option<Choice>);

fn own_address(role: &RoleBlock) -> Tried {
    let server = &role.content.agent_server;
    let state = Field::of(&server.agent_server_url);
    tried(Rule::AgentServerUrl, Some("agentServerUrl"), state, || Choice::AgentServer(server.clone().into()))
}

/// Evaluates a rule for containers of one name: the first container with the required field counts, else the first one.
fn container(
    role: &RoleBlock,
    rule: Rule,
    field: Option<&'static str>,
    view: impl Fn(&Container) -> Option<(Field, Choice)>,
) -> Tried {
    let mut found: Vec<(Field, Choice)> = role.children.iter().filter_map(view).collect();
    let best = found.iter().position(|(state, _)| *state == Field::Present).unwrap_or(0);
    if found.is_empty() {
        return (RuleOutcome { rule, matched: false, reason: Reason::NoContainer, field: None }, None);
    }
    let (state, choice) = found.swap_remove(best);
    tried(rule, field, state, || choice)
}

fn tried(rule: Rule, field: Option<&'static str>, state: Field, choice: impl FnOnce() -> Choice) -> Tried {
    let matched = state == Field::Present;
    (RuleOutcome { rule, matched, reason: state.reason(), field }, matched.then(choice))
}

#[cfg(test)]
mod tests;
