//! Roles at rest: a store of role blocks, with their secrets apart and sealed.

use agent_core::role::{RoleBlock, RoleSource};
use async_trait::async_trait;

use crate::records::{List, Page, Precondition, Record, StoreError};

mod records;
mod rotation;
mod secrets;

pub use records::RecordRoles;
pub(crate) use records::{ROLES, RoleKeys, Stored, as_found};
pub use rotation::Rotated;
pub use secrets::merge_secrets;
pub(crate) use secrets::places;

/// Where roles come from and are kept.
///
/// The contract, held by `conformance::role_store`:
///
/// - an agent of another company is as absent as one that never was, and so is one whose id none can have;
/// - an agent's id is unique among all companies;
/// - a role is replaced whole, its secrets by the rule of [`merge_secrets`], and the next read gives it;
/// - a write whose precondition does not hold changes nothing;
/// - secrets are given by [`role`](RoleSource::role) alone, to the code that sends them.
#[async_trait]
pub trait RoleStore: RoleSource {
    /// The role of `agent_id` as it may be shown, its secrets masked, with the version that
    /// [`put_role`](Self::put_role) gave for it.
    async fn masked_role(
        &self,
        company_id: &str,
        agent_id: &str,
    ) -> Result<Option<Record<RoleBlock>>, StoreError>;

    /// One page of a company's roles by the bytes of their ids, as they may be shown.
    async fn masked_roles(&self, company_id: &str, list: &List) -> Result<Page<RoleBlock>, StoreError>;

    /// Saves a role under its own id and company, and gives its version. Of its secrets, those that are
    /// absent or masked stay as they are; see [`merge_secrets`].
    ///
    /// # Errors
    /// [`StoreError::Taken`] where another company has the id, [`StoreError::Conflict`] where the
    /// precondition does not hold, [`StoreError::Invalid`] for an id that no agent can have,
    /// [`StoreError::NotConfigured`] for a secret where there is no key to seal it with.
    async fn put_role(&self, role: RoleBlock, precondition: Precondition) -> Result<u64, StoreError>;

    /// Removes a role with its secrets and says whether there was one. Its id is free again. What the
    /// agent has made, such as its memory, stays.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] where the precondition does not hold.
    async fn delete_role(
        &self,
        company_id: &str,
        agent_id: &str,
        precondition: Precondition,
    ) -> Result<bool, StoreError>;
}
