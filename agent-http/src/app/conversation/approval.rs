//! Permissions of approvals, and the arguments that people set in place of the model's.

use agent_core::request::Principal;
use agent_core::role::Approver;
use agent_core::tool::Caller;
use agent_mcp::server::{AuditDecision, DecidedCall};
use agent_platform::conversation::{Approval, ApprovalState, Decision, Run, ThreadOwner, Verdict};
use agent_platform::own_tools::nonconforming_path;
use serde_json::{Map, Value};

use super::super::App;
use crate::error::HttpError;

impl App {
    /// Returns true if the caller may decide about a call in a run of `owner`.
    pub(in super::super) async fn may_decide(
        &self,
        principal: &Principal,
        owner: &ThreadOwner,
        approval: &Approval,
    ) -> Result<bool, HttpError> {
        if principal.company_id != owner.company {
            return Ok(false);
        }
        match approval.by {
            by if principal.caller == Caller::Widget && by != Approver::Visitor => Ok(false),
            Approver::User | Approver::Visitor => Ok(principal.user_id == owner.owner),
            Approver::Company => Ok(true),
            Approver::Owner => {
                let role = self.roles.role(&owner.company, &approval.agent_id).await?;
                Ok(role.is_some_and(|role| role.owner_id == principal.user_id))
            }
        }
    }

    /// Writes a person's decision to the audit log of the agent.
    pub(in super::super) fn record_decision(
        &self,
        owner: &ThreadOwner,
        approval: &Approval,
        decision: &Decision,
    ) {
        let audit_decision = match &decision.verdict {
            Verdict::Approve { arguments: None } => AuditDecision::Approved,
            Verdict::Approve { arguments: Some(_) } => AuditDecision::Edited,
            Verdict::Deny { .. } => AuditDecision::Denied,
            Verdict::Cancel => AuditDecision::Withdrawn,
        };
        self.tools.server.audit().record_decision(
            decided_call(owner, approval),
            &decision.by,
            audit_decision,
        );
    }

    /// Writes the expiry of a run's open approvals to the audit log.
    pub(super) fn record_expiry(&self, owner: &ThreadOwner, run: &Run) {
        for approval in run.approvals.iter().filter(|approval| approval.state == ApprovalState::Open) {
            let call = decided_call(owner, approval);
            self.tools.server.audit().record_decision(call, &owner.owner, AuditDecision::Expired);
        }
    }

    /// Checks the arguments of a verdict about an open question against the schema of the tool. Those of a decided one are
    /// compared with the decision, so that the same decision is the same after a change of the tool.
    ///
    /// # Errors
    /// 400 for arguments that do not conform.
    pub(in super::super) async fn check_verdict(
        &self,
        principal: &Principal,
        approval: &Approval,
        verdict: &Verdict,
    ) -> Result<(), HttpError> {
        let Verdict::Approve { arguments: Some(arguments) } = verdict else { return Ok(()) };
        if approval.state != ApprovalState::Open {
            return Ok(());
        }
        let context = principal.agent_context(&approval.agent_id, principal.caller);
        let specs = self.approved_calls.tools.list(&context).await.map_err(HttpError::from_tool_list)?;
        let Some(spec) = specs.iter().find(|spec| spec.name == approval.tool) else { return Ok(()) };
        let schema = serde_json::from_str(spec.input_schema.get()).map_err(HttpError::internal)?;
        check_arguments(&schema, arguments.to_object())
    }
}

fn decided_call<'a>(owner: &'a ThreadOwner, approval: &'a Approval) -> DecidedCall<'a> {
    DecidedCall {
        company_id: &owner.company,
        agent_id: &approval.agent_id,
        run_id: &approval.run_id,
        tool: &approval.tool,
    }
}

fn check_arguments(schema: &Value, arguments: Map<String, Value>) -> Result<(), HttpError> {
    let arguments = Value::Object(arguments);
    let path = nonconforming_path(schema, &arguments).map_err(HttpError::internal)?;
    path.map_or(Ok(()), |path| {
        let path = format!("arguments{}", path.replace('/', "."));
        Err(HttpError::invalid(&path, "does not conform to the schema of the tool"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_checked_by_the_schema_and_named_by_their_path() {
        let schema = json!({"type": "object", "required": ["to"], "additionalProperties": false,
            "properties": {"to": {"type": "object", "properties": {"name": {"type": "string"}}}}});
        let check =
            |arguments: Value| check_arguments(&schema, arguments.as_object().expect("an object").clone());
        assert!(check(json!({"to": {"name": "eve"}})).is_ok());
        for (arguments, path) in [
            (json!({"to": {"name": 5}}), "arguments.to.name"),
            (json!({}), "arguments"),
            (json!({"to": {}, "__proto__": {}}), "arguments"),
        ] {
            let error = check(arguments).expect_err("it does not conform");
            assert!(error.detail().starts_with(path), "{}", error.detail());
            assert!(!error.detail().contains('5'), "a value is not repeated");
        }
    }

    #[test]
    fn a_check_that_takes_too_many_steps_is_refused() {
        let level = |level: usize| {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            (format!("d{level}"), json!({"allOf": [next, next]}))
        };
        let mut definitions: Map<String, Value> = (0..22).map(level).collect();
        definitions.insert("d22".to_owned(), json!({"type": "string"}));
        let schema =
            json!({"type": "object", "properties": {"q": {"$ref": "#/$defs/d0"}}, "$defs": definitions});
        let arguments = json!({"q": "x"});
        let error = check_arguments(&schema, arguments.as_object().expect("an object").clone());
        assert!(error.expect_err("too many steps").detail().starts_with("arguments"));
    }
}
