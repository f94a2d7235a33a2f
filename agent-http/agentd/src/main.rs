//! The agent chat platform's one binary: it reads the command line and hands over.

mod cli;
mod failure;
mod healthcheck;
mod settings;
mod token;

use std::future::Future;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use agent_http::config::{AppConfig, ProcessEnv, RuntimeConfig};
use agentd::dev::{self, DevOptions};
use agentd::{StartError, logging, run, weights};
use clap::{CommandFactory, Parser};

use cli::{AppArgs, Cli, Command, ConfigCommand, DevArgs, ServiceArgs, TokenCommand};
use failure::CommandError;

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let mut out = std::io::stdout();
    match dispatch(command, &mut out).and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads has read enough, as `head` does.
        Err(CommandError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to tell about a standard error that is closed.
            let _ = writeln!(std::io::stderr(), "agentd: {error}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command, out: &mut dyn Write) -> Result<(), CommandError> {
    let env = &ProcessEnv;
    match command {
        Command::Token(TokenCommand::Session(args)) => token::session(&args, env, out),
        Command::Config(ConfigCommand::Check(args)) => settings::check(&args, env, out),
        Command::Config(ConfigCommand::Print(args)) => settings::print(&args, env, out),
        Command::Completions { shell } => {
            // By way of memory, because the generator panics where it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "agentd", &mut script);
            Ok(out.write_all(&script)?)
        }
        Command::Healthcheck(args) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(healthcheck::run(&args, env))
        }
        Command::Dev(args) => serve(dev(args)),
        Command::App(args) => serve(app(args)),
        Command::Runtime(args) => serve(runtime(args)),
        Command::Model(_) => Err(CommandError::Unavailable("this command")),
    }
}

/// Runs a service on all processors.
fn serve(service: impl Future<Output = Result<(), StartError>>) -> Result<(), CommandError> {
    Ok(tokio::runtime::Runtime::new()?.block_on(service)?)
}

async fn dev(args: DevArgs) -> Result<(), StartError> {
    dev::run(DevOptions { data: args.data, port: args.port, workspace: args.workspace }).await
}

async fn app(args: AppArgs) -> Result<(), StartError> {
    let config = AppConfig::load(&args.service.flags(), &ProcessEnv)?;
    logging::init(&config.server.log)?;
    let local = weights::find(&config)?;
    run::app(config, args.workspace.as_deref(), local).await
}

async fn runtime(args: ServiceArgs) -> Result<(), StartError> {
    let config = RuntimeConfig::load(&args.flags(), &ProcessEnv)?;
    logging::init(&config.server.log)?;
    run::runtime(config).await
}
