//! Reads of a role with its documents, beside one query of the bare client.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::message::SharedJson;
use agent_platform::records::{Key, Precondition, Records};
use agent_store::postgres::{PostgresOptions, PostgresRecords};
use anyhow::{Result, ensure};
use benches::comparison::{Bound, Comparison};
use benches::table::median;
use serde_json::value::to_raw_value;
use tokio_postgres::{Client, Row, Statement};

use crate::server::{BarePool, CONNECTIONS, connect, open, per_second};

/// Number of reads of each subject per repeat.
const READS: usize = 400;
/// Number of documents of a role, and the size of each as text.
const DOCUMENTS: usize = 20;
const DOCUMENT_BYTES: usize = 2048;
/// Number of concurrent callers, and of their companies, where reads per second are measured.
const CALLERS: usize = 64;
const COMPANIES: usize = 16;
const SLICE: Duration = Duration::from_secs(1);

const SELECT: &str = "
    SELECT found.id, found.version, found.updated_ms, found.value
    FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (company, collection, id)
    JOIN app.records AS found USING (company, collection, id)";

pub(crate) async fn measure(url: String, repeats: usize) -> Result<Vec<Comparison>> {
    let store = Arc::new(open(&url, CONNECTIONS, 0).await?);
    let cached = open(&url, 1, PostgresOptions::default().cache_bytes).await?;
    let companies: Arc<[Vec<Key>]> =
        (0..COMPANIES).map(|company| role(&format!("company-{company}"))).collect::<Result<_>>()?;
    for (seed, key) in companies.iter().flatten().enumerate() {
        store.put(key, document(seed)?, Precondition::Any).await?;
    }
    connect(&url).await?.batch_execute("VACUUM ANALYZE app.records").await?;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(BareReader::open(&url).await?);
    }
    let (bare, pool) = (BareReader::open(&url).await?, Arc::new(BarePool::new(clients)));
    let mut latencies = [const { Vec::new() }; 3];
    let mut rates = [const { Vec::new() }; 2];
    let mut statements = 0;
    for _ in 0..repeats {
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..READS {
            times[0].push(bare.timed(&companies[0]).await?);
            times[1].push(timed(&store, &companies[0]).await?);
            // The first read fills the cache again if it has expired, which is not measured.
            timed(&cached, &companies[0]).await?;
            let before = cached.counters().reads;
            times[2].push(timed(&cached, &companies[0]).await?);
            statements += cached.counters().reads - before;
        }
        for (latencies, times) in latencies.iter_mut().zip(times) {
            latencies.push(median(times));
        }
        rates[0].push(bare_reads_per_second(pool.clone(), companies.clone()).await?);
        rates[1].push(reads_per_second(store.clone(), companies.clone()).await?);
    }
    let [bare, uncached, cached] = &latencies;
    let of_cached = format!("the same, cached; {statements} of {} reads ran a statement", repeats * READS);
    Ok(vec![
        Comparison::new(
            format!(
                "a role with {DOCUMENTS} documents of 2 KB, uncached, beside one query of the bare client"
            ),
            "µs",
            Bound::AtMost(1.5),
            bare,
            uncached,
        ),
        Comparison::new(of_cached, "µs", Bound::FigureAtMost(5.0), bare, cached),
        Comparison::new(
            format!("uncached reads of {CALLERS} callers of {COMPANIES} companies, 21 records each"),
            "/s",
            Bound::Unbounded,
            &rates[0],
            &rates[1],
        ),
    ])
}

/// Returns the keys of a role and its documents.
fn role(company: &str) -> Result<Vec<Key>> {
    let documents = (0..DOCUMENTS).map(|_| Key::new(company, "documents", agent_core::new_id()));
    Ok(std::iter::once(Key::new(company, "roles", "agent-1")).chain(documents).collect::<Result<_, _>>()?)
}

/// Returns a document as it is stored, with about as many quotes and newlines as people write.
fn document(seed: usize) -> Result<SharedJson> {
    let line = format!("- {seed}: answer \"politely\", name the **exact** day, and never promise more.\n");
    let mut text = line.repeat(DOCUMENT_BYTES / line.len() + 1);
    text.truncate(DOCUMENT_BYTES);
    Ok(to_raw_value(&text)?.into())
}

/// Returns the microseconds of a read.
async fn timed(store: &PostgresRecords, keys: &[Key]) -> Result<f64> {
    let started = Instant::now();
    let records = store.get_many(keys).await?;
    let elapsed = started.elapsed().as_secs_f64() * 1e6;
    ensure!(records.iter().all(Option::is_some), "a record is missing");
    Ok(elapsed)
}

async fn reads_per_second(store: Arc<PostgresRecords>, companies: Arc<[Vec<Key>]>) -> Result<f64> {
    per_second(CALLERS, SLICE, move |caller, _| {
        let (store, companies) = (store.clone(), companies.clone());
        async move { timed(&store, &companies[caller % COMPANIES]).await.map(drop) }
    })
    .await
}

async fn bare_reads_per_second(pool: Arc<BarePool<BareReader>>, companies: Arc<[Vec<Key>]>) -> Result<f64> {
    per_second(CALLERS, SLICE, move |caller, _| {
        let (pool, companies) = (pool.clone(), companies.clone());
        async move {
            pool.with(async |bare: &BareReader| bare.timed(&companies[caller % COMPANIES]).await)
                .await
                .map(drop)
        }
    })
    .await
}

/// The reference: reads the same rows with the bare client.
struct BareReader {
    client: Client,
    select: Statement,
}

impl BareReader {
    async fn open(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        let select = client.prepare(SELECT).await?;
        Ok(Self { client, select })
    }

    async fn timed(&self, keys: &[Key]) -> Result<f64> {
        let started = Instant::now();
        let companies: Vec<&str> = keys.iter().map(Key::company).collect();
        let paths: Vec<&str> = keys.iter().map(|key| key.collection().path()).collect();
        let ids: Vec<&str> = keys.iter().map(Key::id).collect();
        let rows = self.client.query(&self.select, &[&companies, &paths, &ids]).await?;
        let values =
            |row: &Row| -> (String, i64, i64, String) { (row.get(0), row.get(1), row.get(2), row.get(3)) };
        let read: Vec<_> = rows.iter().map(values).collect();
        let elapsed = started.elapsed().as_secs_f64() * 1e6;
        ensure!(black_box(read).len() == keys.len(), "a record is missing");
        Ok(elapsed)
    }
}
