//! The agent chat platform's one binary: it reads the command line and hands over.

mod cli;
mod failure;
mod healthcheck;
mod model;
mod settings;
mod stores;
mod token;

use std::io::Write;
use std::process::ExitCode;

use agent_http::config::{AppConfig, ProcessEnv, RuntimeConfig};
use agentd::{dev, logging, run, weights};
use clap::{CommandFactory, Parser};

use cli::{Cli, Command, ConfigCommand, ModelCommand, TokenCommand};
use failure::CommandError;

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let mut out = std::io::stdout().lock();
    match execute(command, &mut out).and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to tell about a standard error that is closed.
            let _ = writeln!(std::io::stderr(), "agentd: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command that waits for things.
fn block_on(command: impl Future<Output = Result<(), CommandError>>) -> Result<(), CommandError> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(command)
}

fn execute(command: Command, out: &mut dyn Write) -> Result<(), CommandError> {
    let env = &ProcessEnv;
    match command {
        Command::Token(TokenCommand::Session(args)) => token::session(&args, env, out),
        Command::Token(TokenCommand::Widget(args)) => block_on(async {
            let stores = stores::open(args.token.agent.config.clone(), env).await?;
            token::widget(args, &stores, out).await
        }),
        Command::Token(TokenCommand::Mcp(args)) => block_on(async {
            let stores = stores::open(args.token.agent.config.clone(), env).await?;
            token::mcp(args, &stores, out).await
        }),
        Command::Token(TokenCommand::Revoke { id, config }) => {
            block_on(async { token::revoke(&id, &stores::open(config, env).await?, out).await })
        }
        Command::Token(TokenCommand::List(args)) => block_on(async {
            let stores = stores::open(args.config.clone(), env).await?;
            token::list(&args, &stores, out).await
        }),
        Command::Config(ConfigCommand::Check(args)) => settings::check(&args, env, out),
        Command::Config(ConfigCommand::Print(args)) => settings::print(&args, env, out),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "agentd", &mut &mut *out);
            Ok(())
        }
        Command::Healthcheck(args) => block_on(healthcheck::run(&args, env)),
        Command::Dev(args) => block_on(async { Ok(dev::run(args.options()).await?) }),
        Command::App(args) => {
            let config = AppConfig::load(&args.service.flags(), env)?;
            logging::init(&config.server.log)?;
            let local = weights::find(&config)?;
            block_on(async { Ok(run::app(config, args.workspace.as_deref(), local).await?) })
        }
        Command::Runtime(args) => {
            let config = RuntimeConfig::load(&args.flags(), env)?;
            logging::init(&config.server.log)?;
            block_on(async { Ok(run::runtime(config).await?) })
        }
        Command::Model(ModelCommand::List { config }) => model::list(config, env, out),
        Command::Model(ModelCommand::Pull { name, config }) => {
            block_on(model::pull(name.as_deref(), config, env, out))
        }
    }
}
