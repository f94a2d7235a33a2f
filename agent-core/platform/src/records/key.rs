//! Where records are: tenant, collection, id.

use std::borrow::Cow;

use super::StoreError;

/// The most bytes that a company's or a thing's identifier has.
pub const MAX_ID_BYTES: usize = 128;
/// The most bytes that a key's id has: room for keys that are made from an identifier and a suffix.
pub const MAX_KEY_ID_BYTES: usize = 256;
/// The most bytes that a collection's path has.
pub const MAX_COLLECTION_BYTES: usize = 1024;

/// A set of records of one company, by a path such as `documents` or `memories/agent-7/notes`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Collection {
    company: String,
    path: String,
}

impl Collection {
    /// The collection `name` of `company`. Fails with [`StoreError::Invalid`] on an empty or overlong
    /// part and on control characters, which not every database can hold.
    pub fn new(company: impl Into<String>, name: &str) -> Result<Self, StoreError> {
        let company = company.into();
        check("the company id", &company, MAX_ID_BYTES)?;
        let path = escape(name).into_owned();
        check("the collection", &path, MAX_COLLECTION_BYTES)?;
        Ok(Self { company, path })
    }

    /// The collection `name` of no company but of the platform as a whole, such as the index that leads
    /// from an agent's id to its company. Its company reads as empty, which no caller's can be, so nothing
    /// that a request says leads here.
    pub fn of_platform(name: &str) -> Result<Self, StoreError> {
        let path = escape(name).into_owned();
        check("the collection", &path, MAX_COLLECTION_BYTES)?;
        Ok(Self { company: String::new(), path })
    }

    /// A collection as a store has kept it: `company` and `path` are what [`Self::company`] and
    /// [`Self::path`] gave.
    pub fn stored(company: impl Into<String>, path: impl Into<String>) -> Result<Self, StoreError> {
        let (company, path) = (company.into(), path.into());
        if !company.is_empty() {
            check("the company id", &company, MAX_ID_BYTES)?;
        }
        check("the collection", &path, MAX_COLLECTION_BYTES)?;
        Ok(Self { company, path })
    }

    /// The collection `part` below this one. Two different sequences of parts are two different
    /// collections, whatever characters the parts contain.
    pub fn within(mut self, part: &str) -> Result<Self, StoreError> {
        check("a part of the collection", part, MAX_KEY_ID_BYTES)?;
        self.path = [&*self.path, "/", &*escape(part)].concat();
        check("the collection", &self.path, MAX_COLLECTION_BYTES)?;
        Ok(self)
    }

    /// The key of the record `id` in this collection.
    pub fn key(&self, id: impl Into<String>) -> Result<Key, StoreError> {
        self.clone().into_key(id)
    }

    /// As [`Self::key`], for who needs the collection no more.
    fn into_key(self, id: impl Into<String>) -> Result<Key, StoreError> {
        let id = id.into();
        check("the id", &id, MAX_KEY_ID_BYTES)?;
        Ok(Key { collection: self, id })
    }

    /// The tenant.
    pub fn company(&self) -> &str {
        &self.company
    }

    /// The path below the tenant, its parts escaped and joined by `/`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The parts of the path, as they were given.
    pub fn parts(&self) -> impl Iterator<Item = String> {
        self.path.split('/').map(|part| part.replace("%2F", "/").replace("%25", "%"))
    }
}

/// Where a record is: tenant, collection and id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    collection: Collection,
    id: String,
}

impl Key {
    /// The key of `id` in the collection `name` of `company`; see [`Collection::new`] for what fails.
    pub fn new(company: impl Into<String>, name: &str, id: impl Into<String>) -> Result<Self, StoreError> {
        Collection::new(company, name)?.into_key(id)
    }

    /// The tenant and the collection.
    pub fn collection(&self) -> &Collection {
        &self.collection
    }

    /// The tenant.
    pub fn company(&self) -> &str {
        self.collection.company()
    }

    /// The record's id within its collection.
    pub fn id(&self) -> &str {
        &self.id
    }
}

fn check(what: &str, text: &str, limit: usize) -> Result<(), StoreError> {
    let fault = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > limit {
        format!("has {} bytes, and at most {limit} are taken", text.len())
    } else if !is_plain(text) && text.chars().any(char::is_control) {
        "has a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(StoreError::Invalid(format!("{what} {fault}")))
}

/// Whether a text is printable ASCII, as most are: said of many bytes at a time.
fn is_plain(text: &str) -> bool {
    text.bytes().fold(true, |plain, byte| plain & (b' '..=b'~').contains(&byte))
}

/// Keeps `/` for what joins the parts of a path.
fn escape(part: &str) -> Cow<'_, str> {
    if !part.contains(['%', '/']) {
        return Cow::Borrowed(part);
    }
    Cow::Owned(part.replace('%', "%25").replace('/', "%2F"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_no_part_that_some_database_would_refuse() {
        let long = "x".repeat(MAX_KEY_ID_BYTES + 1);
        for (company, collection, id, fault) in [
            ("", "docs", "1", "the company id is empty"),
            ("c", "", "1", "the collection is empty"),
            ("c", "docs", "", "the id is empty"),
            ("c", "docs", "a\0b", "the id has a control character"),
            ("c", "docs", long.as_str(), "the id has 257 bytes, and at most 256 are taken"),
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
            parts.iter().try_fold(base, |collection, part| collection.within(part)).expect("parts").path
        };
        assert_eq!(path(&["a", "b"]), "m/a/b");
        assert_ne!(path(&["a/b"]), path(&["a", "b"]));
        assert_ne!(path(&["a%2Fb"]), path(&["a/b"]));
        for parts in [&["a", "b"][..], &["a/b"], &["a%2Fb", "%25", "/%"]] {
            let stored = Collection::stored("c", path(parts)).expect("as it was kept");
            assert_eq!(stored.parts().skip(1).collect::<Vec<_>>(), parts);
        }
    }

    #[test]
    fn no_caller_reaches_what_is_the_platforms() {
        assert_eq!(Collection::of_platform("agents").expect("a name").company(), "");
        assert!(Collection::new("", "agents").is_err());
    }
}
