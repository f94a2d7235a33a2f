//! Latency of small companies beside one that has nine tenths of the load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_platform::records::{Key, Precondition, Records};
use agent_store::postgres::PostgresRecords;
use anyhow::{Result, ensure};
use benches::comparison::{Bound, Comparison};
use benches::measure::millis;
use benches::table::{median, percentile};
use serde_json::value::to_raw_value;
use tokio::task::JoinSet;
use tokio::time::{Instant as TokioInstant, sleep_until};

use crate::server::{CONNECTIONS, open};

/// Number of small companies, with one caller each, and of callers of the large one.
const SMALL: usize = 20;
const LARGE: usize = 9 * SMALL;
/// Interval between the operations of a caller.
const INTERVAL: Duration = Duration::from_millis(100);
/// Number of operations of a caller per slice.
const OPERATIONS: u32 = 30;
/// Number of records that an operation reads, of those of its caller.
const RECORDS: usize = 4;

pub(crate) async fn measure(url: String, repeats: usize) -> Result<Vec<Comparison>> {
    let store = Arc::new(open(&url, CONNECTIONS, 0).await?);
    let small = (0..SMALL).map(|n| TenantCaller::new(format!("small-{n}"), n));
    let large = (0..LARGE).map(|n| TenantCaller::new("large".to_owned(), n));
    let callers: Vec<_> = small.clone().chain(large).collect::<Result<_>>()?;
    let others = (0..LARGE).map(|n| TenantCaller::new(format!("other-{n}"), n));
    let spread: Vec<_> = small.chain(others).collect::<Result<_>>()?;
    // Creates the records and opens the connections.
    run(&store, &callers, 1).await?;
    run(&store, &spread, 1).await?;
    let (mut p50, mut p99) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    for _ in 0..repeats {
        for (index, callers) in [&callers[..SMALL], &callers[..], &spread[..]].into_iter().enumerate() {
            let times = run(&store, callers, OPERATIONS).await?;
            p50[index].push(median(times.clone()));
            p99[index].push(percentile(times, 99));
        }
    }
    let each = 1000 / INTERVAL.as_millis() as usize;
    let description = format!(
        "a read and a commit of {SMALL} companies, {} each second, p99: with {} of another company, beside without",
        SMALL * each,
        LARGE * each,
    );
    Ok(vec![
        Comparison::new(description, "ms", Bound::AtMost(1.3), &p99[0], &p99[1]),
        Comparison::new("the same, p50", "ms", Bound::Unbounded, &p50[0], &p50[1]),
        Comparison::new(
            format!("the same, p99: with that load of one company, beside that of {LARGE} companies"),
            "ms",
            Bound::Unbounded,
            &p99[2],
            &p99[1],
        ),
    ])
}

/// A caller with separate records.
#[derive(Clone)]
struct TenantCaller {
    keys: Vec<Key>,
    is_small: bool,
    /// Offset of the caller's operations within the interval.
    offset: Duration,
}

impl TenantCaller {
    fn new(company: String, number: usize) -> Result<Self> {
        let is_small = company.starts_with("small");
        let key = |n| Key::new(company.as_str(), "things", format!("{number}-{n}"));
        let keys = (0..RECORDS).map(key).collect::<Result<_, _>>()?;
        // Between two operations of the others, in place of the same time as one of them.
        let index = if is_small { 2 * number * (LARGE / SMALL) + 1 } else { 2 * number };
        Ok(Self { keys, is_small, offset: INTERVAL * index as u32 / (2 * LARGE) as u32 })
    }

    async fn operate(&self, store: &PostgresRecords, number: u32) -> Result<()> {
        let read = store.get_many(&self.keys).await?;
        ensure!(read.len() == self.keys.len(), "a record is missing");
        let key = &self.keys[number as usize % self.keys.len()];
        store.put(key, to_raw_value(&number)?.into(), Precondition::Any).await?;
        Ok(())
    }
}

/// Runs the callers' operations at their times, and returns the milliseconds from the time of each operation of a small
/// company to its end.
async fn run(store: &Arc<PostgresRecords>, callers: &[TenantCaller], operations: u32) -> Result<Vec<f64>> {
    let start = Instant::now() + INTERVAL;
    let mut tasks = JoinSet::new();
    for caller in callers {
        let (store, caller) = (store.clone(), caller.clone());
        tasks.spawn(async move {
            let mut times = Vec::new();
            for number in 0..operations {
                let due = start + INTERVAL * number + caller.offset;
                sleep_until(TokioInstant::from_std(due)).await;
                caller.operate(&store, number).await?;
                if caller.is_small {
                    times.push(millis(due.elapsed()));
                }
            }
            anyhow::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(of_one) = tasks.join_next().await {
        times.extend(of_one??);
    }
    Ok(times)
}
