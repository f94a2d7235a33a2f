//! Command-line definition, and its conversion into configuration sources.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::{Flags, Service};
use crate::dev::DevOptions;
use crate::usage::UsageSelection;
use agent_core::ids::{CompanyId, UserId};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use url::Url;

mod args;
mod budget;
mod provider;
mod replay;
mod token;

use args::whole_seconds;
pub(crate) use args::{AgentArgs, ConfigFileArg};
pub(crate) use budget::{BudgetArgs, BudgetCommand};
pub(crate) use provider::ProviderCommand;
pub(crate) use replay::ReplayArgs;
pub(crate) use token::{ApiArgs, McpArgs, NewTokenArgs, SessionArgs, TokenCommand, WidgetArgs};

/// End of the help.
const EXIT_CODES: &str = "\
Commands on stored data use the database of DATABASE_URL, by default sqlite://data/app.db.
`agentd config print` shows all settings with their defaults.

Exit codes: 0 if the command has done its work, 1 after an error, 2 for an invalid command line,
130 after a third signal to stop, 141 if the reader of the output has ended. `replay` has others.";

/// The agent chat platform: chat routing, context assembly, tools and the agent runtime.
#[derive(Debug, Parser)]
#[command(name = "agentd", version, max_term_width = 100, propagate_version = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands of `agentd`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run all services in one process on loopback, with a demo workspace.
    #[command(
        after_help = "The first available model answers: OpenAI's (OPENAI_API_KEY), Anthropic's (ANTHROPIC_API_KEY), one of an \
            Ollama server on this machine, or a demo model that is downloaded."
    )]
    Dev(DevArgs),
    /// Run the application server.
    #[command(after_help = "`agentd config print app` shows its settings.")]
    App(ServiceArgs),
    /// Run the agent runtime.
    #[command(after_help = "`agentd config print runtime` shows its settings.")]
    Runtime(ServiceArgs),
    /// Run the scheduler.
    #[command(
        after_help = "It needs PULSE_SECRET and CALLBACK_URL; `agentd config print scheduler` shows all settings."
    )]
    Scheduler(ServiceArgs),
    /// Import a workspace file into the store, in full or not at all; importing it again changes nothing.
    Import {
        /// Workspace file in JSON: users, agents, documents, todo lists and more.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Configuration source.
        #[command(flatten)]
        settings: ConfigFileArg,
    },
    /// Print agents, documents, lists and more as a workspace file, with masked secrets. Threads, files, tokens, budgets and
    /// providers are not in it; `agentd backup` copies everything.
    Export {
        /// Export this company only.
        #[arg(long, value_name = "ID")]
        company: Option<CompanyId>,
        /// Configuration source.
        #[command(flatten)]
        settings: ConfigFileArg,
    },
    /// Copy everything from one database into an empty one, SQLite or PostgreSQL, and compare them.
    #[command(
        after_help = "The jobs of a scheduler in the same PostgreSQL database are not copied.\n\nExamples:\n  agentd copy sqlite://data/app.db env:OWNER_URL\n  agentd copy env:OWNER_URL sqlite://copy.db"
    )]
    Copy {
        /// URL of the source, or env:NAME for the environment variable that contains it. The source may be in use.
        #[arg(value_name = "FROM")]
        from: String,
        /// URL of the target, or env:NAME.
        #[arg(value_name = "TO")]
        to: String,
    },
    /// Migrate the tables of the database to the version of this program; the application does so too when it starts.
    Migrate {
        /// Change nothing; exit with an error if a migration is pending.
        #[arg(long)]
        check: bool,
        /// Configuration source.
        #[command(flatten)]
        settings: ConfigFileArg,
    },
    /// Copy the store into a new SQLite file, while it is in use.
    Backup {
        /// Path of the new file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Configuration source.
        #[command(flatten)]
        settings: ConfigFileArg,
    },
    /// Manage the secrets sealed under DATA_SECRET.
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Create, list and revoke tokens.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Manage the users of a company.
    #[command(subcommand)]
    User(UserCommand),
    /// Export and delete the conversations of a user.
    #[command(subcommand)]
    Threads(ThreadsCommand),
    /// Print the usage of a company's model calls, as a tab-separated table.
    Usage {
        /// Sums to print.
        #[command(flatten)]
        selection: UsageSelection,
        /// Configuration source.
        #[command(flatten)]
        settings: ConfigFileArg,
    },
    /// Show and set budgets: limits on the usage of companies, agents, users, tokens and runs.
    #[command(subcommand)]
    Budget(BudgetCommand),
    /// List, set and delete the providers of models that belong to a company.
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// Repeat a recorded run without calling a model or a tool, and compare it with its record. Exits with 0 if nothing differs,
    /// with 3 if something does, and with 4 if its inputs or events are not recorded.
    #[command(
        after_help = "Examples:\n  agentd replay run.json\n  agentd replay RUN --user ada --company acme --live"
    )]
    Replay(ReplayArgs),
    /// Sign users in to the console.
    #[command(subcommand)]
    Console(ConsoleCommand),
    /// Show the prompt that an agent's model would receive, with the reasons; nothing is sent, and secrets are masked.
    #[command(after_help = "Example:\n  agentd prompt --agent guide --message 'Are you open?'")]
    Prompt(PromptArgs),
    /// Check or show the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Manage the weights of the embedded model, and check the models of agents.
    #[command(subcommand)]
    Model(ModelCommand),
    /// Print the OpenAPI description of the services.
    Openapi,
    /// Print a shell's completion script.
    Completions {
        /// Target shell.
        shell: Shell,
    },
    /// Extract the text of a document from standard input, under limits, for the application: an internal protocol.
    #[command(hide = true)]
    Extract(ExtractArgs),
    /// Check that a running service is live; exits with 0 if it is.
    Healthcheck(HealthcheckArgs),
}

