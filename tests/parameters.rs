//! Parameters of model calls: they reach the model as the preview shows them.

use serde_json::{Value, json};

use crate::conversations::call_as;
use crate::support::server::{self, session_token};
use crate::support::vendor::{Vendor, answer, ollama, tool_calls};
use crate::support::{parse_events, workspace};

const PREVIEW: &str = "/api/svcchat/previewPrompt";

#[tokio::test]
async fn ignored_parameters_are_reported_once_a_run() {
    let vendor = Vendor::start().await;
    let mut workspace = workspace(&vendor.base_url(), "m");
    workspace["agents"][0]["children"][0]["content"]["parameters"] = json!({"topK": 9, "seed": 7});
    let app = server::app(&workspace, &[]).await;
    let call = tool_calls(&[("c1", "readTodos", "{}")]);
    vendor.on("m", [call.clone(), answer(&["Done."]), call, answer(&["Done."])]);
    for run in ["r1", "r2"] {
        let body = json!({"agentId": "a1", "message": "Hello", "todoListId": "l1", "runId": run});
        let events = parse_events(&app.chat(&body).await.text().await.expect("a whole body"));
        let ignored: Vec<_> =
            events.iter().filter(|event| event["value"]["kind"] == "parametersIgnored").collect();
        let expected =
            json!({"kind": "parametersIgnored", "provider": "openai", "model": "m", "parameters": ["topK"]});
        assert_eq!(ignored.len(), 1, "once in two rounds: {events:?}");
        assert_eq!((&ignored[0]["name"], &ignored[0]["value"]), (&json!("agent.debug"), &expected));
    }
}

#[tokio::test]
async fn the_model_is_sent_what_the_preview_shows() {
    let vendor = Vendor::start().await;
    let mut workspace = workspace(&vendor.base_url(), "m");
    let parameters = json!({"temperature": 0.25, "maxOutputTokens": 300, "topP": 0.5, "topK": 9, "seed": 7,
        "presencePenalty": 0.5, "frequencyPenalty": -1.5, "stopSequences": ["END"], "reasoning": "low",
        "extraBody": {"service_tier": "flex"}});
    workspace["agents"][0]["children"][0]["content"]["parameters"] = parameters.clone();
    let app = server::app(&workspace, &[]).await;
    vendor.on("m", [answer(&["Hi."])]);
    let body = json!({"agentId": "a1", "message": "Hello", "runId": "r1"});
    let token = session_token("u1", "c1");
    let (status, shown) = call_as(&app, &token, "POST", PREVIEW, Some(body.clone())).await;
    assert_eq!(status, 200, "{shown}");
    assert_eq!(shown["attempts"][0]["ignoredParameters"], json!(["topK"]), "{shown}");
    let response = app.chat(&body).await;
    let events = parse_events(&response.text().await.expect("a whole body"));
    let prompt = events.iter().find(|event| event["name"] == "agent.prompt").expect("the event");
    assert_eq!(prompt["value"]["requestSha256"], shown["requestSha256"]);
    let request_body = vendor.received_bodies("m").remove(0);
    assert_eq!(shown["payload"], request_body);
    for (name, value) in json!({"temperature": 0.25, "max_tokens": 300, "top_p": 0.5, "seed": 7, "stop": ["END"],
        "presence_penalty": 0.5, "frequency_penalty": -1.5, "reasoning_effort": "low", "service_tier": "flex"})
    .as_object()
    .expect("an object")
    {
        assert_eq!(request_body[name], *value, "{name}: {request_body}");
    }
    assert_eq!(request_body.get("top_k"), None, "{request_body}");

    // They are saved, read back and checked.
    let (status, mut agent) = call_as(&app, &token, "GET", "/api/agents/a1", None).await;
    assert_eq!((status, &agent["children"][0]["content"]["parameters"]), (200, &parameters));
    let at = |agent: &mut Value, value: Value| agent["children"][0]["content"]["parameters"] = value;
    for (value, path) in [
        (json!({"temprature": 1}), "temprature"),
        (json!({"temperature": 3}), "temperature"),
        (json!({"extraBody": {"messages": []}}), "extraBody must not name messages"),
        (json!({"extraBody": {"model": "x"}}), "extraBody must not name model"),
        (json!({"extraBody": {"tools": []}}), "extraBody must not name tools"),
        (json!({"extraBody": {"service_tier": "flex", "stream": false}}), "extraBody must not name stream"),
    ] {
        at(&mut agent, value);
        let (status, problem) = call_as(&app, &token, "PUT", "/api/agents/a1", Some(agent.clone())).await;
        assert_eq!((status, &problem["code"]), (400, &json!("INVALID_REQUEST")), "{path}");
        let named = format!("children[0].content.parameters.{path}");
        assert!(problem.to_string().contains(&named), "{named}: {problem}");
    }
}

