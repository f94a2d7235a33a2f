//! Conformance suite for stores of quotas.

use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_core::ids::CompanyId;
use agent_core::role::RoleBlock;
use futures_util::future::join_all;
use serde_json::json;

use super::interleaved::InterleavedRecords;
use crate::providers::{ProviderInput, Providers};
use crate::records::{
    Collection, Inventory, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Records, Write, to_json,
};
use crate::roles::{RecordRoleStore, RoleStore as _};
use crate::seal::Sealer;
use crate::spawner::Spawner;
use crate::token::{ApiGrant, Grant, MAX_TOKENS_PER_AGENT, NewToken, TokenMintError, Tokens, WidgetGrant};
use crate::usage::{Budget, BudgetKind, BudgetOptions, Budgets, MemoryUsage};

/// Number of processes.
const PROCESSES: usize = 2;
/// Number of concurrent creations.
const CONCURRENT_CREATIONS: usize = 8;
/// Number of creations that fit into the quota.
const QUOTA: u64 = 3;

/// Runs the conformance suite of the quotas on agents, providers, budgets and tokens over stores from `make`, which must
/// return handles of one empty store, one for each of several processes, at every call. `spawner` runs background tasks.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn quotas(make: impl AsyncFn(usize) -> Vec<Arc<dyn Inventory>>, spawner: Arc<dyn Spawner>) {
    let processes = async || -> Vec<Arc<dyn Records>> {
        let stores = make(PROCESSES).await.into_iter();
        stores.map(|store| Arc::new(InterleavedRecords(store)) as _).collect()
    };
    agents_stay_within_their_quota(&processes().await).await;
    providers_stay_within_their_quota(&processes().await).await;
    budgets_stay_within_their_quota(&processes().await, &spawner).await;
    tokens_stay_within_their_quota(&processes().await).await;
}

fn company() -> CompanyId {
    "company".into()
}

/// Creates items concurrently, round-robin by process, and checks that as many succeed as fit and the others conflict.
async fn assert_created<T, E: std::fmt::Debug>(
    what: &str,
    create: impl AsyncFn(usize, String) -> Result<T, E>,
    is_refusal: impl Fn(&E) -> bool,
) {
    let outcomes =
        join_all((0..CONCURRENT_CREATIONS).map(|n| create(n % PROCESSES, format!("new-{n}")))).await;
    let mut created = 0;
    for outcome in outcomes {
        match outcome {
            Ok(_) => created += 1,
            Err(error) => assert!(is_refusal(&error), "a refused creation of {what}: {error:?}"),
        }
    }
    assert_eq!(created, QUOTA, "as many concurrent creations of {what} succeed as fit");
}

fn is_conflict(error: &agent_core::store_error::StoreError) -> bool {
    matches!(error, agent_core::store_error::StoreError::Conflict { .. })
}

async fn agents_stay_within_their_quota(processes: &[Arc<dyn Records>]) {
    let sealer = Arc::new(Sealer::ephemeral());
    let stores: Vec<RecordRoleStore> =
        processes.iter().map(|records| RecordRoleStore::new(records.clone(), sealer.clone())).collect();
    let role = |id: &str| -> RoleBlock {
        serde_json::from_value(json!({"id": id, "companyId": "company"})).expect("a role")
    };
    let create = async |process: usize, id: String| stores[process].create_role(role(&id), QUOTA).await;
    assert_created("agents", create, is_conflict).await;
    assert_eq!(stores[0].count_roles(&company()).await.expect("counted"), QUOTA);
    let page = stores[0].masked_roles(&company(), &ListQuery::default()).await.expect("listed");
    let taken = page.records[0].id.clone();
    for (id, limit) in [("another", QUOTA), (taken.as_str(), QUOTA + 1)] {
        let refused = stores[1].create_role(role(id), limit).await;
        assert!(refused.as_ref().is_err_and(is_conflict), "{id}: {refused:?}");
    }
    stores[1].create_role(role("another"), QUOTA + 1).await.expect("a larger quota has room");
}

