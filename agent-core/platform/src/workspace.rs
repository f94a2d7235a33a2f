//! The workspace: people, documents, memory and todo lists as typed functions over
//! [`Records`](crate::records::Records), written once for every store.
//!
//! Each item is a record in the collection of its kind. The record's value is the item as JSON, including its id and company. The
//! company comes from the caller's credential; what belongs to another company is reported as absent. What belongs to one person (todo lists) is
//! asked for with the whole [`ExecutionContext`], and another person's is absent as well.
//!
//! [`ExecutionContext`]: agent_core::tool::ExecutionContext

use crate::records::{Record, StoreError};

mod assignments;
mod companies;
mod contents;
mod decided_approvals;
mod document;
mod document_archive;
mod document_change;
mod document_indexes;
mod document_versions;
mod documents;
mod embedding_leases;
mod epics;
mod file;
mod index_status;
mod memories;
mod metrics;
mod notifications;
mod plans;
mod record_counters;
mod record_deletion;
mod text;
mod time;
mod todos;
mod uploads;
mod user_deletion;
mod user_files;
mod user_jobs;
mod users;
mod view;

pub use assignments::{Assignment, AssignmentSchedule, assignment_key, is_assignment_job, list_assignments};
pub use companies::{CompanyMatch, find_agent_company};
pub(crate) use contents::{
    INGESTION_COLLECTION, IngestionTask, PendingPieces, TaskLease, discard_pieces, page_starts_write,
    stored_head_write, text_release_writes, unchanged_write, write_text_pieces,
};
pub use contents::{
    MAX_TEXT_BYTES, PENDING_COLLECTION, STORED_COLLECTION, SUMMED_COLLECTIONS, TextRange,
    USER_FILE_COLLECTION, UploadUsage, read_document_text, read_original, read_original_piece,
    read_page_starts, sweep_pending_pieces, sweep_stored_contents,
};
pub use decided_approvals::{
    MAX_DECIDED_APPROVALS, delete_decided_approvals, list_approvers, list_decided_approvals,
    record_decided_approval,
};
pub use document::{ContentFormat, ContentStatus, Document, DocumentContent, MAX_DOCUMENT_BYTES};
pub use document_archive::{DocumentVersion, MAX_DOCUMENT_VERSIONS};
pub use document_indexes::document_index_status;
pub(crate) use document_indexes::{
    DecodedDocIndex, EncodedDocIndex, IndexReplacement, IndexedDocument, StoredDocIndex, StoredSlices,
    append_vector_slice, drop_index_vectors, index_key, keep_document_index, load_document_indexes,
    record_embedding_failure, replace_document_index, vector_drops_key,
};
pub use document_versions::{
    DocumentVersionSummary, delete_document, get_document_version, list_document_versions, restore_document,
    save_document, save_new_document,
};
#[cfg(test)]
pub(crate) use documents::MAX_DOCUMENTS_PER_COMPANY;
pub use documents::{
    DocumentEditor, DocumentSummary, append_document, create_document, get_document, get_documents,
    list_document_summaries,
};
pub(crate) use documents::{get_document_summaries, require_document};
pub(crate) use embedding_leases::{claim_embedding, release_embedding};
pub use epics::{EpicSummary, get_epic, list_epic_summaries};
pub use file::{
    ExportError, FileFault, FreeFormItem, ImportSummary, MAX_FILE_BYTES, ReferenceError, WorkspaceFile,
    WorkspaceFileError,
};
pub use index_status::{EmbeddingFailure, EmbeddingFailureReason, IndexStatus};
pub use memories::{
    MAX_MEMORIES_PER_FOLDER, MAX_MEMORY_TEXT_BYTES, Memory, MemoryFolder, MemorySelection, create_memory,
    delete_memories, delete_memory, list_memories, page_memories, search_memories,
};
#[cfg(test)]
pub(crate) use metrics::MAX_METRICS_PER_AGENT;
pub(crate) use metrics::{MAX_METRIC_NAME_BYTES, MAX_METRIC_UNIT_BYTES};
pub use metrics::{Metric, MetricFilter, NewMetric, list_metrics, record_metric};
#[cfg(test)]
pub(crate) use notifications::MAX_NOTIFICATIONS_PER_USER;
pub(crate) use notifications::mark_read;
pub use notifications::{
    MAX_NOTIFICATION_BYTES, Notification, delete_notifications, list_notifications, list_notified_users,
    list_thread_notifications, prepare_notification, send_notification,
};
pub(crate) use plans::MAX_PLAN_BYTES;
pub use plans::{Plan, get_plan, update_plan};
pub use text::MAX_TITLE_BYTES;
pub use time::utc_time;
pub(crate) use time::{local_time, parse_time};
#[cfg(test)]
pub(crate) use todos::MAX_TODOS;
pub use todos::{
    Todo, TodoChange, TodoList, create_todo, delete_todo, get_todo_list, get_todo_list_record, update_todo,
};
pub use uploads::{NewUpload, StagedUpload, UploadQuotas, reindex_document, rename_upload};
pub use user_deletion::{UserDeletion, delete_user};
pub use user_files::{
    ExpiredFiles, MAX_FILE_NAME_BYTES, MAX_USER_FILES, NewUserFile, UserFile, add_file_thread,
    delete_expired_file, delete_user_file, get_user_files, list_expired_files, list_user_files,
};
pub use user_jobs::{DELETED_USER_COLLECTION, cancel_user_jobs, is_deleted_user};
pub use users::{CompanyRole, User, get_company_role, get_user};
pub use view::ListPage;
pub(crate) use view::list_projected;

