//! Selection of a backend, as it is shown.

use agent_core::select::{BackendChoice, BackendKind, RuleOutcome, Selection};
use serde::Serialize;

/// Selection as shown by the debug routes and the `NO_CONNECTOR` problem, without settings and secrets.
#[derive(Debug, Clone, Serialize)]
pub struct SelectionReport {
    /// Kind of the selected backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<BackendKind>,
    /// Name of the container that selected a custom backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Results of all five rules, in order.
    pub rules: [RuleOutcome; 5],
}

impl From<&Selection> for SelectionReport {
    fn from(selection: &Selection) -> Self {
        let container = match &selection.choice {
            Some(BackendChoice::Custom(container)) => Some(container.name.clone()),
            _ => None,
        };
        let chosen = selection.choice.as_ref().map(BackendChoice::kind);
        Self { chosen, container, rules: selection.rules }
    }
}

#[cfg(test)]
mod tests {
    use agent_core::backend::CustomContainer;
    use agent_core::role::RoleBlock;
    use agent_core::select::select_backend;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_report_shows_rules_and_reasons_and_no_setting() {
        let role = json!({"id": "a", "companyId": "c",
            "content": {"agentServerUrl": " ", "agentServerApiKey": "sk-1"},
            "children": [{"name": "SubscriptionConnector", "content": {"model": "coder"}}]});
        let role: RoleBlock = serde_json::from_value(role).expect("a role");
        let report = SelectionReport::from(&select_backend(&role));
        assert_eq!(
            serde_json::to_value(report).expect("reports serialise"),
            json!({
                "chosen": "subscription",
                "rules": [
                    {"rule": "content.agentServerUrl", "matched": false, "reason": "fieldBlank", "field": "agentServerUrl"},
                    {"rule": "AgentServer", "matched": false, "reason": "noContainer"},
                    {"rule": "WorkflowConnector", "matched": false, "reason": "noContainer"},
                    {"rule": "EmbeddedAI", "matched": false, "reason": "noContainer"},
                    {"rule": "SubscriptionConnector", "matched": true, "reason": "present", "field": "model"},
                ]
            })
        );
        let nothing = select_backend(&RoleBlock::default());
        let shown = serde_json::to_value(SelectionReport::from(&nothing)).expect("reports serialise");
        assert_eq!(shown.get("chosen"), None);
        let custom =
            BackendChoice::Custom(CustomContainer { name: "Oracle".to_owned(), content: Value::Null });
        let custom = Selection { choice: Some(custom), ..nothing };
        assert_eq!(SelectionReport::from(&custom).container.as_deref(), Some("Oracle"));
    }
}
