//! The measurements: what load each one sends, and the one figure that it gives.

use std::{fmt, time::Duration};

use anyhow::{Result, bail};

use crate::{
    answer::Behaviour,
    load::{self, Connection},
    process::{CpuTime, resident_kib},
    subjects::Running,
};

/// The burst: 200 tokens in one write.
pub const BURST: Behaviour = Behaviour::Burst { chunks: 200 };
/// The paced stream: 40 tokens, 40 ms apart.
pub const PACED: Behaviour = Behaviour::Paced { chunks: 40, every_ms: 40 };
/// How often a paced run is made at most until its chunks have come one by one.
const PACED_ATTEMPTS: usize = 3;
/// A short paced stream that opens as many connections upstream as the long one needs, before it is counted.
pub const PACED_WARM_UP: Behaviour = Behaviour::Paced { chunks: 5, every_ms: 40 };
/// Every behaviour that a measurement asks for: a subject whose configuration names models needs them all.
pub const BEHAVIOURS: [Behaviour; 6] =
    [BURST, PACED, PACED_WARM_UP, Behaviour::First, Behaviour::Hang, Behaviour::Tool];

/// The connections side by side in the tool exchange.
const TOOL_CONNECTIONS: usize = 8;

/// A kind of load and the figure that is taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measurement {
    /// CPU milliseconds per 1,000 chunks, where an answer's chunks come all at once.
    Burst {
        /// Connections side by side.
        connections: usize,
    },
    /// CPU milliseconds per 1,000 chunks, where chunks come 40 ms apart.
    Paced,
    /// Median milliseconds from a request to the first token, on one connection.
    FirstToken,
    /// KiB of resident memory per open stream.
    Memory,
    /// CPU milliseconds per exchange of two model calls with one tool call in between.
    ToolExchange,
}

/// How large the runs are.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// How often each measurement is repeated; the median counts.
    pub repeats: usize,
    /// Requests in a slice of a burst run, over all connections.
    pub burst_requests: usize,
    /// Concurrent paced streams.
    pub paced_streams: usize,
    /// Sequential requests in a slice of a first-token run.
    pub first_requests: usize,
    /// Open streams in a memory run.
    pub open_streams: usize,
    /// Exchanges in a slice of a tool run, over all connections.
    pub tool_exchanges: usize,
}

impl Scale {
    /// The scale of the figures that are published: about a second of processor time per repeat of the reference's
    /// bursts.
    pub const FULL: Self = Self {
        repeats: 5,
        burst_requests: 384,
        paced_streams: 512,
        first_requests: 400,
        open_streams: 2000,
        tool_exchanges: 1000,
    };
    /// A short look: all parts run, the figures are rough.
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
            Self::Paced => f.write_str("paced: CPU per 1,000 chunks"),
            Self::FirstToken => f.write_str("first token, p50"),
            Self::Memory => f.write_str("memory per open stream"),
            Self::ToolExchange => f.write_str("two-turn tool exchange: CPU"),
        }
    }
}

impl Measurement {
    /// The unit of the figure.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Memory => "KiB",
            _ => "ms",
        }
    }

    /// Whether each run needs a process that has done nothing before: memory that an earlier load left behind in the
    /// allocator would hide what this one takes.
    pub fn needs_fresh_process(self) -> bool {
        self == Self::Memory
    }

    /// In how many slices a repeat takes its run, by turns with the other subjects, so that what else the machine does
    /// falls on all alike. A repeat's figure is the mean of its slices.
    pub fn slices(self) -> usize {
        match self {
            // Each is a connection, and on which cores its threads come to lie decides much of what it measures.
            Self::FirstToken => 12,
            Self::Burst { .. } | Self::ToolExchange => 4,
            Self::Paced => 2,
            Self::Memory => 1,
        }
    }

    /// Sends one slice of the load to `subject` and gives the figure in [`Measurement::unit`].
    ///
    /// # Errors
    /// A wrong answer, or a process that ended.
    pub async fn run(self, subject: &Running, scale: &Scale) -> Result<f64> {
        match self {
            Self::Burst { connections } => {
                burst(subject, connections, scale.burst_requests / connections).await
            }
            Self::Paced => paced(subject, scale.paced_streams).await,
            Self::FirstToken => first_token(subject, scale.first_requests).await,
            Self::Memory => memory(subject, scale.open_streams).await,
            Self::ToolExchange => tool_exchange(subject, scale.tool_exchanges / TOOL_CONNECTIONS).await,
        }
    }
}

