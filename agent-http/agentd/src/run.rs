//! Runs services until a stop signal.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::model::Model;
use agent_http::serve::{FINAL_EVENT_TIMEOUT, ServeLimits, Workers};
use agent_http::service::HttpService;
use agent_http::shutdown::{Shutdown, ShutdownStage};
use agent_http::{app, runtime, scheduler, serve};
use agent_jobs::job::JobStore;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tracing::info;

use crate::config::{AppConfig, RuntimeConfig, SchedulerConfig};
use crate::process::{self, DESCRIPTORS_PER_CONNECTION, DESCRIPTORS_PER_RELAY};
use crate::stores::{self, Stores};
use crate::{StartError, compose};

/// Time after the second signal in which the process may end by itself. It is longer than the server's own
/// [`FINAL_EVENT_TIMEOUT`].
const FORCED_EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time in which the ends of the last run tokens are stored.
const TOKEN_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Time in which the ends of the last runs are stored.
const RUN_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Time in which summaries of conversations that are being made are finished.
const SUMMARY_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Time in which the usage of the last calls is stored.
const USAGE_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Exit code of a process that had to be ended by force: the code of an interrupted shell command.
const FORCED_EXIT_CODE: i32 = 130;

/// Runs the application until a stop signal.
///
/// # Errors
/// Any error that prevents it from starting, or stops its server.
pub(crate) async fn app(config: AppConfig, local: Option<Arc<dyn Model>>) -> Result<(), StartError> {
    let stores = Stores::open(&config).await?;
    let listener = listen(config.server.listen).await?;
    serve_app(&config, listener, stores, local, shutdown_on_signal()).await
}

/// Runs the agent runtime until a stop signal.
///
/// # Errors
/// Any error that prevents it from starting, or stops its server.
pub(crate) async fn runtime(config: RuntimeConfig) -> Result<(), StartError> {
    let listener = listen(config.server.listen).await?;
    serve_runtime(&config, listener, shutdown_on_signal()).await
}

/// Runs the scheduler until a stop signal.
///
/// # Errors
/// Any error that prevents it from starting, or stops its server.
pub(crate) async fn scheduler(config: SchedulerConfig) -> Result<(), StartError> {
    let (jobs, store) = stores::open_jobs(&config).await?;
    let listener = listen(config.listen).await?;
    serve_scheduler(&config, listener, jobs, store, shutdown_on_signal()).await
}

/// Waits for the summaries of conversations that are being made.
async fn finish_summaries(app: &app::App) {
    if tokio::time::timeout(SUMMARY_FLUSH_TIMEOUT, app.compaction.drain()).await.is_err() {
        tracing::warn!("summaries of conversations were not finished: the next turns make them");
    }
}

/// Returns the time at which the drain has started; the present if it has not.
async fn drain_began(draining: JoinHandle<Instant>) -> Instant {
    if draining.is_finished() {
        return draining.await.unwrap_or_else(|_| Instant::now());
    }
    draining.abort();
    Instant::now()
}

/// Waits for the jobs that `GET /api/cron` runs although its client has left, as the server does for requests: until shortly
/// before the end of the drain, and then for their outcomes.
async fn finish_local_jobs(app: &app::App, shutdown: &Shutdown, drain_end: Instant) {
    let drain = drain_end.saturating_duration_since(Instant::now());
    tokio::select! {
        biased;
        () = app.pulse.drain() => return,
        () = shutdown.wait_for(ShutdownStage::Ending) => {}
        () = tokio::time::sleep(drain - FINAL_EVENT_TIMEOUT.min(drain / 2)) => shutdown.end(),
    }
    if tokio::time::timeout(FINAL_EVENT_TIMEOUT, app.pulse.drain()).await.is_err() {
        tracing::warn!(
            "jobs of the application were still running: others run them again once their leases expire"
        );
    }
}

/// Serves the application on a listener until `shutdown`.
///
/// # Errors
/// Any error that prevents it from starting, or stops its server.
pub async fn serve_app(
    config: &AppConfig,
    listener: TcpListener,
    stores: Stores,
    local: Option<Arc<dyn Model>>,
    shutdown: Shutdown,
) -> Result<(), StartError> {
    process::ignore_file_size_signal();
    let address = listener.local_addr().map_err(StartError::Serve)?;
    let mut config = config.clone();
    config.server.serve = process::fit_connections(&config.server.serve, DESCRIPTORS_PER_RELAY);
    let app = Arc::new(compose::application(&config, address, stores, local, &shutdown)?);
    info!(%address, "application listening");
    let upkeep = tokio::spawn(app::run_maintenance(app.clone()));
    let ingestion = tokio::spawn({
        let app = app.clone();
        async move { tokio::join!(app.uploads.run(), app.documents.run()) }
    });
    let draining = tokio::spawn({
        let (app, draining) = (app.clone(), shutdown.wait_for(ShutdownStage::Draining));
        async move {
            draining.await;
            app.tools.server.stop();
            app.coding.stop();
            Instant::now()
        }
    });
    let drain_time = config.server.serve.drain;
    let served =
        serve_streams(listener, app::service(app.clone()), config.server.serve, shutdown.clone()).await;
    let drain_end = drain_began(draining).await + drain_time;
    finish_local_jobs(&app, &shutdown, drain_end).await;
    if tokio::time::timeout(RUN_FLUSH_TIMEOUT, app.conversations.drain()).await.is_err() {
        tracing::warn!("the ends of runs could not be stored: they will end as interrupted");
    }
    upkeep.abort();
    ingestion.abort();
    let remaining = drain_end.saturating_duration_since(Instant::now());
    if tokio::time::timeout(remaining, app.coding.drain()).await.is_err() {
        tracing::warn!(
            "a call of a subscription's issuer was still running: its user may have to sign in again"
        );
    }
    finish_summaries(&app).await;
    app.tools.server.audit().flush().await;
    if tokio::time::timeout(USAGE_FLUSH_TIMEOUT, app.usage.flush()).await.is_err() {
        tracing::warn!("the usage of the last calls could not be stored");
    }
    if tokio::time::timeout(TOKEN_FLUSH_TIMEOUT, app.tokens.flush_ended_run_tokens()).await.is_err() {
        tracing::warn!(
            "the ends of run tokens could not be stored: other processes accept them until they expire"
        );
    }
    served
}

