//! Extraction by several processes, some of which are killed or suspended.

use agent_core::testing::ManualClock;
use futures_util::future::{Either, select};

use super::fixture::{UploadFixture, begin, expect_no_task, extractor, lease_end, limits, work};
use crate::workspace::ContentStatus;

pub(super) async fn one_process_extracts_at_a_time(fixture: &UploadFixture) {
    fixture.put("d", "BLOCK one").await;
    let extractor = extractor();
    let [first, second] = [fixture.process(&extractor), fixture.process(&extractor)];
    let remaining_steps = begin(&first, &extractor).await;
    expect_no_task(&second).await;
    expect_no_task(&first).await;
    extractor.release();
    assert!(remaining_steps.await.expect("the store works"));
    expect_no_task(&second).await;
    assert_eq!((extractor.calls(), fixture.get("d").await.value.text.as_str()), (1, "BLOCK one"));
}

pub(super) async fn a_killed_process_is_replaced(fixture: &UploadFixture) {
    fixture.put("d", "BLOCK one").await;
    let extractor = extractor();
    let [first, second] = [fixture.process(&extractor), fixture.process(&extractor)];
    drop(begin(&first, &extractor).await);
    expect_no_task(&second).await;
    assert_eq!(fixture.status("d").await, ContentStatus::Extracting);
    fixture.clock.advance(lease_end());
    extractor.release();
    work(&second).await;
    assert_eq!(fixture.status("d").await, ContentStatus::Ready);
    expect_no_task(&second).await;
}

/// The clock of a suspended process stands still, so that it does not know that its lease has expired.
pub(super) async fn a_suspended_process_changes_nothing(fixture: &UploadFixture) {
    let long = ["BLOCK ", &"word ".repeat(100_000)].concat();
    fixture.put("d", long).await;
    let [stuck, quick] = [extractor(), extractor()];
    let first = fixture.process_with(&stuck, &ManualClock::new());
    let second = fixture.process(&quick);
    let remaining_steps = begin(&first, &stuck).await;
    fixture.clock.advance(lease_end());
    quick.release();
    work(&second).await;
    let (before, counts) = (fixture.get("d").await, fixture.counts("acme").await);
    stuck.release();
    assert!(remaining_steps.await.expect("the store works"));
    assert_eq!(fixture.get("d").await, before, "a process that lost its claim changes no document");
    assert_eq!(fixture.counts("acme").await, counts, "a process that lost its claim leaves no records");
    assert_eq!(fixture.status("d").await, ContentStatus::Ready);
}

pub(super) async fn a_lease_is_extended(fixture: &UploadFixture) {
    fixture.put("d", "BLOCK one").await;
    let extractor = extractor();
    let [first, second] = [fixture.process(&extractor), fixture.process(&extractor)];
    let mut remaining_steps = begin(&first, &extractor).await;
    for _ in 0..20 {
        // The extension is complete when the process sleeps again.
        fixture.clock.advance(limits().lease / 3);
        let sleeps = fixture.clock.clone();
        let slept = std::pin::pin!(sleeps.wait_for_sleepers(1));
        remaining_steps = match select(remaining_steps, slept).await {
            Either::Left((ended, _)) => panic!("the extraction has ended: {ended:?}"),
            Either::Right(((), remaining_steps)) => remaining_steps,
        };
        expect_no_task(&second).await;
    }
    extractor.release();
    assert!(remaining_steps.await.expect("the store works"));
    assert_eq!((extractor.calls(), fixture.status("d").await), (1, ContentStatus::Ready));
}

pub(super) async fn kills_are_bounded(fixture: &UploadFixture) {
    fixture.put("d", "BLOCK one").await;
    let extractor = extractor();
    for _ in 0..3 {
        drop(begin(&fixture.process(&extractor), &extractor).await);
        fixture.clock.advance(lease_end());
    }
    expect_no_task(&fixture.process(&extractor)).await;
    let content = fixture.get("d").await.value.content.expect("an upload");
    assert_eq!(content.status, ContentStatus::Failed);
    assert_eq!(content.error.as_deref(), Some("the extraction was interrupted 3 times"));
    assert_eq!(extractor.calls(), 3);
}

pub(super) async fn an_extraction_has_a_limit(fixture: &UploadFixture) {
    fixture.put("d", "HANG").await;
    let extractor = extractor();
    let process = fixture.process(&extractor);
    let mut remaining_steps = begin(&process, &extractor).await;
    for _ in 0..1_000 {
        fixture.clock.advance(limits().lease / 3);
        let sleeps = fixture.clock.clone();
        let slept = std::pin::pin!(sleeps.wait_for_sleepers(1));
        remaining_steps = match select(remaining_steps, slept).await {
            Either::Left((ended, _)) => {
                assert!(ended.expect("the store works"));
                let content = fixture.get("d").await.value.content.expect("an upload");
                let reason = "the document exceeds a limit: the extraction took more than 300 s";
                assert_eq!(content.error.as_deref(), Some(reason));
                return;
            }
            Either::Right(((), remaining_steps)) => remaining_steps,
        };
    }
    panic!("the extraction does not end");
}
