//! The command line: what can be said, and what it means for a configuration.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use agent_http::config::{AppConfig, Env, Faults, Flags, Service};
use agent_http::cors::normal_origin;
use agent_platform::token::Caps;
use agentd::dev::DevOptions;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use url::Url;

/// The agent chat platform: chat routing, context assembly, tools and the agent runtime.
#[derive(Debug, Parser)]
#[command(name = "agentd", version, max_term_width = 100, propagate_version = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything in one process on loopback, with a demo workspace.
    Dev(DevArgs),
    /// Run the application server.
    App(ServiceArgs),
    /// Run the agent runtime.
    Runtime(ServiceArgs),
    /// Run the scheduler.
    Scheduler(ServiceArgs),
    /// Take a workspace file into the store, all of it or nothing; again changes nothing.
    Import {
        /// Users, agents, documents, todo lists and more, as JSON.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Where the settings are.
        #[command(flatten)]
        settings: Settings,
    },
    /// Print what the store holds as a workspace file. Secrets are masked, tokens left out.
    Export {
        /// This company's alone.
        #[arg(long, value_name = "ID")]
        company: Option<String>,
        /// Where the settings are.
        #[command(flatten)]
        settings: Settings,
    },
    /// Copy the store into a new file, while it is in use.
    Backup {
        /// The new file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Where the settings are.
        #[command(flatten)]
        settings: Settings,
    },
    /// What is sealed under DATA_SECRET.
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Make, list and revoke tokens.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Show what an agent would be sent, and why; nothing is sent, secrets are masked.
    Prompt(PromptArgs),
    /// Check or show the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Weights of the embedded model.
    #[command(subcommand)]
    Model(ModelCommand),
    /// Print the OpenAPI description of the services.
    Openapi,
    /// Print a shell's completion script.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Ask a running service whether it lives; the exit code tells.
    Healthcheck(HealthcheckArgs),
}

/// What `dev` takes.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Where data and generated secrets are kept.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data: PathBuf,
    /// The application's port; the runtime's is the next, and the scheduler's the one after.
    #[arg(long, value_name = "PORT", default_value_t = 3000, value_parser = clap::value_parser!(u16).range(1..65533))]
    pub(crate) port: u16,
    /// A workspace file in place of the demo's.
    #[arg(long, value_name = "FILE")]
    pub(crate) workspace: Option<PathBuf>,
}

impl DevArgs {
    /// The same, for the code that runs it.
    pub(crate) fn options(self) -> DevOptions {
        DevOptions { data: self.data, port: self.port, workspace: self.workspace }
    }
}

/// What every service takes.
#[derive(Debug, Default, Args)]
pub(crate) struct ServiceArgs {
    /// A TOML file with settings, by the names of the environment's variables.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The address to listen on (HOST).
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) host: Option<String>,
    /// The port to listen on (PORT).
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<String>,
}

impl ServiceArgs {
    /// The flags as a source of settings.
    pub(crate) fn flags(&self) -> Flags {
        let given = [("HOST", &self.host), ("PORT", &self.port)];
        let values = given.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        Flags { config: self.config.clone(), values }
    }
}

/// Where a command's settings are, beside the environment.
#[derive(Debug, Default, Args)]
pub(crate) struct Settings {
    /// A TOML file with settings.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl Settings {
    /// The application's configuration.
    pub(crate) fn load(self, env: &dyn Env) -> Result<AppConfig, Faults> {
        AppConfig::load(&Flags { config: self.config, ..Flags::default() }, env)
    }
}

/// What can be done with sealed secrets.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// Seal everything under DATA_SECRET that is still under DATA_SECRET_PREVIOUS.
    Rotate(Settings),
}

/// The kinds of token.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// A session token, signed with SESSION_SECRET, alone on the last line.
    Session(SessionArgs),
    /// A token for a page that embeds an agent, alone on the last line.
    Widget(WidgetArgs),
    /// A token to call an agent's tools with, alone on the last line.
    Mcp(McpArgs),
    /// Make a token invalid, for good.
    Revoke {
        /// The token's identifier, as `token list` shows it.
        id: String,
        /// Where the settings are.
        #[command(flatten)]
        settings: Settings,
    },
    /// List an agent's widget and MCP tokens.
    List(AgentArgs),
}

