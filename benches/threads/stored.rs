//! Threads in a SQLite file.

use std::path::Path;
use std::sync::Arc;

use agent_core::message::Message;
use agent_platform::conversation::{
    Conversations, CreateThreadRequest, NewNode, NewThread, ThreadKey, import_nodes,
};
use agent_store::sqlite::{SqliteOptions, SqliteStore};
use anyhow::Result;
use jiff::Timestamp;
use tokio::task::JoinSet;

/// Number of threads that are created at once.
const CREATORS: usize = 256;
/// Agent of all threads.
pub(crate) const AGENT: &str = "agent";

pub(crate) fn open(path: &Path) -> Result<Arc<SqliteStore>> {
    Ok(Arc::new(SqliteStore::open(path, SqliteOptions::default())?))
}

/// Returns a thread whose last activity is at `now`.
pub(crate) fn thread(key: ThreadKey, nodes: Vec<NewNode>, now: Timestamp) -> CreateThreadRequest {
    let title = Some(format!("Conversation {}", key.id));
    let new = NewThread { title, ..NewThread::default() };
    CreateThreadRequest { key, agent_id: AGENT.into(), new, retention: None, nodes, now }
}

/// Returns messages of the user and the agent in turn.
pub(crate) fn dialogue(messages: usize) -> Vec<NewNode> {
    let message = |n: usize| {
        let question = format!("{n}: when does the shop on the corner open, and is the *basil* there fresh?");
        match n % 2 {
            0 => Message::user(question),
            _ => Message::assistant(question.repeat(4)),
        }
    };
    import_nodes(None, (0..messages).map(message).collect())
}

/// Creates threads, many at once.
pub(crate) async fn create_all(
    store: &Arc<SqliteStore>,
    count: usize,
    make: impl Fn(usize) -> CreateThreadRequest + Clone + Send + Sync + 'static,
) -> Result<()> {
    let mut creators = JoinSet::new();
    for first in 0..CREATORS {
        let (store, make) = (store.clone(), make.clone());
        creators.spawn(async move {
            for n in (first..count).step_by(CREATORS) {
                store.create(make(n)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = creators.join_next().await {
        done??;
    }
    Ok(())
}
