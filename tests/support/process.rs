//! The scheduler and the application as child processes that can be killed or suspended.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use agentd::config::{AppConfig, Flags, ProcessEnv, SchedulerConfig};
use agentd::run;
use agentd::{logging, stores};
use reqwest::{RequestBuilder, Response};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::TEST_TIMEOUT;
use super::server::{PULSE_SECRET, SESSION_SECRET};

/// Prefix of the line in which a child prints its address.
const ADDRESS_PREFIX: &str = "child listening on ";
/// Names of the tests that act as the child processes.
const SCHEDULER_TEST: &str = "support::process::a_scheduler_until_it_is_killed";
const APPLICATION_TEST: &str = "support::process::an_application_until_it_is_killed";

/// Arguments that make this program an application configured by its environment.
pub const APPLICATION_ARGUMENTS: [&str; 4] = ["--exact", APPLICATION_TEST, "--ignored", "--nocapture"];

/// An `agentd scheduler` process; killed when dropped.
pub struct SchedulerProcess {
    pub address: SocketAddr,
    child: Child,
    client: reqwest::Client,
}

impl SchedulerProcess {
    /// Starts a scheduler on a database, with `callback` as its delivery URL, and waits until it is healthy.
    pub async fn start(database: &str, callback: &str, settings: &[(&str, &str)]) -> Self {
        let process = Self::start_with(&[], database, callback, settings).await;
        process.wait_until_healthy().await;
        process
    }

    /// Starts a scheduler through the wrapper command `by`, to which its command line is appended. Does not wait
    /// until it is healthy.
    pub async fn start_with(by: &[&str], database: &str, callback: &str, settings: &[(&str, &str)]) -> Self {
        let mut env = BTreeMap::from([
            ("PORT", "0"),
            ("PULSE_SECRET", PULSE_SECRET),
            ("CALLBACK_URL", callback),
            ("DATABASE_URL", database),
            // A short lease, so that jobs claimed by a killed process are retried soon.
            ("SCHEDULER_LEASE_MS", "1000"),
            // A 503 is checked by its response; its log line is noise.
            ("LOG", "error,agent_http::error=off"),
        ]);
        env.extend(settings.iter().copied());
        let (child, address) =
            spawn(by, SCHEDULER_TEST, env).await.expect("it has not ended before it listens");
        Self { address, child, client: super::client() }
    }

    /// Kills the process with `SIGKILL`.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    /// Suspends the process (`SIGSTOP`) or resumes it (`SIGCONT`).
    pub async fn set_suspended(&self, is_suspended: bool) {
        set_suspended(&self.child, is_suspended).await;
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Runs a shell command, such as one that sends a signal to the process.
    pub async fn run_shell(&self, command: &str) {
        run_shell(command).await;
    }

    /// Builds a request authorized with the scheduler's secret.
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", self.address);
        self.client.request(method.parse().expect("a method"), url).bearer_auth(PULSE_SECRET)
    }

    /// Sends a request that creates a job.
    pub async fn post(&self, job: &Value) -> Response {
        self.request("POST", "/jobs").json(job).send().await.expect("the server answers")
    }

    /// Creates a job and returns its id.
    pub async fn create_job(&self, job: &Value) -> String {
        let response = self.post(job).await;
        let (status, body) = (response.status(), response.text().await.expect("a body"));
        assert_eq!(status, 201, "{body}");
        let made: Value = serde_json::from_str(&body).expect("JSON");
        made["jobId"].as_str().expect("an id").to_owned()
    }

    /// Returns the JSON response to a GET.
    pub async fn get(&self, path: &str) -> Value {
        let response = self.request("GET", path).send().await.expect("the server answers");
        let body = response.text().await.expect("a body");
        serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body}"))
    }

    /// Returns the text of `/metrics`.
    pub async fn metrics(&self) -> String {
        let response = self.request("GET", "/metrics").send().await.expect("the server answers");
        response.text().await.expect("a body")
    }

    /// Polls a path until `condition` holds for its JSON response.
    pub async fn poll_until(&self, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
        self.poll_until_within(TEST_TIMEOUT, path, condition).await
    }

    /// Polls as [`poll_until`](Self::poll_until) does, with a time limit.
    pub async fn poll_until_within(
        &self,
        time: Duration,
        path: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let polled = super::poll_until_within(time, || self.get(path), condition).await;
        polled.unwrap_or_else(|polled| panic!("{path} stays {polled}"))
    }

    /// Waits until `/health` reports `ok`.
    pub async fn wait_until_healthy(&self) {
        self.poll_until("/health", |health| health["status"] == "ok").await;
    }

    /// Waits until a job is in a state.
    pub async fn wait_for_state(&self, id: &str, state: &str) -> Value {
        self.poll_until(&format!("/jobs/{id}"), |job| job["state"] == state).await
    }
}

/// An `agentd app` process; killed when dropped.
pub struct AppProcess {
    pub address: SocketAddr,
    child: Child,
}

impl AppProcess {
    /// Starts an application on a database at a port, or at any free one if it is 0, and waits until it listens.
    pub async fn start(database: &str, port: u16, settings: &[(&str, &str)]) -> Self {
        let port = port.to_string();
        let mut env = BTreeMap::from([
            ("PORT", &*port),
            ("SESSION_SECRET", SESSION_SECRET),
            ("PULSE_SECRET", PULSE_SECRET),
            // Callbacks need a configured scheduler, which does not have to answer.
            ("PULSE_URL", "http://127.0.0.1:9"),
            ("DATABASE_URL", database),
            ("LOG", "error"),
        ]);
        env.extend(settings.iter().copied());
        // Another program may use the port for a moment, as the local end of one of its connections.
        let starting = async {
            loop {
                if let Some(started) = spawn(&[], APPLICATION_TEST, env.clone()).await {
                    return started;
                }
            }
        };
        let (child, address) = tokio::time::timeout(TEST_TIMEOUT, starting).await.expect("it starts in time");
        Self { address, child }
    }