/// Serves the agent runtime on a listener until `shutdown`.
///
/// # Errors
/// Any error that prevents it from starting, or stops its server.
pub async fn serve_runtime(
    config: &RuntimeConfig,
    listener: TcpListener,
    shutdown: Shutdown,
) -> Result<(), StartError> {
    // The runtime stores nothing, but its log may go to a file.
    process::ignore_file_size_signal();
    let address = listener.local_addr().map_err(StartError::Serve)?;
    let runtime = Arc::new(compose::runtime(config, address, &shutdown)?);
    info!(%address, "agent runtime listening");
    let limits = process::fit_connections(&config.server.serve, DESCRIPTORS_PER_RELAY);
    serve_streams(listener, runtime::service(runtime), limits, shutdown).await
}

/// Serves the scheduler on a listener and delivers jobs until `shutdown`. `store` is the name of the job store's
/// kind.
///
/// # Errors
/// Any error that prevents it from starting, or stops its server.
pub async fn serve_scheduler(
    config: &SchedulerConfig,
    listener: TcpListener,
    jobs: Arc<dyn JobStore>,
    store: &'static str,
    shutdown: Shutdown,
) -> Result<(), StartError> {
    process::ignore_file_size_signal();
    let address = listener.local_addr().map_err(StartError::Serve)?;
    let scheduler = Arc::new(compose::scheduler(config, jobs, store, &shutdown)?);
    info!(%address, store, "scheduler listening");
    let worker = scheduler.worker.clone().run(shutdown.clone());
    let limits = process::fit_connections(&config.serve, DESCRIPTORS_PER_CONNECTION);
    let served = serve::serve(listener, scheduler::service(scheduler), limits, shutdown);
    let (served, ()) = tokio::join!(served, worker);
    served.map_err(StartError::Serve)
}

/// Serves a service whose responses stream: on dedicated worker threads, or on the current runtime.
async fn serve_streams<S: HttpService>(
    listener: TcpListener,
    service: S,
    limits: ServeLimits,
    shutdown: Shutdown,
) -> Result<(), StartError> {
    let served = if limits.relay.thread_per_core {
        let workers = Workers::start_default().map_err(StartError::Serve)?;
        workers.serve(listener, service, limits, shutdown).await
    } else {
        serve::serve(listener, service, limits, shutdown).await
    };
    served.map_err(StartError::Serve)
}

/// Binds the address to listen on.
///
/// # Errors
/// [`StartError::Listen`] if the address cannot be bound.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

/// Returns a shutdown that SIGINT or SIGTERM begins. A second signal ends what still runs; a third one, or
/// five seconds after the second, exits the process with code 130. Requires a tokio runtime.
pub fn shutdown_on_signal() -> Shutdown {
    let shutdown = Shutdown::default();
    tokio::spawn({
        let shutdown = shutdown.clone();
        async move {
            let mut signals = StopSignals::new();
            signals.recv().await;
            info!("shutting down: running requests may finish; a second signal ends them");
            shutdown.begin();
            signals.recv().await;
            info!("ending running requests; a third signal exits at once");
            shutdown.end();
            let _ = tokio::time::timeout(FORCED_EXIT_TIMEOUT, signals.recv()).await;
            std::process::exit(FORCED_EXIT_CODE);
        }
    });
    shutdown
}

/// Listeners for the signals that stop a process, kept so that a signal between two waits is not lost.
struct StopSignals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
}

impl StopSignals {
    fn new() -> Self {
        let listen =
            |kind| signal(kind).inspect_err(|error| tracing::warn!(%error, "signal handler failed")).ok();
        Self { interrupt: listen(SignalKind::interrupt()), terminate: listen(SignalKind::terminate()) }
    }

    async fn recv(&mut self) {
        tokio::select! {
            () = recv_from(&mut self.interrupt) => {}
            () = recv_from(&mut self.terminate) => {}
        }
    }
}

async fn recv_from(signals: &mut Option<Signal>) {
    if let Some(signals) = signals
        && signals.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}
