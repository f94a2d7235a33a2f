//! The subjects of the measurements and their configuration.
//!
//! To add a subject: write a function `fn(&Bench) -> Result<RunningSubject>` that starts its processes, waits until
//! they are ready and returns the requests to send, and list it in [`SUBJECTS`] with its limits.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::answer::{Behaviour, TOOL};
use crate::load::{ExchangeSteps, Step};
use crate::measure::{BEHAVIOURS, Measurement};
use crate::process::Process;
use crate::subscription;
use crate::table::Limit;
use crate::wire::{Expected, Wire};

pub(crate) const USER: &str = "bench-user";
pub(crate) const COMPANY: &str = "bench-company";
pub(crate) const TODO_LIST: &str = "bench-todos";
/// Title of the only todo in the list; it must appear in the tool's result.
const TODO: &str = "Water the plants";
pub(crate) const API_KEY: &str = "bench-key";
pub(crate) const MESSAGE: &str = "What is there to do?";
/// Secret of the sessions.
pub const SESSION_SECRET: &str = "bench-session-secret-0123456789abcdef";
/// Key under which stored secrets are sealed.
pub const DATA_SECRET: &str = "bench-data-secret-0123456789abcdef";
pub(crate) const TOKEN_TTL: Duration = Duration::from_secs(3600);
/// Value of settings that limit the rate of requests, which the load would exceed.
pub(crate) const UNLIMITED: &str = "1000000000";
/// Number of worker threads, the same as in the references.
pub const WORKER_THREADS: &str = "2";

/// A subject of the measurements.
pub struct Subject {
    /// Name in the table.
    pub name: &'static str,
    /// Starts the subject's processes and waits until they are ready.
    pub start: fn(&Bench) -> Result<RunningSubject>,
    /// The measurements to run and the limit of each figure.
    pub limits: &'static [(Measurement, Limit)],
}

/// The reference that every subject is compared with.
pub const REFERENCE: Subject = Subject { name: "bare hyper proxy", start: bare_proxy, limits: &[] };

const BURST_8: Measurement = Measurement::Burst { connections: 8 };
const BURST_64: Measurement = Measurement::Burst { connections: 64 };

/// Name of the subject that the long way of a tool call is compared with.
const EMBEDDED: &str = "application, embedded backend";
/// Name of the subject that the subscription backend is compared with.
const AGENT_SERVER: &str = "application and runtime";