/// Collection names. Each agent, folder and user has its own memory collection below `memories`.
pub mod collection {
    /// [`User`](super::User)s.
    pub const USERS: &str = "users";
    /// [`Document`](super::Document)s.
    pub const DOCUMENTS: &str = "documents";
    /// [`DocumentVersion`](super::DocumentVersion)s, in one collection per document below this one.
    pub(crate) const DOCUMENT_VERSIONS: &str = "documentVersions";
    /// Indexes of documents, derived from their texts.
    pub(crate) const DOCUMENT_INDEXES: &str = "documentIndexes";
    /// Leases on the embedding of the documents.
    pub(crate) const EMBEDDING_LEASES: &str = "embeddingLeases";
    /// Record of a company that is written whenever vectors of its documents are dropped.
    pub(crate) const VECTOR_DROPS: &str = "vectorDrops";
    /// [`Memory`](super::Memory) entries.
    pub const MEMORIES: &str = "memories";
    /// [`TodoList`](super::TodoList)s with their todos.
    pub const TODO_LISTS: &str = "todoLists";
    /// Plans, stored as given.
    pub const PLANS: &str = "plans";
    /// Epics, stored as given.
    pub const EPICS: &str = "epics";
    /// Metrics, stored as given.
    pub const METRICS: &str = "metrics";
    /// [`Assignment`](super::Assignment)s.
    pub const ASSIGNMENTS: &str = "assignments";
    /// [`Notification`](super::Notification)s, in one collection per user below this one.
    pub const NOTIFICATIONS: &str = "notifications";
    /// Ids of approvals that a user has decided in the runs of others, in one collection per user below this one.
    pub(crate) const DECIDED_APPROVALS: &str = "decidedApprovals";
    /// Summaries of conversations, in one collection per user below this one.
    pub(crate) const SUMMARIES: &str = "summaries";
    /// Counts of the records that agents have added to a collection.
    pub(crate) const COUNTERS: &str = "tallies";
}

