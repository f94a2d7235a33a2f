//! Conformance suite for users' files, and for the messages that refer to them.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_core::ids::{CompanyId, ThreadId, UserId};
use agent_core::message::{Content, ContentPart, MediaSource, Message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};

use super::interleaved::InterleavedRecords;
use crate::message_files::{MAX_PROMPT_FILES, MessageFiles};
use crate::records::{Inventory, Key, ListQuery, Precondition, QUOTAS, Record, Records, Write, to_json};
use crate::workspace::{
    MAX_USER_FILES, NewUserFile, USER_FILE_COLLECTION, UploadUsage, UserFile, WorkspaceError,
    add_file_thread, delete_expired_file, delete_user, delete_user_file, get_user_files, list_expired_files,
    list_user_files,
};

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// A store, and a user with files.
struct FileFixture {
    records: Arc<dyn Inventory>,
    company: CompanyId,
    user: UserId,
    now: Timestamp,
}

impl FileFixture {
    fn new(records: Arc<dyn Inventory>) -> Self {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        Self { records, company: "acme".into(), user: "ada".into(), now }
    }

    fn owner(&self) -> (&CompanyId, &UserId) {
        (&self.company, &self.user)
    }

    async fn upload(&self, user: &str, media_type: &str, bytes: Vec<u8>) -> UserFile {
        let file = NewUserFile::new(Some("a file".to_owned()), media_type.to_owned(), bytes.into());
        let owner = (&self.company, &UserId::from(user));
        file.store(&*self.records, owner, self.now, self.now + DAY).await.expect("stored")
    }

    async fn find(&self, id: &str) -> Option<Record<UserFile>> {
        get_user_files(&*self.records, self.owner(), &[id]).await.expect("read").pop().flatten()
    }

    async fn expired(&self, now: Timestamp) -> Vec<Record<UserFile>> {
        let page = list_expired_files(&*self.records, &self.company, None, now).await.expect("listed");
        assert_eq!(page.next_cursor, None);
        page.files
    }

    /// Returns the paths of the company's collections that have records.
    async fn collections(&self) -> Vec<String> {
        let listed_collections = self.records.collections(&self.company, None).await.expect("listed");
        listed_collections.iter().map(|collection| collection.path().to_owned()).collect()
    }

    async fn load(&self, messages: &[Message], thread: Option<&ThreadId>) -> Vec<Message> {
        let files = MessageFiles { records: &*self.records, company_id: &self.company, user_id: &self.user };
        let mut messages = Arc::new(messages.iter().cloned().map(Arc::new).collect());
        files.load(&mut messages, thread, false).await.expect("loaded");
        messages.iter().map(|message| Message::clone(message)).collect()
    }
}

fn reference(id: &str) -> ContentPart {
    ContentPart::Image { source: MediaSource::Url { value: format!("/api/files/{id}"), mime_type: None } }
}

fn user_message(parts: Vec<ContentPart>) -> Message {
    Message { content: Content::Parts(parts), ..Message::user("") }
}

/// Returns the parts of a message in short: texts, and the data of media.
fn parts(message: &Message) -> Vec<String> {
    let Content::Parts(parts) = &message.content else { panic!("{message:?}") };
    let short = |part: &ContentPart| match part {
        ContentPart::Text { text } => text.clone(),
        ContentPart::Image { source: MediaSource::Data { value, mime_type } } => {
            format!("image {mime_type} {value}")
        }
        ContentPart::Document { source: MediaSource::Data { value, mime_type } } => {
            format!("document {mime_type} {value}")
        }
        part => format!("{part:?}"),
    };
    parts.iter().map(short).collect()
}