/// The services under test.
pub const SUBJECTS: [Subject; 7] = [
    Subject {
        name: "runtime",
        start: runtime,
        limits: &[
            (BURST_8, Limit::Ratio(0.5)),
            (BURST_64, Limit::Ratio(0.5)),
            (Measurement::Paced, Limit::Ratio(1.15)),
            (Measurement::FirstToken, Limit::Ratio(1.3)),
            (Measurement::FirstTokenTail, Limit::Ratio(1.5)),
            (Measurement::Memory, Limit::Figure(32.0)),
            (Measurement::MemoryAtRest, Limit::Figure(15.0)),
            (Measurement::MemoryAfterChats, Limit::Figure(25.0)),
        ],
    },
    Subject {
        name: EMBEDDED,
        start: application_embedded,
        limits: &[
            (BURST_8, Limit::Ratio(0.5)),
            (BURST_64, Limit::Ratio(0.5)),
            (Measurement::LongBurst, Limit::Ratio(0.5)),
            (Measurement::Paced, Limit::Ratio(1.15)),
            (Measurement::FirstToken, Limit::Ratio(1.3)),
            (Measurement::FirstTokenTail, Limit::Ratio(1.5)),
            (Measurement::Memory, Limit::Figure(32.0)),
            (Measurement::MemoryAtRest, Limit::Figure(20.0)),
            (Measurement::MemoryAfterChats, Limit::Figure(40.0)),
            (Measurement::ToolExchange, Limit::Ratio(3.0)),
        ],
    },
    // The same agents, with runs that are stored: the costs of threads and of logs.
    Subject {
        name: "application, embedded backend, stored",
        start: application_stored,
        limits: &[
            (BURST_8, Limit::RatioTo { subject: EMBEDDED, most: 3.0 }),
            (Measurement::LongBurst, Limit::RatioTo { subject: EMBEDDED, most: 1.15 }),
            (Measurement::Paced, Limit::RatioTo { subject: EMBEDDED, most: 1.1 }),
            (Measurement::FirstToken, Limit::RatioTo { subject: EMBEDDED, most: 1.05 }),
            (Measurement::Memory, Limit::Figure(32.0)),
        ],
    },
    Subject {
        name: AGENT_SERVER,
        start: application_and_runtime,
        limits: &[
            (BURST_8, Limit::Ratio(1.0)),
            (BURST_64, Limit::Ratio(1.0)),
            (Measurement::Paced, Limit::Ratio(2.2)),
            (Measurement::FirstToken, Limit::Ratio(2.5)),
            (Measurement::ToolExchange, Limit::RatioTo { subject: EMBEDDED, most: 1.8 }),
        ],
    },
    // The same processes; the tool loop is the application's.
    Subject {
        name: "application and runtime, subscription backend",
        start: subscription::start,
        limits: &[(Measurement::FirstToken, Limit::RatioTo { subject: AGENT_SERVER, most: 1.05 })],
    },
    // The limits are 1.3 times those of the runtime.
    Subject {
        name: "application, workflow backend",
        start: application_workflow,
        limits: &[
            (BURST_8, Limit::Ratio(0.65)),
            (BURST_64, Limit::Ratio(0.65)),
            (Measurement::Paced, Limit::Ratio(1.5)),
            (Measurement::FirstToken, Limit::Ratio(1.7)),
        ],
    },
    Subject {
        name: "coding proxy",
        start: coding_proxy,
        limits: &[
            (BURST_8, Limit::Ratio(0.5)),
            (BURST_64, Limit::Ratio(0.5)),
            (Measurement::Paced, Limit::Ratio(1.15)),
        ],
    },
];

const NOISE: [(Measurement, Limit); 9] = [
    (BURST_8, Limit::None),
    (BURST_64, Limit::None),
    (Measurement::Paced, Limit::None),
    (Measurement::FirstToken, Limit::None),
    (Measurement::FirstTokenTail, Limit::None),
    (Measurement::Memory, Limit::None),
    (Measurement::MemoryAtRest, Limit::None),
    (Measurement::MemoryAfterChats, Limit::None),
    (Measurement::ToolExchange, Limit::None),
];

/// Subjects that measure the harness: the reference against itself, whose ratios show the noise, and the vendor
/// without a proxy.
pub const CONTROLS: [Subject; 2] = [
    Subject { name: "bare hyper proxy again", start: bare_proxy, limits: &NOISE },
    Subject { name: "mock vendor, no proxy", start: vendor_alone, limits: &NOISE },
];

/// Paths of the programs that the subjects run.
#[derive(Debug)]
pub struct Programs {
    /// The mock vendor.
    pub upstream: PathBuf,
    /// The reference.
    pub bare_proxy: PathBuf,
    /// The product; absent if only the controls are run.
    pub agentd: Option<PathBuf>,
}

/// Resources shared by all subjects: the mock vendor and a directory for files.
#[derive(Debug)]
pub struct Bench {
    programs: Programs,
    pub(crate) upstream: SocketAddr,
    /// Kept so that the process is killed on drop.
    _upstream: Process,
    pub(crate) scratch: TempDir,
}

impl Bench {
    /// Starts the mock vendor.
    ///
    /// # Errors
    /// The mock vendor could not be started.
    pub fn start(programs: Programs) -> Result<Self> {
        let scratch = tempfile::tempdir()?;
        let (process, upstream) = Process::start_announced(Command::new(&programs.upstream), scratch.path())?;
        Ok(Self { programs, upstream, _upstream: process, scratch })
    }

