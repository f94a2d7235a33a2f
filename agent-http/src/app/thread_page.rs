//! Pages of a thread's messages, as formats and audiences need them.

use std::collections::HashSet;

use agent_core::event::Audience;
use agent_platform::conversation::{
    ConversationError, Conversations, DEFAULT_PAGE_NODES, Node, NodeId, NodeLink, NodePage, NodeQuery,
    NodeRole, NodeSelection, ThreadKey, VisitorNodes,
};

use super::thread_view::NodeFormat;

/// Reads a page of a thread's nodes; `None` if there is no such thread. A page of UI messages ends with a whole turn, so
/// that it may be longer than the query asks for. A visitor's page has what a visitor sees of the nodes.
///
/// # Errors
/// Those of [`Conversations::nodes`].
pub(super) async fn read_page(
    store: &dyn Conversations,
    key: &ThreadKey,
    query: &NodeQuery,
    format: NodeFormat,
    audience: Audience,
) -> Result<Option<NodePage>, ConversationError> {
    let Some(mut page) = store.nodes(key, query).await? else { return Ok(None) };
    if format == NodeFormat::UiMessage {
        complete_turn(store, key, query, &mut page).await?;
    }
    if audience == Audience::Visitor {
        let nodes = std::mem::take(&mut page.nodes);
        page.nodes = shown_to_visitor(store, key, nodes, query.cursor.is_some()).await?;
    }
    Ok(Some(page))
}

/// Adds the nodes of later pages that belong to the turn with which a page ends.
async fn complete_turn(
    store: &dyn Conversations,
    key: &ThreadKey,
    query: &NodeQuery,
    page: &mut NodePage,
) -> Result<(), ConversationError> {
    // The path of this page, whatever becomes the head meanwhile.
    let select = match &query.select {
        NodeSelection::Path { at: None } => NodeSelection::Path { at: page.thread.head.clone() },
        select => select.clone(),
    };
    // Each iteration reads further nodes, of which a thread has a limited number.
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

/// Returns what a visitor sees of a page's nodes, each below the closest ancestor that is shown.
async fn shown_to_visitor(
    store: &dyn Conversations,
    key: &ThreadKey,
    nodes: Vec<Node>,
    is_later_page: bool,
) -> Result<Vec<Node>, ConversationError> {
    let mut visitor_nodes = VisitorNodes::default();
    if is_later_page {
        let own: HashSet<&NodeId> = nodes.iter().map(|node| &node.id).collect();
        let parents = nodes.iter().filter_map(|node| node.parent_id.as_ref());
        let earlier: HashSet<NodeId> = parents.filter(|parent| !own.contains(parent)).cloned().collect();
        let links = store.links(key).await?.map(|found| found.links).unwrap_or_default();
        for parent in earlier {
            let ancestor = shown_ancestor(store, key, &links, &parent).await?;
            visitor_nodes.add_hidden(parent, ancestor);
        }
    }
    Ok(nodes.into_iter().filter_map(|node| visitor_nodes.show(node)).collect())
}

/// Returns the closest node from a node to the root that visitors see.
async fn shown_ancestor(
    store: &dyn Conversations,
    key: &ThreadKey,
    links: &[NodeLink],
    from: &NodeId,
) -> Result<Option<NodeId>, ConversationError> {
    let from = links.iter().rfind(|link| link.id == *from);
    let parent = |link: &&NodeLink| NodeLink::find(links, link.parent?);
    let ancestors: Vec<u32> = std::iter::successors(from, parent).map(|link| link.seq).collect();
    for nearest in ancestors.chunks(DEFAULT_PAGE_NODES) {
        let ascending: Vec<u32> = nearest.iter().rev().copied().collect();
        let contents = store.contents(key, &ascending).await?;
        let shown =
            contents.iter().rfind(|content| content.message.role().is_shown_to_visitors(content.origin));
        if let Some(shown) = shown {
            return Ok(NodeLink::find(links, shown.seq).map(|link| link.id.clone()));
        }
    }
    Ok(None)
}
