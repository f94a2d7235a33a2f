//! [`ProviderRoles`]: roles whose containers are completed with the providers of their company.

use std::sync::Arc;

use agent_core::ids::{AgentId, CompanyId};
use agent_core::role::{RoleBlock, RoleSource};
use async_trait::async_trait;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::store::{OpenedProvider, Providers, complete};
use crate::records::StoreError;

/// Capacity of the cache of completed roles, in bytes. Evicts the least used first.
const MAX_CACHE_BYTES: u64 = 16 << 20;
/// Assumed weight of a completed role in the cache, in bytes.
const TYPICAL_ROLE_BYTES: u64 = 16 << 10;

/// A [`RoleSource`] that completes the containers which name a provider of the company.
///
/// A completed role is cached, and used again as long as the source returns the same object and its providers are unchanged:
/// a turn copies no role.
pub struct ProviderRoles {
    roles: Arc<dyn RoleSource>,
    providers: Arc<Providers>,
    completed: Cache<(CompanyId, AgentId), CompletedRole, CompletedRoleWeighter>,
}

/// A completed role, with the objects from which it was made.
#[derive(Clone)]
struct CompletedRole {
    stored: Arc<RoleBlock>,
    providers: Arc<[Arc<OpenedProvider>]>,
    role: Arc<RoleBlock>,
    text_bytes: usize,
}

impl CompletedRole {
    fn is_made_from(&self, stored: &Arc<RoleBlock>, providers: &[Arc<OpenedProvider>]) -> bool {
        Arc::ptr_eq(&self.stored, stored)
            && self.providers.len() == providers.len()
            && self.providers.iter().zip(providers).all(|(own, other)| Arc::ptr_eq(own, other))
    }
}

#[derive(Clone)]
struct CompletedRoleWeighter;

impl Weighter<(CompanyId, AgentId), CompletedRole> for CompletedRoleWeighter {
    fn weight(&self, _: &(CompanyId, AgentId), completed: &CompletedRole) -> u64 {
        // The stored role and the completed one each take about twice their text.
        4 * completed.text_bytes as u64 + 4096
    }
}

impl ProviderRoles {
    /// Wraps a source.
    pub fn new(roles: Arc<dyn RoleSource>, providers: Arc<Providers>) -> Self {
        let usual = usize::try_from(MAX_CACHE_BYTES / TYPICAL_ROLE_BYTES).unwrap_or(usize::MAX);
        let completed = Cache::with_weighter(usual, MAX_CACHE_BYTES, CompletedRoleWeighter);
        Self { roles, providers, completed }
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
        let key = (company_id.clone(), agent_id.clone());
        let cached = self.completed.get(&key);
        if let Some(cached) = cached.filter(|cached| cached.is_made_from(&stored, &opened)) {
            return Ok(Some(cached.role));
        }
        let role = Arc::new(complete(RoleBlock::clone(&stored), &opened));
        let text_bytes = serde_json::to_vec(&*role).map_or(0, |json| json.len());
        let completed = CompletedRole { stored, providers: opened.into(), role: role.clone(), text_bytes };
        self.completed.insert(key, completed);
        Ok(Some(role))
    }
}
