//! A registry of tools that checks the arguments of the calls that agents schedule.

use std::sync::Arc;

use agent_core::request::Principal;
use agent_core::tool::{Caller, ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::own_tools::unusable_argument;
use crate::tools::SCHEDULE_TOOL;

/// Tool registry that refuses to schedule a call whose arguments its tool would refuse each time it runs. The tool that schedules
/// calls knows only the built-in tools; this registry also knows the agent's tools.
pub struct ScheduledCallTools(Arc<dyn ToolRegistry>);

impl std::fmt::Debug for ScheduledCallTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScheduledCallTools").finish_non_exhaustive()
    }
}

impl ScheduledCallTools {
    /// Wraps the tools that a scheduled call may name, and the tool that schedules it.
    pub fn new(tools: Arc<dyn ToolRegistry>) -> Self {
        Self(tools)
    }

    /// Checks the arguments of a scheduled call. A tool that is not found is left to the tool that schedules it.
    ///
    /// # Errors
    /// [`ToolError::InvalidArguments`], which names the argument; errors of the list of tools.
    async fn check(&self, context: &ExecutionContext, wish: &Value) -> Result<(), ToolError> {
        let Some(name) = wish.get("tool").and_then(Value::as_str) else { return Ok(()) };
        let user = Principal::new(context.user_id.clone(), context.company_id.clone(), Caller::Proactive);
        let specs = self.0.list(&user.agent_context(&context.agent_id, user.caller)).await?;
        let Some(spec) = specs.iter().find(|spec| spec.name == name) else { return Ok(()) };
        let arguments = match wish.get("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments.clone(),
            // The tool that schedules the call refuses it.
            Some(_) => return Ok(()),
        };
        unusable_argument(spec, arguments).map_or(Ok(()), |(path, fault)| {
            let at = if path.is_empty() { "arguments".to_owned() } else { format!("arguments.{path}") };
            Err(ToolError::InvalidArguments(format!("{at} {fault}")))
        })
    }
}

#[async_trait]
impl ToolRegistry for ScheduledCallTools {
    async fn list(&self, context: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        self.0.list(context).await
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        // Visitors schedule nothing.
        if name == SCHEDULE_TOOL && context.caller != Caller::Widget {
            self.check(context, &arguments).await?;
        }
        self.0.call(context, name, arguments, progress).await
    }
}

#[cfg(test)]
mod tests {
    use agent_core::tool::NoProgress;
    use futures_util::FutureExt;
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::*;

    /// Tools of an agent: tools with a schema, and the tool that schedules calls.
    struct TwoTools;

    #[async_trait]
    impl ToolRegistry for TwoTools {
        async fn list(&self, context: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
            assert_eq!(context.caller, Caller::Proactive, "the tools of the run that the job begins");
            let schema = json!({"type": "object", "required": ["to"], "additionalProperties": false,
                "properties": {"to": {"type": "string"}, "copies": {"type": "integer"}}});
            Ok(vec![Arc::new(ToolSpec {
                name: "send".to_owned(),
                description: String::new(),
                input_schema: RawValue::from_string(schema.to_string()).expect("JSON").into(),
                output_schema: None,
                annotations: None,
                is_client_side: false,
            })])
        }

        async fn call(
            &self,
            _: &ExecutionContext,
            _: &str,
            _: Value,
            _: &dyn Progress,
        ) -> Result<ToolOutput, ToolError> {
            Ok(ToolOutput { text: "called".to_owned(), ..ToolOutput::default() })
        }
    }

    #[test]
    fn arguments_that_the_tool_would_refuse_are_not_scheduled() {
        let tools = ScheduledCallTools::new(Arc::new(TwoTools));
        let context = ExecutionContext::default();
        let call = |name: &str, arguments: Value| {
            let called = tools.call(&context, name, arguments, &NoProgress);
            called.now_or_never().expect("no wait").map_err(|error| error.to_string())
        };
        for (wish, expected) in [
            (json!({"tool": "send"}), "arguments.to is missing"),
            (json!({"tool": "send", "arguments": {"to": 7}}), "arguments.to does not conform"),
            (json!({"tool": "send", "arguments": {"to": null}}), "arguments.to does not conform"),
            (
                json!({"tool": "send", "arguments": {"to": "a", "copies": "b"}}),
                "arguments.copies does not conform",
            ),
            (json!({"tool": "send", "arguments": {"to": "a", "x": 1}}), "arguments does not conform"),
        ] {
            let fault = call(SCHEDULE_TOOL, wish.clone()).expect_err("refused");
            assert!(fault.contains(expected), "{wish}: {fault}");
        }
        for (name, arguments) in [
            (SCHEDULE_TOOL, json!({"tool": "send", "arguments": {"to": "a", "copies": null}})),
            (SCHEDULE_TOOL, json!({"tool": "unknown", "arguments": {"to": 7}})),
            ("send", json!({"tool": "send"})),
        ] {
            assert_eq!(call(name, arguments).expect("called").text, "called");
        }
    }
}
