//! Atomic import of a workspace file into a store.

use serde_json::Value;

use super::content::WorkspaceFile;
use crate::records::{Key, Precondition, Record, StoreError, Write, to_json};
use crate::roles::{RecordRoleStore, RoleKeys, StoredRole};
use crate::workspace::assignment_key;
use crate::workspace::contents::release_writes;
use crate::workspace::document_archive::archive_write;
use crate::workspace::todos::MAX_TODOS;
use crate::workspace::{Document, TodoList, collection};
use agent_core::message::SharedJson;
use agent_core::role::RoleBlock;

/// Maximum number of attempts when other writers change the same records.
const MAX_IMPORT_ATTEMPTS: usize = 32;

/// Result of an import. An agent with its secrets counts as one item, and so does a todo list with its todos.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// Number of items created.
    pub created: usize,
    /// Number of existing items that were changed.
    pub updated: usize,
    /// Number of existing items that were already equal.
    pub unchanged: usize,
}

/// Returns an upper bound on the number of writes that an import of the file takes.
pub(super) fn max_writes(file: &WorkspaceFile) -> usize {
    let entries: usize = file.free_form_lists().iter().map(|(_, entries)| entries.len()).sum();
    let one_each = file.users.len() + file.todo_lists.len() + file.memories.len() + file.assignments.len();
    2 * (file.agents.len() + file.documents.len()) + one_each + entries
}

