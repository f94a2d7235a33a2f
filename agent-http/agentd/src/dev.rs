//! `agentd dev`: application, runtime and scheduler in one process on loopback, with a demo workspace.

mod ollama;
mod postgres;
mod runtime_url;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_core::model::Model;
use agent_http::auth::mint_session;
use agent_platform::console::{MAX_CODE_TTL, NewConsoleCode};
use agent_platform::roles::RoleStore as _;

use crate::config::{AppConfig, Env, Flags, NotUnicodeError, ProcessEnv, RuntimeConfig, SchedulerConfig};
use crate::run;
use crate::stores::{self, Stores, create_folder};
use crate::{StartError, logging, sign_in_link, weights};

pub use ollama::detect_ollama;
use postgres::DevCluster;

/// Workspace file of the demo: agents, documents and users.
pub(crate) const DEMO_WORKSPACE: &str = include_str!("../demo/workspace.json");

/// Identifier of both the demo's user and its company.
const DEMO_ID: &str = "demo";
/// Identifier of the demo agent that uses the embedded backend.
const DEMO_AGENT_ID: &str = "guide";
/// Chat request whose answer is in the demo's documents.
const DEMO_CHAT_REQUEST: &str =
    r#"{"agentId":"guide","threadId":"first","message":"On which days is Green Corner open?"}"#;
/// Chat request that calls a tool. The tool is named, because a small model does not choose tools well.
const DEMO_TOOL_REQUEST: &str = r#"{"agentId":"guide","todoListId":"garden","message":"Water the basil tomorrow","toolChoice":{"name":"createTodo"}}"#;

/// Lifetime of the session token in the printed curl commands.
const TOKEN_TTL: Duration = Duration::from_secs(12 * 60 * 60);
/// Name of the secrets file in the data folder.
const SECRETS_FILE: &str = "secrets.env";
/// Secrets that are generated if the operator has not set them.
const GENERATED_SECRETS: [&str; 6] =
    ["SESSION_SECRET", "INTERNAL_SECRET", "RUNTIME_SECRET", "DATA_SECRET", "PULSE_SECRET", "CRON_SECRET"];

/// Options of `run`.
pub(crate) struct DevOptions {
    /// Folder for databases, secrets and weights.
    pub(crate) data: PathBuf,
    /// Port of the application; the runtime uses the next port, and the scheduler the one after.
    pub(crate) port: u16,
    /// Workspace file to use in place of the demo's.
    pub(crate) workspace: Option<PathBuf>,
    /// Starts a PostgreSQL server over the data folder, and stores everything there.
    pub(crate) postgres: bool,
}

/// Runs all services until a stop signal.
///
/// # Errors
/// Any error that prevents a service from starting, or stops its server.
pub(crate) async fn run(options: DevOptions) -> Result<(), StartError> {
    let cluster = locate_cluster(&options, &ProcessEnv)?;
    let overlay = build_env(&options, cluster.as_ref())?;
    let flags = Flags::default();
    let mut app = AppConfig::load(&flags, &overlay.with_port(options.port))?;
    let runtime = RuntimeConfig::load(&flags, &overlay.with_port(options.port + 1))?;
    let scheduler = SchedulerConfig::load(&flags, &overlay.for_scheduler(&options))?;
    logging::init(&app.server.log)?;

    let server_description = cluster.as_ref().map(DevCluster::description);
    // Declared before the stores, the server is dropped after them: it stops when the services have ended.
    let _server = match cluster {
        Some(cluster) => Some(cluster.start().await?),
        None => None,
    };
    let (stores, origin) = open_workspace(&app, &options).await?;
    let listener = run::listen(app.server.listen).await?;
    let runtime_listener = run::listen(runtime.server.listen).await?;
    let (jobs, jobs_in) = stores::open_jobs(&scheduler).await?;
    let scheduler_listener = run::listen(scheduler.listen).await?;
    // A download of weights takes minutes, so a port that is taken is found before it.
    let local = select_models(&mut app).await?;
    let has_demo = options.workspace.is_none()
        && stores.roles.masked_role(&DEMO_ID.into(), &DEMO_AGENT_ID.into()).await?.is_some();
    let link = match has_demo && app.console {
        true => Some(demo_console_link(&app, &stores).await?),
        false => None,
    };
    print_welcome(&app, &origin, &options, link.as_deref(), has_demo)?;
    if let Some(description) = server_description {
        print_line(&format!("{description}\n"));
    }
    if has_coding_issuer(&overlay) {
        print_sign_in(&app);
    }

    let shutdown = run::shutdown_on_signal();
    tokio::try_join!(
        run::serve_app(&app, listener, stores, local, shutdown.clone()),
        run::serve_runtime(&runtime, runtime_listener, shutdown.clone()),
        run::serve_scheduler(&scheduler, scheduler_listener, jobs, jobs_in, shutdown),
    )?;
    Ok(())
}

