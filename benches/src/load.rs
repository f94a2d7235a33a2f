//! Load generator: keep-alive connections on one thread; every response is checked to its last byte.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{sleep_until, timeout},
};

use crate::wire::{Expected, ResponseParser, Wire};

/// Time limit of one exchange.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of streams being opened concurrently, so that no listener's backlog overflows.
const MAX_CONCURRENT_OPENS: usize = 64;

/// One request and its expected response.
#[derive(Clone, Debug)]
pub struct Step {
    /// The whole HTTP/1.1 request.
    pub request: Vec<u8>,
    /// Format of the response.
    pub wire: Wire,
    /// Expected content of the response.
    pub expected: Expected,
}

/// The steps of one exchange, in order on one connection.
pub type ExchangeSteps = Arc<[Step]>;

/// A connection to a subject, kept alive between exchanges.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    inbox: BytesMut,
    reads: usize,
}

impl Connection {
    /// Connects with `TCP_NODELAY`.
    ///
    /// # Errors
    /// The connection was refused or timed out.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let stream = timeout(EXCHANGE_TIMEOUT, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(Self { stream, inbox: BytesMut::with_capacity(64 * 1024), reads: 0 })
    }

    /// Runs all steps, checks each response, and returns the time from the last request to its first token.
    ///
    /// # Errors
    /// A response is wrong or incomplete, or timed out.
    pub async fn exchange(&mut self, steps: &[Step]) -> Result<Duration> {
        let mut first_token = None;
        for step in steps {
            let sent = Instant::now();
            let reading = timeout(EXCHANGE_TIMEOUT, self.read(step, |_| false))
                .await
                .context("no end of the answer")??;
            reading.check(&step.expected)?;
            first_token = reading.first_token.map(|at| at - sent);
        }
        first_token.context("no token in the last answer")
    }

    /// Sends a request and reads the response up to the first token. The stream stays open as long as the connection.
    ///
    /// # Errors
    /// The response is wrong or timed out.
    pub async fn begin(&mut self, step: &Step) -> Result<()> {
        let begun = |reading: &ResponseParser| reading.first_token.is_some();
        let reading = timeout(EXCHANGE_TIMEOUT, self.read(step, begun)).await.context("no first token")??;
        ensure!(begun(&reading), "the answer ended without a token");
        Ok(())
    }

    /// Runs a step, calls `observe` with the response so far after each read of the socket, and checks the response.
    ///
    /// # Errors
    /// The response is wrong or incomplete, or timed out.
    pub async fn observe(&mut self, step: &Step, mut observe: impl FnMut(&ResponseParser)) -> Result<()> {
        let observed = |reading: &ResponseParser| {
            observe(reading);
            false
        };
        let reading =
            timeout(EXCHANGE_TIMEOUT, self.read(step, observed)).await.context("no end of the answer")??;
        reading.check(&step.expected)
    }

    /// Returns the number of socket reads so far. Chunks that a subject sends separately count separately if the
    /// client keeps up.
    pub fn reads(&self) -> usize {
        self.reads
    }

    async fn read(
        &mut self,
        step: &Step,
        mut enough: impl FnMut(&ResponseParser) -> bool,
    ) -> Result<ResponseParser> {
        self.stream.write_all(&step.request).await?;
        let mut reading = ResponseParser::new(step.wire);
        loop {
            ensure!(
                self.stream.read_buf(&mut self.inbox).await? > 0,
                "connection closed in the middle of an answer"
            );
            self.reads += 1;
            let is_complete = reading.advance(&mut self.inbox)?;
            if enough(&reading) || is_complete {
                return Ok(reading);
            }
        }
    }
}

/// Opens `count` connections, at most [`MAX_CONCURRENT_OPENS`] at a time, and runs `begin` on each.
async fn open_each<F>(
    address: SocketAddr,
    count: usize,
    begin: impl Fn(Connection) -> F,
) -> Result<Vec<Connection>>
where
    F: Future<Output = Result<Connection>> + Send + 'static,
{
    let mut opened = Vec::with_capacity(count);
    let mut opening = JoinSet::new();
    for _ in 0..count {
        if opening.len() == MAX_CONCURRENT_OPENS
            && let Some(result) = opening.join_next().await
        {
            opened.push(result??);
        }
        opening.spawn(begin(Connection::open(address).await?));
    }
    while let Some(result) = opening.join_next().await {
        opened.push(result??);
    }
    Ok(opened)
}

/// Opens `count` connections.
///
/// # Errors
/// A connection was not accepted.
pub async fn connect(address: SocketAddr, count: usize) -> Result<Vec<Connection>> {
    open_each(address, count, |connection| async { Ok(connection) }).await
}

/// Opens `count` streams and reads the first token of each. They stay open until they are dropped.
///
/// # Errors
/// A stream was refused or its response is wrong.
pub async fn open_hanging_streams(
    address: SocketAddr,
    count: usize,
    steps: &ExchangeSteps,
) -> Result<Vec<Connection>> {
    open_each(address, count, |mut connection| {
        let steps = Arc::clone(steps);
        async move {
            connection.begin(steps.first().context("no step")?).await?;
            Ok(connection)
        }
    })
    .await
}

/// Runs `exchanges` exchanges in sequence on each connection, all connections concurrently. The first exchanges start
/// evenly spread over `spread`.
///
/// # Errors
/// Returns the first wrong response.
pub async fn run(
    connections: Vec<Connection>,
    steps: &ExchangeSteps,
    exchanges: usize,
    spread: Duration,
) -> Result<Vec<Connection>> {
    let mut tasks = JoinSet::new();
    let start = tokio::time::Instant::now();
    let count = connections.len() as u32;
    for (index, mut connection) in (0..).zip(connections) {
        let steps = Arc::clone(steps);
        tasks.spawn(async move {
            if !spread.is_zero() {
                sleep_until(start + spread * index / count).await;
            }
            for _ in 0..exchanges {
                connection.exchange(&steps).await?;
            }
            anyhow::Ok(connection)
        });
    }
    let mut results = Vec::with_capacity(tasks.len());
    while let Some(connection) = tasks.join_next().await {
        results.push(connection??);
    }
    Ok(results)
}
