//! The core's suites, against this crate's context layers and tools.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use crate::run_tools::AllowedTools;
use agent_core::allowed_tools::allowed_tools;
use agent_core::conformance::{
    ContextLayerSubject, SampleCall, Scenario, TenantProbe, ToolRegistrySubject, context_layer, tool_registry,
};
use agent_core::context::{ContextLayer, TurnInput};
use agent_core::prompt::PartCache;
use agent_core::request::TurnRequest;
use agent_core::tool::{Caller, ExecutionContext};
use serde_json::json;

use super::*;
use crate::layers::{CallerLayer, CouncilLayer, DocumentsLayer, ExecutionLayer, MemoryLayer, PageLayer};
use crate::pulse::Pulse;
use crate::records::RecordsWrapper;
use crate::seal::Sealer;
use crate::testing::MemoryPulse;
use crate::tools::{ToolServices, builtin_tools};
use crate::workspace::{MemoryFolder, WorkspaceFile, create_memory};

/// Records that behave as the scenario says, and that count their commits and their calls in progress.
struct StagedRecords {
    inner: Arc<MemoryRecords>,
    scenario: Scenario,
    commits: AtomicUsize,
    open: AtomicUsize,
}

struct OpenCall<'a>(&'a AtomicUsize);

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl StagedRecords {
    fn new(inner: Arc<MemoryRecords>, scenario: Scenario) -> Arc<Self> {
        let (commits, open) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { inner, scenario, commits, open })
    }

    async fn begin(&self) -> Result<OpenCall<'_>, StoreError> {
        self.open.fetch_add(1, Ordering::SeqCst);
        let open = OpenCall(&self.open);
        match self.scenario {
            Scenario::Hangs => std::future::pending().await,
            Scenario::Rejects => Err(StoreError::unavailable("the store is away")),
            _ => Ok(open),
        }
    }
}

#[async_trait]
impl RecordsWrapper for StagedRecords {
    fn inner(&self) -> &dyn Records {
        &*self.inner
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let _open = self.begin().await?;
        self.inner.get_many(keys).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        let _open = self.begin().await?;
        self.inner.list(collection, list).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let _open = self.begin().await?;
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.inner.commit(writes).await
    }

    async fn count(&self, collection: &Collection) -> Result<u64, StoreError> {
        let _open = self.begin().await?;
        self.inner.count(collection).await
    }

    async fn versions(&self, keys: &[Key]) -> Result<Vec<Option<u64>>, StoreError> {
        let _open = self.begin().await?;
        self.inner.versions(keys).await
    }
}

fn role(id: &str, company: &str, documents: &[&str]) -> Value {
    json!({"id": id, "companyId": company, "content": {"documentIds": documents, "memoryFolder": "notes",
        "mcpPreset": ["createTodo", "readTodos", "createDoc", "listDocs", "scheduleTool"]}})
}

fn own_role() -> Value {
    role("a", "company", &["handbook"])
}

/// Returns the records of a company with an agent, a document, a todo list and more memories than the layer shows.
async fn workspace() -> Arc<MemoryRecords> {
    let records = Arc::new(MemoryRecords::default());
    let roles = RecordRoleStore::new(records.clone(), Sealer::ephemeral());
    let file = json!({
        "agents": [own_role(), role("x", "other", &[])],
        "documents": [{"id": "handbook", "companyId": "company", "title": "Handbook", "text": "the marker"}],
        "todoLists": [{"id": "l", "ownerId": "ada", "companyId": "company", "name": "Home", "todos": []}],
    });
    WorkspaceFile::parse(&file.to_string()).expect("a good file").apply(&roles).await.expect("applied");
    let role = serde_json::from_value(own_role()).expect("a role");
    let folder = MemoryFolder::of_user(&role, &"ada".into());
    for n in 0..60 {
        let text = format!("the marker {n} {}", "x".repeat(1_000));
        create_memory(&*records, &folder, &text).await.expect("remembered");
    }
    records
}

fn context(company: &str, user: &str, agent: &str) -> ExecutionContext {
    ExecutionContext {
        user_id: user.into(),
        company_id: company.into(),
        agent_id: agent.into(),
        todo_list_id: Some("l".into()),
        ..ExecutionContext::default()
    }
}