/// Opens the data folder's stores and imports the operator's workspace file if one is given, or else the demo
/// workspace if the store is empty. Returns the stores and a description of the workspace for the welcome
/// message.
async fn open_workspace(app: &AppConfig, options: &DevOptions) -> Result<(Stores, String), StartError> {
    let stores = Stores::open(app).await?;
    let is_new = stores.records.companies(None).await?.is_empty();
    if let Some(path) = &options.workspace {
        for warning in stores.import_file(path).await?.warnings {
            print_line(&format!("warning: {} {}", warning.path, warning.message));
        }
        return Ok((stores, path.display().to_string()));
    }
    if is_new {
        stores.import("the demo workspace", DEMO_WORKSPACE).await?;
    }
    if let Some(url) = &app.runtime_url {
        // Each database has a separate demo agent.
        let file = if options.postgres { "runtime.postgres.url" } else { "runtime.url" };
        runtime_url::update(&*stores.roles, DEMO_ID, &options.data.join(file), url).await?;
    }
    Ok((stores, format!("the workspace in {}", options.data.display())))
}

/// Selects the default model provider and prints it: a hosted model if the environment has a key, otherwise a model of
/// an Ollama server, otherwise the embedded model, which is downloaded if it is missing.
async fn select_models(app: &mut AppConfig) -> Result<Option<Arc<dyn Model>>, StartError> {
    let ollama_message = detect_ollama(app).await?;
    let vendors = [&app.server.hosted, &app.anthropic];
    if let Some(hosted) = vendors.into_iter().find(|vendor| vendor.api_key.is_some()) {
        print_line(&format!("Agents use {} at {}.", hosted.model, hosted.base_url));
        return weights::open_configured(app);
    }
    if let Some(message) = ollama_message {
        print_line(&message);
    }
    if app.server.ollama.preferred { weights::open_configured(app) } else { weights::open_or_pull(app).await }
}

/// Environment with defaults for the variables that the operator has not set.
struct DevEnv {
    variables: BTreeMap<String, String>,
    port: Option<u16>,
    /// True if `DATABASE_URL` of the environment is ignored, because it belongs to another service.
    own_database: bool,
}

impl DevEnv {
    fn with_port(&self, port: u16) -> Self {
        Self { variables: self.variables.clone(), port: Some(port), own_database: self.own_database }
    }

    /// Returns the scheduler's environment. The scheduler always uses its own database, even if the
    /// environment sets `DATABASE_URL` for the application; with PostgreSQL, it has a separate schema.
    fn for_scheduler(&self, options: &DevOptions) -> Self {
        let mut overlay = self.with_port(options.port + 2);
        if !options.postgres {
            let database = options.data.join("scheduler.db");
            overlay.variables.insert("DATABASE_URL".into(), format!("sqlite://{}", database.display()));
        }
        overlay.own_database = true;
        overlay
    }
}

impl Env for DevEnv {
    fn var(&self, name: &str) -> Result<Option<String>, NotUnicodeError> {
        // `dev` fixes loopback and the ports; all other variables can be overridden by the operator.
        match (name, self.port) {
            ("HOST", _) => return Ok(Some("127.0.0.1".into())),
            ("DATABASE_URL", _) if self.own_database => return Ok(self.variables.get(name).cloned()),
            ("PORT", Some(port)) => return Ok(Some(port.to_string())),
            ("OUTBOUND_ALLOW", _) => {
                let default = self.variables.get(name).cloned().unwrap_or_default();
                let configured = ProcessEnv.var(name)?.unwrap_or_default();
                return Ok(Some([default, configured].join(",").trim_matches(',').to_owned()));
            }
            _ => {}
        }
        if let Some(configured) = ProcessEnv.var(name)? {
            return Ok(Some(configured));
        }
        // If the operator supplies the secret in a file, no generated secret is used.
        let in_file = ProcessEnv.var(&format!("{name}_FILE"))?.is_some();
        Ok(self.variables.get(name).filter(|_| !in_file).cloned())
    }
}

