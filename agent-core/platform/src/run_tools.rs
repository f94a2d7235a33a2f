//! Authorization of tools in runs: a registry restricted to the tools that an agent may use.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_core::allowed_tools::allowed_tools;
use agent_core::role::RoleBlock;
use agent_core::select::{BackendChoice, select_backend};
use agent_core::tool::{Caller, ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use async_trait::async_trait;
use serde_json::Value;

/// Returns the allowed tools with the level that [`select_backend`] chooses for the role, as in a run.
pub fn allowed_tools_in_run(role: &RoleBlock, caller: Caller) -> BTreeSet<String> {
    let selection = select_backend(role);
    let cut = match &selection.choice {
        Some(BackendChoice::AgentServer(server)) => server.agent_server_tools.as_deref(),
        _ => role.content.agent_server.agent_server_tools.as_deref(),
    };
    allowed_tools(role, caller, cut)
}

/// Returns true if the credential of a call grants access to the tool; the agent's own tool list is not checked.
pub fn has_grant(context: &ExecutionContext, tool: &str) -> bool {
    context.granted_tools.as_ref().is_none_or(|granted| granted.iter().any(|name| name == tool))
}

/// Tool registry restricted to a set of names; other tools are reported as unknown.
pub struct AllowedTools {
    tools: Arc<dyn ToolRegistry>,
    names: BTreeSet<String>,
}

impl std::fmt::Debug for AllowedTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AllowedTools").field("names", &self.names).finish_non_exhaustive()
    }
}

impl AllowedTools {
    /// Restricts `tools` to `names`; names without a tool have no effect.
    pub fn new(tools: Arc<dyn ToolRegistry>, names: BTreeSet<String>) -> Self {
        Self { tools, names }
    }
}

#[async_trait]
impl ToolRegistry for AllowedTools {
    async fn list(&self, context: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        let mut specs = self.tools.list(context).await?;
        specs.retain(|spec| self.names.contains(&spec.name));
        Ok(specs)
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        if !self.names.contains(name) {
            return Err(ToolError::Unknown(name.to_owned()));
        }
        self.tools.call(context, name, arguments, progress).await
    }
}

#[cfg(test)]
mod tests {
    use agent_core::testing::FakeTools;
    use agent_core::tool::NoProgress;
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn disallowed_tools_are_unknown() {
        let inner = Arc::new(FakeTools::new().answers("a", "yes").answers("b", "no"));
        let tools = AllowedTools::new(inner.clone(), BTreeSet::from(["a".to_owned(), "z".to_owned()]));
        let context = ExecutionContext::default();
        let names: Vec<String> = tools
            .list(&context)
            .now_or_never()
            .expect("no wait")
            .expect("listed")
            .iter()
            .map(|spec| spec.name.clone())
            .collect();
        assert_eq!(names, ["a"]);
        let call =
            |name| tools.call(&context, name, Value::Null, &NoProgress).now_or_never().expect("no wait");
        assert!(call("a").is_ok());
        for name in ["b", "z", "y"] {
            assert!(matches!(call(name), Err(ToolError::Unknown(unknown)) if unknown == name));
        }
        assert_eq!(inner.calls().iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["a", "z"]);
    }
}