#[tokio::test]
async fn layers_over_records_conform() {
    type Make = fn(Arc<dyn Records>, Arc<PartCache>) -> Arc<dyn ContextLayer>;
    let layers: [(Make, usize); 2] = [
        (|records, cache| Arc::new(DocumentsLayer::new(records, cache)), 1_000),
        // The limit is for the entries' text, without the marks of the list.
        (|records, cache| Arc::new(MemoryLayer::new(records, cache)), MemoryLayer::MAX_BYTES + 1_000),
    ];
    for (make, max_bytes) in layers {
        context_layer(async |scenario| {
            let records = StagedRecords::new(workspace().await, scenario);
            let turn = TurnInput {
                role: Arc::new(serde_json::from_value(own_role()).expect("a role")),
                context: context("company", "ada", "a"),
                request: Arc::default(),
                now: SystemTime::UNIX_EPOCH,
                max_prompt_tokens: 100_000,
            };
            let layer = make(records.clone(), Arc::default());
            let subject = ContextLayerSubject {
                company_text: Some("the marker".to_owned()),
                max_bytes: Some(max_bytes),
                open: Some(Box::new(move || records.open.load(Ordering::SeqCst))),
                ..ContextLayerSubject::new(layer, turn)
            };
            (scenario != Scenario::Truncates).then_some(subject)
        })
        .await;
    }
}

#[tokio::test]
async fn layers_without_records_conform() {
    type Make = fn(Arc<PartCache>) -> Arc<dyn ContextLayer>;
    let layers: [Make; 4] = [
        |cache| Arc::new(CallerLayer::new(cache)),
        |cache| Arc::new(CouncilLayer::new(cache)),
        |cache| Arc::new(PageLayer::new(cache)),
        |cache| Arc::new(ExecutionLayer::new(cache)),
    ];
    let role = json!({"id": "a", "companyId": "company", "content": {
        "council": {"purpose": "Advice.", "members": [{"name": "Bea", "expertise": "law"}]}}});
    for make in layers {
        context_layer(async |scenario| {
            let turn = TurnInput {
                role: Arc::new(serde_json::from_value(role.clone()).expect("a role")),
                context: context("company", "ada", "a"),
                request: Arc::new(TurnRequest {
                    page_context: Some(json!({"url": "/tasks"})),
                    blocks_context: vec![json!({"id": 1})],
                    ..TurnRequest::default()
                }),
                now: SystemTime::UNIX_EPOCH,
                max_prompt_tokens: 100_000,
            };
            let layer = make(Arc::default());
            (scenario == Scenario::Completes).then(|| ContextLayerSubject::new(layer, turn))
        })
        .await;
    }
}

#[tokio::test]
async fn the_built_in_tools_conform() {
    let call = |tool: &str, arguments: Value| SampleCall::new(tool, arguments);
    tool_registry(async |scenario| {
        let inner = workspace().await;
        let records = StagedRecords::new(inner.clone(), scenario);
        let roles = Arc::new(RecordRoleStore::new(inner, Sealer::ephemeral()));
        let pulse: Arc<dyn Pulse> = Arc::new(MemoryPulse::default());
        let services = ToolServices { pulse: Some(pulse), ..ToolServices::default() };
        let all = Arc::new(builtin_tools(records.clone(), roles, services));
        let role = serde_json::from_value(own_role()).expect("a role");
        let tools = Arc::new(AllowedTools::new(all, allowed_tools(&role, Caller::Session, None)));
        let (open, commits) = (records.clone(), records);
        let subject = ToolRegistrySubject {
            forbidden: vec![call("deleteTodo", json!({"id": "t"})), call("readEpics", json!({}))],
            tenants: Some(TenantProbe {
                other_context: context("other", "eve", "x"),
                write: call("createTodo", json!({"title": "the marker"})),
                read: call("readTodos", json!({})),
                marker: "the marker".to_owned(),
            }),
            effects: Some(Box::new(move || commits.commits.load(Ordering::SeqCst))),
            open: Some(Box::new(move || open.open.load(Ordering::SeqCst))),
            ..ToolRegistrySubject::new(
                tools,
                context("company", "ada", "a"),
                [
                    call("createTodo", json!({"title": "Water the basil"})),
                    call("readTodos", json!({})),
                    call("createDoc", json!({"title": "Plan", "text": "Dig."})),
                    call("listDocs", json!({})),
                ],
            )
        };
        (scenario != Scenario::Truncates).then_some(subject)
    })
    .await;
}
