//! [`Providers`]: the providers of all companies.

use std::sync::Arc;
use std::time::SystemTime;

use agent_core::ids::{AgentId, CompanyId};
use agent_core::role::{Container, EmbeddedAi, FallbackModel, RoleBlock};
use agent_core::secret::Secret;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Provider, ProviderInput};
use crate::catalog::CatalogModel;
use crate::company_cache::CompanyCache;
use crate::records::{
    Collection, CountQuota, CountQuotaError, Key, ListQuery, MAX_PAGE_RECORDS, Page, Precondition, Record,
    Records, RecordsExt, StoreError, Write, put_within, to_json,
};
use crate::roles::{RoleStore, company_provider_id};
use crate::seal::{SealError, Sealer};

/// Name of a company's collection of providers.
pub(crate) const PROVIDERS: &str = "providers";
/// Name of the sealed field, as a part of the associated data of a key and in errors.
const API_KEY: &str = "apiKey";
/// Maximum size of the cache in bytes: some hundred providers of usual size.
const MAX_CACHE_BYTES: usize = 4 << 20;
/// Maximum number of agents that [`agents_with_provider`] returns.
const MAX_NAMED_AGENTS: usize = 10;

/// A provider as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredProvider {
    /// The provider.
    #[serde(flatten)]
    pub provider: Provider,
    /// Sealed key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sealed_api_key: Option<String>,
}

impl StoredProvider {
    /// Returns true if there is a key.
    pub fn has_key(&self) -> bool {
        self.sealed_api_key.is_some()
    }

    /// Returns the JSON form, with the key masked.
    pub fn masked_json(&self, id: &str) -> Value {
        self.provider.masked_json(id, self.has_key())
    }
}

/// A provider with its key.
#[derive(Debug)]
pub struct OpenedProvider {
    id: String,
    provider: Provider,
    api_key: Option<Secret>,
    /// Date of the last change, which is that of the prices.
    as_of: String,
}

impl OpenedProvider {
    /// Returns the provider.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Returns the models with the provider's identifier and the date of their prices.
    pub fn catalog(&self) -> Vec<CatalogModel> {
        self.provider.catalog(&self.id, &self.as_of)
    }

    /// Completes a container that names the provider, or has named it before it was completed.
    pub(crate) fn complete(&self, settings: &mut EmbeddedAi) {
        let EmbeddedAi { provider, model, base_url, api_key, company_model, .. } = settings;
        self.fill(model.as_deref(), (provider, base_url, api_key), company_model);
    }

    fn complete_fallback(&self, fallback: &mut FallbackModel) {
        let FallbackModel { provider, model, base_url, api_key, company_model, .. } = fallback;
        self.fill(model.as_deref(), (provider, base_url, api_key), company_model);
    }

    /// Replaces all fields that decide where a key is sent.
    fn fill(
        &self,
        model: Option<&str>,
        (provider, base_url, api_key): (&mut Option<String>, &mut Option<String>, &mut Option<Secret>),
        entry: &mut Option<Arc<Map<String, Value>>>,
    ) {
        *provider = Some(self.provider.provider_type.as_str().to_owned());
        base_url.clone_from(&self.provider.base_url);
        api_key.clone_from(&self.api_key);
        let model = model.unwrap_or_default().trim();
        *entry = Some(Arc::new(self.provider.entry(&self.id, model, &self.as_of)));
    }
}

/// A provider as of a version and its time: a database that takes over without the latest writes may give out their versions
/// again.
#[derive(Clone)]
struct CachedProvider {
    version: u64,
    updated: SystemTime,
    provider: Arc<OpenedProvider>,
}

/// Returns the size of a provider in the cache: its parsed models take more memory than their text.
const fn cached_bytes(text_bytes: usize) -> usize {
    4 * text_bytes + 512
}

/// The providers of all companies, with their keys sealed.
///
/// Opened providers are cached; reading one again costs one lookup of its version, as with roles.
pub struct Providers {
    records: Arc<dyn Records>,
    sealer: Arc<Sealer>,
    cache: CompanyCache<String, CachedProvider>,
}

impl std::fmt::Debug for Providers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Providers").finish_non_exhaustive()
    }
}

impl Providers {
    /// Creates the providers in `records`, whose keys are sealed by `sealer`.
    pub fn new(records: Arc<dyn Records>, sealer: Arc<Sealer>) -> Self {
        Self { records, sealer, cache: CompanyCache::new(MAX_CACHE_BYTES) }
    }

