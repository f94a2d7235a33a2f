//! The application as `agentd app` runs it, with the store as an argument: the same program for all stores, so that
//! only the store differs.
//!
//! `app_over memory|database [FILE]` serves memory or the configured database on a loopback port and writes its address
//! as the first line of stdout. The workspace in the file is imported first. Settings come from the environment, as does
//! the number of worker threads (`TOKIO_WORKER_THREADS`).
#![allow(clippy::print_stdout, reason = "the address on stdout is this program's interface")]

use std::path::PathBuf;

use agentd::config::{AppConfig, Flags, ProcessEnv};
use agentd::run;
use agentd::stores::Stores;
use anyhow::{Context, Result, bail};

/// The product's allocator, on which time and memory of a run depend.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> Result<()> {
    const USAGE: &str = "usage: app_over memory|database [FILE]";
    let mut arguments = std::env::args().skip(1);
    let store = arguments.next().context(USAGE)?;
    let file = arguments.next().map(PathBuf::from);
    let config = AppConfig::load(&Flags::default(), &ProcessEnv)?;
    let stores = match store.as_str() {
        "memory" => {
            let text = std::fs::read_to_string(file.context(USAGE)?)?;
            Stores::in_memory("the bench", &text).await?
        }
        "database" => {
            let stores = Stores::open(&config).await?;
            if let Some(file) = file {
                stores.import_file(&file).await?;
            }
            stores
        }
        other => bail!("{other} is no store"),
    };
    let listener = run::listen(config.server.listen).await?;
    println!("{}", listener.local_addr()?);
    Ok(run::serve_app(&config, listener, stores, None, run::shutdown_on_signal()).await?)
}
