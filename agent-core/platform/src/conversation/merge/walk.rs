//! Walk of a list of messages along the tree.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use agent_core::message::{Message, Role};

use super::super::tree::Tree;
use super::super::{ContentHash, ConversationError, NodeId, NodeLink, NodeRole, NodeStatus, RunTriggerKind};
use super::choice::Choice;
use super::request_format::{RequestFormat, UiTrigger};

#[cfg(test)]
thread_local! {
    /// Number of nodes that walks of this thread have examined, some of them more than once.
    pub(super) static VISITED_NODES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The tree of a thread with its preferred path, for matching a list of messages.
pub(super) struct Walk<'l> {
    pub(super) tree: Tree<'l>,
    head: Option<usize>,
    /// Made when it is first used: a message alone without an id needs none.
    index: OnceCell<WalkIndex<'l>>,
    /// Child that the walk prefers: on the path to the head, else to the newest leaf.
    next: Vec<Option<usize>>,
    next_root: Option<usize>,
    /// Last node of the answer that begins below a node, or the node itself.
    answer_ends: Vec<usize>,
    pending_calls: HashSet<String>,
}

/// Nodes by id, turn and content. Of several nodes under one key the newest counts.
struct WalkIndex<'l> {
    /// Nodes by their id and the client's.
    by_id: HashMap<&'l str, usize>,
    /// User nodes by their id or the client's, and content.
    versions: HashMap<(&'l str, ContentHash), usize>,
    /// Last node of each turn's answer.
    turn_ends: HashMap<&'l str, usize>,
    /// First node of each turn's answer.
    turn_starts: HashMap<&'l str, usize>,
    /// Nodes by their parent and content.
    by_content: HashMap<(Option<usize>, ContentHash), usize>,
}

impl<'l> WalkIndex<'l> {
    fn new(tree: &Tree<'l>) -> Self {
        let count = tree.links().len();
        let mut index = Self {
            by_id: HashMap::with_capacity(count),
            versions: HashMap::new(),
            turn_ends: HashMap::new(),
            turn_starts: HashMap::new(),
            by_content: HashMap::with_capacity(count),
        };
        for (at, link) in tree.links().iter().enumerate() {
            index.add(at, link, tree.parent(at));
        }
        index
    }

    fn add(&mut self, at: usize, link: &'l NodeLink, parent: Option<usize>) {
        let is_user = link.role == NodeRole::User;
        for id in [Some(link.id.as_str()), link.client_id.as_deref()].into_iter().flatten() {
            self.by_id.insert(id, at);
            if is_user {
                self.versions.insert((id, link.hash), at);
            }
        }
        if !is_user {
            self.turn_ends.insert(&link.turn_id, at);
            self.turn_starts.entry(&link.turn_id).or_insert(at);
        }
        if link.status != NodeStatus::Deleted {
            self.by_content.insert((parent, link.hash), at);
        }
    }
}

/// State of a walk.
#[derive(Default)]
struct Cursor {
    /// Node that the walk has reached.
    node: Option<usize>,
    is_known: bool,
    /// New messages after the last known element, and the node below which they go.
    new: Vec<Arc<Message>>,
    below: Option<usize>,
    trigger: RunTriggerKind,
}

impl Cursor {
    /// Moves to a known node. The messages before it are therefore not new.
    fn move_to(&mut self, node: usize) {
        *self = Self { node: Some(node), is_known: true, ..Self::default() };
    }

    /// Adds a new message below `below`, or below the new message before it.
    fn add(&mut self, message: Arc<Message>, below: Option<usize>, trigger: RunTriggerKind) {
        if self.new.is_empty() {
            (self.below, self.trigger) = (below, trigger);
        }
        self.new.push(message);
    }
}

impl<'l> Walk<'l> {
    pub(super) fn new(links: &'l [NodeLink], head: Option<&NodeId>, pending_calls: Vec<String>) -> Self {
        let tree = Tree::new(links);
        let head = head.and_then(|head| tree.find(head));
        let mut next: Vec<Option<usize>> = (0..links.len()).map(|at| tree.newest_child(Some(at))).collect();
        let mut next_root = tree.newest_child(None);
        for at in tree.path(head) {
            match tree.parent(at) {
                Some(parent) => next[parent] = Some(at),
                None => next_root = Some(at),
            }
        }
        let mut answer_ends: Vec<usize> = (0..links.len()).collect();
        for at in (0..links.len()).rev() {
            if let Some(child) = next[at].filter(|child| links[*child].role != NodeRole::User) {
                answer_ends[at] = answer_ends[child];
            }
        }
        Self {
            tree,
            head,
            index: OnceCell::new(),
            next,
            next_root,
            answer_ends,
            pending_calls: pending_calls.into_iter().collect(),
        }
    }

