//! Search for the company of an agent that is named without one.

use super::collection;
use crate::records::{Inventory, Key, MAX_PAGE_RECORDS, StoreError};
use crate::roles::ROLES;
use agent_core::ids::{AgentId, CompanyId, UserId};

/// Maximum number of companies that a search examines.
const MAX_COMPANIES_SEARCHED: usize = 10 * MAX_PAGE_RECORDS;

/// Result of [`find_agent_company`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompanyMatch {
    /// No company has the agent and the user.
    None,
    /// Exactly one company has them.
    One(CompanyId),
    /// More than one company has them, or there are too many companies to examine: the caller must name one.
    Ambiguous,
}

/// Searches the companies for one that has an agent `agent_id` and, if one is given, a user `user_id`. Intended for an
/// operator's commands, and for requests that an operator allows to name an agent without a credential; all other
/// requests take the company from their credential.
///
/// # Errors
/// Errors of the store. An invalid id belongs to no company.
pub async fn find_agent_company(
    inventory: &dyn Inventory,
    agent_id: &AgentId,
    user_id: Option<&UserId>,
) -> Result<CompanyMatch, StoreError> {
    let (mut found, mut examined) = (CompanyMatch::None, 0);
    let mut after: Option<String> = None;
    loop {
        let companies = inventory.companies(after.as_deref()).await?;
        let Some(last) = companies.last() else { return Ok(found) };
        if examined >= MAX_COMPANIES_SEARCHED {
            return Ok(CompanyMatch::Ambiguous);
        }
        examined += companies.len();
        after = Some(last.clone());
        for company in companies_with(inventory, companies, agent_id, user_id).await? {
            if found != CompanyMatch::None {
                return Ok(CompanyMatch::Ambiguous);
            }
            found = CompanyMatch::One(company);
        }
    }
}

/// Returns those of `companies` that have the agent and the user.
async fn companies_with(
    inventory: &dyn Inventory,
    companies: Vec<String>,
    agent_id: &AgentId,
    user_id: Option<&UserId>,
) -> Result<Vec<CompanyId>, StoreError> {
    // The platform's own records have an empty company.
    let companies = companies.into_iter().filter(|company| !company.is_empty()).map(CompanyId::from);
    let (mut candidates, mut keys) = (Vec::new(), Vec::new());
    for company in companies {
        let Ok(role) = Key::new(&company, ROLES, agent_id.as_str()) else { return Ok(Vec::new()) };
        keys.push(role);
        if let Some(user_id) = user_id {
            let Ok(user) = Key::new(&company, collection::USERS, user_id.as_str()) else {
                return Ok(Vec::new());
            };
            keys.push(user);
        }
        candidates.push(company);
    }
    let found = inventory.get_many(&keys).await?;
    let keys_each = if user_id.is_some() { 2 } else { 1 };
    let has_all = found.chunks(keys_each).map(|records| records.iter().all(Option::is_some));
    Ok(candidates
        .into_iter()
        .zip(has_all)
        .filter(|(_, has_all)| *has_all)
        .map(|(company, _)| company)
        .collect())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::memory::MemoryRecords;
    use crate::records::{Precondition, RecordsExt};

    #[test]
    fn the_user_decides_between_companies_with_the_same_agent() {
        let records = MemoryRecords::default();
        let plant = |company: &str, list: &str, id: &str| {
            let key = Key::new(company, list, id).expect("a key");
            let put = records.put_as(&key, &json!({}), Precondition::Absent).now_or_never();
            put.expect("no wait").expect("put");
        };
        for (company, user) in [("c1", "ada"), ("c2", "bob")] {
            plant(company, "roles", "support");
            plant(company, collection::USERS, user);
            plant(company, collection::USERS, "eve");
        }
        plant("c2", "roles", "sales");
        plant("c3", collection::USERS, "ada");
        let find = |agent: &str, user: Option<&str>| {
            let (agent, user) = (agent.into(), user.map(UserId::from));
            let found = find_agent_company(&records, &agent, user.as_ref());
            found.now_or_never().expect("no wait").expect("found")
        };
        let one = |company: &str| CompanyMatch::One(company.into());
        for (agent, user, expected) in [
            ("support", Some("ada"), one("c1")),
            ("support", Some("bob"), one("c2")),
            ("support", Some("eve"), CompanyMatch::Ambiguous),
            ("support", Some("nobody"), CompanyMatch::None),
            ("support", None, CompanyMatch::Ambiguous),
            ("sales", None, one("c2")),
            ("sales", Some("ada"), CompanyMatch::None),
            ("nobody", None, CompanyMatch::None),
            ("", None, CompanyMatch::None),
            ("support", Some("a\0"), CompanyMatch::None),
        ] {
            assert_eq!(find(agent, user), expected, "{agent:?} {user:?}");
        }
    }

    #[test]
    fn a_search_examines_a_bounded_number_of_companies() {
        let records = MemoryRecords::default();
        for n in 0..=MAX_COMPANIES_SEARCHED {
            let key = Key::new(format!("c{n:06}"), "roles", "a").expect("a key");
            let put = records.put_as(&key, &json!({}), Precondition::Absent).now_or_never();
            put.expect("no wait").expect("put");
        }
        let unknown = AgentId::from("unknown");
        let found = find_agent_company(&records, &unknown, None);
        assert_eq!(found.now_or_never().expect("no wait").expect("found"), CompanyMatch::Ambiguous);
    }
}