/// Arguments of `agentd dev`.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Folder for data and generated secrets.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data: PathBuf,
    /// Port of the application; the runtime uses the next port, and the scheduler the one after.
    #[arg(long, value_name = "PORT", default_value_t = 3000, value_parser = clap::value_parser!(u16).range(1..65533))]
    pub(crate) port: u16,
    /// Workspace file to use in place of the demo's.
    #[arg(long, value_name = "FILE")]
    pub(crate) workspace: Option<PathBuf>,
    /// Start a PostgreSQL server over the data folder, and store everything there in place of SQLite files.
    #[arg(long)]
    pub(crate) postgres: bool,
}

impl DevArgs {
    /// Converts the arguments into the options of [`crate::dev::run`].
    pub(crate) fn options(self) -> DevOptions {
        DevOptions { data: self.data, port: self.port, workspace: self.workspace, postgres: self.postgres }
    }
}

/// Arguments of every service.
#[derive(Debug, Default, Args)]
pub(crate) struct ServiceArgs {
    /// TOML file with settings, named like the environment variables.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address to listen on (HOST).
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) host: Option<String>,
    /// Port to listen on (PORT).
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<String>,
}

impl ServiceArgs {
    /// Returns the flags as a configuration source.
    pub(crate) fn flags(&self) -> Flags {
        let flags = [("HOST", &self.host), ("PORT", &self.port)];
        let values = flags.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        Flags { config: self.config.clone(), values }
    }
}

/// Subcommands of `agentd secrets`.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// Reseal under DATA_SECRET all secrets that are still sealed under DATA_SECRET_PREVIOUS.
    Rotate(ConfigFileArg),
}

/// Subcommands of `agentd user`.
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Delete a user with threads, memory, notifications, files, todo lists, assignments and jobs, and revoke the user's tokens.
    /// Agents and documents stay.
    Delete {
        /// Identifier of the user.
        #[arg(long, value_name = "ID")]
        user: UserId,
        /// Identifier of the user's company.
        #[arg(long, value_name = "ID")]
        company: CompanyId,
        /// Configuration source.
        #[command(flatten)]
        settings: ConfigFileArg,
    },
}

/// Subcommands of `agentd threads`.
#[derive(Debug, Subcommand)]
pub(crate) enum ThreadsCommand {
    /// Print all threads of a user with all of their stored data, one JSON object per line.
    Export(ThreadsArgs),
    /// Delete all threads of a user.
    Delete(ThreadsArgs),
}

