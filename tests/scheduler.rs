//! The scheduler over HTTP: its routes, and its deliveries to a receiver.

mod deliveries;
mod faults;
mod health;
mod replicas;
mod routes;

use std::sync::Arc;

use agent_jobs::job::{JobStore, MemoryJobStore};
use reqwest::Response;
use serde_json::{Value, json};

use crate::support;
use crate::support::server::{self, PULSE_SECRET, Server};
use crate::support::vendor::Vendor;

/// A scheduler and a receiver whose response is selected by the delivered job's agent.
struct SchedulerFixture {
    scheduler: Server,
    receiver: Vendor,
}

async fn open() -> SchedulerFixture {
    open_with(&[]).await
}

async fn open_with(settings: &[(&str, &str)]) -> SchedulerFixture {
    open_over(Arc::new(MemoryJobStore::default()), settings).await
}

async fn open_over(jobs: Arc<dyn JobStore>, settings: &[(&str, &str)]) -> SchedulerFixture {
    let receiver = Vendor::start().await;
    let scheduler = server::scheduler(jobs, &callback(&receiver), settings).await;
    SchedulerFixture { scheduler, receiver }
}

fn callback(receiver: &Vendor) -> String {
    format!("http://{}/callback", receiver.address)
}

/// Returns the payload of a tool job; the agent's name selects the receiver's response.
fn payload(agent: &str) -> Value {
    json!({"kind": "tool", "userId": "u1", "companyId": "c1", "agentId": agent, "toolId": "createTodo"})
}

impl SchedulerFixture {
    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Response {
        ask(&self.scheduler, method, path, body).await
    }

    /// Creates a job and returns its id.
    async fn create_job(&self, mut body: Value, payload: Value) -> String {
        body["payload"] = payload;
        let response = self.ask("POST", "/jobs", Some(&body)).await;
        assert_eq!(response.status(), 201, "{}", response.text().await.expect("a body"));
        json_of(response).await["jobId"].as_str().expect("an id").to_owned()
    }

    async fn get(&self, id: &str) -> Value {
        json_of(self.ask("GET", &format!("/jobs/{id}"), None).await).await
    }

    /// Polls a job until `condition` holds.
    async fn poll_job_until(&self, id: &str, condition: impl Fn(&Value) -> bool) -> Value {
        support::poll_until(|| self.get(id), condition).await
    }

    async fn wait_for_state(&self, id: &str, state: &str) -> Value {
        self.poll_job_until(id, |job| job["state"] == state).await
    }
}

async fn ask(server: &Server, method: &str, path: &str, body: Option<&Value>) -> Response {
    let mut request = server.request(method, path).bearer_auth(PULSE_SECRET);
    if let Some(body) = body {
        request = request.json(body);
    }
    request.send().await.expect("the scheduler answers")
}

async fn json_of(response: Response) -> Value {
    let body = response.text().await.expect("a whole body");
    serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"))
}