/// Which agent.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The agent's identifier.
    #[arg(long, value_name = "ID")]
    pub(crate) agent: String,
    /// Where the settings are.
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// Which turn to show.
#[derive(Debug, Args)]
pub(crate) struct PromptArgs {
    /// Which agent is asked.
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// What it is asked; the plain prompt, if it is left out.
    #[arg(long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// The identifier of the person who asks; the agent's owner, if it is left out.
    #[arg(long, value_name = "ID")]
    pub(crate) user: Option<String>,
    /// The task list that tasks and plans go to.
    #[arg(long, value_name = "ID")]
    pub(crate) todo_list: Option<String>,
    /// Print what the preview's route answers, as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What widget and MCP tokens have in common.
#[derive(Debug, Args)]
pub(crate) struct NewTokenArgs {
    /// Which agent it is for.
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// How long the token lives, such as 30m, 1h or 7d; until it is revoked, if it is left out.
    #[arg(long, value_name = "DURATION", value_parser = whole_seconds)]
    pub(crate) ttl: Option<Duration>,
    /// What to call it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

/// What a widget token allows.
#[derive(Debug, Args)]
pub(crate) struct WidgetArgs {
    /// What all tokens have.
    #[command(flatten)]
    pub(crate) token: NewTokenArgs,
    /// An origin of pages that may use it, such as https://shop.example; any, if none is given.
    #[arg(long = "origin", value_name = "ORIGIN", value_parser = origin)]
    pub(crate) origins: Vec<String>,
    /// How many runs may begin in a minute.
    #[arg(long, value_name = "N", default_value_t = Caps::default().runs_per_minute)]
    pub(crate) runs_per_minute: NonZeroU32,
    /// How many runs may begin in a day; no cap, if it is left out.
    #[arg(long, value_name = "N")]
    pub(crate) runs_per_day: Option<NonZeroU32>,
}

/// What an MCP token allows.
#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// What all tokens have.
    #[command(flatten)]
    pub(crate) token: NewTokenArgs,
    /// The identifier of the person whom the tools work for.
    #[arg(long, value_name = "ID")]
    pub(crate) user: String,
    /// The task list that tasks and plans go to.
    #[arg(long, value_name = "ID")]
    pub(crate) todo_list: Option<String>,
    /// A tool that may be called; all of the agent's, if none is given.
    #[arg(long = "tool", value_name = "NAME")]
    pub(crate) tools: Vec<String>,
}

/// For whom a session token is.
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// The user's identifier.
    #[arg(long, value_name = "ID")]
    pub(crate) user: String,
    /// The identifier of the user's company.
    #[arg(long, value_name = "ID")]
    pub(crate) company: String,
    /// How long the token lives, such as 30m, 1h or 7d.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = whole_seconds)]
    pub(crate) ttl: Duration,
    /// Where the settings are.
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// What can be done with a configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say everything that is wrong with it, or nothing.
    Check(ConfigArgs),
    /// Show the settings and where each comes from, secrets masked.
    Print(ConfigArgs),
}

/// Which configuration.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// The service; all of them, if it is left out.
    #[arg(value_name = "SERVICE")]
    pub(crate) of: Option<ServiceName>,
    /// The flags that the service would be started with.
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// A service by its command's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServiceName {
    /// The application server.
    App,
    /// The agent runtime.
    Runtime,
    /// The scheduler.
    Scheduler,
}

impl ServiceName {
    pub(crate) fn service(self) -> Service {
        match self {
            Self::App => Service::App,
            Self::Runtime => Service::Runtime,
            Self::Scheduler => Service::Scheduler,
        }
    }
}

/// What can be done with weights.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Fetch weights into MODEL_DIR, checked by their checksum.
    Pull {
        /// The model; the default one, if it is left out.
        name: Option<String>,
        /// Where the settings are.
        #[command(flatten)]
        settings: Settings,
    },
    /// List the models that are known, and which of them are there.
    List(Settings),
}

