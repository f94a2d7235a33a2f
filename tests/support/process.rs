//! The scheduler as a child process that can be killed or suspended.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use agentd::config::{Flags, ProcessEnv, SchedulerConfig};
use agentd::run;
use agentd::{logging, stores};
use reqwest::{RequestBuilder, Response};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::TEST_TIMEOUT;
use super::server::PULSE_SECRET;

/// Prefix of the line in which the child prints its address.
const ADDRESS_PREFIX: &str = "scheduler listening on ";
/// Name of the test that acts as the child process.
const CHILD_TEST: &str = "support::process::a_scheduler_until_it_is_killed";

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
        let own = std::env::current_exe().expect("this program");
        let own = own.to_str().expect("text");
        let mut words = by.to_vec();
        // This test binary, with the one test that acts as the child process.
        words.extend([own, "--exact", CHILD_TEST, "--ignored", "--nocapture"]);
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
            tokio::time::timeout(TEST_TIMEOUT, address(&mut lines)).await.expect("it listens in time");
        // Drains the test harness's later output: a closed pipe would end the child.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { address, child, client: super::client() }
    }

    /// Kills the process with `SIGKILL`.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    /// Suspends the process (`SIGSTOP`) or resumes it (`SIGCONT`).
    pub async fn set_suspended(&self, asleep: bool) {
        let signal = if asleep { "-STOP" } else { "-CONT" };
        self.run_shell(&format!("kill {signal} {}", self.id())).await;
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Runs a shell command, such as one that sends a signal to the process.
    pub async fn run_shell(&self, command: &str) {
        let done = Command::new("sh").args(["-c", command]).status().await.expect("a shell");
        assert!(done.success(), "{command}: {done}");
    }

    /// Builds a request authorized with the scheduler's secret.
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", self.address);
        self.client.request(method.parse().expect("a method"), url).bearer_auth(PULSE_SECRET)
    }

    /// Sends a request that creates a job.
    pub async fn post(&self, job: &Value) -> Response {
        self.request("POST", "/jobs").json(job).send().await.expect("it answers")
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
        let response = self.request("GET", path).send().await.expect("it answers");
        let body = response.text().await.expect("a body");
        serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body}"))
    }

    /// Returns the text of `/metrics`.
    pub async fn metrics(&self) -> String {
        let response = self.request("GET", "/metrics").send().await.expect("it answers");
        response.text().await.expect("a body")
    }

    /// Polls a path until `wanted` holds for its JSON response.
    pub async fn poll_until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.poll_until_within(TEST_TIMEOUT, path, wanted).await
    }

    /// Polls as [`poll_until`](Self::poll_until) does, with a time limit.
    pub async fn poll_until_within(
        &self,
        time: Duration,
        path: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let found = super::poll_until_within(time, || self.get(path), wanted).await;
        found.unwrap_or_else(|found| panic!("{path} stays {found}"))
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

async fn address(lines: &mut Lines<BufReader<ChildStdout>>) -> SocketAddr {
    while let Some(line) = lines.next_line().await.expect("text") {
        // The test harness may have written the beginning of the line.
        if let Some((_, address)) = line.split_once(ADDRESS_PREFIX) {
            return address.parse().expect("an address");
        }
    }
    panic!("it has ended before it listens");
}

/// Child process: serves as `agentd scheduler` does, on any free port, and prints its address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of other tests"]
async fn a_scheduler_until_it_is_killed() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    let config = SchedulerConfig::load(&Flags::default(), &ProcessEnv).expect("the settings are right");
    logging::init(&config.log).expect("a log");
    let (jobs, store) = stores::open_jobs(&config).await.expect("a store");
    let listener = run::listen(config.listen).await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    // `println!` would go to the test harness, which may capture it.
    writeln!(std::io::stdout(), "{ADDRESS_PREFIX}{address}").expect("the parent listens");
    run::serve_scheduler(&config, listener, jobs, store, run::shutdown_on_signal()).await.expect("it serves");
}
