//! Jobs of one agent that are due at the same moment: the time until the application has done them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use benches::application::agent_id;
use benches::comparison::{Bound, Comparison};
use benches::delivery::{HttpConnection, body};
use benches::process::Process;
use benches::subjects::{DATA_SECRET, SESSION_SECRET, free_address};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::enqueue::CLIENTS;
use crate::service::{SECRET, Service, get, post_job};

/// Number of jobs.
const COUNT: u64 = 1000;
/// Number of jobs that are done when 99 % are.
const ALMOST_ALL: u64 = COUNT * 99 / 100;
/// Time until the jobs are due, in which they are stored.
const LEAD_TIME: Duration = Duration::from_secs(4);
/// Time in which all jobs are done.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of the counts, which is the precision of the figures.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Limit on the time until 99 % of the jobs are done.
const MAX_P99_MS: f64 = 100.0;

const COMPANY: &str = "company-1";
const USER: &str = "user-1";

/// The scheduler and the application, each over a SQLite database.
pub(crate) struct Services {
    scheduler: Service,
    _application: Process,
}

/// Milliseconds from the due time until a share of the jobs was done, in each repeat.
#[derive(Default)]
pub(crate) struct DueAtOnce {
    half: Vec<f64>,
    almost_all: Vec<f64>,
}

impl Services {
    /// Starts both in a folder.
    pub(crate) fn start(agentd: &Path, folder: &Path) -> Result<Self> {
        let role = json!({"id": agent_id(), "name": "Bench", "ownerId": USER, "companyId": COMPANY,
            "content": {"systemPrompt": "You are an assistant.", "mcpPreset": [], "tools": ["recordMetric"]}});
        let workspace = json!({"users": [{"id": USER, "companyId": COMPANY}], "agents": [role]});
        let file = folder.join("workspace.json");
        std::fs::write(&file, workspace.to_string())?;
        let address = free_address()?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_app_over"));
        command.arg("database").arg(&file).env_clear().current_dir(folder).env("PORT", "0");
        command.env("DATABASE_URL", format!("sqlite://{}", folder.join("app.db").display()));
        command.env("SESSION_SECRET", SESSION_SECRET).env("DATA_SECRET", DATA_SECRET);
        command.env("PULSE_URL", format!("http://{address}")).env("PULSE_SECRET", SECRET);
        let (process, application) = Process::start_announced(command, folder)?;
        let callback = format!("http://{application}/api/pulse/callback");
        let scheduler = Service::start_at(address, agentd, folder, &callback)?;
        Ok(Self { scheduler, _application: process })
    }
}

impl DueAtOnce {
    /// Runs one repeat.
    pub(crate) async fn measure(&mut self, services: &Services) -> Result<()> {
        let scheduler = &services.scheduler;
        let mut connection = HttpConnection::connect(scheduler.address).await?;
        let before = done(&mut connection).await?;
        let due = Timestamp::now() + LEAD_TIME;
        let requests: Result<Vec<_>> = (0..COUNT)
            .map(|n| {
                let payload = json!({"kind": "tool", "userId": USER, "companyId": COMPANY, "agentId": agent_id(),
                    "toolId": "recordMetric", "arguments": {"name": "sales", "value": n}});
                post_job(payload, json!({"executeAt": due.to_string()}))
            })
            .collect();
        scheduler.clients(CLIENTS).await?.store(&requests?).await?;
        tokio::time::sleep(due.duration_since(Timestamp::now()).try_into().context("stored too late")?).await;
        let (mut half, mut almost_all, mut count) = (None, None, 0);
        while count < COUNT {
            tokio::time::sleep(POLL_INTERVAL).await;
            count = done(&mut connection).await? - before;
            let elapsed = Timestamp::now().duration_since(due).as_secs_f64();
            ensure!(elapsed < TIMEOUT.as_secs_f64(), "{count} of {COUNT} jobs are done");
            if count >= COUNT / 2 {
                half.get_or_insert(elapsed * 1e3);
            }
            if count >= ALMOST_ALL {
                almost_all.get_or_insert(elapsed * 1e3);
            }
        }
        self.half.extend(half);
        self.almost_all.extend(almost_all);
        Ok(())
    }

    pub(crate) fn lines(&self) -> [Comparison; 2] {
        let limit = vec![MAX_P99_MS; self.almost_all.len()];
        let description =
            format!("{COUNT} jobs of one agent due at once, each a call of a tool: time until half are done");
        let p99 = "the same, until 99 % are done, beside the limit";
        [
            Comparison::new(description, "ms", Bound::Unbounded, &limit, &self.half),
            Comparison::new(p99, "ms", Bound::FigureAtMost(MAX_P99_MS), &limit, &self.almost_all),
        ]
    }
}

/// Returns the number of the company's jobs that are done.
async fn done(connection: &mut HttpConnection) -> Result<u64> {
    let request = get(&format!("/jobs/count?companyId={COMPANY}&state=completed"));
    let response = connection.call(&request, 200).await?;
    let counted: Value = serde_json::from_slice(body(&response))?;
    counted["count"].as_u64().context("no count")
}
