//! Answers in JSON: requests of each method, results in every framing, repairs, and refusals.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::conversations::call_as;
use crate::support::packages::{keep_bytecode, python_path, run_program};
use crate::support::server::{self, INTERNAL_SECRET, Server, session_token};
use crate::support::vendor::{Step, Vendor, answer, delta, finish, stream_head, tool_calls};
use crate::support::{expect_problem, parse_events, parse_run, poll_until, text_of, workspace};

const PREVIEW: &str = "/api/svcchat/previewPrompt";
/// Names of models of the catalogue, by what the vendor can bind their answers to, and of one that is in no catalogue.
const SCHEMA_MODEL: &str = "gpt-5-mini";
const OBJECT_MODEL: &str = "gpt-3.5-turbo";
const UNKNOWN_MODEL: &str = "m";
const VALID: &str = r#"{"item": "pear", "count": 3}"#;
const INVALID: &str = r#"{"item": "pear", "count": "three"}"#;

fn order() -> Value {
    json!({"type": "object", "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["item", "count"], "additionalProperties": false})
}

fn format() -> Value {
    json!({"type": "json", "name": "order", "schema": order()})
}

/// Starts the application with an agent without tools whose model has this name, and changes its role.
async fn start(model: &str, change: impl FnOnce(&mut Value)) -> (Vendor, Server) {
    let vendor = Vendor::start().await;
    let mut workspace = workspace(&vendor.base_url(), model);
    let agent = &mut workspace["agents"][0];
    agent["content"]["mcpPreset"] = json!("none");
    change(agent);
    let app = server::app(&workspace, &[]).await;
    (vendor, app)
}

fn set_format(agent: &mut Value) {
    agent["children"][0]["content"]["responseFormat"] = format();
}

/// Creates a token of the agent `a1` and returns its text.
async fn mint(app: &Server, token: Value) -> String {
    let session = session_token("u1", "c1");
    let (_, created) = call_as(app, &session, "POST", "/api/agents/a1/tokens", Some(token)).await;
    created["token"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned()
}

async fn run(app: &Server, more: Value) -> Vec<Value> {
    let response = app.chat(&body(more)).await;
    assert_eq!(response.status(), 200);
    parse_run(&response.text().await.expect("a whole body"))
}

fn body(more: Value) -> Value {
    let mut body = json!({"agentId": "a1", "message": "Order three pears."});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

fn last(events: &[Value]) -> &Value {
    events.last().expect("an event")
}

#[tokio::test]
async fn the_request_of_each_rung_is_the_one_that_the_preview_shows() {
    let json_schema = json!({"type": "json_schema", "json_schema":
        {"name": "order", "strict": true, "schema": order()}});
    for (model, method, sent_format) in [
        (SCHEMA_MODEL, "schema", json_schema),
        (OBJECT_MODEL, "object", json!({"type": "json_object"})),
        (UNKNOWN_MODEL, "prompt", Value::Null),
    ] {
        // The fallback has its own means of binding answers to the schema.
        let (vendor, app) = start(model, |agent| {
            set_format(agent);
            let container = &mut agent["children"][0]["content"];
            let base_url = container["baseUrl"].clone();
            container["fallbacks"] =
                json!([{"provider": "openai", "model": "spare", "baseUrl": base_url, "apiKey": "k"}]);
        })
        .await;
        vendor.on(model, [answer(&[VALID])]);
        let token = session_token("u1", "c1");
        let request_body = Some(body(json!({"runId": "r1"})));
        let (status, shown) =
            call_as(&app, &token, "POST", &format!("{PREVIEW}?attempts=all"), request_body).await;
        assert_eq!(status, 200, "{shown}");
        assert_eq!(shown["attempts"][0]["responseFormat"], method, "{shown}");
        assert_eq!(shown["attempts"][1]["responseFormat"], "prompt");
        let spare = shown["attempts"][1]["payload"].to_string();
        assert!(spare.contains("JSON Schema") && !spare.contains("response_format"), "{spare}");
        let events = run(&app, json!({"runId": "r1"})).await;
        let request_body = vendor.received_bodies(model).remove(0);
        assert_eq!(shown["payload"], request_body);
        let prompt = events.iter().find(|event| event["name"] == "agent.prompt").expect("the event");
        assert_eq!(prompt["value"]["requestSha256"], shown["requestSha256"]);
        assert_eq!(request_body["response_format"], sent_format);
        let system = request_body["messages"][0]["content"].as_str().expect("a text");
        assert_eq!(system.contains(&order().to_string()), method != "schema", "{system}");
        assert_eq!(
            last(&events)["result"],
            json!({"finishReason": "stop", "object": {"item": "pear", "count": 3}})
        );
        assert_eq!(text_of(&events), r#"{"item":"pear","count":3}"#);
    }
}

#[tokio::test]
async fn the_object_is_in_every_framing() {
    let (vendor, app) = start(SCHEMA_MODEL, set_format).await;
    vendor.on_all(answer(&[r#"{"item": "pe"#, r#"ar", "count": 3}"#]));
    let object = json!({"item": "pear", "count": 3});
    let token = session_token("u1", "c1");
    let response = app.chat_as(&token, "?format=json", &body(json!({}))).await;
    let collected: Value = response.json().await.expect("JSON");
    assert_eq!(
        (&collected["object"], &collected["output"]),
        (&object, &json!(r#"{"item":"pear","count":3}"#))
    );
    let response = app.chat_as(&token, "?format=ui-message", &body(json!({}))).await;
    let text = response.text().await.expect("a whole body");
    let expected = format!(r#"data: {{"type":"data-object","data":{object},"transient":false}}"#);
    assert!(text.contains(&expected), "{text}");
    // A request may ask for text, or for another format.
    let events = run(&app, json!({"responseFormat": {"type": "text"}})).await;
    assert_eq!(last(&events)["result"], json!({"finishReason": "stop"}));
    let request_body =
        json!({"responseFormat": {"type": "json", "schema": {"type": "object", "required": ["price"]}}});
    assert_eq!(last(&run(&app, request_body).await)["code"], "OUTPUT_INVALID");
}

#[tokio::test]
async fn an_invalid_answer_leaves_in_no_framing() {
    let (vendor, app) = start(SCHEMA_MODEL, set_format).await;
    let refused = || {
        let refusal = delta(json!({"refusal": "I cannot do that."}));
        std::iter::once(stream_head()).chain([refusal]).chain(finish("stop")).collect::<Vec<Step>>()
    };
    let ended = |reason| {
        let valid_answer = delta(json!({"content": VALID}));
        std::iter::once(stream_head()).chain([valid_answer]).chain(finish(reason)).collect::<Vec<Step>>()
    };
    let token = session_token("u1", "c1");
    for steps in [
        answer(&["Here you are: ", VALID]),
        answer(&[&VALID[..20]]),
        answer(&[INVALID]),
        answer(&["```json\n", VALID, "\n```\nAnything else?"]),
        refused(),
        ended("length"),
        ended("content_filter"),
    ] {
        vendor.on_all(steps);
        let events = run(&app, json!({})).await;
        assert_eq!(
            (&last(&events)["type"], &last(&events)["code"]),
            (&json!("RUN_ERROR"), &json!("OUTPUT_INVALID"))
        );
        assert!(!format!("{events:?}").contains("pear"), "{events:?}");
        let response = app.chat_as(&token, "?format=json", &body(json!({}))).await;
        let problem = expect_problem(response, 502, "OUTPUT_INVALID").await;
        assert!(!problem.to_string().contains("pear"), "{problem}");
        let response = app.chat_as(&token, "?format=ui-message", &body(json!({}))).await;
        let text = response.text().await.expect("a whole body");
        assert!(text.contains(r#""type":"error""#) && !text.contains("pear"), "{text}");
    }
}

#[tokio::test]
async fn a_repair_is_a_round_that_is_counted() {
    let (vendor, app) = start(SCHEMA_MODEL, set_format).await;
    vendor.on(SCHEMA_MODEL, [answer(&[INVALID]), answer(&[VALID])]);
    let events = run(&app, json!({"runId": "repaired"})).await;
    assert_eq!(last(&events)["result"]["object"]["count"], 3);
    assert_eq!(text_of(&events), r#"{"item":"pear","count":3}"#);
    let rejected = events.iter().find(|event| event["value"]["kind"] == "outputRejected").expect("the event");
    assert_eq!(rejected["value"], json!({"kind": "outputRejected", "repair": 1, "reason": "/count (type)"}));
    assert_eq!(last(&events)["usage"][0]["inputTokens"], 22);
    let request_body = vendor.received_bodies(SCHEMA_MODEL).remove(1);
    let messages = request_body["messages"].as_array().expect("messages");
    assert_eq!(messages[messages.len() - 2], json!({"role": "assistant", "content": INVALID}));
    let token = session_token("u1", "c1");
    let usage = async || call_as(&app, &token, "GET", "/api/usage/runs/repaired", None).await.1;
    let usage =
        poll_until(usage, |usage| usage["entries"].as_array().is_some_and(|all| all.len() == 2)).await;
    let rounds: Vec<&Value> =
        usage["entries"].as_array().expect("a list").iter().map(|entry| &entry["round"]).collect();
    assert_eq!(rounds, [&json!(1), &json!(2)]);
}

#[tokio::test]
async fn tools_are_called_before_the_answer() {
    let (vendor, app) = start(SCHEMA_MODEL, |agent| {
        set_format(agent);
        agent["content"]["mcpPreset"] = json!(["readTodos"]);
    })
    .await;
    let mut calling = tool_calls(&[("c1", "readTodos", "{}")]);
    calling.insert(1, delta(json!({"content": "I look."})));
    vendor.on(SCHEMA_MODEL, [calling, answer(&[VALID])]);
    let events = run(&app, json!({"todoListId": "l1"})).await;
    assert_eq!(text_of(&events), r#"{"item":"pear","count":3}"#);
    assert_eq!(last(&events)["result"]["object"]["item"], "pear");
    let request_body = vendor.received_bodies(SCHEMA_MODEL).remove(1);
    let messages = request_body["messages"].as_array().expect("messages");
    let called = messages.iter().find(|message| message["role"] == "assistant").expect("a message");
    assert_eq!(called["content"], "I look.");
}

#[tokio::test]
async fn formats_are_checked_in_requests_and_roles() {
    let (_vendor, app) = start(SCHEMA_MODEL, |_| {}).await;
    let token = session_token("u1", "c1");
    let schema = |schema: Value| json!({"type": "json", "schema": schema});
    for (format, path) in [
        (json!("json"), "responseFormat"),
        (json!({"schema": {}}), "responseFormat.type"),
        (json!({"type": "xml"}), "responseFormat.type"),
        (json!({"type": "json", "shema": {}}), "responseFormat.shema"),
        (json!({"type": "json", "repairs": 9}), "responseFormat.repairs"),
        (json!({"type": "json", "repairs": -1}), "responseFormat.repairs"),
        (
            schema(json!({"properties": {"a": {"$ref": "http://h/s"}}})),
            "responseFormat.schema.properties.a.$ref",
        ),
        (schema(json!({"$ref": "#"})), "responseFormat.schema refers to itself"),
        (schema(json!({"enum": (0..10_000).collect::<Vec<_>>()})), "responseFormat.schema has"),
        (schema(json!({"enum": (0..1_001).collect::<Vec<_>>()})), "responseFormat.schema.enum"),
    ] {
        let response = app.chat(&body(json!({"responseFormat": format}))).await;
        let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
        assert!(problem["detail"].as_str().expect("a text").contains(path), "{path}: {problem}");
        if path == "responseFormat" {
            continue;
        }
        let (_, mut agent) = call_as(&app, &token, "GET", "/api/agents/a1", None).await;
        agent["children"][0]["content"]["responseFormat"] = format;
        let (status, problem) = call_as(&app, &token, "PUT", "/api/agents/a1", Some(agent)).await;
        assert_eq!(status, 400, "{path}: {problem}");
        assert!(problem.to_string().contains("responseFormat"), "{path}: {problem}");
    }
    // A proactive call may name one.
    let proactive =
        body(json!({"userId": "u1", "companyId": "c1", "responseFormat": {"type": "json", "repairs": 9}}));
    let request = app.request("POST", "/api/agent/chat").bearer_auth(INTERNAL_SECRET);
    let request = request.header("x-proactive-trigger", "due").json(&proactive);
    let problem = expect_problem(request.send().await.expect("an answer"), 400, "INVALID_REQUEST").await;
    assert!(problem["detail"].as_str().expect("a text").contains("repairs"), "{problem}");
}

#[tokio::test]
async fn visitors_may_not_name_a_format_and_have_that_of_the_role() {
    let vendor = Vendor::start().await;
    let mut workspace = workspace(&vendor.base_url(), SCHEMA_MODEL);
    set_format(&mut workspace["agents"][0]);
    let app = server::app(&workspace, &[]).await;
    let minted = mint(&app, json!({"kind": "widget", "origins": ["http://shop.example"]})).await;
    vendor.on_all(answer(&[VALID]));
    let ask = async |more: Value| {
        let mut request_body = body(more);
        request_body["widgetToken"] = json!(minted);
        let request = app.request("POST", "/api/agent/chat").header("origin", "http://shop.example");
        request.json(&request_body).send().await.expect("an answer")
    };
    let problem =
        expect_problem(ask(json!({"responseFormat": {"type": "text"}})).await, 400, "INVALID_REQUEST").await;
    assert!(problem["detail"].as_str().expect("a text").contains("responseFormat"), "{problem}");
    let text = ask(json!({})).await.text().await.expect("a whole body");
    let events = parse_events(&text);
    assert_eq!(last(&events)["result"]["object"]["item"], "pear");
}

#[tokio::test]
async fn a_backend_without_formats_refuses_them() {
    let (vendor, app) = start(SCHEMA_MODEL, |agent| {
        agent["children"] =
            json!([{"name": "WorkflowConnector", "content": {"webhookUrl": "http://127.0.0.1:9/hook"}}]);
    })
    .await;
    let problem =
        expect_problem(app.chat(&body(json!({"responseFormat": format()}))).await, 400, "INVALID_REQUEST")
            .await;
    assert!(problem["detail"].as_str().expect("a text").contains("workflow"), "{problem}");
    assert_eq!(vendor.connections(), 0);
}

#[tokio::test]
async fn a_run_that_waited_for_a_person_has_the_format_of_its_request() {
    let (vendor, app) = start(SCHEMA_MODEL, |agent| {
        agent["content"]["mcpPreset"] = json!(["createTodo"]);
        agent["content"]["approvals"] = json!([{"tools": ["createTodo"]}]);
    })
    .await;
    vendor.on(SCHEMA_MODEL, [tool_calls(&[("c1", "createTodo", r#"{"title":"Pears"}"#)]), answer(&[VALID])]);
    let events = run(&app, json!({"threadId": "t1", "todoListId": "l1", "responseFormat": format()})).await;
    let interrupt = &last(&events)["outcome"]["interrupts"][0];
    assert_eq!((&last(&events)["result"]["object"], interrupt.is_object()), (&Value::Null, true));
    let resume =
        json!([{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": true}}]);
    let continued = json!({"agentId": "a1", "threadId": "t1", "messages": [], "resume": resume});
    let text = app.chat(&continued).await.text().await.expect("a whole body");
    let events = parse_events(&text);
    assert_eq!(last(&events)["result"]["object"], json!({"item": "pear", "count": 3}), "{text}");
    // The thread has the object as the text of the answer, and the log of the run as it was sent.
    let token = session_token("u1", "c1");
    let run_id = last(&events)["runId"].as_str().expect("an id").to_owned();
    let log = async || {
        let request = app.request("GET", &format!("/api/runs/{run_id}/events")).bearer_auth(&token);
        request.send().await.expect("an answer").text().await.expect("a whole body")
    };
    let log = poll_until(log, |log| log.contains("RUN_FINISHED")).await;
    assert!(log.contains(r#""object":{"item":"pear","count":3}"#), "{log}");
    let (_, messages) = call_as(&app, &token, "GET", "/api/threads/t1", None).await;
    assert!(messages.to_string().contains(r#"{\"item\":\"pear\",\"count\":3}"#), "{messages}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_package_for_python_parses_the_answers() {
    let vendor = Vendor::start().await;
    let mut workspace = workspace(&vendor.base_url(), SCHEMA_MODEL);
    let mut second = workspace["agents"][0].clone();
    second["id"] = json!("a2");
    second["children"][0]["content"]["model"] = json!(UNKNOWN_MODEL);
    workspace["agents"].as_array_mut().expect("a list").push(second);
    vendor.on_all_with(|body| match body["model"] == SCHEMA_MODEL {
        true => answer(&[VALID]),
        false => answer(&["Three pears, please!"]),
    });
    let app = server::app(&workspace, &[]).await;
    let minted = mint(&app, json!({"kind": "api", "agents": ["a2"]})).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python/openai_format.py");
    let mut python = Command::new(python_path("openai"));
    keep_bytecode(&mut python).arg(script).env("AGENTD_URL", app.url(""));
    let output = run_program(python.env("API_TOKEN", minted)).await;
    let printed_json: Value = serde_json::from_str(&output).unwrap_or_else(|_| panic!("{output}"));
    let order = json!({"item": "pear", "count": 3});
    let hostile = "response_format.json_schema.schema.properties.a.$ref";
    let expected = json!({"parsed": order, "streamed": order, "free": order,
        "invalid": ["InternalServerError", 502, "output_invalid", null],
        "hostile": ["BadRequestError", 400, "invalid_request", hostile]});
    assert_eq!(printed_json, expected);
    // The schema of the package's own making is in the strict subset.
    let request_body = vendor.received_bodies(SCHEMA_MODEL).remove(0);
    let format = &request_body["response_format"]["json_schema"];
    assert_eq!((&format["strict"], &format["name"]), (&json!(true), &json!("Order")), "{request_body}");
}
