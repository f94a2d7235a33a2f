//! Keys of threads: the company and the owner in every one of them.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use agent_core::ids::{CompanyId, ThreadId, UserId};
use serde::{Deserialize, Serialize};

/// Prefix of the owner of a visitor's threads: `widget:<tokenId>:<hash>`.
pub const VISITOR_OWNER_PREFIX: &str = "widget:";

/// Owner of threads within a company: a user, or a visitor of a widget.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadOwner {
    /// The company.
    pub company: CompanyId,
    /// The user's id, or a visitor's with [`VISITOR_OWNER_PREFIX`].
    pub owner: UserId,
}

impl ThreadOwner {
    /// Creates an owner.
    pub fn new(company: impl Into<CompanyId>, owner: impl Into<UserId>) -> Self {
        Self { company: company.into(), owner: owner.into() }
    }

    /// Returns the key of this owner's thread `id`.
    pub fn thread(&self, id: impl Into<ThreadId>) -> ThreadKey {
        ThreadKey { company: self.company.clone(), owner: self.owner.clone(), id: id.into() }
    }

    /// Returns true for a visitor of a widget.
    pub fn is_visitor(&self) -> bool {
        self.owner.starts_with(VISITOR_OWNER_PREFIX)
    }
}

/// Key of a thread. An id is unique within its owner only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadKey {
    /// The company.
    pub company: CompanyId,
    /// The owner within the company.
    pub owner: UserId,
    /// The thread's id, which the client may have chosen.
    pub id: ThreadId,
}

impl ThreadKey {
    /// Creates a key.
    pub fn new(company: impl Into<CompanyId>, owner: impl Into<UserId>, id: impl Into<ThreadId>) -> Self {
        Self { company: company.into(), owner: owner.into(), id: id.into() }
    }

    /// Returns the owner.
    pub fn thread_owner(&self) -> ThreadOwner {
        ThreadOwner { company: self.company.clone(), owner: self.owner.clone() }
    }
}

/// Identifier of a message node, unique within its thread.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// Creates an id that no other node has.
    pub fn generate() -> Self {
        Self(uuid::Uuid::now_v7().to_string().into())
    }

    /// Returns the identifier's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for NodeId {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl Borrow<str> for NodeId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visitor_is_recognized_by_its_prefix() {
        assert!(ThreadOwner::new("acme", "widget:t1:00ff").is_visitor());
        assert!(!ThreadOwner::new("acme", "ada").is_visitor());
    }
}