/// Runs the suite against stores from `make`, which must return an empty one at every call.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn files(make: impl AsyncFn() -> Arc<dyn Inventory>) {
    let fixture = async || FileFixture::new(make().await);
    a_file_is_returned_as_it_was_uploaded(&fixture().await).await;
    a_deleted_file_leaves_no_records(&fixture().await).await;
    concurrent_files_stay_within_the_quotas(&fixture().await).await;
    files_are_visible_to_their_user_only(&fixture().await).await;
    files_are_deleted_after_their_time_and_threads(&fixture().await).await;
    references_are_replaced_by_contents(&fixture().await).await;
    a_prompt_has_the_newest_files(&fixture().await).await;
}

async fn a_file_is_returned_as_it_was_uploaded(fixture: &FileFixture) {
    let records = &*fixture.records;
    let mut total = 0;
    for bytes in [1_usize, 512 * 1024, 512 * 1024 + 1, 2_000_000] {
        let content: Vec<u8> = (0..bytes).map(|n| (n * 7 % 251) as u8).collect();
        let file = fixture.upload("ada", "image/png", content.clone()).await;
        total += bytes as u64;
        let stored_file = fixture.find(&file.id).await.expect("a file").value;
        assert_eq!(stored_file, file, "the returned file is the stored one");
        assert_eq!((stored_file.bytes, stored_file.media_type.as_str()), (bytes as u64, "image/png"));
        let read = stored_file.read(records, &fixture.company).await.expect("read");
        assert_eq!(read.as_deref(), Some(&content[..]), "{bytes} bytes come back");
    }
    let usage = UploadUsage::load(records, &fixture.company).await.expect("read");
    assert_eq!(usage.bytes, total, "files count towards the company's quota");
    let listed = list_user_files(records, fixture.owner(), &ListQuery::default()).await.expect("listed");
    let sizes: Vec<u64> = listed.items.iter().map(|file| file.bytes).collect();
    assert_eq!(sizes, [1, 512 * 1024, 512 * 1024 + 1, 2_000_000], "the oldest file is listed first");
}

async fn a_deleted_file_leaves_no_records(fixture: &FileFixture) {
    let records = &*fixture.records;
    let file = fixture.upload("ada", "image/png", vec![1; 600_000]).await;
    assert!(delete_user_file(records, fixture.owner(), &file.id).await.expect("deleted"));
    assert!(!delete_user_file(records, fixture.owner(), &file.id).await.expect("deleted"));
    assert_eq!(fixture.collections().await, [QUOTAS], "a deleted file leaves no records but the quotas");
    assert_eq!(file.read(records, &fixture.company).await.expect("read"), None);
    fixture.upload("ada", "image/png", vec![1; 600_000]).await;
    fixture.upload("ada", "text/plain", vec![b'x'; 10]).await;
    let others = fixture.upload("bob", "text/plain", vec![b'x'; 10]).await;
    let deleted = delete_user(records, &fixture.company, &fixture.user).await.expect("deleted");
    assert_eq!(deleted.files, 2, "a user's files are deleted with the user");
    let bob = UserId::from("bob");
    let left = get_user_files(records, (&fixture.company, &bob), &[&others.id]).await.expect("read");
    assert!(left[0].is_some(), "another user's file stays");
}

