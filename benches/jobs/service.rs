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

const SECRET: &str = "bench-pulse-secret-0123456789abcdef";
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
        let address = free_address()?;
        let mut command = Command::new(agentd);
        command.arg("scheduler").env_clear().current_dir(folder);
        command.env("HOST", address.ip().to_string()).env("PORT", address.port().to_string());
        command.env("DATABASE_URL", format!("sqlite://{}", folder.join("scheduler.db").display()));
        command.env("PULSE_SECRET", SECRET).env("CALLBACK_URL", receiver.url());
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
    let mut body = Map::from_iter([("payload".to_owned(), serde_json::to_value(payload(n, COMPANIES))?)]);
    let Value::Object(schedule) = schedule else { anyhow::bail!("a schedule is an object") };
    body.extend(schedule);
    let body = json!(body).to_string();
    Ok(format!(
        "POST /jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         authorization: Bearer {SECRET}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes())
}
