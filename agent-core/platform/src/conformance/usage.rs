//! Conformance suite for [`UsageStore`].

use std::sync::Arc;

use agent_core::store_error::StoreError;
use agent_core::tool::Caller;
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};

use crate::usage::{
    MAX_PAGE_ROWS, MAX_RUN_ENTRIES, MemoryUsage, NanoUsd, RunEntries, RunOwner, RunScope, TokenCounts,
    UsageCursor, UsageDimension, UsageEntry, UsageFilter, UsageOperation, UsagePage, UsageQuery, UsageRow,
    UsageStore, UsageSums, sums_of,
};

/// Runs the conformance suite of [`UsageStore`] against stores from `make`, which must return an empty one at every call.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn usage(make: impl AsyncFn() -> Arc<dyn UsageStore>) {
    an_entry_is_booked_once(&*make().await).await;
    companies_are_isolated(&*make().await).await;
    runs_are_counted_once(&*make().await).await;
    runs_of_owners_are_isolated(&*make().await).await;
    sums_match_the_reference(&*make().await).await;
    sums_saturate_at_the_maximum(&*make().await).await;
    pages_cover_the_list(&*make().await).await;
    old_entries_are_deleted_and_daily_sums_stay(&*make().await).await;
    concurrent_batches_are_booked_exactly(make().await).await;
    batches_of_several_companies_are_booked_exactly(make().await).await;
}

fn done<T>(result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| panic!("an operation failed: {error:?}"))
}

/// Returns a fixed point in time plus `hours`.
fn at(hours: i64) -> Timestamp {
    let start: Timestamp = "2026-03-28T12:00:00Z".parse().expect("a time");
    start + SignedDuration::from_hours(hours)
}

fn entry(id: &str, run: &str) -> UsageEntry {
    UsageEntry {
        id: id.to_owned(),
        scope: RunScope {
            company_id: "acme".into(),
            run_id: run.into(),
            agent_id: "guide".into(),
            user_id: "ada \"ü\"".into(),
            caller: Caller::Session,
            token_id: None,
            visitor: None,
        },
        round: 1,
        attempt: 1,
        operation: UsageOperation::Chat,
        provider: "openai".to_owned(),
        model: "gpt'5".to_owned(),
        tokens: TokenCounts {
            input_tokens: 10,
            cached_input_tokens: 4,
            cache_write_tokens: 3,
            output_tokens: 2,
            reasoning_tokens: 1,
        },
        tool_calls: 0,
        cost: Some(NanoUsd::new(12_345)),
        price_as_of: Some("2026-01-01".to_owned()),
        estimated: false,
        outcome: "ok".to_owned(),
        ended_at: at(0),
    }
}

/// Returns entry number `n` of a set with different values.
fn sample_entry(n: usize) -> UsageEntry {
    let plain = entry(&format!("id {n}"), &format!("run {}", n / 3));
    let is_tools = n.is_multiple_of(7);
    let callers = [Caller::Session, Caller::Legacy, Caller::Widget, Caller::Proactive];
    UsageEntry {
        scope: RunScope {
            agent_id: ["guide", "Ägent", "a,b"][n % 3].into(),
            user_id: ["ada", "widget:t1", "bob\u{7f}"][n / 2 % 3].into(),
            caller: callers[n / 5 % 4],
            visitor: [None, Some("00"), Some("ff")][n / 4 % 3].map(str::to_owned),
            ..plain.scope
        },
        operation: if is_tools { UsageOperation::Tools } else { UsageOperation::Chat },
        provider: if is_tools { String::new() } else { ["openai", "ollama"][n % 2].to_owned() },
        model: if is_tools { String::new() } else { format!("m{}", n / 4 % 3) },
        tokens: TokenCounts { input_tokens: n as u64, output_tokens: 1 << (n % 40), ..plain.tokens },
        tool_calls: if is_tools { n as u64 } else { 0 },
        cost: (!n.is_multiple_of(11)).then(|| NanoUsd::new(1 << (n % 50))),
        estimated: n.is_multiple_of(4),
        ended_at: at(n as i64 % 100),
        ..plain
    }
}

fn all_days() -> UsageFilter {
    let day = |text: &str| text.parse().expect("a date");
    UsageFilter { from: day("2026-01-01"), to: day("2026-12-31"), agent: None, user: None }
}

fn query(group_by: &[UsageDimension]) -> UsageQuery {
    UsageQuery { filter: all_days(), group_by: group_by.to_vec(), after: None, limit: MAX_PAGE_ROWS }
}

async fn rows(store: &dyn UsageStore, company: &str, query: &UsageQuery) -> Vec<UsageRow> {
    let UsagePage { rows, next_cursor } = done(store.usage(&company.into(), query).await);
    assert_eq!(next_cursor, None, "all rows are on one page");
    rows
}

