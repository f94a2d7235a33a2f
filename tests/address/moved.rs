//! An agent's stored keys are dropped when one of its addresses changes.

use serde_json::{Value, json};

use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{ReceivedRequest, Vendor, empty_run};

const KEY: &str = "role-key-canary-0123456789";
const PATH: &str = "/api/agents/a1";

/// An agent with a key, and the change of its address.
struct MovedAddressCase {
    name: &'static str,
    /// The agent as saved, with the placeholders `OLD` (first server), `NEW` (second server) and `RUNTIME` (an agent
    /// runtime).
    agent: Value,
    /// JSON pointer to the address that changes, and its new value; null removes the field.
    moved: (&'static str, Value),
    /// JSON pointer to the key.
    key: &'static str,
    /// True if the agent can be answered without a key.
    answered: bool,
}

fn cases() -> Vec<MovedAddressCase> {
    let server = |url, local| {
        let mut content = json!({"agentServerUrl": url, "agentServerProvider": "openai",
            "agentServerModel": "events", "agentServerApiKey": KEY});
        if local {
            content["agentServerModel"] = "m".into();
            content["agentServerLocalUrl"] = "http://OLD/v1".into();
        }
        content
    };
    let child = |name, content| json!({"children": [{"name": name, "content": content}]});
    let model = |provider, url| {
        child("EmbeddedAI", json!({"provider": provider, "model": "m", "baseUrl": url, "apiKey": KEY}))
    };
    let workflow =
        |auth| child("WorkflowConnector", json!({"webhookUrl": "http://OLD/webhook/chat", "auth": auth}));
    let case = |name, agent, at, to: &str, key, answered| MovedAddressCase {
        name,
        agent,
        moved: (at, if to.is_empty() { Value::Null } else { to.into() }),
        key,
        answered,
    };
    let webhook = "/children/0/content/webhookUrl";
    vec![
        case(
            "content",
            json!({"content": server("http://OLD", false)}),
            "/content/agentServerUrl",
            "http://NEW",
            "/content/agentServerApiKey",
            true,
        ),
        case(
            "container",
            child("AgentServer", server("http://OLD", false)),
            "/children/0/content/agentServerUrl",
            "http://NEW",
            "/children/0/content/agentServerApiKey",
            true,
        ),
        case(
            "behind the runtime",
            json!({"content": server("http://RUNTIME", true)}),
            "/content/agentServerLocalUrl",
            "http://NEW/v1",
            "/content/agentServerApiKey",
            true,
        ),
        case(
            "from behind the runtime",
            json!({"content": server("http://RUNTIME", true)}),
            "/content/agentServerUrl",
            "http://NEW",
            "/content/agentServerApiKey",
            false,
        ),
        case(
            "model",
            model("openai", "http://OLD/v1"),
            "/children/0/content/baseUrl",
            "http://NEW/v1",
            "/children/0/content/apiKey",
            true,
        ),
        case(
            "another path",
            model("openai", "http://OLD/v1"),
            "/children/0/content/baseUrl",
            "http://OLD/v2",
            "/children/0/content/apiKey",
            true,
        ),
        case(
            "to the operator's",
            model("openai", "http://OLD/v1"),
            "/children/0/content/baseUrl",
            "",
            "/children/0/content/apiKey",
            true,
        ),
        case(
            "Ollama",
            model("ollama", "http://OLD"),
            "/children/0/content/baseUrl",
            "http://NEW",
            "/children/0/content/apiKey",
            true,
        ),
        case(
            "password",
            workflow(json!({"type": "basic", "user": "ada", "password": KEY})),
            webhook,
            "http://NEW/webhook/chat",
            "/children/0/content/auth/password",
            false,
        ),
        case(
            "header",
            workflow(json!({"type": "header", "name": "X-Api-Key", "value": KEY})),
            webhook,
            "http://NEW/webhook/chat",
            "/children/0/content/auth/value",
            false,
        ),
        case(
            "signature",
            workflow(json!({"type": "jwt", "secret": KEY})),
            webhook,
            "http://NEW/webhook/chat",
            "/children/0/content/auth/secret",
            false,
        ),
    ]
}

/// Returns true if a request carries any credential.
fn has_key(received: &ReceivedRequest) -> bool {
    let head = received.head.to_ascii_lowercase();
    let body = String::from_utf8_lossy(&received.body);
    head.contains("\r\nauthorization:")
        || head.contains("\r\nx-api-key:")
        || body.contains(r#""apiKey""#)
        || head.contains(KEY)
        || body.contains(KEY)
}

async fn put(app: &Server, agent: &Value) -> Value {
    let request = app.request("PUT", PATH).bearer_auth(session_token("u1", "c1"));
    let response = request.json(agent).send().await.expect("an answer");
    let status = response.status();
    let text = response.text().await.expect("a whole body");
    assert!(status.is_success() && !text.contains(KEY), "{status} {text}");
    serde_json::from_str(&text).expect("JSON")
}

/// Sends one message and returns the response's status and the requests that the two servers received, whether or not
/// the run succeeds.
async fn chat(app: &Server, servers: [&Vendor; 2]) -> (u16, Vec<ReceivedRequest>) {
    let before = servers.map(|server| server.received().len());
    let response = app.chat(&json!({"agentId": "a1", "message": "hello"})).await;
    let status = response.status().as_u16();
    response.text().await.expect("a whole body");
    let news = servers.iter().zip(before).flat_map(|(server, before)| server.received().split_off(before));
    (status, news.collect())
}

/// Returns the agent as a client sends it back: with the key masked as in the response, or without it.
fn remove_key(mut agent: Value, key: &str, masked: bool) -> Value {
    let (object, field) = key.rsplit_once('/').expect("a pointer");
    let object = agent.pointer_mut(object).and_then(Value::as_object_mut).expect("an object");
    match masked {
        true => object.insert(field.to_owned(), "***".into()),
        false => object.remove(field),
    };
    agent
}

fn set_at_pointer(agent: &mut Value, pointer: &str, value: Value) {
    let (object, field) = pointer.rsplit_once('/').expect("a pointer");
    let object = agent.pointer_mut(object).and_then(Value::as_object_mut).expect("an object");
    match value {
        Value::Null => object.remove(field),
        value => object.insert(field.to_owned(), value),
    };
}

#[tokio::test]
async fn no_key_follows_an_address_that_is_changed() {
    let (old, new) = (Vendor::start().await, Vendor::start().await);
    for server in [&old, &new] {
        server.on("events", [empty_run()]);
    }
    let runtime = server::runtime(&[]).await;
    let operators = new.base_url();
    for case in cases() {
        let fill = |value: &Value| -> Value {
            let text = value.to_string().replace("OLD", &old.address.to_string());
            let text = text.replace("NEW", &new.address.to_string());
            serde_json::from_str(&text.replace("RUNTIME", &runtime.address.to_string())).expect("JSON")
        };
        for masked in [true, false] {
            let app = server::app(&json!({}), &[("OPENAI_BASE_URL", &*operators)]).await;
            let mut agent = fill(&case.agent);
            if agent.get("content").is_none() {
                agent["content"] = json!({});
            }
            agent["content"]["mcpPreset"] = "none".into();
            let shown = put(&app, &agent).await;
            let (status, received) = chat(&app, [&old, &new]).await;
            assert_eq!(status, 200, "{}", case.name);
            assert!(!received.is_empty() && received.iter().all(has_key), "{}: {received:?}", case.name);

            // Saving the agent unchanged keeps the key.
            let same = put(&app, &remove_key(shown.clone(), case.key, masked)).await;
            assert_eq!(same, shown, "{}", case.name);
            let (_, received) = chat(&app, [&old, &new]).await;
            assert!(!received.is_empty() && received.iter().all(has_key), "{}: {received:?}", case.name);

            let before = shown.pointer(case.moved.0).expect("the address").clone();
            let mut moved = remove_key(shown, case.key, masked);
            set_at_pointer(&mut moved, case.moved.0, fill(&case.moved.1));
            // The key is dropped at the new address, and does not come back with the old one.
            for address in [fill(&case.moved.1), before] {
                set_at_pointer(&mut moved, case.moved.0, address.clone());
                let saved = put(&app, &moved).await;
                assert_eq!(saved.pointer(case.key), None, "{}", case.name);
                let (status, received) = chat(&app, [&old, &new]).await;
                assert!(!received.iter().any(has_key), "{} at {address}: {received:?}", case.name);
                if case.answered {
                    assert_eq!((status, received.len()), (200, 1), "{} at {address}", case.name);
                }
            }
        }
    }
}
