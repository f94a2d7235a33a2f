//! Keys of records: tenant, collection and id.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use agent_core::ids::CompanyId;

use super::StoreError;

/// Maximum length of an identifier of a company or an entity, in bytes.
pub const MAX_ID_BYTES: usize = 128;
/// Maximum length of a key's id, in bytes: room for keys composed of an identifier and a suffix.
pub const MAX_KEY_ID_BYTES: usize = 256;
/// Maximum length of a collection's path, in bytes.
pub const MAX_COLLECTION_BYTES: usize = 1024;

/// A set of records of one company, with a path such as `documents` or `memories/agent-7/notes`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Collection {
    company: CompanyId,
    path: Arc<str>,
    counted_for: CountedFor,
}

/// Company that operations on records of the platform are counted for. All values are equal: it is not part of the identity of
/// a record.
#[derive(Debug, Clone, Default)]
struct CountedFor(Option<CompanyId>);

impl PartialEq for CountedFor {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CountedFor {}

impl Hash for CountedFor {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialOrd for CountedFor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CountedFor {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

impl Collection {
    /// Creates the collection `name` of `company`. Fails with [`StoreError::Invalid`] on an empty or overlong part and
    /// on control characters, which not every database can store.
    pub fn new(company: impl Into<CompanyId>, name: &str) -> Result<Self, StoreError> {
        let company = company.into();
        check_key_part("the company id", &company, MAX_ID_BYTES)?;
        let path: Arc<str> = escape(name).into();
        check_key_part("the collection", &path, MAX_COLLECTION_BYTES)?;
        Ok(Self { company, path, counted_for: CountedFor::default() })
    }

    /// Creates the collection `name` of the platform as a whole rather than of a company, such as the tokens, which
    /// are looked up before their company is known. Its company is the empty string, which [`new`](Self::new) rejects, so that no
    /// input of a request can reach it.
    pub fn of_platform(name: &str) -> Result<Self, StoreError> {
        let path: Arc<str> = escape(name).into();
        check_key_part("the collection", &path, MAX_COLLECTION_BYTES)?;
        Ok(Self { company: CompanyId::default(), path, counted_for: CountedFor::default() })
    }

    /// Recreates a collection that a store has saved: `company` and `path` are the values of [`Self::company`] and
    /// [`Self::path`].
    pub fn from_stored(company: impl Into<CompanyId>, path: impl Into<String>) -> Result<Self, StoreError> {
        let (company, path): (CompanyId, String) = (company.into(), path.into());
        if !company.is_empty() {
            check_key_part("the company id", &company, MAX_ID_BYTES)?;
        }
        check_key_part("the collection", &path, MAX_COLLECTION_BYTES)?;
        Ok(Self { company, path: path.into(), counted_for: CountedFor::default() })
    }

    /// Returns the collection `part` nested in this one. Different sequences of parts are different collections,
    /// regardless of the characters in the parts.
    pub fn within(mut self, part: &str) -> Result<Self, StoreError> {
        check_key_part("a part of the collection", part, MAX_KEY_ID_BYTES)?;
        self.path = [&*self.path, "/", &*escape(part)].concat().into();
        check_key_part("the collection", &self.path, MAX_COLLECTION_BYTES)?;
        Ok(self)
    }

    /// Returns the key of the record `id` in this collection.
    pub fn key(&self, id: impl Into<String>) -> Result<Key, StoreError> {
        self.clone().into_key(id)
    }

    /// Converts the collection into the key of `id`, without the clone of [`Self::key`].
    fn into_key(self, id: impl Into<String>) -> Result<Key, StoreError> {
        let id = id.into();
        check_key_part("the id", &id, MAX_KEY_ID_BYTES)?;
        Ok(Key { collection: self, id })
    }

    /// Returns the collection, with operations on it counted for a company: for one of the platform, where the company is known
    /// that an operation is for. A store that queues operations by company then queues it with this company's operations. The
    /// records are the same.
    #[must_use]
    pub fn counted_for(self, company_id: &CompanyId) -> Self {
        Self { counted_for: CountedFor(Some(company_id.clone())), ..self }
    }

    /// Returns the company that operations are counted for, if [`counted_for`](Self::counted_for) has set one.
    pub fn counted_company(&self) -> Option<&CompanyId> {
        self.counted_for.0.as_ref()
    }

    /// Returns the tenant.
    pub fn company(&self) -> &str {
        &self.company
    }