impl WorkspaceFile {
    /// Writes all items of the file to the store behind `roles` in one atomic commit.
    ///
    /// An existing item with the same id is replaced, with these exceptions:
    ///
    /// - A document keeps its owner unless the file names one, and its replaced version is kept.
    /// - Todos that are absent from the file's todo list are kept.
    /// - Secrets of a role that are absent or masked are kept; an empty secret is cleared
    ///   ([`merge_secrets`](crate::roles::merge_secrets)).
    ///
    /// Importing a file twice writes nothing the second time. If another writer changes the same items concurrently, the
    /// import is retried a bounded number of times.
    ///
    /// # Errors
    /// [`StoreError::NotConfigured`] for a secret without an encryption key; [`StoreError::Invalid`] if a todo list
    /// would become too long; otherwise the store's own errors. Nothing is written on an error.
    pub async fn apply(&self, roles: &RecordRoleStore) -> Result<ImportSummary, StoreError> {
        let items = self.items()?;
        let keys: Vec<Key> = items.iter().flat_map(ImportItem::keys).collect();
        let mut attempt = 1;
        loop {
            let found = roles.records().get_many(&keys).await?;
            let (writes, imported) = plan_writes(&items, found, roles)?;
            if writes.is_empty() {
                return Ok(imported);
            }
            match roles.records().commit(writes).await {
                Ok(_) => return Ok(imported),
                Err(StoreError::Conflict { .. }) if attempt < MAX_IMPORT_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn items(&self) -> Result<Vec<ImportItem<'_>>, StoreError> {
        let mut items = Vec::new();
        for role in &self.agents {
            items.push(ImportItem::Role(role, RoleKeys::new(&role.company_id, &role.id)?));
        }
        for user in &self.users {
            let key = Key::new(&user.company_id, collection::USERS, user.id.as_str())?;
            items.push(ImportItem::Plain(key, to_json(user)?));
        }
        for document in &self.documents {
            let key = Key::new(&document.company_id, collection::DOCUMENTS, &document.id)?;
            items.push(ImportItem::Document(document, key));
        }
        for list in &self.todo_lists {
            items
                .push(ImportItem::Todos(list, Key::new(&list.company_id, collection::TODO_LISTS, &list.id)?));
        }
        for memory in &self.memories {
            items.push(ImportItem::Plain(memory.key()?, to_json(memory)?));
        }
        for assignment in &self.assignments {
            let key = assignment_key(&assignment.company_id, &assignment.id)?;
            items.push(ImportItem::Plain(key, to_json(assignment)?));
        }
        for (name, entries) in self.free_form_lists() {
            for entry in entries {
                items.push(ImportItem::Plain(Key::new(&entry.company_id, name, &entry.id)?, to_json(entry)?));
            }
        }
        Ok(items)
    }
}

/// Item of a file, with its record keys.
enum ImportItem<'a> {
    Role(&'a RoleBlock, RoleKeys),
    Todos(&'a TodoList, Key),
    Document(&'a Document, Key),
    /// Item whose record is replaced as a whole.
    Plain(Key, SharedJson),
}

impl ImportItem<'_> {
    fn keys(&self) -> Vec<Key> {
        match self {
            Self::Role(_, keys) => keys.all().into(),
            Self::Todos(_, key) | Self::Document(_, key) | Self::Plain(key, _) => vec![key.clone()],
        }
    }
}

/// Plans the writes for `items`, given the records found under their keys.
fn plan_writes(
    items: &[ImportItem<'_>],
    found: Vec<Option<Record>>,
    roles: &RecordRoleStore,
) -> Result<(Vec<Write>, ImportSummary), StoreError> {
    let mut found = found.into_iter();
    let (mut writes, mut imported) = (Vec::new(), ImportSummary::default());
    for item in items {
        let before = writes.len();
        let is_new = match item {
            ImportItem::Role(role, keys) => {
                let stored = StoredRole::from_records(keys, &mut found)?;
                let save = roles.plan_save((*role).clone(), keys, &stored)?;
                writes.extend(save.writes);
                save.is_new
            }
            ImportItem::Todos(list, key) => {
                let record = found.next().flatten();
                writes.extend(merge_todos(list, key, &record)?);
                record.is_none()
            }
            ImportItem::Document(document, key) => {
                let record = found.next().flatten();
                writes.extend(document_writes(document, key, &record)?);
                record.is_none()
            }
            ImportItem::Plain(key, value) => {
                let record = found.next().flatten();
                writes.extend(put_if_changed(value.clone(), key, &record));
                record.is_none()
            }
        };
        let count = match (is_new, writes.len() > before) {
            (true, _) => &mut imported.created,
            (false, true) => &mut imported.updated,
            (false, false) => &mut imported.unchanged,
        };
        *count += 1;
    }
    Ok((writes, imported))
}

/// Returns the writes that replace a document and keep the replaced version. Without an owner in the file, the owner
/// stays. An upload stays if the file has the text and the generation that are stored, and is deleted otherwise.
fn document_writes(document: &Document, key: &Key, found: &Option<Record>) -> Result<Vec<Write>, StoreError> {
    let Some(record) = found else {
        let new = Document { content: None, ..document.clone() };
        return Ok(put_if_changed(to_json(&new)?, key, found).into_iter().collect());
    };
    let current = record.clone().parse::<Document>(key.collection())?;
    let owner_id = document.owner_id.clone().or_else(|| current.value.owner_id.clone());
    let imported = document.with_upload_of(&current.value);
    let updated = Document {
        owner_id,
        title: imported.title,
        text: imported.text,
        content: imported.content,
        ..current.value.clone()
    };
    if updated == current.value {
        return Ok(Vec::new());
    }
    let changed = Document { revision: current.value.revision + 1, updated_by: None, ..updated };
    let precondition = Precondition::Version(current.version);
    let mut writes = vec![Write::Put { key: key.clone(), value: to_json(&changed)?, precondition }];
    writes.extend(archive_write(&current)?);
    if changed.content.is_none() {
        writes.extend(release_writes(&current.value)?);
    }
    Ok(writes)
}

fn put_if_changed(value: SharedJson, key: &Key, found: &Option<Record>) -> Option<Write> {
    let is_unchanged = found.as_ref().is_some_and(|record| same_json(record.value.get(), value.get()));
    let precondition = Precondition::unchanged_since(found.as_ref().map(|record| record.version));
    (!is_unchanged).then(|| Write::Put { key: key.clone(), value, precondition })
}

/// Returns true if two JSON texts are equal, regardless of the order of fields.
fn same_json(left: &str, right: &str) -> bool {
    let parse = |text| serde_json::from_str::<Value>(text).ok();
    left == right || parse(left).is_some_and(|left| Some(left) == parse(right))
}

/// Merges the list of the file with the stored todos that the file does not name, which follow at the end.
fn merge_todos(list: &TodoList, key: &Key, found: &Option<Record>) -> Result<Option<Write>, StoreError> {
    let before = found.clone().map(|record| record.parse::<TodoList>(key.collection())).transpose()?;
    let mut merged = list.clone();
    let stored_todos = before.into_iter().flat_map(|before| before.value.todos);
    merged.todos.extend(stored_todos.filter(|todo| list.todos.iter().all(|own| own.id != todo.id)));
    if merged.todos.len() > MAX_TODOS {
        return Err(StoreError::Invalid(format!(
            "the todo list {:?} would have {} todos with the existing ones; the limit is {MAX_TODOS}",
            list.id,
            merged.todos.len()
        )));
    }
    Ok(put_if_changed(to_json(&merged)?, key, found))
}
