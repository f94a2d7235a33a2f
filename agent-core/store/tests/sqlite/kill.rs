use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use agent_platform::records::{Precondition, Records};
use agent_store::sqlite::{SqliteOptions, SqliteStore};

use super::{TempStore, key, put, uncached};

/// Environment variables that pass the file and the round to the child process.
pub(super) const FILE: &str = "STORE_TEST_FILE";
const ROUND: &str = "STORE_TEST_ROUND";
const COMMITS: usize = 200;
const ROUNDS: usize = 12;

/// Kills a writing process repeatedly on the same file, and checks the file after each kill.
#[tokio::test]
async fn acknowledged_commits_survive_a_kill() {
    let temp_store = TempStore::new();
    let mut killed_early = 0;
    for round in 0..ROUNDS {
        let mut child = Killed(start("kill::writes_until_it_is_killed", &temp_store.file(), round));
        let stdout = child.0.stdout.take().expect("a pipe");
        let mut lines = BufReader::new(stdout).lines().map(|line| line.expect("a line"));
        // Kill times are spread over the run and fall at any point of a commit: eight are in progress at any
        // time.
        let wait_for = 1 + (round * 71) % (COMMITS - 20);
        let mut acknowledged = Vec::new();
        let acknowledgement =
            |line: String| line.strip_prefix("stored ").map(|n| n.parse::<usize>().expect("a number"));
        while acknowledged.len() < wait_for {
            acknowledged.extend(acknowledgement(lines.next().expect("the child goes on")));
        }
        child.0.kill().expect("killed");
        // Acknowledgements that were written before the kill.
        acknowledged.extend(lines.filter_map(acknowledgement));
        child.0.wait().expect("ended");
        killed_early += usize::from(acknowledged.len() < COMMITS);
        look(&temp_store, round, &acknowledged).await;
    }
    assert!(killed_early >= ROUNDS / 2, "most kills come while the process writes");
}

async fn look(temp_store: &TempStore, round: usize, acknowledged: &[usize]) {
    let store = temp_store.store(uncached());
    assert_eq!(store.check_integrity().await.expect("a check"), Vec::<String>::new(), "round {round}");
    for n in 0..COMMITS {
        let ids = ids(round, n);
        let read_records = store.get_many(&ids.each_ref().map(|id| key(id))).await.expect("read");
        let there = read_records.iter().flatten().count();
        assert!(there != 1, "round {round}: half of commit {n} is there");
        assert!(there == 2 || !acknowledged.contains(&n), "round {round}: commit {n} was acknowledged");
    }
}

fn ids(round: usize, n: usize) -> [String; 2] {
    [format!("{round}-{n}-left"), format!("{round}-{n}-right")]
}

/// Child process that is killed when the test ends.
pub(super) struct Killed(pub(super) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts this test binary with only the given child test.
pub(super) fn start(test: &str, file: &PathBuf, round: usize) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(FILE, file)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of the test above"]
async fn writes_until_it_is_killed() {
    let file = std::env::var_os(FILE).expect("the test above says where");
    let round: usize = std::env::var(ROUND).expect("the round is set").parse().expect("a number");
    let store = Arc::new(SqliteStore::open(file, SqliteOptions::default()).expect("open"));
    let tasks = (0..8).map(|task| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in (task..COMMITS).step_by(8) {
                let writes = ids(round, n).iter().map(|id| put(id, "1", Precondition::Absent)).collect();
                store.commit(writes).await.expect("commit");
                // Written directly, because the test harness may capture the output of `println!`.
                writeln!(std::io::stdout(), "stored {n}").expect("the parent listens");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("written");
    }
}
