//! The agent runtime as `agentd runtime` runs it, with the optimizations of the token path as an argument: one build
//! for all of them, so that only they differ.
//!
//! `relay_over VARIANT` serves with the options of that variant, named as in `benches::tricks`. Settings come from the
//! environment.

use agentd::config::{Flags, ProcessEnv, RuntimeConfig};
use agentd::run;
use anyhow::{Context, Result};
use benches::tricks;

/// The product's allocator, on which the cost of small buffers depends.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main(flavor = "multi_thread")]
async fn main() -> Result<()> {
    let name = std::env::args().nth(1).context("usage: relay_over VARIANT")?;
    let variant = tricks::variant(&name).with_context(|| format!("{name} is no variant"))?;
    let relay = (variant.options)();
    let mut config = RuntimeConfig::load(&Flags::default(), &ProcessEnv)?;
    config.server.serve.relay = relay;
    config.server.outbound.relay = relay;
    let listener = run::listen(config.server.listen).await?;
    Ok(run::serve_runtime(&config, listener, run::shutdown_on_signal()).await?)
}
