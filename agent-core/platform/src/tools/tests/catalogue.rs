//! Tests of the tool catalogue as a whole and of its page in the documentation.

use agent_core::allowed_tools::DEFAULT_PRESET;
use std::fmt::Write;

use expect_test::expect_file;

use super::*;
use crate::workspace;
use agent_core::tool::ToolSpec;

const BOUNDS: [(&str, usize); 15] = [
    ("todos per list", workspace::MAX_TODOS),
    ("bytes per title", workspace::MAX_TITLE_BYTES),
    ("bytes per document written by tools", workspace::MAX_DOCUMENT_BYTES),
    ("documents per company", workspace::MAX_DOCUMENTS_PER_COMPANY),
    ("bytes per plan", workspace::MAX_PLAN_BYTES),
    ("bytes per metric name", workspace::MAX_METRIC_NAME_BYTES),
    ("bytes per metric unit", workspace::MAX_METRIC_UNIT_BYTES),
    ("recorded metrics per agent", workspace::MAX_METRICS_PER_AGENT),
    ("bytes per notification", workspace::MAX_NOTIFICATION_BYTES),
    ("notifications per user", workspace::MAX_NOTIFICATIONS_PER_USER),
    ("characters per messenger message", crate::tools::messenger::MAX_MESSAGE_CHARS),
    ("bytes per memory", workspace::MAX_MEMORY_TEXT_BYTES),
    ("memories per folder", workspace::MAX_MEMORIES_PER_FOLDER),
    ("jobs per user that are not final", crate::pulse::MAX_OPEN_JOBS),
    ("entries per page", crate::records::MAX_PAGE_RECORDS),
];

/// Returns the documented restriction on who may use a tool, beyond the role, and on what.
fn documented_access(name: &str) -> &'static str {
    match name {
        "readTodos" | "createTodo" | "updateTodo" | "deleteTodo" | "readPlan" | "updatePlan" => {
            "the owner of the conversation's todo list"
        }
        "listDocs" | "getDoc" | "appendDoc" => {
            "users: all documents of the company; visitors: those in `documentIds` and `ragDocumentIds`"
        }
        "searchDocs" => "all callers: the documents in `documentIds` and `ragDocumentIds`",
        "createDoc" => "users; not visitors",
        "readMetrics" => "users: all metrics of the company; visitors: those that the agent has recorded",
        "recordMetric" => "all callers that the role allows",
        "readNotifications" | "sendNotification" => "all callers, their own notifications",
        "remember" | "recall" | "forget" => {
            "users, in the agent's memory folder of the user, or of the company if `memoryScope` is `company`; not visitors"
        }
        "sendMessengerMessage" => "all callers that the role allows, as the agent's bot",
        "scheduleTool" | "cancelScheduledTool" => {
            "users, for tools of this agent and their own jobs of this agent; not visitors"
        }
        "readEpics" | "getEpicDetails" => "all callers that the role allows; must be listed in `tools`",
        other => panic!("the access of {other} is not documented"),
    }
}

/// Lists the fields of a schema; optional ones are marked with `?`.
fn fields(schema: &Value) -> String {
    let required =
        |name: &String| schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
    let field = |(name, property): (&String, &Value)| {
        let mark = if required(name) { "" } else { "?" };
        format!("{name}{mark}{}", shape(property))
    };
    let properties = schema["properties"].as_object().expect("properties").iter().map(field);
    let open_marker = (schema["additionalProperties"] == true).then(|| "…".to_owned());
    let fields: Vec<_> = properties.chain(open_marker).collect();
    format!("{{{}}}", fields.join(", "))
}

/// Formats the nested fields of an object or of a list of objects.
fn shape(property: &Value) -> String {
    let inner = [property, &property["items"]].into_iter().find(|one| one["properties"].is_object());
    let list = property["type"] == "array";
    let null = property["type"].as_array().is_some_and(|types| types.contains(&json!("null")));
    match inner.map(fields) {
        Some(fields) if list => format!(": [{fields}]"),
        Some(fields) if null => format!(": {fields} or null"),
        Some(fields) => format!(": {fields}"),
        None => String::new(),
    }
}

