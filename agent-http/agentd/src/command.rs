//! Execution of the command that is on the command line.

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;

use crate::cli::{
    Cli, Command, ConfigCommand, ConsoleCommand, ModelCommand, SecretsCommand, ThreadsCommand, TokenCommand,
    UserCommand,
};
use crate::command_error::CommandError;
use crate::config::{AppConfig, Env, ProcessEnv, RuntimeConfig, SchedulerConfig};
use crate::extract::command::ProcessLimits;
use crate::{
    budget, console, data, dev, extract, healthcheck, logging, migration, model, prompt, provider, replay,
    run, settings, threads, token, usage, user, weights,
};

/// Parses the command line of the process and runs the command; errors are written to standard error.
pub fn run_command_line() -> ExitCode {
    let command = Cli::parse().command;
    if let Command::Extract(args) = command {
        let limits = ProcessLimits { memory_bytes: args.memory, cpu_seconds: args.cpu };
        return extract::command::run(&args.media_type, limits);
    }
    let mut out = std::io::stdout().lock();
    match execute(command, &mut out).and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A reader that has ended, such as `head`, wants no more: nothing has failed.
            if !error.is_broken_pipe() {
                // If standard error is closed, the error cannot be reported.
                let _ = writeln!(std::io::stderr(), "agentd: {error}");
            }
            error.exit_code()
        }
    }
}

/// Runs an asynchronous command on a multi-threaded runtime.
fn block_on(command: impl Future<Output = Result<(), CommandError>>) -> Result<(), CommandError> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(command)
}

fn execute(command: Command, out: &mut dyn Write) -> Result<(), CommandError> {
    let env = &ProcessEnv;
    match command {
        Command::Token(TokenCommand::Session(args)) => token::session(args, env, out),
        Command::Token(TokenCommand::Widget(args)) => block_on(token::widget(args, env, out)),
        Command::Token(TokenCommand::Mcp(args)) => block_on(token::mcp(args, env, out)),
        Command::Token(TokenCommand::Api(args)) => block_on(token::api(args, env, out)),
        Command::Token(TokenCommand::Revoke { id, settings }) => {
            block_on(token::revoke(&id, &settings.load(env)?, out))
        }
        Command::Token(TokenCommand::List(args)) => block_on(token::list(args, env, out)),
        Command::Import { file, settings } => block_on(data::import(&file, &settings.load(env)?, out)),
        Command::Export { company, settings } => {
            block_on(data::export(company.as_ref(), &settings.load(env)?, out))
        }
        Command::Copy { from, to } => block_on(migration::copy_between(&from, &to, out)),
        Command::Migrate { check, settings } => {
            block_on(migration::migrate(&settings.load(env)?, check, out))
        }
        Command::Backup { file, settings } => block_on(data::backup(&file, &settings.load(env)?, out)),
        Command::Secrets(SecretsCommand::Rotate(settings)) => {
            block_on(data::rotate(&settings.load(env)?, out))
        }
        Command::User(UserCommand::Delete { user, company, settings }) => {
            block_on(user::delete(&user, &company, &settings.load(env)?, out))
        }
        Command::Threads(ThreadsCommand::Export(args)) => {
            block_on(threads::export(&args.user, &args.company, &args.settings.load(env)?, out))
        }
        Command::Threads(ThreadsCommand::Delete(args)) => {
            block_on(threads::delete(&args.user, &args.company, &args.settings.load(env)?, out))
        }
        Command::Usage { selection, settings } => block_on(usage::show(selection, &settings.load(env)?, out)),
        Command::Budget(command) => block_on(budget::run(command, env, out)),
        Command::Provider(command) => block_on(provider::run(command, env, out)),
        Command::Replay(args) => block_on(replay::run(args, env, out)),
        Command::Console(ConsoleCommand::Link(args)) => block_on(console::link(args, env, out)),
        Command::Prompt(args) => block_on(prompt::show(args, env, out)),
        Command::Config(ConfigCommand::Check(args)) => settings::check(&args, env, out),
        Command::Config(ConfigCommand::Print(args)) => settings::print(&args, env, out),
        Command::Openapi => {
            serde_json::to_writer_pretty(&mut *out, &agent_http::openapi::document())
                .map_err(std::io::Error::from)?;
            Ok(writeln!(out)?)
        }
        Command::Completions { shell } => print_completions(shell, out),
        // Handled first, since its errors have another format.
        Command::Extract(_) => Ok(()),
        Command::Healthcheck(args) => block_on(healthcheck::run(&args, env)),
        Command::Dev(args) => block_on(async { Ok(dev::run(args.options()).await?) }),
        Command::App(_) | Command::Runtime(_) | Command::Scheduler(_) => run_service(command, env),
        Command::Model(ModelCommand::List(settings)) => model::list(&settings.load(env)?, out),
        Command::Model(ModelCommand::Check(settings)) => block_on(model::check(&settings.load(env)?, out)),
        Command::Model(ModelCommand::Pull { name, settings }) => {
            block_on(model::pull(name.as_deref(), &settings.load(env)?, out))
        }
    }
}

/// Prints a shell's completion script.
fn print_completions(shell: Shell, out: &mut dyn Write) -> Result<(), CommandError> {
    // The generator panics if it cannot write, as to a pipe whose reader has ended.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "agentd", &mut script);
    Ok(out.write_all(&script)?)
}

/// Runs a service until a stop signal.
fn run_service(command: Command, env: &dyn Env) -> Result<(), CommandError> {
    match command {
        Command::App(args) => {
            let config = AppConfig::load(&args.flags(), env)?;
            logging::init(&config.server.log)?;
            let local = weights::open_configured(&config)?;
            block_on(async { Ok(run::app(config, local).await?) })
        }
        Command::Runtime(args) => {
            let config = RuntimeConfig::load(&args.flags(), env)?;
            logging::init(&config.server.log)?;
            block_on(async { Ok(run::runtime(config).await?) })
        }
        Command::Scheduler(args) => {
            let config = SchedulerConfig::load(&args.flags(), env)?;
            logging::init(&config.log)?;
            block_on(async { Ok(run::scheduler(config).await?) })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_are_printed_or_fail_with_an_error() {
        let mut script = Vec::new();
        print_completions(Shell::Bash, &mut script).expect("a script");
        assert!(String::from_utf8(script).expect("text").contains("_agentd()"));
        let mut no_room: &mut [u8] = &mut [0; 16];
        print_completions(Shell::Bash, &mut no_room).expect_err("no room");
    }
}
