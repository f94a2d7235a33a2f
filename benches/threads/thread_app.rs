//! The application over a SQLite file, and its mock vendor.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use benches::answer::Behaviour;
use benches::application::{StoreKind, company_id, model_chat, session};
use benches::load::Step;
use benches::subjects::{Bench, Programs, RunningSubject, WORKER_THREADS};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A process of the application. The fields are dropped in their order: the file last.
pub(crate) struct ThreadApp {
    bench: Bench,
    /// The process.
    pub(crate) running: RunningSubject,
    /// Session token of the user.
    pub(crate) token: String,
    url: String,
    _folder: TempDir,
}

impl ThreadApp {
    /// Starts the application, `program`, with an agent for each behaviour.
    pub(crate) fn start(program: &Path, behaviours: &[Behaviour]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let url = format!("sqlite://{}", folder.path().join("app.db").display());
        let bench = Bench::start(programs())?;
        let workspace = bench.models_workspace(behaviours, &json!({}), &json!({}));
        let running = bench.start_workspace_over(StoreKind::Database(&url), &workspace, program)?;
        Ok(Self { bench, running, token: session(company_id())?, url, _folder: folder })
    }

    /// Starts another process over the same file.
    pub(crate) fn start_another(&self) -> Result<RunningSubject> {
        self.bench.start_replica(&self.url, app_over(), WORKER_THREADS)
    }

    /// Returns the address of the mock vendor.
    pub(crate) fn vendor(&self) -> SocketAddr {
        self.bench.vendor()
    }

    /// Returns a chat with the agent of a behaviour. Its run is stored if `fields` have a thread, or `store`.
    pub(crate) fn chat(&self, behaviour: Behaviour, fields: Value) -> Step {
        model_chat(&self.token, behaviour, fields)
    }
}

/// Returns the path of the application's program.
pub(crate) fn app_over() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_app_over"))
}

/// Returns the fields of a chat whose run and thread have this id.
pub(crate) fn stored_fields(id: &str) -> Value {
    json!({"threadId": id, "runId": id})
}

pub(crate) fn programs() -> Programs {
    Programs {
        upstream: env!("CARGO_BIN_EXE_upstream").into(),
        bare_proxy: env!("CARGO_BIN_EXE_bare_proxy").into(),
        agentd: None,
    }
}
