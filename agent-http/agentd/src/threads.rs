//! `agentd threads`: the operator's commands on the conversations of a user.

use std::io::Write;

use agent_core::event::Audience;
use agent_core::ids::{CompanyId, UserId};
use agent_core::store_error::StoreError;
use agent_platform::conversation::{
    ConversationError, Conversations, DeleteFilter, OwnerExport, ThreadOwner,
};
use jiff::Timestamp;

use crate::command_error::CommandError;
use crate::config::AppConfig;
use crate::stores::Stores;

/// Prints all threads of a user.
pub(crate) async fn export(
    user: &UserId,
    company: &CompanyId,
    config: &AppConfig,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    export_in(&Stores::open_existing(config).await?, user, company, out).await
}

async fn export_in(
    stores: &Stores,
    user: &UserId,
    company: &CompanyId,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let owner = ThreadOwner::new(company.clone(), user.clone());
    let conversations = stores.conversations.clone();
    let mut export = OwnerExport::new(conversations, owner, Audience::Trusted, Timestamp::now());
    let mut is_empty = true;
    while let Some(piece) = export.next().await.map_err(store_error)? {
        out.write_all(piece.as_bytes())?;
        is_empty = false;
    }
    match is_empty {
        true => Err(CommandError::NoThreads { user: user.to_string(), company: company.to_string() }),
        false => Ok(()),
    }
}

/// Deletes all threads of a user.
pub(crate) async fn delete(
    user: &UserId,
    company: &CompanyId,
    config: &AppConfig,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    delete_in(&Stores::open_existing(config).await?, user, company, out).await
}

async fn delete_in(
    stores: &Stores,
    user: &UserId,
    company: &CompanyId,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    match delete_threads(&*stores.conversations, company, user).await? {
        0 => Err(CommandError::NoThreads { user: user.to_string(), company: company.to_string() }),
        count => Ok(writeln!(out, "{count} threads of {user} at {company} are deleted.")?),
    }
}

/// Deletes all threads of a user, and returns their number.
pub(crate) async fn delete_threads(
    conversations: &dyn Conversations,
    company: &CompanyId,
    user: &UserId,
) -> Result<usize, CommandError> {
    let owner = ThreadOwner::new(company.clone(), user.clone());
    let mut count = 0;
    loop {
        let deleted = conversations.delete_many(&owner, &DeleteFilter::default()).await;
        let deleted = deleted.map_err(store_error)?;
        count += deleted.deleted;
        if !deleted.has_more {
            return Ok(count);
        }
    }
}

fn store_error(error: ConversationError) -> StoreError {
    match error {
        ConversationError::Store(error) => error,
        error => StoreError::unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use agent_core::message::Message;
    use agent_platform::conversation::{CreateThreadRequest, NewNode, NewThread, ThreadKey};
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test]
    async fn threads_of_one_user_are_exported_and_deleted() {
        let stores = Stores::in_memory("the test's", "{}").await.expect("a valid workspace");
        for (company, user, id) in
            [("c1", "ada", "a"), ("c1", "ada", "b"), ("c1", "bob", "t"), ("c2", "ada", "t")]
        {
            let create = CreateThreadRequest {
                key: ThreadKey::new(company, user, id),
                agent_id: "gardener".into(),
                new: NewThread::default(),
                retention: None,
                nodes: vec![NewNode::user(None, Message::user(format!("{company} {user}")))],
                now: Timestamp::UNIX_EPOCH,
            };
            stores.conversations.create(create).await.expect("created");
        }
        let (ada, company) = ("ada".into(), "c1".into());
        let mut out = Vec::new();
        export_in(&stores, &ada, &company, &mut out).await.expect("exported");
        let lines = String::from_utf8(out).expect("text");
        let lines: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        let shown: Vec<_> = lines
            .iter()
            .map(|line| (&line["thread"]["id"], &line["nodes"][0]["message"]["content"]))
            .collect();
        assert_eq!(shown, [(&json!("b"), &json!("c1 ada")), (&json!("a"), &json!("c1 ada"))]);
        let mut out = Vec::new();
        delete_in(&stores, &ada, &company, &mut out).await.expect("deleted");
        assert_eq!(String::from_utf8(out).expect("text"), "2 threads of ada at c1 are deleted.\n");
        for again in [
            delete_in(&stores, &ada, &company, &mut Vec::new()).await,
            export_in(&stores, &ada, &company, &mut Vec::new()).await,
        ] {
            assert!(matches!(again, Err(CommandError::NoThreads { .. })), "{again:?}");
        }
        for (company, user) in [("c1", "bob"), ("c2", "ada")] {
            let key = ThreadKey::new(company, user, "t");
            assert!(stores.conversations.thread(&key).await.expect("it reads").is_some());
        }
    }
}