fn hints(spec: &ToolSpec) -> String {
    let hints = spec.annotations.expect("hints");
    let names = [
        (hints.read_only_hint, "read-only"),
        (hints.destructive_hint, "destructive"),
        (hints.idempotent_hint, "idempotent"),
        (hints.open_world_hint, "open world"),
    ];
    let names: Vec<_> = names.into_iter().filter_map(|(set, name)| set.then_some(name)).collect();
    if names.is_empty() { "additive".to_owned() } else { names.join(", ") }
}

fn specs() -> Vec<Arc<ToolSpec>> {
    let tools = builtin_tools(
        Arc::new(MemoryRecords::default()),
        Arc::new(RecordRoleStore::in_memory()),
        ToolServices::default(),
    );
    ready(tools.list(&ExecutionContext::default())).expect("listed")
}

#[test]
fn the_documentation_lists_all_tools() {
    let mut page = include_str!("catalogue.md").to_owned();
    page.push_str("\n| limit | maximum |\n|---|---|\n");
    for (what, limit) in BOUNDS {
        writeln!(page, "| {what} | {limit} |").expect("a string takes it");
    }
    page.push_str("\n## Tools\n\n`?` marks optional fields.\n");
    for spec in specs() {
        let json = |schema: &str| serde_json::from_str::<Value>(schema).expect("JSON");
        let (input, output) =
            (json(spec.input_schema.get()), json(spec.output_schema.as_ref().expect("one").get()));
        let base = if DEFAULT_PRESET.contains(&spec.name.as_str()) { "; in the default preset" } else { "" };
        let (name, description, hints) = (&spec.name, &spec.description, hints(&spec));
        writeln!(page, "\n### {name}\n\n{description}\n").expect("a string takes it");
        writeln!(page, "- arguments: `{}`\n- result: `{}`", fields(&input), fields(&output))
            .expect("a string takes it");
        writeln!(page, "- hints: {hints}{base}\n- access: {}", documented_access(name))
            .expect("a string takes it");
    }
    expect_file!["../../../../../docs/tools.md"].assert_eq(&page);
}

#[test]
fn every_definition_can_be_read_by_every_client() {
    for spec in specs() {
        for schema in [&spec.input_schema, spec.output_schema.as_ref().expect("an output schema")] {
            let text = schema.get();
            let schema: Value = serde_json::from_str(text).expect("JSON");
            assert_eq!(schema["type"], "object", "{}", spec.name);
            assert!(schema["properties"].is_object(), "{}", spec.name);
            jsonschema::meta::validate(&schema).expect("a schema by the standard");
            for noise in ["$schema", "$defs", "$ref", "uint", "\"title\":\""] {
                assert!(!text.contains(noise), "{}: {text}", spec.name);
            }
        }
        let input: Value = serde_json::from_str(spec.input_schema.get()).expect("JSON");
        for (name, property) in input["properties"].as_object().expect("properties") {
            assert!(property["description"].is_string(), "{}: {name} says nothing", spec.name);
            assert!(!property["type"].is_array(), "{}: {name} is of several types", spec.name);
        }
    }
}

#[test]
fn hints_match_the_protocol() {
    let by_hint = |has_hint: fn(&ToolSpec) -> bool| {
        specs().iter().filter(|spec| has_hint(spec)).map(|spec| spec.name.clone()).collect::<Vec<_>>()
    };
    let reading = by_hint(|spec| spec.annotations.expect("hints").read_only_hint);
    let expected = [
        "getDoc",
        "getEpicDetails",
        "listDocs",
        "readEpics",
        "readMetrics",
        "readPlan",
        "readTodos",
        "recall",
        "searchDocs",
    ];
    assert_eq!(reading, expected);
    let destroying = by_hint(|spec| spec.annotations.expect("hints").destructive_hint);
    assert_eq!(destroying, ["cancelScheduledTool", "deleteTodo", "forget", "updatePlan", "updateTodo"]);
    assert_eq!(by_hint(|spec| spec.annotations.expect("hints").open_world_hint), ["sendMessengerMessage"]);
    let names: Vec<_> = specs().iter().map(|spec| spec.name.clone()).collect();
    assert_eq!(names, crate::roles::TOOL_NAMES, "roles may name these tools");
    let interrupted = by_hint(|spec| {
        let hints = spec.annotations.expect("hints");
        !hints.read_only_hint && !hints.idempotent_hint && !is_repeatable(&spec.name)
    });
    assert_eq!(
        interrupted,
        ["sendMessengerMessage"],
        "a call of these is not repeated after an interruption"
    );
}
