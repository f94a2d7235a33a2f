//! The scheduler as a process of its own, which can be killed and put to sleep.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use agent_http::config::{Flags, ProcessEnv, SchedulerConfig};
use agentd::run::{self, Stop};
use agentd::{logging, stores};
use reqwest::{RequestBuilder, Response};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::PATIENCE;
use super::server::PULSE_SECRET;

/// What the child says before its address.
const LISTENS: &str = "the scheduler listens on ";
/// The test that is the child.
const CHILD: &str = "support::process::a_scheduler_until_it_is_killed";

/// `agentd scheduler`, killed when it is dropped.
pub struct Process {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    client: reqwest::Client,
}

impl Process {
    /// Starts one over a database, which delivers to `callback`, and waits until it is healthy.
    pub async fn start(database: &str, callback: &str, settings: &[(&str, &str)]) -> Self {
        let process = Self::start_with(&[], database, callback, settings).await;
        process.until_healthy().await;
        process
    }

    /// Starts one by another program, which is given the command to run. It is not waited for until it is healthy.
    pub async fn start_with(by: &[&str], database: &str, callback: &str, settings: &[(&str, &str)]) -> Self {
        let own = std::env::current_exe().expect("this program");
        let own = own.to_str().expect("text");
        let mut words = by.to_vec();
        // This very program, told to run the one test that is the child.
        words.extend([own, "--exact", CHILD, "--ignored", "--nocapture"]);
        let mut env = BTreeMap::from([
            ("PORT", "0"),
            ("PULSE_SECRET", PULSE_SECRET),
            ("CALLBACK_URL", callback),
            ("DATABASE_URL", database),
            // What a killed one had in hand is tried again soon.
            ("SCHEDULER_LEASE_MS", "1000"),
            // What is answered with 503 is told by the answer.
            ("LOG", "error,agent_http::error=off"),
        ]);
        env.extend(settings.iter().copied());
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .envs(env)
            // It ends when this end of the pipe does, however this process ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let address = tokio::time::timeout(PATIENCE, address(&mut lines)).await.expect("it listens in time");
        // The harness says more after a while, and ends where nobody reads it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { address, child, client: super::client() }
    }

    /// Ends it without giving it time for anything.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    /// Puts it to sleep, as a machine that is suspended, or wakes it up.
    pub async fn sleeps(&self, asleep: bool) {
        let signal = if asleep { "-STOP" } else { "-CONT" };
        self.shell(&format!("kill {signal} {}", self.id())).await;
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Has the shell do something to it.
    pub async fn shell(&self, command: &str) {
        let done = Command::new("sh").args(["-c", command]).status().await.expect("a shell");
        assert!(done.success(), "{command}: {done}");
    }

    /// A request with the secret.
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", self.address);
        self.client.request(method.parse().expect("a method"), url).bearer_auth(PULSE_SECRET)
    }

    /// Makes a job.
    pub async fn post(&self, job: &Value) -> Response {
        self.request("POST", "/jobs").json(job).send().await.expect("it answers")
    }

    /// Makes a job, and gives its id.
    pub async fn job(&self, job: &Value) -> String {
        let response = self.post(job).await;
        let (status, body) = (response.status(), response.text().await.expect("a body"));
        assert_eq!(status, 201, "{body}");
        let made: Value = serde_json::from_str(&body).expect("JSON");
        made["jobId"].as_str().expect("an id").to_owned()
    }

    /// What it answers to a question.
    pub async fn get(&self, path: &str) -> Value {
        let response = self.request("GET", path).send().await.expect("it answers");
        let body = response.text().await.expect("a body");
        serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body}"))
    }

    /// What it counts.
    pub async fn metrics(&self) -> String {
        let response = self.request("GET", "/metrics").send().await.expect("it answers");
        response.text().await.expect("a body")
    }

    /// Waits until an answer is as is wanted.
    pub async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until_within(PATIENCE, path, wanted).await
    }

    /// As [`until`](Self::until), within a time of its own.
    pub async fn until_within(&self, time: Duration, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let found = super::until_within(time, || self.get(path), wanted).await;
        found.unwrap_or_else(|found| panic!("{path} stays {found}"))
    }

    /// Waits until it says that it is well.
    pub async fn until_healthy(&self) {
        self.until("/health", |health| health["status"] == "ok").await;
    }

    /// Waits until a job has come to a state.
    pub async fn until_state(&self, id: &str, state: &str) -> Value {
        self.until(&format!("/jobs/{id}"), |job| job["state"] == state).await
    }
}

async fn address(lines: &mut Lines<BufReader<ChildStdout>>) -> SocketAddr {
    while let Some(line) = lines.next_line().await.expect("text") {
        // The test harness may have begun the line.
        if let Some((_, address)) = line.split_once(LISTENS) {
            return address.parse().expect("an address");
        }
    }
    panic!("it has ended before it listens");
}

/// As the binary's command does, but for telling the address, since the port is any free one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of other tests"]
async fn a_scheduler_until_it_is_killed() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    let config = SchedulerConfig::load(&Flags::default(), &ProcessEnv).expect("the settings are right");
    logging::init(&config.log).expect("a log");
    let (jobs, store) = stores::jobs(&config).await.expect("a store");
    let listener = run::listen(config.listen).await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    // Not by a macro, whose output the harness may keep back.
    writeln!(std::io::stdout(), "{LISTENS}{address}").expect("the parent listens");
    run::serve_scheduler(&config, listener, jobs, store, Stop::on_signal()).await.expect("it serves");
}
