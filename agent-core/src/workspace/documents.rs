//! Documents: texts of a company that agents read.

use serde::{Deserialize, Serialize};

use super::collection;
use crate::records::{Key, Record, Records, RecordsExt, StoreError};

/// A text with a title.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// The document's identifier, unique in its company.
    pub id: String,
    /// The company.
    pub company_id: String,
    /// The title.
    #[serde(default)]
    pub title: String,
    /// The text, Markdown by custom.
    #[serde(default)]
    pub text: String,
}

/// The document, if the company has it, with the version that derived forms can be cached under.
pub async fn document(
    records: &dyn Records,
    company_id: &str,
    id: &str,
) -> Result<Option<Record<Document>>, StoreError> {
    records.get_as(&Key::new(company_id, collection::DOCUMENTS, id)?).await
}

/// The documents of these identifiers, in their order. Those that the company does not have are
/// left out.
pub async fn documents(
    records: &dyn Records,
    company_id: &str,
    ids: &[String],
) -> Result<Vec<Record<Document>>, StoreError> {
    let key = |id: &String| Key::new(company_id, collection::DOCUMENTS, id);
    let keys = ids.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    Ok(records.get_many_as(&keys).await?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;
    use crate::records::Precondition;

    #[test]
    fn documents_come_in_the_order_asked_without_those_of_others() {
        let records = MemoryRecords::default();
        for (company, id) in [("c", "a"), ("c", "b"), ("d", "x")] {
            let document = Document {
                id: id.into(),
                company_id: company.into(),
                title: String::new(),
                text: format!("text of {id}"),
            };
            let key = Key::new(company, collection::DOCUMENTS, id).expect("a key");
            records
                .put_as(&key, &document, Precondition::Absent)
                .now_or_never()
                .expect("no wait")
                .expect("put");
        }
        let ids: Vec<String> = ["b", "x", "none", "a"].map(String::from).into();
        let found = documents(&records, "c", &ids).now_or_never().expect("no wait").expect("read");
        assert_eq!(found.iter().map(|record| record.id.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(found[0].value.text, "text of b");
    }
}
