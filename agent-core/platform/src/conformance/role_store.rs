//! Conformance suite for [`RoleStore`].

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::records::{ListQuery, Precondition, Record, StoreError};
use crate::roles::RoleStore;
use agent_core::role::{Container, RoleBlock, WebhookAuth};
use agent_core::secret::Secret;

type SharedRoleStore = Arc<dyn RoleStore>;

/// Runs the conformance suite of [`RoleStore`] against stores from `make`, which must return an empty one at every
/// call. The stores must be able to seal secrets.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn role_store(make: impl AsyncFn() -> SharedRoleStore) {
    a_stored_record_is_returned(&*make().await).await;
    a_role_is_replaced_whole(&*make().await).await;
    secrets_are_kept_replaced_and_cleared(&*make().await).await;
    secrets_are_for_those_who_send_them(&*make().await).await;
    preconditions_hold(&*make().await).await;
    tenants_are_apart(&*make().await).await;
    a_role_is_deleted_whole(&*make().await).await;
    companies_share_an_id(&*make().await).await;
    identifiers_are_checked(&*make().await).await;
    roles_are_listed_in_pages(&*make().await).await;
}

fn role(company: &str) -> RoleBlock {
    parse_role(json!({
        "id": "agent", "name": "Ann", "ownerId": "ada", "companyId": company,
        "content": {
            "systemPrompt": "S", "agentConfig": {"b": 1, "a": [true]}, "rules": ["R"], "documentIds": ["d"],
            "mcpPreset": [], "messengerToken": "secret-1", "enableAutoRag": true,
            "agentServerUrl": "http://h", "agentServerApiKey": "secret-2", "agentServerTools": [],
            "fallbacks": [{"agentServerUrl": "http://f", "agentServerApiKey": "secret-f"}]
        },
        "children": [
            {"name": "WorkflowConnector", "content": {
                "webhookUrl": "http://w", "auth": {"type": "basic", "user": "u", "password": "secret-3"}}},
            {"name": "EmbeddedAI", "content": {"apiKey": "secret-4"}},
            {"name": "Unknown", "content": {"kept": [1]}}
        ]
    }))
}

fn parse_role(role: Value) -> RoleBlock {
    serde_json::from_value(role).expect("the suite's roles are such")
}

fn minimal_role(company: &str) -> RoleBlock {
    named(company, "agent")
}

fn named(company: &str, id: &str) -> RoleBlock {
    parse_role(json!({"id": id, "companyId": company}))
}

fn shown(role: &RoleBlock) -> Value {
    serde_json::to_value(role).expect("a role serialises")
}

/// Returns the secrets of a role; absent ones as empty strings.
fn secrets_of(role: &RoleBlock) -> Vec<String> {
    let content = &role.content;
    let mut secrets =
        vec![content.messenger_token.as_ref(), content.agent_server.agent_server_api_key.as_ref()];
    for child in &role.children {
        match child {
            Container::AgentServer(server) => secrets.push(server.agent_server_api_key.as_ref()),
            Container::WorkflowConnector(workflow) => secrets.push(match &workflow.auth {
                Some(WebhookAuth::Basic { password, .. }) => password.as_ref(),
                _ => None,
            }),
            Container::EmbeddedAi(embedded) => secrets.push(embedded.api_key.as_ref()),
            _ => {}
        }
    }
    let fallbacks = content.agent_server.fallbacks.iter();
    secrets.extend(fallbacks.map(|fallback| fallback.agent_server_api_key.as_ref()));
    secrets.into_iter().map(|secret| secret.map_or("", Secret::expose).to_owned()).collect()
}

const SECRETS: [&str; 5] = ["secret-1", "secret-2", "secret-3", "secret-4", "secret-f"];

async fn get(store: &dyn RoleStore, company: &str) -> Option<Arc<RoleBlock>> {
    done("reading a role", store.role(&company.into(), &"agent".into()).await)
}

async fn stored_role(store: &dyn RoleStore) -> Arc<RoleBlock> {
    get(store, "company").await.expect("a saved role is returned")
}

