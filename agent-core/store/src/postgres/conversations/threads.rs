//! Writes of threads and their nodes, each within one transaction under the lock on the owner.

use agent_platform::conversation::commit::{self, referenced_ids};
use agent_platform::conversation::page::path_to_fork;
use agent_platform::conversation::{
    AppendedNodes, ConversationError, ForkThreadRequest, NewNode, StoredNode, Thread, ThreadKey, ThreadPatch,
};
use jiff::Timestamp;

use super::tables::{ConversationTables, TableError};

/// Creates a thread under a key that has none, and returns it with its number.
pub(super) async fn insert_thread(
    tables: &ConversationTables,
    key: &ThreadKey,
    make: impl FnOnce(u64) -> Result<(Thread, Vec<StoredNode>), ConversationError> + Send,
) -> Result<(i64, Thread), TableError> {
    if tables.thread(key).await?.is_some() {
        return Err(ConversationError::ThreadExists.into());
    }
    let (thread, nodes) = make(tables.thread_count(&key.thread_owner()).await?)?;
    let n = tables.put_thread(None, key, &thread).await?;
    tables.insert_nodes(n, &nodes).await?;
    Ok((n, thread))
}

pub(super) async fn patch_thread(
    tables: &ConversationTables,
    key: &ThreadKey,
    patch: &ThreadPatch,
) -> Result<Thread, TableError> {
    let (n, thread) = tables.thread(key).await?.ok_or(ConversationError::ThreadNotFound)?;
    let links = match patch.head {
        Some(_) => tables.links(n).await?,
        None => Vec::new(),
    };
    let thread = commit::patch(thread, patch, &links)?;
    tables.put_thread(Some(n), key, &thread).await?;
    Ok(thread)
}

pub(super) async fn append(
    tables: &ConversationTables,
    key: &ThreadKey,
    expected_version: Option<u64>,
    nodes: Vec<NewNode>,
    now: Timestamp,
) -> Result<AppendedNodes, TableError> {
    let (n, thread) = tables.thread(key).await?.ok_or(ConversationError::ThreadNotFound)?;
    let known = tables.known(n, &referenced_ids(&nodes, None)).await?;
    let (thread, nodes) = commit::append(thread, expected_version, known.clone(), nodes, now)?;
    tables.put_thread(Some(n), key, &thread).await?;
    tables.insert_nodes(n, &nodes).await?;
    Ok(AppendedNodes { thread, nodes: commit::nodes_on_wire(nodes, &known) })
}

pub(super) async fn fork(
    tables: &ConversationTables,
    fork: &ForkThreadRequest,
) -> Result<Thread, TableError> {
    let (n, source) = tables.thread(&fork.key).await?.ok_or(ConversationError::ThreadNotFound)?;
    let seqs = path_to_fork(fork, &source, &tables.links(n).await?)?;
    let path = tables.nodes(n, &seqs).await?;
    let key = ThreadKey { id: fork.id.clone(), ..fork.key.clone() };
    let agent = source.agent_id.clone();
    let (into, thread) = insert_thread(tables, &key, |count| commit::fork(fork, source, path, count)).await?;
    if thread.agent_id == agent {
        tables.copy_contexts(n, &seqs, into).await?;
    }
    Ok(thread)
}
