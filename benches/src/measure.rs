//! The measurements: the load and the returned figure of each.

use std::{fmt, time::Duration};

use anyhow::{Result, bail};

use crate::{
    answer::Behaviour,
    load::{self, Connection},
    process::{CpuTime, resident_kib},
    subjects::RunningSubject,
    table::{median, percentile},
};

/// The burst: 200 tokens in one write.
pub const BURST: Behaviour = Behaviour::Burst { chunks: 200 };
/// A long burst, in which the costs of a chunk outweigh those of a run.
pub const LONG_BURST: Behaviour = Behaviour::Burst { chunks: 2_000 };
/// The paced stream: 40 tokens, 40 ms apart.
pub const PACED: Behaviour = Behaviour::Paced { chunks: 40, every_ms: 40 };
/// Maximum number of attempts of a paced run whose chunks were merged.
const PACED_ATTEMPTS: usize = 3;
/// A short paced stream that opens the upstream connections of the long one before the measurement starts.
pub const PACED_WARM_UP: Behaviour = Behaviour::Paced { chunks: 5, every_ms: 40 };
/// All behaviours that the measurements request, for subjects whose configuration lists models.
pub const BEHAVIOURS: [Behaviour; 7] =
    [BURST, LONG_BURST, PACED, PACED_WARM_UP, Behaviour::First, Behaviour::Hang, Behaviour::Tool];

/// Number of concurrent connections in the tool exchange.
const TOOL_CONNECTIONS: usize = 8;
/// Number of chats in [`Measurement::MemoryAfterChats`], and of the connections that they are spread over.
pub const FIRST_CHATS: usize = 100;
const FIRST_CHAT_CONNECTIONS: usize = 10;

/// A kind of load and the figure that it yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measurement {
    /// CPU milliseconds per 1,000 chunks, with all chunks of a response in one write.
    Burst {
        /// Number of concurrent connections.
        connections: usize,
    },
    /// The same with answers of 2,000 chunks, on 8 connections.
    LongBurst,
    /// CPU milliseconds per 1,000 chunks, with chunks 40 ms apart.
    Paced,
    /// Median milliseconds from a request to the first token, on one connection.
    FirstToken,
    /// 99th percentile of the same times.
    FirstTokenTail,
    /// MiB of resident memory of a process that has been started and has answered nothing but its health check.
    MemoryAtRest,
    /// MiB of resident memory after the first [`FIRST_CHATS`] chats.
    MemoryAfterChats,
    /// KiB of resident memory per open stream.
    Memory,
    /// CPU milliseconds per exchange of two model calls with one tool call in between.
    ToolExchange,
}

/// Sizes of the runs.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Number of repeats per measurement; the result is their median.
    pub repeats: usize,
    /// Requests in a slice of a burst run, over all connections.
    pub burst_requests: usize,
    /// Number of concurrent paced streams.
    pub paced_streams: usize,
    /// Sequential requests in a slice of a first-token run.
    pub first_requests: usize,
    /// Open streams in a memory run.
    pub open_streams: usize,
    /// Exchanges in a slice of a tool run, over all connections.
    pub tool_exchanges: usize,
}

impl Scale {
    /// Scale of published figures: about one second of CPU time per repeat of the reference's bursts.
    pub const FULL: Self = Self {
        repeats: 5,
        burst_requests: 384,
        paced_streams: 512,
        first_requests: 400,
        open_streams: 2000,
        tool_exchanges: 1000,
    };
    /// Scale of a short run: all measurements, with rough figures.
    pub const QUICK: Self = Self {
        repeats: 3,
        burst_requests: 128,
        paced_streams: 128,
        first_requests: 100,
        open_streams: 500,
        tool_exchanges: 200,
    };
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Burst { connections } => {
                write!(f, "burst, {connections} connections: CPU per 1,000 chunks")
            }
            Self::LongBurst => f.write_str("burst of 2,000 chunks, 8 connections: CPU per 1,000 chunks"),
            Self::Paced => f.write_str("paced: CPU per 1,000 chunks"),
            Self::FirstToken => f.write_str("first token, p50"),
            Self::FirstTokenTail => f.write_str("first token, p99"),
            Self::MemoryAtRest => f.write_str("resident memory at rest"),
            Self::MemoryAfterChats => write!(f, "resident memory after {FIRST_CHATS} chats"),
            Self::Memory => f.write_str("memory per open stream"),
            Self::ToolExchange => f.write_str("two-turn tool exchange: CPU"),
        }
    }
}

