//! `agentd user`: the operator's commands on people.

use std::io::Write;
use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_core::ids::{CompanyId, UserId};
use agent_platform::console::ConsoleSessions;
use agent_platform::token::Tokens;
use agent_platform::workspace::{UserDeletion, delete_user};

use crate::command_error::CommandError;
use crate::config::AppConfig;
use crate::stores::Stores;
use crate::threads::delete_threads;

/// Deletes a user with all that belongs to the user alone, revokes the user's MCP and API tokens, and ends the sessions of the
/// console.
pub(crate) async fn delete(
    user: &UserId,
    company: &CompanyId,
    config: &AppConfig,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let stores = Stores::open_existing(config).await?;
    delete_in(&stores, user, company, out).await
}

async fn delete_in(
    stores: &Stores,
    user: &UserId,
    company: &CompanyId,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let tokens = Tokens::new(stores.records.clone(), Arc::new(SystemClock));
    let revoked = tokens.revoke_of_user(&*stores.records, company, user).await?;
    let console = ConsoleSessions::new(stores.records.clone(), Arc::new(SystemClock));
    let revoked = revoked + console.revoke_all(company, user).await?;
    let deleted = delete_user(&*stores.records, company, user).await?;
    let threads = delete_threads(&*stores.conversations, company, user).await?;
    if revoked == 0 && threads == 0 && deleted == UserDeletion::default() {
        return Err(CommandError::NoSuchUser { user: user.to_string(), company: company.to_string() });
    }
    let UserDeletion { memories, notifications, files, todo_lists, assignments, subscriptions, .. } = deleted;
    writeln!(
        out,
        "{user} at {company} is deleted, with {memories} memories, {notifications} notifications, {files} files, \
         {todo_lists} todo lists, {assignments} assignments and {threads} threads; {revoked} tokens are revoked."
    )?;
    if subscriptions > 0 {
        writeln!(out, "The sign-in to a subscription is deleted; its tokens are not revoked at the vendor.")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use agent_platform::coding::TOKEN_COLLECTION;
    use agent_platform::conversation::{CreateThreadRequest, NewThread, ThreadKey};
    use agent_platform::records::{Key, Precondition, RecordsExt};
    use agent_platform::token::{Grant, McpGrant, NewToken};
    use agent_platform::workspace::{
        NewUserFile, WorkspaceFile, list_decided_approvals, record_decided_approval,
    };
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    /// Returns an item of each kind for a user of a company, with the same ids for all.
    fn workspace() -> serde_json::Value {
        let mut file = json!({
            "users": [], "agents": [], "memories": [], "todoLists": [], "plans": [], "assignments": []
        });
        let mut add = |list: &str, item| file[list].as_array_mut().expect("a list").push(item);
        for company in ["c1", "c2"] {
            add("agents", json!({"id": "a", "ownerId": "ada", "companyId": company}));
            for user in ["ada", "bob"] {
                add("users", json!({"id": user, "companyId": company}));
                add(
                    "memories",
                    json!({"id": "m", "companyId": company, "agentId": "a", "userId": user, "text": "x"}),
                );
                add("todoLists", json!({"id": user, "companyId": company, "ownerId": user, "todos": []}));
                add("plans", json!({"id": user, "companyId": company, "text": "x"}));
                add(
                    "assignments",
                    json!({"id": user, "companyId": company, "userId": user, "agentId": "a",
                    "toolId": "readTodos", "schedule": {"enabled": true, "cron": "0 9 * * *"}}),
                );
            }
            add("memories", json!({"id": "m", "companyId": company, "agentId": "a", "text": "shared"}));
        }
        file
    }

    #[tokio::test]
    async fn a_deletion_removes_only_the_users_own_data() {
        let stores =
            Stores::in_memory("the test's", &workspace().to_string()).await.expect("a valid workspace");
        let tokens = Tokens::new(stores.records.clone(), Arc::new(SystemClock));
        let mint = async |company: &str, user: &str| {
            let grant = McpGrant { user_id: user.into(), ..McpGrant::default() };
            tokens.mint(NewToken::new(company, "a", Grant::Mcp(grant))).await.expect("minted").text
        };
        let (own, colleagues, namesakes) =
            (mint("c1", "ada").await, mint("c1", "bob").await, mint("c2", "ada").await);
        let tokens_of = |company: &str| Key::new(company, TOKEN_COLLECTION, "ada").expect("a key");
        for company in ["c1", "c2"] {
            stores
                .records
                .put_as(&tokens_of(company), &json!({}), Precondition::Absent)
                .await
                .expect("stored");
        }
        let owners = [("c1", "ada"), ("c1", "bob"), ("c2", "ada")];
        for (company, user) in owners {
            let create = CreateThreadRequest {
                key: ThreadKey::new(company, user, "t"),
                agent_id: "a".into(),
                new: NewThread::default(),
                retention: None,
                nodes: Vec::new(),
                now: Timestamp::UNIX_EPOCH,
            };
            stores.conversations.create(create).await.expect("created");
            let file = NewUserFile::new(None, "text/plain".to_owned(), "mine".into());
            let owner = (&company.into(), &user.into());
            let stored = file.store(&*stores.records, owner, Timestamp::UNIX_EPOCH, Timestamp::MAX).await;
            stored.expect("stored");
            record_decided_approval(&*stores.records, owner, "an approval").await.expect("stored");
        }
        let mut out = Vec::new();
        delete_in(&stores, &"ada".into(), &"c1".into(), &mut out).await.expect("deleted");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "ada at c1 is deleted, with 1 memories, 0 notifications, 1 files, 1 todo lists, 1 assignments and 1 \
             threads; 1 tokens are revoked.\nThe sign-in to a subscription is deleted; its tokens are not revoked at the vendor.\n"
        );
        assert!(stores.records.get(&tokens_of("c1")).await.expect("read").is_none());
        assert!(stores.records.get(&tokens_of("c2")).await.expect("read").is_some());
        for (company, user) in owners {
            let thread =
                stores.conversations.thread(&ThreadKey::new(company, user, "t")).await.expect("read");
            assert_eq!(thread.is_some(), (company, user) != ("c1", "ada"), "{company} {user}");
            let owner = (&company.into(), &user.into());
            let decided = list_decided_approvals(&*stores.records, owner).await.expect("read");
            assert_eq!(decided.is_empty(), (company, user) == ("c1", "ada"), "{company} {user}");
        }
        for (token, is_valid) in [(own, false), (colleagues, true), (namesakes, true)] {
            assert_eq!(tokens.find(token.expose()).await.is_ok(), is_valid);
        }
        let left = WorkspaceFile::export(&*stores.records, None).await.expect("exported");
        let mut expected = workspace();
        for list in ["users", "memories", "todoLists", "plans", "assignments"] {
            expected[list].as_array_mut().expect("a list").retain(|item| {
                let owner = ["userId", "ownerId", "id"].iter().find_map(|name| item[*name].as_str());
                item["companyId"] != "c1" || owner != Some("ada")
            });
        }
        let expected = WorkspaceFile::parse(&expected.to_string()).expect("a valid workspace");
        assert_eq!(left.users, expected.users);
        assert_eq!(left.plans, expected.plans);
        assert_eq!(left.assignments, expected.assignments);
        assert_eq!((left.memories.len(), left.todo_lists.len(), left.agents.len()), (5, 3, 2));
        assert!(left.memories.iter().all(|entry| expected.memories.contains(entry)));

        let again = delete_in(&stores, &"ada".into(), &"c1".into(), &mut Vec::new()).await;
        assert_eq!(
            again.expect_err("nothing is left").to_string(),
            "the database has no data of a user \"ada\" of \"c1\"; check --user, --company and DATABASE_URL"
        );
    }
}