/// Owner of threads.
#[derive(Debug, Args)]
pub(crate) struct ThreadsArgs {
    /// Identifier of the user, or of a visitor: widget:<tokenId>:<hash>.
    #[arg(long, value_name = "ID")]
    pub(crate) user: UserId,
    /// Identifier of the user's company.
    #[arg(long, value_name = "ID")]
    pub(crate) company: CompanyId,
    /// Configuration source.
    #[command(flatten)]
    pub(crate) settings: ConfigFileArg,
}

/// Arguments of `agentd prompt`.
#[derive(Debug, Args)]
pub(crate) struct PromptArgs {
    /// Agent that receives the message.
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// User message; without it, the prompt of a turn without messages is shown.
    #[arg(long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Identifier of the user who sends the message; the agent's owner, if it is left out.
    #[arg(long, value_name = "ID")]
    pub(crate) user: Option<UserId>,
    /// Todo list to which tasks and plans are written.
    #[arg(long, value_name = "ID")]
    pub(crate) todo_list: Option<String>,
    /// Print the preview as JSON, as the preview route returns it.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Subcommands of `agentd console`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConsoleCommand {
    /// Print a link that signs a user in to the console once, alone on the last line. Its address is PUBLIC_URL, or else
    /// loopback with PORT.
    Link(LinkArgs),
}

/// Arguments of `agentd console link`.
#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    /// Identifier of the user.
    #[arg(long, value_name = "ID")]
    pub(crate) user: UserId,
    /// Identifier of the user's company.
    #[arg(long, value_name = "ID")]
    pub(crate) company: CompanyId,
    /// Lifetime of the link, at most 1h.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = whole_seconds)]
    pub(crate) ttl: Duration,
    /// Time without a request after which the session ends, at most 7d.
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = whole_seconds)]
    pub(crate) session: Duration,
    /// Configuration source.
    #[command(flatten)]
    pub(crate) settings: ConfigFileArg,
}

/// Subcommands of `agentd config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print all errors of the configuration, and environment variables that are probably misspelt settings. Exits with 1 if
    /// there are errors.
    Check(ConfigArgs),
    /// Print the settings with their sources; secrets are masked.
    Print(ConfigArgs),
}

/// Arguments of `agentd config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Service to inspect; all services, if it is left out.
    #[arg(value_name = "SERVICE")]
    pub(crate) name: Option<ServiceName>,
    /// Flags that the service would be started with.
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// A service, by the name of its command.
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

/// Subcommands of `agentd model`.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Download weights into MODEL_DIR and verify their checksum.
    Pull {
        /// Name of the model; the default model, if it is left out.
        name: Option<String>,
        /// Configuration source.
        #[command(flatten)]
        settings: ConfigFileArg,
    },
    /// List the known models, and which of them are downloaded.
    List(ConfigFileArg),
    /// Print the agents whose models are missing in the catalogue; exits with an error if there are any.
    Check(ConfigFileArg),
}

/// Arguments of `agentd extract`.
#[derive(Debug, Args)]
pub(crate) struct ExtractArgs {
    /// Declared media type of the document.
    #[arg(value_name = "MEDIA_TYPE")]
    pub(crate) media_type: String,
    /// Limit on the process's address space in bytes.
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory: u64,
    /// Limit on the process's processor time in seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) cpu: u64,
}

