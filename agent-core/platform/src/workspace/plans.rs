//! Plans of todo lists. A plan belongs to the owner of its todo list and is absent for all other users.
//!
//! Workspace files may contain plans of any shape. The plan of a list is the one that names it in `todoListId` or,
//! without that field, has its identifier. Agents write `title` and `text`; all other fields are returned and
//! preserved.

use serde_json::{Map, Value};

use super::text::{self, MAX_TITLE_BYTES, checked_line, checked_text};
use super::todos::get_todo_list;
use super::view::list_projected;
use super::{FreeFormItem, WorkspaceError, check_version, collection};
use crate::records::{Collection, Key, ListQuery, Record, Records, RecordsExt};
use agent_core::ids::CompanyId;
use agent_core::tool::ExecutionContext;

/// Maximum size of the text of a plan, in bytes.
pub(crate) const MAX_PLAN_BYTES: usize = 64 * 1024;

/// Plan of a todo list.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Identifier of the plan.
    pub id: String,
    /// Title.
    pub title: Option<String>,
    /// Text; empty if an imported plan has none.
    pub text: String,
    /// All other fields of an imported plan.
    pub details: Map<String, Value>,
    /// Record version of the plan.
    pub version: u64,
}

impl Plan {
    fn new(entry: FreeFormItem, version: u64) -> Self {
        let FreeFormItem { id, rest: mut details, .. } = entry;
        details.remove(LIST_ID_FIELD);
        let mut take = |name: &str| match details.get(name) {
            Some(Value::String(_)) => details.remove(name)?.as_str().map(str::to_owned),
            _ => None,
        };
        let (title, text) = (take("title"), take("text").unwrap_or_default());
        Self { id, title, text, details, version }
    }
}

/// Field in which a plan names its todo list.
const LIST_ID_FIELD: &str = "todoListId";

/// Returns the plan of the conversation's todo list, if it has one.
pub async fn get_plan(
    records: &dyn Records,
    context: &ExecutionContext,
) -> Result<Option<Plan>, WorkspaceError> {
    let list_id = get_todo_list(records, context).await?.id;
    let found = find(records, &context.company_id, &list_id).await?;
    Ok(found.map(|record| Plan::new(record.value, record.version)))
}

/// Creates or updates the plan of the conversation's todo list. Omitted fields are preserved. If `version` is given,
/// the plan must exist at this version.
pub async fn update_plan(
    records: &dyn Records,
    context: &ExecutionContext,
    title: Option<&str>,
    text: &str,
    version: Option<u64>,
) -> Result<Plan, WorkspaceError> {
    let title = title.map(|title| checked_line(title, MAX_TITLE_BYTES));
    let title = title.transpose().map_err(text::invalid_field("title"))?;
    let text = checked_text(text, MAX_PLAN_BYTES).map_err(text::invalid_field("text"))?;
    let list_id = get_todo_list(records, context).await?.id;
    let company_id = &context.company_id;
    let id = match find(records, company_id, &list_id).await? {
        Some(found) => found.id,
        None => free_id(records, company_id, &list_id).await?,
    };
    let write = |found: Option<Record<FreeFormItem>>| {
        let mut entry = match found {
            Some(found) => {
                check_version("plan", &found, version)?;
                found.value
            }
            None if version.is_some() => {
                return Err(WorkspaceError::NotFound { what: "plan", id: id.clone() });
            }
            None => {
                let rest = Map::from_iter([(LIST_ID_FIELD.to_owned(), list_id.as_str().into())]);
                FreeFormItem { id: id.clone(), company_id: company_id.into(), rest }
            }
        };
        if let Some(title) = title {
            entry.rest.insert("title".to_owned(), title.into());
        }
        entry.rest.insert("text".to_owned(), text.into());
        Ok(entry)
    };
    let key = Key::new(company_id, collection::PLANS, id.as_str())?;
    let (entry, version) = records.update(&key, write).await?;
    Ok(Plan::new(entry, version))
}

/// Finds the plan of a list: by the list's identifier, which most have, or else by a scan.
async fn find(
    records: &dyn Records,
    company_id: &CompanyId,
    list_id: &str,
) -> Result<Option<Record<FreeFormItem>>, WorkspaceError> {
    let plans = Collection::new(company_id, collection::PLANS)?;
    let own = records.get_as::<FreeFormItem>(&plans.key(list_id)?).await?;
    if let Some(own) = own.filter(|record| belongs_to_list(&record.value, list_id)) {
        return Ok(Some(own));
    }
    let first = ListQuery { limit: Some(1), ..ListQuery::default() };
    let naming = |record: Record<FreeFormItem>| belongs_to_list(&record.value, list_id).then_some(record);
    Ok(list_projected(records, &plans, &first, naming).await?.items.pop())
}

fn belongs_to_list(plan: &FreeFormItem, list_id: &str) -> bool {
    list_id_of(plan) == Some(list_id)
}