async fn concurrent_files_stay_within_the_quotas(fixture: &FileFixture) {
    let records = &InterleavedRecords(fixture.records.clone());
    let upload = |max_company_bytes: u64| {
        let file = NewUserFile::new(None, "text/plain".to_owned(), vec![b'x'; 10].into());
        let file = file.with_quota(max_company_bytes);
        file.store(records, fixture.owner(), fixture.now, fixture.now + DAY)
    };
    let outcomes = join_all((0..8).map(|_| upload(35))).await;
    let is_exceeded = |outcome: &Result<UserFile, WorkspaceError>| {
        matches!(outcome, Err(WorkspaceError::UploadsExceeded { used: 30, limit: 35 }))
    };
    let refused = outcomes.iter().filter(|outcome| is_exceeded(outcome)).count();
    assert_eq!((outcomes.iter().flatten().count(), refused), (3, 5), "{outcomes:?}");

    // Together with the three files, the user has two files fewer than the maximum.
    let file = outcomes.iter().flatten().next().expect("a file").clone();
    let stored_file = fixture.find(&file.id).await.expect("a file");
    let prefix = stored_file.id.strip_suffix(&file.id).expect("the key ends with the id");
    let planted = (0..MAX_USER_FILES - 5).map(|number| {
        let planted = UserFile { id: format!("planted-{number}"), bytes: 0, ..file.clone() };
        let id = format!("{prefix}{}", planted.id);
        let key = Key::new(&fixture.company, USER_FILE_COLLECTION, id).expect("a key");
        Write::Put { key, value: to_json(&planted).expect("JSON"), precondition: Precondition::Absent }
    });
    records.commit(planted.collect()).await.expect("planted");
    let outcomes = join_all((0..8).map(|_| upload(u64::MAX))).await;
    let is_full = |outcome: &Result<UserFile, WorkspaceError>| {
        matches!(outcome, Err(WorkspaceError::Full { limit: MAX_USER_FILES, .. }))
    };
    let refused = outcomes.iter().filter(|outcome| is_full(outcome)).count();
    assert_eq!((outcomes.iter().flatten().count(), refused), (2, 6), "{outcomes:?}");
    let usage = UploadUsage::load(records, &fixture.company).await.expect("read");
    assert_eq!(usage.bytes, 50, "refused files leave no bytes");
}

async fn files_are_visible_to_their_user_only(fixture: &FileFixture) {
    let records = &*fixture.records;
    let file = fixture.upload("ada", "text/plain", b"secret".to_vec()).await;
    let (bob, other) = (UserId::from("bob"), CompanyId::from("other"));
    for owner in [(&fixture.company, &bob), (&other, &fixture.user)] {
        let user_files = get_user_files(records, owner, &[&file.id]).await.expect("read");
        assert_eq!(user_files, [None], "{owner:?}");
        assert!(!delete_user_file(records, owner, &file.id).await.expect("nothing is deleted"), "{owner:?}");
        let listed = list_user_files(records, owner, &ListQuery::default()).await.expect("listed");
        assert!(listed.items.is_empty(), "{owner:?}");
        let files = MessageFiles { records, company_id: owner.0, user_id: owner.1 };
        let mut messages = Arc::new(vec![Arc::new(user_message(vec![reference(&file.id)]))]);
        assert_eq!(files.find_missing(&messages).await.expect("read"), Some(&*file.id), "{owner:?}");
        files.load(&mut messages, None, false).await.expect("loaded");
        assert_eq!(parts(&messages[0]), ["[file, no longer stored]"], "{owner:?}");
    }
    assert!(fixture.find(&file.id).await.is_some());
}

async fn files_are_deleted_after_their_time_and_threads(fixture: &FileFixture) {
    let records = &*fixture.records;
    let free = fixture.upload("ada", "text/plain", b"free".to_vec()).await;
    let held = fixture.upload("ada", "text/plain", b"held".to_vec()).await;
    let thread = ThreadId::from("t1");
    let messages = [user_message(vec![reference(&held.id)])];
    fixture.load(&messages, None).await;
    assert!(
        fixture.find(&held.id).await.expect("a file").value.threads.is_empty(),
        "a preview adds no thread to a file"
    );
    fixture.load(&messages, Some(&thread)).await;
    fixture.load(&messages, Some(&thread)).await;
    let record = fixture.find(&held.id).await.expect("a file");
    assert_eq!(record.value.threads, std::slice::from_ref(&thread), "a file lists a thread once");

    assert!(fixture.expired(fixture.now).await.is_empty());
    let expired = fixture.expired(fixture.now + DAY).await;
    let ids: BTreeSet<&str> = expired.iter().map(|file| file.value.id.as_str()).collect();
    assert_eq!(ids, BTreeSet::from([&*free.id, &*held.id]));
    let existing = BTreeSet::from([thread.clone()]);
    for file in &expired {
        let is_deleted =
            delete_expired_file(records, &fixture.company, file, &existing).await.expect("swept");
        assert_eq!(is_deleted, file.value.id == free.id, "an expired file is kept while a thread has it");
    }
    // A thread that begins to use the file during the sweep keeps it.
    let stale = fixture.find(&held.id).await.expect("a file");
    add_file_thread(records, &fixture.company, &stale, &"t2".into()).await.expect("held");
    let swept =
        delete_expired_file(records, &fixture.company, &stale, &BTreeSet::new()).await.expect("swept");
    assert!(!swept, "a file whose record has changed is not deleted");
    // Another process adds a thread to the file at the same time: neither thread is lost.
    add_file_thread(records, &fixture.company, &stale, &"t3".into()).await.expect("held");
    let held = fixture.find(&held.id).await.expect("a file");
    assert_eq!(held.value.threads, [thread, "t2".into(), "t3".into()]);
    assert!(delete_expired_file(records, &fixture.company, &held, &BTreeSet::new()).await.expect("swept"));
    assert_eq!(fixture.collections().await, [QUOTAS], "an expired file leaves no records but the quotas");
}

