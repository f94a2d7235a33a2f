//! Which backend answers for a role: five rules in order, each with its reason. Pure.

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
    /// A model that the application calls itself.
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

/// The backend that was chosen, with its settings.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Choice {
    /// A remote agent runtime; all seven fields are of the level that gave the address.
    AgentServer(Box<AgentServer>),
    /// A workflow automation engine.
    Workflow(Box<WorkflowConnector>),
    /// A model that the application calls itself.
    Embedded(EmbeddedAi),
    /// A subscription coding model.
    Subscription(SubscriptionConnector),
}

impl Choice {
    /// The kind of backend that is asked.
    pub fn kind(&self) -> BackendKind {
        match self {
            Self::AgentServer(_) => BackendKind::AgentServer,
            Self::Workflow(_) => BackendKind::Workflow,
            Self::Embedded(_) => BackendKind::Embedded,
            Self::Subscription(_) => BackendKind::Subscription,
        }
    }
}

/// The five rules, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Rule {
    /// `agentServerUrl` in the role's own content.
    #[serde(rename = "content.agentServerUrl")]
    AgentServerUrl,
    /// A container `AgentServer`.
    AgentServer,
    /// A container `WorkflowConnector`.
    WorkflowConnector,
    /// A container `EmbeddedAI`.
    #[serde(rename = "EmbeddedAI")]
    EmbeddedAi,
    /// A container `SubscriptionConnector`.
    SubscriptionConnector,
}

/// Why a rule matched or did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Reason {
    /// What it needs is there.
    Present,
    /// The role has no such container.
    NoContainer,
    /// The field that it needs is not there.
    FieldMissing,
    /// The field that it needs is there and blank, which counts as absent.
    FieldBlank,
}

/// One rule's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RuleOutcome {
    /// The rule.
    pub rule: Rule,
    /// Whether the role satisfies it. The first rule that matches is the one that counts.
    pub matched: bool,
    /// Why.
    pub reason: Reason,
    /// The field that decided, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<&'static str>,
}

/// The choice and how it came about.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The backend; absent where no rule matched.
    pub choice: Option<Choice>,
    /// All five rules, in order.
    pub rules: [RuleOutcome; 5],
}

/// What the debug routes and the `NO_CONNECTOR` problem show of a selection: no setting, no secret.
#[derive(Debug, Clone, Serialize)]
pub struct SelectionReport {
    /// The kind that was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<BackendKind>,
    /// All five rules, in order.
    pub rules: [RuleOutcome; 5],
}

impl Selection {
    /// What may be shown.
    pub fn report(&self) -> SelectionReport {
        SelectionReport { chosen: self.choice.as_ref().map(Choice::kind), rules: self.rules }
    }
}

/// Chooses the backend for `role`.
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

/// The state of the field that a rule needs.
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

/// Tries the containers of one name; the first that has what it needs counts, else the first there is.
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
