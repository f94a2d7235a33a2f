//! Attempts at claimed tasks: the extraction, during which the lease is extended, and the end of the attempt.

use std::sync::Arc;

use agent_retrieval::extract::ExtractError;
use futures_util::future::{self, Either};

use super::IngestionState;
use super::claim::Claim;
use super::finish::WrittenText;
use crate::records::StoreError;
use crate::workspace::read_original;

impl IngestionState {
    /// Starts work on the tasks that are due, as far as there is room.
    pub(super) async fn start_due(self: &Arc<Self>) -> Result<(), StoreError> {
        while let Some((claim, permit)) = self.claim_next().await? {
            let inner = self.clone();
            self.services.spawner.spawn(Box::pin(async move {
                inner.work(claim).await;
                drop(permit);
                inner.wake();
            }));
        }
        Ok(())
    }

    /// Works on a claimed task to the end of the attempt.
    pub(super) async fn work(&self, mut claim: Claim) {
        let result = match self.extract(&mut claim).await {
            Ok(text) => self.store_text(&claim, text).await,
            Err(AttemptError::Lost) => return,
            Err(AttemptError::Extract(error)) => self.end_attempt(&claim, error).await,
            Err(AttemptError::Store(error)) => {
                tracing::warn!(%error, document = claim.document_id, "failed to read an upload or to store its text");
                self.end_attempt(&claim, ExtractError::Unavailable("the store failed".to_owned())).await
            }
        };
        match result {
            // On a conflict, the task was taken over, or its document was deleted or replaced.
            Ok(()) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => {
                tracing::warn!(%error, document = claim.document_id, "failed to store the end of an extraction; it will be repeated")
            }
        }
    }

    /// Extracts the text of a claimed task, stores its pieces, and extends the lease meanwhile. A long text takes a slow store
    /// longer than the lease.
    async fn extract(&self, claim: &mut Claim) -> Result<WrittenText, AttemptError> {
        let Claim { company_id, document_id, content, .. } = claim.clone();
        let work = async {
            let bytes = read_original(&*self.services.records, &company_id, &document_id, &content).await?;
            let extraction = self.services.extractor.extract(&content.media_type, bytes).await?;
            Ok::<_, AttemptError>(self.write_text(&company_id, (&document_id, &content), extraction).await??)
        };
        let mut work = std::pin::pin!(work);
        let end = self.services.clock.monotonic() + self.limits.timeout;
        let mut valid_until = self.services.clock.monotonic() + self.limits.lease;
        loop {
            let pause = self.services.clock.sleep(self.limits.lease / 3);
            match future::select(work, pause).await {
                Either::Left((extracted, _)) => return extracted,
                Either::Right(((), rest)) => work = rest,
            }
            let now = self.services.clock.monotonic();
            if now >= end {
                let limit = format!("the extraction took more than {} s", self.limits.timeout.as_secs());
                return Err(ExtractError::LimitExceeded(limit).into());
            }
            match self.extend(claim).await {
                Ok(()) => valid_until = now + self.limits.lease,
                Err(StoreError::Conflict { .. }) => return Err(AttemptError::Lost),
                Err(error) if now >= valid_until => return Err(error.into()),
                Err(error) => tracing::warn!(%error, "the lease of an extraction could not be extended"),
            }
        }
    }
}

/// Error of an attempt to extract a text.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    /// Another process has claimed the task, or the document was replaced.
    #[error("the task was lost")]
    Lost,
    /// The extraction failed.
    #[error(transparent)]
    Extract(#[from] ExtractError),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for AttemptError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict { .. } => Self::Lost,
            error => Self::Store(error),
        }
    }
}
