//! Locks of other transactions that runs and threads meet.

use agent_platform::conversation::Conversations;
use agent_store::postgres::PostgresRecords;

use super::conversation::{begin, owner};
use super::{Cluster, database, impatient, other};

/// The lease of the process is locked, as by another program or by the commit of a run of another company.
pub(super) async fn a_locked_lease_delays_no_run(cluster: &Cluster) {
    let url = database(cluster, "lease").await;
    let store = PostgresRecords::open(&url, impatient()).await.expect("open");
    store.begin_run(begin(owner().thread("t1"), "r1", Vec::new())).await.expect("begun");
    let holder = other(cluster, "lease").await;
    let lock = "BEGIN; SELECT FROM app.processes WHERE id = 'process' FOR UPDATE";
    holder.batch_execute(lock).await.expect("locked");
    store.begin_run(begin(owner().thread("t2"), "r2", Vec::new())).await.expect("it has the same lease");
    holder.batch_execute("ROLLBACK").await.expect("released");
}