    /// Returns the address of the mock vendor.
    pub fn vendor(&self) -> SocketAddr {
        self.upstream
    }

    /// Returns the vendor's base URL, as OpenAI clients expect it.
    pub(crate) fn vendor_url(&self) -> String {
        format!("http://{}/v1", self.upstream)
    }

    /// Returns a command that runs `agentd` with `arguments` and an empty environment, in a new directory, since the
    /// default store's path is relative to the working directory.
    pub(crate) fn agentd(&self, arguments: &[&str]) -> Result<Command> {
        self.command(self.programs.agentd.as_ref().context("no agentd to measure")?, arguments)
    }

    /// Returns a command like [`agentd`](Self::agentd) that runs another program.
    pub(crate) fn command(&self, program: &Path, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(program);
        let folder = tempfile::tempdir_in(self.scratch.path())?.keep();
        command.args(arguments).env_clear().current_dir(folder);
        command.env("TOKIO_WORKER_THREADS", WORKER_THREADS).env("SESSION_SECRET", SESSION_SECRET);
        Ok(command)
    }

    /// Starts one of `agentd`'s services at `address` and waits until it is ready. `allow` lists the addresses that URLs
    /// in roles and requests may name.
    pub(crate) fn service(
        &self,
        mut command: Command,
        address: SocketAddr,
        allow: &[SocketAddr],
    ) -> Result<Process> {
        let allow: Vec<_> = allow.iter().map(SocketAddr::to_string).collect();
        command.env("HOST", address.ip().to_string()).env("PORT", address.port().to_string());
        command.env("OUTBOUND_ALLOW", allow.join(","));
        let mut process = Process::start(command, self.scratch.path())?;
        process.wait_until(|| is_ready(address))?;
        Ok(process)
    }

    /// Starts a runtime that may call the vendor and the tool servers at `tools`.
    fn start_runtime(&self, tools: &[SocketAddr]) -> Result<(Process, SocketAddr)> {
        let (address, allow) = (free_address()?, [&[self.upstream][..], tools].concat());
        Ok((self.service(self.agentd(&["runtime"])?, address, &allow)?, address))
    }

    /// Starts the runtime with another program than `agentd`, which must read the same settings.
    ///
    /// # Errors
    /// The runtime could not be started.
    pub fn start_runtime_with(&self, program: &Path, arguments: &[&str]) -> Result<RunningSubject> {
        let address = free_address()?;
        let process = self.service(self.command(program, arguments)?, address, &[self.upstream])?;
        Ok(RunningSubject { processes: vec![process], address, exchange: runtime_exchange(self) })
    }

    /// Starts the application at `address` with `agents` in its workspace, and creates a session token of their owner.
    fn start_application(
        &self,
        address: SocketAddr,
        agents: Vec<Value>,
        allow: &[SocketAddr],
    ) -> Result<(Process, String)> {
        self.start_application_with(address, agents, allow, &[])
    }

    /// Starts the application as [`start_application`](Self::start_application) does, with further settings.
    pub(crate) fn start_application_with(
        &self,
        address: SocketAddr,
        agents: Vec<Value>,
        allow: &[SocketAddr],
        settings: &[(&str, &str)],
    ) -> Result<(Process, String)> {
        let workspace = self.file(&workspace_of(agents))?;
        let mut command = self.agentd(&["app"])?;
        command.env("DATA_SECRET", DATA_SECRET).envs(settings.iter().copied());
        for limit in ["MCP_REQUESTS_PER_MINUTE", "RUNS_PER_MINUTE", "CHANGES_PER_MINUTE"] {
            command.env(limit, UNLIMITED);
        }
        for limit in ["RUNS_PER_MINUTE_COMPANY", "CONCURRENT_RUNS_COMPANY"] {
            command.env(limit, UNLIMITED);
        }
        let folder = command.get_current_dir().context("agentd runs in a folder of its own")?;
        let mut import = self.agentd(&["import"])?;
        import.arg(&workspace).env("DATA_SECRET", DATA_SECRET).current_dir(folder);
        last_output_line(&mut import)?;
        let process = self.service(command, address, allow)?;
        let token = last_output_line(&mut self.agentd(&[
            "token",
            "session",
            "--user",
            USER,
            "--company",
            COMPANY,
        ])?)?;
        Ok((process, token))
    }

