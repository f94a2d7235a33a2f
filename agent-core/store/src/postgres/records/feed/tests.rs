use super::*;
use crate::postgres::PostgresOptions;
use crate::postgres::schema::APP;

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../../../tests/support/cluster.rs"]
mod cluster;

use self::cluster::Cluster;

const ORIGIN: &str = "this process";

/// A transaction that another program holds open keeps `xmin` where it was for an hour.
#[test]
fn a_transaction_that_stays_open_bounds_what_is_read_and_deleted() {
    let (begun, mut samples) = (Instant::now(), XidSamples::default());
    assert!(samples.before(MAX_TRANSACTION_TIME, begun).is_none());
    let mut largest = 0;
    for second in 0..3600 {
        let now = begun + Duration::from_secs(second);
        // 100 transactions a second.
        samples.record(&format!("7:{}:7", 1000 + second * 100), now);
        largest = largest.max(samples.0.len());
    }
    let now = begun + Duration::from_secs(3600);
    for age in [MAX_TRANSACTION_TIME, RETENTION] {
        let xmax = 1000 + (3600 - age.as_secs()) * 100;
        let sample = samples.before(age, now).expect("a sample");
        assert_eq!((sample.xmax, &*sample.snapshot), (xmax, &*format!("7:{xmax}:7")));
    }
    assert!(largest <= 63, "{largest} samples are kept");
    samples.clear();
    assert!(samples.before(MAX_TRANSACTION_TIME, now).is_none(), "another server has other numbers");
}

fn sample_of(position: &FeedPosition) -> XidSample {
    let mut samples = XidSamples::default();
    samples.record(&position.snapshot, Instant::now());
    samples.0.pop_front().expect("a sample")
}

/// Returns the companies of the changes since a position, and the next position, as if all transactions of the position
/// had started long ago.
async fn poll(poller: &Poller, session: &Session, position: &FeedPosition) -> (Vec<String>, FeedPosition) {
    let floor = sample_of(position).xmax;
    let (rows, latest) = poller.select_changes(session, position, Some(floor)).await.expect("read");
    (rows.iter().filter_map(|row| row.get::<_, Option<String>>(2)).collect(), latest)
}

/// Creates the tables in a server, and connects to it.
async fn connect(url: &str) -> (Poller, Session) {
    let options = PostgresOptions { connect_timeout: Duration::from_secs(20), ..PostgresOptions::default() };
    let sessions = APP.open(url, &options).await.expect("open");
    let session = sessions.get().await.expect("a session");
    (Poller::new(Arc::new(ChangeTracker::new()), sessions, ORIGIN.to_owned()), session)
}

async fn read_position(session: &Session) -> FeedPosition {
    FeedPosition::of(&session.query(SELECT_SNAPSHOT, &[]).await.expect("read"))
}

/// A commit that waits for a standby outlasts every timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_is_committed_long_after_its_beginning_is_read_and_kept() {
    let cluster = Cluster::start();
    let url = cluster.url("postgres");
    let (poller, session) = connect(&url).await;
    let (late, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(async move { drop(connection.await) });
    let begin = format!(
        "BEGIN; INSERT INTO app.change (origin, company, collections, ids)
         VALUES ('{ORIGIN}', 'acme', '{{things}}', '{{late}}')"
    );
    late.batch_execute(&begin).await.expect("begun");
    // A later transaction ends, so that the snapshot names the open one.
    session.query("SELECT pg_current_xact_id()::text", &[]).await.expect("another transaction");

    let opened = read_position(&session).await;
    let (companies, waiting) = poll(&poller, &session, &opened).await;
    assert!(companies.is_empty(), "an uncommitted change is not read: {companies:?}");
    late.batch_execute("COMMIT").await.expect("committed");
    let (companies, committed) = poll(&poller, &session, &waiting).await;
    assert_eq!(companies, ["acme"], "a commit that this process gave up waiting for is read");
    let (companies, _) = poll(&poller, &session, &committed).await;
    assert!(companies.is_empty(), "a change is read once: {companies:?}");

    let deleted = delete_old(&session, &sample_of(&waiting)).await.expect("deleted");
    assert_eq!(deleted, 0, "a late change is kept as long after its commit as others");
    assert_eq!(delete_old(&session, &sample_of(&committed)).await.expect("deleted"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_changes_are_deleted_in_parts_between_polls() {
    let cluster = Cluster::start();
    let (mut poller, session) = connect(&cluster.url("postgres")).await;
    let insert = "INSERT INTO change (origin, company, collections, ids)
                  SELECT 'other', 'acme', '{things}', '{a}' FROM generate_series(1, $1::int8)";
    session.query(insert, &[&(PRUNE_ROWS + 10)]).await.expect("inserted");
    let snapshot = read_position(&session).await.snapshot;
    let long_ago = Instant::now().checked_sub(RETENTION).expect("a time");
    for (sampled, remaining, is_pruning) in
        [(false, PRUNE_ROWS + 10, false), (true, 10, true), (true, 0, false)]
    {
        if !poller.is_pruning {
            poller.last_prune = long_ago;
        }
        if sampled {
            poller.samples.record(&snapshot, long_ago);
        }
        poller.prune(&session).await.expect("pruned");
        let rows = session.query("SELECT count(*) FROM change", &[]).await.expect("read");
        assert_eq!((rows[0].get::<_, i64>(0), poller.is_pruning), (remaining, is_pruning));
    }
}
