//! The application as the scheduler's client: jobs that it creates, callbacks that it receives, and effects that
//! happen once.

mod assignments;
mod budgets;
mod callback;
mod client;
mod contention;
mod cron;
mod kill;
mod restart;
mod resume;
mod routes;
mod runs;

use std::sync::Arc;
use std::time::SystemTime;

use agent_core::secret::Secret;
use agent_core::tool::ExecutionContext;
use agent_http::webhook;
use agent_jobs::job::{JobStore, MemoryJobStore};
use agent_platform::records::{ListQuery, Records};
use agent_platform::workspace::{MetricFilter, Notification, list_metrics, list_notifications};
use agentd::stores::Stores;
use reqwest::Response;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::server::{self, PULSE_SECRET, Server, session_token};
use crate::support::{TEST_TIMEOUT, client, poll_until, refused_url};

const PREVIOUS_PULSE_SECRET: &str = "pulse-before-canary-0123456789";
const CRON_SECRET: &str = "cron-canary-0123456789";
const OWNER: (&str, &str) = ("u1", "c1");
const COLLEAGUE: (&str, &str) = ("u2", "c1");
const STRANGER: (&str, &str) = ("u3", "c2");

/// Returns a workspace of two companies; the agent `a1` has a model at `base_url`, `silent` has none.
fn workspace(base_url: &str) -> Value {
    let role = json!({"mcpPreset":
            ["createTodo", "readNotifications", "recordMetric", "scheduleTool", "cancelScheduledTool"]});
    json!({
        "users": [{"id": "u1", "companyId": "c1", "timezone": "Europe/Berlin"}],
        "agents": [
            {"id": "a1", "name": "Gardener", "ownerId": "u1", "companyId": "c1", "content": role,
                "children": [{"name": "EmbeddedAI", "content":
                    {"provider": "openai", "model": "m", "baseUrl": base_url, "apiKey": "role-key-canary"}}]},
            {"id": "silent", "ownerId": "u1", "companyId": "c1"},
            {"id": "z1", "ownerId": "u3", "companyId": "c2"}
        ],
        "todoLists": [{"id": "l1", "ownerId": "u1", "companyId": "c1", "name": "Mine", "todos": []}]
    })
}

/// Starts an application over `stores` with a scheduler at `pulse_url`; `settings` override the defaults.
async fn app(stores: &Stores, pulse_url: &str, settings: &[(&str, &str)]) -> Server {
    app_on(server::bind().await, stores, pulse_url, settings)
}

/// Starts an application as [`app`] does, on a listener.
fn app_on(listener: TcpListener, stores: &Stores, pulse_url: &str, settings: &[(&str, &str)]) -> Server {
    let mut all = vec![
        ("PULSE_URL", pulse_url),
        ("PULSE_SECRET", PULSE_SECRET),
        ("PULSE_SECRET_PREVIOUS", PREVIOUS_PULSE_SECRET),
        ("CRON_SECRET", CRON_SECRET),
    ];
    all.extend(settings);
    server::app_on(listener, stores.clone(), &all)
}

/// Returns the address at which an application on a listener takes callbacks.
pub(crate) fn callback_url(listener: &TcpListener) -> String {
    let address = listener.local_addr().expect("a bound listener");
    format!("http://{address}/api/pulse/callback")
}

/// The application and the scheduler, configured with each other's address.
struct AppWithScheduler {
    app: Server,
    scheduler: Server,
    stores: Stores,
}

async fn open(base_url: &str, settings: &[(&str, &str)]) -> AppWithScheduler {
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let (stores, listener) = (server::stores(&workspace(base_url)).await, server::bind().await);
    let callback = callback_url(&listener);
    let scheduler = server::scheduler(jobs, &callback, &[]).await;
    let app = app_on(listener, &stores, &scheduler.url(""), settings);
    AppWithScheduler { app, scheduler, stores }
}

/// Starts an application whose scheduler does not answer.
async fn app_without_scheduler(base_url: &str, settings: &[(&str, &str)]) -> (Server, Stores) {
    let stores = server::stores(&workspace(base_url)).await;
    let nobody = refused_url();
    (app(&stores, &nobody, settings).await, stores)
}

