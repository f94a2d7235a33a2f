//! Widget tokens: authentication, allowed pages, caps, and visitor permissions.

mod caps;
mod credentials;
mod pages;
mod visitors;

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::{Clock, SystemClock};
use agent_core::testing::ManualClock;
use agent_platform::token::{Grant, MintedToken, NewToken, Tokens, WidgetGrant};
use agentd::stores::Stores;
use serde_json::{Value, json};

use crate::support::server::{self, Server};
use crate::support::vendor::Vendor;
use crate::support::workspace;

/// An application with its stores, and the vendor of its agents' model `m`.
struct WidgetApp {
    vendor: Vendor,
    app: Server,
    stores: Stores,
}

/// Returns the common workspace with a second agent.
fn two_agents(base_url: &str) -> Value {
    let mut all = workspace(base_url, "m");
    let mut second = all["agents"][0].clone();
    second["id"] = "a2".into();
    all["agents"].as_array_mut().expect("a list").push(second);
    all
}

async fn open(change: impl FnOnce(&mut Value)) -> WidgetApp {
    open_with(&[], change).await
}

async fn open_with(settings: &[(&str, &str)], change: impl FnOnce(&mut Value)) -> WidgetApp {
    let vendor = Vendor::start().await;
    let mut workspace = two_agents(&vendor.base_url());
    change(&mut workspace);
    let stores = server::stores(&workspace).await;
    let app = server::app_with_stores(stores.clone(), settings).await;
    WidgetApp { vendor, app, stores }
}

/// Returns the text of a minted token.
fn text(minted: &MintedToken) -> &str {
    minted.text.expose()
}

impl WidgetApp {
    fn tokens_at(&self, clock: impl Clock) -> Tokens {
        Tokens::new(self.stores.records.clone(), Arc::new(clock))
    }

    fn tokens(&self) -> Tokens {
        self.tokens_at(SystemClock)
    }

    async fn mint(&self, new: NewToken) -> MintedToken {
        self.tokens().mint(new).await.expect("minted")
    }

    /// Mints a widget token of the agent `a1`.
    async fn mint_widget(&self, grant: WidgetGrant) -> MintedToken {
        self.mint(NewToken::new("c1", "a1", Grant::Widget(grant))).await
    }

    /// Mints a widget token with a lifetime of one hour that has expired.
    async fn mint_expired(&self) -> MintedToken {
        let ttl = Some(Duration::from_secs(3600));
        let new = NewToken { ttl, ..NewToken::new("c1", "a1", Grant::Widget(WidgetGrant::default())) };
        self.tokens_at(ManualClock::new()).mint(new).await.expect("minted")
    }

    /// Posts to the chat endpoint with these headers; the members of `more` are added to the body.
    async fn ask(&self, query: &str, headers: &[(&str, &str)], more: &Value) -> reqwest::Response {
        let mut body = json!({"message": "Hello"});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let mut request = self.app.request("POST", &format!("/api/agent/chat{query}")).json(&body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.expect("an answer")
    }

    /// Posts to the chat endpoint with the token in the header.
    async fn ask_with_token(&self, minted: &MintedToken, more: &Value) -> reqwest::Response {
        self.ask("", &[("x-widget-token", text(minted))], more).await
    }
}