/// Returns the PostgreSQL cluster of the data folder, if the options ask for one.
///
/// # Errors
/// The environment names another database, or a cluster cannot be used on this machine.
fn locate_cluster(options: &DevOptions, env: &dyn Env) -> Result<Option<DevCluster>, StartError> {
    if !options.postgres {
        return Ok(None);
    }
    for name in ["DATABASE_URL", "DATABASE_URL_FILE"] {
        if env.var(name).map_or(true, |value| value.is_some_and(|value| !value.trim().is_empty())) {
            return Err(StartError::Other(format!(
                "--postgres starts a database of its own and cannot be combined with {name}, which is set in the \
                 environment"
            )));
        }
    }
    DevCluster::locate(&options.data).map(Some)
}

fn build_env(options: &DevOptions, cluster: Option<&DevCluster>) -> Result<DevEnv, StartError> {
    let mut variables = secrets(&options.data)?;
    let (app, runtime) = (options.port, options.port + 1);
    let database = match cluster {
        Some(cluster) => cluster.url(),
        None => format!("sqlite://{}", options.data.join("app.db").display()),
    };
    variables.insert("DATABASE_URL".into(), database);
    variables.insert("MODEL_DIR".into(), options.data.join("models").display().to_string());
    variables.insert("RUNTIME_URL".into(), format!("http://127.0.0.1:{runtime}"));
    variables.insert("PULSE_URL".into(), format!("http://127.0.0.1:{}", options.port + 2));
    variables.insert("CALLBACK_URL".into(), format!("http://127.0.0.1:{app}/api/pulse/callback"));
    let local_hosts = [app, runtime, options.port + 2, 11434]
        .map(|port| format!("127.0.0.1:{port},localhost:{port}"))
        .join(",");
    variables.insert("OUTBOUND_ALLOW".into(), local_hosts);
    variables.insert("LOG".into(), "warn,agentd=info".into());
    variables.insert("MCP_LEGACY_QUERY".into(), "on".into());
    variables.insert("CONSOLE".into(), "on".into());
    variables.insert("RUN_PROMPTS".into(), "keep".into());
    // Three services share the descriptors of one process.
    variables.insert("MAX_CONNECTIONS".into(), "1000".into());
    // Ollama sends no response headers until it has loaded the model.
    variables.insert("RESPONSE_HEADER_TIMEOUT_MS".into(), "300000".into());
    Ok(DevEnv { variables, port: None, own_database: cluster.is_some() })
}

/// Reads the secrets of this data folder and generates the missing ones. The file is readable by its owner
/// only.
fn secrets(data: &Path) -> Result<BTreeMap<String, String>, StartError> {
    use std::os::unix::fs::OpenOptionsExt;

    let path = data.join(SECRETS_FILE);
    let display_path = path.display().to_string();
    let unwritable = |source| StartError::Unwritable { path: display_path.clone(), source };
    create_folder(data)?;
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(StartError::Unreadable { path: display_path, source }),
    };
    let mut secrets: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect();
    let missing: Vec<&str> =
        GENERATED_SECRETS.into_iter().filter(|name| !secrets.contains_key(*name)).collect();
    if missing.is_empty() {
        return Ok(secrets);
    }
    let mut file =
        std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(unwritable)?;
    // An editor may leave the last line without its end.
    if !text.is_empty() && !text.ends_with('\n') {
        writeln!(file).map_err(unwritable)?;
    }
    for name in missing {
        let secret = random_secret();
        writeln!(file, "{name}={secret}").map_err(unwritable)?;
        secrets.insert(name.to_owned(), secret);
    }
    Ok(secrets)
}

/// Returns 244 random bits in hexadecimal: two version 4 UUIDs.
fn random_secret() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

/// Creates a link that signs the demo's user in to the console. It is valid for the maximum lifetime of a code, since it waits
/// in the terminal.
async fn demo_console_link(app: &AppConfig, stores: &Stores) -> Result<String, StartError> {
    let new = NewConsoleCode { ttl: MAX_CODE_TTL, ..NewConsoleCode::new(DEMO_ID, DEMO_ID) };
    let link = sign_in_link::create_link(stores, &app.public_url(app.server.listen), new).await;
    link.map_err(|error| StartError::Other(format!("the link to the console cannot be created: {error}")))
}

