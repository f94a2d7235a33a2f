//! Content of a workspace file.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::workspace::{Assignment, Document, Memory, TodoList, User, collection};
use agent_core::ids::CompanyId;
use agent_core::role::RoleBlock;

/// Names of the lists of a workspace file.
pub(super) const LISTS: [&str; 9] =
    ["users", "agents", "documents", "todoLists", "memories", "plans", "epics", "metrics", "assignments"];

/// Content of a workspace file. All lists are optional; other lists and unknown fields of agents are refused, and unknown
/// fields of other items ignored.
///
/// A todo list's owner and a memory's agent need not be in the file; they may already be in the store.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceFile {
    /// Users.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<User>,
    /// Role blocks of agents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<RoleBlock>,
    /// Documents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub documents: Vec<Document>,
    /// Todo lists with their todos.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub todo_lists: Vec<TodoList>,
    /// Initial memory of agents: `{"id","companyId","agentId","userId"?,"folder"?,"text"}`. An entry without a user
    /// is shared by the company, and used where the role's `memoryScope` is `company`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memories: Vec<Memory>,
    /// Plans, stored as given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<FreeFormItem>,
    /// Epics, stored as given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub epics: Vec<FreeFormItem>,
    /// Metrics, stored as given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<FreeFormItem>,
    /// Tool assignments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assignments: Vec<Assignment>,
}

/// Item of a free-form list: only the id and the company are typed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FreeFormItem {
    /// Identifier, unique in its company and list.
    pub id: String,
    /// Company of the item.
    pub company_id: CompanyId,
    /// All other fields.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl WorkspaceFile {
    /// Returns the free-form lists under their names in the file, which are also their collections.
    pub(super) fn free_form_lists(&self) -> [(&'static str, &[FreeFormItem]); 3] {
        [
            (collection::PLANS, &self.plans),
            (collection::EPICS, &self.epics),
            (collection::METRICS, &self.metrics),
        ]
    }
}
