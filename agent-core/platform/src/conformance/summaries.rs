//! Conformance suite for stores of [`Summaries`].

use std::sync::Arc;

use agent_core::clock::{Clock, SystemClock};
use agent_core::testing::ManualClock;
use futures_util::future::join_all;
use jiff::Timestamp;

use crate::compaction::{MAX_USER_SUMMARIES, SUMMARY_RETENTION, Summaries, Summary, SummaryOwner};
use crate::conversation::{Conversations, CreateThreadRequest, NewThread, ThreadKey};
use crate::records::Inventory;

/// Handles of the store under test: its records and its conversations.
pub type SummaryStores = (Arc<dyn Inventory>, Arc<dyn Conversations>);

/// Number of writers of one summary.
const WRITERS: usize = 16;

/// Runs the conformance suite of [`Summaries`] over stores from `make`, which must return an empty one at each call.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn summaries(make: impl AsyncFn() -> SummaryStores) {
    one_of_many_writers_wins(&make().await).await;
    a_summary_is_visible_to_its_owner_only(&make().await).await;
    summaries_end_with_their_threads(&make().await).await;
    summaries_without_a_thread_end_after_their_last_use(&make().await).await;
    the_summaries_of_a_user_are_bounded(&make().await).await;
}

fn opened((records, conversations): &SummaryStores) -> Summaries {
    opened_with((records, conversations), Arc::new(SystemClock))
}

fn opened_with(
    (records, conversations): (&Arc<dyn Inventory>, &Arc<dyn Conversations>),
    clock: Arc<dyn Clock>,
) -> Summaries {
    Summaries::new(records.clone(), Some(conversations.clone()), clock)
}

fn owner(company: &str, user: &str, thread: Option<&str>) -> SummaryOwner {
    SummaryOwner { company_id: company.into(), user_id: user.into(), thread_id: thread.map(Into::into) }
}

fn summary(text: &str, owner: &SummaryOwner) -> Summary {
    Summary { text: text.to_owned(), agent_id: "a".into(), thread_id: owner.thread_id.clone() }
}

async fn create_thread((_, conversations): &SummaryStores, company: &str, user: &str, thread: &str) {
    let create = CreateThreadRequest {
        key: ThreadKey::new(company, user, thread),
        agent_id: "a".into(),
        new: NewThread::default(),
        retention: None,
        nodes: Vec::new(),
        now: Timestamp::UNIX_EPOCH,
    };
    conversations.create(create).await.expect("a thread");
}

async fn one_of_many_writers_wins(stores: &SummaryStores) {
    let owner = owner("c", "ada", None);
    let writers = (0..WRITERS).map(|writer| {
        let (summaries, owner) = (opened(stores), owner.clone());
        let text = format!("text {writer}");
        async move { summaries.add(&owner, "1f", summary(&text, &owner)).await.expect("stored") }
    });
    let texts = join_all(writers).await;
    let stored = opened(stores).get(&owner, "1f").await.expect("read");
    assert!(stored.is_some(), "the summary is stored");
    assert!(texts.iter().all(|text| *text == stored), "all writers have the stored text: {texts:?}");
}

async fn a_summary_is_visible_to_its_owner_only(stores: &SummaryStores) {
    let summaries = opened(stores);
    let ada = owner("c", "ada", None);
    summaries.add(&ada, "1f", summary("of ada", &ada)).await.expect("stored");
    for (other, sha256) in
        [(owner("c", "bob", None), "1f"), (owner("d", "ada", None), "1f"), (owner("c", "ada", None), "2f")]
    {
        assert_eq!(summaries.get(&other, sha256).await.expect("read"), None, "{other:?} {sha256}");
    }
}

async fn summaries_end_with_their_threads(stores: &SummaryStores) {
    let (inventory, conversations) = stores;
    let summaries = opened(stores);
    for thread in ["t1", "t2"] {
        create_thread(stores, "c", "ada", thread).await;
        let owner = owner("c", "ada", Some(thread));
        let stored = summaries.add(&owner, thread, summary(thread, &owner)).await.expect("stored");
        assert!(stored.is_some(), "{thread} exists");
    }
    conversations.delete(&ThreadKey::new("c", "ada", "t1")).await.expect("deleted");
    let gone = owner("c", "ada", Some("t1"));
    let late = summaries.add(&gone, "late", summary("late", &gone)).await.expect("checked");
    assert_eq!(late, None, "no summary is stored for a deleted thread");
    assert_eq!(summaries.get(&gone, "late").await.expect("read"), None, "a refused summary leaves no record");
    assert_eq!(
        summaries.sweep(&**inventory).await.expect("swept"),
        1,
        "the summary of the deleted thread is swept"
    );
    assert_eq!(summaries.get(&gone, "t1").await.expect("read"), None);
    assert!(summaries.get(&gone, "t2").await.expect("read").is_some(), "the other thread exists");
    let deleted = summaries.delete_obsolete(&"c".into(), &"ada".into()).await.expect("looked");
    assert_eq!(deleted, 0);
    for (thread, expected) in [("t1", 0), ("t2", 1), ("t2", 0)] {
        let key = ThreadKey::new("c", "ada", thread);
        assert_eq!(summaries.delete_of_thread(&key).await.expect("deleted"), expected, "{thread}");
    }
}

async fn summaries_without_a_thread_end_after_their_last_use(stores: &SummaryStores) {
    let (inventory, conversations) = stores;
    // The store has the time of its own clock.
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let summaries = opened_with((inventory, conversations), clock.clone());
    let ada = owner("c", "ada", None);
    summaries.add(&ada, "1f", summary("text", &ada)).await.expect("stored");
    clock.advance(SUMMARY_RETENTION / 2);
    assert_eq!(
        summaries.sweep(&**inventory).await.expect("swept"),
        0,
        "a summary that was used lately is kept"
    );
    clock.advance(SUMMARY_RETENTION);
    assert_eq!(
        summaries.sweep(&**inventory).await.expect("swept"),
        1,
        "a summary is swept after its retention"
    );
}

async fn the_summaries_of_a_user_are_bounded(stores: &SummaryStores) {
    let summaries = opened(stores);
    let ada = owner("c", "ada", None);
    for number in 0..=MAX_USER_SUMMARIES {
        let sha256 = format!("{number:04}");
        summaries.add(&ada, &sha256, summary("text", &ada)).await.expect("stored");
    }
    assert_eq!(
        summaries.get(&ada, "0000").await.expect("read"),
        None,
        "the oldest summary is deleted beyond the limit"
    );
    for kept in ["0001".to_owned(), format!("{MAX_USER_SUMMARIES:04}")] {
        assert!(summaries.get(&ada, &kept).await.expect("read").is_some(), "{kept}");
    }
}