async fn masked(store: &dyn RoleStore, company: &str) -> Option<Record<RoleBlock>> {
    done("reading a masked role", store.masked_role(&company.into(), &"agent".into()).await)
}

async fn put(store: &dyn RoleStore, role: RoleBlock) -> u64 {
    done("saving a role", store.put_role(role, Precondition::Any).await)
}

async fn delete(store: &dyn RoleStore, company: &str) -> bool {
    done("deleting a role", store.delete_role(&company.into(), &"agent".into(), Precondition::Any).await)
}

fn done<T>(what: &str, result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| panic!("{what} failed: {error:?}"))
}

async fn a_stored_record_is_returned(store: &dyn RoleStore) {
    assert!(get(store, "company").await.is_none(), "a record that was never put is absent");
    assert!(masked(store, "company").await.is_none(), "a role that was never saved is absent when masked");
    let version = put(store, role("company")).await;
    let found = stored_role(store).await;
    assert_eq!(secrets_of(&found), SECRETS, "secrets are returned as they were saved");
    assert_eq!(shown(&found), shown(&role("company")), "a role is returned as it was saved");
    let record = masked(store, "company").await.expect("a saved role is returned when masked");
    assert_eq!((record.id.as_str(), record.version), ("agent", version), "a masked role has its version");

    put(store, role("company")).await;
    let found = stored_role(store).await;
    assert_eq!(secrets_of(&found), SECRETS, "putting a role again changes no secret");
    assert_eq!(shown(&found), shown(&role("company")), "putting a role again changes nothing");
}

async fn a_role_is_replaced_whole(store: &dyn RoleStore) {
    let first = put(store, role("company")).await;
    stored_role(store).await;
    let second = put(store, RoleBlock { name: "Bea".into(), ..minimal_role("company") }).await;
    assert!(second > first, "a role's version grows when it changes");
    let found = stored_role(store).await;
    let expected = json!({"id": "agent", "name": "Bea", "ownerId": "", "companyId": "company",
        "content": {"messengerToken": "***"}});
    assert_eq!(shown(&found), expected, "a replaced role keeps only its secrets without an address");
    let record = masked(store, "company").await.expect("there");
    assert_eq!(record.version, second, "a masked role has the version of the latest write");
}

async fn secrets_are_kept_replaced_and_cleared(store: &dyn RoleStore) {
    let secrets = async || secrets_of(&*stored_role(store).await);
    let edited = |path: &str, value: Value| {
        let mut edited = shown(&role("company"));
        *edited.pointer_mut(path).expect("the suite's paths are right") = value;
        parse_role(edited)
    };
    put(store, edited("/content/messengerToken", json!("***"))).await;
    assert_eq!(secrets().await, [""; 5], "a mask in a new role stands for no secret");
    assert_eq!(
        shown(&*stored_role(store).await)["content"].get("messengerToken"),
        None,
        "and it is not returned"
    );

    let before = put(store, role("company")).await;
    assert_eq!(secrets().await, SECRETS, "a secret is added to a role");
    put(store, edited("/name", json!("Bea"))).await;
    assert_eq!(secrets().await, SECRETS, "masked secrets stay as they are");
    let mut absent = shown(&role("company"));
    for (pointer, field) in [("/content", "messengerToken"), ("/children/1/content", "apiKey")] {
        let pointer = absent.pointer_mut(pointer).and_then(Value::as_object_mut);
        pointer.expect("the suite's paths are right").remove(field);
    }
    put(store, parse_role(absent)).await;
    assert_eq!(secrets().await, SECRETS, "absent secrets stay as they are");

    let between = put(store, edited("/content/messengerToken", json!("secret-5"))).await;
    assert!(between > before, "a role's version grows when a secret alone changes");
    assert_eq!(
        secrets().await,
        ["secret-5", "secret-2", "secret-3", "secret-4", "secret-f"],
        "a new secret is used"
    );
    put(store, edited("/children/1/content/apiKey", json!(""))).await;
    assert_eq!(
        secrets().await,
        ["secret-5", "secret-2", "secret-3", "", "secret-f"],
        "an empty secret is cleared"
    );
    put(store, edited("/children/0/content/webhookUrl", json!("http://other"))).await;
    assert_eq!(
        secrets().await,
        ["secret-5", "secret-2", "", "", "secret-f"],
        "a changed address clears its secret"
    );
}

