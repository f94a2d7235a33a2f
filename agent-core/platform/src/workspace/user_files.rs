//! Files that users upload to send them in messages.
//!
//! A file is a record with the pieces of its original, which are stored as those of documents are. It belongs to the user who
//! uploaded it: another user's is absent. Its time is limited, unless a thread has it.

use std::collections::BTreeSet;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::WorkspaceError;
use super::contents::{
    PieceSet, USER_FILE_COLLECTION, UploadQuota, discard_pieces, read_piece, read_pieces, write_original,
};
use super::view::ListPage;
use crate::records::{
    Collection, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Quota, Record, Records, RecordsExt,
    StoreError, UpdateAttempts, Write, put_within, quota_key, to_json,
};
use agent_core::ids::{CompanyId, ThreadId, UserId};

/// Maximum number of files of a user.
pub const MAX_USER_FILES: usize = 1_000;
/// Maximum size of the name of a file, in bytes.
pub const MAX_FILE_NAME_BYTES: usize = 255;
/// Maximum number of threads that have a file; a further one takes the place of the oldest.
const MAX_THREADS: usize = 64;
/// Number of hexadecimal digits of a user's hash in the keys of files.
const USER_HASH_DIGITS: usize = 32;

/// File of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserFile {
    /// Identifier of the file.
    pub id: String,
    /// User who uploaded it.
    pub user_id: UserId,
    /// Name that the user gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Media type, by the content.
    pub media_type: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
    /// Time after which the file is deleted, unless a thread has it.
    pub expires_at: Timestamp,
    /// Threads of the user whose messages have the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadId>,
    /// Identifier of the upload, under which the content is stored.
    pub generation: String,
}

impl UserFile {
    fn pieces(&self) -> PieceSet {
        PieceSet::of_original(&self.id, &self.generation, self.len())
    }

    fn len(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or_default()
    }

    /// Returns the content as a whole; `None` if the file has been deleted since it was read.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn read(
        &self,
        records: &dyn Records,
        company_id: &CompanyId,
    ) -> Result<Option<Bytes>, StoreError> {
        match read_pieces(records, company_id, &self.pieces(), self.len()).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns a piece of the content, by its number from 0; `None` after the last one.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the file has been deleted since it was read.
    pub async fn read_piece(
        &self,
        records: &dyn Records,
        company_id: &CompanyId,
        piece: usize,
    ) -> Result<Option<Bytes>, StoreError> {
        read_piece(records, company_id, &self.pieces(), piece).await
    }
}

/// File that a user uploads.
#[derive(Debug, Clone)]
pub struct NewUserFile {
    name: Option<String>,
    media_type: String,
    bytes: Bytes,
    sha256: String,
    max_company_bytes: Option<u64>,
}

impl NewUserFile {
    /// Creates a file. Hashes the content, which takes some milliseconds for each megabyte.
    pub fn new(name: Option<String>, media_type: String, bytes: Bytes) -> Self {
        let sha256 = hex::encode(Sha256::digest(&bytes));
        Self { name, media_type, bytes, sha256, max_company_bytes: None }
    }

    /// Limits the total size in bytes of the company's originals and users' files, which concurrent uploads do not exceed
    /// together.
    pub fn with_quota(self, max_company_bytes: u64) -> Self {
        Self { max_company_bytes: Some(max_company_bytes), ..self }
    }