/// Returns the payload of a job that creates a todo.
fn create_todo(title: &str) -> Value {
    json!({"kind": "tool", "userId": "u1", "companyId": "c1", "agentId": "a1", "toolId": "createTodo",
        "arguments": {"title": title}, "todoListId": "l1"})
}

/// Returns the payload of a job that records a value of the metric `sales`.
fn record_metric(value: u64) -> Value {
    json!({"kind": "tool", "userId": "u1", "companyId": "c1", "agentId": "a1", "toolId": "recordMetric",
        "arguments": {"name": "sales", "value": value}})
}

/// Returns the recorded values of the metric `sales`, sorted.
async fn recorded_metrics(records: &dyn Records) -> Vec<u64> {
    let (filter, mut list) =
        (MetricFilter::default(), ListQuery { limit: Some(200), ..ListQuery::default() });
    let mut values = Vec::new();
    loop {
        let page = list_metrics(records, &"c1".into(), &filter, &list).await.expect("read");
        values.extend(page.items.iter().map(|metric| metric.value.as_f64().expect("a number") as u64));
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            values.sort_unstable();
            return values;
        }
    }
}

/// Returns the body that the scheduler delivers for an occurrence of a job.
pub(crate) fn delivery(mut payload: Value, job: &str, occurrence: u64) -> Value {
    payload["jobId"] = job.into();
    payload["occurrence"] = occurrence.into();
    payload["scheduledFor"] = "2026-01-01T00:00:00.000Z".into();
    payload["attempt"] = 1.into();
    payload
}

/// Delivers a signed callback as the scheduler does.
pub(crate) async fn deliver_callback(app: &Server, delivery: &Value) -> Response {
    let id = format!("{}:{}", delivery["jobId"].as_str().expect("an id"), delivery["occurrence"]);
    let body = delivery.to_string();
    let signed = webhook::sign(&Secret::new(PULSE_SECRET), &id, SystemTime::now(), body.as_bytes());
    let mut request = app.request("POST", "/api/pulse/callback").bearer_auth(PULSE_SECRET);
    for (name, value) in signed.expect("an id") {
        request = request.header(name, value);
    }
    let request = request.header("content-type", "application/json").body(body);
    request.send().await.expect("the application answers")
}

async fn ask(app: &Server, user: (&str, &str), method: &str, path: &str, body: Option<&Value>) -> Response {
    let request = app.request(method, path).bearer_auth(session_token(user.0, user.1));
    let request = body.into_iter().fold(request, |request, body| request.json(body));
    request.send().await.expect("the application answers")
}

/// Requests a path of the scheduler as its operator.
async fn request_scheduler(scheduler: &Server, method: &str, path: &str, body: Option<&Value>) -> Value {
    let request = client().request(method.parse().expect("a method"), scheduler.url(path));
    let request = body.into_iter().fold(request, |request, body| request.json(body));
    let response = request.bearer_auth(PULSE_SECRET).send().await.expect("the scheduler answers");
    response.json().await.expect("JSON")
}

/// Checks the status and the absence of secrets; returns the JSON body.
pub(crate) async fn expect_json(response: Response, status: u16) -> Value {
    let body = crate::support::expect_json(response, status).await;
    assert!(!body.to_string().contains("canary"), "{body}");
    body
}

/// Returns the titles of the todos in the list `l1`.
pub(crate) async fn todo_titles(stores: &Stores) -> Vec<String> {
    crate::support::server::todo_titles(stores, "l1").await
}

/// Returns title and text of the user's notifications, newest first.
async fn notification_texts(stores: &Stores) -> Vec<(String, String)> {
    let notifications = notifications(stores).await;
    notifications
        .into_iter()
        .map(|notification| (notification.title, notification.text.unwrap_or_default()))
        .collect()
}

/// Returns the notifications of the user `u1`, the newest first.
pub(crate) async fn notifications(stores: &Stores) -> Vec<Notification> {
    let context =
        ExecutionContext { user_id: "u1".into(), company_id: "c1".into(), ..ExecutionContext::default() };
    let listed_notifications =
        list_notifications(&*stores.records, &context, false, ListQuery::default()).await.expect("read");
    listed_notifications.items.into_iter().map(|record| record.value).collect()
}
