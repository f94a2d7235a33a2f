//! Questions for the approval of tool calls: the interrupt of a run, and the approval that it asks for.

use agent_core::event::Interrupt;
use agent_core::ids::{RunId, UserId};
use agent_core::message::ToolCall;
use agent_core::role::{ApprovalRule, Approver};
use agent_core::tool::{ExecutionContext, ToolSpec};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::time;
use super::{Approval, ApprovalState, CallExecution, Run};
use crate::exact_object::ExactObject;
use crate::workspace::utc_time;

/// Time for a decision, if the role has none, in milliseconds: a day.
const DEFAULT_APPROVAL_TTL_MS: i64 = 24 * 60 * 60 * 1000;

/// Kind of the interrupts that ask for the approval of a tool call.
const TOOL_CALL_REASON: &str = "tool_call";

impl Approval {
    /// Creates the approval that an interrupt of a run asks for; `None` if it asks for something else.
    pub(crate) fn from_interrupt(
        interrupt: &Interrupt,
        run: &Run,
        calls: &[&ToolCall],
        now: Timestamp,
    ) -> Option<Self> {
        let id = interrupt.tool_call_id.as_ref().filter(|_| interrupt.reason == TOOL_CALL_REASON)?;
        let call = calls.iter().find(|call| *call.id == **id)?;
        let metadata = interrupt.metadata.as_ref().map(|metadata| &metadata["agentd"]);
        let by = metadata.and_then(|metadata| Approver::deserialize(&metadata["by"]).ok());
        let expires_at = interrupt.expires_at.as_ref().and_then(|time| time.parse().ok());
        let default_expiry = || {
            now.checked_add(SignedDuration::from_millis(DEFAULT_APPROVAL_TTL_MS)).unwrap_or(Timestamp::MAX)
        };
        Some(Self {
            id: interrupt.id.clone(),
            thread_id: run.thread_id.clone(),
            run_id: run.id.clone(),
            agent_id: run.agent_id.clone(),
            tool_call_id: id.clone(),
            tool: call.function.name.clone(),
            arguments: ExactObject::read(&call.function.arguments),
            state: ApprovalState::Open,
            by: by.unwrap_or_default(),
            editable: metadata.is_some_and(|metadata| metadata["editable"] == true),
            message: interrupt.message.clone(),
            decided_by: None,
            decided_at: None,
            via: None,
            edited_arguments: None,
            reason: None,
            expires_at: time::whole_millis(expires_at.unwrap_or_else(default_expiry)),
            executed: CallExecution::No,
            created_at: now,
        })
    }
}

/// Creates the interrupt that asks for the approval of a tool call in a run. The tool loop adds the id of the call.
pub fn approval_interrupt(
    rule: &ApprovalRule,
    tool: &ToolSpec,
    context: &ExecutionContext,
    now: Timestamp,
) -> Interrupt {
    let ttl = rule.ttl_ms.and_then(|ttl| i64::try_from(ttl).ok()).unwrap_or(DEFAULT_APPROVAL_TTL_MS);
    let expires_at = now.checked_add(SignedDuration::from_millis(ttl)).unwrap_or(Timestamp::MAX);
    // Visitors change no arguments, unless the rule says so.
    let editable = rule.editable.unwrap_or(rule.by != Approver::Visitor);
    let mut properties = json!({"approved": {"type": "boolean"}, "reason": {"type": "string"}});
    if editable {
        properties["editedArgs"] = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
    }
    Interrupt {
        id: approval_id(&context.user_id, &context.run_id),
        reason: TOOL_CALL_REASON.to_owned(),
        tool_call_id: None,
        message: rule.message.clone().or_else(|| Some(format!("Allow the call of {}?", tool.name))),
        expires_at: Some(utc_time(expires_at)),
        response_schema: Some(json!({"type": "object", "required": ["approved"], "properties": properties})),
        metadata: Some(json!({"agentd": {"tool": tool.name, "by": rule.by, "editable": editable}})),
    }
}

/// Creates the id of an approval, which names the run that asks for it.
fn approval_id(owner: &UserId, run: &RunId) -> String {
    let run_key = URL_SAFE_NO_PAD.encode(format!("{owner}\n{run}"));
    let number: String = agent_core::new_id().chars().filter(char::is_ascii_hexdigit).skip(12).collect();
    format!("{number}.{run_key}")
}

/// Returns the owner and the run that an id of an approval names; `None` for any other text.
pub fn parse_approval_id(id: &str) -> Option<(UserId, RunId)> {
    let (_, run_key) = id.split_once('.')?;
    let run_key = String::from_utf8(URL_SAFE_NO_PAD.decode(run_key).ok()?).ok()?;
    let (owner, run) = run_key.split_once('\n')?;
    Some((owner.into(), run.into()))
}
