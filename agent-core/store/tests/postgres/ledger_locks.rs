//! Ledgers of companies that another program has locked.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_platform::usage::{RunScope, UsageEntry, UsageFilter, UsageQuery, UsageStore};
use agent_store::postgres::{PostgresOptions, PostgresRecords};

use super::usage::entry;
use super::{Cluster, at, database, impatient, other, wait_until};

fn entry_of(company: &str, id: &str) -> UsageEntry {
    let plain = entry(id, 1);
    let scope = RunScope { company_id: company.into(), ..plain.scope };
    UsageEntry { scope, ..plain }
}

/// Returns the number of a company's entries.
async fn booked(store: &PostgresRecords, company: &str) -> usize {
    store.run_usage(&company.into(), &"run 1".into()).await.expect("entries").len()
}

/// Returns the number of a company's calls by the sums of its days.
async fn calls(store: &PostgresRecords, company: &str) -> u64 {
    let day = |text: &str| text.parse().expect("a date");
    let filter = UsageFilter { from: day("2026-01-01"), to: day("2026-12-31"), agent: None, user: None };
    let query = UsageQuery { filter, group_by: Vec::new(), after: None, limit: 1 };
    let page = store.usage(&company.into(), &query).await.expect("sums");
    page.rows.first().map_or(0, |row| row.sums.calls)
}

/// The row of a day's sums, and the lock of the ledger, which a suspended process may hold.
pub(super) async fn a_locked_ledger_delays_no_booking_of_another_company(cluster: &Cluster) {
    let url = database(cluster, "ledgers").await;
    let options = PostgresOptions { lock_timeout: Duration::from_secs(25), ..impatient() };
    let store = Arc::new(PostgresRecords::open(&url, options).await.expect("open"));
    assert_eq!(store.book(vec![entry_of("c1", "first")]).await.expect("booked"), 1);
    let holder = other(cluster, "ledgers").await;
    let admin = other(cluster, "postgres").await;
    let waits = "SELECT FROM pg_stat_activity WHERE datname = 'ledgers' AND wait_event_type = 'Lock'";
    let only_c1 = HashSet::from([CompanyId::from("c1")]);
    let locks = [
        "SELECT FROM app.usage_days WHERE company = 'c1' FOR UPDATE",
        "SELECT pg_advisory_xact_lock(hashtextextended('c1', 11))",
    ];
    for (round, lock) in locks.into_iter().enumerate() {
        holder.batch_execute(&format!("BEGIN; {lock}")).await.expect("locked");
        let entries = ["c1", "c2", "c3"].map(|company| entry_of(company, &round.to_string()));
        let locked =
            store.book_unlocked(entries.to_vec()).await.expect("entries of other companies are booked");
        assert_eq!(locked, only_c1);
        assert_eq!((booked(&store, "c2").await, booked(&store, "c3").await), (round + 1, round + 1));
        let locked = store.book_unlocked(entries[..1].to_vec()).await.expect("none");
        assert_eq!(locked, only_c1);
        let waiting = tokio::spawn({
            let (store, entries) = (store.clone(), entries[..1].to_vec());
            async move { store.book(entries).await }
        });
        let is_waiting = async || !admin.query(waits, &[]).await.expect("read").is_empty();
        wait_until("a booking waits for the lock", is_waiting).await;
        let again = store.book(entries[1..].to_vec()).await.expect("bookings of other companies do not wait");
        assert_eq!(again, 0, "the entries are already booked");
        assert!(!waiting.is_finished(), "its ledger is locked");
        holder.batch_execute("ROLLBACK").await.expect("released");
        assert_eq!(waiting.await.expect("done").expect("the lock is free in time"), 1);
        let locked = store.book_unlocked(entries.to_vec()).await.expect("all are booked already");
        assert!(locked.is_empty(), "{locked:?}");
    }
    for (company, count) in [("c1", 3), ("c2", 2), ("c3", 2)] {
        assert_eq!((booked(&store, company).await, calls(&store, company).await), (count, count as u64));
    }

    let lock = "BEGIN; SELECT FROM app.usage_calls WHERE company = 'c1' FOR UPDATE";
    holder.batch_execute(lock).await.expect("locked");
    assert_eq!(store.trim_usage(at(1_000)).await.expect("entries of other companies are deleted"), 4);
    assert_eq!(booked(&store, "c1").await, 3);
    holder.batch_execute("ROLLBACK").await.expect("released");
    assert_eq!(store.trim_usage(at(1_000)).await.expect("deleted"), 3);
    assert_eq!(calls(&store, "c1").await, 3, "the sums stay");
}
