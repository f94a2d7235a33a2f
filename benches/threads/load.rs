//! CPU time of loading a thread and merging a message into it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::RunId;
use agent_core::message::Message;
use agent_platform::conversation::{
    BeginOrder, BeginRunRequest, Conversations, EndRunRequest, LogEnd, MergeInput, MergeResult, NewNode,
    NewThread, NodeOrigin, OnDisconnect, RequestFormat, RunContext, RunEnding, RunLease, RunRecord,
    RunTrigger, ThreadCache, ThreadKey, merge,
};
use agent_store::sqlite::SqliteStore;
use anyhow::{Context, Result, ensure};
use benches::comparison::{Bound, Comparison};
use benches::measure::millis;
use jiff::Timestamp;
use rusqlite::{Connection, params};
use rustix::time::{ClockId, clock_gettime};

use crate::stored::{AGENT, create_all, dialogue, open, thread};

/// Place of the turn before which a run is started and ended, in [`TURNS`].
const AFTER_RUN: usize = 2;
/// Limit of a turn after the first one of the same thread.
const NEXT_TURN_LIMIT_MS: f64 = 0.03;
/// Names of the turns of each thread.
const TURNS: [&str; 3] =
    ["the first turn", "the second turn, right after it", "the turn after a run of this process"];

const CASES: [Case; 2] = [
    Case { name: "200", messages: 200, threads: 40, limit_ms: 0.3 },
    // With the messages of the run, the thread has as many as it may.
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
        let (mut reference, mut figures) =
            ([const { Vec::new() }; TURNS.len()], [const { Vec::new() }; TURNS.len()]);
        for repeat in 0..repeats {
            let mut used = [[Duration::ZERO; 2]; TURNS.len()];
            // A process that has read none of the repeat's threads.
            let cache = ThreadCache::default();
            for n in repeat * self.threads..(repeat + 1) * self.threads {
                let (key, mut messages) = (key(n), messages);
                for (turn, [raw_time, time]) in used.iter_mut().enumerate() {
                    if turn == AFTER_RUN {
                        run(&store, &cache, &key).await?;
                        messages += 2;
                    }
                    let started = cpu_time()?;
                    let rows = raw.read(&key)?;
                    *raw_time += cpu_time()? - started;
                    ensure!(rows == messages, "{rows} rows");
                    let started = cpu_time()?;
                    let (prompt, _) = load_and_merge(&store, &cache, &key).await?;
                    *time += cpu_time()? - started;
                    ensure!(prompt == messages + 1, "{prompt} messages");
                }
            }
            for (turn, used) in used.into_iter().enumerate() {
                let [raw_time, time] = used.map(|used| millis(used) / self.threads as f64);
                reference[turn].push(raw_time);
                figures[turn].push(time);
            }
        }
        let limits = [self.limit_ms, NEXT_TURN_LIMIT_MS, NEXT_TURN_LIMIT_MS];
        let row = |turn: usize| {
            let description = format!(
                "a thread of {} messages loaded and merged, {}: CPU, beside its rows by bare rusqlite",
                self.name, TURNS[turn]
            );
            let bound = Bound::FigureAtMost(limits[turn]);
            Comparison::new(description, "ms", bound, &reference[turn], &figures[turn])
        };
        Ok((0..TURNS.len()).map(row).collect())
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
/// prompt, and the merge.
async fn load_and_merge(
    store: &SqliteStore,
    cache: &ThreadCache,
    key: &ThreadKey,
) -> Result<(usize, MergeResult)> {
    let mut loaded = cache.load(store, key).await?;
    let merged = merge(MergeInput {
        links: loaded.links(),
        known_path: loaded.path(),
        ids: Some(loaded.ids()),
        head: loaded.thread().context("the thread is there")?.head.clone(),
        messages: vec![Arc::new(Message::user("And on Sunday?"))],
        format: RequestFormat::Message,
        ..MergeInput::default()
    })?;
    loaded.read_path(store, key, &merged.path, true).await?;
    let prompt = loaded.prompt(&merged);
    cache.keep(key, loaded);
    Ok((prompt.len(), merged))
}

/// Begins and ends a run with one message and its answer.
async fn run(store: &SqliteStore, cache: &ThreadCache, key: &ThreadKey) -> Result<()> {
    let (_, merged) = load_and_merge(store, cache, key).await?;
    let (now, process) = (Timestamp::now(), "process".to_owned());
    let answer = NewNode::user(merged.parent_id.clone(), Message::assistant("It is closed."));
    let run_id = RunId::from(format!("run-{}", key.id));
    let begin = BeginRunRequest {
        key: key.clone(),
        agent_id: AGENT.into(),
        run_id: run_id.clone(),
        continues: None,
        decisions: Vec::new(),
        trigger: RunTrigger::default(),
        nodes: merged.nodes,
        parent_id: merged.parent_id,
        new_thread: NewThread::default(),
        retention: None,
        order: BeginOrder::default(),
        expected_version: None,
        on_disconnect: OnDisconnect::default(),
        grace_ms: None,
        context: RunContext::default(),
        backend: None,
        request_sha256: None,
        lease: RunLease { process: process.clone(), until: now },
        now,
    };
    let begun_run = store.begin_run(begin).await?;
    cache.apply_begin(key, &begun_run);
    let end = EndRunRequest {
        owner: key.thread_owner(),
        run_id,
        process,
        nodes: vec![NewNode { origin: NodeOrigin::Run, ..answer }],
        ending: RunEnding::default(),
        log: LogEnd::default(),
        context: None,
        request_sha256: None,
        backend: None,
        record: RunRecord::default(),
        now,
    };
    let ended_run = store.end_run(end).await?;
    cache.apply_end(key, &ended_run);
    Ok(())
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
