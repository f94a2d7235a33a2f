//! Storing jobs over HTTP, one by one.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use crate::service::{Clients, Service, request};

/// How many requests each client makes in a repeat, one after another.
const REQUESTS: usize = 500;
/// In how many slices: the disk changes its pace within a second, and shall do so for all alike.
const SLICES: usize = 5;
pub(crate) const CLIENTS: usize = 8;
/// They wait for days.
const DELAY_MS: u64 = 5 * 86_400_000;

/// Jobs in a second in each repeat.
#[derive(Default)]
pub(crate) struct Enqueue {
    pub(crate) one: Vec<f64>,
    pub(crate) many: Vec<f64>,
}

impl Enqueue {
    /// One repeat of two schedulers', by turns.
    pub(crate) async fn of_both(subjects: [(&mut Self, &Service); 2]) -> Result<()> {
        let mut turns = Vec::new();
        for (figures, service) in subjects {
            turns.push(Turn::new(&mut figures.one, service, 1).await?);
            turns.push(Turn::new(&mut figures.many, service, CLIENTS).await?);
        }
        for _ in 0..SLICES {
            for turn in &mut turns {
                turn.take().await?;
            }
            turns.reverse();
        }
        turns.into_iter().for_each(Turn::end);
        Ok(())
    }
}

/// So many clients of a scheduler, and what they have taken.
struct Turn<'f> {
    figures: &'f mut Vec<f64>,
    clients: Clients,
    requests: Vec<Vec<u8>>,
    taken: Duration,
}

impl<'f> Turn<'f> {
    async fn new(figures: &'f mut Vec<f64>, service: &Service, clients: usize) -> Result<Self> {
        let requests = (0..clients * REQUESTS / SLICES).map(|n| request(n, json!({"delayMs": DELAY_MS})));
        let requests = requests.collect::<Result<_>>()?;
        Ok(Self { figures, clients: service.clients(clients).await?, requests, taken: Duration::ZERO })
    }

    /// A slice.
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
