//! Storing jobs over HTTP, one by one.

use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use crate::service::{Service, request};

/// How many requests each client makes in a repeat, one after another.
const REQUESTS: usize = 500;
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
    pub(crate) async fn of(&mut self, service: &Service) -> Result<()> {
        self.one.push(rate(service, 1).await?);
        self.many.push(rate(service, CLIENTS).await?);
        Ok(())
    }
}

async fn rate(service: &Service, clients: usize) -> Result<f64> {
    let count = clients * REQUESTS;
    let requests: Result<Vec<_>> = (0..count).map(|n| request(n, json!({"delayMs": DELAY_MS}))).collect();
    let requests = requests?;
    let begin = Instant::now();
    service.store(clients, &requests).await?;
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}