/// Prints the address, the link to the console, and how to send a request: curl commands for the demo, or the commands
/// that create a link and a token.
fn print_welcome(
    app: &AppConfig,
    origin: &str,
    options: &DevOptions,
    link: Option<&str>,
    has_demo: bool,
) -> Result<(), StartError> {
    let address: SocketAddr = app.server.listen;
    print_line(&format!("\nThe agents of {origin} are served at http://{address}. Press Ctrl-C to stop."));
    if let Some(link) = link {
        print_line(&format!("\nOpen the console (the link works once, for an hour):\n\n  {link}"));
    }
    if !has_demo {
        let secrets = options.data.join(SECRETS_FILE);
        let secrets = secrets.display();
        if app.console {
            let database = options.data.join("app.db");
            print_line(&format!(
                "\nCreate a link to the console:\n\n  DATABASE_URL=sqlite://{} PORT={} agentd console link --user USER \
                 --company COMPANY",
                database.display(),
                options.port
            ));
        }
        print_line(&format!(
            "\nCreate a session token:\n\n  (set -a; . {secrets}; agentd token session --user USER --company COMPANY)\n"
        ));
        return Ok(());
    }
    let secret = app.session_secret.as_ref().expect("dev always has one");
    let token = mint_session(secret, &DEMO_ID.into(), &DEMO_ID.into(), TOKEN_TTL)
        .map_err(|error| StartError::Other(format!("the session token cannot be created: {error}")))?;
    let curl = |body: &str| {
        format!(
            "  curl -N http://{address}/api/agent/chat \\\n    -H 'Authorization: Bearer {token}' \\\n    \
             -H 'Content-Type: application/json' \\\n    -d '{body}'\n"
        )
    };
    print_line(&format!("\nSend a message:\n\n{}", curl(DEMO_CHAT_REQUEST)));
    print_line(&format!("Create a todo, which is kept across restarts:\n\n{}", curl(DEMO_TOOL_REQUEST)));
    Ok(())
}

/// Returns true if the environment configures an issuer, so that the runtime can sign users in to their subscriptions.
fn has_coding_issuer(env: &dyn Env) -> bool {
    let is_set = |name: &str| env.var(name).ok().flatten().is_some_and(|value| !value.trim().is_empty());
    is_set("CODING_AUTH_URL") && is_set("CODING_CLIENT_ID")
}

/// Prints how users sign in to their subscriptions.
fn print_sign_in(app: &AppConfig) {
    let address = app.server.listen;
    print_line(&format!(
        "Sign in to your own subscription, with a session token in TOKEN; the answer has the page and the code:\n\n  \
         curl -X POST http://{address}/api/coding/sign-in \\\n    -H \"Authorization: Bearer $TOKEN\"\n"
    ));
}

/// Prints a text for the developer at the terminal. The services keep running if the output is closed, as by `agentd dev | head`.
fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[cfg(test)]
mod environment_tests {
    use super::*;

    #[test]
    fn secrets_are_added_below_a_last_line_without_an_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let edited = "SESSION_SECRET=session-secret-0\nDATA_SECRET=data-secret-0000";
        std::fs::write(folder.path().join(SECRETS_FILE), edited).expect("written");
        let first = secrets(folder.path()).expect("secrets");
        assert_eq!(first["DATA_SECRET"], "data-secret-0000");
        assert_eq!(first.len(), GENERATED_SECRETS.len());
        assert_eq!(secrets(folder.path()).expect("secrets"), first, "the next start has the same");
    }

    #[test]
    fn a_sign_in_is_offered_where_an_issuer_is_configured() {
        let (url, client) = (("CODING_AUTH_URL", "https://issuer.example"), ("CODING_CLIENT_ID", "c"));
        for (env, expected) in [
            (vec![], false),
            (vec![url], false),
            (vec![client], false),
            (vec![url, ("CODING_CLIENT_ID", " ")], false),
            (vec![url, client], true),
        ] {
            let env: BTreeMap<&str, &str> = env.into_iter().collect();
            assert_eq!(has_coding_issuer(&env), expected, "{env:?}");
        }
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests;
