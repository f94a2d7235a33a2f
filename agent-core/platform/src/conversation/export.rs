//! Export of threads: text in pieces, so that a thread of any size takes the memory of a page.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use agent_core::event::Audience;
use agent_core::ids::ThreadId;
use agent_core::role::Approver;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::{
    Approval, ConversationError, Conversations, Feedback, Node, NodeId, NodeMessage, NodePage, NodeQuery,
    NodeRole, NodeSelection, NodeStatus, Run, RunFilter, Thread, ThreadFilter, ThreadKey, ThreadOwner,
    VisitorNodes,
};

/// Number of nodes, runs and threads that are read at once.
const PAGE: usize = 100;

/// Format of an export.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExportFormat {
    /// A JSON object with `thread`, `nodes`, `runs`, `approvals` and `feedback`.
    #[default]
    Json,
    /// The path to the head as a Markdown document.
    Markdown,
}

/// Part of an export that is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Head,
    Nodes,
    Runs,
    Approvals,
    Feedback,
    Over,
}

/// Export of a thread.
pub struct ThreadExport {
    store: Arc<dyn Conversations>,
    key: ThreadKey,
    thread: Thread,
    format: ExportFormat,
    audience: Audience,
    now: Timestamp,
    part: Part,
    cursor: Option<String>,
    /// True until the current list has an element.
    is_first: bool,
}

impl std::fmt::Debug for ThreadExport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadExport").finish_non_exhaustive()
    }
}

impl ThreadExport {
    /// Opens a thread for export; `None` if there is none.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn open(
        store: Arc<dyn Conversations>,
        key: ThreadKey,
        format: ExportFormat,
        audience: Audience,
        now: Timestamp,
    ) -> Result<Option<Self>, ConversationError> {
        let Some(thread) = store.thread(&key).await? else { return Ok(None) };
        let (part, cursor) = (Part::Head, None);
        Ok(Some(Self { store, key, thread, format, audience, now, part, cursor, is_first: true }))
    }

    /// Returns the thread.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Returns the next piece of the text; `None` at its end.
    ///
    /// # Errors
    /// Errors of the store; [`ConversationError::ThreadNotFound`] if the thread was deleted meanwhile.
    pub async fn next(&mut self) -> Result<Option<String>, ConversationError> {
        match (self.part, self.format) {
            (Part::Over, _) => Ok(None),
            (Part::Head, ExportFormat::Json) => {
                self.part = Part::Nodes;
                let thread = match self.audience {
                    Audience::Trusted => to_json(&self.thread),
                    Audience::Visitor => self.thread.shown_to_visitor().to_string(),
                };
                Ok(Some(format!("{{\"thread\":{thread},\"nodes\":[")))
            }
            (Part::Head, ExportFormat::Markdown) => {
                self.part = Part::Nodes;
                Ok(Some(markdown_head(&self.thread)))
            }
            (Part::Nodes, ExportFormat::Markdown) => {
                let nodes = self.next_nodes(NodeSelection::default()).await?;
                if self.cursor.is_none() {
                    self.part = Part::Over;
                }
                Ok(Some(nodes.iter().map(markdown_node).collect()))
            }
            (Part::Nodes, _) => {
                let nodes = self.next_nodes(NodeSelection::Tree).await?;
                Ok(Some(self.list(&nodes, Part::Runs, "],\"runs\":[")))
            }
            (Part::Runs, _) => {
                let runs: Vec<Run> =
                    self.next_runs().await?.into_iter().map(|run| self.shown_run(run)).collect();
                Ok(Some(self.list(&runs, Part::Approvals, "],\"approvals\":[")))
            }
            (Part::Approvals, _) => {
                let runs = self.next_runs().await?;
                let approvals = runs.into_iter().flat_map(|run| run.at(self.now).approvals);
                let approvals: Vec<Approval> = approvals.filter(|approval| self.shows(approval)).collect();
                Ok(Some(self.list(&approvals, Part::Feedback, "],\"feedback\":[")))
            }
            (Part::Feedback, _) => {
                let nodes = self.next_nodes(NodeSelection::Tree).await?;
                let rated = nodes.into_iter().filter_map(NodeFeedback::of);
                let rated: Vec<NodeFeedback> = rated.collect();
                Ok(Some(self.list(&rated, Part::Over, "]}")))
            }
        }
    }

    /// Reads a page of nodes and moves the cursor.
    async fn next_nodes(&mut self, select: NodeSelection) -> Result<Vec<Node>, ConversationError> {
        let query = NodeQuery { select, cursor: self.cursor.take(), limit: Some(PAGE) };
        let page = self.store.nodes(&self.key, &query).await?;
        let NodePage { nodes, next_cursor, .. } = page.ok_or(ConversationError::ThreadNotFound)?;
        self.cursor = next_cursor;
        Ok(match self.audience {
            Audience::Trusted => nodes,
            Audience::Visitor => {
                let links =
                    self.store.links(&self.key).await?.ok_or(ConversationError::ThreadNotFound)?.links;
                let visitor_nodes = VisitorNodes::new(&links);
                nodes.into_iter().filter_map(|node| visitor_nodes.show(node)).collect()
            }
        })
    }

    /// Reads a page of the thread's runs and moves the cursor.
    async fn next_runs(&mut self) -> Result<Vec<Run>, ConversationError> {
        let filter = RunFilter { thread: Some(self.key.id.clone()), ..RunFilter::default() };
        let cursor = self.cursor.take();
        let page = self.store.runs(&self.key.thread_owner(), &filter, cursor.as_deref(), PAGE).await?;
        self.cursor = page.next_cursor;
        Ok(page.runs)
    }

    /// Returns a run without its approvals, which have a separate list.
    fn shown_run(&self, run: Run) -> Run {
        Run { approvals: Vec::new(), ..run.shown_to(self.audience) }
    }

    fn shows(&self, approval: &Approval) -> bool {
        self.audience == Audience::Trusted || approval.by == Approver::Visitor
    }

    /// Returns the elements of a page, and at the end of the list `after`.
    fn list(&mut self, page: &[impl Serialize], next: Part, after: &str) -> String {
        let mut out = String::new();
        for item in page {
            if !std::mem::take(&mut self.is_first) {
                out.push(',');
            }
            out.push_str(&to_json(item));
        }
        if self.cursor.is_none() {
            out.push_str(after);
            (self.part, self.is_first) = (next, true);
        }
        out
    }
}