    pub(crate) fn file(&self, content: &Value) -> Result<PathBuf> {
        let (mut file, path) =
            tempfile::Builder::new().suffix(".json").tempfile_in(self.scratch.path())?.keep()?;
        file.write_all(content.to_string().as_bytes())?;
        Ok(path)
    }
}

/// Runs a command and returns the last line of its output.
fn last_output_line(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8(output.stdout)?;
    Ok(stdout.lines().last().context("nothing was printed")?.to_owned())
}

/// Returns a workspace file with `agents`, their owner, and the todo list that the tool reads.
pub(crate) fn workspace_of(agents: Vec<Value>) -> Value {
    json!({
        "users": [{"id": USER, "companyId": COMPANY, "timezone": "Europe/Berlin"}],
        "agents": agents,
        "todoLists": [{
            "id": TODO_LIST, "ownerId": USER, "companyId": COMPANY, "name": "Home",
            "todos": [{"id": "todo-1", "title": TODO, "done": false}],
        }],
    })
}

/// A running subject. Dropping it kills its processes.
pub struct RunningSubject {
    /// The subject's processes; CPU time and memory are their totals.
    pub processes: Vec<Process>,
    /// Address that requests are sent to.
    pub address: SocketAddr,
    /// Returns the requests of one exchange.
    pub(crate) exchange: Box<dyn Fn(Behaviour) -> Vec<Step>>,
}

impl RunningSubject {
    /// Returns the requests and expected responses of one exchange of `behaviour`.
    pub fn steps(&self, behaviour: Behaviour) -> ExchangeSteps {
        (self.exchange)(behaviour).into()
    }
}

fn bare_proxy(bench: &Bench) -> Result<RunningSubject> {
    let mut command = Command::new(&bench.programs.bare_proxy);
    command.arg(bench.upstream.to_string());
    let (process, address) = Process::start_announced(command, bench.scratch.path())?;
    Ok(RunningSubject { processes: vec![process], address, exchange: Box::new(vendor_exchange) })
}

fn vendor_alone(bench: &Bench) -> Result<RunningSubject> {
    let command = Command::new(&bench.programs.upstream);
    let (process, address) = Process::start_announced(command, bench.scratch.path())?;
    Ok(RunningSubject { processes: vec![process], address, exchange: Box::new(vendor_exchange) })
}

/// Starts the runtime, measured by `POST /chat` with the ten fields of its contract.
fn runtime(bench: &Bench) -> Result<RunningSubject> {
    let (process, address) = bench.start_runtime(&[])?;
    Ok(RunningSubject { processes: vec![process], address, exchange: runtime_exchange(bench) })
}

fn runtime_exchange(bench: &Bench) -> Box<dyn Fn(Behaviour) -> Vec<Step>> {
    let (vendor, mcp) = (bench.vendor_url(), format!("http://{}/mcp", bench.upstream));
    Box::new(move |behaviour: Behaviour| {
        let body = json!({
            "messages": [{"role": "user", "content": MESSAGE}],
            "systemPrompt": "You are an assistant.",
            "provider": "openai",
            "model": behaviour.to_string(),
            "enableThinking": false,
            "tools": [],
            "mcpServerUrl": mcp,
            "context": {
                "userId": USER, "agentId": "agent", "threadId": "thread", "runId": "run", "caller": "session",
            },
            "baseUrl": vendor,
            "apiKey": API_KEY,
        });
        vec![event_step("/chat", None, &body, behaviour)]
    })
}

