//! Application processes over one database, whose users have subscriptions.

use std::time::Duration;

use agent_platform::coding::TOKEN_COLLECTION;
use agent_platform::records::{Key, Precondition, Record, RecordsExt, StoreError};
use agent_platform::workspace::WorkspaceFile;
use agentd::config::AppConfig;
use agentd::stores::Stores;
use futures_util::future::join_all;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::issuer::{Endpoint, StrictIssuer, TokenFamily};
use crate::processes::TestDatabase;
use crate::support::coding_runtime::RUNTIME_SECRET;
use crate::support::process::AppProcess;
use crate::support::random::Random;
use crate::support::server::{self, session_token};
use crate::support::{TEST_TIMEOUT, client, parse_events};

const DATA_SECRET: &str = "data-secret-canary";
/// A time that has passed.
const PAST: &str = "2020-01-01T00:00:00Z";
/// Number of users that sign in at a time.
const SIGN_INS_AT_A_TIME: usize = 8;
/// Time limit of a run: above that for which one may wait for the lease of another process.
const RUN_TIMEOUT: Duration = Duration::from_secs(90);

/// Time after which all processes see a write of one of them (`docs/operating.md`), with a margin.
const VISIBLE_AFTER: Duration = Duration::from_millis(200);

/// A signed-in user.
#[derive(Debug, Clone)]
pub struct User {
    pub id: String,
    /// Number of the sign-in's tokens at the issuer.
    pub family: usize,
}

/// Outcome of a run, as its client gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    Finished,
    /// 403 `SIGN_IN_REQUIRED`, with its detail.
    SignInRequired(String),
    /// The connection has ended before the response.
    Cut,
    /// The database was not available to the process.
    StoreFailed,
}

/// The database with its issuer and new users.
pub struct Installation {
    pub issuer: StrictIssuer,
    pub stores: Stores,
    pub client: Client,
    pub database: TestDatabase,
    users: mpsc::Receiver<User>,
    signing_in: JoinHandle<()>,
}

/// An application process, and its address of the issuer.
pub struct Replica {
    pub process: AppProcess,
    pub endpoint: Endpoint,
}

impl Installation {
    pub async fn open(database: TestDatabase) -> Self {
        let issuer = StrictIssuer::new();
        let endpoint = issuer.open_endpoint().await;
        let config = config(&database, &endpoint);
        let stores = Stores::open(&config).await.expect("the store opens");
        let connector = json!({"name": "SubscriptionConnector", "content": {"model": "coder"}});
        let workspace = json!({
            "users": [{"id": "u0", "companyId": "c1"}],
            "agents": [{"id": "a1", "name": "Coder", "ownerId": "u0", "companyId": "c1",
                "content": {"systemPrompt": "Be brief."}, "children": [connector]}],
        });
        let file = WorkspaceFile::parse_stored(&workspace.to_string()).expect("a valid workspace");
        file.apply(&stores.roles).await.expect("the workspace is imported");
        let app = server::app_with_config(config, stores.clone()).await;
        let (sender, users) = mpsc::channel(SIGN_INS_AT_A_TIME);
        // Users sign in at a process that is not killed.
        let signing_in = tokio::spawn(async move {
            let _endpoint = endpoint;
            for first in (0..).step_by(SIGN_INS_AT_A_TIME) {
                let ids = (first..first + SIGN_INS_AT_A_TIME).map(|number| format!("user-{number}"));
                for user in join_all(ids.map(|id| sign_in(&app, id))).await {
                    if sender.send(user).await.is_err() {
                        return;
                    }
                }
            }
        });
        Self { issuer, stores, client: client(), database, users, signing_in }
    }

