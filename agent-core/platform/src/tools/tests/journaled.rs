//! Tests of the tools in jobs: one commit is the effect and its record.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::*;
use crate::journal::{ClaimOutcome, JournaledTools, Journals};
use crate::records::{Collection, ListQuery, Page, Records, RecordsWrapper, StoreError, Write};
use agent_core::ids::JobId;
use agent_jobs::job::JobPayload;

/// Records that count the commits and the lists.
#[derive(Default)]
struct CountingRecords {
    inner: MemoryRecords,
    commits: AtomicUsize,
    lists: AtomicUsize,
}

#[async_trait]
impl RecordsWrapper for CountingRecords {
    fn inner(&self) -> &dyn Records {
        &self.inner
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.inner.list(collection, list).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.inner.commit(writes).await
    }
}

#[test]
fn a_tool_that_writes_completes_its_job_with_its_one_commit() {
    let records = Arc::new(CountingRecords::default());
    let roles = Arc::new(RecordRoleStore::new(records.clone(), Sealer::ephemeral()));
    let workspace = json!({
        "agents": [{"id": "a", "companyId": "c", "ownerId": "ada", "content": {}}],
        "documents": [{"id": "d", "companyId": "c", "title": "D", "text": "x"}],
        "todoLists": [{"id": "l", "ownerId": "ada", "companyId": "c",
            "todos": [{"id": "t", "title": "T", "done": false}, {"id": "t2", "title": "T", "done": false}]}],
    });
    let file = WorkspaceFile::parse(&workspace.to_string()).expect("a good file");
    ready(file.apply(&roles)).expect("the store in memory takes it");
    let journals = Arc::new(Journals::new(records.clone(), Arc::new(agent_core::clock::SystemClock)));
    let services = ToolServices { journals: Some(journals.clone()), ..ToolServices::default() };
    let tools = Arc::new(builtin_tools(records.clone(), roles, services));
    let tools = JournaledTools::new(tools, journals.clone(), is_repeatable);
    let calls = [
        ("appendDoc", json!({"id": "d", "text": "y"})),
        ("createDoc", json!({"title": "D", "text": "y"})),
        ("createTodo", json!({"title": "U"})),
        ("deleteTodo", json!({"id": "t2"})),
        ("recordMetric", json!({"name": "m", "value": 1})),
        ("remember", json!({"text": "y"})),
        ("sendNotification", json!({"title": "N"})),
        ("readNotifications", json!({"markRead": true})),
        ("updatePlan", json!({"text": "y"})),
        ("updateTodo", json!({"id": "t", "done": true})),
    ];
    for (n, (name, arguments)) in calls.into_iter().enumerate() {
        let job = JobId::from(format!("job-{n}"));
        let payload =
            json!({"kind": "tool", "userId": "ada", "companyId": "c", "agentId": "a", "toolId": name});
        let payload: JobPayload = serde_json::from_value(payload).expect("a payload");
        let claimed = ready(journals.claim((&job, 1), &payload, Duration::from_secs(60))).expect("claimed");
        let ClaimOutcome::Claimed(run, _) = claimed else { panic!("it is new") };
        let context = ExecutionContext {
            user_id: "ada".into(),
            company_id: "c".into(),
            agent_id: "a".into(),
            todo_list_id: Some("l".to_owned()),
            run_id: format!("{job}:1").into(),
            ..ExecutionContext::default()
        };
        let [commits, lists] = [&records.commits, &records.lists].map(|count| count.load(Ordering::SeqCst));
        ready(tools.call(&context, name, arguments, &NoProgress))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(records.commits.load(Ordering::SeqCst) - commits, 1, "{name}");
        if name == "createDoc" {
            assert_eq!(records.lists.load(Ordering::SeqCst), lists, "documents are counted, and not read");
        }
        assert!(run.is_complete(), "{name}");
    }
}
