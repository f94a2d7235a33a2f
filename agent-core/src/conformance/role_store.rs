//! The contract of [`RoleStore`].

use std::sync::Arc;

use serde_json::json;

use crate::records::StoreError;
use crate::role::{Container, RoleBlock, RoleStore, Secret, WebhookAuth};

type Store = Arc<dyn RoleStore>;

/// Runs the contract of [`RoleStore`] against stores that `make` gives, an empty one at every call.
///
/// # Panics
/// With a sentence, where the contract does not hold.
pub async fn role_store(make: impl AsyncFn() -> Store) {
    what_was_put_is_got(&*make().await).await;
    a_role_is_replaced_whole(&*make().await).await;
    tenants_are_apart(&*make().await).await;
    identifiers_are_checked(&*make().await).await;
}

fn role(company: &str) -> RoleBlock {
    serde_json::from_value(json!({
        "id": "agent", "name": "Ann", "ownerId": "ada", "companyId": company,
        "content": {
            "systemPrompt": "S", "agentConfig": {"b": 1, "a": [true]}, "rules": ["R"], "documentIds": ["d"],
            "mcpPreset": [], "messengerToken": "secret-1", "enableAutoRag": true,
            "agentServerUrl": "http://h", "agentServerApiKey": "secret-2", "agentServerTools": []
        },
        "children": [
            {"name": "WorkflowConnector", "content": {
                "webhookUrl": "http://w", "auth": {"type": "basic", "user": "u", "password": "secret-3"}}},
            {"name": "EmbeddedAI", "content": {"apiKey": "secret-4"}},
            {"name": "Unknown", "content": {"kept": [1]}}
        ]
    }))
    .expect("the suite's role is one")
}

/// Everything that a role holds, its secrets included.
fn all_of(role: &RoleBlock) -> (serde_json::Value, Vec<String>) {
    let content = &role.content;
    let mut secrets =
        vec![content.messenger_token.as_ref(), content.agent_server.agent_server_api_key.as_ref()];
    for child in &role.children {
        match child {
            Container::AgentServer(server) => secrets.push(server.agent_server_api_key.as_ref()),
            Container::WorkflowConnector(workflow) => secrets.push(match &workflow.auth {
                Some(WebhookAuth::Basic { password, .. }) => Some(password),
                _ => None,
            }),
            Container::EmbeddedAi(embedded) => secrets.push(embedded.api_key.as_ref()),
            _ => {}
        }
    }
    let secrets = secrets.into_iter().map(|secret| secret.map_or("", Secret::expose).to_owned());
    (serde_json::to_value(role).expect("a role serialises"), secrets.collect())
}

async fn get(store: &dyn RoleStore, company: &str) -> Option<Arc<RoleBlock>> {
    store.role(company, "agent").await.unwrap_or_else(|error| panic!("reading a role failed: {error:?}"))
}

async fn put(store: &dyn RoleStore, role: RoleBlock) {
    store.put_role(role).await.unwrap_or_else(|error| panic!("saving a role failed: {error:?}"));
}

async fn what_was_put_is_got(store: &dyn RoleStore) {
    assert!(get(store, "company").await.is_none(), "what was never put is absent");
    put(store, role("company")).await;
    let found = get(store, "company").await.expect("what was put is there");
    let (shown, secrets) = all_of(&found);
    assert_eq!(
        secrets,
        ["secret-1", "secret-2", "secret-3", "secret-4"],
        "secrets are given back as they were put"
    );
    assert_eq!(shown, all_of(&role("company")).0, "a role is given back as it was put");
    put(store, role("company")).await;
    let found = get(store, "company").await.expect("what was put twice is there");
    assert_eq!(all_of(&found), all_of(&role("company")), "putting a role again changes nothing");
}

async fn a_role_is_replaced_whole(store: &dyn RoleStore) {
    put(store, role("company")).await;
    let bare = RoleBlock { id: "agent".into(), company_id: "company".into(), ..RoleBlock::default() };
    put(store, bare.clone()).await;
    let found = get(store, "company").await.expect("there");
    assert_eq!(all_of(&found), all_of(&bare), "of a role that is replaced nothing is left");
}

async fn tenants_are_apart(store: &dyn RoleStore) {
    put(store, role("company")).await;
    assert!(get(store, "other").await.is_none(), "another company's role is absent");
    let refused = store.put_role(role("other")).await;
    assert!(
        matches!(&refused, Err(StoreError::Taken(id)) if id == "agent"),
        "an id that another company holds is taken: {refused:?}"
    );
    assert!(get(store, "other").await.is_none(), "a role that was refused is absent");
    let ours = get(store, "company").await.expect("our role is there");
    assert_eq!(ours.company_id, "company", "a role that was refused changes nothing of ours");
}

async fn identifiers_are_checked(store: &dyn RoleStore) {
    for (id, company) in [("", "company"), ("agent", ""), ("a\0", "company")] {
        let role = RoleBlock { id: id.into(), company_id: company.into(), ..RoleBlock::default() };
        let refused = store.put_role(role).await;
        assert!(
            matches!(refused, Err(StoreError::Invalid(_))),
            "a role of the id {id:?} in the company {company:?} is invalid: {refused:?}"
        );
    }
}
