//! The application as `agentd app` runs it, with the store as an argument: the same program for both stores, so that
//! only the store differs.
//!
//! `app_over memory|sqlite FILE` serves the workspace in that file on a free loopback port and writes its address as
//! the first line of stdout. Settings come from the environment.
#![allow(clippy::print_stdout, reason = "the address on stdout is this program's interface")]

use std::path::PathBuf;

use agentd::config::{AppConfig, Flags, ProcessEnv};
use agentd::run;
use agentd::stores::Stores;
use anyhow::{Context, Result, bail};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let store = arguments.next().context("usage: app_over memory|sqlite FILE")?;
    let file = PathBuf::from(arguments.next().context("usage: app_over memory|sqlite FILE")?);
    let config = AppConfig::load(&Flags::default(), &ProcessEnv)?;
    let stores = match store.as_str() {
        "memory" => Stores::in_memory("the bench", &std::fs::read_to_string(file)?).await?,
        "sqlite" => {
            let stores = Stores::open(&config).await?;
            stores.import_file(&file).await?;
            stores
        }
        other => bail!("{other} is no store"),
    };
    let listener = run::listen(config.server.listen).await?;
    println!("{}", listener.local_addr()?);
    Ok(run::serve_app(&config, listener, stores, None, run::shutdown_on_signal()).await?)
}
