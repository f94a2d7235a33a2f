//! Outbound address policy: each address form tried through each component that sends HTTP requests.

mod fallbacks;
mod moved;
mod table;

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

use reqwest::{Client, Response};
use serde_json::{Value, json};

use self::table::{
    INVALID_URLS, NON_PUBLIC_HOSTS, NON_PUBLIC_NAMES, PUBLIC_NAMES, PUBLIC_URLS, REFUSED_URLS,
};
use crate::support::fake_network::FakeNetwork;
use crate::support::server::{self, Server, session_token};
use crate::support::tool_server::{FakeMcpServer, McpRevision};
use crate::support::vendor::{Vendor, answer, empty_run, json_response, n8n, tool_calls};
use crate::support::{client, parse_events};

/// A component that sends to an address taken from a role or a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutboundCaller {
    /// The application, to the `agentServerUrl` of a role's content or of its `AgentServer` container.
    AgentServer,
    AgentServerContainer,
    /// The runtime, to the `agentServerLocalUrl` forwarded by the application.
    BehindRuntime,
    /// The application's own model calls, to the `baseUrl` of an `EmbeddedAI` container.
    OpenAi,
    Ollama,
    /// The application, to a `webhookUrl`.
    Workflow,
    /// The runtime, to the `baseUrl` or the `mcpServerUrl` of a request.
    RuntimeOpenAi,
    RuntimeOllama,
    RuntimeTools,
}

const OUTBOUND_CALLERS: [OutboundCaller; 9] = [
    OutboundCaller::AgentServer,
    OutboundCaller::AgentServerContainer,
    OutboundCaller::BehindRuntime,
    OutboundCaller::OpenAi,
    OutboundCaller::Ollama,
    OutboundCaller::Workflow,
    OutboundCaller::RuntimeOpenAi,
    OutboundCaller::RuntimeOllama,
    OutboundCaller::RuntimeTools,
];

impl OutboundCaller {
    /// Returns the content and the containers of an agent that makes this caller send to `url`; `None` for callers
    /// that are reached by a direct request to the runtime.
    fn agent(self, url: &str, runtime: &str) -> Option<(Value, Value)> {
        let model = |provider| json!({"provider": provider, "model": "m", "baseUrl": url});
        let server = |url, more: Value| {
            let mut content = json!({"agentServerUrl": url, "agentServerProvider": "openai",
                "agentServerModel": "events"});
            content.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
            content
        };
        let alone = |name, content| (json!({}), json!([{"name": name, "content": content}]));
        Some(match self {
            Self::AgentServer => (server(url, json!({})), json!([])),
            Self::AgentServerContainer => alone("AgentServer", server(url, json!({}))),
            Self::BehindRuntime => {
                let more = json!({"agentServerLocalUrl": url, "agentServerModel": "m"});
                (server(runtime, more), json!([]))
            }
            Self::OpenAi => alone("EmbeddedAI", model("openai")),
            Self::Ollama => alone("EmbeddedAI", model("ollama")),
            Self::Workflow => alone("WorkflowConnector", json!({"webhookUrl": url})),
            Self::RuntimeOpenAi | Self::RuntimeOllama | Self::RuntimeTools => return None,
        })
    }

    /// Builds the body of a request that makes the runtime send to `url`.
    fn request(self, url: &str) -> Value {
        let messages = json!([{"role": "user", "content": "hello"}]);
        match self {
            Self::RuntimeTools => json!({"provider": "openai", "model": "caller", "messages": messages,
                "tools": [{"name": "look"}], "mcpServerUrl": url}),
            Self::RuntimeOllama => {
                json!({"provider": "ollama", "model": "m", "messages": messages, "baseUrl": url})
            }
            _ => json!({"provider": "openai", "model": "m", "messages": messages, "baseUrl": url}),
        }
    }
}

/// Both services, a model vendor and a messenger configured by the operator, and one agent for each pair of address
/// and caller.
struct AddressTestServices {
    client: Client,
    vendor: Vendor,
    /// The messenger API, also configured by the operator.
    messenger: Vendor,
    app: Server,
    runtime: Server,
    network: Arc<FakeNetwork>,
    urls: Vec<String>,
}

