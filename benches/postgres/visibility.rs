//! Time until cached reads of one process see a write of another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_platform::records::{Key, Precondition, Records};
use agent_store::postgres::{PostgresOptions, PostgresRecords};
use anyhow::{Result, bail};
use benches::comparison::{Bound, Comparison};
use benches::measure::millis;
use benches::table::{median, percentile};
use serde_json::value::to_raw_value;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::server::{CONNECTIONS, open};

/// Number of records that are watched at the same time, and of writes to each per repeat.
const WATCHED: usize = 8;
const WRITES: usize = 25;
/// Interval between reads of a watched record.
const READ_INTERVAL: Duration = Duration::from_millis(1);
const LIMIT_MS: f64 = 100.0;
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn measure(url: String, repeats: usize) -> Result<Vec<Comparison>> {
    let cache_bytes = PostgresOptions::default().cache_bytes;
    let writer = Arc::new(open(&url, CONNECTIONS, 0).await?);
    let uncached = Arc::new(open(&url, CONNECTIONS, 0).await?);
    let cached = Arc::new(open(&url, CONNECTIONS, cache_bytes).await?);
    let (mut p50, mut p99) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    let (mut reads, mut statements) = (0, 0);
    for repeat in 0..repeats {
        for (index, reader) in [&uncached, &cached].into_iter().enumerate() {
            let before = reader.counters().reads;
            let (times, count) = watch(&writer, reader, repeat * 2 + index).await?;
            if index == 1 {
                reads += count;
                statements += reader.counters().reads - before;
            }
            p50[index].push(median(times.clone()));
            p99[index].push(percentile(times, 99));
        }
    }
    let description = format!(
        "a write of another process seen by reads of a cache, p50, beside uncached reads; {statements} of {reads} reads \
         ran a statement"
    );
    Ok(vec![
        Comparison::new(description, "ms", Bound::Unbounded, &p50[0], &p50[1]),
        Comparison::new("the same, p99", "ms", Bound::FigureAtMost(LIMIT_MS), &p99[0], &p99[1]),
    ])
}

/// Writes records, and returns the milliseconds from the end of each commit until the reader has the value, and the
/// number of reads.
async fn watch(
    writer: &Arc<PostgresRecords>,
    reader: &Arc<PostgresRecords>,
    round: usize,
) -> Result<(Vec<f64>, u64)> {
    let mut tasks = JoinSet::new();
    for watched in 0..WATCHED {
        let (writer, reader) = (writer.clone(), reader.clone());
        tasks.spawn(async move {
            let key = Key::new("company", "watched", format!("{round}-{watched}"))?;
            let (mut times, mut reads) = (Vec::new(), 0);
            for write in 0..WRITES {
                // Spreads the writes over the interval of the polls.
                let pause = Duration::from_millis(((write * 17 + watched * 7) % 50) as u64);
                let started = Instant::now();
                while started.elapsed() < pause {
                    reader.get(&key).await?;
                    reads += 1;
                    sleep(READ_INTERVAL).await;
                }
                writer.put(&key, to_raw_value(&write)?.into(), Precondition::Any).await?;
                let committed = Instant::now();
                let expected = write.to_string();
                while reader.get(&key).await?.is_none_or(|record| record.value.get() != expected) {
                    reads += 1;
                    if committed.elapsed() > TIMEOUT {
                        bail!("a write was not seen");
                    }
                    sleep(READ_INTERVAL).await;
                }
                times.push(millis(committed.elapsed()));
            }
            anyhow::Ok((times, reads))
        });
    }
    let (mut times, mut reads) = (Vec::new(), 0);
    while let Some(watched) = tasks.join_next().await {
        let (of_one, count) = watched??;
        times.extend(of_one);
        reads += count;
    }
    Ok((times, reads))
}
