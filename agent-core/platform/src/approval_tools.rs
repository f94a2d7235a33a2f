//! A registry of tools whose calls wait for approval, by the rules of the agent's role and the floor of its company.

use std::sync::Arc;

use agent_core::clock::Clock;
use agent_core::role::{ApprovalRule, Approver, RoleSource, UnattendedCalls};
use agent_core::tool::{
    Caller, ExecutionContext, Progress, Suspension, ToolError, ToolOutput, ToolRegistry, ToolSpec,
};
use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use crate::approval_floor::load_approval_floor;
use crate::conversation::approval_interrupt;
use crate::own_tools::missing_argument;
use crate::records::Records;

/// Text of the error result of a call that needs approval where no user can be asked.
pub const UNATTENDED_REFUSAL: &str =
    "the call was not made: it needs a person's approval, and no user can be asked in this run";

/// Tool registry in which a call that needs approval is suspended, or refused if no user can be asked.
pub struct ApprovalTools {
    tools: Arc<dyn ToolRegistry>,
    roles: Arc<dyn RoleSource>,
    /// Records with the floors of companies.
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for ApprovalTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApprovalTools").finish_non_exhaustive()
    }
}

/// Handling of a call by the rule that matches it.
#[derive(Debug, PartialEq, Eq)]
enum CallHandling {
    Call,
    Suspend,
    Refuse,
}

impl ApprovalTools {
    /// Creates a registry over `tools`, with the rules of the roles and the floors of companies in `records`.
    pub fn new(
        tools: Arc<dyn ToolRegistry>,
        roles: Arc<dyn RoleSource>,
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { tools, roles, records, clock }
    }

    /// Returns the approval rule that applies to calls of a tool, with the tool's definition.
    async fn rule(
        &self,
        context: &ExecutionContext,
        name: &str,
    ) -> Result<Option<(ApprovalRule, Arc<ToolSpec>)>, ToolError> {
        let role = self.roles.role(&context.company_id, &context.agent_id).await?;
        let rules = role.as_ref().map(|role| role.content.approvals.as_slice()).unwrap_or_default();
        let floor = load_approval_floor(&*self.records, &context.company_id).await?;
        if rules.is_empty() && floor.annotations.is_empty() {
            return Ok(None);
        }
        let specs = self.tools.list(context).await?;
        // The registry reports an unknown tool.
        let Some(spec) = specs.into_iter().find(|spec| spec.name == name) else { return Ok(None) };
        Ok(floor.effective_rule(rules, &spec).map(|rule| (rule, spec)))
    }
}

fn call_handling(rule: &ApprovalRule, context: &ExecutionContext) -> CallHandling {
    let is_attended = match context.caller {
        // A program cannot be asked.
        Caller::Proactive | Caller::Api => false,
        // Visitors decide where the rule says so, and no other user decides for them.
        Caller::Widget => rule.by == Approver::Visitor,
        _ => true,
    };
    let can_wait = context.can_suspend && (is_attended || context.caller != Caller::Widget);
    match (can_wait, is_attended, rule.unattended) {
        (true, true, _) | (true, false, UnattendedCalls::Wait) => CallHandling::Suspend,
        (_, _, UnattendedCalls::Allow) => CallHandling::Call,
        (false, _, UnattendedCalls::Wait) | (_, _, UnattendedCalls::Deny) => CallHandling::Refuse,
    }
}

#[async_trait]
impl ToolRegistry for ApprovalTools {
    async fn list(&self, context: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        self.tools.list(context).await
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        if let Some((rule, spec)) = self.rule(context, name).await? {
            match call_handling(&rule, context) {
                CallHandling::Call => {}
                CallHandling::Suspend => {
                    // A person is not asked about a call that cannot be made.
                    if let Some(name) = missing_argument(&spec, &arguments) {
                        return Err(ToolError::InvalidArguments(format!("{name} is missing")));
                    }
                    let now = Timestamp::try_from(self.clock.now()).unwrap_or(Timestamp::UNIX_EPOCH);
                    let interrupt = approval_interrupt(&rule, &spec, context, now);
                    return Ok(Suspension::Interrupt(interrupt.into()).into());
                }
                CallHandling::Refuse => return Ok(ToolOutput::error(UNATTENDED_REFUSAL)),
            }
        }
        self.tools.call(context, name, arguments, progress).await
    }
}

