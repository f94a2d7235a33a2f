//! Users who sign in to a subscription: the keys of their records, and the associated data of their secrets.

use std::hash::Hash;

use agent_core::ids::{CompanyId, UserId};

use super::tasks::TaskKey;
use crate::records::{Key, StoreError};
use crate::seal::SealError;

/// Collection of the users' sign-ins, one record per user.
pub const SIGN_IN_COLLECTION: &str = "codingSignIns";
/// Collection of the users' tokens, one record per user.
pub const TOKEN_COLLECTION: &str = "codingTokens";

/// User of a company who signs in to a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Subscriber {
    pub(super) company_id: CompanyId,
    pub(super) user_id: UserId,
}

impl TaskKey for Subscriber {
    fn company_id(&self) -> &CompanyId {
        &self.company_id
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> TaskKey for (Subscriber, T) {
    fn company_id(&self) -> &CompanyId {
        &self.0.company_id
    }
}

impl Subscriber {
    pub(super) fn new(company_id: &CompanyId, user_id: &UserId) -> Self {
        Self { company_id: company_id.clone(), user_id: user_id.clone() }
    }

    pub(super) fn sign_ins_key(&self) -> Result<Key, StoreError> {
        Key::new(&self.company_id, SIGN_IN_COLLECTION, self.user_id.as_str())
    }

    pub(super) fn tokens_key(&self) -> Result<Key, StoreError> {
        Key::new(&self.company_id, TOKEN_COLLECTION, self.user_id.as_str())
    }

    /// Returns the associated data to which a secret is bound when it is sealed.
    pub(super) fn associated_data<'a>(&'a self, field: &'a str) -> [&'a str; 4] {
        ["coding", &self.company_id, &self.user_id, field]
    }

    /// Converts a sealing error for a field of the user's records into an error of the store.
    pub(super) fn unreadable(&self, field: &str, error: SealError) -> StoreError {
        error.into_store_error(&self.user_id, format!("coding.{field}"))
    }
}
