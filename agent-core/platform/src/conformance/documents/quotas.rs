//! Quotas under concurrent uploads.

use futures_util::future::join_all;

use super::fixture::{UploadFixture, company, upload, user};
use crate::conformance::interleaved::InterleavedRecords;
use crate::records::{Precondition, Records, StoreError};
use crate::workspace::{
    Document, StagedUpload, UploadQuotas, UploadUsage, WorkspaceError, list_document_summaries,
    save_new_document,
};

const QUOTAS: UploadQuotas = UploadQuotas { documents: 2, bytes: 1_000 };

async fn stage(
    fixture: &UploadFixture,
    records: &dyn Records,
    id: &str,
    bytes: usize,
) -> Result<StagedUpload, WorkspaceError> {
    let upload = upload(id, vec![b'x'; bytes]).with_quotas(QUOTAS);
    upload.stage(records, &company(), fixture.now()).await
}

pub(super) async fn concurrent_uploads_stay_within_the_quotas(fixture: &UploadFixture) {
    let records = &InterleavedRecords(fixture.records.clone());
    let ids: Vec<String> = (0..8).map(|number| format!("d{number}")).collect();
    let outcomes = join_all(ids.iter().map(|id| stage(fixture, records, id, 300))).await;
    let mut staged = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(upload) => staged.push(upload),
            Err(WorkspaceError::UploadsExceeded { used: 900, limit: 1_000 }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(staged.len(), 3, "three uploads of 300 bytes fit into a quota of 1,000");

    let user = user();
    let attach = |upload: &StagedUpload| {
        let (upload, user) = (upload.clone(), user.clone());
        async move { upload.attach(records, Precondition::Absent, &user).await }
    };
    let outcomes = join_all(staged.iter().map(attach)).await;
    let mut attached = Vec::new();
    for (outcome, upload) in outcomes.into_iter().zip(&staged) {
        match outcome {
            Ok((document, _)) => attached.push(document.id),
            Err(StoreError::Conflict { .. }) => upload.discard(records).await,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(attached.len(), 2, "the quota permits two documents");
    let usage = UploadUsage::load(records, &company()).await.expect("read");
    assert_eq!(usage.bytes, 600);

    // The original that is replaced does not count, also while its successor is being stored.
    let larger = stage(fixture, records, &attached[0], 700).await.expect("staged");
    let refused = stage(fixture, records, &attached[0], 1).await.expect_err("no room");
    assert!(matches!(refused, WorkspaceError::UploadsExceeded { used: 1_000, .. }), "{refused:?}");
    larger.attach(records, Precondition::Any, &user).await.expect("attached");
    let usage = UploadUsage::load(records, &company()).await.expect("read");
    assert_eq!(usage.bytes, 1_000);
}

pub(super) async fn concurrent_documents_stay_within_the_quota(fixture: &UploadFixture) {
    let records = &InterleavedRecords(fixture.records.clone());
    let documents = (0..8).map(|number| Document {
        id: format!("d{number}"),
        company_id: company(),
        text: "text".to_owned(),
        ..Document::default()
    });
    let documents: Vec<Document> = documents.collect();
    let user = user();
    let saved =
        join_all(documents.iter().map(|document| save_new_document(records, document, 3, &user))).await;
    let refused = saved.iter().filter(|outcome| matches!(outcome, Err(StoreError::Conflict { .. }))).count();
    assert_eq!((saved.iter().flatten().count(), refused), (3, 5), "{saved:?}");
    let listed = list_document_summaries(records, &company(), &Default::default()).await.expect("listed");
    assert_eq!(listed.items.len(), 3);
}