/// Which service to ask, and for how long.
#[derive(Debug, Args)]
pub(crate) struct HealthcheckArgs {
    /// The service's address; loopback with PORT from the environment, or 3000, if it is left out.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<Url>,
    /// How long to wait for the answer.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Duration,
}

/// The origin as browsers write it.
fn origin(text: &str) -> Result<String, String> {
    let wrong = "must be an origin, such as https://shop.example or http://localhost:5173";
    normal_origin(text).ok_or_else(|| wrong.to_owned())
}

/// A token's claims count in seconds, so a shorter life would be none.
fn whole_seconds(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration.as_secs() == 0 { Err("must be a second or more".to_owned()) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Command, clap::error::ErrorKind> {
        let words = std::iter::once("agentd").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.command).map_err(|error| error.kind())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_that_can_be_said() {
        for line in [
            "dev",
            "dev --data here",
            "app",
            "app --config a.toml --host ::1 --port 0",
            "import w.json --config a.toml",
            "export",
            "export --company acme --config a.toml",
            "backup copy.db",
            "secrets rotate",
            "runtime --config a.toml --host 0.0.0.0 --port 3001",
            "scheduler --config a.toml --port 3002",
            "config check scheduler",
            "token session --user u --company c",
            "token session --user u --company c --ttl 7d --config a.toml",
            "token widget --agent a",
            "token widget --agent a --origin https://a.example --origin http://localhost:1 --ttl 7d \
             --runs-per-minute 5 --runs-per-day 100 --label Shop --config a.toml",
            "token mcp --user u --agent a",
            "token mcp --user u --agent a --todo-list l --tool readTodos --tool getDoc --ttl 30d",
            "token revoke 01a1fe22-a2c2-7440-ae11-e6c0fd9f117d",
            "token list --agent a",
            "config check",
            "config check app --config a.toml --port 1",
            "config print runtime",
            "model pull",
            "model pull smollm2 --config a.toml",
            "model list",
            "completions zsh",
            "healthcheck",
            "healthcheck --url http://127.0.0.1:3001 --timeout 1s",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line));
        }
    }

    #[test]
    fn commands_that_cannot() {
        use clap::error::ErrorKind;
        for (line, expected) in [
            ("", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("serve", ErrorKind::InvalidSubcommand),
            ("app --workspace w.json", ErrorKind::UnknownArgument),
            ("import", ErrorKind::MissingRequiredArgument),
            ("secrets", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("token session --user u", ErrorKind::MissingRequiredArgument),
            ("token session --user u --company c --ttl soon", ErrorKind::ValueValidation),
            ("token session --user u --company c --ttl 10ms", ErrorKind::ValueValidation),
            ("token widget", ErrorKind::MissingRequiredArgument),
            ("token widget --agent a --origin *", ErrorKind::ValueValidation),
            ("token widget --agent a --origin https://a.example/page", ErrorKind::ValueValidation),
            ("token widget --agent a --runs-per-minute 0", ErrorKind::ValueValidation),
            ("token widget --agent a --ttl 0s", ErrorKind::ValueValidation),
            ("token mcp --agent a", ErrorKind::MissingRequiredArgument),
            ("token revoke", ErrorKind::MissingRequiredArgument),
            ("token list", ErrorKind::MissingRequiredArgument),
            ("config print database", ErrorKind::InvalidValue),
            ("healthcheck --url nowhere", ErrorKind::ValueValidation),
            ("completions tcl", ErrorKind::InvalidValue),
        ] {
            assert_eq!(parse(line).err(), Some(expected), "{line}");
        }
    }

    #[test]
    fn flags_become_settings() {
        let Ok(Command::App(args)) = parse("app --config a.toml --port 4000") else { panic!("it parses") };
        let flags = args.flags();
        assert_eq!(flags.config, Some(PathBuf::from("a.toml")));
        assert_eq!(flags.values.into_iter().collect::<Vec<_>>(), [("PORT", "4000".to_owned())]);
    }
}