    /// Returns the path below the tenant, its parts escaped and joined by `/`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Iterates over the unescaped parts of the path.
    pub fn parts(&self) -> impl Iterator<Item = String> {
        self.path.split('/').map(|part| part.replace("%2F", "/").replace("%25", "%"))
    }
}

/// Key of a record: tenant, collection and id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    collection: Collection,
    id: String,
}

impl Key {
    /// Creates the key of `id` in the collection `name` of `company`; see [`Collection::new`] for errors.
    pub fn new(company: impl Into<CompanyId>, name: &str, id: impl Into<String>) -> Result<Self, StoreError> {
        Collection::new(company, name)?.into_key(id)
    }

    /// Returns the key, with operations on it counted for a company; see [`Collection::counted_for`].
    #[must_use]
    pub fn counted_for(self, company_id: &CompanyId) -> Self {
        Self { collection: self.collection.counted_for(company_id), id: self.id }
    }

    /// Returns the tenant and the collection.
    pub fn collection(&self) -> &Collection {
        &self.collection
    }

    /// Returns the tenant.
    pub fn company(&self) -> &str {
        self.collection.company()
    }

    /// Returns the record's id within its collection.
    pub fn id(&self) -> &str {
        &self.id
    }
}

fn check_key_part(part_name: &str, text: &str, limit: usize) -> Result<(), StoreError> {
    let fault = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > limit {
        format!("has {} bytes; the limit is {limit}", text.len())
    } else if !is_plain(text) && text.chars().any(char::is_control) {
        "has a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(StoreError::Invalid(format!("{part_name} {fault}")))
}

/// Returns true if the text is printable ASCII, as most are. Written without early exit so that it is vectorized.
fn is_plain(text: &str) -> bool {
    text.bytes().fold(true, |plain, byte| plain & (b' '..=b'~').contains(&byte))
}

/// Escapes `/`, which separates the parts of a path, and `%`.
fn escape(part: &str) -> Cow<'_, str> {
    if !part.contains(['%', '/']) {
        return Cow::Borrowed(part);
    }
    Cow::Owned(part.replace('%', "%25").replace('/', "%2F"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_company_that_a_key_is_counted_for_is_not_part_of_it() {
        let key = Collection::of_platform("tokens").expect("a name").key("1").expect("a key");
        let counted = key.clone().counted_for(&"acme".into());
        assert_eq!(counted.collection().counted_company().map(CompanyId::as_str), Some("acme"));
        assert_eq!((&key, key.cmp(&counted)), (&counted, Ordering::Equal));
        assert_eq!(HashSet::from([key, counted]).len(), 1);
    }

    #[test]
    fn a_key_has_no_part_that_some_database_would_refuse() {
        let long = "x".repeat(MAX_KEY_ID_BYTES + 1);
        for (company, collection, id, fault) in [
            ("", "docs", "1", "the company id is empty"),
            ("c", "", "1", "the collection is empty"),
            ("c", "docs", "", "the id is empty"),
            ("c", "docs", "a\0b", "the id has a control character"),
            ("c", "docs", long.as_str(), "the id has 257 bytes; the limit is 256"),
        ] {
            let error = Key::new(company, collection, id).expect_err(fault);
            assert_eq!(error.to_string(), fault);
        }
        assert!(Key::new("c", "docs", "ü/%\u{1F600}").is_ok());
    }

    #[test]
    fn different_parts_are_different_collections() {
        let path = |parts: &[&str]| {
            let base = Collection::new("c", "m").expect("a name");
            let nested = parts.iter().try_fold(base, |collection, part| collection.within(part));
            nested.expect("parts").path().to_owned()
        };
        assert_eq!(path(&["a", "b"]), "m/a/b");
        assert_ne!(path(&["a/b"]), path(&["a", "b"]));
        assert_ne!(path(&["a%2Fb"]), path(&["a/b"]));
        for parts in [&["a", "b"][..], &["a/b"], &["a%2Fb", "%25", "/%"]] {
            let stored = Collection::from_stored("c", path(parts)).expect("as it was kept");
            assert_eq!(stored.parts().skip(1).collect::<Vec<_>>(), parts);
        }
    }

    #[test]
    fn callers_cannot_access_the_platforms_records() {
        assert_eq!(Collection::of_platform("agents").expect("a name").company(), "");
        assert!(Collection::new("", "agents").is_err());
    }
}
