//! Conformance suite for uploaded documents: the storage of originals and long texts, and the extraction by several
//! processes that share a store.

mod extraction;
mod fixture;
mod leases;
mod quotas;
mod storage;

use std::sync::Arc;

use crate::records::Inventory;

use fixture::UploadFixture;

/// Runs the suite against stores from `make`, which must return an empty one at every call.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn documents(make: impl AsyncFn() -> Arc<dyn Inventory>) {
    let fixture = async || UploadFixture::new(make().await);
    storage::an_original_comes_back_as_it_was(&fixture().await).await;
    storage::an_upload_replaces_the_one_before(&fixture().await).await;
    storage::an_upload_that_is_refused_leaves_nothing(&fixture().await).await;
    storage::a_deleted_document_leaves_nothing(&fixture().await).await;
    storage::text_that_is_written_replaces_an_upload(&fixture().await).await;
    storage::an_upload_can_be_renamed(&fixture().await).await;
    storage::interrupted_uploads_are_swept(&fixture().await).await;
    storage::uploads_replaced_by_old_processes_are_swept(&fixture().await).await;
    storage::companies_are_isolated(&fixture().await).await;
    quotas::concurrent_uploads_stay_within_the_quotas(&fixture().await).await;
    quotas::concurrent_documents_stay_within_the_quota(&fixture().await).await;
    extraction::a_text_is_extracted(&fixture().await).await;
    extraction::long_texts_are_read_in_ranges(&fixture().await).await;
    extraction::a_document_that_cannot_be_read_fails(&fixture().await).await;
    extraction::an_unavailable_extractor_is_tried_again(&fixture().await).await;
    extraction::a_text_is_extracted_again(&fixture().await).await;
    extraction::a_text_of_another_extractor_is_extracted_again(&fixture().await).await;
    extraction::a_text_is_a_version_whatever_the_state_of_its_extraction(&fixture().await).await;
    extraction::companies_take_turns(&fixture().await).await;
    extraction::a_document_is_renamed_during_its_extraction(&fixture().await).await;
    extraction::a_deleted_document_gets_no_text(&fixture().await).await;
    extraction::a_replaced_upload_gives_no_text(&fixture().await).await;
    leases::one_process_extracts_at_a_time(&fixture().await).await;
    leases::a_killed_process_is_replaced(&fixture().await).await;
    leases::a_suspended_process_changes_nothing(&fixture().await).await;
    leases::a_lease_is_extended(&fixture().await).await;
    leases::kills_are_bounded(&fixture().await).await;
    leases::an_extraction_has_a_limit(&fixture().await).await;
}
