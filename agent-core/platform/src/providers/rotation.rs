//! Rotation of the operator's key for the keys of providers.

use agent_core::ids::CompanyId;

use super::StoredProvider;
use super::store::{PROVIDERS, associated_data, provider_key, unreadable};
use crate::records::{Inventory, Key, StoreError};
use crate::roles::{RotationReport, SealedRecords, reseal_fields, rotate};
use crate::seal::Sealer;

/// Seals the keys of companies' providers that are not sealed under the current key again, and adds them to `report`.
///
/// # Errors
/// [`StoreError::NotConfigured`] if there is a key and no secret to seal it, and errors of the store. A key that cannot be
/// opened is counted instead of failing the rotation.
pub async fn rotate_secrets(
    inventory: &dyn Inventory,
    sealer: &Sealer,
    report: &mut RotationReport,
) -> Result<(), StoreError> {
    rotate(inventory, &ProviderKeys { sealer }, report).await.map(drop)
}

/// The keys in the records of providers.
struct ProviderKeys<'s> {
    sealer: &'s Sealer,
}

impl SealedRecords for ProviderKeys<'_> {
    type Value = StoredProvider;
    const OWNERS: &'static str = PROVIDERS;

    fn key(&self, company_id: &CompanyId, owner: &str) -> Result<Key, StoreError> {
        provider_key(company_id, owner)
    }

    fn reseal(
        &self,
        company_id: &CompanyId,
        owner: &str,
        value: &mut StoredProvider,
    ) -> Result<RotationReport, StoreError> {
        let key = provider_key(company_id, owner)?;
        let fields = value.sealed_api_key.iter_mut().map(|sealed| ("apiKey", sealed));
        reseal_fields(self.sealer, fields, |_, sealed| {
            let associated_data = associated_data(&key);
            let resealed = self
                .sealer
                .open(&associated_data, sealed)
                .and_then(|secret| self.sealer.seal(&associated_data, &secret));
            resealed.map_err(|error| unreadable(&key, error))
        })
    }
}
