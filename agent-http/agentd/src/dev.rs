//! `agentd dev`: application, runtime and scheduler in one process on loopback, with a demo workspace.

mod ollama;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_core::model::Model;
use agent_http::auth::mint_session;
use agent_http::config::{AppConfig, Env, Flags, NotUnicode, ProcessEnv, RuntimeConfig, SchedulerConfig};
use agent_platform::records::Inventory;

use crate::run::{self, Stop};
use crate::stores::{self, Stores};
use crate::{StartError, logging, weights};

pub use ollama::look_for_ollama;

/// The demo's agents, documents and people.
pub const DEMO: &str = include_str!("../demo/workspace.json");

/// The demo's user and company.
const DEMO_NAME: &str = "demo";
/// The demo's agent who answers in this process.
const GUIDE: &str = "guide";
/// A question that the demo's documents answer.
const HELLO: &str = r#"{"agentId":"guide","message":"On which days is Green Corner open?"}"#;
/// A wish that takes a tool, which is named since a small model does not choose well.
const TODO: &str = r#"{"agentId":"guide","todoListId":"garden","message":"Water the basil tomorrow","toolChoice":{"name":"createTodo"}}"#;

/// How long the printed curl lines work.
const TOKEN_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Where they are kept, below the data folder.
const SECRETS_FILE: &str = "secrets.env";
/// What is generated where the operator has set nothing.
const SECRETS: [&str; 6] =
    ["SESSION_SECRET", "INTERNAL_SECRET", "RUNTIME_SECRET", "DATA_SECRET", "PULSE_SECRET", "CRON_SECRET"];

/// What the command line says.
pub struct DevOptions {
    /// Where secrets and weights are kept.
    pub data: PathBuf,
    /// The application's port; the runtime's is the next, and the scheduler's the one after.
    pub port: u16,
    /// A workspace in place of the demo's.
    pub workspace: Option<PathBuf>,
}

/// Runs all services until a signal comes.
///
/// # Errors
/// What keeps them from starting.
pub async fn run(options: DevOptions) -> Result<(), StartError> {
    let overlay = overlay(&options)?;
    let flags = Flags::default();
    let mut app = AppConfig::load(&flags, &overlay.on(options.port))?;
    let runtime = RuntimeConfig::load(&flags, &overlay.on(options.port + 1))?;
    let scheduler = SchedulerConfig::load(&flags, &overlay.of_scheduler(&options))?;
    logging::init(&app.server.log)?;
    app.model_dir = options.data.join("models");

    let (stores, origin) = workspace(&app, &options).await?;
    let local = find_models(&mut app).await?;
    let listener = run::listen(app.server.listen).await?;
    let runtime_listener = run::listen(runtime.server.listen).await?;
    let (jobs, jobs_in) = stores::jobs(&scheduler).await?;
    let scheduler_listener = run::listen(scheduler.listen).await?;
    let has_demo =
        options.workspace.is_none() && stores.roles.company_of(GUIDE).await?.as_deref() == Some(DEMO_NAME);
    print_welcome(&app, &origin, &options, has_demo)?;

    let stop = Stop::on_signal();
    tokio::try_join!(
        run::serve_app(&app, listener, stores, local, stop.clone()),
        run::serve_runtime(&runtime, runtime_listener, stop.clone()),
        run::serve_scheduler(&scheduler, scheduler_listener, jobs, jobs_in, stop),
    )?;
    Ok(())
}

/// The data folder's workspace: what it held before, the operator's file if there is one, and the demo's in
/// a folder without any. The text names it for the welcome.
async fn workspace(app: &AppConfig, options: &DevOptions) -> Result<(Stores, String), StartError> {
    let store = Arc::new(stores::open(app)?);
    let is_new = store.companies(None).await?.is_empty();
    let stores = Stores::over(store, app);
    if let Some(path) = &options.workspace {
        stores.import_file(path).await?;
        return Ok((stores, path.display().to_string()));
    }
    if is_new {
        stores.import("the demo workspace", DEMO).await?;
    }
    Ok((stores, format!("the workspace in {}", options.data.display())))
}

/// Finds who answers agents that leave it open, and says so: a hosted model where the environment has a
/// key, else one at an Ollama, else the model in this process, brought if it is missing.
async fn find_models(app: &mut AppConfig) -> Result<Option<Arc<dyn Model>>, StartError> {
    let of_ollama = look_for_ollama(app).await?;
    let hosted = &app.server.hosted;
    if hosted.api_key.is_some() {
        say(&format!("Agents are answered by {} at {}.", hosted.model, hosted.base_url));
        return weights::find(app);
    }
    if let Some(words) = of_ollama {
        say(&words);
    }
    if app.server.ollama.preferred { weights::find(app) } else { weights::find_or_pull(app).await }
}

/// The environment, with what `dev` sets where the environment is silent.
struct Overlay {
    set: BTreeMap<String, String>,
    port: Option<u16>,
    /// Whether the environment's `DATABASE_URL` is another service's.
    own_database: bool,
}

impl Overlay {
    fn on(&self, port: u16) -> Self {
        Self { set: self.set.clone(), port: Some(port), own_database: false }
    }

