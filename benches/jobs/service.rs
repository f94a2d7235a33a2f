//! The scheduler as a process, over an existing database.

use std::mem;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use benches::batch::COMPANIES;
use benches::delivery::{HttpConnection, payload};
use benches::process::Process;
use benches::subjects::{free_address, is_ready};
use futures_util::future::try_join_all;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use crate::receiver::Receiver;

pub(crate) const SECRET: &str = "bench-pulse-secret-0123456789abcdef";
/// Number of worker threads, the same as in the reference.
const WORKER_THREADS: &str = "2";

/// A running `agentd scheduler`, killed on drop.
pub(crate) struct Service {
    pub(crate) process: [Process; 1],
    pub(crate) address: SocketAddr,
}

impl Service {
    /// Starts the scheduler over `scheduler.db` in a folder; the database is created if missing.
    pub(crate) fn start(agentd: &Path, folder: &Path, receiver: &Receiver) -> Result<Self> {
        Self::start_at(free_address()?, agentd, folder, &receiver.url())
    }

    /// Starts the scheduler at an address, with the URL of its callback.
    pub(crate) fn start_at(
        address: SocketAddr,
        agentd: &Path,
        folder: &Path,
        callback_url: &str,
    ) -> Result<Self> {
        let mut command = Command::new(agentd);
        command.arg("scheduler").env_clear().current_dir(folder);
        command.env("HOST", address.ip().to_string()).env("PORT", address.port().to_string());
        command.env("DATABASE_URL", format!("sqlite://{}", folder.join("scheduler.db").display()));
        command.env("PULSE_SECRET", SECRET).env("CALLBACK_URL", callback_url);
        command.env("TOKIO_WORKER_THREADS", WORKER_THREADS);
        let mut process = Process::start(command, folder)?;
        process.wait_until(|| is_ready(address))?;
        Ok(Self { process: [process], address })
    }

    /// Opens `count` connections to the scheduler.
    pub(crate) async fn clients(&self, count: usize) -> Result<Clients> {
        let callers = try_join_all((0..count).map(|_| HttpConnection::connect(self.address))).await?;
        Ok(Clients(callers))
    }
}

/// Connections that store jobs concurrently.
pub(crate) struct Clients(Vec<HttpConnection>);

impl Clients {
    /// Stores jobs, split evenly over the connections, one job per request.
    pub(crate) async fn store(&mut self, requests: &[Vec<u8>]) -> Result<()> {
        let each = requests.len().div_ceil(self.0.len());
        let mut tasks = JoinSet::new();
        for (mut caller, requests) in mem::take(&mut self.0).into_iter().zip(requests.chunks(each)) {
            let requests = requests.to_vec();
            tasks.spawn(async move {
                for request in &requests {
                    caller.call(request, 201).await?;
                }
                anyhow::Ok(caller)
            });
        }
        while let Some(stored) = tasks.join_next().await {
            self.0.push(stored??);
        }
        Ok(())
    }
}

/// Returns the request that stores the `n`th job with a schedule.
pub(crate) fn request(n: usize, schedule: Value) -> Result<Vec<u8>> {
    post_job(serde_json::to_value(payload(n, COMPANIES))?, schedule)
}

/// Returns the request that stores a job with a schedule.
pub(crate) fn post_job(payload: Value, schedule: Value) -> Result<Vec<u8>> {
    let mut body = Map::from_iter([("payload".to_owned(), payload)]);
    let Value::Object(schedule) = schedule else { anyhow::bail!("a schedule is an object") };
    body.extend(schedule);
    let body = json!(body).to_string();
    let head = head("POST", "/jobs");
    Ok(format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes())
}

/// Returns a request without a body.
pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("{}\r\n", head("GET", path)).into_bytes()
}

/// Returns the first lines of an authorized request.
fn head(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {SECRET}\r\n")
}