async fn total(store: &dyn UsageStore, company: &str) -> UsageSums {
    rows(store, company, &query(&[])).await.pop().map(|row| row.sums).unwrap_or_default()
}

async fn an_entry_is_booked_once(store: &dyn UsageStore) {
    assert_eq!(rows(store, "acme", &query(&[])).await, [], "an empty ledger has no rows");
    assert_eq!(done(store.book(Vec::new()).await), 0);
    let one = entry("1", "run");
    assert_eq!(done(store.book(vec![one.clone()]).await), 1);
    let changed = UsageEntry { cost: Some(NanoUsd::new(7)), ..one.clone() };
    let two = UsageEntry { id: "2".into(), estimated: true, ended_at: at(1), ..one.clone() };
    assert_eq!(
        done(store.book(vec![changed, two.clone(), two.clone()]).await),
        1,
        "only the entry with a new id is booked"
    );
    let entries = done(store.run_usage(&"acme".into(), &"run".into()).await);
    assert_eq!(entries, [one, two.clone()], "an entry is read as it was written");
    let ids = ["2", "\"2", "3"].map(str::to_owned);
    assert_eq!(done(store.usage_entries(&"acme".into(), &ids).await), [two]);
    assert_eq!(done(store.usage_entries(&"acme".into(), &[]).await), []);
    let sums = total(store, "acme").await;
    assert_eq!(sums, sums_of(&entries));
    assert_eq!((sums.runs, sums.calls, sums.tokens.cache_write_tokens), (1, 2, 6));
    assert_eq!((sums.cost, sums.estimated_cost), (NanoUsd::new(24_690), NanoUsd::new(12_345)));
}

async fn companies_are_isolated(store: &dyn UsageStore) {
    let mine = entry("1", "run");
    let theirs = UsageEntry {
        scope: RunScope { company_id: "other".into(), ..mine.scope.clone() },
        cost: None,
        ..mine.clone()
    };
    assert_eq!(
        done(store.book(vec![mine.clone(), theirs.clone()]).await),
        2,
        "companies can use the same entry id"
    );
    assert_eq!(done(store.run_usage(&"acme".into(), &"run".into()).await), [mine]);
    assert_eq!(done(store.run_usage(&"other".into(), &"run".into()).await), [theirs]);
    assert_eq!(done(store.run_usage(&"third".into(), &"run".into()).await), []);
    assert_eq!(done(store.run_usage(&"acme".into(), &"ru".into()).await), []);
    let ids = ["1", "1.1", "\0", "'"].map(str::to_owned);
    assert_eq!(done(store.usage_entries(&"third".into(), &ids).await), []);
    assert_eq!(
        (total(store, "acme").await.unpriced_calls, total(store, "other").await.unpriced_calls),
        (0, 1)
    );
    assert_eq!(rows(store, "third", &query(&[UsageDimension::Day])).await, []);
}

/// The entries of an owner's run are read, however many entries another owner has booked under the same run id.
async fn runs_of_owners_are_isolated(store: &dyn UsageStore) {
    let of = |id: String, user: &str, visitor: Option<&str>, agent: &str| {
        let plain = entry(&id, "run");
        let visitor = visitor.map(str::to_owned);
        let scope = RunScope { user_id: user.into(), visitor, agent_id: agent.into(), ..plain.scope };
        UsageEntry { scope, ..plain }
    };
    let many = (0..=MAX_RUN_ENTRIES).map(|n| of(format!("many {n}"), "loud", None, "guide"));
    let others = [
        of("1".to_owned(), "quiet", None, "guide"),
        of("2".to_owned(), "widget:t", Some("first"), "guide"),
        of("3".to_owned(), "widget:t", Some("second"), "guide"),
        of("4".to_owned(), "quiet", None, "other"),
    ];
    done(store.book(many.chain(others.clone()).collect()).await);
    let owner = |user: &str, visitor: Option<&str>, agent: Option<&str>| RunOwner {
        user_id: user.into(),
        visitor: visitor.map(str::to_owned),
        agent_id: agent.map(Into::into),
    };
    let read =
        async |owner: Option<&RunOwner>| done(store.run_entries(&"acme".into(), &"run".into(), owner).await);
    for owner in [None, Some(owner("loud", None, None))] {
        let RunEntries { entries, truncated } = read(owner.as_ref()).await;
        assert_eq!((entries.len(), truncated), (MAX_RUN_ENTRIES, true), "{owner:?}");
        assert_eq!(entries[0].id, "many 0", "the earliest entries are returned");
    }
    for (owner, expected) in [
        (owner("quiet", None, None), vec!["1", "4"]),
        (owner("quiet", None, Some("other")), vec!["4"]),
        (owner("widget:t", Some("first"), None), vec!["2"]),
        (owner("widget:t", None, None), vec![]),
        (owner("nobody", None, None), vec![]),
    ] {
        let RunEntries { entries, truncated } = read(Some(&owner)).await;
        let ids: Vec<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!((ids, truncated), (expected, false), "{owner:?}");
    }
    let scopes = done(store.run_scopes(&"acme".into(), &"run".into()).await);
    let expected = [of("many 0".to_owned(), "loud", None, "guide")].into_iter().chain(others);
    assert_eq!(
        scopes,
        expected.map(|entry| entry.scope).collect::<Vec<_>>(),
        "one scope is returned for each owner and agent"
    );
    assert_eq!(done(store.run_scopes(&"other".into(), &"run".into()).await), []);
}

