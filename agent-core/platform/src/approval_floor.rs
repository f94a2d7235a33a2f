//! The approval floor of a company: the tools whose calls need an approval, whatever the roles of its agents say.
//!
//! It is a record of the company that is read for each call. A change takes effect at once in the process that writes
//! it, and in other processes as soon as the store reports the change.

use std::collections::BTreeSet;

use agent_core::ids::CompanyId;
use agent_core::role::{ApprovalRule, Approver, ToolHint, UnattendedCalls};
use agent_core::tool::ToolSpec;
use serde::{Deserialize, Serialize};

use crate::records::{Key, Precondition, Record, Records, RecordsExt, StoreError};

/// Name of a company's collection of settings.
const SETTINGS: &str = "settings";
/// Identifier of the approval floor among a company's settings.
pub const APPROVAL_FLOOR: &str = "approvalFloor";

/// The tools whose calls need an approval in this company. Rules of roles can only add to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalFloor {
    /// A tool must have at least one of these hints.
    pub annotations: BTreeSet<FloorHint>,
}

/// Hint of a tool's definition that an approval floor names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FloorHint {
    /// The tool may delete or overwrite data.
    Destructive,
    /// The tool acts outside of the company's own data.
    OpenWorld,
    /// The definition does not say that the tool only reads.
    NotReadOnly,
}

impl FloorHint {
    /// All hints.
    pub const ALL: [Self; 3] = [Self::Destructive, Self::OpenWorld, Self::NotReadOnly];
}

/// Approval that the calls of a tool wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequiredApproval {
    /// Name of the tool.
    pub tool: String,
    /// The people who may decide.
    pub by: Approver,
    /// Treatment of a call while no user can be asked.
    pub unattended: UnattendedCalls,
    /// True if the company's floor demands the approval.
    pub floor: bool,
}

impl ApprovalFloor {
    /// Returns true if calls of the tool need an approval by the floor.
    pub fn applies_to(&self, tool: &ToolSpec) -> bool {
        let hints = tool.annotations.unwrap_or_default();
        self.annotations.iter().any(|hint| match hint {
            FloorHint::Destructive => hints.destructive_hint,
            FloorHint::OpenWorld => hints.open_world_hint,
            FloorHint::NotReadOnly => !hints.read_only_hint,
        })
    }

    /// Returns the rule that applies to calls of a tool: the first of the role that matches it, or else the default rule for a
    /// tool of the floor. A call of such a tool is never made without a person.
    pub fn effective_rule(&self, rules: &[ApprovalRule], tool: &ToolSpec) -> Option<ApprovalRule> {
        let rule = rules.iter().find(|rule| matches(rule, tool)).cloned();
        if !self.applies_to(tool) {
            return rule;
        }
        let rule = rule.unwrap_or_default();
        let unattended = match rule.unattended {
            UnattendedCalls::Allow => UnattendedCalls::Deny,
            other => other,
        };
        Some(ApprovalRule { unattended, ..rule })
    }

    /// Returns the approvals that calls of tools wait for, in the order of the tools.
    pub(crate) fn required_approvals<'a>(
        &self,
        rules: &[ApprovalRule],
        tools: impl IntoIterator<Item = &'a ToolSpec>,
    ) -> Vec<RequiredApproval> {
        let approval = |tool: &ToolSpec| {
            let ApprovalRule { by, unattended, .. } = self.effective_rule(rules, tool)?;
            Some(RequiredApproval { tool: tool.name.clone(), by, unattended, floor: self.applies_to(tool) })
        };
        tools.into_iter().filter_map(approval).collect()
    }
}

/// Returns true if calls of the tool wait for approval by the rule.
fn matches(rule: &ApprovalRule, tool: &ToolSpec) -> bool {
    let hints = tool.annotations.unwrap_or_default();
    let has_hint = |hint: &ToolHint| match hint {
        ToolHint::Destructive => hints.destructive_hint,
        ToolHint::OpenWorld => hints.open_world_hint,
    };
    rule.tools.contains(&tool.name) || rule.annotations.iter().any(has_hint)
}

/// Returns the record of a company's approval floor, if it has one.
///
/// # Errors
/// Errors of the store.
pub async fn get_approval_floor(
    records: &dyn Records,
    company: &CompanyId,
) -> Result<Option<Record<ApprovalFloor>>, StoreError> {
    records.get_as(&floor_key(company)?).await
}

/// Returns a company's approval floor; one without hints for a company that has none.
///
/// # Errors
/// Errors of the store.
pub async fn load_approval_floor(
    records: &dyn Records,
    company: &CompanyId,
) -> Result<ApprovalFloor, StoreError> {
    Ok(get_approval_floor(records, company).await?.map(|record| record.value).unwrap_or_default())
}