impl Measurement {
    /// Returns the unit of the figure.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Memory => "KiB",
            Self::MemoryAtRest | Self::MemoryAfterChats => "MiB",
            _ => "ms",
        }
    }

    /// Returns true if each run needs a fresh process: memory that the allocator kept from an earlier load would hide
    /// what this load allocates.
    pub fn needs_fresh_process(self) -> bool {
        matches!(self, Self::Memory | Self::MemoryAtRest | Self::MemoryAfterChats)
    }

    /// Returns the number of slices per repeat. Slices of all subjects alternate, so that other activity on the
    /// machine affects all subjects alike.
    pub fn slices(self) -> usize {
        match self {
            // Each slice is one connection, and the cores that its threads are scheduled on decide much of the
            // result.
            Self::FirstToken | Self::FirstTokenTail => 12,
            Self::Burst { .. } | Self::LongBurst | Self::ToolExchange => 4,
            Self::Paced => 2,
            Self::Memory | Self::MemoryAtRest | Self::MemoryAfterChats => 1,
        }
    }

    /// Returns the figure of a repeat from the samples of all its slices: their 99th percentile for a tail, else their
    /// mean. NaN without samples.
    pub fn summarize(self, samples: Vec<f64>) -> f64 {
        match self {
            Self::FirstTokenTail => percentile(samples, 99),
            _ => samples.iter().sum::<f64>() / samples.len() as f64,
        }
    }

    /// Sends one slice of the load to `subject` and returns its samples in [`Measurement::unit`]: the time of each
    /// request for a tail, else a single figure.
    ///
    /// # Errors
    /// A response is wrong, or a process has exited.
    pub async fn run(self, subject: &RunningSubject, scale: &Scale) -> Result<Vec<f64>> {
        let figure = match self {
            Self::Burst { connections } => {
                burst(subject, BURST, connections, scale.burst_requests / connections).await
            }
            Self::LongBurst => burst(subject, LONG_BURST, 8, scale.burst_requests / 64).await,
            Self::Paced => paced(subject, scale.paced_streams).await,
            Self::FirstToken => Ok(median(first_tokens(subject, scale.first_requests).await?)),
            Self::FirstTokenTail => return first_tokens(subject, scale.first_requests).await,
            Self::Memory => memory(subject, scale.open_streams).await,
            Self::MemoryAtRest => resident_mib(subject),
            Self::MemoryAfterChats => memory_after_chats(subject).await,
            Self::ToolExchange => tool_exchange(subject, scale.tool_exchanges / TOOL_CONNECTIONS).await,
        };
        Ok(vec![figure?])
    }
}

async fn burst(
    subject: &RunningSubject,
    behaviour: Behaviour,
    connections: usize,
    requests: usize,
) -> Result<f64> {
    let steps = subject.steps(behaviour);
    let open = load::connect(subject.address, connections).await?;
    let open = load::run(open, &steps, requests.div_ceil(10), Duration::ZERO).await?;
    let before = CpuTime::when_idle(&subject.processes)?;
    let open = load::run(open, &steps, requests, Duration::ZERO).await?;
    let used = CpuTime::when_idle(&subject.processes)?.since(&before);
    drop(open);
    Ok(per_thousand(used, connections * requests * behaviour.chunks()))
}