/// Starts the runtime, measured by `POST /coding-chat`, which passes the vendor's stream on byte for byte.
fn coding_proxy(bench: &Bench) -> Result<RunningSubject> {
    let address = free_address()?;
    let mut command = bench.agentd(&["runtime"])?;
    command.env("CODING_API_URL", format!("{}/chat/completions", bench.vendor_url()));
    let process = bench.service(command, address, &[])?;
    Ok(RunningSubject { processes: vec![process], address, exchange: Box::new(coding_exchange) })
}

/// Returns a request whose response is the vendor's. The body has the members that the proxy requires and that the vendor
/// reads.
fn coding_exchange(behaviour: Behaviour) -> Vec<Step> {
    let body = json!({
        "accessToken": API_KEY,
        "accountId": USER,
        "body": {
            "model": behaviour.to_string(), "stream": true, "store": false,
            "messages": [{"role": "user", "content": MESSAGE}],
        },
    });
    let request = post("/coding-chat", "text/event-stream", "", &body);
    let expected = Expected { text: behaviour.text(), ..Expected::default() };
    vec![Step { request, wire: Wire::ChatCompletions, expected }]
}

/// Starts the application, measured by `POST /api/agent/chat` with an embedded backend.
fn application_embedded(bench: &Bench) -> Result<RunningSubject> {
    let vendor = bench.vendor_url();
    let agent = |behaviour: Behaviour| {
        let container = json!({
            "provider": "openai", "model": behaviour.to_string(), "baseUrl": vendor, "apiKey": API_KEY,
        });
        role(behaviour, json!({}), json!([{"name": "EmbeddedAI", "content": container}]))
    };
    let agents = BEHAVIOURS.into_iter().map(agent).collect();
    let address = free_address()?;
    let (process, token) = bench.start_application(address, agents, &[bench.upstream])?;
    Ok(RunningSubject { processes: vec![process], address, exchange: application_exchange(token) })
}

/// Starts the application as [`application_embedded`] does; each run is stored in a separate thread.
fn application_stored(bench: &Bench) -> Result<RunningSubject> {
    let RunningSubject { processes, address, exchange } = application_embedded(bench)?;
    let stored = move |behaviour| {
        let keep = |step: Step| Step { request: with_query(&step.request, "store=true"), ..step };
        exchange(behaviour).into_iter().map(keep).collect()
    };
    Ok(RunningSubject { processes, address, exchange: Box::new(stored) })
}

/// Adds a query to a request whose target has none.
fn with_query(request: &[u8], query: &str) -> Vec<u8> {
    let end = request.windows(6).position(|bytes| bytes == b" HTTP/").unwrap_or_default();
    [&request[..end], b"?", query.as_bytes(), &request[end..]].concat()
}

/// Starts the application and the runtime, measured by `POST /api/agent/chat`: application to runtime to vendor, and for
/// a tool call from the runtime back to the application over MCP.
fn application_and_runtime(bench: &Bench) -> Result<RunningSubject> {
    let address = free_address()?;
    let (runtime, runtime_address) = bench.start_runtime(&[address])?;
    let vendor = bench.vendor_url();
    let agent = |behaviour: Behaviour| {
        let backend = json!({
            "agentServerUrl": format!("http://{runtime_address}"), "agentServerProvider": "openai",
            "agentServerModel": behaviour.to_string(), "agentServerEnableThinking": false,
            "agentServerLocalUrl": vendor, "agentServerApiKey": API_KEY,
        });
        role(behaviour, backend, json!([]))
    };
    let agents = BEHAVIOURS.into_iter().map(agent).collect();
    let (application, token) = bench.start_application(address, agents, &[runtime_address])?;
    Ok(RunningSubject {
        processes: vec![application, runtime],
        address,
        exchange: application_exchange(token),
    })
}

