//! Tests of formats by whole runs of scripted models.

use std::sync::Arc;

use agent_core::backend::EmbeddedBackend;
use agent_core::context::RoleLayer;
use agent_core::event::{Event, EventGrammar};
use agent_core::message::{FinishReason, Message};
use agent_core::model::{Model, ModelInfo, ModelRequest};
use agent_core::prompt::{Fragment, Part, Prompt, PromptMessage, Stability};
use agent_core::request::{Principal, TurnRequest};
use agent_core::role::{ResponseFormat, ResponseKind, RoleBlock, StaticRoles};
use agent_core::testing::{FakeTools, ScriptedAnswer, ScriptedModel};
use agent_core::tool::{Caller, ToolChoice};
use agent_core::turn::{Platform, TurnError, prepare_turn, run_turn};
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};

use super::*;
use crate::catalog::Catalog;

/// Schema of an order, in the subsets of all providers.
fn order() -> Value {
    json!({"type": "object", "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["item", "count"], "additionalProperties": false})
}

fn json_format(schema: Option<Value>) -> ResponseFormat {
    ResponseFormat { kind: ResponseKind::Json, schema, ..ResponseFormat::default() }
}

/// A platform with one agent, whose role has the format.
struct FormatFixture {
    platform: Platform,
    model: Arc<ScriptedModel>,
}

fn fixture(format: Value, answers: Vec<ScriptedAnswer>) -> FormatFixture {
    let role = json!({"id": "a", "companyId": "c", "content": {"mcpPreset": ["look"]},
        "children": [{"name": "EmbeddedAI", "content": {"responseFormat": format}}]});
    let role: RoleBlock = serde_json::from_value(role).expect("a role");
    let (model, tools) =
        (Arc::new(ScriptedModel::new(answers)), Arc::new(FakeTools::new().answers("look", "3")));
    let models = ValidatedModels::new(FormattedModels::new(model.clone(), Catalog::built_in()));
    let platform = Platform::new(Arc::new(StaticRoles::new().with_role(role)))
        .with_layer(RoleLayer::new(Arc::default()))
        .with_tools(tools.clone())
        .with_backend(EmbeddedBackend::new(models).with_tools(tools));
    FormatFixture { platform, model }
}

fn ada() -> Principal {
    Principal::new("ada", "c", Caller::Session)
}

impl FormatFixture {
    fn run_with(&self, response_format: Option<ResponseFormat>) -> Vec<Event> {
        let request = TurnRequest {
            response_format: response_format.map(Arc::new),
            ..TurnRequest::new("a", vec![Message::user("Order three pears.")])
        };
        let run = async { run_turn(&self.platform, &ada(), request).await.expect("a run").collect().await };
        let events: Vec<Event> = run.now_or_never().expect("no wait");
        EventGrammar::check(&events).unwrap_or_else(|violation| panic!("{violation}: {events:?}"));
        events
    }

    fn run(&self) -> Vec<Event> {
        self.run_with(None)
    }
}

fn text(events: &[Event]) -> String {
    let text = |event: &Event| match event {
        Event::TextMessageContent { delta, .. } => Some(delta.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

fn object(events: &[Event]) -> Option<&Value> {
    match events.last() {
        Some(Event::RunFinished { result, .. }) => result.as_ref()?.object.as_ref(),
        _ => None,
    }
}

fn error_code(events: &[Event]) -> Option<&str> {
    match events.last() {
        Some(Event::RunError { code, .. }) => Some(code),
        _ => None,
    }
}

fn notices(events: &[Event]) -> Vec<&Value> {
    let mut collected_notices = Vec::new();
    for event in events {
        if let Event::Custom { name, value } = event
            && name == "agent.debug"
        {
            collected_notices.push(value);
        }
    }
    collected_notices
}

#[test]
fn a_valid_answer_is_the_run_s_object_and_its_text() {
    for answer in [
        r#"{"item": "pear", "count": 3}"#,
        " \n{\"item\": \"pear\",\n\"count\": 3}\n",
        "```json\n{\"item\": \"pear\", \"count\": 3}\n```",
        "```\n{\"item\": \"pear\", \"count\": 3}```\n",
        // Of a member that occurs twice, the text has the value of the object.
        r#"{"item": 5, "item": "pear", "count": 3}"#,
    ] {
        let deltas = answer.split_inclusive(' ').fold(ScriptedAnswer::new(), ScriptedAnswer::text);
        let fixture =
            fixture(json!({"type": "json", "schema": order()}), vec![deltas.finish(FinishReason::Stop)]);
        let events = fixture.run();
        assert_eq!(object(&events), Some(&json!({"item": "pear", "count": 3})), "{answer}");
        assert_eq!(text(&events), r#"{"item":"pear","count":3}"#);
    }
}

#[test]
fn the_text_of_an_answer_keeps_the_digits_of_its_numbers() {
    let answer = "```json\n{\"id\": 123456789012345678901234, \"price\": 19.90}\n```";
    let events = fixture(json!({"type": "json"}), vec![ScriptedAnswer::from_text(answer)]).run();
    assert_eq!(text(&events), r#"{"id":123456789012345678901234,"price":19.90}"#);
    assert_eq!(object(&events).map(|object| &object["price"]), Some(&json!(19.9)));
}

/// Answers that are not an order, and the reason why each ends.
fn invalid_answers() -> Vec<(String, FinishReason)> {
    let valid = r#"{"item": "pear", "count": 3}"#;
    let mut answers = Vec::new();
    let mut add = |text: String| answers.push((text, FinishReason::Stop));
    for cut in 0..valid.len() {
        add(valid[..cut].to_owned());
    }
    for number in 0..60 {
        add(format!("Of course! Here are {number} pears: {valid}"));
        add(format!("{valid}\nAnything else? {number}"));
        add(format!("```json\n{valid}\n```\n```json\n{{\"item\": \"pear\", \"count\": {number}}}\n```"));
        add(format!("Sure:\n```json\n{{\"item\": \"pear\", \"count\": {number}}}\n```"));
        add(format!(r#"{{"item": "pear", "count": "{number}"}}"#));
        add(format!(r#"{{"item": "pear", "count": {number}, "note": "extra"}}"#));
        add(format!(r#"[{{"item": "pear", "count": {number}}}]"#));
        add(format!(r#"{{"item": {number}, "count": 1}}"#));
    }
    for text in
        ["", " ", "null", "3", "\"pear\"", "{}", "NaN", "{'item': 'pear', 'count': 3}", "I cannot help."]
    {
        add(text.to_owned());
    }
    answers.push((valid.to_owned(), FinishReason::Length));
    answers.push((valid.to_owned(), FinishReason::ContentFilter));
    answers
}

#[test]
fn of_hundreds_of_invalid_answers_none_leaves_as_an_object_or_as_text() {
    let answers = invalid_answers();
    assert!(answers.len() >= 500, "{}", answers.len());
    for (answer, reason) in answers {
        let answers = (0..2).map(|_| ScriptedAnswer::new().text(answer.clone()).finish(reason)).collect();
        let fixture = fixture(json!({"type": "json", "schema": order()}), answers);
        let events = fixture.run();
        assert_eq!(error_code(&events), Some("OUTPUT_INVALID"), "{answer:?} {reason:?}");
        assert_eq!((text(&events).as_str(), object(&events)), ("", None), "{answer:?}");
        let is_cut = reason != FinishReason::Stop;
        assert_eq!(fixture.model.unused_answers(), usize::from(is_cut), "a truncated answer is not repaired");
    }
}

#[test]
fn without_a_schema_any_object_is_an_answer_and_nothing_else() {
    for (answer, is_valid) in
        [("{}", true), (r#"{"a": [1]}"#, true), ("[]", false), ("1", false), ("x", false)]
    {
        let answers = vec![ScriptedAnswer::from_text(answer)];
        let events = fixture(json!({"type": "json", "repairs": 0}), answers).run();
        assert_eq!(object(&events).is_some(), is_valid, "{answer}");
        assert_eq!(error_code(&events), (!is_valid).then_some("OUTPUT_INVALID"));
    }
}

#[test]
fn an_invalid_answer_is_repaired_with_the_validators_message() {
    let answers = vec![
        ScriptedAnswer::new()
            .text(r#"{"item": "pear", "count": "three"}"#)
            .usage(10, 5)
            .finish(FinishReason::Stop),
        ScriptedAnswer::new().text(r#"{"item": "pear", "count": 3}"#).usage(30, 6).finish(FinishReason::Stop),
    ];
    let fixture = fixture(json!({"type": "json", "schema": order()}), answers);
    let events = fixture.run();
    assert_eq!(object(&events), Some(&json!({"item": "pear", "count": 3})));
    assert_eq!(text(&events), r#"{"item":"pear","count":3}"#, "the invalid text is not in the stream");
    let Some(Event::RunFinished { usage, .. }) = events.last() else { panic!("{events:?}") };
    assert_eq!((usage[0].input_tokens, usage[0].output_tokens), (Some(40), Some(11)));
    let rejected = json!({"kind": "outputRejected", "repair": 1, "reason": "/count (type)"});
    assert_eq!(notices(&events), [&rejected]);
    let sent = fixture.model.sent_requests();
    let messages = sent[1]["messages"].as_array().expect("messages");
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[1], json!({"role": "assistant", "content": r#"{"item": "pear", "count": "three"}"#}));
    let correction = messages[2]["content"].as_str().expect("a text");
    assert!(correction.contains(r#"/count: "three" is not of type "integer""#), "{correction}");
}

#[test]
fn a_failed_run_reports_the_usage_of_its_last_answer() {
    let answer = || ScriptedAnswer::new().text("No.").usage(10, 5).finish(FinishReason::Stop);
    let events = fixture(json!({"type": "json"}), vec![answer(), answer()]).run();
    let Some(Event::RunError { usage, code, message }) = events.last() else { panic!("{events:?}") };
    assert_eq!((code.as_str(), usage[0].input_tokens), ("OUTPUT_INVALID", Some(20)));
    assert_eq!(message, "the answer does not have the requested format: it is not JSON");
}

#[test]
fn the_number_of_repairs_is_that_of_the_format() {
    for repairs in 0..=2_usize {
        let answers = (0..3).map(|_| ScriptedAnswer::from_text("No.")).collect();
        let fixture = fixture(json!({"type": "json", "repairs": repairs}), answers);
        assert_eq!(error_code(&fixture.run()), Some("OUTPUT_INVALID"));
        assert_eq!(fixture.model.unused_answers(), 2 - repairs);
    }
}

#[test]
fn tools_run_as_always_and_text_in_front_of_a_call_is_only_for_the_model() {
    let answers = vec![
        ScriptedAnswer::new().text("I look.").call("1", "look", ["{}"]).finish(FinishReason::ToolCalls),
        ScriptedAnswer::from_text(r#"{"item": "pear", "count": 3}"#),
    ];
    let fixture = fixture(json!({"type": "json", "schema": order()}), answers);
    let events = fixture.run();
    assert_eq!(text(&events), r#"{"item":"pear","count":3}"#);
    assert!(
        events.iter().any(|event| matches!(event, Event::ToolCallResult { content, .. } if content == "3"))
    );
    let sent = fixture.model.sent_requests();
    assert_eq!(sent[1]["messages"][1]["content"], "I look.");
    assert_eq!(object(&events), Some(&json!({"item": "pear", "count": 3})));
}

#[test]
fn a_held_back_answer_is_announced_while_it_grows() {
    let long = "x".repeat(1_000);
    let answer = ScriptedAnswer::new().text("{\"a\":\"").text(long.clone()).text(long.clone()).text(long);
    let events = fixture(json!({"type": "json"}), vec![answer.text("\"}").finish(FinishReason::Stop)]).run();
    assert!(object(&events).is_some());
    let expected = [json!({"kind": "outputProgress", "bytes": 2006})];
    assert_eq!(notices(&events)[..1], expected.iter().collect::<Vec<_>>());
    let too_long = "x".repeat(600_000);
    let answer = ScriptedAnswer::new().text(too_long.clone()).text(too_long).finish(FinishReason::Stop);
    let events = fixture(json!({"type": "json"}), vec![answer]).run();
    assert_eq!(error_code(&events), Some("OUTPUT_TOO_LARGE"));
}

#[test]
fn a_request_overrides_the_role() {
    let answers = vec![ScriptedAnswer::from_text("Three pears."), ScriptedAnswer::from_text("[1]")];
    let fixture = fixture(json!({"type": "json", "schema": order(), "repairs": 0}), answers);
    let events = fixture.run_with(Some(ResponseFormat::default()));
    assert_eq!((text(&events).as_str(), object(&events)), ("Three pears.", None));
    let list = json_format(Some(json!({"type": "array", "items": {"type": "integer"}})));
    let events = fixture.run_with(Some(list));
    assert_eq!(object(&events), Some(&json!([1])));
}

#[test]
fn the_schema_takes_room_in_the_prompt_s_budget() {
    let enumeration: Vec<String> = (0..900).map(|number| format!("value-{number}")).collect();
    let schema = json!({"type": "object", "properties": {"a": {"enum": enumeration}}});
    let messages = (0..40).map(|number| Message::user(format!("{number} {}", "word ".repeat(200))));
    let request = TurnRequest::new("a", messages.collect());
    let kept = |format: Value| {
        let fixture = fixture(format, vec![]);
        let prepared = prepare_turn(&fixture.platform, &ada(), request.clone()).now_or_never();
        prepared.expect("no wait").expect("a turn").request.turn.prompt.messages().len()
    };
    let (with, without) = (kept(json!({"type": "json", "schema": schema})), kept(json!({"type": "text"})));
    assert!(with < without, "{with} and {without}");
}

#[test]
fn backends_without_formats_refuse_a_request_for_one() {
    for container in [
        json!({"name": "AgentServer", "content": {"agentServerUrl": "http://h"}}),
        json!({"name": "WorkflowConnector", "content": {"webhookUrl": "http://h"}}),
    ] {
        let role = json!({"id": "a", "companyId": "c", "children": [container]});
        let role = Arc::new(serde_json::from_value::<RoleBlock>(role).expect("a role"));
        let platform = Platform::new(Arc::new(StaticRoles::new()));
        let request = TurnRequest {
            role: Some(role),
            response_format: Some(Arc::new(json_format(None))),
            ..TurnRequest::new("a", vec![Message::user("Hello")])
        };
        let error = prepare_turn(&platform, &ada(), request).now_or_never().expect("no wait");
        let Err(TurnError::InvalidField { field, .. }) = error else { panic!("{error:?}") };
        assert_eq!(field, "responseFormat");
    }
}

#[test]
fn hostile_schemas_are_refused_with_their_place() {
    let deep = (0..11).fold(json!({"type": "string"}), |inner, _| json!({"properties": {"a": inner}}));
    let values: Vec<usize> = (0..10_000).collect();
    let patterns: serde_json::Map<String, Value> =
        (0..51).map(|n| (format!("p{n}"), json!({"pattern": "a"}))).collect();
    for (schema, path) in [
        (json!("text"), "schema"),
        (json!({"$ref": "http://h/s.json"}), "schema.$ref"),
        (json!({"items": {"$ref": "https://h/s.json#/a"}}), "schema.items.$ref"),
        (json!({"$ref": "file:///etc/passwd"}), "schema.$ref"),
        (json!({"$ref": "#missing"}), "schema.$ref"),
        (json!({"$ref": "#/$defs/missing"}), "schema.$ref"),
        (json!({"$ref": "#"}), "schema"),
        (json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}), "schema.$defs.b"),
        (json!({"items": {"anyOf": [{"$ref": "#/items"}, {"type": "null"}]}}), "schema.items"),
        (json!({"properties": {"a": {"$ref": "#"}}, "$defs": {"b": {"$id": "c"}}}), "schema.$defs.b.$id"),
        (json!({"$id": "http://h/s.json"}), "schema.$id"),
        (json!({"$dynamicRef": "#a"}), "schema.$dynamicRef"),
        (json!({"type": "object", "properties": {"a": {"enum": values}}}), "schema"),
        (
            json!({"properties": {"a": {"enum": values[..600]}, "b": {"enum": values[..600]}}}),
            "schema.properties.b.enum",
        ),
        (json!({"properties": patterns}), "schema.properties.p50.pattern"),
        (json!({"pattern": "(a{1000}){1000}"}), "schema"),
        (json!({"type": "nothing"}), "schema"),
        (json!({"$schema": "http://h/meta.json"}), "schema"),
        (json!({"description": "x".repeat(MAX_RESPONSE_SCHEMA_BYTES)}), "schema"),
    ] {
        let fault = check_response_format(&json_format(Some(schema.clone()))).expect_err(path);
        assert_eq!(fault.path, path, "{}", fault.message);
    }
    let wrong = json!({"properties": {"a": {"required": "sk-1"}}});
    let fault = check_response_format(&json_format(Some(wrong))).expect_err("no list of names");
    assert!(fault.message.contains(" at /properties/a/required: "), "{fault:?}");
    assert!(!fault.message.contains("sk-1"), "{fault:?}");
    let fault = check_response_format(&json_format(Some(deep))).expect_err("deep");
    assert!(fault.message.contains("deep"), "{fault:?}");
    let link = |n: usize| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)}));
    let mut links: serde_json::Map<String, Value> = (0..60).map(link).collect();
    links.insert("d60".to_owned(), json!({"type": "string"}));
    let fault = check_response_format(&json_format(Some(json!({"$defs": links})))).expect_err("a chain");
    assert!(fault.message.contains("more than 50 references"), "{fault:?}");
    // 64^6 schemas: a walk of all would take hours.
    let level = |n: usize| {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        (format!("d{n}"), json!({"anyOf": vec![next; 64]}))
    };
    let mut definitions: serde_json::Map<String, Value> = (0..6).map(level).collect();
    definitions.insert("d6".to_owned(), json!({"type": "string"}));
    let many = json!({"$defs": definitions, "$ref": "#/$defs/d0"});
    let fault = check_response_format(&json_format(Some(many))).expect_err("many schemas");
    assert!(fault.message.contains("schemas, with references followed"), "{fault:?}");
    for (format, path) in [
        (ResponseFormat { repairs: Some(3), ..json_format(None) }, "repairs"),
        (ResponseFormat { name: Some("a b".to_owned()), ..json_format(None) }, "name"),
        (ResponseFormat { name: Some(String::new()), ..json_format(None) }, "name"),
        (ResponseFormat { schema: Some(order()), ..ResponseFormat::default() }, "schema"),
    ] {
        assert_eq!(check_response_format(&format).expect_err(path).path, path);
    }
}

#[test]
fn the_work_of_checking_an_answer_is_bounded() {
    let validator = |item: Value| {
        let format = json_format(Some(json!({"type": "array", "items": item})));
        AnswerValidator::new(&format).expect("a schema")
    };
    let list = |items: usize| json!(vec![1; items]).to_string();
    let wide = validator(json!({"allOf": vec![json!({"type": "number"}); 1_000]}));
    assert!(wide.read(&list(900)).is_ok());
    let fault = wide.read(&list(100_000)).expect_err("a hundred million steps");
    assert_eq!(fault.description, "it is too long to be checked against the schema");
    // Labels of many items, each compared with all of an enumeration.
    let labels: Vec<String> = (0..900).map(|number| format!("label-{number}")).collect();
    let labelled = json!(vec!["label-899"; 5_000]).to_string();
    assert!(validator(json!({"enum": labels})).read(&labelled).is_ok());
    let lists: Vec<_> = (0..900).map(|number| json!([number])).collect();
    assert!(validator(json!({"enum": lists})).read(&json!(vec![[899]; 5_000]).to_string()).is_err());
    // The longest answer that is read, by a plain schema.
    assert!(validator(json!({"type": "number"})).read(&list(500_000)).is_ok());
}

/// Schema of an expression, whose operators have expressions on both sides, as libraries write it: with one definition of all
/// kinds, or with the kinds wherever an expression is.
fn expression(operators: &[&str], keyword: &str, is_inline: bool) -> Value {
    let kinds = operators.iter().map(|name| json!({"$ref": format!("#/$defs/{name}")}));
    let kinds: Vec<Value> = kinds.chain([json!({"type": "number"})]).collect();
    let operand = match is_inline {
        true => json!({keyword: kinds}),
        false => json!({"$ref": "#/$defs/expression"}),
    };
    let operator = |name: &&str| {
        let schema = json!({"type": "object", "properties": {"left": operand, "right": operand, "operator": {"const": name}},
            "required": ["operator", "left", "right"], "additionalProperties": false});
        ((*name).to_owned(), schema)
    };
    let mut definitions: serde_json::Map<String, Value> = operators.iter().map(operator).collect();
    definitions.insert("expression".to_owned(), json!({keyword: kinds}));
    json!({"type": "object", "properties": {"result": operand}, "required": ["result"], "additionalProperties": false,
        "$defs": definitions})
}

/// Keywords with which libraries forbid further properties.
const CLOSING: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];

#[test]
fn answers_of_recursive_alternatives_are_checked_whatever_their_depth() {
    let operators = ["add", "subtract", "multiply", "divide", "power", "modulo"];
    let nested = |leaf: Value, levels: usize| {
        let level = |inner: Value, level: usize| match level % 2 {
            0 => json!({"operator": operators[level % 6], "left": inner, "right": 2}),
            _ => json!({"operator": operators[level % 6], "left": 1.5, "right": inner}),
        };
        json!({"result": (0..levels).fold(leaf, level)}).to_string()
    };
    for (keyword, is_inline) in [("anyOf", true), ("anyOf", false), ("oneOf", true), ("oneOf", false)] {
        for (count, closed_by) in [2, 6].into_iter().flat_map(|count| CLOSING.map(|name| (count, name))) {
            let schema = expression(&operators[..count], keyword, is_inline).to_string();
            let schema = serde_json::from_str(&schema.replace(CLOSING[0], closed_by)).expect("JSON");
            let validator = AnswerValidator::new(&json_format(Some(schema))).expect("a schema");
            let levels = if count == 2 { 2 } else { 40 };
            let case = format!("{keyword} {is_inline} {count} {closed_by}");
            assert!(validator.read(&nested(json!(1), levels)).is_ok(), "{case}");
            let fault = validator.read(&nested(json!("x"), levels)).expect_err("no number");
            assert_eq!(fault.paths, format!("/result ({keyword})"), "{case}");
        }
    }
    let list = json!({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["next"], "additionalProperties": false});
    let validator = AnswerValidator::new(&json_format(Some(list))).expect("a schema");
    let answer = (0..50).fold(json!(null), |next, _| json!({"next": next}));
    assert!(validator.read(&answer.to_string()).is_ok());
    assert!(validator.read(&answer.to_string().replace("null", "1")).is_err());
}

#[test]
fn schemas_of_common_libraries_are_taken() {
    let pydantic = json!({"$defs": {"Line": {"properties": {"sku": {"title": "Sku", "type": "string"}}, "required": ["sku"],
        "title": "Line", "type": "object"}}, "properties": {"lines": {"items": {"$ref": "#/$defs/Line"}, "type": "array"},
        "first": {"anyOf": [{"$ref": "#/$defs/Line"}, {"type": "null"}], "default": null}, "id": {"type": "integer"},
        "$ref": {"type": "string"}}, "required": ["lines"], "title": "Order", "type": "object"});
    let zod = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "properties": {"when": {"type": "string", "format": "date-time"}}, "additionalProperties": false});
    let tree =
        json!({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}});
    for schema in [pydantic, zod, tree, order(), json!({}), json!({"const": {"$ref": "http://h"}})] {
        check_response_format(&json_format(Some(schema.clone())))
            .unwrap_or_else(|fault| panic!("{schema}: {fault:?}"));
    }
}

fn model_request(tools: bool) -> ModelRequest {
    let specs = FakeTools::new().answers("look", "").specs();
    ModelRequest {
        prompt: Arc::new(Prompt::new(vec![], vec![PromptMessage::new(Message::user("Hello"))])),
        appended_messages: Vec::new(),
        tools: if tools { specs } else { Arc::new([]) },
        tool_choice: ToolChoice::Auto,
        thinking: None,
        response_format: None,
    }
}

#[test]
fn the_rung_is_that_of_the_provider_the_model_and_the_schema() {
    use FormatMethod::{Object, Prompt, Schema};
    let optional =
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false});
    let bounded = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"],
        "additionalProperties": false});
    let list = json!({"type": "array", "items": {"type": "string"}});
    let chain = json!({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["next"], "additionalProperties": false});
    let strict = |schema: &Value| json_format(Some(schema.clone()));
    let loose = |schema: &Value| ResponseFormat { strict: Some(false), ..strict(schema) };
    for (provider, model, format, tools, expected) in [
        ("openai", "gpt-5-mini", strict(&order()), true, Schema),
        ("openai", "gpt-5-mini-2025-08-07", strict(&order()), false, Schema),
        ("openai", "openai/gpt-5-mini", strict(&order()), false, Schema),
        ("openai", "gpt-5-mini", strict(&bounded), false, Schema),
        ("openai", "gpt-5-mini", strict(&optional), false, Object),
        ("openai", "gpt-5-mini", loose(&optional), false, Schema),
        ("openai", "gpt-5-mini", strict(&list), false, Prompt),
        ("openai", "gpt-5-mini", json_format(None), false, Object),
        ("openai", "gpt-5-mini", strict(&chain), false, Schema),
        ("openai", "gpt-3.5-turbo", strict(&order()), false, Object),
        ("openai", "house-model", strict(&order()), false, Prompt),
        ("openai", "house-model", json_format(None), false, Prompt),
        ("openai-responses", "gpt-5-mini", strict(&order()), true, Schema),
        ("subscription", "gpt-5-mini", strict(&order()), false, Schema),
        ("ollama", "qwen3", strict(&list), false, Schema),
        ("ollama", "qwen3", strict(&chain), false, Prompt),
        ("ollama", "qwen3", json_format(None), false, Object),
        ("ollama", "qwen3", strict(&order()), true, Prompt),
        ("anthropic", "claude-sonnet-4-5", strict(&order()), true, Schema),
        ("anthropic", "claude-sonnet-4-5", strict(&optional), false, Schema),
        ("anthropic", "claude-sonnet-4-5", strict(&bounded), false, Prompt),
        ("anthropic", "claude-sonnet-4-5", strict(&chain), false, Prompt),
        ("anthropic", "claude-sonnet-4-5", json_format(None), false, Prompt),
        ("anthropic", "claude-unknown", strict(&order()), false, Prompt),
        ("local", "", strict(&order()), false, Prompt),
    ] {
        let base = ScriptedModel::new([]).info();
        let info = ModelInfo { provider: provider.to_owned(), model: model.to_owned(), ..base };
        let scripted = Arc::new(ScriptedModel::new([]).with_info(info));
        let models = FormattedModels::new(scripted, Catalog::built_in());
        let model_of = |models: &dyn agent_core::backend::ModelSource| models.model(&Default::default());
        let request = ModelRequest { response_format: Some(Arc::new(format)), ..model_request(tools) };
        let payload = model_of(&models).expect("a model").prepare(&request).expect("a payload");
        let method = payload.attachment::<FormatMethod>().copied();
        assert_eq!(method, Some(expected), "{provider} {model} {:?}", request.response_format);
        let body: Value = serde_json::from_slice(payload.bytes()).expect("JSON");
        let is_described = expected != Schema || provider == "ollama";
        assert_eq!(body["system"].is_string(), is_described, "{provider} {model}");
    }
}

#[test]
fn the_description_follows_the_stable_part_of_the_system_prompt() {
    let fragment = |id: &'static str, stability| Fragment::new(id, "test", stability, Part::new(id));
    let fragments = vec![fragment("role", Stability::Role), fragment("session", Stability::Session)];
    let prompt = Prompt::new(fragments, vec![PromptMessage::new(Message::user("Hello"))]);
    let models = FormattedModels::new(Arc::new(ScriptedModel::new([])), Catalog::built_in());
    let model = agent_core::backend::ModelSource::model(&models, &agent_core::role::EmbeddedAi::default());
    let request = |format: Option<ResponseFormat>| ModelRequest {
        prompt: Arc::new(Prompt::new(prompt.system_fragments().to_vec(), prompt.messages().to_vec())),
        response_format: format.map(Arc::new),
        ..model_request(false)
    };
    let model = model.expect("a model");
    let system = |format| {
        let payload = model.prepare(&request(format)).expect("a payload");
        serde_json::from_slice::<Value>(payload.bytes()).expect("JSON")["system"].clone()
    };
    assert_eq!(system(None), "role\n\nsession");
    let described = system(Some(json_format(Some(json!({"type": "object"})))));
    let described = described.as_str().expect("a text");
    assert!(described.starts_with("role\n\nYour final answer must be one JSON value"), "{described}");
    assert!(described.ends_with("{\"type\":\"object\"}\n\nsession"), "{described}");
}