/// Measures a paced run. A run whose chunks were merged, for example because the machine stalled, is repeated.
async fn paced(subject: &RunningSubject, streams: usize) -> Result<f64> {
    let mut merged = String::new();
    for _ in 0..PACED_ATTEMPTS {
        // The streams start spread over one interval, like those of independent users; together they would be a
        // burst.
        let spread = Duration::from_millis(40);
        let open = load::connect(subject.address, streams).await?;
        let open = load::run(open, &subject.steps(PACED_WARM_UP), 1, spread).await?;
        let reads = |open: &[Connection]| open.iter().map(Connection::reads).sum::<usize>();
        let (before, reads_before) = (CpuTime::when_idle(&subject.processes)?, reads(&open));
        let open = load::run(open, &subject.steps(PACED), 1, spread).await?;
        let used = CpuTime::when_idle(&subject.processes)?.since(&before);
        let (chunks, reads) = (streams * PACED.chunks(), reads(&open) - reads_before);
        if reads * 10 >= chunks * 9 {
            return Ok(per_thousand(used, chunks));
        }
        merged = format!("{chunks} chunks came in {reads} reads");
    }
    bail!("{merged}: merged chunks are cheap, and what was paced is not any more")
}

/// Returns the times of `requests` requests in sequence, after a warm-up on the same connection.
async fn first_tokens(subject: &RunningSubject, requests: usize) -> Result<Vec<f64>> {
    let steps = subject.steps(Behaviour::First);
    let mut connection = Connection::open(subject.address).await?;
    for _ in 0..requests.div_ceil(10) {
        connection.exchange(&steps).await?;
    }
    let mut times = Vec::with_capacity(requests);
    for _ in 0..requests {
        times.push(millis(connection.exchange(&steps).await?));
    }
    Ok(times)
}

fn resident_mib(subject: &RunningSubject) -> Result<f64> {
    Ok(resident_kib(&subject.processes)? as f64 / 1024.0)
}

async fn memory_after_chats(subject: &RunningSubject) -> Result<f64> {
    let open = load::connect(subject.address, FIRST_CHAT_CONNECTIONS).await?;
    let exchanges = FIRST_CHATS / FIRST_CHAT_CONNECTIONS;
    let open = load::run(open, &subject.steps(Behaviour::First), exchanges, Duration::ZERO).await?;
    drop(open);
    resident_mib(subject)
}

async fn memory(subject: &RunningSubject, streams: usize) -> Result<f64> {
    // The first exchange keeps one-time allocations of the process out of the figure.
    Connection::open(subject.address).await?.exchange(&subject.steps(Behaviour::First)).await?;
    let before = resident_kib(&subject.processes)?;
    let open = load::open_hanging_streams(subject.address, streams, &subject.steps(Behaviour::Hang)).await?;
    let growth = resident_kib(&subject.processes)?.saturating_sub(before);
    drop(open);
    Ok(growth as f64 / streams as f64)
}

async fn tool_exchange(subject: &RunningSubject, exchanges: usize) -> Result<f64> {
    let steps = subject.steps(Behaviour::Tool);
    let open = load::connect(subject.address, TOOL_CONNECTIONS).await?;
    let open = load::run(open, &steps, exchanges.div_ceil(10), Duration::ZERO).await?;
    let before = CpuTime::when_idle(&subject.processes)?;
    let open = load::run(open, &steps, exchanges, Duration::ZERO).await?;
    let used = CpuTime::when_idle(&subject.processes)?.since(&before);
    drop(open);
    Ok(millis(used) / (TOOL_CONNECTIONS * exchanges) as f64)
}

fn per_thousand(used: Duration, chunks: usize) -> f64 {
    millis(used) * 1000.0 / chunks as f64
}

/// Converts a time to milliseconds.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_the_percentile_of_all_samples_and_everything_else_a_mean() {
        let samples: Vec<f64> = (1..=2000).rev().map(f64::from).collect();
        assert_eq!(Measurement::FirstTokenTail.summarize(samples), 1980.0);
        assert_eq!(Measurement::FirstToken.summarize(vec![1.0, 2.0, 6.0]), 3.0);
        assert!(Measurement::FirstTokenTail.summarize(Vec::new()).is_nan());
        assert!(Measurement::FirstToken.summarize(Vec::new()).is_nan());
    }

    #[test]
    fn a_tail_has_at_least_two_thousand_samples_per_repeat() {
        assert!(Scale::FULL.first_requests * Measurement::FirstTokenTail.slices() >= 2000);
    }
}
