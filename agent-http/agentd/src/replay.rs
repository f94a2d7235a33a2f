//! `agentd replay`: runs a recorded run again, without calling anybody, and compares it with its record.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use agent_core::ids::{CompanyId, RunId, UserId};
use agent_core::model::Model;
use agent_platform::conversation::{ConversationError, RunKey, ThreadOwner};
use agent_platform::records::StoreError;
use agent_platform::replay::{Difference, Finding, Replay, ReplayReport, RunBundle};
use clap::Args;
use jiff::Timestamp;

use crate::cli::ConfigFileArg;
use crate::config::{AppConfig, Env};
use crate::failure::CommandError;
use crate::stores::Stores;
use crate::{StartError, compose, weights};

/// Arguments of `agentd replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// File with a bundle of GET /api/runs/{id}/bundle; or, with --user and --company, a run's identifier.
    #[arg(value_name = "RUN|BUNDLE")]
    pub(crate) run: String,
    /// Identifier of the run's user, or of a visitor: widget:<tokenId>:<hash>.
    #[arg(long, value_name = "ID", requires = "company")]
    pub(crate) user: Option<UserId>,
    /// Identifier of the user's company.
    #[arg(long, value_name = "ID", requires = "user")]
    pub(crate) company: Option<CompanyId>,
    /// Read a bundle that was changed, to see what the change does.
    #[arg(long)]
    pub(crate) accept_changes: bool,
    /// Print the run's bundle, and replay nothing.
    #[arg(long)]
    pub(crate) bundle: bool,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Configuration source.
    #[command(flatten)]
    pub(crate) settings: ConfigFileArg,
}

/// Version of this program, as bundles name it.
const PROGRAM: &str = concat!("agentd ", env!("CARGO_PKG_VERSION"));

/// Replays a run of the store, or a bundle.
///
/// # Errors
/// [`CommandError::ReplayDiffers`] after the differences were printed; [`CommandError::Bundle`] without a record.
pub(crate) async fn run(args: ReplayArgs, env: &dyn Env, out: &mut dyn Write) -> Result<(), CommandError> {
    let config = args.settings.load(env)?;
    let path = Path::new(&args.run);
    let (bundle, stores) = match (&args.user, &args.company) {
        (Some(user), Some(company)) => {
            let stores = Stores::open_existing(&config).await?;
            (load(&stores, company, user, &args.run).await?, stores)
        }
        _ if path.is_file() => {
            let stores = Stores::in_memory("nothing", "{}").await?;
            (read(path, args.accept_changes)?, stores)
        }
        _ => return Err(CommandError::NoBundle(args.run)),
    };
    if args.bundle {
        return Ok(writeln!(out, "{}", bundle.to_json()?)?);
    }
    let report = replay(&config, stores, weights::open_configured(&config)?, bundle)?;
    match args.json {
        true => {
            serde_json::to_writer(&mut *out, &report).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        false => print(&report, out)?,
    }
    match report.is_identical() {
        true => Ok(()),
        false => Err(CommandError::ReplayDiffers),
    }
}

/// Reads a bundle from a file.
fn read(path: &Path, accepts_changes: bool) -> Result<RunBundle, CommandError> {
    let unreadable = |source| StartError::Unreadable { path: path.display().to_string(), source };
    let text = std::fs::read(path).map_err(unreadable)?;
    Ok(match accepts_changes {
        true => RunBundle::parse_changed(&text)?,
        false => RunBundle::parse(&text)?,
    })
}

/// Reads a run from the store.
async fn load(
    stores: &Stores,
    company: &CompanyId,
    user: &UserId,
    run: &str,
) -> Result<RunBundle, CommandError> {
    let key = RunKey { owner: ThreadOwner::new(company.clone(), user.clone()), id: RunId::from(run) };
    let found = RunBundle::load(&*stores.conversations, &key, Timestamp::now(), PROGRAM).await;
    let found = found.map_err(|error| match error {
        ConversationError::Store(error) => error,
        error => StoreError::unavailable(error.to_string()),
    })?;
    Ok(found.ok_or_else(|| CommandError::NoRun(run.to_owned()))?.check_ended()?)
}

fn replay(
    config: &AppConfig,
    stores: Stores,
    local: Option<Arc<dyn Model>>,
    bundle: RunBundle,
) -> Result<ReplayReport, CommandError> {
    let replay = Replay::new(bundle)?;
    let platform = compose::replay(config, &stores, local, &replay)?;
    Ok(replay.run(&platform))
}

/// Prints a report, a line an aspect and a line a difference.
fn print(report: &ReplayReport, out: &mut dyn Write) -> std::io::Result<()> {
    for (name, finding) in report.findings() {
        match finding {
            Finding::Identical => writeln!(out, "{name}: identical")?,
            Finding::NotRecorded => writeln!(out, "{name}: not recorded")?,
            Finding::Different(all) => {
                writeln!(out, "{name}: different")?;
                for Difference { name, recorded, replayed } in all {
                    writeln!(out, "  {name}")?;
                    for (whose, value) in [("recorded", recorded), ("replayed", replayed)] {
                        writeln!(out, "    {whose}: {}", value.as_deref().unwrap_or("nothing"))?;
                    }
                }
            }
        }
    }
    Ok(())
}
