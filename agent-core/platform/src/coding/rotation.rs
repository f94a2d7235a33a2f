//! Rotation of the operator's key for the secrets of subscriptions.

use std::marker::PhantomData;

use agent_core::ids::CompanyId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::sign_ins::{Phase, StoredSignIns};
use super::stored::{StoredTokens, sealed};
use super::subscriber::{SIGN_IN_COLLECTION, Subscriber, TOKEN_COLLECTION};
use crate::records::{Collection, Inventory, Key, StoreError};
use crate::roles::{RotationReport, SealedRecords, reseal_fields, rotate};
use crate::seal::Sealer;

/// Seals all secrets of users' subscriptions under the current key that are not yet, and adds them to `report`.
/// Processes that use the tokens meanwhile read them again.
///
/// # Errors
/// [`StoreError::NotConfigured`] if there is a secret and no key, and errors of the store. A secret that cannot be
/// opened is counted instead of failing the rotation.
pub async fn rotate_secrets(
    inventory: &dyn Inventory,
    sealer: &Sealer,
    report: &mut RotationReport,
) -> Result<(), StoreError> {
    rotate(inventory, &SubscriptionSecrets::<StoredTokens>::new(sealer), report).await?;
    rotate(inventory, &SubscriptionSecrets::<StoredSignIns>::new(sealer), report).await?;
    Ok(())
}

/// A stored value with sealed fields, in a collection with one record per user.
trait HasSealedFields: Serialize + DeserializeOwned + Send + Sync {
    /// Path of the collection.
    const COLLECTION: &'static str;

    /// Returns the sealed fields that are set, each with its name.
    fn sealed_fields(&mut self) -> Vec<(&'static str, &mut String)>;
}

impl HasSealedFields for StoredTokens {
    const COLLECTION: &'static str = TOKEN_COLLECTION;

    fn sealed_fields(&mut self) -> Vec<(&'static str, &mut String)> {
        let Self { access, refresh, account, .. } = self;
        let fields = [(sealed::ACCESS, access), (sealed::REFRESH, refresh), (sealed::ACCOUNT, account)];
        fields.into_iter().filter_map(|(name, field)| Some((name, field.as_mut()?))).collect()
    }
}

impl HasSealedFields for StoredSignIns {
    const COLLECTION: &'static str = SIGN_IN_COLLECTION;

    fn sealed_fields(&mut self) -> Vec<(&'static str, &mut String)> {
        let fields = self.sign_ins.iter_mut().flat_map(|sign_in| match &mut sign_in.phase {
            Phase::Pending(pending) => vec![
                (sealed::DEVICE_CODE, &mut pending.device_code),
                (sealed::USER_CODE, &mut pending.user_code),
            ],
            _ => Vec::new(),
        });
        fields.collect()
    }
}

/// The secrets in the records of type `T`.
struct SubscriptionSecrets<'s, T> {
    sealer: &'s Sealer,
    records: PhantomData<fn() -> T>,
}

impl<'s, T> SubscriptionSecrets<'s, T> {
    fn new(sealer: &'s Sealer) -> Self {
        Self { sealer, records: PhantomData }
    }
}

impl<T: HasSealedFields> SealedRecords for SubscriptionSecrets<'_, T> {
    type Value = T;
    const OWNERS: &'static str = T::COLLECTION;

    fn key(&self, company_id: &CompanyId, owner: &str) -> Result<Key, StoreError> {
        Collection::new(company_id, T::COLLECTION)?.key(owner)
    }

    fn reseal(
        &self,
        company_id: &CompanyId,
        owner: &str,
        value: &mut T,
    ) -> Result<RotationReport, StoreError> {
        let subscriber = Subscriber::new(company_id, &owner.into());
        reseal_fields(self.sealer, value.sealed_fields(), |name, sealed| {
            let associated_data = subscriber.associated_data(name);
            let resealed = self
                .sealer
                .open(&associated_data, sealed)
                .and_then(|secret| self.sealer.seal(&associated_data, &secret));
            resealed.map_err(|error| subscriber.unreadable(name, error))
        })
    }
}