    /// Starts a process over the database.
    pub async fn start(&self) -> Replica {
        let endpoint = self.issuer.open_endpoint().await;
        let url = endpoint.url();
        let settings = [
            ("DATA_SECRET", DATA_SECRET),
            ("RUNTIME_URL", url.as_str()),
            ("RUNTIME_SECRET", RUNTIME_SECRET),
            ("RUNS_PER_MINUTE", "1000000"),
            ("RUNS_PER_MINUTE_COMPANY", "0"),
            ("CONCURRENT_RUNS_COMPANY", "0"),
            ("LOG", "error,agent_http::error=off"),
        ];
        Replica { process: AppProcess::start(&self.database.url(), 0, &settings).await, endpoint }
    }

    /// Fills `users` up to `count` with users who have just signed in.
    pub async fn fill(&mut self, users: &mut Vec<User>, count: usize) {
        while users.len() < count {
            users.push(self.users.recv().await.expect("users sign in"));
        }
    }

    /// Waits until every process reads the latest writes, since reads may be cached for a limited time.
    pub async fn settle(&self) {
        tokio::time::sleep(VISIBLE_AFTER).await;
    }

    /// Returns the issuer's state of a user's tokens.
    pub fn family(&self, user: &User) -> TokenFamily {
        self.issuer.family(user.family)
    }

    /// Returns the stored tokens of a user.
    pub async fn stored(&self, user: &User) -> Value {
        let stored_record = self.stores.records.get_as(&key(user)).await.expect("read");
        stored_record.expect("the user has signed in").value
    }

    /// Lets a user's access token expire.
    pub async fn expire(&self, user: &User) {
        let expired = |stored: &mut Value| stored["accessExpiresAt"] = PAST.into();
        assert!(self.change(user, TEST_TIMEOUT, expired).await, "{user:?}");
    }

    /// Ends the lease of a user's tokens, as time does. Returns false if the tokens cannot be written within `limit`.
    pub async fn end_lease(&self, user: &User, limit: Duration) -> bool {
        let end = |stored: &mut Value| {
            if stored["lease"].is_object() {
                stored["lease"]["until"] = PAST.into();
            }
        };
        self.change(user, limit, end).await
    }

    /// Returns true if a user's tokens can be written within `limit`: a server ends a transaction in which a process was
    /// stopped.
    pub async fn is_writable(&self, user: &User, limit: Duration) -> bool {
        self.change(user, limit, |_| {}).await
    }

    /// Writes a record that belongs to no user.
    ///
    /// # Errors
    /// The database does not accept writes.
    pub async fn check_writable(&self) -> Result<(), StoreError> {
        let key = Key::new("c1", "probes", "write").expect("a key");
        self.stores.records.put_as(&key, &json!({}), Precondition::Any).await.map(drop)
    }