/// Error of a workspace operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// The conversation has no todo list.
    #[error("no todo list is connected to this conversation")]
    NoTodoList,
    /// The item does not exist or belongs to another tenant; the two are not distinguished.
    #[error("there is no {what} {id:?}")]
    NotFound {
        /// Kind of the item.
        what: &'static str,
        /// Requested identifier.
        id: String,
    },
    /// The user may read the item, but not change it.
    #[error("only the owner of the {what} {id:?} or an admin of the company may change it")]
    Forbidden {
        /// Kind of the item.
        what: &'static str,
        /// Identifier of the item.
        id: String,
    },
    /// The text of the document is extracted from an upload.
    #[error(
        "the text of the document {id:?} is extracted from an uploaded original and cannot be appended to: create another document"
    )]
    Uploaded {
        /// Identifier of the document.
        id: String,
    },
    /// A value is invalid.
    #[error("{field}: {fault}")]
    Invalid {
        /// Name of the field on the wire.
        field: &'static str,
        /// Description of the fault.
        fault: String,
    },
    /// The item is not at the version that the caller has read.
    #[error("the {what} {id:?} has changed since it was read and is now at version {version}: read it again")]
    Changed {
        /// Kind of the item.
        what: &'static str,
        /// Identifier of the item.
        id: String,
        /// Current version.
        version: u64,
    },
    /// The collection has reached its limit.
    #[error("the {what} is full: it has {limit} entries")]
    Full {
        /// Kind of the item.
        what: &'static str,
        /// Maximum number of entries.
        limit: usize,
    },
    /// The company's uploads have reached their total size.
    #[error("the company's other uploads have {used} bytes, and at most {limit} can be stored")]
    UploadsExceeded {
        /// Size of the other uploads, in bytes.
        used: u64,
        /// Maximum total size, in bytes.
        limit: u64,
    },
    /// The store failed.
    #[error("the workspace could not be read or written")]
    Store(#[from] StoreError),
}

/// Returns [`WorkspaceError::Changed`] if `version` is given and is not the version found.
fn check_version<T>(
    what: &'static str,
    found: &Record<T>,
    version: Option<u64>,
) -> Result<(), WorkspaceError> {
    if version.is_some_and(|version| version != found.version) {
        return Err(WorkspaceError::Changed { what, id: found.id.clone(), version: found.version });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;
    use crate::records::{Key, ListQuery, Precondition, RecordsExt};

    #[test]
    fn a_user_is_found_only_in_the_own_company() {
        let records = MemoryRecords::default();
        let ada = User {
            id: "ada".into(),
            company_id: "c".into(),
            timezone: None,
            rag_enabled: Some(false),
            role: None,
        };
        let key = Key::new("c", collection::USERS, "ada").expect("a key");
        let find = |company: &str| {
            let (company, user) = (company.into(), "ada".into());
            get_user(&records, &company, &user).now_or_never().expect("no waiting").expect("found")
        };
        assert_eq!(find("c"), None);
        records.put_as(&key, &ada, Precondition::Absent).now_or_never().expect("no waiting").expect("put");
        assert_eq!(find("c"), Some(ada));
        assert_eq!(find("d"), None);
    }

    /// Layers and handlers hold these as boxed futures that move between threads.
    #[test]
    fn futures_are_send() {
        fn send(_: impl Send) {}
        let (records, roles) = (MemoryRecords::default(), crate::roles::RecordRoleStore::in_memory());
        let context = agent_core::tool::ExecutionContext::default();
        send(get_user(&records, &"c".into(), &"u".into()));
        send(get_document(&records, &"c".into(), "d"));
        send(get_documents(&records, &"c".into(), &[]));
        let folder = MemoryFolder::of_user(&agent_core::role::RoleBlock::default(), &"u".into());
        send(list_memories(&records, &folder, 1));
        send(create_memory(&records, &folder, "x"));
        send(delete_memories(&records, &"c".into(), MemorySelection::User(&"u".into())));
        send(get_todo_list(&records, &context));
        send(create_todo(&records, &context, "x"));
        let editor = DocumentEditor { user_id: "u".into(), role: CompanyRole::Editor };
        send(append_document(&records, &"c".into(), "d", ("x", None), (&editor.user_id, |_| true)));
        send(update_plan(&records, &context, None, "x", None));
        send(list_metrics(&records, &"c".into(), &MetricFilter::default(), &ListQuery::default()));
        send(WorkspaceFile::default().apply(&roles));
        send(WorkspaceFile::export(&records, None));
    }
}