#[cfg(test)]
mod tests {
    use agent_core::ids::{AgentId, CompanyId};
    use agent_core::role::{RoleBlock, RoleContent, StaticRoles, ToolHint};
    use agent_core::testing::{FakeTools, ManualClock};
    use agent_core::tool::NoProgress;
    use futures_util::FutureExt;
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::*;
    use crate::approval_floor::{ApprovalFloor, FloorHint, put_approval_floor};
    use crate::memory::MemoryRecords;
    use crate::records::Precondition;

    fn rule(tools: &[&str]) -> ApprovalRule {
        ApprovalRule {
            tools: tools.iter().map(|name| (*name).to_owned()).collect(),
            ..ApprovalRule::default()
        }
    }

    fn context() -> ExecutionContext {
        ExecutionContext {
            company_id: CompanyId::from("c"),
            agent_id: AgentId::from("a"),
            user_id: "u".into(),
            run_id: "r".into(),
            can_suspend: true,
            ..ExecutionContext::default()
        }
    }

    fn call(rules: Vec<ApprovalRule>, context: &ExecutionContext) -> ToolOutput {
        call_under(&ApprovalFloor::default(), rules, context)
    }

    fn call_under(floor: &ApprovalFloor, rules: Vec<ApprovalRule>, context: &ExecutionContext) -> ToolOutput {
        let content = RoleContent { approvals: rules, ..RoleContent::default() };
        let role = RoleBlock { id: "a".into(), company_id: "c".into(), content, ..RoleBlock::default() };
        let roles = Arc::new(StaticRoles::new().with_role(role));
        let tools = Arc::new(FakeTools::new().answers("send", "sent"));
        let records = Arc::new(MemoryRecords::default());
        let written = put_approval_floor(&*records, &"c".into(), floor, Precondition::Absent).now_or_never();
        written.expect("no wait").expect("written");
        let tools = ApprovalTools::new(tools, roles, records, Arc::new(ManualClock::new()));
        let called = tools.call(context, "send", Value::Null, &NoProgress).now_or_never();
        called.expect("no wait").expect("a result")
    }

    #[test]
    fn a_call_waits_by_the_first_rule_that_matches() {
        for rules in [vec![], vec![rule(&["other"])]] {
            assert_eq!(call(rules, &context()).text, "sent");
        }
        let first = ApprovalRule { message: Some("Really?".to_owned()), ..rule(&["send"]) };
        let hint = ApprovalRule { annotations: vec![ToolHint::Destructive], ..rule(&[]) };
        let output = call(vec![hint, first, rule(&["send"])], &context());
        let Some(Suspension::Interrupt(interrupt)) = output.suspension else {
            panic!("the call is suspended")
        };
        assert_eq!(interrupt.message.as_deref(), Some("Really?"));
        let named = crate::conversation::parse_approval_id(&interrupt.id).expect("an id");
        assert_eq!((&*named.0, &*named.1), ("u", "r"));
    }

