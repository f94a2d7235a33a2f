//! Conformance suite for uploaded documents: the storage of originals and long texts, and the extraction by several
//! processes that share a store.

mod bench;
mod extraction;
mod leases;
mod quotas;
mod storage;

use std::sync::Arc;

use crate::records::Inventory;

use bench::UploadBench;

/// Runs the suite against stores from `make`, which must return an empty one at every call.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn documents(make: impl AsyncFn() -> Arc<dyn Inventory>) {
    let bench = async || UploadBench::new(make().await);
    storage::an_original_comes_back_as_it_was(&bench().await).await;
    storage::an_upload_replaces_the_one_before(&bench().await).await;
    storage::an_upload_that_is_refused_leaves_nothing(&bench().await).await;
    storage::a_deleted_document_leaves_nothing(&bench().await).await;
    storage::text_that_is_written_replaces_an_upload(&bench().await).await;
    storage::an_upload_can_be_renamed(&bench().await).await;
    storage::interrupted_uploads_are_swept(&bench().await).await;
    storage::uploads_replaced_by_old_processes_are_swept(&bench().await).await;
    storage::companies_are_apart(&bench().await).await;
    quotas::concurrent_uploads_stay_within_the_quotas(&bench().await).await;
    quotas::concurrent_documents_stay_within_the_quota(&bench().await).await;
    extraction::a_text_is_extracted(&bench().await).await;
    extraction::long_texts_are_read_in_ranges(&bench().await).await;
    extraction::a_document_that_cannot_be_read_fails(&bench().await).await;
    extraction::an_unavailable_extractor_is_tried_again(&bench().await).await;
    extraction::a_text_is_extracted_again(&bench().await).await;
    extraction::a_text_of_another_extractor_is_extracted_again(&bench().await).await;
    extraction::a_text_is_a_version_whatever_the_state_of_its_extraction(&bench().await).await;
    extraction::companies_take_turns(&bench().await).await;
    extraction::a_document_is_renamed_during_its_extraction(&bench().await).await;
    extraction::a_deleted_document_gets_no_text(&bench().await).await;
    extraction::a_replaced_upload_gives_no_text(&bench().await).await;
    leases::one_process_extracts_at_a_time(&bench().await).await;
    leases::a_killed_process_is_replaced(&bench().await).await;
    leases::a_suspended_process_changes_nothing(&bench().await).await;
    leases::a_lease_is_extended(&bench().await).await;
    leases::kills_are_bounded(&bench().await).await;
    leases::an_extraction_has_a_limit(&bench().await).await;
}