    /// Stores the file until `expires_at`, unless a thread has it.
    ///
    /// # Errors
    /// [`WorkspaceError::Full`] if the user has [`MAX_USER_FILES`] files, [`WorkspaceError::UploadsExceeded`] if the quota
    /// does not permit it; errors of the store, after which what was written is deleted, or left to the sweep of interrupted
    /// uploads.
    pub async fn store(
        self,
        records: &dyn Records,
        (company_id, user_id): (&CompanyId, &UserId),
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<UserFile, WorkspaceError> {
        let count_quota = UserFileQuota { owner: (company_id, user_id) };
        count_quota.check(records).await?;
        let id = agent_core::new_id();
        let bytes = self.bytes.len() as u64;
        let quota =
            self.max_company_bytes.map(|limit| UploadQuota { company_id, document_id: None, bytes, limit });
        let original = (&self.bytes, quota.as_ref());
        let pieces = write_original(records, company_id, &id, original, now).await?;
        let file = UserFile {
            user_id: user_id.clone(),
            name: self.name,
            media_type: self.media_type,
            bytes,
            sha256: self.sha256,
            expires_at,
            threads: Vec::new(),
            generation: pieces.generation().to_owned(),
            id,
        };
        let commit = async {
            let put = Write::Put {
                key: file_key(company_id, user_id, &file.id)?,
                value: to_json(&file)?,
                precondition: Precondition::Absent,
            };
            put_within(records, &count_quota, &[put, pieces.attach_write()?]).await
        };
        match commit.await {
            Ok(_) => Ok(file),
            Err(error) => {
                discard_pieces(records, &pieces).await;
                Err(error)
            }
        }
    }
}

/// Returns the beginning of the keys of a user's files: a hash, since the id of a user may be as long as a key.
fn user_prefix(user_id: &UserId) -> String {
    let mut prefix = hex::encode(Sha256::digest(user_id.as_bytes()));
    prefix.truncate(USER_HASH_DIGITS);
    prefix.push('.');
    prefix
}

fn file_key(company_id: &CompanyId, user_id: &UserId, id: &str) -> Result<Key, StoreError> {
    Key::new(company_id, USER_FILE_COLLECTION, user_prefix(user_id) + id)
}

/// Returns a user's files by their ids, in their order; absent ones are `None`.
///
/// # Errors
/// Errors of the store.
pub async fn get_user_files(
    records: &dyn Records,
    (company_id, user_id): (&CompanyId, &UserId),
    ids: &[&str],
) -> Result<Vec<Option<Record<UserFile>>>, StoreError> {
    let keys = ids.iter().map(|id| file_key(company_id, user_id, id)).collect::<Result<Vec<_>, _>>()?;
    records.get_many_as(&keys).await
}

/// Returns a page of a user's files, the oldest first.
///
/// # Errors
/// Errors of the store.
pub async fn list_user_files(
    records: &dyn Records,
    (company_id, user_id): (&CompanyId, &UserId),
    list: &ListQuery,
) -> Result<ListPage<UserFile>, StoreError> {
    let collection = Collection::new(company_id, USER_FILE_COLLECTION)?;
    let list = ListQuery { prefix: user_prefix(user_id), ..list.clone() };
    let page = records.list_as::<UserFile>(&collection, &list).await?;
    let items = page.records.into_iter().map(|record| record.value).collect();
    Ok(ListPage { items, next_cursor: page.next_cursor })
}

/// Quota of a user's files.
struct UserFileQuota<'u> {
    owner: (&'u CompanyId, &'u UserId),
}

#[async_trait]
impl Quota for UserFileQuota<'_> {
    type Error = WorkspaceError;

    fn key(&self) -> Result<Key, StoreError> {
        quota_key(self.owner.0, "files")
    }

    async fn check(&self, records: &dyn Records) -> Result<(), WorkspaceError> {
        let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
        let mut count = 0;
        loop {
            let page = list_user_files(records, self.owner, &list).await?;
            count += page.items.len();
            if count >= MAX_USER_FILES {
                return Err(WorkspaceError::Full {
                    what: "collection of the user's files",
                    limit: MAX_USER_FILES,
                });
            }
            list.cursor = page.next_cursor;
            if list.cursor.is_none() {
                return Ok(());
            }
        }
    }
}

