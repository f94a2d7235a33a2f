//! Pages of a thread's messages, as formats and audiences need them.

use agent_core::event::Audience;
use agent_platform::conversation::{
    ConversationError, Conversations, MAX_PAGE_NODES, Node, NodePage, NodeQuery, NodeRole, NodeSelection,
    ThreadKey, ThreadLinks, VisitorNodes,
};

use super::thread_view::NodeFormat;

/// Reads a page of a thread's nodes; `None` if there is no such thread. A page of UI messages ends with a whole turn, so
/// that it may be longer than the query asks for. A visitor's page has what a visitor sees of the nodes.
///
/// # Errors
/// Errors of [`Conversations::nodes`].
pub(super) async fn read_page(
    store: &dyn Conversations,
    key: &ThreadKey,
    query: &NodeQuery,
    format: NodeFormat,
    audience: Audience,
) -> Result<Option<NodePage>, ConversationError> {
    if audience == Audience::Visitor {
        return read_visitor_page(store, key, query, format).await;
    }
    let Some(mut page) = store.nodes(key, query).await? else { return Ok(None) };
    if format == NodeFormat::UiMessage {
        complete_turn(store, key, query, &mut page).await?;
    }
    Ok(Some(page))
}

/// Reads a page of the nodes that a visitor sees.
async fn read_visitor_page(
    store: &dyn Conversations,
    key: &ThreadKey,
    query: &NodeQuery,
    format: NodeFormat,
) -> Result<Option<NodePage>, ConversationError> {
    let Some(ThreadLinks { thread, links }) = store.links(key).await? else { return Ok(None) };
    let visitor_nodes = VisitorNodes::new(&links);
    let (seqs, next_cursor) = visitor_nodes.page(&thread, query, format == NodeFormat::UiMessage)?;
    let mut nodes = Vec::with_capacity(seqs.len());
    for part in seqs.chunks(MAX_PAGE_NODES) {
        let select = NodeSelection::Positions(part.to_vec());
        let part = NodeQuery { select, cursor: None, limit: Some(MAX_PAGE_NODES) };
        let Some(page) = store.nodes(key, &part).await? else { return Ok(None) };
        nodes.extend(page.nodes.into_iter().filter_map(|node| visitor_nodes.show(node)));
    }
    Ok(Some(NodePage { thread, nodes, next_cursor }))
}

/// Adds the nodes of later pages that belong to the last turn of a page.
async fn complete_turn(
    store: &dyn Conversations,
    key: &ThreadKey,
    query: &NodeQuery,
    page: &mut NodePage,
) -> Result<(), ConversationError> {
    // The path of this page, even if the head changes in the meantime.
    let select = match &query.select {
        NodeSelection::Path { at: None } => NodeSelection::Path { at: page.thread.head.clone() },
        select => select.clone(),
    };
    // Each iteration reads further nodes; their number in a thread is limited.
    while let Some(cursor) = page.next_cursor.clone() {
        let later = |limit| NodeQuery { select: select.clone(), cursor: Some(cursor.clone()), limit };
        let Some(next) = store.nodes(key, &later(query.limit)).await? else { return Ok(()) };
        let Some(last) = page.nodes.last() else { return Ok(()) };
        let rest = next.nodes.iter().take_while(|node| is_same_turn(last, node)).count();
        if rest == 0 {
            return Ok(());
        }
        let is_whole = rest < next.nodes.len();
        let added = match is_whole {
            // The cursor after the last node of the turn.
            true => store.nodes(key, &later(Some(rest))).await?,
            false => Some(next),
        };
        let Some(added) = added else { return Ok(()) };
        page.nodes.extend(added.nodes);
        page.next_cursor = added.next_cursor;
        if is_whole {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns true if a node belongs to the answer of the node before it.
fn is_same_turn(before: &Node, node: &Node) -> bool {
    let is_user = |node: &Node| node.message.role() == NodeRole::User;
    !is_user(before) && !is_user(node) && before.turn_id == node.turn_id
}
