//! Bounds of a run's output, and prompts beyond a model's context window.

use serde_json::{Value, json};

use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, Vendor, answer, json_response, n8n, tool_calls};
use crate::support::{expect_problem, parse_run, text_of, workspace};

/// Returns a workspace of which the agent has one container.
fn workspace_of(container: &str, content: &Value) -> Value {
    let mut workspace = workspace("http://unused.example/v1", "m");
    workspace["agents"][0]["children"] = json!([{"name": container, "content": content}]);
    workspace
}

fn agent_server(runtime: &Server, vendor: &Vendor) -> Value {
    json!({
        "agentServerUrl": format!("http://{}", runtime.address), "agentServerProvider": "openai",
        "agentServerModel": "m", "agentServerLocalUrl": vendor.base_url(), "agentServerApiKey": "k",
    })
}

async fn ask(app: &Server, format: &str, body: &Value) -> reqwest::Response {
    app.chat_as(&session_token("u1", "c1"), &format!("?format={format}"), body).await
}

const SETTINGS: [(&str, &str); 2] = [("OUTPUT_LIMIT_BYTES", "20000"), ("RUN_OUTPUT_LIMIT_BYTES", "30000")];

#[tokio::test]
async fn a_long_answer_ends_each_backends_run_in_each_framing() {
    let vendor = Vendor::start().await;
    let (word, runtime) = ("x".repeat(1_000), server::runtime(&[]).await);
    let words = [&*word; 50];
    vendor.on("m", [answer(&words)]);
    vendor.on("a1", [n8n::answer(&words)]);
    let embedded = json!({"provider": "openai", "model": "m", "baseUrl": vendor.base_url(), "apiKey": "k"});
    let backends = [
        ("EmbeddedAI", embedded),
        ("AgentServer", agent_server(&runtime, &vendor)),
        ("WorkflowConnector", json!({"webhookUrl": vendor.webhook_url()})),
    ];
    let body = json!({"agentId": "a1", "message": "Hello"});
    for (container, content) in backends {
        let app = server::app(&workspace_of(container, &content), &SETTINGS).await;
        let lines = ask(&app, "ndjson", &body).await.text().await.expect("a whole body");
        let events = parse_run(&lines);
        let last = events.last().expect("an end");
        assert_eq!(
            (&last["type"], &last["code"]),
            (&json!("RUN_ERROR"), &json!("OUTPUT_TOO_LARGE")),
            "{container}"
        );
        assert_eq!(last["message"], "an answer of the model exceeds the limit of 20000 bytes");
        assert!((18_000..=20_000).contains(&text_of(&events).len()), "{container}");
        let frames = ask(&app, "sse", &body).await.text().await.expect("a whole body");
        assert!(
            frames.trim_end().lines().last().expect("a frame").contains("OUTPUT_TOO_LARGE"),
            "{container}"
        );
        let chunks = ask(&app, "ui-message", &body).await.text().await.expect("a whole body");
        assert!(
            chunks.contains(r#""errorText":"an answer of the model exceeds"#)
                && chunks.ends_with("[DONE]\n\n")
        );
        expect_problem(ask(&app, "json", &body).await, 502, "OUTPUT_TOO_LARGE").await;
    }
}

#[tokio::test]
async fn the_runtime_bounds_its_runs_itself() {
    let vendor = Vendor::start().await;
    let word = "x".repeat(1_000);
    vendor.on("m", [answer(&[&*word; 50])]);
    let runtime = server::runtime(&SETTINGS).await;
    let body = json!({
        "provider": "openai", "model": "m", "baseUrl": vendor.base_url(), "apiKey": "k",
        "messages": [{"role": "user", "content": "Hello"}],
    });
    let response = runtime.request("POST", "/chat").json(&body).send().await.expect("an answer");
    let events = parse_run(&response.text().await.expect("a whole body"));
    assert_eq!(events.last().expect("an end")["code"], "OUTPUT_TOO_LARGE");
}

#[tokio::test]
async fn the_rounds_of_a_run_are_counted_together() {
    let vendor = Vendor::start().await;
    let title = format!(r#"{{"title":"{}"}}"#, "x".repeat(400));
    vendor.on("m", [tool_calls(&[("c", "createTodo", &title)])]);
    let app = server::app(
        &workspace(&vendor.base_url(), "m"),
        &[("RUN_OUTPUT_LIMIT_BYTES", "2000"), ("TOOL_ROUNDS", "100")],
    )
    .await;
    let body = json!({"agentId": "a1", "message": "Hello", "todoListId": "l1"});
    let events = parse_run(&app.chat(&body).await.text().await.expect("a whole body"));
    assert_eq!(events.last().expect("an end")["code"], "OUTPUT_TOO_LARGE");
    assert!(vendor.received_bodies("m").len() < 5, "{}", vendor.received_bodies("m").len());
}

const OVERFLOW: &str = r#"{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size (4096 tokens)","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#;

/// Returns a request with a history of 41 messages of some hundred tokens each.
fn long_conversation() -> Value {
    let message = |index: usize| {
        let role = if index.is_multiple_of(2) { "user" } else { "assistant" };
        json!({"role": role, "content": format!("{index} {}", "basil and soil ".repeat(60))})
    };
    let messages: Vec<Value> = (0..41).map(message).collect();
    json!({"agentId": "a1", "messages": messages})
}

fn overflow() -> Vec<Step> {
    json_response("400 Bad Request", "", OVERFLOW)
}

#[tokio::test]
async fn a_conversation_beyond_the_models_window_is_cut_and_sent_again() {
    let runtime = server::runtime(&[]).await;
    for behind_runtime in [false, true] {
        let vendor = Vendor::start().await;
        vendor.on("m", [overflow(), answer(&["Yes."])]);
        let embedded =
            json!({"provider": "openai", "model": "m", "baseUrl": vendor.base_url(), "apiKey": "k"});
        let workspace = match behind_runtime {
            false => workspace_of("EmbeddedAI", &embedded),
            true => workspace_of("AgentServer", &agent_server(&runtime, &vendor)),
        };
        let app = server::app(&workspace, &[]).await;
        for requests in [2, 3] {
            let response = app.chat(&long_conversation()).await;
            assert_eq!(response.status(), 200, "behind a runtime: {behind_runtime}");
            let events = parse_run(&response.text().await.expect("a whole body"));
            assert_eq!(text_of(&events), "Yes.");
            let request_bodies = vendor.received_bodies("m");
            let lengths: Vec<usize> = request_bodies
                .iter()
                .map(|body| body["messages"].as_array().expect("messages").len())
                .collect();
            assert_eq!(request_bodies.len(), requests, "the next turn knows the window");
            assert!(lengths[0] >= 41 && lengths[1..].iter().all(|length| *length < 30), "{lengths:?}");
        }
    }
}

/// A server may repeat parts of a request in the text of its error, so that a company could choose the window.
#[tokio::test]
async fn a_window_that_the_calls_of_a_company_make_known_cuts_no_conversation_of_another() {
    let runtime = server::runtime(&[]).await;
    for behind_runtime in [false, true] {
        let vendor = Vendor::start().await;
        vendor.on("m", [overflow(), answer(&["Yes."])]);
        let embedded =
            json!({"provider": "openai", "model": "m", "baseUrl": vendor.base_url(), "apiKey": "k"});
        let mut workspace = match behind_runtime {
            false => workspace_of("EmbeddedAI", &embedded),
            true => workspace_of("AgentServer", &agent_server(&runtime, &vendor)),
        };
        let mut theirs = workspace["agents"][0].clone();
        theirs["companyId"] = json!("c2");
        theirs["ownerId"] = json!("u2");
        workspace["agents"].as_array_mut().expect("a list").push(theirs);
        let app = server::app(&workspace, &[]).await;
        for (user, company) in [("u1", "c1"), ("u2", "c2")] {
            let response = app.chat_as(&session_token(user, company), "", &long_conversation()).await;
            let events = parse_run(&response.text().await.expect("a whole body"));
            assert_eq!(text_of(&events), "Yes.", "{company}, behind a runtime: {behind_runtime}");
        }
        let sent = vendor.received_bodies("m");
        let lengths: Vec<_> =
            sent.iter().map(|body| body["messages"].as_array().map_or(0, Vec::len)).collect();
        let [rejected, cut, whole] = lengths[..] else { panic!("{lengths:?}") };
        assert!(rejected >= 41 && cut < 30 && whole == rejected, "{lengths:?}");
    }
}

#[tokio::test]
async fn a_prompt_that_stays_too_long_is_named() {
    let runtime = server::runtime(&[]).await;
    for behind_runtime in [false, true] {
        let vendor = Vendor::start().await;
        vendor.on("m", [overflow()]);
        let embedded =
            json!({"provider": "openai", "model": "m", "baseUrl": vendor.base_url(), "apiKey": "k"});
        let workspace = match behind_runtime {
            false => workspace_of("EmbeddedAI", &embedded),
            true => workspace_of("AgentServer", &agent_server(&runtime, &vendor)),
        };
        let app = server::app(&workspace, &[]).await;
        let problem =
            expect_problem(app.chat(&long_conversation()).await, 502, "CONTEXT_LENGTH_EXCEEDED").await;
        assert!(problem["detail"].as_str().expect("text").contains("context window"), "{problem}");
        assert!(!problem.to_string().contains("9000 tokens) exceeds"), "{problem}");
        assert_eq!(problem["contextWindow"], 4096);
        assert_eq!(vendor.received_bodies("m").len(), 2);
    }
}

#[tokio::test]
async fn a_message_beyond_the_first_window_goes_to_the_larger_fallback() {
    let vendor = Vendor::start().await;
    vendor.on("m", [overflow(), answer(&["By the first."])]);
    vendor.on("large", [answer(&["By the large one."])]);
    let model = |name: &str| json!({"provider": "openai", "model": name, "baseUrl": vendor.base_url(), "apiKey": "k"});
    let mut embedded = model("m");
    embedded["fallbacks"] = json!([model("large")]);
    let app = server::app(&workspace_of("EmbeddedAI", &embedded), &[]).await;
    let long = "basil and soil ".repeat(2_500);
    for (message, expected, requests) in
        [(&*long, "By the large one.", 1), (&*long, "By the large one.", 1), ("Hello", "By the first.", 2)]
    {
        let response = app.chat(&json!({"agentId": "a1", "message": message})).await;
        assert_eq!(response.status(), 200);
        let events = parse_run(&response.text().await.expect("a whole body"));
        assert_eq!(text_of(&events), expected);
        assert_eq!(vendor.received_bodies("m").len(), requests, "its window is known from the first call");
    }
    let request = app.request("POST", "/api/svcchat/previewPrompt").bearer_auth(session_token("u1", "c1"));
    let response = request.json(&json!({"agentId": "a1", "message": long})).send().await.expect("an answer");
    let shown: Value = response.json().await.expect("JSON");
    assert_eq!(shown["payload"]["model"], "large", "{}", shown["attempts"]);
    assert_eq!(shown["attempts"][0]["reason"], "CONTEXT_LENGTH_EXCEEDED", "{}", shown["attempts"]);
    let tokens = |name: &str| shown["budget"][name].as_u64().expect("a number");
    assert!(tokens("promptTokens") <= tokens("maxPromptTokens"), "{}", shown["budget"]);
    assert_eq!(shown["budget"]["maxPromptTokens"], shown["attempts"][1]["maxPromptTokens"]);
}

#[tokio::test]
async fn the_role_sets_the_window_and_the_limit_on_an_answer() {
    let vendor = Vendor::start().await;
    let mut workspace = workspace(&vendor.base_url(), "m");
    workspace["agents"][0]["content"]["contextWindow"] = json!(4096);
    workspace["agents"][0]["content"]["maxOutputTokens"] = json!(100);
    let app = server::app(&workspace, &[("MAX_OUTPUT_TOKENS", "200")]).await;
    parse_run(&app.chat(&long_conversation()).await.text().await.expect("a whole body"));
    let [sent] = &vendor.received_bodies("m")[..] else { panic!("one request") };
    assert_eq!(sent["max_tokens"], 100);
    let length = sent["messages"].as_array().expect("messages").len();
    assert!(length < 30, "{length} messages");
    workspace["agents"][0]["content"]["maxOutputTokens"] = json!(0);
    let imported = agentd::stores::Stores::in_memory("a workspace", &workspace.to_string()).await;
    let error = imported.err().expect("refused").to_string();
    assert!(error.contains("maxOutputTokens"), "{error}");
}

#[tokio::test]
async fn an_empty_answer_is_a_failure() {
    let vendor = Vendor::start().await;
    vendor.on("m", [answer(&[])]);
    let app = server::app(&workspace(&vendor.base_url(), "m"), &[]).await;
    let body = json!({"agentId": "a1", "message": "Hello"});
    let events = parse_run(&app.chat(&body).await.text().await.expect("a whole body"));
    assert_eq!(events.last().expect("an end")["code"], "BACKEND_FAILED");
}

#[tokio::test]
async fn a_forbidden_tool_is_not_offered_behind_an_agent_server() {
    let vendor = Vendor::start().await;
    let runtime = server::runtime(&[]).await;
    let app = server::app(&workspace_of("AgentServer", &agent_server(&runtime, &vendor)), &[]).await;
    for (choice, offered) in [
        (json!("auto"), vec!["createTodo", "readTodos"]),
        (json!("none"), vec![]),
        (json!({"type": "function", "function": {"name": "readTodos"}}), vec!["readTodos"]),
    ] {
        let body = json!({"agentId": "a1", "message": "Hello", "toolChoice": choice});
        parse_run(&app.chat(&body).await.text().await.expect("a whole body"));
        let request_body = vendor.received_bodies("m").pop().expect("a request");
        let tools = request_body["tools"].as_array().into_iter().flatten();
        let names: Vec<&str> = tools.filter_map(|tool| tool["function"]["name"].as_str()).collect();
        assert_eq!(names, offered, "{choice}");
    }
}

/// Returns the text that a model reads of a request, in the order of a chat template.
fn rendered(body: &Value) -> String {
    let mut text = body["tools"].to_string();
    for message in body["messages"].as_array().expect("messages") {
        let (role, content) = (message["role"].as_str(), message["content"].as_str());
        text.push_str(&format!("\n<|{}|>\n{}<|end|>", role.expect("a role"), content.expect("a text")));
    }
    text
}

/// A prefix cache of one slot, as that of llama.cpp: it has the latest request and its answer.
#[tokio::test]
async fn the_prefix_cache_keeps_the_latest_turn() {
    let answer_text =
        "On Thursdays the shop is open from nine to six, and on Fridays from nine to eight. ".repeat(10);
    let vendor = Vendor::start().await;
    vendor.on("m", [answer(&[&*answer_text])]);
    let mut workspace = workspace(&vendor.base_url(), "m");
    workspace["agents"][0]["content"]["systemPrompt"] = json!("You are the assistant of a shop. ".repeat(60));
    let app = server::app(&workspace, &[]).await;
    for thread in [Some("t1"), None] {
        let mut messages = vec![
            json!({"role": "user", "content": "Can I come on Thursday after work, or is that too late?"}),
        ];
        let mut cached = String::new();
        for turn in 0..3 {
            let mut body = json!({"agentId": "a1", "messages": messages, "pageContext": {"turn": turn}});
            if let Some(thread) = thread {
                body["threadId"] = thread.into();
            }
            parse_run(&app.chat(&body).await.text().await.expect("a whole body"));
            let sent = rendered(&vendor.received_bodies("m").pop().expect("a request"));
            if turn > 0 {
                let common = cached.bytes().zip(sent.bytes()).take_while(|(a, b)| a == b).count();
                let share = common as f64 / sent.len() as f64;
                assert!(share >= 0.9, "{share:.2} of turn {turn} with thread {thread:?}");
            }
            cached = format!("{sent}\n<|assistant|>\n{answer_text}<|end|>");
            messages.push(json!({"role": "assistant", "content": answer_text}));
            messages.push(json!({"role": "user", "content": "And on Friday?"}));
        }
    }
}