async fn secrets_are_for_those_who_send_them(store: &dyn RoleStore) {
    put(store, role("company")).await;
    stored_role(store).await;
    let masks = ["***"; 5];
    let record = masked(store, "company").await.expect("there");
    assert_eq!(secrets_of(&record.value), masks, "a masked role holds no secret");
    let page = done("listing roles", store.masked_roles(&"company".into(), &ListQuery::default()).await);
    assert_eq!(secrets_of(&page.records[0].value), masks, "a list holds no secret");
    put(store, record.value).await;
    assert_eq!(secrets_of(&*stored_role(store).await), SECRETS, "a masked role can be saved again");
}

async fn preconditions_hold(store: &dyn RoleStore) {
    let put_if = async |name: &str, precondition| {
        let role = RoleBlock { name: name.to_owned(), ..minimal_role("company") };
        store.put_role(role, precondition).await
    };
    let conflict = |result: Result<u64, StoreError>, found: Option<u64>, what: &str| {
        assert!(
            matches!(&result, Err(StoreError::Conflict { found: there, .. }) if *there == found),
            "{what} conflicts with the stored role, {found:?}: {result:?}"
        );
    };
    conflict(put_if("A", Precondition::Version(1)).await, None, "writing a version of an absent record");
    let first = done("creating", put_if("A", Precondition::Absent).await);
    conflict(put_if("B", Precondition::Absent).await, Some(first), "creating an existing record");
    let second = done("replacing", put_if("B", Precondition::Version(first)).await);
    conflict(put_if("C", Precondition::Version(first)).await, Some(second), "an old version");
    assert_eq!(stored_role(store).await.name, "B", "a write that is refused changes nothing");

    let refused = store.delete_role(&"company".into(), &"agent".into(), Precondition::Version(first)).await;
    let refused = refused.map(u64::from);
    conflict(refused, Some(second), "deleting an old version");
    assert!(get(store, "company").await.is_some(), "a deletion that is refused deletes nothing");
    let deleted = store.delete_role(&"company".into(), &"agent".into(), Precondition::Version(second)).await;
    assert!(done("deleting", deleted), "a role of the right version is deleted");
    let refused = store.delete_role(&"company".into(), &"agent".into(), Precondition::Version(second)).await;
    conflict(refused.map(u64::from), None, "deleting a version of an absent record");
    let third = done("creating", put_if("D", Precondition::Absent).await);
    assert!(third > second, "versions do not come back with a new role");
}

async fn a_role_is_deleted_whole(store: &dyn RoleStore) {
    assert!(!delete(store, "company").await, "there is nothing to delete");
    put(store, role("company")).await;
    stored_role(store).await;
    assert!(!delete(store, "other").await, "another company's role is absent when it is deleted");
    assert!(get(store, "company").await.is_some(), "and stays");
    assert!(delete(store, "company").await, "there was a role to delete");
    assert!(get(store, "company").await.is_none(), "a role that was deleted is absent");
    assert!(masked(store, "company").await.is_none(), "a role that was deleted is absent when masked");
    put(store, parse_role(shown(&role("company")))).await;
    assert_eq!(secrets_of(&*stored_role(store).await), [""; 5], "a deleted role leaves no secret");
}

