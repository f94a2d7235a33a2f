//! Runs services until a stop signal.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use agent_core::model::Model;
use agent_http::serve::{ServeLimits, Workers};
use agent_http::service::HttpService;
use agent_http::{app, runtime, scheduler, serve};
use agent_jobs::job::JobStore;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::info;

use crate::config::{AppConfig, RuntimeConfig, SchedulerConfig};
use crate::stores::{self, Stores};
use crate::{StartError, compose};

/// Runs the application until a stop signal.
///
/// # Errors
/// Any error that prevents it from starting, or stops its server.
pub(crate) async fn app(config: AppConfig, local: Option<Arc<dyn Model>>) -> Result<(), StartError> {
    let stores = Stores::from_records(Arc::new(stores::open(&config)?), &config);
    let listener = listen(config.server.listen).await?;
    serve_app(&config, listener, stores, local, ShutdownSignal::on_signal()).await
}

/// Runs the agent runtime until a stop signal.
///
/// # Errors
/// Any error that prevents it from starting, or stops its server.
pub(crate) async fn runtime(config: RuntimeConfig) -> Result<(), StartError> {
    let listener = listen(config.server.listen).await?;
    serve_runtime(&config, listener, ShutdownSignal::on_signal()).await
}

/// Runs the scheduler until a stop signal.
///
/// # Errors
/// Any error that prevents it from starting, or stops its server.
pub(crate) async fn scheduler(config: SchedulerConfig) -> Result<(), StartError> {
    let (jobs, store) = stores::open_jobs(&config).await?;
    let listener = listen(config.listen).await?;
    serve_scheduler(&config, listener, jobs, store, ShutdownSignal::on_signal()).await
}

/// Serves the application on a listener until `stop`.
///
/// # Errors
/// Any error that prevents it from starting, or stops its server.
pub async fn serve_app(
    config: &AppConfig,
    listener: TcpListener,
    stores: Stores,
    local: Option<Arc<dyn Model>>,
    stop: ShutdownSignal,
) -> Result<(), StartError> {
    let address = listener.local_addr().map_err(StartError::Serve)?;
    let app = Arc::new(compose::application(config, address, stores, local)?);
    info!(%address, "application listening");
    let shutdown = stop.run_on_stop({
        let app = app.clone();
        move || {
            app.base.health.start_drain();
            app.tools.server.stop();
        }
    });
    let upkeep = tokio::spawn(app::run_maintenance(app.clone()));
    let limits = config.server.serve.clone();
    let served = serve_streams(listener, app::service(app.clone()), limits, shutdown).await;
    upkeep.abort();
    app.tools.server.audit().flush().await;
    served
}

/// Serves the agent runtime on a listener until `stop`.
///
/// # Errors
/// Any error that prevents it from starting, or stops its server.
pub async fn serve_runtime(
    config: &RuntimeConfig,
    listener: TcpListener,
    stop: ShutdownSignal,
) -> Result<(), StartError> {
    let address = listener.local_addr().map_err(StartError::Serve)?;
    let runtime = Arc::new(compose::runtime(config)?);
    info!(%address, "agent runtime listening");
    let shutdown = stop.run_on_stop({
        let runtime = runtime.clone();
        move || runtime.base.health.start_drain()
    });
    serve_streams(listener, runtime::service(runtime), config.server.serve.clone(), shutdown).await
}

/// Serves the scheduler on a listener and delivers jobs until `stop`. `store` is the name of the job store's
/// kind.
///
/// # Errors
/// Any error that prevents it from starting, or stops its server.
pub async fn serve_scheduler(
    config: &SchedulerConfig,
    listener: TcpListener,
    jobs: Arc<dyn JobStore>,
    store: &'static str,
    stop: ShutdownSignal,
) -> Result<(), StartError> {
    let address = listener.local_addr().map_err(StartError::Serve)?;
    let scheduler = Arc::new(compose::scheduler(config, jobs, store)?);
    info!(%address, store, "scheduler listening");
    let shutdown = stop.clone().run_on_stop({
        let scheduler = scheduler.clone();
        move || scheduler.base.health.start_drain()
    });
    let worker = scheduler.worker.clone().run(stop.run_on_stop(|| ()));
    let served = serve::serve(listener, scheduler::service(scheduler), config.serve.clone(), shutdown);
    let (served, ()) = tokio::join!(served, worker);
    served.map_err(StartError::Serve)
}

/// Serves a service whose responses stream: on worker threads, one per core, or plainly on the current runtime.
async fn serve_streams<S: HttpService>(
    listener: TcpListener,
    service: S,
    limits: ServeLimits,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let served = if limits.relay.thread_per_core {
        let workers = Workers::one_per_core().map_err(StartError::Serve)?;
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

/// Stop signal. Clones share the signal.
#[derive(Clone)]
pub struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownSignal {
    /// Creates a stop signal for SIGINT and SIGTERM. A second signal exits the process immediately with code
    /// 130. Requires a tokio runtime.
    pub fn on_signal() -> Self {
        let (stopper, stop) = watch::channel(false);
        tokio::spawn(async move {
            for code in [None, Some(130)] {
                wait_for_os_signal().await;
                if let Some(code) = code {
                    std::process::exit(code);
                }
                info!("shutting down: running requests may finish; a second signal aborts them");
                stopper.send_replace(true);
            }
        });
        Self(stop)
    }

    /// Creates a stop signal that is set by sending `true` or by dropping the sender.
    pub fn manual() -> (watch::Sender<bool>, Self) {
        let (stopper, stop) = watch::channel(false);
        (stopper, Self(stop))
    }

    async fn run_on_stop(mut self, act: impl FnOnce()) {
        // An error means that the sender was dropped, which stops too.
        let _ = self.0.wait_for(|stopped| *stopped).await;
        act();
    }
}

async fn wait_for_os_signal() {
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signals) => {
                signals.recv().await;
            }
            Err(error) => {
                tracing::warn!(%error, "signal handler failed");
                std::future::pending::<()>().await;
            }
        }
    };
    let (interrupt, terminate) = (wait(SignalKind::interrupt()), wait(SignalKind::terminate()));
    wait_for_either(interrupt, terminate).await;
}

async fn wait_for_either(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    tokio::select! {
        () = a => {}
        () = b => {}
    }
}