async fn references_are_replaced_by_contents(fixture: &FileFixture) {
    let picture = fixture.upload("ada", "image/png", vec![1, 2, 3]).await;
    let text = fixture.upload("ada", "text/markdown", "# Grüße".into()).await;
    let long = fixture.upload("ada", "text/plain", "ü".repeat(200_000).into_bytes()).await;
    let document = fixture.upload("ada", "application/pdf", vec![4, 5, 6]).await;
    let say = ContentPart::Text { text: "Look".to_owned() };
    let shared = reference(&picture.id);
    let messages = [
        user_message(vec![shared.clone(), reference("gone")]),
        Message::user("plain"),
        user_message(vec![say, shared, reference(&text.id), reference(&long.id), reference(&document.id)]),
    ];
    let loaded = fixture.load(&messages, None).await;
    let image = format!("image image/png {}", STANDARD.encode([1, 2, 3]));
    assert_eq!(parts(&loaded[0]), [&*image, "[file, no longer stored]"]);
    assert_eq!(loaded[1], messages[1]);
    let last = parts(&loaded[2]);
    assert_eq!(last[..3], ["Look", &*image, "[file \"a file\" of type text/markdown]\n# Grüße"]);
    let cut =
        format!("[file \"a file\" of type text/plain, its first 262144 bytes]\n{}", "ü".repeat(131_072));
    assert_eq!(last[3], cut, "a long text is cut at a character");
    assert_eq!(last[4], format!("document application/pdf {}", STANDARD.encode([4, 5, 6])));
}

async fn a_prompt_has_the_newest_files(fixture: &FileFixture) {
    let mut messages = Vec::new();
    for byte in 0..3 {
        let file = fixture.upload("ada", "image/png", vec![byte; 8 * 1024 * 1024]).await;
        messages.push(user_message(vec![reference(&file.id)]));
    }
    let loaded = fixture.load(&messages, None).await;
    assert_eq!(
        parts(&loaded[0]),
        ["[file \"a file\" of type image/png, not sent]"],
        "a file beyond 20 MiB is not sent"
    );
    for message in &loaded[1..] {
        assert!(parts(message)[0].starts_with("image image/png "), "the newest files are sent");
    }
    let small = fixture.upload("ada", "image/png", vec![7]).await;
    let many: Vec<_> = (0..=MAX_PROMPT_FILES).map(|n| reference(&format!("gone-{n}"))).collect();
    let messages = [user_message(vec![reference(&small.id)]), user_message(many)];
    let files =
        MessageFiles { records: &*fixture.records, company_id: &fixture.company, user_id: &fixture.user };
    assert!(files.find_missing(&messages.clone().map(Arc::new)).await.expect("read").is_some());
    let loaded = fixture.load(&messages, None).await;
    assert_eq!(parts(&loaded[0]), ["[file, no longer stored]"], "only the newest references are looked up");
}