    #[test]
    fn no_person_is_asked_about_a_call_that_lacks_a_required_argument() {
        let schema = json!({"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}});
        let spec = ToolSpec {
            name: "send".to_owned(),
            description: String::new(),
            input_schema: RawValue::from_string(schema.to_string()).expect("JSON").into(),
            output_schema: None,
            annotations: None,
            is_client_side: false,
        };
        let content = RoleContent { approvals: vec![rule(&["send"])], ..RoleContent::default() };
        let role = RoleBlock { id: "a".into(), company_id: "c".into(), content, ..RoleBlock::default() };
        let tools = ApprovalTools::new(
            Arc::new(OneTool(Arc::new(spec))),
            Arc::new(StaticRoles::new().with_role(role)),
            Arc::new(MemoryRecords::default()),
            Arc::new(ManualClock::new()),
        );
        let call = |arguments: Value| {
            tools.call(&context(), "send", arguments, &NoProgress).now_or_never().expect("no wait")
        };
        for arguments in [json!({}), json!({"too": "eve"}), Value::Null] {
            let error = call(arguments).expect_err("an argument is missing");
            assert_eq!(error.to_string(), "invalid arguments: to is missing");
        }
        for arguments in [json!({"to": "eve"}), json!({"to": null, "more": 1})] {
            assert!(call(arguments).expect("a question").suspension.is_some());
        }
    }

    /// Registry with a tool that must not be called.
    struct OneTool(Arc<ToolSpec>);

    #[async_trait]
    impl ToolRegistry for OneTool {
        async fn list(&self, _: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
            Ok(vec![self.0.clone()])
        }

        async fn call(
            &self,
            _: &ExecutionContext,
            _: &str,
            _: Value,
            _: &dyn Progress,
        ) -> Result<ToolOutput, ToolError> {
            panic!("the call is made without an approval")
        }
    }

    #[test]
    fn unattended_runs_ask_for_no_approval() {
        use UnattendedCalls::{Allow, Deny, Wait};
        let by_owner = |unattended| ApprovalRule { unattended, by: Approver::Owner, ..rule(&["send"]) };
        let kept = context();
        let not_kept = ExecutionContext { can_suspend: false, ..context() };
        let of = |caller, context: &ExecutionContext| ExecutionContext { caller, ..context.clone() };
        for (unattended, context, expected) in [
            (Deny, kept.clone(), CallHandling::Suspend),
            (Deny, not_kept.clone(), CallHandling::Refuse),
            (Wait, not_kept.clone(), CallHandling::Refuse),
            (Allow, not_kept.clone(), CallHandling::Call),
            (Deny, of(Caller::Proactive, &kept), CallHandling::Refuse),
            (Wait, of(Caller::Proactive, &kept), CallHandling::Suspend),
            (Allow, of(Caller::Proactive, &kept), CallHandling::Call),
            (Deny, of(Caller::Api, &kept), CallHandling::Refuse),
            (Wait, of(Caller::Api, &kept), CallHandling::Suspend),
            (Wait, of(Caller::Api, &not_kept), CallHandling::Refuse),
            (Deny, of(Caller::Widget, &kept), CallHandling::Refuse),
            (Wait, of(Caller::Widget, &kept), CallHandling::Refuse),
            (Allow, of(Caller::Widget, &kept), CallHandling::Call),
        ] {
            assert_eq!(
                call_handling(&by_owner(unattended), &context),
                expected,
                "{unattended:?} {context:?}"
            );
        }
        let output = call(vec![by_owner(Deny)], &not_kept);
        assert!(output.is_error && output.text.contains("approval"), "{output:?}");
        let by = |by| ApprovalRule { by, ..by_owner(Deny) };
        for (by, context, expected) in [
            (by(Approver::User), of(Caller::Widget, &kept), CallHandling::Refuse),
            (by(Approver::Company), of(Caller::Widget, &kept), CallHandling::Refuse),
            (by(Approver::Visitor), of(Caller::Widget, &kept), CallHandling::Suspend),
            (by(Approver::Visitor), of(Caller::Widget, &not_kept), CallHandling::Refuse),
            (by(Approver::Visitor), kept.clone(), CallHandling::Suspend),
        ] {
            assert_eq!(call_handling(&by, &context), expected, "{by:?} {context:?}");
        }
    }

    #[test]
    fn a_call_of_the_floor_is_never_made_without_a_person() {
        let floor = ApprovalFloor { annotations: [FloorHint::NotReadOnly].into() };
        let output = call_under(&floor, vec![], &context());
        let Some(Suspension::Interrupt(interrupt)) = output.suspension else {
            panic!("the call is suspended")
        };
        assert_eq!(interrupt.message.as_deref(), Some("Allow the call of send?"));
        let allowed = ApprovalRule { unattended: UnattendedCalls::Allow, ..rule(&["send"]) };
        let unattended = ExecutionContext { caller: Caller::Proactive, ..context() };
        assert_eq!(call(vec![allowed.clone()], &unattended).text, "sent");
        for context in [unattended.clone(), ExecutionContext { can_suspend: false, ..context() }] {
            let output = call_under(&floor, vec![allowed.clone()], &context);
            assert!(output.is_error && output.suspension.is_none(), "{output:?}");
        }
        let other_company = ExecutionContext { company_id: CompanyId::from("other"), ..unattended };
        assert_eq!(call_under(&floor, vec![], &other_company).text, "sent");
    }
}
