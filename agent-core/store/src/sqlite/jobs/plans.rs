//! Tests of the query plans: with a million jobs, a query without an index is an outage.

use agent_jobs::job::{JobFilter, JobOrder, JobScope, JobState};
use rusqlite::Connection;

use super::filter::JobQuery;
use super::{claim, counts, rows};
use crate::sqlite::{SqliteOptions, file};

/// Returns SQLite's query plan.
fn plan(connection: &Connection, sql: &str) -> String {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("a statement");
    let mut found = statement.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = found.next().expect("a plan") {
        steps.push(row.get::<_, String>(3).expect("a step"));
    }
    steps.join("; ")
}

fn database() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().expect("a folder");
    let options = SqliteOptions::default();
    let (connection, _) = file::open(&folder.path().join("scheduler.db"), &options).expect("open");
    (folder, connection)
}

#[test]
fn queries_of_the_worker_use_covering_indexes() {
    let (_folder, connection) = database();
    let cases = [
        (rows::SELECT_EARLIEST, "SEARCH jobs USING COVERING INDEX jobs_wake (wake_ms>?)"),
        (
            claim::SELECT_DUE,
            "SEARCH jobs USING COVERING INDEX jobs_wake ((wake_ms,company)>(?,?) AND wake_ms<?)",
        ),
        (
            rows::SELECT_BY_ROWIDS,
            "SCAN chosen VIRTUAL TABLE INDEX 1:; SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)",
        ),
        (rows::UPDATE_IF_UNCHANGED, "SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)"),
        (rows::UPDATE_OPEN, "SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)"),
        (rows::UPDATE_OPEN_IF_UNCHANGED, "SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)"),
        (counts::COUNT_OPEN, "SEARCH jobs USING COVERING INDEX jobs_wake (wake_ms>?)"),
        (counts::COUNT_PAUSED, "SCAN jobs USING COVERING INDEX jobs_paused"),
        (counts::COUNT_FINAL, "SEARCH jobs USING COVERING INDEX jobs_ended (ended_ms>?)"),
        (counts::SELECT_EARLIEST_WAITING, "SEARCH jobs USING COVERING INDEX jobs_wake (wake_ms>?)"),
        (rows::SELECT_BY_ID, "SEARCH jobs USING INDEX sqlite_autoindex_jobs_1 (id=?)"),
        (
            rows::SELECT_BY_IDEMPOTENCY_KEY,
            "SEARCH jobs USING INDEX jobs_idempotency (company=? AND idempotency=?)",
        ),
    ];
    for (sql, expected) in cases {
        assert_eq!(plan(&connection, sql), expected, "{sql}");
    }
    let purge = plan(&connection, rows::PURGE);
    assert!(purge.contains("SEARCH jobs USING COVERING INDEX jobs_ended (ended_ms<?)"), "{purge}");
    assert!(!purge.contains("TEMP B-TREE FOR ORDER BY"), "{purge}");
}

#[test]
fn lists_are_read_in_the_order_of_an_index() {
    let (_folder, connection) = database();
    let own = |text: &str| Some(text.to_owned());
    let all = JobFilter::default();
    let company = JobFilter { scope: JobScope { company: Some("acme".into()), user: None }, ..all.clone() };
    let user = JobFilter {
        scope: JobScope { company: Some("acme".into()), user: Some("ada".into()) },
        ..all.clone()
    };
    let of_tool = |filter: &JobFilter| JobFilter { tool: own("remind"), ..filter.clone() };
    let of_agent = |filter: &JobFilter| JobFilter { agent: Some("a".into()), ..filter.clone() };
    let of_assignment = |filter: &JobFilter| JobFilter { assignment: own("daily"), ..filter.clone() };
    let discarded = |filter: &JobFilter| JobFilter { state: Some(JobState::Discarded), ..filter.clone() };
    let cases = [
        (company.clone(), "jobs_company (company=?"),
        (of_tool(&company), "jobs_company (company=?"),
        (of_agent(&company), "jobs_company (company=?"),
        (user.clone(), "jobs_user (company=? AND user_id=?"),
        (of_tool(&user), "jobs_user (company=? AND user_id=?"),
        (of_agent(&user), "jobs_user (company=? AND user_id=?"),
        (of_assignment(&company), "jobs_assignment (company=? AND assignment=?"),
        (of_assignment(&user), "jobs_assignment (company=? AND assignment=?"),
        (discarded(&company), "jobs_dead (company=?"),
        (discarded(&user), "jobs_dead (company=?"),
    ];
    for (filter, index) in cases {
        for open in [false, true] {
            let filter = JobFilter { open, ..filter.clone() };
            let index = if open { index.replace("jobs_user", "jobs_open") } else { index.to_owned() };
            let query = JobQuery::from_filter(&filter);
            for (order, is_continued, after) in [
                (JobOrder::OldestFirst, false, ")"),
                (JobOrder::NewestFirst, false, ")"),
                (JobOrder::OldestFirst, true, " AND id>?)"),
                (JobOrder::NewestFirst, true, " AND id<?)"),
            ] {
                let expected = format!("SEARCH jobs USING INDEX {index}{after}");
                let found = plan(&connection, &query.list_sql(order, is_continued));
                assert_eq!(found, expected, "{order:?} of {filter:?}");
            }
            let found = plan(&connection, &query.count_sql());
            assert!(
                found.starts_with("SEARCH jobs USING ") && found.contains("(company=?"),
                "{found}: {filter:?}"
            );
        }
    }
    let all = JobQuery::from_filter(&all);
    for (order, after) in [(JobOrder::OldestFirst, ">"), (JobOrder::NewestFirst, "<")] {
        let found = plan(&connection, &all.list_sql(order, true));
        assert_eq!(found, format!("SEARCH jobs USING INDEX sqlite_autoindex_jobs_1 (id{after}?)"));
    }
}

#[test]
fn open_jobs_of_a_user_are_counted_past_none_that_has_ended() {
    let (_folder, connection) = database();
    let user = JobScope { company: Some("acme".into()), user: Some("ada".into()) };
    let filter = JobFilter { scope: user, open: true, ..JobFilter::default() };
    let query = JobQuery::from_filter(&filter);
    for sql in [query.count_sql(), query.count_up_to_sql()] {
        let found = plan(&connection, &sql);
        let search = "SEARCH jobs USING COVERING INDEX jobs_open (company=? AND user_id=?)";
        assert!(found.contains(search), "{found}");
        assert_eq!(found.matches("jobs").count(), 2, "{found}: nothing else is read");
    }
}

#[test]
fn a_step_of_a_job_that_stays_open_writes_no_entry_of_the_index_of_open_jobs() {
    let (_folder, connection) = database();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'jobs_open'";
    let root: i64 = connection.query_row(root, (), |row| row.get(0)).expect("an index");
    let writes_index = |sql: &str| {
        let mut program = connection.prepare(&format!("EXPLAIN {sql}")).expect("a statement");
        let mut instructions = program.raw_query();
        let mut is_opened = false;
        while let Some(row) = instructions.next().expect("a program") {
            let (opcode, page): (String, i64) = (row.get(1).expect("text"), row.get(3).expect("a number"));
            is_opened |= opcode == "OpenWrite" && page == root;
        }
        is_opened
    };
    assert!(!writes_index(rows::UPDATE_OPEN) && !writes_index(rows::UPDATE_OPEN_IF_UNCHANGED));
    assert!(writes_index(rows::UPDATE_IF_UNCHANGED));
}
