//! More runs of a company that cannot be read than one page of the upkeep has.

use agent_platform::conversation::{
    Conversations, EndRunRequest, LogEnd, MAX_REAPED_RUNS, MAX_TRIMMED_LOGS, RunClock, RunState, ThreadOwner,
};

use super::conversation::{at, begin, chunk, end};

/// Statement that damages the rows of runs of the company `c1`.
pub(crate) const DAMAGE: &str = "UPDATE runs SET body = '{' WHERE company = 'c1'";

/// Asserts that the run of another company is interrupted, and an expired log of it deleted. `damage` runs [`DAMAGE`].
pub(crate) async fn hide_no_other(store: &dyn Conversations, damage: impl AsyncFnOnce()) {
    let begun = async |owner: &ThreadOwner, run: &str| {
        store.begin_run(begin(owner.thread(run), run, Vec::new())).await.expect("begun");
    };
    let ended = async |owner: &ThreadOwner, run: &str| {
        begun(owner, run).await;
        let log = LogEnd { chunks: vec![chunk(0, "word")], until: Some(at(10)), ..LogEnd::default() };
        let end = EndRunRequest { owner: owner.clone(), log, ..end(run, Vec::new()) };
        store.end_run(end).await.expect("ended");
    };
    let [damaged, sound] = ["c1", "c2"].map(|company| ThreadOwner::new(company, "ada"));
    for n in 0..=MAX_REAPED_RUNS {
        begun(&damaged, &format!("live {n}")).await;
    }
    for n in 0..=MAX_TRIMMED_LOGS {
        ended(&damaged, &format!("ended {n}")).await;
    }
    begun(&sound, "live").await;
    ended(&sound, "ended").await;
    damage().await;
    let clock = RunClock { now: at(20_000), log_until: at(30_000) };
    store.reap(clock).await.expect_err("runs cannot be read");
    let lost = store.run(&sound, &"live".into()).await.expect("read").expect("a run");
    assert_eq!(lost.state, RunState::Interrupted);
    store.trim_logs(at(20_000)).await.expect_err("runs cannot be read");
    let expired = store.events(&sound, &"ended".into(), 0).await.expect("read").expect("a run");
    assert_eq!((expired.chunks.len(), expired.run.events.count), (0, 0));
}