async fn runs_are_counted_once(store: &dyn UsageStore) {
    let first = entry("1", "a");
    let later = UsageEntry { id: "2".into(), model: "other".into(), ended_at: at(24), ..first.clone() };
    done(store.book(vec![first, later, entry("3", "b")]).await);
    done(store.book(vec![entry("4", "b"), entry("5", "")]).await);
    assert_eq!(total(store, "acme").await.runs, 2, "calls outside of a run count for no run");
    let by_model = rows(store, "acme", &query(&[UsageDimension::Model])).await;
    let runs: Vec<_> = by_model.iter().map(|row| (row.group[0].as_str(), row.sums.runs)).collect();
    assert_eq!(runs, [("gpt'5", 2), ("other", 0)], "a run counts in the group of its first entry");
    let of_another = |id: &str| {
        let plain = entry(id, "a");
        UsageEntry { scope: RunScope { user_id: "zoë".into(), ..plain.scope }, ..plain }
    };
    done(store.book(vec![of_another("6"), of_another("7")]).await);
    done(store.book(vec![of_another("8"), entry("9", "a")]).await);
    assert_eq!(total(store, "acme").await.runs, 3, "another user's run with the same id");
    let of_visitor = |id: &str, visitor: &str| {
        let plain = entry(id, "a");
        let visitor = (!visitor.is_empty()).then(|| visitor.to_owned());
        UsageEntry { scope: RunScope { user_id: "widget:t".into(), visitor, ..plain.scope }, ..plain }
    };
    done(store.book(vec![of_visitor("10", "00"), of_visitor("11", "ff"), of_visitor("12", "00")]).await);
    done(store.book(vec![of_visitor("13", "ff"), of_visitor("14", ""), of_visitor("15", "")]).await);
    assert_eq!(total(store, "acme").await.runs, 6, "runs of a token's visitors with the same id");
}

async fn sums_match_the_reference(store: &dyn UsageStore) {
    let reference = MemoryUsage::default();
    for numbers in [0..40, 30..90, 90..200] {
        let batch: Vec<UsageEntry> = numbers.map(sample_entry).collect();
        assert_eq!(done(store.book(batch.clone()).await), done(reference.book(batch).await));
    }
    let mut filters = vec![all_days()];
    let day = |text: &str| text.parse().expect("a date");
    filters.push(UsageFilter { from: day("2026-03-29"), to: day("2026-03-30"), ..all_days() });
    filters.push(UsageFilter { from: day("2026-03-30"), to: day("2026-03-29"), ..all_days() });
    filters.push(UsageFilter { agent: Some("a,b".into()), ..all_days() });
    filters.push(UsageFilter { user: Some("ada".into()), agent: Some("guide".into()), ..all_days() });
    filters.push(UsageFilter { user: Some("nobody".into()), ..all_days() });
    filters.push(UsageFilter { user: Some("a\0b".into()), ..all_days() });
    for filter in filters {
        for selection in 0..1u32 << UsageDimension::ALL.len() {
            let chosen = |(bit, dimension): (usize, _)| (selection >> bit & 1 == 1).then_some(dimension);
            let mut group_by: Vec<UsageDimension> =
                UsageDimension::ALL.into_iter().enumerate().filter_map(chosen).collect();
            if selection.is_multiple_of(2) {
                group_by.reverse();
            }
            let query = UsageQuery { filter: filter.clone(), ..query(&group_by) };
            let (found, expected) =
                (rows(store, "acme", &query).await, rows(&reference, "acme", &query).await);
            assert_eq!(found, expected, "{query:?}");
        }
    }
}