/// Returns the identifier of a plan's todo list; `None` if the plan names it by something other than a text.
pub(super) fn list_id_of(plan: &FreeFormItem) -> Option<&str> {
    match plan.rest.get(LIST_ID_FIELD) {
        Some(named) => named.as_str(),
        None => Some(&plan.id),
    }
}

/// Returns the identifier of a new plan: the list's, unless the plan of another list has it.
async fn free_id(
    records: &dyn Records,
    company_id: &CompanyId,
    list_id: &str,
) -> Result<String, WorkspaceError> {
    let is_used = records.get(&Key::new(company_id, collection::PLANS, list_id)?).await?.is_some();
    Ok(if is_used { agent_core::new_id() } else { list_id.to_owned() })
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::memory::MemoryRecords;
    use crate::records::Precondition;
    use crate::workspace::TodoList;

    fn context(user: &str, list: &str) -> ExecutionContext {
        ExecutionContext {
            user_id: user.into(),
            company_id: "c".into(),
            todo_list_id: Some(list.into()),
            ..ExecutionContext::default()
        }
    }

    /// Creates Ada's lists `l` and `m`, and the given plans.
    fn store(plans: Value) -> MemoryRecords {
        let records = MemoryRecords::default();
        let put = |name: &str, value: Value| {
            let key = Key::new("c", name, value["id"].as_str().expect("an id")).expect("a key");
            records.put_as(&key, &value, Precondition::Absent).now_or_never().expect("no wait").expect("put");
        };
        for id in ["l", "m"] {
            let (id, owner_id, company_id) = (id.into(), "ada".into(), "c".into());
            let list = TodoList { id, owner_id, company_id, name: String::new(), todos: vec![] };
            put(collection::TODO_LISTS, serde_json::to_value(list).expect("JSON"));
        }
        for plan in plans.as_array().expect("plans") {
            put(collection::PLANS, plan.clone());
        }
        records
    }

    fn read(records: &MemoryRecords, list: &str) -> Option<Plan> {
        get_plan(records, &context("ada", list)).now_or_never().expect("no wait").expect("the own list")
    }

    #[test]
    fn a_plan_is_found_by_its_list_and_keeps_what_it_had() {
        for (plans, id) in [
            (json!([{"id": "l", "companyId": "c", "steps": [1], "text": 7}]), "l"),
            (json!([{"id": "p", "companyId": "c", "steps": [1], "text": 7, "todoListId": "l"}]), "p"),
            (
                json!([
                    {"id": "l", "companyId": "c", "todoListId": "elsewhere"},
                    {"id": "p", "companyId": "c", "steps": [1], "text": 7, "todoListId": "l"}
                ]),
                "p",
            ),
        ] {
            let records = store(plans);
            assert_eq!(read(&records, "m"), None);
            let stored_plan = read(&records, "l").expect("a plan");
            assert_eq!(
                (stored_plan.id.as_str(), stored_plan.text.as_str(), &stored_plan.title),
                (id, "", &None)
            );
            assert_eq!(Value::from(stored_plan.details), json!({"steps": [1], "text": 7}));
            let ada = context("ada", "l");
            let write = |title, version| {
                update_plan(&records, &ada, title, "First\nthen", version).now_or_never().expect("no wait")
            };
            write(Some("T"), Some(stored_plan.version)).expect("written");
            let again = write(None, None).expect("written");
            assert_eq!(
                (again.id.as_str(), again.title.as_deref(), again.text.as_str()),
                (id, Some("T"), "First\nthen")
            );
            assert_eq!(Value::from(again.details.clone()), json!({"steps": [1]}));
            assert_eq!(read(&records, "l"), Some(again.clone()));
            let lost = write(None, Some(stored_plan.version)).expect_err("changed").to_string();
            let expected = format!(
                "the plan {id:?} has changed since it was read and is now at version {}: read it again",
                again.version
            );
            assert_eq!(lost, expected);
        }
    }

    #[test]
    fn a_new_plan_takes_the_place_of_no_other() {
        let records = store(json!([{"id": "l", "companyId": "c", "todoListId": "m", "text": "M"}]));
        let ada = context("ada", "l");
        let write = |context: &ExecutionContext, version| {
            update_plan(&records, context, None, "L", version).now_or_never().expect("no wait")
        };
        let none = write(&ada, Some(1)).expect_err("an absent plan has no version");
        assert!(matches!(none, WorkspaceError::NotFound { what: "plan", .. }), "{none:?}");
        let made = write(&ada, None).expect("made");
        assert_ne!(made.id, "l");
        assert_eq!(read(&records, "l"), Some(made));
        assert_eq!(read(&records, "m").map(|plan| plan.text).as_deref(), Some("M"));
        for stranger in [context("bob", "l"), context("ada", "none")] {
            let refused = write(&stranger, None).expect_err("not the owner's");
            assert!(matches!(refused, WorkspaceError::NotFound { what: "todo list", .. }), "{refused:?}");
            let unread = get_plan(&records, &stranger).now_or_never().expect("no wait");
            assert!(matches!(unread, Err(WorkspaceError::NotFound { what: "todo list", .. })), "{unread:?}");
        }
    }
}