/// Feedback in an export.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeFeedback {
    node_id: NodeId,
    #[serde(flatten)]
    feedback: Feedback,
}

impl NodeFeedback {
    fn of(node: Node) -> Option<Self> {
        Some(Self { node_id: node.id, feedback: node.feedback? })
    }
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn markdown_head(thread: &Thread) -> String {
    let title = thread.title.replace(['\n', '\r'], " ");
    format!(
        "# {title}\n\n- Thread: {}\n- Agent: {}\n- Created: {:.3}\n",
        json!(thread.id),
        json!(thread.agent_id),
        thread.created_at
    )
}

/// Returns a message as quoted lines below a heading, so that no text of a message looks like a heading of the document.
fn markdown_node(node: &Node) -> String {
    let mut text = String::new();
    let heading = match node.message.role() {
        NodeRole::Instructions => "Instructions",
        NodeRole::User => "User",
        NodeRole::Assistant => "Assistant",
        NodeRole::Tool => "Tool result",
        NodeRole::Reasoning => "Reasoning",
    };
    match &node.message {
        _ if node.status == NodeStatus::Deleted => text.push_str("(erased)"),
        NodeMessage::Reasoning(reasoning) => text.push_str(&reasoning.content),
        NodeMessage::Message(message) => {
            text.push_str(&message.content.to_text());
            for call in &message.tool_calls {
                let separator = if text.is_empty() { "" } else { "\n\n" };
                let _ = write!(text, "{separator}Calls {}: {}", call.function.name, call.function.arguments);
            }
        }
    }
    let mut out = format!("\n## {heading}, {:.3}\n\n", node.created_at);
    for line in text.replace("\r\n", "\n").split(['\n', '\r']) {
        out.push_str(if line.is_empty() { ">" } else { "> " });
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Export of all threads of an owner, one JSON object a line.
pub struct OwnerExport {
    store: Arc<dyn Conversations>,
    owner: ThreadOwner,
    audience: Audience,
    now: Timestamp,
    /// Threads that were exported or are in `page`, at most the owner's limit.
    seen: HashSet<ThreadId>,
    page: Vec<ThreadId>,
    cursor: Option<String>,
    pass: Pass,
    current: Option<ThreadExport>,
}

impl std::fmt::Debug for OwnerExport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnerExport").finish_non_exhaustive()
    }
}

/// Pass over an owner's list of threads. A thread that becomes active during the pass moves to the front of the list; a second
/// pass finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    First,
    Second,
    Over,
}

impl OwnerExport {
    /// Creates the export of an owner's threads.
    pub fn new(
        store: Arc<dyn Conversations>,
        owner: ThreadOwner,
        audience: Audience,
        now: Timestamp,
    ) -> Self {
        let (seen, page) = (HashSet::new(), Vec::new());
        Self { store, owner, audience, now, seen, page, cursor: None, pass: Pass::First, current: None }
    }

    /// Returns the next piece of the text; `None` at its end. A thread that is deleted before its line has started is left
    /// out.
    ///
    /// # Errors
    /// Errors of the store; [`ConversationError::ThreadNotFound`] if a thread was deleted within its line.
    pub async fn next(&mut self) -> Result<Option<String>, ConversationError> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(piece) = current.next().await? {
                    return Ok(Some(piece));
                }
                self.current = None;
                return Ok(Some("\n".to_owned()));
            }
            if let Some(id) = self.page.pop() {
                let (store, key) = (self.store.clone(), self.owner.thread(id));
                self.current =
                    ThreadExport::open(store, key, ExportFormat::Json, self.audience, self.now).await?;
                continue;
            }
            if self.pass == Pass::Over {
                return Ok(None);
            }
            self.read_page().await?;
        }
    }

    /// Reads the next page of threads that were not seen.
    async fn read_page(&mut self) -> Result<(), ConversationError> {
        let (filter, cursor) = (ThreadFilter::default(), self.cursor.take());
        let page = self.store.threads(&self.owner, &filter, cursor.as_deref(), PAGE).await?;
        self.cursor = page.next_cursor;
        let last_activity = page.threads.last().map(|thread| thread.last_activity_at);
        for thread in page.threads.into_iter().rev() {
            if self.seen.insert(thread.id.clone()) {
                self.page.push(thread.id);
            }
        }
        // Threads later in the second pass have not moved since the first.
        let is_over = self.pass == Pass::Second && last_activity.is_none_or(|last| last < self.now);
        if self.cursor.is_none() || is_over {
            self.cursor = None;
            self.pass = if self.pass == Pass::First { Pass::Second } else { Pass::Over };
        }
        Ok(())
    }
}