    async fn change(&self, user: &User, limit: Duration, change: impl Fn(&mut Value)) -> bool {
        let key = key(user);
        let changing = async {
            loop {
                let stored_record = self.stores.records.get_as::<Value>(&key).await.expect("read");
                let Record { version, value: mut stored, .. } =
                    stored_record.expect("the user has signed in");
                change(&mut stored);
                match self.stores.records.put_as(&key, &stored, Precondition::Version(version)).await {
                    Ok(_) => return,
                    Err(StoreError::Conflict { .. } | StoreError::Unavailable(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        tokio::time::timeout(limit, changing).await.is_ok()
    }

    /// Starts a run of each user, after a random time of up to `spread`. Returns the outcomes by the users' places.
    pub fn start_runs(
        &self,
        replica: &Replica,
        users: &[User],
        spread: Duration,
        random: &mut Random,
    ) -> JoinSet<(usize, RunOutcome)> {
        let mut runs = JoinSet::new();
        for (index, user) in users.iter().enumerate() {
            let url = format!("http://{}/api/agent/chat", replica.process.address);
            let (client, id, pause) = (self.client.clone(), user.id.clone(), random.up_to(spread));
            runs.spawn(async move {
                tokio::time::sleep(pause).await;
                (index, run(&client, &url, &id).await)
            });
        }
        runs
    }

    /// Runs each user once at the same time, and returns the outcomes in order.
    pub async fn run_all(&self, replica: &Replica, users: &[User]) -> Vec<RunOutcome> {
        let runs = self.start_runs(replica, users, Duration::ZERO, &mut Random::with_seed(0));
        in_order(runs.join_all().await)
    }

    /// Checks the final state of all users: each was signed in once, and no token is readable at rest.
    pub async fn check_end(&self, users: &[User]) {
        for (number, family) in self.issuer.families().iter().enumerate() {
            assert!(
                family.sign_ins <= 1,
                "the authorization of {number} was exchanged {} times",
                family.sign_ins
            );
        }
        for user in users {
            let stored = self.stored(user).await.to_string();
            assert!(!stored.contains("canary"), "{stored}");
        }
        if let TestDatabase::Sqlite(folder) = &self.database {
            for entry in std::fs::read_dir(folder.path()).expect("a folder") {
                let path = entry.expect("a file").path();
                let bytes = std::fs::read(&path).unwrap_or_default();
                let is_there = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
                assert!(!is_there(b"access-canary") && !is_there(b"refresh-canary"), "{}", path.display());
            }
        }
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        self.signing_in.abort();
    }
}

/// Returns outcomes in the order of their indices.
pub fn in_order(mut outcomes: Vec<(usize, RunOutcome)>) -> Vec<RunOutcome> {
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn config(database: &TestDatabase, endpoint: &Endpoint) -> AppConfig {
    let (database_url, runtime) = (database.url(), endpoint.url());
    server::app_config(&[
        ("DATABASE_URL", database_url.as_str()),
        ("DATA_SECRET", DATA_SECRET),
        ("RUNTIME_URL", runtime.as_str()),
        ("RUNTIME_SECRET", RUNTIME_SECRET),
    ])
}

fn key(user: &User) -> Key {
    Key::new("c1", TOKEN_COLLECTION, &user.id).expect("a key")
}

/// Signs a user in.
async fn sign_in(app: &server::Server, id: String) -> User {
    let send = async |method: &str, path: &str| -> Value {
        let request = app.request(method, path).bearer_auth(session_token(&id, "c1"));
        match request.send().await {
            Ok(response) => response.json().await.expect("JSON"),
            // The application stops, and this task with it.
            Err(_) => std::future::pending().await,
        }
    };
    let beginning = async {
        loop {
            let begun = send("POST", "/api/coding/sign-in").await;
            // A process that is stopped within a write holds the lock of a file.
            if begun["code"] != "STORE_UNAVAILABLE" {
                return begun;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    // A sign-in whose device code could not be stored holds up the next one for half a minute.
    let begun = tokio::time::timeout(2 * TEST_TIMEOUT, beginning).await.expect("it begins in time");
    let path = match begun["signInId"].as_str() {
        Some(id) => format!("/api/coding/sign-in/{id}"),
        None => panic!("no sign-in: {begun}"),
    };
    let completing = async {
        while send("GET", &path).await["status"] != "complete" {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, completing).await.expect("it is complete in time");
    let code = begun["userCode"].as_str().expect("a code");
    let family = code.trim_start_matches("CODE-").parse().expect("a number");
    User { id, family }
}

async fn run(client: &Client, url: &str, user: &str) -> RunOutcome {
    let body = json!({"agentId": "a1", "message": "Hello"});
    let request = client.post(url).bearer_auth(session_token(user, "c1")).timeout(RUN_TIMEOUT).json(&body);
    let Ok(response) = request.send().await else { return RunOutcome::Cut };
    let status = response.status().as_u16();
    let Ok(text) = response.text().await else { return RunOutcome::Cut };
    if status == 403 {
        let problem: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(problem["code"], "SIGN_IN_REQUIRED", "{text}");
        return RunOutcome::SignInRequired(problem["detail"].as_str().expect("a detail").to_owned());
    }
    if text.contains("STORE_UNAVAILABLE") {
        return RunOutcome::StoreFailed;
    }
    assert_eq!(status, 200, "{user}: {text}");
    let events = parse_events(&text);
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED", "{user}: {text}");
    RunOutcome::Finished
}
