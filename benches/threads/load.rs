//! CPU time of loading a thread and merging a message into it.

use std::path::Path;
use std::time::Duration;

use agent_core::message::Message;
use agent_platform::conversation::{
    Conversations, Envelope, MAX_PAGE_NODES, MergeInput, ThreadKey, ThreadLinks, merge,
};
use agent_store::sqlite::SqliteStore;
use anyhow::{Context, Result, ensure};
use benches::comparison::{Bound, Comparison};
use benches::measure::millis;
use jiff::Timestamp;
use rusqlite::{Connection, params};
use rustix::time::{ClockId, clock_gettime};

use crate::stored::{create_all, dialogue, open, thread};

/// Limit of a turn after the first one of the same thread.
const NEXT_TURN_LIMIT_MS: f64 = 0.03;
/// Names of the two turns of each thread.
const TURNS: [&str; 2] = ["the first turn", "the second turn, right after it"];

const CASES: [Case; 2] = [
    Case { name: "200", messages: 200, threads: 40, limit_ms: 0.3 },
    // With the turn's own message and its answer, the thread has as many as it may.
    Case { name: "10,000", messages: 9_998, threads: 2, limit_ms: 15.0 },
];

/// Length of a thread.
struct Case {
    name: &'static str,
    messages: usize,
    /// Number of threads that are loaded in a repeat, which no other repeat loads.
    threads: usize,
    /// Limit of the first turn.
    limit_ms: f64,
}

pub(crate) async fn measure(repeats: usize) -> Result<Vec<Comparison>> {
    let mut rows = Vec::new();
    for case in CASES {
        rows.extend(case.measure(repeats).await?);
    }
    Ok(rows)
}

impl Case {
    async fn measure(&self, repeats: usize) -> Result<Vec<Comparison>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("app.db");
        let store = open(&path)?;
        let (messages, now) = (self.messages, Timestamp::now());
        create_all(&store, repeats * self.threads, move |n| thread(key(n), dialogue(messages), now)).await?;
        let raw = RawRows::open(&path)?;
        // By turn.
        let (mut reference, mut figures) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
        for repeat in 0..repeats {
            let mut used = [[Duration::ZERO; 2]; 2];
            for n in repeat * self.threads..(repeat + 1) * self.threads {
                let key = key(n);
                for [raw_time, time] in &mut used {
                    let begun = cpu_time()?;
                    let rows = raw.read(&key)?;
                    *raw_time += cpu_time()? - begun;
                    ensure!(rows == messages, "{rows} rows");
                    let begun = cpu_time()?;
                    let prompt = load_and_merge(&store, &key).await?;
                    *time += cpu_time()? - begun;
                    ensure!(prompt == messages + 1, "{prompt} messages");
                }
            }
            for (turn, used) in used.into_iter().enumerate() {
                let [raw_time, time] = used.map(|used| millis(used) / self.threads as f64);
                reference[turn].push(raw_time);
                figures[turn].push(time);
            }
        }
        let limits = [self.limit_ms, NEXT_TURN_LIMIT_MS];
        let row = |turn: usize| {
            let what = format!(
                "a thread of {} messages loaded and merged, {}: CPU, beside its rows by bare rusqlite",
                self.name, TURNS[turn]
            );
            let bound = Bound::FigureAtMost(limits[turn]);
            Comparison::new(what, "ms", bound, &reference[turn], &figures[turn])
        };
        Ok(vec![row(0), row(1)])
    }
}

fn key(n: usize) -> ThreadKey {
    ThreadKey::new("company", "owner", format!("thread-{n}"))
}

/// Returns the CPU time of this process.
fn cpu_time() -> Result<Duration> {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).context("time is not negative")
}

/// Loads a thread and merges the next message into it, as the turn of a chat does. Returns the number of messages of the
/// prompt.
async fn load_and_merge(store: &SqliteStore, key: &ThreadKey) -> Result<usize> {
    let ThreadLinks { thread, links } = store.links(key).await?.context("the thread is there")?;
    let merged = merge(MergeInput {
        links: &links,
        head: thread.head,
        messages: vec![Message::user("And on Sunday?")],
        envelope: Envelope::Message,
        ..MergeInput::default()
    })?;
    let mut nodes = Vec::with_capacity(merged.path.len());
    for seqs in merged.path.chunks(MAX_PAGE_NODES) {
        nodes.extend(store.contents(key, seqs).await?);
    }
    Ok(merged.prompt(nodes).len())
}

/// The reference: reads the same rows with rusqlite alone.
struct RawRows {
    connection: Connection,
}

impl RawRows {
    fn open(path: &Path) -> Result<Self> {
        Ok(Self { connection: Connection::open(path)? })
    }

    /// Reads the messages of a thread, and returns their number.
    fn read(&self, key: &ThreadKey) -> Result<usize> {
        let mut statement = self.connection.prepare_cached(
            "SELECT seq, parent, id, turn, role, status, sha, origin, at_ms, body FROM nodes
             WHERE thread = (SELECT n FROM threads WHERE company = ?1 AND owner = ?2 AND id = ?3) ORDER BY seq",
        )?;
        let mut rows = statement.query(params![&*key.company, &*key.owner, &*key.id])?;
        let mut found: Vec<(u32, Option<u32>, [String; 7], i64)> = Vec::new();
        while let Some(row) = rows.next()? {
            let text = |column: usize| row.get::<_, String>(column);
            let texts = [text(2)?, text(3)?, text(4)?, text(5)?, text(6)?, text(7)?, text(9)?];
            found.push((row.get(0)?, row.get(1)?, texts, row.get(8)?));
        }
        Ok(std::hint::black_box(found).len())
    }
}
