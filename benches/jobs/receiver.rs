//! Callback receiver that responds 200 and records the arrival times.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use benches::delivery::{body, read};
use bytes::BytesMut;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const BACKLOG: u32 = 1024;
/// Time without an arrival after which waiting fails.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(20);

/// A received callback.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Arrival {
    pub(crate) job_id: String,
    pub(crate) company_id: String,
    pub(crate) scheduled_for: Timestamp,
    #[serde(skip, default = "Timestamp::now")]
    pub(crate) at: Timestamp,
}

impl Arrival {
    /// Returns the milliseconds since the scheduled time; negative if the callback came early.
    pub(crate) fn lateness(&self) -> f64 {
        self.at.duration_since(self.scheduled_for).as_secs_f64() * 1e3
    }
}

/// The callback receiver, on a separate thread.
#[derive(Clone)]
pub(crate) struct Receiver {
    address: SocketAddr,
    arrivals: Arc<Mutex<Vec<Result<Arrival, String>>>>,
}

impl Receiver {
    pub(crate) fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            socket.listen(BACKLOG)
        })?;
        let receiver = Self { address: listener.local_addr()?, arrivals: Arc::default() };
        let each = receiver.clone();
        thread::Builder::new().name("receiver".to_owned()).spawn(move || {
            runtime.block_on(async {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(each.clone().serve(stream));
                }
            });
        })?;
        Ok(receiver)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/callback", self.address)
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut inbox = BytesMut::with_capacity(8 * 1024);
        // Connection errors are ignored: a killed scheduler closes its connections, and a missing callback fails
        // [`Receiver::take`].
        let _ = stream.set_nodelay(true);
        while let Ok(Some(message)) = read(&mut stream, &mut inbox).await {
            let at = Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::MIN);
            if stream.write_all(ANSWER).await.is_err() {
                return;
            }
            let arrival = serde_json::from_slice(body(&message)).map(|arrival| Arrival { at, ..arrival });
            self.lock().push(arrival.map_err(|error| error.to_string()));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Result<Arrival, String>>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of arrivals since the last [`Receiver::take`].
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Waits until `count` callbacks have arrived and returns them. Calls `meanwhile` periodically.
    ///
    /// # Errors
    /// A callback is malformed, early or a duplicate, or none has arrived for [`ARRIVAL_TIMEOUT`].
    pub(crate) async fn take(
        &self,
        count: usize,
        mut meanwhile: impl FnMut() -> Result<()>,
    ) -> Result<Vec<Arrival>> {
        let mut last = (0, Instant::now());
        while self.count() < count {
            tokio::time::sleep(Duration::from_millis(50)).await;
            meanwhile()?;
            if self.count() > last.0 {
                last = (self.count(), Instant::now());
            }
            ensure!(last.1.elapsed() < ARRIVAL_TIMEOUT, "{} of {count} have arrived", last.0);
        }
        let arrivals: Result<Vec<_>, _> = self.lock().drain(..).collect();
        let arrivals = arrivals.map_err(anyhow::Error::msg).context("a callback cannot be read")?;
        ensure!(arrivals.len() == count, "{} have arrived in place of {count}", arrivals.len());
        let jobs: HashSet<&str> = arrivals.iter().map(|arrival| arrival.job_id.as_str()).collect();
        ensure!(jobs.len() == count, "{} of {count} arrived, some twice", jobs.len());
        let early = arrivals.iter().find(|arrival| arrival.lateness() < 0.0);
        ensure!(early.is_none(), "{} came early", early.map_or("", |arrival| &arrival.job_id));
        Ok(arrivals)
    }
}
