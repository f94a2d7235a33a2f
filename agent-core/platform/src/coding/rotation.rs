//! Rotation of the operator's key for the secrets of subscriptions.

use agent_core::ids::CompanyId;

use super::Subscriber;
use super::sign_ins::{Phase, StoredSignIns};
use super::stored::{SIGN_IN_COLLECTION, StoredTokens, TOKEN_COLLECTION, put, seal_store_error, sealed};
use crate::records::{
    Collection, Inventory, Key, ListQuery, MAX_PAGE_RECORDS, RecordsExt, StoreError, UPDATE_ATTEMPTS,
};
use crate::roles::RotationReport;
use crate::seal::Sealer;
use serde::Serialize;
use serde::de::DeserializeOwned;

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
    let mut after: Option<String> = None;
    loop {
        let companies = inventory.companies(after.as_deref()).await?;
        let Some(last) = companies.last() else { return Ok(()) };
        after = Some(last.clone());
        for company in companies.iter().filter(|company| !company.is_empty()) {
            rotate_collection::<StoredTokens>(inventory, sealer, company, TOKEN_COLLECTION, report).await?;
            rotate_collection::<StoredSignIns>(inventory, sealer, company, SIGN_IN_COLLECTION, report)
                .await?;
        }
    }
}

/// A stored value with sealed fields.
trait HasSealedFields: Serialize + DeserializeOwned + Send + Sync {
    /// Returns the sealed fields that are set, each with its name.
    fn sealed_fields(&mut self) -> Vec<(&'static str, &mut String)>;
}

impl HasSealedFields for StoredTokens {
    fn sealed_fields(&mut self) -> Vec<(&'static str, &mut String)> {
        let Self { access, refresh, account, .. } = self;
        let fields = [(sealed::ACCESS, access), (sealed::REFRESH, refresh), (sealed::ACCOUNT, account)];
        fields.into_iter().filter_map(|(name, field)| Some((name, field.as_mut()?))).collect()
    }
}

impl HasSealedFields for StoredSignIns {
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

async fn rotate_collection<T: HasSealedFields>(
    inventory: &dyn Inventory,
    sealer: &Sealer,
    company: &str,
    collection: &str,
    report: &mut RotationReport,
) -> Result<(), StoreError> {
    let company_id = CompanyId::from(company);
    let collection = Collection::new(company, collection)?;
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    loop {
        let page = inventory.list(&collection, &list).await?;
        for record in page.records {
            let key = collection.key(record.id.as_str())?;
            let who = Subscriber { company_id: company_id.clone(), user_id: record.id.into() };
            report.merge(rotate_record::<T>(inventory, sealer, &who, &key).await?);
        }
        if page.next_cursor.is_none() {
            return Ok(());
        }
        list.cursor = page.next_cursor;
    }
}

async fn rotate_record<T: HasSealedFields>(
    inventory: &dyn Inventory,
    sealer: &Sealer,
    who: &Subscriber,
    key: &Key,
) -> Result<RotationReport, StoreError> {
    let mut attempt = 1;
    loop {
        let Some(mut found) = inventory.get_as::<T>(key).await? else { return Ok(RotationReport::default()) };
        let rotated = reseal(sealer, who, found.value.sealed_fields())?;
        if rotated.resealed == 0 {
            return Ok(rotated);
        }
        match inventory.commit(vec![put(key.clone(), &found.value, Some(found.version))?]).await {
            Ok(_) => return Ok(rotated),
            Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

fn reseal(
    sealer: &Sealer,
    who: &Subscriber,
    fields: Vec<(&'static str, &mut String)>,
) -> Result<RotationReport, StoreError> {
    let mut rotated = RotationReport::default();
    for (name, field) in fields {
        if sealer.is_current(field) {
            rotated.already_current += 1;
            continue;
        }
        let place = who.seal_place(name);
        match sealer.open(&place, field).and_then(|secret| sealer.seal(&place, &secret)) {
            Ok(resealed) => {
                *field = resealed;
                rotated.resealed += 1;
            }
            Err(error) => match seal_store_error(&who.user_id, name, error) {
                fault @ StoreError::UnreadableSecret { .. } => {
                    rotated.unopened += 1;
                    rotated.errors.push(fault);
                }
                error => return Err(error),
            },
        }
    }
    Ok(rotated)
}