async fn burst(subject: &Running, connections: usize, requests: usize) -> Result<f64> {
    let steps = subject.steps(BURST);
    let open = load::connect(subject.address, connections).await?;
    let open = load::run(open, &steps, requests.div_ceil(10), Duration::ZERO).await?;
    let before = CpuTime::settled(&subject.processes)?;
    let open = load::run(open, &steps, requests, Duration::ZERO).await?;
    let used = CpuTime::settled(&subject.processes)?.since(&before);
    drop(open);
    Ok(per_thousand(used, connections * requests * BURST.chunks()))
}

/// A run in which the machine has merged chunks, as where it stood still for a moment, is made again.
async fn paced(subject: &Running, streams: usize) -> Result<f64> {
    let mut merged = String::new();
    for _ in 0..PACED_ATTEMPTS {
        // The streams begin spread over one interval, as independent users do; all at once they would be a burst.
        let spread = Duration::from_millis(40);
        let open = load::connect(subject.address, streams).await?;
        let open = load::run(open, &subject.steps(PACED_WARM_UP), 1, spread).await?;
        let reads = |open: &[Connection]| open.iter().map(Connection::reads).sum::<usize>();
        let (before, reads_before) = (CpuTime::settled(&subject.processes)?, reads(&open));
        let open = load::run(open, &subject.steps(PACED), 1, spread).await?;
        let used = CpuTime::settled(&subject.processes)?.since(&before);
        let (chunks, reads) = (streams * PACED.chunks(), reads(&open) - reads_before);
        if reads * 10 >= chunks * 9 {
            return Ok(per_thousand(used, chunks));
        }
        merged = format!("{chunks} chunks came in {reads} reads");
    }
    bail!("{merged}: merged chunks are cheap, and what was paced is not any more")
}

async fn first_token(subject: &Running, requests: usize) -> Result<f64> {
    let steps = subject.steps(Behaviour::First);
    let mut connection = Connection::open(subject.address).await?;
    for _ in 0..requests.div_ceil(10) {
        connection.exchange(&steps).await?;
    }
    let mut times = Vec::with_capacity(requests);
    for _ in 0..requests {
        times.push(connection.exchange(&steps).await?);
    }
    times.sort_unstable();
    Ok(millis(times[requests / 2]))
}

async fn memory(subject: &Running, streams: usize) -> Result<f64> {
    // One exchange first, so that what a process sets up once is not counted as the streams'.
    Connection::open(subject.address).await?.exchange(&subject.steps(Behaviour::First)).await?;
    let before = resident_kib(&subject.processes)?;
    let open = load::hold(subject.address, streams, &subject.steps(Behaviour::Hang)).await?;
    let growth = resident_kib(&subject.processes)?.saturating_sub(before);
    drop(open);
    Ok(growth as f64 / streams as f64)
}

async fn tool_exchange(subject: &Running, exchanges: usize) -> Result<f64> {
    let steps = subject.steps(Behaviour::Tool);
    let open = load::connect(subject.address, TOOL_CONNECTIONS).await?;
    let open = load::run(open, &steps, exchanges.div_ceil(10), Duration::ZERO).await?;
    let before = CpuTime::settled(&subject.processes)?;
    let open = load::run(open, &steps, exchanges, Duration::ZERO).await?;
    let used = CpuTime::settled(&subject.processes)?.since(&before);
    drop(open);
    Ok(millis(used) / (TOOL_CONNECTIONS * exchanges) as f64)
}

fn per_thousand(used: Duration, chunks: usize) -> f64 {
    millis(used) * 1000.0 / chunks as f64
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