    fn index(&self) -> &WalkIndex<'l> {
        self.index.get_or_init(|| WalkIndex::new(&self.tree))
    }

    fn link(&self, at: usize) -> &'l NodeLink {
        #[cfg(test)]
        VISITED_NODES.set(VISITED_NODES.get() + 1);
        &self.tree.links()[at]
    }

    fn is_user(&self, at: usize) -> bool {
        self.link(at).role == NodeRole::User
    }

    fn next(&self, node: Option<usize>) -> Option<usize> {
        node.map_or(self.next_root, |at| self.next[at])
    }

    /// Returns the end of the answer below `node`.
    fn answer_end(&self, node: Option<usize>) -> Option<usize> {
        match node {
            Some(at) => Some(self.answer_ends[at]),
            None => self.next_root.filter(|root| !self.is_user(*root)).map(|root| self.answer_ends[root]),
        }
    }

    /// Places a list of messages without a field `parentId`.
    pub(super) fn place(
        &self,
        messages: Vec<Arc<Message>>,
        format: &RequestFormat,
        is_visitor: bool,
    ) -> Choice {
        let mut is_regeneration = false;
        if let RequestFormat::UiMessages { trigger, message_id } = format {
            is_regeneration = *trigger == UiTrigger::Regenerate;
            if let Some(choice) =
                message_id.as_deref().and_then(|id| self.place_by_trigger(*trigger, id, &messages))
            {
                return choice;
            }
        }
        // A single message is the next one, regardless of earlier messages.
        let is_next = messages.len() == 1 && *format != RequestFormat::AgUi && !is_regeneration;
        let mut cursor = Cursor::default();
        let mut pending = self.pending_calls.clone();
        let last = messages.len().saturating_sub(1);
        for (position, message) in messages.iter().enumerate() {
            match message.role {
                Role::User => self.walk_user(message, !is_next, position == last, &mut cursor),
                _ => self.walk_answer(message, &mut pending, &mut cursor),
            }
        }
        match cursor.is_known {
            true => self.choose(cursor),
            false if is_regeneration => self.regenerate_last(),
            false if is_next => Choice::new(self.head, messages, RunTriggerKind::Chat),
            false => Choice::new_root(messages, is_visitor),
        }
    }

    /// Returns the choice after a walk that has known an element.
    fn choose(&self, cursor: Cursor) -> Choice {
        if !cursor.new.is_empty() {
            return Choice::new(cursor.below, cursor.new, cursor.trigger);
        }
        match cursor.node {
            Some(at) if self.is_user(at) => self.answer_anew(at),
            node => Choice::answer(self.answer_end(node), RunTriggerKind::Chat),
        }
    }

    /// Makes an answer below a user message, even if it has one already.
    fn answer_anew(&self, at: usize) -> Choice {
        let has_answer = self.tree.newest_child(Some(at)).is_some();
        let trigger = if has_answer { RunTriggerKind::Regenerate } else { RunTriggerKind::Chat };
        Choice::answer(Some(at), trigger)
    }

    /// Makes the last answer on the path to the head again.
    fn regenerate_last(&self) -> Choice {
        let path = self.tree.path(self.head);
        match path.into_iter().rev().find(|at| self.is_user(*at)) {
            Some(at) => self.answer_anew(at),
            None => Choice::answer(self.head, RunTriggerKind::Chat),
        }
    }

    /// Places a request of the AI SDK by its `messageId`; `None` if the tree does not have it.
    fn place_by_trigger(&self, trigger: UiTrigger, id: &str, messages: &[Arc<Message>]) -> Option<Choice> {
        let user = self.index().by_id.get(id).copied().filter(|at| self.is_user(*at));
        match trigger {
            UiTrigger::Regenerate => {
                let start = self.index().turn_starts.get(id).copied();
                let start =
                    start.or_else(|| self.index().by_id.get(id).copied().filter(|at| !self.is_user(*at)));
                let question =
                    std::iter::successors(start, |at| self.tree.parent(*at)).find(|at| self.is_user(*at));
                question.or(user).map(|at| self.answer_anew(at))
            }
            UiTrigger::Submit => {
                let message = messages.iter().rev().find(|message| message.role == Role::User)?;
                let mut cursor = Cursor::default();
                self.walk_version(id, user?, message, &mut cursor);
                Some(self.choose(cursor))
            }
        }
    }

    /// Walks over a user message with a known id: the version with this content, or an edit.
    fn walk_version(&self, id: &str, newest: usize, message: &Arc<Message>, cursor: &mut Cursor) {
        let (hash, parent) = (ContentHash::of(message), self.tree.parent(newest));
        let same =
            self.index().versions.get(&(id, hash)).or_else(|| self.index().by_content.get(&(parent, hash)));
        cursor.move_to(same.copied().unwrap_or(newest));
        // A client may still show what was deleted.
        if same.is_none() && self.link(newest).status != NodeStatus::Deleted {
            cursor.add(Arc::clone(message), parent, RunTriggerKind::Edit);
        }
    }

    fn walk_user(&self, message: &Arc<Message>, by_content: bool, is_last: bool, cursor: &mut Cursor) {
        if let Some(id) = &message.id
            && let Some(newest) = self.index().by_id.get(id.as_str()).copied().filter(|at| self.is_user(*at))
        {
            return self.walk_version(id, newest, message, cursor);
        }
        let below = self.answer_end(cursor.node);
        if by_content && (cursor.new.is_empty() || !cursor.is_known) {
            let next = self.next(below);
            let hash = ContentHash::of(message);
            let same = next.filter(|at| self.link(*at).hash == hash);
            if let Some(at) = same.or_else(|| self.index().by_content.get(&(below, hash)).copied()) {
                return cursor.move_to(at);
            }
            let is_deleted = |at: &usize| self.is_user(*at) && self.link(*at).status == NodeStatus::Deleted;
            if let Some(at) = next.filter(is_deleted).filter(|_| !is_last) {
                cursor.node = Some(at);
                return;
            }
        }
        cursor.add(Arc::clone(message), below, RunTriggerKind::Chat);
    }

    fn walk_answer(&self, message: &Arc<Message>, pending: &mut HashSet<String>, cursor: &mut Cursor) {
        let next = self.next(cursor.node).filter(|at| !self.is_user(*at));
        if let Some(id) = message.id.as_deref() {
            let is_same = |at: &usize| {
                let link = self.link(*at);
                link.id.as_str() == id || link.client_id.as_deref() == Some(id)
            };
            let by_id = || self.index().by_id.get(id).copied().filter(|at| !self.is_user(*at));
            let known =
                next.filter(is_same).or_else(by_id).or_else(|| self.index().turn_ends.get(id).copied());
            if let Some(at) = known {
                return cursor.move_to(at);
            }
        }
        if let Some(call) = message.tool_call_id.as_deref().filter(|_| message.role == Role::Tool)
            && pending.remove(call)
        {
            if !cursor.is_known {
                cursor.new.clear();
            }
            cursor.is_known = true;
            return cursor.add(Arc::clone(message), self.answer_end(self.head), RunTriggerKind::Tools);
        }
        if !cursor.new.is_empty() {
            return;
        }
        let hash = ContentHash::of(message);
        if let Some(at) =
            self.index().by_content.get(&(cursor.node, hash)).copied().filter(|at| !self.is_user(*at))
        {
            return cursor.move_to(next.filter(|next| self.link(*next).hash == hash).unwrap_or(at));
        }
        cursor.node = next.or(cursor.node);
    }

    /// Places messages below a node that the request names, or as a new root.
    pub(super) fn below(
        &self,
        below: Option<usize>,
        messages: Vec<Arc<Message>>,
    ) -> Result<Choice, ConversationError> {
        let start = messages.iter().rposition(|message| message.role != Role::User).map_or(0, |at| at + 1);
        let mut known = below;
        let mut new = Vec::new();
        for message in messages.into_iter().skip(start) {
            let hash = ContentHash::of(&message);
            let version = message.id.as_deref().and_then(|id| self.index().versions.get(&(id, hash)));
            let is_same = |at: &usize| self.link(*at).hash == hash;
            match version.copied().or_else(|| below.filter(is_same)).filter(|_| new.is_empty()) {
                Some(at) => known = Some(at),
                None => new.push(message),
            }
        }
        match (new.is_empty(), known) {
            (false, _) => Ok(Choice::new(below, new, RunTriggerKind::Chat)),
            (true, Some(at)) if self.is_user(at) => Ok(self.answer_anew(at)),
            (true, Some(at)) => Ok(Choice::answer(Some(at), RunTriggerKind::Chat)),
            (true, None) => Err(ConversationError::Invalid("parentId needs a user message".to_owned())),
        }
    }
}