async fn tenants_are_apart(store: &dyn RoleStore) {
    put(store, role("company")).await;
    assert!(get(store, "other").await.is_none(), "another company's role is absent");
    assert!(masked(store, "other").await.is_none(), "another company's role is absent when masked");
    let page = done("listing roles", store.masked_roles(&"other".into(), &ListQuery::default()).await);
    assert!(page.records.is_empty(), "another company's role is absent from a list");
    let theirs = RoleBlock { name: "Bea".into(), ..minimal_role("other") };
    done(
        "saving a role of an id that another company has",
        store.put_role(theirs, Precondition::Absent).await,
    );
    let other_role = get(store, "other").await.expect("two companies have agents of the same id");
    assert_eq!(other_role.name, "Bea", "two companies have agents of their own");
    assert!(secrets_of(&other_role).iter().all(String::is_empty), "no secret is shared between companies");
    let ours = stored_role(store).await;
    assert_eq!((ours.name.as_str(), secrets_of(&ours)), ("Ann", SECRETS.map(str::to_owned).to_vec()));
    assert!(delete(store, "other").await, "the role of one company is deleted");
    assert_eq!(secrets_of(&*stored_role(store).await), SECRETS, "and the role of the other company is kept");
}

async fn companies_share_an_id(store: &dyn RoleStore) {
    let companies: Vec<String> = (0..8).map(|n| format!("company-{n}")).collect();
    let puts = companies.iter().map(|company| store.put_role(minimal_role(company), Precondition::Absent));
    for result in join_all(puts).await {
        done("saving a role of the same id at the same time as other companies", result);
    }
    for company in &companies {
        let own_role = get(store, company).await.expect("each company has its own");
        assert_eq!(own_role.company_id.as_str(), company, "each company has its own");
    }

    let puts = (0..8).map(|n| {
        let role = RoleBlock { name: n.to_string(), ..named("company", "other") };
        store.put_role(role, Precondition::Any)
    });
    for result in join_all(puts).await {
        done("saving a role at the same time as others", result);
    }
}

async fn identifiers_are_checked(store: &dyn RoleStore) {
    let long = "x".repeat(129);
    for (id, company) in [("", "company"), ("agent", ""), ("a\0", "company"), (&long, "company")] {
        let refused = store.put_role(named(company, id), Precondition::Any).await;
        assert!(
            matches!(refused, Err(StoreError::Invalid(_))),
            "a role of the id {id:?} in the company {company:?} is invalid: {refused:?}"
        );
        let what = format!("the id {id:?} in the company {company:?}, which no agent has");
        let (id, company) = (&id.into(), &company.into());
        assert!(done(&what, store.role(company, id).await).is_none(), "{what}, is absent");
        assert!(done(&what, store.masked_role(company, id).await).is_none(), "{what}, is absent");
        let deleted = store.delete_role(company, id, Precondition::Any).await;
        assert!(!done(&what, deleted), "{what}, cannot be deleted");
    }
    let longest = "ü".repeat(64);
    done("saving", store.put_role(named("company", &longest), Precondition::Any).await);
    assert!(
        done("reading", store.role(&"company".into(), &longest.into()).await).is_some(),
        "an id has up to 128 bytes"
    );
}

async fn roles_are_listed_in_pages(store: &dyn RoleStore) {
    for id in ["b", "a/1", "ü", "a", "B"] {
        put(store, named("company", id)).await;
    }
    for (company, expected) in [("company", 5), ("other", 0)] {
        let count = done("counting roles", store.count_roles(&company.into()).await);
        assert_eq!(count, expected, "the roles of a company are counted");
    }
    let mut list = ListQuery { limit: Some(2), ..ListQuery::default() };
    let mut ids = Vec::new();
    loop {
        let page = done("listing roles", store.masked_roles(&"company".into(), &list).await);
        assert!(page.records.len() <= 2, "a page has no more roles than were asked for");
        for record in page.records {
            assert_eq!(record.value.id, *record.id, "a role is listed under its id");
            ids.push(record.id);
        }
        assert!(ids.len() <= 5, "a list ends");
        match page.next_cursor {
            Some(cursor) => list.cursor = Some(cursor),
            None => break,
        }
    }
    assert_eq!(ids, ["B", "a", "a/1", "b", "ü"], "roles are listed by the bytes of their ids");
}