    /// Starts `program app`, an `agentd` of another version, at any free port, and waits until it is ready.
    pub async fn start_program(program: &Path, database: &str, settings: &[(&str, &str)]) -> Self {
        let port = super::free_port();
        let mut command = Command::new(program);
        command.arg("app").env("PORT", port.to_string()).env("DATABASE_URL", database);
        command.envs([("SESSION_SECRET", SESSION_SECRET), ("PULSE_SECRET", PULSE_SECRET), ("LOG", "error")]);
        command.env("PULSE_URL", "http://127.0.0.1:9").envs(settings.iter().copied());
        let child = command.stdin(Stdio::piped()).kill_on_drop(true).spawn().expect("started");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let ready = async || {
            let response = super::client().get(format!("http://{address}/readyz")).send().await;
            response.is_ok_and(|response| response.status() == 200)
        };
        super::poll_until(ready, |ready| *ready).await;
        Self { address, child }
    }

    /// Kills the process with `SIGKILL`.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    /// Suspends the process (`SIGSTOP`) or resumes it (`SIGCONT`).
    pub async fn set_suspended(&self, is_suspended: bool) {
        set_suspended(&self.child, is_suspended).await;
    }

    /// Limits the size of files that the process may write, so that the system rejects larger writes; `None` lifts the
    /// limit.
    #[cfg(target_os = "linux")]
    pub async fn limit_file_bytes(&self, limit: Option<u64>) {
        let limit = limit.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        let id = self.child.id().expect("it runs");
        run_shell(&format!("prlimit --pid {id} --fsize={limit}:")).await;
    }

    /// Requests a graceful shutdown (`SIGTERM`).
    pub async fn terminate(&self) {
        run_shell(&format!("kill -TERM {}", self.child.id().expect("it runs"))).await;
    }

    /// Waits until the process has ended in order.
    pub async fn ended(mut self) {
        // Waiting would close it, at which the child exits.
        let _stdin = self.child.stdin.take();
        let ended = tokio::time::timeout(TEST_TIMEOUT, self.child.wait()).await.expect("it ends in time");
        let status = ended.expect("it can be waited for");
        assert!(status.success(), "{status}");
    }
}

async fn run_shell(command: &str) {
    let done = Command::new("sh").args(["-c", command]).status().await.expect("a shell");
    assert!(done.success(), "{command}: {done}");
}

async fn set_suspended(child: &Child, is_suspended: bool) {
    let signal = if is_suspended { "-STOP" } else { "-CONT" };
    run_shell(&format!("kill {signal} {}", child.id().expect("it runs"))).await;
}

/// Starts this test binary, with the one test that acts as the child process, through the wrapper command `by`.
/// Returns the address on which it listens; `None` if it ends before.
async fn spawn(by: &[&str], test: &str, env: BTreeMap<&str, &str>) -> Option<(Child, SocketAddr)> {
    let test_program = std::env::current_exe().expect("this program");
    let mut words = by.to_vec();
    words.extend([test_program.to_str().expect("text"), "--exact", test, "--ignored", "--nocapture"]);
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .envs(env)
        // The child exits when this end of its stdin is closed, however this process ends.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let address =
        tokio::time::timeout(TEST_TIMEOUT, address(&mut lines)).await.expect("it listens in time")?;
    // Drains the test harness's later output: a closed pipe would end the child.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Some((child, address))
}

async fn address(lines: &mut Lines<BufReader<ChildStdout>>) -> Option<SocketAddr> {
    while let Some(line) = lines.next_line().await.expect("text") {
        // The test harness may have written the beginning of the line.
        if let Some((_, address)) = line.split_once(ADDRESS_PREFIX) {
            return Some(address.parse().expect("an address"));
        }
    }
    None
}

/// Ends this process when the parent closes its stdin.
pub(super) fn exit_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
}

/// Child process: serves as `agentd app` does, and prints its address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of other tests"]
async fn an_application_until_it_is_killed() {
    exit_with_parent();
    let config = AppConfig::load(&Flags::default(), &ProcessEnv).expect("the settings are right");
    logging::init(&config.server.log).expect("a log");
    let stores = stores::Stores::open(&config).await.expect("a store");
    let listener = run::listen(config.server.listen).await.expect("the port is free");
    let address = listener.local_addr().expect("a bound listener");
    writeln!(std::io::stdout(), "{ADDRESS_PREFIX}{address}").expect("the parent listens");
    run::serve_app(&config, listener, stores, None, run::shutdown_on_signal()).await.expect("it serves");
}

/// Child process: serves as `agentd scheduler` does, on any free port, and prints its address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of other tests"]
async fn a_scheduler_until_it_is_killed() {
    exit_with_parent();
    let config = SchedulerConfig::load(&Flags::default(), &ProcessEnv).expect("the settings are right");
    logging::init(&config.log).expect("a log");
    let (jobs, store) = stores::open_jobs(&config).await.expect("a store");
    let listener = run::listen(config.listen).await.expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    // `println!` would go to the test harness, which may capture it.
    writeln!(std::io::stdout(), "{ADDRESS_PREFIX}{address}").expect("the parent listens");
    run::serve_scheduler(&config, listener, jobs, store, run::shutdown_on_signal()).await.expect("it serves");
}
