//! Semantic validation of a workspace file. Pure.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use serde::Serialize;

use super::content::WorkspaceFile;
use super::locate::JsonPath;
use crate::ids::check_id;
use crate::records::{MAX_ID_BYTES, MAX_VALUE_BYTES, MAX_WRITES};
use crate::roles::secret_fields;
use crate::workspace::todos::{MAX_TODOS, checked_title};
use crate::workspace::{Document, MAX_DOCUMENT_BYTES};
use agent_core::clock::find_time_zone;
use agent_core::ids::CompanyId;
use agent_core::role::RoleBlock;

/// Maximum number of reported faults.
pub(super) const MAX_FAULTS: usize = 20;

/// Returns the first [`MAX_FAULTS`] faults, in the order of the checks.
pub(super) fn find_faults(file: &WorkspaceFile) -> Vec<(JsonPath, String)> {
    let mut check = FileChecker { file, faults: Vec::new() };
    check.check_all();
    check.users();
    check.agents();
    check.documents();
    check.todo_lists();
    check.memories();
    check.entries();
    check.assignments();
    check.faults.truncate(MAX_FAULTS);
    check.faults
}

struct FileChecker<'a> {
    file: &'a WorkspaceFile,
    faults: Vec<(JsonPath, String)>,
}

impl FileChecker<'_> {
    fn check_all(&mut self) {
        let writes = super::import::max_writes(self.file);
        if writes > MAX_WRITES {
            let fault = format!(
                "the import needs {writes} writes (two for each agent and document, one for each other item); the limit is {MAX_WRITES}: split the file"
            );
            self.fault(JsonPath::default(), fault);
        }
    }

    fn users(&mut self) {
        let mut seen = HashSet::new();
        for (i, user) in self.file.users.iter().enumerate() {
            let at = JsonPath::default().field("users").index(i);
            self.identified(&at, &user.id, &user.company_id);
            self.unique(&mut seen, (&user.company_id, &user.id), &at);
            if let Some(zone) = &user.timezone
                && find_time_zone(zone).is_none()
            {
                let fault = format!("{zone:?} is not an IANA time zone, such as \"Europe/Berlin\"");
                self.fault(at.field("timezone"), fault);
            }
        }
    }

    fn agents(&mut self) {
        let documents = companies(self.file.documents.iter().map(|d| (d.id.as_str(), &d.company_id)));
        let mut seen = HashSet::new();
        for (i, role) in self.file.agents.iter().enumerate() {
            let at = JsonPath::default().field("agents").index(i);
            self.identified(&at, &role.id, &role.company_id);
            self.unique(&mut seen, (&role.company_id, &role.id), &at);
            let content = at.clone().field("content");
            for (name, ids) in [
                ("documentIds", &role.content.document_ids),
                ("ragDocumentIds", &role.content.rag_document_ids),
            ] {
                for (j, id) in ids.iter().enumerate() {
                    let at = content.clone().field(name).index(j);
                    self.id(at.clone(), id);
                    self.same_company(at, "document", id, &role.company_id, &documents);
                }
            }
            self.fits(at.clone(), role);
            self.secrets_fit(at, role);
        }
    }

    fn documents(&mut self) {
        let users = companies(self.file.users.iter().map(|user| (user.id.as_str(), &user.company_id)));
        let mut seen = HashSet::new();
        for (i, document) in self.file.documents.iter().enumerate() {
            let at = JsonPath::default().field("documents").index(i);
            self.identified(&at, &document.id, &document.company_id);
            self.unique(&mut seen, (&document.company_id, &document.id), &at);
            if let Some(owner_id) = &document.owner_id {
                let owner = at.clone().field("ownerId");
                self.id(owner.clone(), owner_id);
                self.same_company(owner, "user", owner_id, &document.company_id, &users);
            }
            if let Some(fault) = missing_text(document) {
                self.fault(at.clone().field("text"), fault);
            }
            self.fits(at, document);
        }
    }

    fn todo_lists(&mut self) {
        let users = companies(self.file.users.iter().map(|user| (user.id.as_str(), &user.company_id)));
        let mut seen = HashSet::new();
        for (i, list) in self.file.todo_lists.iter().enumerate() {
            let at = JsonPath::default().field("todoLists").index(i);
            self.identified(&at, &list.id, &list.company_id);
            self.unique(&mut seen, (&list.company_id, &list.id), &at);
            let owner = at.clone().field("ownerId");
            self.id(owner.clone(), &list.owner_id);
            self.same_company(owner, "user", &list.owner_id, &list.company_id, &users);
            if list.todos.len() > MAX_TODOS {
                let fault = format!("has {} todos; the limit is {MAX_TODOS}", list.todos.len());
                self.fault(at.clone().field("todos"), fault);
            }
            let mut seen = HashSet::new();
            for (j, todo) in list.todos.iter().enumerate() {
                let at = at.clone().field("todos").index(j);
                self.id(at.clone().field("id"), &todo.id);
                self.unique(&mut seen, &todo.id, &at);
                if let Err(fault) = checked_title(&todo.title) {
                    self.fault(at.field("title"), fault);
                }
            }
        }
    }

    fn memories(&mut self) {
        let agents = companies(self.file.agents.iter().map(|role| (role.id.as_str(), &role.company_id)));
        let users = companies(self.file.users.iter().map(|user| (user.id.as_str(), &user.company_id)));
        let mut seen = HashSet::new();
        for (i, memory) in self.file.memories.iter().enumerate() {
            let at = JsonPath::default().field("memories").index(i);
            self.identified(&at, &memory.id, &memory.company_id);
            let agent = at.clone().field("agentId");
            self.id(agent.clone(), &memory.agent_id);
            self.same_company(agent, "agent", &memory.agent_id, &memory.company_id, &agents);
            if let Some(user_id) = &memory.user_id {
                let user = at.clone().field("userId");
                self.id(user.clone(), user_id);
                self.same_company(user, "user", user_id, &memory.company_id, &users);
            }
            match memory.key() {
                Ok(key) => self.unique(&mut seen, key, &at),
                // The ids were checked above, so the fault is in the folder.
                Err(error) if memory.folder.is_some() => {
                    self.fault(at.clone().field("folder"), error.to_string());
                }
                Err(_) => {}
            }
            self.fits(at, memory);
        }
    }

    fn entries(&mut self) {
        for (name, entries) in self.file.free_form_lists() {
            let mut seen = HashSet::new();
            for (i, entry) in entries.iter().enumerate() {
                let at = JsonPath::default().field(name).index(i);
                self.identified(&at, &entry.id, &entry.company_id);
                self.unique(&mut seen, (&entry.company_id, &entry.id), &at);
                self.fits(at, entry);
            }
        }
    }

    fn assignments(&mut self) {
        let agents = companies(self.file.agents.iter().map(|role| (role.id.as_str(), &role.company_id)));
        // The limit on future times is relative to the current time.
        let now = jiff::Timestamp::now();
        let mut seen = HashSet::new();
        for (i, assignment) in self.file.assignments.iter().enumerate() {
            let at = JsonPath::default().field("assignments").index(i);
            self.identified(&at, &assignment.id, &assignment.company_id);
            self.unique(&mut seen, (&assignment.company_id, &assignment.id), &at);
            let agent = at.clone().field("agentId");
            self.same_company(agent, "agent", &assignment.agent_id, &assignment.company_id, &agents);
            match assignment.validate(now) {
                Some(("", fault)) => self.fault(at.clone(), fault),
                Some((field, fault)) => self.fault(at.clone().field(field), fault),
                None => {}
            }
            self.fits(at, assignment);
        }
    }

    fn identified(&mut self, at: &JsonPath, id: &str, company_id: &CompanyId) {
        self.id(at.clone().field("id"), id);
        self.id(at.clone().field("companyId"), company_id);
    }

    fn id(&mut self, at: JsonPath, id: &str) {
        if let Err(error) = check_id(id, MAX_ID_BYTES) {
            self.fault(at, error.to_string());
        }
    }

    fn unique<T: Eq + Hash>(&mut self, seen: &mut HashSet<T>, id: T, at: &JsonPath) {
        if !seen.insert(id) {
            self.fault(at.clone().field("id"), "occurs twice in the file".to_owned());
        }
    }

    /// Checks that a referenced item belongs to the same company, if the file contains it.
    fn same_company(
        &mut self,
        at: JsonPath,
        what: &str,
        id: &str,
        company: &CompanyId,
        known: &Companies<'_>,
    ) {
        if known.get(id).is_some_and(|companies| !companies.contains(company)) {
            self.fault(at, format!("the {what} {id:?} belongs to another company"));
        }
    }

    fn fits(&mut self, at: JsonPath, value: &impl Serialize) {
        let bytes = serde_json::to_vec(value).map_or(0, |json| json.len());
        if bytes > MAX_VALUE_BYTES {
            self.fault(at, format!("has {bytes} bytes of JSON; the limit is {MAX_VALUE_BYTES}"));
        }
    }

    /// Checks the size of an agent's sealed secrets, which are stored in one record, each a third longer than in the
    /// file.
    fn secrets_fit(&mut self, at: JsonPath, role: &RoleBlock) {
        let mut role = role.clone();
        let secrets = secret_fields(&mut role)
            .into_iter()
            .filter_map(|field| Some(field.secret.as_ref()?.expose().len()));
        let bytes: usize = secrets.map(|bytes| bytes.div_ceil(3) * 4 + 256).sum();
        if bytes > MAX_VALUE_BYTES {
            let fault =
                format!("has secrets of {bytes} bytes after encryption; the limit is {MAX_VALUE_BYTES}");
            self.fault(at, fault);
        }
    }

    fn fault(&mut self, at: JsonPath, message: String) {
        self.faults.push((at, message));
    }
}

/// Returns the fault of an upload whose text is not in the document.
fn missing_text(document: &Document) -> Option<String> {
    let content = document.content.as_ref()?;
    let id = &document.id;
    if document.has_long_text() {
        let (bytes, limit) = (document.text_bytes(), MAX_DOCUMENT_BYTES);
        return Some(format!(
            "has {bytes} bytes in the upload {id:?}; the limit in a workspace file is {limit}: \
             copy the database instead, or delete the document"
        ));
    }
    (!content.status.is_final())
        .then(|| format!("is not extracted yet from the upload {id:?}: export again later"))
}

/// Companies that have an item with a given identifier.
type Companies<'a> = HashMap<&'a str, HashSet<&'a CompanyId>>;

fn companies<'a>(items: impl Iterator<Item = (&'a str, &'a CompanyId)>) -> Companies<'a> {
    let mut by_id = Companies::new();
    for (id, company) in items {
        by_id.entry(id).or_default().insert(company);
    }
    by_id
}