async fn sums_saturate_at_the_maximum(store: &dyn UsageStore) {
    let greatest = NanoUsd::new(i64::MAX);
    let costly = |id, hours| UsageEntry { cost: Some(greatest), ended_at: at(hours), ..entry(id, id) };
    done(store.book(vec![costly("1", 0), costly("2", 0)]).await);
    done(store.book(vec![costly("3", 0), costly("4", 48), entry("5", "5")]).await);
    for group_by in [&[][..], &[UsageDimension::Day]] {
        let sums: Vec<UsageSums> =
            rows(store, "acme", &query(group_by)).await.into_iter().map(|row| row.sums).collect();
        assert!(sums.iter().all(|sums| sums.cost == greatest), "{sums:?}");
        assert_eq!(sums.iter().map(|sums| sums.calls).sum::<u64>(), 5);
    }
}

async fn pages_cover_the_list(store: &dyn UsageStore) {
    done(store.book((0..60).map(sample_entry).collect()).await);
    let all = query(&[UsageDimension::Agent, UsageDimension::Day, UsageDimension::Model]);
    let expected = rows(store, "acme", &all).await;
    for limit in [1, 7, expected.len()] {
        let (mut listed_rows, mut after) = (Vec::new(), None);
        loop {
            let page = done(store.usage(&"acme".into(), &UsageQuery { after, limit, ..all.clone() }).await);
            assert!(page.rows.len() <= limit);
            listed_rows.extend(page.rows);
            let Some(cursor) = page.next_cursor else { break };
            after = Some(UsageCursor::parse(&cursor, all.group_by.len()).expect("a cursor"));
        }
        assert_eq!(listed_rows, expected, "pages of {limit} together are all rows");
    }
}

async fn old_entries_are_deleted_and_daily_sums_stay(store: &dyn UsageStore) {
    done(store.book((0..50).map(sample_entry).collect()).await);
    let before = total(store, "acme").await;
    assert_eq!(done(store.trim_usage(at(0)).await), 0);
    assert_eq!(done(store.trim_usage(at(20)).await), 20);
    assert_eq!(done(store.trim_usage(at(20)).await), 0);
    assert_eq!(total(store, "acme").await, before);
    assert_eq!(done(store.run_usage(&"acme".into(), &"run 2".into()).await), []);
    assert_eq!(done(store.run_usage(&"acme".into(), &"run 7".into()).await).len(), 3);
}

/// Batches with the same days in different orders, as from several processes: no batch is lost, and no batch waits
/// for another one indefinitely.
async fn concurrent_batches_are_booked_exactly(store: Arc<dyn UsageStore>) {
    let batches = (0..24).map(|batch| {
        let store = store.clone();
        let mut entries: Vec<UsageEntry> = (batch * 5..batch * 5 + 10).map(sample_entry).collect();
        if batch % 2 == 1 {
            entries.reverse();
        }
        async move { done(store.book(entries).await) }
    });
    let booked: usize = join_all(batches).await.into_iter().sum();
    assert_eq!(booked, 23 * 5 + 10, "each entry is booked once");
    let reference = MemoryUsage::default();
    done(reference.book((0..booked).map(sample_entry).collect()).await);
    let expected = total(&reference, "acme").await;
    assert_eq!(total(&*store, "acme").await, expected);
    let by_day = query(&[UsageDimension::Day, UsageDimension::User, UsageDimension::Model]);
    let mut sums = UsageSums::default();
    rows(&*store, "acme", &by_day).await.iter().for_each(|row| sums.add(&row.sums));
    assert_eq!(sums, expected, "the daily sums add up to the total");
}

/// Batches of two companies, whose ledgers other writers may have locked: the entries that are left out are
/// booked later.
async fn batches_of_several_companies_are_booked_exactly(store: Arc<dyn UsageStore>) {
    const COMPANIES: [&str; 2] = ["acme", "other"];
    let of_company = |n: usize| {
        let plain = sample_entry(n);
        let scope = RunScope { company_id: COMPANIES[n % 2].into(), ..plain.scope };
        UsageEntry { scope, ..plain }
    };
    assert!(done(store.book_unlocked(Vec::new()).await).is_empty());
    let batches = (0..12).map(|batch| {
        let store = store.clone();
        let mut entries: Vec<UsageEntry> = (batch * 5..batch * 5 + 10).map(of_company).collect();
        async move {
            while !entries.is_empty() {
                let locked = done(store.book_unlocked(entries.clone()).await);
                entries.retain(|entry| locked.contains(&entry.scope.company_id));
            }
        }
    });
    join_all(batches).await;
    let reference = MemoryUsage::default();
    done(reference.book((0..11 * 5 + 10).map(of_company).collect()).await);
    for company in COMPANIES {
        assert_eq!(total(&*store, company).await, total(&reference, company).await, "{company}");
    }
}
