//! `agentd replay`: repeats a recorded run without calling a model or a tool, and compares it with its record. With `--live`, it
//! also calls the models again.

use std::io::Write;
use std::path::Path;

use agent_core::ids::{CompanyId, RunId, UserId};
use agent_core::role::{RoleBlock, RoleSource};
use agent_http::app::PROGRAM;
use agent_platform::conversation::{ConversationError, RunKey, ThreadOwner};
use agent_platform::records::StoreError;
use agent_platform::replay::{
    AnsweredCall, AspectComparison, Difference, LiveCall, Replay, ReplayReport, RunBundle,
};
use jiff::Timestamp;
use serde::Serialize;

use crate::cli::ReplayArgs;
use crate::command_error::CommandError;
use crate::config::Env;
use crate::stores::Stores;
use crate::{StartError, compose, weights};

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
        // Also a pipe, as a shell passes the output of another command.
        _ if path.exists() => {
            let stores = Stores::in_memory("nothing", "{}").await?;
            (read(path, args.accept_changes)?, stores)
        }
        _ => return Err(CommandError::NoBundle(args.run)),
    };
    if args.bundle {
        return Ok(writeln!(out, "{}", bundle.to_json()?)?);
    }
    let bundle = match args.live {
        true => with_secrets(&stores, bundle).await?,
        false => bundle,
    };
    let replay = Replay::new(bundle)?;
    let local = weights::open_configured(&config)?;
    let platform = compose::replay(&config, &stores, local, &replay, args.live)?;
    let report = replay.run(&platform);
    let live = match args.live {
        true => Some(replay.call_models().await),
        false => None,
    };
    let output = ReplayOutput { report, live };
    match args.json {
        true => {
            serde_json::to_writer(&mut *out, &output).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        false => print(&output, out)?,
    }
    match output.report.is_identical() {
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
    let bundle = RunBundle::load(&*stores.conversations, &key, Timestamp::now(), PROGRAM).await;
    let bundle = bundle.map_err(|error| match error {
        ConversationError::Store(error) => error,
        error => StoreError::unavailable(error.to_string()),
    })?;
    Ok(bundle.ok_or_else(|| CommandError::NoRun(run.to_owned()))?.check_ended()?)
}

/// Sets the secrets of a bundle's role to the secrets of the stored agent.
async fn with_secrets(stores: &Stores, bundle: RunBundle) -> Result<RunBundle, CommandError> {
    let Some(inputs) = &bundle.inputs else { return Ok(bundle) };
    let stored = stores.roles.role(&inputs.company_id, &bundle.run.agent_id).await;
    Ok(match stored.map_err(StartError::from)? {
        Some(stored) => {
            let stored = stores.providers().complete_role(stored).await.map_err(StartError::from)?;
            bundle.with_secrets_of(RoleBlock::clone(&stored))
        }
        None => bundle,
    })
}

/// Output of the command.
#[derive(Serialize)]
struct ReplayOutput {
    #[serde(flatten)]
    report: ReplayReport,
    /// Answers of the models that were called live.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<Vec<LiveCall>>,
}

/// Prints a report, a line an aspect and a line a difference, and then the answers of the models that were called.
fn print(ReplayOutput { report, live }: &ReplayOutput, out: &mut dyn Write) -> std::io::Result<()> {
    for (name, comparison) in report.aspects() {
        match comparison {
            AspectComparison::Identical => writeln!(out, "{name}: identical")?,
            AspectComparison::NotRecorded => writeln!(out, "{name}: not recorded")?,
            AspectComparison::Different(differences) => {
                writeln!(out, "{name}: different")?;
                for Difference { name, recorded, replayed } in differences {
                    writeln!(out, "  {name}")?;
                    for (side, value) in [("recorded", recorded), ("replayed", replayed)] {
                        writeln!(out, "    {side}: {}", value.as_deref().unwrap_or("nothing"))?;
                    }
                }
            }
        }
    }
    match live.as_deref() {
        None => Ok(()),
        Some([]) => writeln!(out, "live: no model of this run can be called"),
        Some(calls) => calls.iter().try_for_each(|call| print_call(call, out)),
    }
}

fn print_call(call: &LiveCall, out: &mut dyn Write) -> std::io::Result<()> {
    let LiveCall { round, provider, model, same_tool_calls, recorded, live, .. } = call;
    let tool_calls = if *same_tool_calls { "the same tool calls" } else { "other tool calls" };
    writeln!(out, "live: round {round} of {provider}/{model}: {tool_calls}")?;
    for (side, answer) in [("recorded", recorded), ("live", live)] {
        for AnsweredCall { name, arguments } in &answer.tool_calls {
            writeln!(out, "    {side}: {name} {arguments}")?;
        }
        let error = answer.error.as_ref().map(|error| format!("failed: {error}"));
        for text in error.iter().chain(Some(&answer.text).filter(|text| !text.is_empty())) {
            writeln!(out, "    {side}: {}", text.replace('\n', "\n      "))?;
        }
    }
    Ok(())
}
