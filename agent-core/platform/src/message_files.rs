//! Files of users in the messages of a turn: references are replaced by the contents before the prompt is assembled.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use agent_core::ids::{CompanyId, ThreadId, UserId};
use agent_core::message::{Content, ContentPart, MediaSource, Message, Role};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::content_notes::note;
use crate::history::{part_for_media_type, stored_file_id};
use crate::records::{Record, Records, StoreError};
use crate::workspace::{UserFile, add_file_thread, get_user_files};

/// Maximum size of the files in a prompt, in bytes. The newest ones are kept.
pub const MAX_PROMPT_FILE_BYTES: u64 = 20 * 1024 * 1024;
/// Maximum number of files in a prompt. The newest ones are kept.
pub const MAX_PROMPT_FILES: usize = 64;
/// Maximum size of the text of a file, in bytes, beyond which it is cut.
const MAX_TEXT_BYTES: usize = 256 * 1024;

/// Files of the user of a turn.
#[derive(Clone, Copy)]
pub struct MessageFiles<'a> {
    /// Store of the files.
    pub records: &'a dyn Records,
    /// The user's company.
    pub company_id: &'a CompanyId,
    /// The user.
    pub user_id: &'a UserId,
}

impl std::fmt::Debug for MessageFiles<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageFiles")
            .field("company_id", &self.company_id)
            .field("user_id", &self.user_id)
            .finish_non_exhaustive()
    }
}

/// Returns the source of a part's media.
fn source(part: &ContentPart) -> Option<&MediaSource> {
    match part {
        ContentPart::Text { .. } => None,
        ContentPart::Image { source }
        | ContentPart::Audio { source }
        | ContentPart::Video { source }
        | ContentPart::Document { source } => Some(source),
    }
}

fn file_id(part: &ContentPart) -> Option<&str> {
    source(part).and_then(stored_file_id)
}

/// Returns the ids of the files that a message refers to, in order.
fn file_ids(message: &Message) -> impl Iterator<Item = &str> {
    let parts: &[ContentPart] = match &message.content {
        Content::Text(_) => &[],
        Content::Parts(parts) => parts,
    };
    parts.iter().filter_map(file_id)
}

/// Returns the ids of the newest files that the messages refer to, as many as a prompt may have.
fn newest_file_ids<'m>(messages: impl DoubleEndedIterator<Item = &'m Message>) -> Vec<&'m str> {
    let mut ids: Vec<&str> = Vec::new();
    for id in messages.rev().flat_map(file_ids) {
        if ids.len() == MAX_PROMPT_FILES {
            break;
        }
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
}

/// Returns true if a message refers to a file.
pub fn has_files(messages: &[Arc<Message>]) -> bool {
    messages.iter().any(|message| file_ids(message).next().is_some())
}

impl MessageFiles<'_> {
    /// Returns the first file of the latest user message that the user does not have; `None` if the user has all of them.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn find_missing<'m>(
        &self,
        messages: &'m [Arc<Message>],
    ) -> Result<Option<&'m str>, StoreError> {
        let latest = messages.iter().rev().find(|message| message.role == Role::User);
        let ids = latest.into_iter().flat_map(|message| file_ids(message));
        let ids: Vec<&str> = ids.take(MAX_PROMPT_FILES + 1).collect();
        if ids.len() > MAX_PROMPT_FILES {
            return Ok(ids.last().copied());
        }
        let user_files = self.find(&ids).await?;
        Ok(ids.into_iter().find(|id| !user_files.contains_key(*id)))
    }

    async fn find(&self, ids: &[&str]) -> Result<HashMap<String, Record<UserFile>>, StoreError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let user_files = get_user_files(self.records, (self.company_id, self.user_id), ids).await?;
        Ok(user_files.into_iter().flatten().map(|record| (record.value.id.clone(), record)).collect())
    }

    /// Keeps the files of the messages at least as long as `thread`, which has the messages.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn retain_for_thread(&self, messages: &[Message], thread: &ThreadId) -> Result<(), StoreError> {
        let mut seen = HashSet::new();
        let ids: Vec<&str> = messages.iter().flat_map(file_ids).filter(|id| seen.insert(*id)).collect();
        for page in ids.chunks(MAX_PROMPT_FILES) {
            for file in self.find(page).await?.values() {
                add_file_thread(self.records, self.company_id, file, thread).await?;
            }
        }
        Ok(())
    }

    /// Replaces references to files by their contents, within the limits of a prompt. A file that the user does not have,
    /// or that is beyond the limits, is replaced by a note. The files stay as long as `thread`, if the turn has one. With
    /// `shows_ids`, the messages name the ids of the files, for tools that send them.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn load(
        &self,
        messages: &mut Arc<Vec<Arc<Message>>>,
        thread: Option<&ThreadId>,
        shows_ids: bool,
    ) -> Result<(), StoreError> {
        let ids = newest_file_ids(messages.iter().map(|message| &**message));
        if ids.is_empty() {
            return Ok(());
        }
        let user_files = self.find(&ids).await?;
        let mut contents = HashMap::new();
        let mut rest = MAX_PROMPT_FILE_BYTES;
        for id in ids {
            let Some(record) = user_files.get(id) else { continue };
            if let Some(thread) = thread {
                add_file_thread(self.records, self.company_id, record, thread).await?;
            }
            let Some(less) = rest.checked_sub(record.value.bytes) else { continue };
            if let Some(bytes) = record.value.read(self.records, self.company_id).await? {
                rest = less;
                contents.insert(id.to_owned(), prompt_parts(&record.value, &bytes, shows_ids));
            }
        }
        // Other messages stay shared, and the list if none has a file.
        let list = Arc::make_mut(messages);
        for message in list.iter_mut().filter(|message| file_ids(message).next().is_some()) {
            let Content::Parts(parts) = &mut Arc::make_mut(message).content else { continue };
            let replaced = std::mem::take(parts).into_iter().flat_map(|part| match file_id(&part) {
                None => vec![part],
                Some(id) => match (contents.get(id), user_files.get(id)) {
                    (Some(content), _) => content.clone(),
                    (None, Some(file)) => vec![note(&format!("{}, not sent", label(&file.value, shows_ids)))],
                    (None, None) => vec![note("file, no longer stored")],
                },
            });
            *parts = replaced.collect();
        }
        Ok(())
    }
}

/// Returns the words that name a file in a prompt.
fn label(file: &UserFile, shows_id: bool) -> String {
    let id = if shows_id { format!(", id {}", file.id) } else { String::new() };
    match &file.name {
        Some(name) => format!("file {name:?} of type {}{id}", file.media_type),
        None => format!("file of type {}{id}", file.media_type),
    }
}

/// Returns a file as parts of a prompt: text files as text, which every model reads; other files by their media type, after the
/// label with the id if there is one.
fn prompt_parts(file: &UserFile, bytes: &Bytes, shows_id: bool) -> Vec<ContentPart> {
    let media_type = file.media_type.as_str();
    let is_text = media_type.starts_with("text/") || media_type == "application/json";
    if let (true, Ok(text)) = (is_text, std::str::from_utf8(bytes)) {
        let shown_text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
        let cut = if shown_text.len() < text.len() {
            format!(", its first {} bytes", shown_text.len())
        } else {
            String::new()
        };
        return vec![ContentPart::Text { text: format!("[{}{cut}]\n{shown_text}", label(file, shows_id)) }];
    }
    let source = MediaSource::Data { value: STANDARD.encode(bytes), mime_type: media_type.to_owned() };
    let id = shows_id.then(|| note(&label(file, true)));
    id.into_iter().chain([part_for_media_type(source)]).collect()
}
