//! `cargo bench -p benches --bench mcp`: cost of a tool call beside a bare `rmcp` server with the same tool.
//!
//! Prints one Markdown table to standard output. A wrong response ends the run with an error.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use benches::comparison::{Bound, Comparison, any_missed, markdown};
use benches::process::{CpuTime, Process, resident_kib};
use benches::should_measure;
use bytes::Bytes;
use clap::Parser;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinSet};

/// Number of concurrent connections.
const CONNECTIONS: usize = 32;
/// Minimum throughput, as a ratio to the bare server's.
const MIN_THROUGHPUT_RATIO: f64 = 0.9;
/// Maximum memory of an idle session, in KiB.
const MAX_SESSION_KIB: f64 = 60.0;

#[derive(Parser)]
#[command(about = "Measures the tool server beside a bare rmcp server and prints one Markdown table")]
struct Options {
    /// Calls on each connection in a slice
    #[arg(long, default_value_t = 400)]
    calls: usize,
    /// Number of interleaved repeats; the result is their median
    #[arg(long, default_value_t = 7)]
    repeats: usize,
    /// Number of open sessions in the memory measurement
    #[arg(long, default_value_t = 2000)]
    sessions: usize,
    /// Exit with status 1 if a limit is exceeded
    #[arg(long)]
    check: bool,
    /// Set by `cargo bench` for every benchmark, and not by `cargo test`
    #[arg(long)]
    bench: bool,
}

/// Protocol variant of the calls.
#[derive(Clone, Copy, PartialEq)]
enum SessionMode {
    Sessions,
    NoSessions,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    if !should_measure(options.bench) {
        return Ok(ExitCode::SUCCESS);
    }
    let client = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let holds = client.block_on(measure(&options))?;
    Ok(if options.check && !holds { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn measure(options: &Options) -> Result<bool> {
    let scratch = tempfile::tempdir()?;
    let mut rows = Vec::new();
    for (era, name) in [(SessionMode::NoSessions, "without sessions"), (SessionMode::Sessions, "in sessions")]
    {
        let servers = [start("bare", scratch.path())?, start("product", scratch.path())?];
        let (mut rates, mut costs) = ([vec![], vec![]], [vec![], vec![]]);
        for repeat in 0..=options.repeats {
            for turn in 0..2 {
                let index = (turn + repeat) % 2;
                let (rate, cost) = call(&servers[index], era, options.calls).await?;
                // The first slice is the warm-up.
                if repeat > 0 {
                    rates[index].push(rate);
                    costs[index].push(cost);
                }
            }
        }
        let [bare, ours] = &rates;
        let description = format!("`readTodos`, {CONNECTIONS} connections, {name}");
        rows.push(Comparison::new(description, "/s", Bound::AtLeast(MIN_THROUGHPUT_RATIO), bare, ours));
        let [bare, ours] = &costs;
        rows.push(Comparison::new("the same, CPU of a call", "µs", Bound::Unbounded, bare, ours));
    }
    let mut kib = [vec![], vec![]];
    for _ in 0..3 {
        for (index, kind) in ["bare", "product"].into_iter().enumerate() {
            kib[index].push(idle_sessions(&start(kind, scratch.path())?, options.sessions).await?);
        }
    }
    let [bare, ours] = &kib;
    let bound = Bound::FigureAtMost(MAX_SESSION_KIB);
    rows.push(Comparison::new("memory of an idle session", "KiB", bound, bare, ours));
    print!("{}", markdown("measurement", &rows));
    Ok(!any_missed(&rows))
}

struct Server {
    address: SocketAddr,
    processes: [Process; 1],
    /// Tokens that the server accepts.
    tokens: Vec<String>,
}

fn start(kind: &str, scratch: &Path) -> Result<Server> {
    let token_file = scratch.join("tokens");
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp_server"));
    command.arg(kind).arg(&token_file);
    let (process, address) = Process::start_announced(command, scratch)?;
    let tokens = fs::read_to_string(token_file)?.lines().map(str::to_owned).collect();
    Ok(Server { address, processes: [process], tokens })
}

/// A connection and the session of its calls.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    token: String,
    session: Option<String>,
}

impl Connection {
    /// Opens a connection that uses the server's token number `token`.
    async fn open(server: &Server, token: usize) -> Result<Self> {
        let stream = TcpStream::connect(server.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, token: server.tokens[token].clone(), session: None })
    }

    async fn send(&mut self, body: &Value, headers: &[(&str, &str)]) -> Result<Response<Bytes>> {
        let mut request = Request::post(format!("/api/agent/mcp?token={}", self.token))
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        let request = request.body(Full::new(Bytes::from(body.to_string())))?;
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    }

    async fn initialize(&mut self) -> Result<()> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let answer = self.send(&body, &[]).await?;
        let session = answer.headers().get("mcp-session-id").context("no session")?;
        self.session = Some(session.to_str()?.to_owned());
        let answer =
            self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}), &[]).await?;
        ensure!(answer.status() == 202, "the session is not taken");
        Ok(())
    }

    async fn call(&mut self, era: SessionMode, id: usize) -> Result<()> {
        let (meta, headers): (Value, &[(&str, &str)]) = match era {
            SessionMode::Sessions => (json!({}), &[("mcp-protocol-version", "2025-11-25")]),
            SessionMode::NoSessions => (
                json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": {"name": "b", "version": "1"},
                    "io.modelcontextprotocol/clientCapabilities": {}
                }),
                &[
                    ("mcp-protocol-version", "2026-07-28"),
                    ("mcp-method", "tools/call"),
                    ("mcp-name", "readTodos"),
                ],
            ),
        };
        let params = json!({"name": "readTodos", "arguments": {}, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let answer = self.send(&body, headers).await?;
        let text = std::str::from_utf8(answer.body())?;
        ensure!(answer.status() == 200 && text.contains("Water plant number 9"), "a wrong answer: {text}");
        Ok(())
    }
}

/// Returns the calls per second and the CPU time per call in microseconds.
async fn call(server: &Server, era: SessionMode, calls: usize) -> Result<(f64, f64)> {
    let mut connections = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let mut connection = Connection::open(server, 0).await?;
        if era == SessionMode::Sessions {
            connection.initialize().await?;
        }
        connections.push(connection);
    }
    let before = CpuTime::when_idle(&server.processes)?;
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for mut connection in connections {
        tasks.spawn(async move {
            for id in 1..=calls {
                connection.call(era, id).await?;
            }
            anyhow::Ok(connection)
        });
    }
    let mut done = Vec::new();
    while let Some(connection) = tasks.join_next().await {
        done.push(connection??);
    }
    let (elapsed, count) = (started.elapsed(), (CONNECTIONS * calls) as f64);
    let used = CpuTime::when_idle(&server.processes)?.since(&before);
    Ok((count / elapsed.as_secs_f64(), micros(used) / count))
}

/// Returns the memory per idle session, in KiB.
async fn idle_sessions(server: &Server, sessions: usize) -> Result<f64> {
    let mut connection = Connection::open(server, 0).await?;
    // The token changes every few sessions, since the number of sessions per token is limited.
    let mut open = async |index: usize| {
        connection.session = None;
        connection.token.clone_from(&server.tokens[index / CONNECTIONS]);
        connection.initialize().await
    };
    open(0).await?;
    let before = resident_kib(&server.processes)?;
    for index in 1..=sessions {
        open(index).await?;
    }
    Ok(resident_kib(&server.processes)?.saturating_sub(before) as f64 / sessions as f64)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000_000.0
}
