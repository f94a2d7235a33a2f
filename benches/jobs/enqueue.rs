//! Throughput of storing jobs over HTTP, one job per request.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use crate::service::{Clients, Service, request};

/// Sequential requests of each client per repeat.
const REQUESTS: usize = 500;
/// Number of slices per repeat. Disk throughput varies within a second, and alternating slices spread that over all
/// subjects.
const SLICES: usize = 5;
pub(crate) const CLIENTS: usize = 8;
/// Delay of the jobs: several days, so that none comes due.
const DELAY_MS: u64 = 5 * 86_400_000;

/// Jobs stored per second, in each repeat.
#[derive(Default)]
pub(crate) struct Enqueue {
    pub(crate) one: Vec<f64>,
    pub(crate) many: Vec<f64>,
}

impl Enqueue {
    /// Runs one repeat for two schedulers in alternating slices.
    pub(crate) async fn of_both(subjects: [(&mut Self, &Service); 2]) -> Result<()> {
        let mut turns = Vec::new();
        for (figures, service) in subjects {
            turns.push(ClientTurns::new(&mut figures.one, service, 1).await?);
            turns.push(ClientTurns::new(&mut figures.many, service, CLIENTS).await?);
        }
        for _ in 0..SLICES {
            for turn in &mut turns {
                turn.take().await?;
            }
            turns.reverse();
        }
        turns.into_iter().for_each(ClientTurns::end);
        Ok(())
    }
}

/// A number of clients of one scheduler, and the time that they have taken.
struct ClientTurns<'f> {
    figures: &'f mut Vec<f64>,
    clients: Clients,
    requests: Vec<Vec<u8>>,
    taken: Duration,
}

impl<'f> ClientTurns<'f> {
    async fn new(figures: &'f mut Vec<f64>, service: &Service, clients: usize) -> Result<Self> {
        let requests = (0..clients * REQUESTS / SLICES).map(|n| request(n, json!({"delayMs": DELAY_MS})));
        let requests = requests.collect::<Result<_>>()?;
        Ok(Self { figures, clients: service.clients(clients).await?, requests, taken: Duration::ZERO })
    }

    /// Runs one slice.
    async fn take(&mut self) -> Result<()> {
        let begin = Instant::now();
        self.clients.store(&self.requests).await?;
        self.taken += begin.elapsed();
        Ok(())
    }

    fn end(self) {
        self.figures.push((SLICES * self.requests.len()) as f64 / self.taken.as_secs_f64());
    }
}
