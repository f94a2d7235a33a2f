//! [`ProviderRoles`]: roles whose containers are completed with the providers of their company.

use std::sync::Arc;

use agent_core::ids::{AgentId, CompanyId};
use agent_core::role::{RoleBlock, RoleSource};
use async_trait::async_trait;

use super::Providers;
use crate::records::StoreError;

/// A [`RoleSource`] that completes the containers which name a provider of the company.
pub struct ProviderRoles {
    roles: Arc<dyn RoleSource>,
    providers: Arc<Providers>,
}

impl ProviderRoles {
    /// Wraps a source.
    pub fn new(roles: Arc<dyn RoleSource>, providers: Arc<Providers>) -> Self {
        Self { roles, providers }
    }
}

#[async_trait]
impl RoleSource for ProviderRoles {
    async fn role(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
    ) -> Result<Option<Arc<RoleBlock>>, StoreError> {
        match self.roles.role(company_id, agent_id).await? {
            Some(role) => self.providers.complete_role(role).await.map(Some),
            None => Ok(None),
        }
    }
}