    /// The scheduler has a database of its own, also where the environment names the application's.
    fn of_scheduler(&self, options: &DevOptions) -> Self {
        let mut overlay = self.on(options.port + 2);
        let database = options.data.join("scheduler.db");
        overlay.set.insert("DATABASE_URL".into(), format!("sqlite://{}", database.display()));
        overlay.own_database = true;
        overlay
    }
}

impl Env for Overlay {
    fn var(&self, name: &str) -> Result<Option<String>, NotUnicode> {
        // Loopback and the ports are what makes it `dev`; whatever else the operator sets counts.
        match (name, self.port) {
            ("HOST", _) => return Ok(Some("127.0.0.1".into())),
            ("DATABASE_URL", _) if self.own_database => return Ok(self.set.get(name).cloned()),
            ("PORT", Some(port)) => return Ok(Some(port.to_string())),
            ("OUTBOUND_ALLOW", _) => {
                let own = self.set.get(name).cloned().unwrap_or_default();
                let theirs = ProcessEnv.var(name)?.unwrap_or_default();
                return Ok(Some([own, theirs].join(",").trim_matches(',').to_owned()));
            }
            _ => {}
        }
        if let Some(theirs) = ProcessEnv.var(name)? {
            return Ok(Some(theirs));
        }
        // A secret that the operator keeps in a file is not joined by a generated one.
        let in_file = ProcessEnv.var(&format!("{name}_FILE"))?.is_some();
        Ok(self.set.get(name).filter(|_| !in_file).cloned())
    }
}

fn overlay(options: &DevOptions) -> Result<Overlay, StartError> {
    let mut set = secrets(&options.data)?;
    let (app, runtime) = (options.port, options.port + 1);
    let database = options.data.join("app.db");
    set.insert("DATABASE_URL".into(), format!("sqlite://{}", database.display()));
    set.insert("RUNTIME_URL".into(), format!("http://127.0.0.1:{runtime}"));
    set.insert("PULSE_URL".into(), format!("http://127.0.0.1:{}", options.port + 2));
    set.insert("CALLBACK_URL".into(), format!("http://127.0.0.1:{app}/api/pulse/callback"));
    let own = [app, runtime, options.port + 2, 11434]
        .map(|port| format!("127.0.0.1:{port},localhost:{port}"))
        .join(",");
    set.insert("OUTBOUND_ALLOW".into(), own);
    set.insert("LOG".into(), "warn,agentd=info".into());
    set.insert("MCP_LEGACY_QUERY".into(), "on".into());
    // An Ollama that has to load a model first says nothing until it has.
    set.insert("RESPONSE_HEADER_TIMEOUT_MS".into(), "300000".into());
    Ok(Overlay { set, port: None, own_database: false })
}

/// The secrets of this data folder, made on the first start. The folder's owner alone may read them.
fn secrets(data: &Path) -> Result<BTreeMap<String, String>, StartError> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    let path = data.join(SECRETS_FILE);
    let shown = path.display().to_string();
    let unwritable = |source| StartError::Unwritable { path: shown.clone(), source };
    std::fs::create_dir_all(data).map_err(unwritable)?;
    let known = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(StartError::Unreadable { path: shown, source }),
    };
    let mut secrets: BTreeMap<String, String> = known
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect();
    let missing: Vec<&str> = SECRETS.into_iter().filter(|name| !secrets.contains_key(*name)).collect();
    if missing.is_empty() {
        return Ok(secrets);
    }
    let mut file =
        std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(unwritable)?;
    for name in missing {
        let secret = random_secret();
        writeln!(file, "{name}={secret}").map_err(unwritable)?;
        secrets.insert(name.to_owned(), secret);
    }
    Ok(secrets)
}

/// 244 random bits, from the same source as UUIDs of version 4.
fn random_secret() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

/// Says where agents answer, and how to ask one: the demo's by lines that can be pasted, others by a token.
fn print_welcome(
    app: &AppConfig,
    origin: &str,
    options: &DevOptions,
    has_demo: bool,
) -> Result<(), StartError> {
    let address: SocketAddr = app.server.listen;
    say(&format!("\nAgents of {origin} answer at http://{address}. Ctrl-C stops."));
    if !has_demo {
        let secrets = options.data.join(SECRETS_FILE);
        say(&format!(
            "\nFor a token:\n\n  (set -a; . {}; agentd token session --user USER --company COMPANY)\n",
            secrets.display()
        ));
        return Ok(());
    }
    let secret = app.session_secret.as_ref().expect("dev always has one");
    let token = mint_session(secret, DEMO_NAME, DEMO_NAME, TOKEN_TTL)
        .map_err(|error| StartError::Other(format!("no token could be made: {error}")))?;
    let curl = |body: &str| {
        format!(
            "  curl -N http://{address}/api/agent/chat \\\n    -H 'Authorization: Bearer {token}' \\\n    \
             -H 'Content-Type: application/json' \\\n    -d '{body}'\n"
        )
    };
    say(&format!("\nSay hello:\n\n{}", curl(HELLO)));
    say(&format!("Have a todo written down, which is still there after the next start:\n\n{}", curl(TODO)));
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the newcomer reads it on the terminal")]
fn say(text: &str) {
    println!("{text}");
}