/// Parameters of all names.
fn all_parameters() -> Value {
    json!({"temperature": 0.25, "maxOutputTokens": 300, "topP": 0.5, "topK": 9, "seed": 7,
        "presencePenalty": 0.5, "frequencyPenalty": -1.5, "stopSequences": ["END"], "reasoning": "low",
        "extraBody": {"keep_alive": "5m"}})
}

#[tokio::test]
async fn a_runtimes_model_is_sent_the_parameters_of_the_role() {
    let vendor = Vendor::start().await;
    let runtime = server::runtime(&[]).await;
    let token = session_token("u1", "c1");
    // In a container, and beside the fields of the role's own content.
    for is_own in [false, true] {
        for (provider, address, reply) in [
            ("openai", vendor.base_url(), answer(&["Hi."])),
            ("ollama", vendor.ollama_url(), ollama::answer(&["Hi."])),
        ] {
            let content = json!({"agentServerUrl": runtime.url(""), "agentServerProvider": provider,
                "agentServerModel": provider, "agentServerLocalUrl": address, "agentServerApiKey": "key-canary",
                "agentServerEnableThinking": true, "parameters": all_parameters()});
            let mut workspace = workspace("http://unused.example/v1", "unused");
            match is_own {
                true => workspace["agents"][0]["content"] = content,
                false => {
                    workspace["agents"][0]["children"] = json!([{"name": "AgentServer", "content": content}]);
                }
            }
            let app = server::app(&workspace, &[]).await;
            vendor.on(provider, [reply]);
            let body = json!({"agentId": "a1", "message": "Hello", "runId": "r1"});
            let (status, shown) = call_as(&app, &token, "POST", PREVIEW, Some(body.clone())).await;
            assert_eq!((status, &shown["payload"]["parameters"]), (200, &all_parameters()), "{shown}");
            assert!(!shown.to_string().contains("key-canary"), "{shown}");
            let events = parse_events(&app.chat(&body).await.text().await.expect("a whole body"));
            let prompt = events.iter().find(|event| event["name"] == "agent.prompt").expect("the event");
            assert_eq!(prompt["value"]["requestSha256"], shown["requestSha256"]);
            let request_body = vendor.received_bodies(provider).pop().expect("a call");
            let expected = match provider {
                "openai" => {
                    json!({"temperature": 0.25, "max_tokens": 300, "top_p": 0.5, "seed": 7, "stop": ["END"],
                    "presence_penalty": 0.5, "frequency_penalty": -1.5, "reasoning_effort": "low", "keep_alive": "5m"})
                }
                _ => {
                    json!({"think": true, "keep_alive": "5m", "options": {"num_ctx": request_body["options"]["num_ctx"],
                    "num_predict": 300, "temperature": 0.25, "top_p": 0.5, "top_k": 9, "seed": 7, "stop": ["END"],
                    "presence_penalty": 0.5, "frequency_penalty": -1.5}})
                }
            };
            for (name, value) in expected.as_object().expect("an object") {
                assert_eq!(request_body[name], *value, "{name}: {request_body}");
            }
            assert_eq!(request_body.get("top_k"), None, "{request_body}");
        }
    }
}

#[tokio::test]
async fn parameters_of_agent_servers_are_checked_where_the_role_is_saved() {
    let app = server::app(&workspace("http://unused.example/v1", "unused"), &[]).await;
    let token = session_token("u1", "c1");
    let (_, mut agent) = call_as(&app, &token, "GET", "/api/agents/a1", None).await;
    agent["children"] = json!([{"name": "AgentServer",
        "content": {"agentServerUrl": "https://a.example", "parameters": {"temprature": 1}}}]);
    let save =
        async |agent: &Value| call_as(&app, &token, "PUT", "/api/agents/a1", Some(agent.clone())).await;
    let (status, problem) = save(&agent).await;
    assert_eq!((status, &problem["code"]), (400, &json!("INVALID_REQUEST")), "{problem}");
    assert!(problem.to_string().contains("children[0].content.parameters.temprature"), "{problem}");
    agent["children"][0]["content"]["parameters"] = all_parameters();
    let (status, saved) = save(&agent).await;
    assert_eq!((status, &saved["children"][0]["content"]["parameters"]), (200, &all_parameters()), "{saved}");
}