impl AddressTestServices {
    /// Starts the services on a fake network, with an agent for each of `urls` and `OUTBOUND_ALLOW` set to `allow`.
    async fn start(urls: Vec<String>, allow: &str) -> Self {
        let (vendor, messenger) = (Vendor::start().await, Vendor::start().await);
        vendor.on("events", [empty_run()]);
        let network = FakeNetwork::new(&[NON_PUBLIC_NAMES, PUBLIC_NAMES].concat(), vendor.address);
        let vendor_url = vendor.base_url();
        let messenger_url = messenger.base_url();
        let settings = [
            ("OUTBOUND_ALLOW", allow),
            ("OPENAI_BASE_URL", &*vendor_url),
            ("OPENAI_API_KEY", "key-canary"),
            ("MESSENGER_API_URL", &*messenger_url),
        ];
        let mut config = server::runtime_config(&settings);
        config.server.outbound.network = network.clone();
        let runtime = server::runtime_with_config(config).await;
        let runtime_url = runtime.url("");
        let mut agents = Vec::new();
        for (index, url) in urls.iter().enumerate() {
            vendor.on(&format!("Workflow-{index}"), [n8n::answer(&["hello"])]);
            for caller in OUTBOUND_CALLERS {
                let Some((mut content, children)) = caller.agent(url, &runtime_url) else { continue };
                content["mcpPreset"] = "none".into();
                agents.push(json!({"id": format!("{caller:?}-{index}"), "ownerId": "u1", "companyId": "c1",
                    "content": content, "children": children}));
            }
        }
        let stores = server::stores(&json!({"agents": agents})).await;
        let mut config = server::app_config(&[("OUTBOUND_ALLOW", allow), ("RUNTIME_URL", &runtime_url)]);
        config.server.outbound.network = network.clone();
        let app = server::app_with_config(config, stores).await;
        Self { client: client(), vendor, messenger, app, runtime, network, urls }
    }

    /// Makes a caller send to the address at an index.
    async fn send_from(&self, caller: OutboundCaller, index: usize) -> Response {
        let request = if caller.agent("", "").is_some() {
            let agent = format!("{caller:?}-{index}");
            let request =
                self.client.post(self.app.url("/api/agent/chat")).bearer_auth(session_token("u1", "c1"));
            request.json(&json!({"agentId": agent, "message": "hello"}))
        } else {
            // The runtime connects to the tool server only when a tool is called.
            self.vendor.on("caller", [tool_calls(&[("c1", "look", "{}")]), answer(&["done"])]);
            self.client.post(self.runtime.url("/chat")).json(&caller.request(&self.urls[index]))
        };
        request.send().await.expect("an answer")
    }

    /// Takes the addresses connected to since the last call, without the operator's own runtime and vendor.
    fn take_connections(&self) -> BTreeSet<String> {
        let operator_addresses = [self.runtime.address.to_string(), self.vendor.address.to_string()];
        self.network.take_connections().into_iter().filter(|to| !operator_addresses.contains(to)).collect()
    }
}

