//! The agent chat platform's one binary: it reads the command line and hands over.

mod cli;
mod failure;
mod healthcheck;
mod settings;
mod token;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use agent_http::config::ProcessEnv;
use clap::{CommandFactory, Parser};

use cli::{Cli, Command, ConfigCommand, TokenCommand};
use failure::CommandError;

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let mut out = std::io::stdout().lock();
    match run(command, &mut out).and_then(|()| Ok(out.flush()?)) {
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

fn run(command: Command, out: &mut dyn Write) -> Result<(), CommandError> {
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
        Command::Dev(_) | Command::App(_) | Command::Runtime(_) | Command::Model(_) => {
            Err(CommandError::Unavailable("this command"))
        }
    }
}
