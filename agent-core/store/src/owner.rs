//! Companies that operations on records are counted for. The queues are round-robin by company.

use agent_platform::records::{Collection, Key};

/// Returns the company for which an operation on records is counted; the platform, whose name is empty, if the records belong
/// to no company.
pub(crate) fn owner_of_keys<'k>(keys: impl IntoIterator<Item = &'k Key>) -> String {
    let mut owners = keys.into_iter().map(|key| owner_of_collection(key.collection()));
    owners.find(|owner| !owner.is_empty()).unwrap_or_default()
}

/// Returns the company that an operation on a collection is counted for. The platform's own collections have one for each
/// company, such as `budgetMeters/<company>`: its records are the platform's, and work of the company. Others are counted for
/// the company that the caller has named.
pub(crate) fn owner_of_collection(collection: &Collection) -> String {
    match (collection.company(), collection.counted_company()) {
        ("", Some(company)) => company.to_string(),
        ("", None) => collection.parts().nth(1).unwrap_or_default(),
        (company, _) => company.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_the_platform_are_counted_for_the_company_that_they_are_of() {
        let platform = |name| Collection::of_platform(name).expect("a collection");
        let of_company = |name, company: &str| platform(name).within(company).expect("a collection");
        let own = |company: &str| Collection::new(company, "things").expect("a collection");
        for (collections, owner) in [
            (vec![own("acme")], "acme"),
            (vec![of_company("budgetMeters", "acme")], "acme"),
            (vec![of_company("userRates", "a/b%")], "a/b%"),
            (vec![platform("tokens")], ""),
            (vec![platform("tokens").counted_for(&"acme".into())], "acme"),
            (vec![own("acme").counted_for(&"other".into())], "acme"),
            (vec![platform("tokenDays"), own("acme")], "acme"),
            (vec![], ""),
        ] {
            let keys: Vec<Key> =
                collections.iter().map(|collection| collection.key("1").expect("a key")).collect();
            assert_eq!(owner_of_keys(&keys), owner, "{keys:?}");
        }
    }
}