/// Returns `Ok` if the response reports that the address is blocked, or invalid where `readable` is false. For a tool
/// server whose address can be blocked only after the DNS lookup, the refusal is a tool result with `isError`.
async fn expect_refused(caller: OutboundCaller, response: Response, readable: bool) -> Result<(), String> {
    let status = response.status().as_u16();
    let body = response.text().await.expect("a whole body");
    if status == 200 && caller == OutboundCaller::RuntimeTools {
        let failed = |event: &Value| {
            event["type"] == "TOOL_CALL_RESULT" && event["metadata"] == json!({"isError": true})
        };
        return if parse_events(&body).iter().any(failed) { Ok(()) } else { Err(body) };
    }
    let problem: Value = serde_json::from_str(&body).map_err(|_| format!("{status} {body}"))?;
    match (status, problem["code"].as_str()) {
        (403, Some("OUTBOUND_BLOCKED")) => Ok(()),
        (400, Some("INVALID_REQUEST")) if !readable => Ok(()),
        // The same refusal by the runtime; the application does not forward its code.
        (502, Some("BACKEND_FAILED")) if !readable && caller == OutboundCaller::BehindRuntime => Ok(()),
        _ => Err(body),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_component_connects_to_an_address_that_is_not_public() {
    let trap = Vendor::start().await;
    let port = trap.address.port().to_string();
    let (hosts, names) = (NON_PUBLIC_HOSTS.iter().copied(), NON_PUBLIC_NAMES.iter().map(|(name, _)| *name));
    let forms: BTreeSet<String> = hosts
        .chain(names)
        .map(|host| format!("http://{host}:PORT/v1"))
        .chain(REFUSED_URLS.iter().map(|url| (*url).to_owned()))
        .collect();
    assert!(forms.len() >= 150, "{}", forms.len());
    let readable = forms.len();
    let forms = forms.into_iter().chain(INVALID_URLS.iter().map(|url| (*url).to_owned()));
    let urls = forms.map(|url| url.replace("PORT", &port).replace("P\tORT", &port)).collect();
    let setting = AddressTestServices::start(urls, "").await;
    let mut faults = Vec::new();
    for (index, url) in setting.urls.iter().enumerate() {
        for caller in OUTBOUND_CALLERS {
            let response = setting.send_from(caller, index).await;
            // The runtime rejects an address with any control character as invalid.
            let readable = index < readable && !url.contains(char::is_control);
            if let Err(answer) = expect_refused(caller, response, readable).await {
                faults.push(format!("{caller:?} {url:?}: {answer}"));
            }
        }
        let connected = setting.take_connections();
        if !connected.is_empty() {
            faults.push(format!("{url:?} was connected to: {connected:?}"));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert_eq!(trap.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_component_connects_to_public_addresses() {
    let setting =
        AddressTestServices::start(PUBLIC_URLS.iter().map(|(url, _)| (*url).to_owned()).collect(), "").await;
    for (index, (url, address)) in PUBLIC_URLS.iter().enumerate() {
        for caller in OUTBOUND_CALLERS {
            let response = setting.send_from(caller, index).await;
            let status = response.status().as_u16();
            response.text().await.expect("a whole body");
            // The server behind the fake network does not speak TLS.
            let expected =
                if url.starts_with("https") && caller != OutboundCaller::RuntimeTools { 502 } else { 200 };
            assert_eq!(status, expected, "{caller:?} {url}");
        }
        assert_eq!(setting.take_connections(), BTreeSet::from([(*address).to_owned()]), "{url}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let trap = Vendor::start().await;
    let tools = FakeMcpServer::start(McpRevision::Stateless).await;
    let vendor = Vendor::start().await;
    let allow = format!("{},{}", vendor.address, tools.url("").split('/').nth(2).expect("a host"));
    // The vendor's scripts are selected by model name, agent id or path; the tool server's by method.
    let (of_model, of_tools) = (vendor.base_url(), tools.url("token-canary"));
    let setting = AddressTestServices::start(vec![of_model, of_tools], &allow).await;
    for status in
        ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
    {
        let to = format!("location: http://{}/moved?from=canary\r\n", trap.address);
        for subject in ["m", "events", "Workflow-0"] {
            vendor.on(subject, [json_response(status, &to, "")]);
        }
        for method in ["server/discover", "initialize", "look"] {
            tools.on(method, [json_response(status, &to, "")]);
        }
        for caller in OUTBOUND_CALLERS {
            let response =
                setting.send_from(caller, usize::from(caller == OutboundCaller::RuntimeTools)).await;
            assert!(!response.headers().contains_key("location"), "{caller:?} {status}");
            let expected = if caller == OutboundCaller::RuntimeTools { 200 } else { 502 };
            assert_eq!(response.status(), expected, "{caller:?} {status}");
            let body = response.text().await.expect("a whole body");
            assert!(!body.contains("canary"), "{caller:?} {status}: {body}");
        }
    }
    assert!(vendor.connections() > 0 && !tools.received().is_empty(), "they were asked");
    assert_eq!(trap.connections(), 0);
}

#[tokio::test]
async fn an_allowed_address_is_allowed_in_other_spellings_but_not_by_name() {
    let vendor = Vendor::start().await;
    let port = vendor.address.port();
    let urls: Vec<_> =
        ["127.0.0.1", "0x7f.1", "[::ffff:127.0.0.1]", "localhost", "127.0.0.2", "loopback.example"]
            .map(|host| format!("http://{host}:{port}/v1"))
            .into();
    let allowed = 3;
    let setting = AddressTestServices::start(urls, &format!("127.0.0.1:{port}")).await;
    for (index, url) in setting.urls.iter().enumerate() {
        for caller in [OutboundCaller::OpenAi, OutboundCaller::RuntimeOpenAi, OutboundCaller::BehindRuntime] {
            let response = setting.send_from(caller, index).await;
            if index < allowed {
                assert_eq!(response.status(), 200, "{caller:?} {url}");
            } else {
                expect_refused(caller, response, true)
                    .await
                    .unwrap_or_else(|answer| panic!("{url}: {answer}"));
            }
        }
    }
}

#[tokio::test]
async fn an_address_of_the_operators_is_open_only_for_its_own_use() {
    // The first setting provides the service addresses that the second one uses in every other place.
    let first = AddressTestServices::start(Vec::new(), "").await;
    let (runtime, vendor) = (first.runtime.url(""), first.vendor.base_url());
    let setting = AddressTestServices::start(vec![runtime, vendor], "").await;
    for index in 0..2 {
        for caller in OUTBOUND_CALLERS {
            let answer = expect_refused(caller, setting.send_from(caller, index).await, true).await;
            assert_eq!(answer, Ok(()), "{caller:?} {}", setting.urls[index]);
        }
    }
    // The operator's address is allowed only for its own purpose: the vendor is the runtime's OpenAI model, so it is
    // refused as a webhook, as another protocol's model and as a tool server.
    let urls = vec![first.vendor.base_url(), first.runtime.url(""), first.messenger.base_url()];
    let operator_services = AddressTestServices { urls, ..first };
    for (caller, index) in [
        (OutboundCaller::RuntimeOllama, 0),
        (OutboundCaller::RuntimeTools, 0),
        (OutboundCaller::RuntimeOpenAi, 1),
        (OutboundCaller::RuntimeTools, 1),
        (OutboundCaller::RuntimeOpenAi, 2),
        (OutboundCaller::RuntimeOllama, 2),
        (OutboundCaller::RuntimeTools, 2),
    ] {
        let answer = expect_refused(caller, operator_services.send_from(caller, index).await, true).await;
        assert_eq!(answer, Ok(()), "{caller:?} {}", operator_services.urls[index]);
    }
    assert_eq!(operator_services.messenger.connections(), 0);
    assert_eq!(
        operator_services.send_from(OutboundCaller::RuntimeOpenAi, 0).await.status(),
        200,
        "the vendor is the operator's model"
    );
}

/// Environment variable with the address of the listener that must not be used as a proxy.
const PROXY_ENV: &str = "ADDRESS_TEST_PROXY";

#[tokio::test]
async fn no_proxy_is_taken_from_the_environment() {
    let trap = Vendor::start().await;
    let proxy = format!("http://{}", trap.address);
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child
        .args(["--exact", "address::sends_with_proxies_in_the_environment", "--ignored"])
        .env(PROXY_ENV, &proxy);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        child.env(name, &proxy).env(name.to_lowercase(), &proxy);
    }
    child.env_remove("NO_PROXY").env_remove("no_proxy");
    let child_output =
        tokio::task::spawn_blocking(move || child.output()).await.expect("it runs").expect("started");
    let stdout = String::from_utf8_lossy(&child_output.stdout).into_owned();
    assert!(child_output.status.success() && stdout.contains("1 passed"), "{stdout}");
    assert_eq!(trap.connections(), 0);
}

#[tokio::test]
#[ignore = "the child of the test above"]
async fn sends_with_proxies_in_the_environment() {
    assert!(std::env::var(PROXY_ENV).is_ok(), "the test above says where the proxy is");
    let urls = ["http://public.example/", "https://public.example/", "http://8.8.8.8/"];
    let setting = AddressTestServices::start(urls.map(str::to_owned).into(), "").await;
    let expected = BTreeSet::from(["93.184.215.14:80", "93.184.215.14:443", "8.8.8.8:80"].map(str::to_owned));
    for (index, url) in urls.iter().enumerate() {
        for caller in OUTBOUND_CALLERS {
            let response = setting.send_from(caller, index).await;
            let status = response.status();
            response.text().await.expect("a whole body");
            assert!(status == 200 || url.starts_with("https"), "{caller:?} {url}: {status}");
        }
    }
    assert_eq!(setting.take_connections(), expected);
}