    /// Returns a provider without its key, if the company has it.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn get(
        &self,
        company: &CompanyId,
        id: &str,
    ) -> Result<Option<Record<StoredProvider>>, StoreError> {
        let Ok(key) = provider_key(company, id) else { return Ok(None) };
        self.records.get_as(&key).await
    }

    /// Returns one page of a company's providers without their keys, ordered by the bytes of their identifiers.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn list(
        &self,
        company: &CompanyId,
        list: &ListQuery,
    ) -> Result<Page<StoredProvider>, StoreError> {
        self.records.list_as(&Collection::new(company, PROVIDERS)?, list).await
    }

    /// Returns the number of a company's providers.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn count(&self, company: &CompanyId) -> Result<u64, StoreError> {
        self.records.count(&Collection::new(company, PROVIDERS)?).await
    }

    /// Returns the models of all providers of a company, in the order of providers and as they were given.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn catalog(&self, company: &CompanyId) -> Result<Vec<(Provider, CatalogModel)>, StoreError> {
        let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
        let mut models = Vec::new();
        loop {
            let page = self.list(company, &list).await?;
            for record in page.records {
                let provider = record.value.provider;
                let known = provider.catalog(&record.id, &date_of(record.updated));
                let bare = Provider { models: Vec::new(), ..provider };
                models.extend(known.into_iter().map(|model| (bare.clone(), model)));
            }
            list.cursor = page.next_cursor;
            if list.cursor.is_none() {
                return Ok(models);
            }
        }
    }

    /// Writes a provider and returns its version. A key that is absent or masked keeps its stored value while the address
    /// stays, by the rule of [`merge_secrets`](crate::roles::merge_secrets); an empty one is cleared.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the precondition does not hold, [`StoreError::NotConfigured`] for a key without a secret to
    /// seal it, other errors of the store.
    pub async fn put(
        &self,
        company: &CompanyId,
        id: &str,
        input: &ProviderInput,
        precondition: Precondition,
    ) -> Result<u64, StoreError> {
        let key = provider_key(company, id)?;
        let stored_provider = self.records.get_as::<StoredProvider>(&key).await?;
        let version = stored_provider.as_ref().map(|stored_provider| stored_provider.version);
        precondition.check(version)?;
        let stored = self.sealed(&key, input, stored_provider)?;
        self.records.put_as(&key, &stored, Precondition::unchanged_since(version)).await
    }

    /// Creates a provider as [`put`](Self::put) does. Concurrent creations do not make the company's providers more than
    /// `max_providers` together.
    ///
    /// # Errors
    /// Errors of [`put`](Self::put); [`StoreError::Conflict`] if the provider exists, or if the company has `max_providers`
    /// providers.
    pub async fn create(
        &self,
        company: &CompanyId,
        id: &str,
        input: &ProviderInput,
        max_providers: u64,
    ) -> Result<u64, StoreError> {
        let key = provider_key(company, id)?;
        let value = to_json(&self.sealed(&key, input, None)?)?;
        let put = Write::Put { key, value, precondition: Precondition::Absent };
        let quota = CountQuota { company_id: company, collection: PROVIDERS, limit: max_providers };
        put_within(&*self.records, &quota, &[put]).await.map_err(CountQuotaError::into_conflict)
    }

    /// Returns a provider as it is stored in place of `stored_provider`.
    fn sealed(
        &self,
        key: &Key,
        input: &ProviderInput,
        stored_provider: Option<Record<StoredProvider>>,
    ) -> Result<StoredProvider, StoreError> {
        let provider = input.provider.clone();
        let sealed_api_key = match input.api_key.as_ref().filter(|api_key| !api_key.is_mask()) {
            Some(api_key) if api_key.expose().is_empty() => None,
            Some(api_key) => Some(self.seal(key, api_key)?),
            None => stored_provider
                .filter(|stored_provider| {
                    stored_provider.value.provider.destination() == provider.destination()
                })
                .and_then(|stored_provider| stored_provider.value.sealed_api_key),
        };
        Ok(StoredProvider { provider, sealed_api_key })
    }

    /// Deletes a provider; false if there was none.
    ///
    /// # Errors
    /// Errors of the store; a conflict if the precondition does not hold.
    pub async fn delete(
        &self,
        company: &CompanyId,
        id: &str,
        precondition: Precondition,
    ) -> Result<bool, StoreError> {
        let Ok(key) = provider_key(company, id) else { return Ok(false) };
        self.records.delete(&key, precondition).await
    }

    /// Returns a provider with its key, for the code that calls it.
    ///
    /// # Errors
    /// Errors of the store, among them [`StoreError::UnreadableSecret`] and [`StoreError::NotConfigured`].
    pub async fn open(
        &self,
        company: &CompanyId,
        id: &str,
    ) -> Result<Option<Arc<OpenedProvider>>, StoreError> {
        let Ok(key) = provider_key(company, id) else { return Ok(None) };
        let Some(record) = self.records.get(&key).await? else {
            self.cache.remove(company, id);
            return Ok(None);
        };
        let (version, updated, bytes) = (record.version, record.updated, record.value.get().len());
        let cached = self.cache.get(company, id);
        if let Some(cached) = cached.filter(|cached| (cached.version, cached.updated) == (version, updated)) {
            return Ok(Some(cached.provider));
        }
        let StoredProvider { provider, sealed_api_key } =
            record.parse::<StoredProvider>(key.collection())?.value;
        let api_key = sealed_api_key.map(|sealed| self.unseal(&key, &sealed)).transpose()?;
        let as_of = date_of(updated);
        let provider = Arc::new(OpenedProvider { id: id.to_owned(), provider, api_key, as_of });
        let cached = CachedProvider { version, updated, provider: provider.clone() };
        self.cache.insert(company, id.to_owned(), cached, cached_bytes(bytes));
        Ok(Some(provider))
    }

    /// Returns the company's providers that a role names, with their keys. Names without a provider are left out.
    ///
    /// # Errors
    /// Errors of [`open`](Self::open).
    pub(super) async fn open_named(&self, role: &RoleBlock) -> Result<Vec<Arc<OpenedProvider>>, StoreError> {
        let mut opened = Vec::new();
        for id in named_providers(role) {
            opened.extend(self.open(&role.company_id, &id).await?);
        }
        Ok(opened)
    }

    /// Completes the containers of a role that name providers of its company. One that names a provider which the company
    /// does not have stays as it is.
    ///
    /// # Errors
    /// Errors of [`open`](Self::open).
    pub async fn complete_role(&self, role: Arc<RoleBlock>) -> Result<Arc<RoleBlock>, StoreError> {
        let opened = self.open_named(&role).await?;
        match opened.is_empty() {
            true => Ok(role),
            false => Ok(Arc::new(complete(Arc::unwrap_or_clone(role), &opened))),
        }
    }

    fn seal(&self, key: &Key, secret: &Secret) -> Result<String, StoreError> {
        let sealed = self.sealer.seal(&associated_data(key), secret);
        sealed.map_err(|error| unreadable(key, error))
    }

    fn unseal(&self, key: &Key, sealed: &str) -> Result<Secret, StoreError> {
        let opened = self.sealer.open(&associated_data(key), sealed);
        opened.map_err(|error| unreadable(key, error))
    }
}

