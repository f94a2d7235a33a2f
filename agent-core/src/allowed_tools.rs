//! Authorization of tools per agent and caller. The rule is a pure function; [`AllowedTools`] enforces it.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::role::RoleBlock;
use crate::select::{BackendChoice, select_backend};
use crate::tool::{Caller, ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};

/// Default preset of an agent whose role names none.
pub const DEFAULT_PRESET: [&str; 7] =
    ["readTodos", "createTodo", "updateTodo", "listDocs", "getDoc", "appendDoc", "searchDocs"];

/// Tools that no preset includes; they must be listed in the role's `tools`.
pub const EXPLICIT_ONLY_TOOLS: [&str; 2] = ["readEpics", "getEpicDetails"];

/// Returns the names of the tools that the agent of `role` may use on behalf of `caller`.
///
/// These are the preset and `tools`; for a widget's visitors only `widgetTools`, which the operator has opened to the
/// public. Both are restricted to `agent_server_tools`, if the selected level of the role has that list.
pub fn allowed_tools(
    role: &RoleBlock,
    caller: Caller,
    agent_server_tools: Option<&[String]>,
) -> BTreeSet<String> {
    let content = &role.content;
    let mut names: BTreeSet<String> = match caller {
        Caller::Widget => content.widget_tools.iter().cloned().collect(),
        Caller::Session | Caller::Legacy | Caller::Proactive => {
            let preset = match &content.mcp_preset {
                Some(names) => names.clone(),
                None => DEFAULT_PRESET.map(str::to_owned).into(),
            };
            preset.into_iter().chain(content.tools.iter().cloned()).collect()
        }
    };
    names.retain(|name| !EXPLICIT_ONLY_TOOLS.contains(&name.as_str()) || content.tools.contains(name));
    if let Some(cut) = agent_server_tools {
        names.retain(|name| cut.contains(name));
    }
    names
}

/// Returns the allowed tools with the level that [`select_backend`] chooses for the role, as in a run.
pub fn allowed_tools_in_run(role: &RoleBlock, caller: Caller) -> BTreeSet<String> {
    let selection = select_backend(role);
    let cut = match &selection.choice {
        Some(BackendChoice::AgentServer(server)) => server.agent_server_tools.as_deref(),
        _ => role.content.agent_server.agent_server_tools.as_deref(),
    };
    allowed_tools(role, caller, cut)
}

/// Tool registry restricted to a set of names; other tools are reported as unknown.
pub struct AllowedTools {
    tools: Arc<dyn ToolRegistry>,
    names: BTreeSet<String>,
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
    use futures_util::FutureExt;

    use super::*;
    use crate::role::RoleContent;
    use crate::testing::FakeTools;
    use crate::tool::NoProgress;

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().copied().map(str::to_owned).collect()
    }

    #[test]
    fn the_rule() {
        use Caller::{Proactive, Session, Widget};
        struct Case<'a> {
            preset: Option<&'a [&'a str]>,
            tools: &'a [&'a str],
            widget: &'a [&'a str],
            cut: Option<&'a [&'a str]>,
            caller: Caller,
            expected: &'a [&'a str],
        }
        let base = Case { preset: None, tools: &[], widget: &[], cut: None, caller: Session, expected: &[] };
        let base_and_epics: &[&str] = &[
            "appendDoc",
            "createTodo",
            "getDoc",
            "listDocs",
            "readEpics",
            "readTodos",
            "searchDocs",
            "updateTodo",
        ];
        let sorted_base: Vec<&str> =
            base_and_epics.iter().copied().filter(|name| *name != "readEpics").collect();
        for (case, given) in [
            ("base preset", Case { expected: &sorted_base, ..base }),
            ("legacy is as session", Case { caller: Caller::Legacy, expected: &sorted_base, ..base }),
            ("proactive is as session", Case { caller: Proactive, expected: &sorted_base, ..base }),
            ("empty preset", Case { preset: Some(&[]), ..base }),
            (
                "preset and tools",
                Case { preset: Some(&["b"]), tools: &["a", "b"], expected: &["a", "b"], ..base },
            ),
            ("epics by name in tools", Case { tools: &["readEpics"], expected: base_and_epics, ..base }),
            ("epics not by preset", Case { preset: Some(&["readEpics", "b"]), expected: &["b"], ..base }),
            (
                "cut",
                Case {
                    preset: Some(&["a", "b"]),
                    tools: &["c"],
                    cut: Some(&["b", "c", "x"]),
                    expected: &["b", "c"],
                    ..base
                },
            ),
            ("cut to none", Case { cut: Some(&[]), ..base }),
            ("no widget tools by default", Case { tools: &["a"], caller: Widget, ..base }),
            (
                "widget tools alone",
                Case {
                    tools: &["a"],
                    widget: &["b", "getDoc"],
                    caller: Widget,
                    expected: &["b", "getDoc"],
                    ..base
                },
            ),
            ("widget tools are not the session's", Case { preset: Some(&[]), widget: &["b"], ..base }),
            (
                "widget tools are cut too",
                Case { widget: &["a", "b"], cut: Some(&["b"]), caller: Widget, expected: &["b"], ..base },
            ),
            (
                "epics for a widget",
                Case {
                    tools: &["readEpics"],
                    widget: &["readEpics", "getEpicDetails"],
                    caller: Widget,
                    expected: &["readEpics"],
                    ..base
                },
            ),
        ] {
            let content = RoleContent {
                mcp_preset: given.preset.map(strings),
                tools: strings(given.tools),
                widget_tools: strings(given.widget),
                ..RoleContent::default()
            };
            let role = RoleBlock { content, ..RoleBlock::default() };
            let cut = given.cut.map(strings);
            let names: Vec<String> = allowed_tools(&role, given.caller, cut.as_deref()).into_iter().collect();
            assert_eq!(names, given.expected, "{case}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_not_there() {
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