/// Starts the application, measured by `POST /api/agent/chat` with a workflow backend, which the mock vendor plays.
fn application_workflow(bench: &Bench) -> Result<RunningSubject> {
    let agent = |behaviour: Behaviour| {
        let webhook = format!("http://{}/webhook/{behaviour}", bench.upstream);
        let container = json!({"name": "WorkflowConnector", "content": {"webhookUrl": webhook}});
        role(behaviour, json!({}), json!([container]))
    };
    let agents = BEHAVIOURS.into_iter().map(agent).collect();
    let address = free_address()?;
    let (process, token) = bench.start_application(address, agents, &[bench.upstream])?;
    Ok(RunningSubject { processes: vec![process], address, exchange: application_exchange(token) })
}

/// Returns a role block whose agent responds with `behaviour`. Only the tool exchange's agent has a tool, since the
/// reference sends none either.
pub(crate) fn role(behaviour: Behaviour, backend: Value, children: Value) -> Value {
    let tools = if behaviour == Behaviour::Tool { json!([TOOL]) } else { json!([]) };
    let mut content = json!({"systemPrompt": "You are an assistant.", "mcpPreset": [], "tools": tools});
    if let (Value::Object(content), Value::Object(backend)) = (&mut content, backend) {
        content.extend(backend);
    }
    json!({
        "id": format!("agent-{behaviour}"), "name": "Bench", "ownerId": USER, "companyId": COMPANY,
        "content": content, "children": children,
    })
}

pub(crate) fn application_exchange(token: String) -> Box<dyn Fn(Behaviour) -> Vec<Step>> {
    Box::new(move |behaviour| {
        let body = json!({
            "agentId": format!("agent-{behaviour}"), "message": MESSAGE, "todoListId": TODO_LIST,
        });
        vec![event_step("/api/agent/chat", Some(&token), &body, behaviour)]
    })
}

/// Returns one request whose response is a whole run, including the tool call.
fn event_step(path: &str, token: Option<&str>, body: &Value, behaviour: Behaviour) -> Step {
    let called = behaviour == Behaviour::Tool;
    let expected = Expected {
        text: behaviour.text(),
        tool: called.then_some(TOOL),
        tool_result: called.then_some(TODO),
    };
    Step { request: post(path, "application/x-ndjson", &bearer(token), body), wire: Wire::AgUi, expected }
}

/// Returns requests to the vendor: one, or two for the tool exchange, the second with the tool's result.
fn vendor_exchange(behaviour: Behaviour) -> Vec<Step> {
    let step = |messages: Value, expected| {
        let body = json!({
            "model": behaviour.to_string(), "stream": true, "stream_options": {"include_usage": true},
            "messages": messages,
        });
        let request = post("/v1/chat/completions", "text/event-stream", &bearer(Some(API_KEY)), &body);
        Step { request, wire: Wire::ChatCompletions, expected }
    };
    let asked = json!({"role": "user", "content": MESSAGE});
    let answered = Expected { text: behaviour.text(), ..Expected::default() };
    if behaviour != Behaviour::Tool {
        return vec![step(json!([asked]), answered)];
    }
    let function = json!({"name": TOOL, "arguments": "{}"});
    let call = json!({
        "role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    });
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": TODO});
    let called = Expected { tool: Some(TOOL), ..Expected::default() };
    vec![step(json!([asked]), called), step(json!([asked, call, result]), answered)]
}

/// Returns the header line of a bearer token.
fn bearer(token: Option<&str>) -> String {
    token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default()
}

/// Returns a `POST` request. `credential` is empty or a header line.
pub(crate) fn post(path: &str, accept: &str, credential: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: {accept}\r\n\
         {credential}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Returns a loopback address that was free a moment ago.
///
/// # Errors
/// No port is free.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Returns true if the service at `address` is ready.
pub fn is_ready(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let patience = Duration::from_secs(1);
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok(&status == b"HTTP/1.1 200")
    };
    ask().unwrap_or(false)
}