/// Deletes a user's file with its content, also if a thread has it. Returns false if there is none.
///
/// # Errors
/// Errors of the store.
pub async fn delete_user_file(
    records: &dyn Records,
    (company_id, user_id): (&CompanyId, &UserId),
    id: &str,
) -> Result<bool, StoreError> {
    let key = file_key(company_id, user_id, id)?;
    let Some(found) = records.get_as::<UserFile>(&key).await? else { return Ok(false) };
    let mut writes = vec![Write::Delete { key, precondition: Precondition::Any }];
    writes.extend(found.value.pieces().delete_writes(company_id)?);
    Ok(records.commit(writes).await?.first().is_some_and(Option::is_some))
}

/// Deletes all files of a user, and returns their number.
pub(super) async fn delete_user_files(
    records: &dyn Records,
    owner: (&CompanyId, &UserId),
) -> Result<usize, StoreError> {
    let list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    let mut deleted = 0;
    loop {
        let page = list_user_files(records, owner, &list).await?;
        for file in &page.items {
            deleted += usize::from(delete_user_file(records, owner, &file.id).await?);
        }
        if page.next_cursor.is_none() {
            return Ok(deleted);
        }
    }
}

/// Adds a thread to those that have a file, so that the file is kept as long as the thread.
///
/// # Errors
/// Errors of the store.
pub async fn add_file_thread(
    records: &dyn Records,
    company_id: &CompanyId,
    file: &Record<UserFile>,
    thread_id: &ThreadId,
) -> Result<(), StoreError> {
    let key = Key::new(company_id, USER_FILE_COLLECTION, file.id.as_str())?;
    let mut found = Some(file.clone());
    let mut attempts = UpdateAttempts::new(records, &key);
    loop {
        let Some(Record { version, value: mut user_file, .. }) =
            found.filter(|found| !found.value.threads.contains(thread_id))
        else {
            return Ok(());
        };
        user_file.threads.push(thread_id.clone());
        let excess = user_file.threads.len().saturating_sub(MAX_THREADS);
        user_file.threads.drain(..excess);
        match records.put_as(&key, &user_file, Precondition::Version(version)).await {
            Ok(_) => return Ok(()),
            Err(error) => attempts.retry(error).await?,
        }
        found = records.get_as(&key).await?;
    }
}

/// One page of a sweep of a company's files.
#[derive(Debug)]
pub struct ExpiredFiles {
    /// Expired files.
    pub files: Vec<Record<UserFile>>,
    /// Cursor of the next page; absent on the last page.
    pub next_cursor: Option<String>,
}

/// Returns the files on one page of a company's that have expired. Some of them may be in threads.
///
/// # Errors
/// Errors of the store.
pub async fn list_expired_files(
    records: &dyn Records,
    company_id: &CompanyId,
    cursor: Option<String>,
    now: Timestamp,
) -> Result<ExpiredFiles, StoreError> {
    let collection = Collection::new(company_id, USER_FILE_COLLECTION)?;
    let list = ListQuery { limit: Some(MAX_PAGE_RECORDS), cursor, ..ListQuery::default() };
    let page = records.list_as::<UserFile>(&collection, &list).await?;
    let mut files = page.records;
    files.retain(|file| file.value.expires_at <= now);
    Ok(ExpiredFiles { files, next_cursor: page.next_cursor })
}

/// Deletes a file that has expired and that no thread in `threads` contains; `threads` are the existing ones. It stays if another
/// process has put it into a thread meanwhile.
///
/// # Errors
/// Errors of the store.
pub async fn delete_expired_file(
    records: &dyn Records,
    company_id: &CompanyId,
    file: &Record<UserFile>,
    threads: &BTreeSet<ThreadId>,
) -> Result<bool, StoreError> {
    if file.value.threads.iter().any(|thread| threads.contains(thread)) {
        return Ok(false);
    }
    let key = Key::new(company_id, USER_FILE_COLLECTION, file.id.as_str())?;
    let mut writes = vec![Write::Delete { key, precondition: Precondition::Version(file.version) }];
    writes.extend(file.value.pieces().delete_writes(company_id)?);
    match records.commit(writes).await {
        Ok(_) => Ok(true),
        Err(StoreError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