/// Arguments of `agentd healthcheck`.
#[derive(Debug, Args)]
pub(crate) struct HealthcheckArgs {
    /// Base URL of the service; loopback with PORT from the environment, or 3000, if it is left out.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<Url>,
    /// Timeout of the check.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Duration,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_names_the_database_and_has_examples_that_parse() {
        let mut command = Cli::command();
        let help = command.render_help().to_string();
        assert!(help.contains("DATABASE_URL") && help.contains("141"), "{help}");
        let mut count = 0;
        for name in ["copy", "prompt", "replay"] {
            let help = command.find_subcommand_mut(name).expect("a command").render_help().to_string();
            for example in help.lines().filter_map(|line| line.strip_prefix("  agentd ")) {
                let parsed = parse(&example.replace("'Are you open?'", "text"));
                assert!(parsed.is_ok(), "{example}: {parsed:?}");
                count += 1;
            }
        }
        assert_eq!(count, 5);
    }

    fn parse(line: &str) -> Result<Command, clap::error::ErrorKind> {
        let words = std::iter::once("agentd").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.command).map_err(|error| error.kind())
    }

    #[test]
    fn the_command_definition_passes_claps_checks() {
        Cli::command().debug_assert();
    }

    #[test]
    fn valid_command_lines_are_parsed() {
        for line in [
            "dev",
            "dev --data here",
            "dev --postgres --port 4000",
            "app",
            "app --config a.toml --host ::1 --port 0",
            "import w.json --config a.toml",
            "export",
            "export --company acme --config a.toml",
            "backup copy.db",
            "secrets rotate",
            "user delete --user u --company c --config a.toml",
            "threads export --user u --company c",
            "usage --company c",
            "usage --company c --from 2026-01-01 --to 2026-01-31 --group-by day,agent --agent a --user u --config a.toml",
            "threads delete --user u --company c --config a.toml",
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
            "token api --user u --company c --agent a",
            "token api --user u --agent a --agent b --runs-per-minute 5 --runs-per-day 100 --ttl 7d --label Chat",
            "token revoke 01a1fe22-a2c2-7440-ae11-e6c0fd9f117d",
            "token list --agent a",
            "token list --agent a --company c",
            "prompt --agent a --company c --user u",
            "config check",
            "config check app --config a.toml --port 1",
            "config print runtime",
            "model pull",
            "model pull smollm2 --config a.toml",
            "model list",
            "model check --config a.toml",
            "completions zsh",
            "extract text/plain --memory 1073741824 --cpu 60",
            "healthcheck",
            "healthcheck --url http://127.0.0.1:3001 --timeout 1s",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line));
        }
    }

    #[test]
    fn invalid_command_lines_are_refused() {
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
            ("user delete --user u", ErrorKind::MissingRequiredArgument),
            ("threads delete --user u", ErrorKind::MissingRequiredArgument),
            ("threads export --company c", ErrorKind::MissingRequiredArgument),
            ("usage", ErrorKind::MissingRequiredArgument),
            ("usage --company c --from yesterday", ErrorKind::ValueValidation),
            ("token widget", ErrorKind::MissingRequiredArgument),
            ("token widget --agent a --origin *", ErrorKind::ValueValidation),
            ("token widget --agent a --origin https://a.example/page", ErrorKind::ValueValidation),
            ("token widget --agent a --runs-per-minute 0", ErrorKind::ValueValidation),
            ("token widget --agent a --ttl 0s", ErrorKind::ValueValidation),
            ("token mcp --agent a", ErrorKind::MissingRequiredArgument),
            ("token api --user u --company c", ErrorKind::MissingRequiredArgument),
            ("token api --agent a", ErrorKind::MissingRequiredArgument),
            ("token api --user u --agent a --runs-per-minute 0", ErrorKind::ValueValidation),
            ("token api --user u --agent a --runs-per-day 5", ErrorKind::MissingRequiredArgument),
            ("token revoke", ErrorKind::MissingRequiredArgument),
            ("token list", ErrorKind::MissingRequiredArgument),
            ("config print database", ErrorKind::InvalidValue),
            ("healthcheck --url nowhere", ErrorKind::ValueValidation),
            ("completions tcl", ErrorKind::InvalidValue),
            ("extract text/plain", ErrorKind::MissingRequiredArgument),
        ] {
            assert_eq!(parse(line).err(), Some(expected), "{line}");
        }
        let zero = "agentd token widget --agent a --runs-per-minute 0".split(' ');
        let message = Cli::try_parse_from(zero).expect_err("no limit").to_string();
        assert!(message.contains("must be a whole number from 1 to 4294967295"), "{message}");
    }

    #[test]
    fn flags_become_settings() {
        let Ok(Command::App(args)) = parse("app --config a.toml --port 4000") else { panic!("it parses") };
        let flags = args.flags();
        assert_eq!(flags.config, Some(PathBuf::from("a.toml")));
        assert_eq!(flags.values.into_iter().collect::<Vec<_>>(), [("PORT", "4000".to_owned())]);
    }
}
