//! [`ProviderRoles`]: roles whose containers are completed with the providers of their company.

use std::sync::Arc;

use agent_core::ids::{AgentId, CompanyId};
use agent_core::role::{RoleBlock, RoleSource};
use async_trait::async_trait;

use super::store::{OpenedProvider, Providers, complete};
use crate::company_cache::CompanyCache;
use crate::records::StoreError;

/// Maximum size of the cache of completed roles, in bytes.
const MAX_CACHE_BYTES: usize = 16 << 20;

/// A [`RoleSource`] that completes the containers which name a provider of the company.
///
/// A completed role is cached, and used again as long as the source returns the same object and its providers are unchanged:
/// a turn copies no role.
pub struct ProviderRoles {
    roles: Arc<dyn RoleSource>,
    providers: Arc<Providers>,
    completed: CompanyCache<AgentId, CompletedRole>,
}

impl std::fmt::Debug for ProviderRoles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderRoles").finish_non_exhaustive()
    }
}

/// A completed role, with the objects from which it was made.
#[derive(Clone)]
struct CompletedRole {
    stored: Arc<RoleBlock>,
    providers: Arc<[Arc<OpenedProvider>]>,
    role: Arc<RoleBlock>,
}

impl CompletedRole {
    fn is_made_from(&self, stored: &Arc<RoleBlock>, providers: &[Arc<OpenedProvider>]) -> bool {
        Arc::ptr_eq(&self.stored, stored)
            && self.providers.len() == providers.len()
            && self.providers.iter().zip(providers).all(|(own, other)| Arc::ptr_eq(own, other))
    }
}

/// Returns the size of a completed role in the cache: the stored role and the completed one each take about twice their text.
fn cached_bytes(role: &RoleBlock) -> usize {
    4 * serde_json::to_vec(role).map_or(0, |json| json.len()) + 4096
}

impl ProviderRoles {
    /// Wraps a source.
    pub fn new(roles: Arc<dyn RoleSource>, providers: Arc<Providers>) -> Self {
        Self { roles, providers, completed: CompanyCache::new(MAX_CACHE_BYTES) }
    }
}

#[async_trait]
impl RoleSource for ProviderRoles {
    async fn role(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
    ) -> Result<Option<Arc<RoleBlock>>, StoreError> {
        let Some(stored) = self.roles.role(company_id, agent_id).await? else { return Ok(None) };
        let opened = self.providers.open_named(&stored).await?;
        if opened.is_empty() {
            return Ok(Some(stored));
        }
        let cached = self.completed.get(company_id, agent_id);
        if let Some(cached) = cached.filter(|cached| cached.is_made_from(&stored, &opened)) {
            return Ok(Some(cached.role));
        }
        let role = Arc::new(complete(RoleBlock::clone(&stored), &opened));
        let completed = CompletedRole { stored, providers: opened.into(), role: role.clone() };
        self.completed.insert(company_id, agent_id.clone(), completed, cached_bytes(&role));
        Ok(Some(role))
    }
}