/// Writes a company's approval floor and returns its version.
///
/// # Errors
/// [`StoreError::Conflict`] if the precondition does not hold, other errors of the store.
pub async fn put_approval_floor(
    records: &dyn Records,
    company: &CompanyId,
    floor: &ApprovalFloor,
    precondition: Precondition,
) -> Result<u64, StoreError> {
    records.put_as(&floor_key(company)?, floor, precondition).await
}

/// Deletes a company's approval floor; false if there was none.
///
/// # Errors
/// [`StoreError::Conflict`] if the precondition does not hold, other errors of the store.
pub async fn delete_approval_floor(
    records: &dyn Records,
    company: &CompanyId,
    precondition: Precondition,
) -> Result<bool, StoreError> {
    records.delete(&floor_key(company)?, precondition).await
}

fn floor_key(company: &CompanyId) -> Result<Key, StoreError> {
    Key::new(company, SETTINGS, APPROVAL_FLOOR)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_core::testing::FakeTools;
    use agent_core::tool::ToolAnnotations;

    use super::*;

    const NONE: ToolAnnotations = ToolAnnotations {
        read_only_hint: false,
        destructive_hint: false,
        idempotent_hint: false,
        open_world_hint: false,
    };

    fn tool(annotations: Option<ToolAnnotations>) -> ToolSpec {
        let tools = FakeTools::new().answers("send", "sent");
        ToolSpec { annotations, ..Arc::unwrap_or_clone(tools.specs()[0].clone()) }
    }

    fn floor(hints: &[FloorHint]) -> ApprovalFloor {
        ApprovalFloor { annotations: hints.iter().copied().collect() }
    }

    #[test]
    fn an_approval_floor_applies_by_the_hints_of_tools() {
        use FloorHint::{Destructive, NotReadOnly, OpenWorld};
        let reading = Some(ToolAnnotations { read_only_hint: true, ..NONE });
        let destroying = Some(ToolAnnotations { destructive_hint: true, ..NONE });
        let sending = Some(ToolAnnotations { open_world_hint: true, ..NONE });
        for (annotations, expected) in [
            (reading, [false, false, false]),
            (destroying, [true, false, true]),
            (sending, [false, true, true]),
            (Some(NONE), [false, false, true]),
            // A tool without hints counts as one that does not only read.
            (None, [false, false, true]),
        ] {
            let found = [Destructive, OpenWorld, NotReadOnly]
                .map(|hint| floor(&[hint]).applies_to(&tool(annotations)));
            assert_eq!(found, expected, "{annotations:?}");
            assert!(!ApprovalFloor::default().applies_to(&tool(annotations)));
        }
        let destroying = tool(destroying);
        assert!(floor(&[OpenWorld, Destructive]).applies_to(&destroying), "one of the hints is enough");
    }

    #[test]
    fn a_role_can_only_be_stricter_than_the_floor() {
        use UnattendedCalls::{Allow, Deny, Wait};
        let (all, tool) = (floor(&[FloorHint::NotReadOnly]), tool(None));
        assert_eq!(ApprovalFloor::default().effective_rule(&[], &tool), None);
        assert_eq!(all.effective_rule(&[], &tool), Some(ApprovalRule::default()));
        for (unattended, expected) in [(Deny, Deny), (Wait, Wait), (Allow, Deny)] {
            let rule = ApprovalRule {
                tools: vec!["send".to_owned()],
                by: Approver::Owner,
                unattended,
                ..ApprovalRule::default()
            };
            let rules = [rule.clone()];
            assert_eq!(ApprovalFloor::default().effective_rule(&rules, &tool), Some(rule.clone()));
            assert_eq!(
                all.effective_rule(&rules, &tool),
                Some(ApprovalRule { unattended: expected, ..rule })
            );
        }
    }

    #[test]
    fn approvals_are_listed_with_their_origin() {
        let rule = ApprovalRule { tools: vec!["send".to_owned()], ..ApprovalRule::default() };
        let (tool, rules) = (tool(None), [rule]);
        let approval = |floor| RequiredApproval {
            tool: "send".to_owned(),
            by: Approver::User,
            unattended: UnattendedCalls::Deny,
            floor,
        };
        let (none, all) = (ApprovalFloor::default(), floor(&FloorHint::ALL));
        assert_eq!(none.required_approvals(&[], [&tool]), []);
        assert_eq!(none.required_approvals(&rules, [&tool]), [approval(false)]);
        assert_eq!(all.required_approvals(&rules, [&tool]), [approval(true)]);
        let reading =
            ToolSpec { annotations: Some(ToolAnnotations { read_only_hint: true, ..NONE }), ..tool.clone() };
        assert_eq!(all.required_approvals(&[], [&tool, &reading]), [approval(true)]);
    }

    #[test]
    fn a_floor_that_this_version_does_not_know_is_an_error() {
        for text in [r#"{"annotations":["later"]}"#, r#"{"annotations":[],"later":1}"#, "{}"] {
            serde_json::from_str::<ApprovalFloor>(text).expect_err(text);
        }
    }
}
