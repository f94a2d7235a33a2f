//! Files of users as parts of forms: they are named by arguments, and read for one call.

use std::collections::HashMap;
use std::sync::Arc;

use agent_core::ids::{CompanyId, UserId};
use agent_core::role::OwnTools;
use agent_core::store_error::StoreError;
use agent_core::tool::{Caller, ExecutionContext, ToolError};
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;

use super::template::ArgumentError;
use crate::company_permits::{CompanyPermit, CompanyPermits};
use crate::ids::{FILE_PATH, is_file_id};

/// Maximum number of files of a request.
const MAX_FILES: usize = 16;
/// Maximum size of the files of a request together, in bytes.
const MAX_FILE_BYTES: u64 = 20 << 20;
/// Unit in which memory for files is counted, in bytes.
const MEMORY_UNIT_BYTES: u64 = 1 << 20;
/// Units of memory for the files of all calls that are being made, and for those of one company.
const MAX_MEMORY_UNITS: usize = 128;
const MAX_COMPANY_MEMORY_UNITS: usize = 64;

/// Message for an id that names no file of the user. It does not tell whether another user has the file.
const UNKNOWN_FILE: &str = "is not the id of a stored file of this user; it is the fileId of POST /api/files, whose file may have expired";

/// A stored file of a user, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFile {
    /// Identifier of the file.
    pub id: String,
    /// Name that the user gave it.
    pub name: Option<String>,
    /// Media type, by the content.
    pub media_type: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the content in hexadecimal.
    pub sha256: String,
}

/// The stored files of users, for tools that send them.
#[async_trait]
pub trait ToolFiles: Send + Sync + 'static {
    /// Returns a user's files by their ids, in their order; absent files and files of other users are `None`.
    ///
    /// # Errors
    /// Errors of the store.
    async fn find(
        &self,
        owner: (&CompanyId, &UserId),
        ids: &[&str],
    ) -> Result<Vec<Option<ToolFile>>, StoreError>;

    /// Returns the content of a user's file; `None` if the user does not have it.
    ///
    /// # Errors
    /// Errors of the store.
    async fn read(&self, owner: (&CompanyId, &UserId), id: &str) -> Result<Option<Bytes>, StoreError>;
}

/// Argument that names a stored file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileReference {
    /// Path of the argument.
    pub(super) argument: String,
    /// The argument: the id of a file, or the path at which it is served.
    pub(super) reference: String,
}

/// A stored file with its content.
pub(super) struct FormFile {
    /// Name without folders; the id if the user gave none.
    pub(super) name: String,
    pub(super) media_type: String,
    /// SHA-256 of the content in hexadecimal.
    pub(super) sha256: String,
    pub(super) content: Bytes,
}

/// The files of a call, by the arguments that name them. Their memory is counted until this value is dropped.
#[derive(Default)]
pub(super) struct FormFiles {
    by_reference: HashMap<String, FormFile>,
    _memory: Option<CompanyPermit>,
}

impl FormFiles {
    /// Returns the file that an argument names.
    pub(super) fn find(&self, argument: &str, reference: &str) -> Result<&FormFile, ArgumentError> {
        self.by_reference.get(reference).ok_or_else(|| ArgumentError::new(argument, UNKNOWN_FILE))
    }
}

/// Error of the files of a call.
pub(super) enum FileError {
    Argument(ArgumentError),
    Tool(ToolError),
}

impl From<StoreError> for FileError {
    fn from(error: StoreError) -> Self {
        Self::Tool(error.into())
    }
}

/// Reader of the files that arguments name.
pub(super) struct FileReader {
    files: Arc<dyn ToolFiles>,
    memory: Arc<CompanyPermits>,
}

impl FileReader {
    pub(super) fn new(files: Arc<dyn ToolFiles>) -> Self {
        Self { files, memory: CompanyPermits::new(MAX_MEMORY_UNITS, MAX_COMPANY_MEMORY_UNITS) }
    }

    /// Reads files of the context's user.
    ///
    /// # Errors
    /// [`FileError::Argument`] for a file that the user does not have, and beyond the limits of a request;
    /// [`ToolError::Unavailable`] while other calls use the memory for files.
    pub(super) async fn read(
        &self,
        context: &ExecutionContext,
        references: &[FileReference],
    ) -> Result<FormFiles, FileError> {
        let refuse = |argument: &str, message| FileError::Argument(ArgumentError::new(argument, message));
        if let (Some(first), Caller::Widget) = (references.first(), context.caller) {
            return Err(refuse(&first.argument, "names a file, but visitors have no files"));
        }
        if let Some(further) = references.get(MAX_FILES) {
            return Err(refuse(&further.argument, "makes a request with more than 16 files"));
        }
        let ids: Vec<&str> = references.iter().map(|file| file_id(&file.reference)).collect();
        if let Some(invalid) = ids.iter().position(|id| !is_file_id(id)) {
            return Err(refuse(&references[invalid].argument, UNKNOWN_FILE));
        }
        let owner = (&context.company_id, &context.user_id);
        let found = self.files.find(owner, &ids).await?;
        let (mut files, mut total_bytes) = (Vec::new(), 0_u64);
        for (file, FileReference { argument, reference }) in found.into_iter().zip(references) {
            let file = file.ok_or_else(|| refuse(argument, UNKNOWN_FILE))?;
            total_bytes = total_bytes.saturating_add(file.bytes);
            if total_bytes > MAX_FILE_BYTES {
                return Err(refuse(argument, "makes a request with more than 20 MiB of files"));
            }
            files.push((file, argument, reference));
        }
        let units = total_bytes.div_ceil(MEMORY_UNIT_BYTES) as usize;
        let memory = self.memory.try_acquire_many(owner.0, units).ok_or_else(|| {
            FileError::Tool(ToolError::Unavailable(
                "too many files are being sent; repeat the call later".into(),
            ))
        })?;
        let mut by_reference = HashMap::new();
        for (file, argument, reference) in files {
            if by_reference.contains_key(reference) {
                continue;
            }
            let content = self.files.read(owner, &file.id).await?;
            let content = content.ok_or_else(|| refuse(argument, UNKNOWN_FILE))?;
            let name = file.name.as_deref().and_then(|name| name.rsplit(['/', '\\']).next());
            let name = name.filter(|name| !name.is_empty()).unwrap_or(&file.id).to_owned();
            let file = FormFile { name, media_type: file.media_type, sha256: file.sha256, content };
            by_reference.insert(reference.clone(), file);
        }
        Ok(FormFiles { by_reference, _memory: Some(memory) })
    }
}

/// Returns the id of the file that an argument names, by its id or by its path.
fn file_id(reference: &str) -> &str {
    reference.strip_prefix(FILE_PATH).unwrap_or(reference)
}

/// Returns true if a role has tools that send stored files, so that its model needs their ids.
pub fn sends_files(tools: &OwnTools) -> bool {
    let compiled = tools.open_api.iter().filter_map(|entry| entry.settings.get("compiled")?.as_array());
    let compiled = compiled.flatten().filter_map(|tool| tool.get("request"));
    let mut requests =
        tools.http_tools.iter().filter_map(|tool| tool.settings.get("request")).chain(compiled);
    requests.any(|request| {
        let parts = request.get("fileParts").and_then(Value::as_array);
        parts.is_some_and(|parts| !parts.is_empty())
    })
}