async fn providers_stay_within_their_quota(processes: &[Arc<dyn Records>]) {
    let sealer = Arc::new(Sealer::ephemeral());
    let stores: Vec<Providers> =
        processes.iter().map(|records| Providers::new(records.clone(), sealer.clone())).collect();
    let input = json!({"type": "openai", "apiKey": "k"});
    let input = ProviderInput::read(input.as_object().expect("an object")).expect("a provider");
    let create =
        async |process: usize, id: String| stores[process].create(&company(), &id, &input, QUOTA).await;
    assert_created("providers", create, is_conflict).await;
    assert_eq!(stores[0].count(&company()).await.expect("counted"), QUOTA);
    let page = stores[0].list(&company(), &ListQuery::default()).await.expect("listed");
    assert!(page.records.iter().all(|record| record.value.has_key()), "providers are stored with their keys");
}

async fn budgets_stay_within_their_quota(processes: &[Arc<dyn Records>], spawner: &Arc<dyn Spawner>) {
    let usage = Arc::new(MemoryUsage::default());
    let open = |records: &Arc<dyn Records>| {
        let clock = Arc::new(SystemClock);
        Budgets::new(records.clone(), usage.clone(), clock, spawner.clone(), BudgetOptions::default())
    };
    let stores: Vec<Budgets> = processes.iter().map(open).collect();
    let body = json!({"limits": [{"unit": "tokens", "amount": 1_000, "window": "month"}]});
    let budget = Budget::read(BudgetKind::User, body.as_object().expect("an object")).expect("a budget");
    let create = async |process: usize, id: String| {
        stores[process].create(&company(), (BudgetKind::User, &id), &budget, QUOTA).await
    };
    assert_created("budgets", create, is_conflict).await;
    assert_eq!(stores[0].count(&company()).await.expect("counted"), QUOTA);
}

async fn tokens_stay_within_their_quota(processes: &[Arc<dyn Records>]) {
    let stores: Vec<Tokens> =
        processes.iter().map(|records| Tokens::new(records.clone(), Arc::new(SystemClock))).collect();
    let widget = || NewToken::new("company", "agent", Grant::Widget(WidgetGrant::default()));
    let minted = stores[0].mint(widget()).await.expect("minted").token;
    stores[0].revoke(&minted.id, None).await.expect("revoked");
    // Entries of tokens that do not exist count, too. The entry of the revoked token makes room, so exactly `QUOTA` further
    // tokens fit.
    let index = Collection::new(company(), "agentTokens").and_then(|tokens| tokens.within("agent"));
    let index = index.expect("a collection");
    let planted = (0..MAX_TOKENS_PER_AGENT as u64 - QUOTA).map(|n| {
        let key: Key = index.key(format!("planted-{n}")).expect("a key");
        Write::Put { key, value: to_json(&json!({})).expect("JSON"), precondition: Precondition::Absent }
    });
    processes[0].commit(planted.collect()).await.expect("planted");
    let is_full = |error: &TokenMintError| matches!(error, TokenMintError::TooManyAgentTokens { .. });
    let mint = async |process: usize, id: String| {
        // Tokens of the same user conflict also in the user's own record.
        let grant = match id.ends_with(['0', '1', '2']) {
            true => Grant::Api(ApiGrant { user_id: "ada".into(), agents: vec!["agent".into()], caps: None }),
            false => Grant::Widget(WidgetGrant::default()),
        };
        stores[process].mint(NewToken::new("company", "agent", grant)).await
    };
    assert_created("tokens", mint, is_full).await;
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    let mut valid = 0;
    loop {
        let page = stores[0].list(&company(), &"agent".into(), &list).await.expect("listed");
        valid += page.records.iter().filter(|record| record.value.revoked_at.is_none()).count();
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            break;
        }
    }
    assert_eq!(valid as u64, QUOTA);
    assert_eq!(processes[0].count(&index).await.expect("counted"), MAX_TOKENS_PER_AGENT as u64);
}
