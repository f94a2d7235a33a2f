//! Authorization of tools per agent and caller.

use std::collections::BTreeSet;

use crate::role::RoleBlock;
use crate::tool::Caller;

/// Default preset of an agent whose role names none.
pub const DEFAULT_PRESET: [&str; 7] =
    ["readTodos", "createTodo", "updateTodo", "listDocs", "getDoc", "appendDoc", "searchDocs"];

/// Tools that no preset includes; they must be listed in the role's `tools`.
pub const EXPLICIT_ONLY_TOOLS: [&str; 2] = ["readEpics", "getEpicDetails"];

/// Returns the names of the tools that the agent of `role` may use on behalf of `caller`.
///
/// These are the preset, `tools` and the tools that the role defines; for a widget's visitors only `widgetTools`, which the operator has opened to the
/// public. Both are restricted to `agent_server_tools`, if the selected level of the role has that list.
pub fn allowed_tools(
    role: &RoleBlock,
    caller: Caller,
    agent_server_tools: Option<&[String]>,
) -> BTreeSet<String> {
    let content = &role.content;
    let mut names: BTreeSet<String> = match caller {
        Caller::Widget => content.widget_tools.iter().cloned().collect(),
        Caller::Session | Caller::Legacy | Caller::Proactive | Caller::Api => {
            let preset = match &content.mcp_preset {
                Some(names) => names.clone(),
                None => DEFAULT_PRESET.map(str::to_owned).into(),
            };
            preset.into_iter().chain(content.tools.iter().cloned()).chain(content.own_tools.names()).collect()
        }
    };
    names.retain(|name| !EXPLICIT_ONLY_TOOLS.contains(&name.as_str()) || content.tools.contains(name));
    if let Some(server_tools) = agent_server_tools {
        names.retain(|name| server_tools.contains(name));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::RoleContent;

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().copied().map(str::to_owned).collect()
    }

    #[test]
    fn tools_that_the_role_defines_need_no_entry() {
        let content =
            serde_json::json!({"mcpPreset": "none", "httpTools": [{"name": "getOrder"}, {"name": 1}]});
        let mut content: RoleContent = serde_json::from_value(content).expect("a content");
        let names = |content: &RoleContent, caller, cut: Option<&[String]>| {
            let role = RoleBlock { content: content.clone(), ..RoleBlock::default() };
            allowed_tools(&role, caller, cut).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(names(&content, Caller::Session, None), ["getOrder"]);
        assert!(names(&content, Caller::Session, Some(&[])).is_empty(), "they are cut");
        assert!(names(&content, Caller::Widget, None).is_empty(), "they are not open to visitors");
        content.widget_tools = strings(&["getOrder"]);
        assert_eq!(names(&content, Caller::Widget, None), ["getOrder"]);
    }

    #[test]
    fn preset_tools_and_caller_decide_the_allowed_tools() {
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
        for (case, allowed_json) in [
            ("base preset", Case { expected: &sorted_base, ..base }),
            ("legacy is as session", Case { caller: Caller::Legacy, expected: &sorted_base, ..base }),
            ("proactive is as session", Case { caller: Proactive, expected: &sorted_base, ..base }),
            ("a program is as session", Case { caller: Caller::Api, expected: &sorted_base, ..base }),
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
                mcp_preset: allowed_json.preset.map(strings),
                tools: strings(allowed_json.tools),
                widget_tools: strings(allowed_json.widget),
                ..RoleContent::default()
            };
            let role = RoleBlock { content, ..RoleBlock::default() };
            let cut = allowed_json.cut.map(strings);
            let names: Vec<String> =
                allowed_tools(&role, allowed_json.caller, cut.as_deref()).into_iter().collect();
            assert_eq!(names, allowed_json.expected, "{case}");
        }
    }
}