/// Completes the containers of a role that name one of the providers.
pub(super) fn complete(mut role: RoleBlock, opened: &[Arc<OpenedProvider>]) -> RoleBlock {
    let find = |name: &Option<String>| {
        let id = company_provider_id(name.as_deref())?;
        opened.iter().find(|provider| provider.id == id)
    };
    for child in &mut role.children {
        let Container::EmbeddedAi(settings) = child else { continue };
        if let Some(provider) = find(&settings.provider) {
            provider.complete(settings);
        }
        for fallback in &mut settings.fallbacks {
            if let Some(provider) = find(&fallback.provider) {
                provider.complete_fallback(fallback);
            }
        }
    }
    role
}

pub(crate) fn provider_key(company: &CompanyId, id: &str) -> Result<Key, StoreError> {
    Key::new(company, PROVIDERS, id)
}

/// Returns the associated data to which a key is bound when it is sealed.
pub(super) fn associated_data(key: &Key) -> [&str; 4] {
    ["provider secret", key.company(), key.id(), API_KEY]
}

pub(super) fn unreadable(key: &Key, error: SealError) -> StoreError {
    error.into_store_error(key.id(), API_KEY)
}

fn date_of(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    TimeZone::UTC.to_datetime(time).date().to_string()
}

/// Returns the identifiers of the providers of the company that a role names, each once.
pub(crate) fn named_providers(role: &RoleBlock) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for child in &role.children {
        let Container::EmbeddedAi(settings) = child else { continue };
        let fallbacks = settings.fallbacks.iter().map(|fallback| &fallback.provider);
        for provider in std::iter::once(&settings.provider).chain(fallbacks) {
            let id = company_provider_id(provider.as_deref());
            if let Some(id) = id.filter(|id| ids.iter().all(|known| known != id)) {
                ids.push(id.to_owned());
            }
        }
    }
    ids
}

/// Returns the first agents of a company that name a provider, at most 10, in the order of their identifiers.
///
/// # Errors
/// Errors of the store.
pub async fn agents_with_provider(
    roles: &dyn RoleStore,
    company: &CompanyId,
    id: &str,
) -> Result<Vec<AgentId>, StoreError> {
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    let mut agents = Vec::new();
    loop {
        let page = roles.masked_roles(company, &list).await?;
        let named = page.records.into_iter().map(|record| record.value);
        let named = named.filter(|role| named_providers(role).iter().any(|named| named == id));
        agents.extend(named.map(|role| role.id));
        list.cursor = page.next_cursor;
        if list.cursor.is_none() || agents.len() >= MAX_NAMED_AGENTS {
            agents.truncate(MAX_NAMED_AGENTS);
            return Ok(agents);
        }
    }
}
