//! Store of role blocks; their secrets are kept in separate records, encrypted.

use agent_core::ids::{AgentId, CompanyId};
use agent_core::role::{RoleBlock, RoleSource};
use async_trait::async_trait;

use crate::records::{ListQuery, MAX_PAGE_RECORDS, Page, Precondition, Record, StoreError};

mod check;
mod provider_id;
mod records;
mod rotation;
mod secrets;

pub(crate) use check::{MAX_NAME_BYTES, TOOL_NAMES, company_provider_faults, unknown_fields, unknown_names};
pub use check::{RoleFinding, rounded_numbers, warnings};
pub use provider_id::{ProviderIdError, check_provider_id, company_provider_id};
pub use records::RecordRoleStore;
pub(crate) use records::{ROLES, RoleKeys, StoredRole};
pub use rotation::RotationReport;
pub(crate) use rotation::{SealedRecords, reseal_fields, rotate};
pub use secrets::{fill_secrets, merge_secrets};
pub(crate) use secrets::{resolve_destination, secret_fields};

/// Storage of roles and their secrets.
///
/// The contract, held by `conformance::role_store`:
///
/// - an agent of another company is absent, and so is one whose id is invalid;
/// - an agent's id is unique within its company: two companies may have agents of the same id;
/// - a role is replaced as a whole, its secrets by the rule of [`merge_secrets`], and the next read returns it;
/// - a write whose precondition does not hold changes nothing;
/// - roles are created up to a number of them;
/// - only [`role`](RoleSource::role) returns secrets, for the code that sends them.
#[async_trait]
pub trait RoleStore: RoleSource {
    /// Returns the role of `agent_id` with its secrets masked, and the version that [`put_role`](Self::put_role)
    /// returned for it.
    async fn masked_role(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
    ) -> Result<Option<Record<RoleBlock>>, StoreError>;

    /// Returns one page of a company's roles with their secrets masked, ordered by the bytes of their ids.
    async fn masked_roles(
        &self,
        company_id: &CompanyId,
        list: &ListQuery,
    ) -> Result<Page<RoleBlock>, StoreError>;

    /// Returns the number of a company's roles. The default implementation reads all of them.
    async fn count_roles(&self, company_id: &CompanyId) -> Result<u64, StoreError> {
        let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
        let mut count = 0;
        loop {
            let page = self.masked_roles(company_id, &list).await?;
            count += page.records.len() as u64;
            list.cursor = page.next_cursor;
            if list.cursor.is_none() {
                return Ok(count);
            }
        }
    }

    /// Saves a role under its own id and company, and returns its version. Secrets that are absent or masked keep their
    /// stored value; see [`merge_secrets`].
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the precondition does not hold, [`StoreError::Invalid`] for an invalid id,
    /// [`StoreError::NotConfigured`] for a secret without a key to seal it.
    async fn put_role(&self, role: RoleBlock, precondition: Precondition) -> Result<u64, StoreError>;

    /// Creates a role as [`put_role`](Self::put_role) does. Concurrent creations do not make the company's roles more than
    /// `max_roles` together. The default implementation counts before it puts, so that they can.
    ///
    /// # Errors
    /// Errors of [`put_role`](Self::put_role); [`StoreError::Conflict`] if the role exists, or if the company has `max_roles`
    /// roles.
    async fn create_role(&self, role: RoleBlock, max_roles: u64) -> Result<u64, StoreError> {
        match self.count_roles(&role.company_id).await? < max_roles {
            true => self.put_role(role, Precondition::Absent).await,
            false => Err(StoreError::Conflict { expected: None, found: None }),
        }
    }

    /// Deletes a role with its secrets and returns true if it existed. Its id becomes free. The caller deletes the agent's
    /// memory, tokens and other records.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the precondition does not hold.
    async fn delete_role(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
        precondition: Precondition,
    ) -> Result<bool, StoreError>;
}
