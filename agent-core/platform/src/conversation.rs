//! Conversations kept on the server: threads with a tree of messages, and runs.
//!
//! A *thread* is a conversation of one owner with one agent. Its messages are *nodes* of an immutable tree; its *head* is
//! the leaf that is shown and continued, and the *path* leads from the root to it. A *run* is one execution of the
//! agent; a *turn* is a run with those that continue it.
//!
//! | module | content |
//! |---|---|
//! | `key`, `thread`, `node`, `run`, `run_record`, `run_write`, `run_list`, `run_log`, `approval`, `feedback`, `agent_feedback` | data, in its JSON form on the wire |
//! | `id_check`, `thread_limit` | checks of identifiers, limits on numbers |
//! | `node_ids`, `pairing` | incremental indexes of a growing thread: ids of nodes, tool calls with their results |
//! | `approval_request`, `decision` | questions for approval, decisions about them |
//! | `title`, `tree`, `merge`, `fold` | pure functions: titles, paths, requests into trees, events into nodes |
//! | `context` | contexts that were sent with messages, and their nodes |
//! | `event_log`, `interrupt` | packed form of a run's events, and the end of a run by it |
//! | `store` | the trait [`Conversations`] |
//! | [`commit`], [`page`] | a store's decisions as pure functions, for its implementations |
//! | `memory` | [`MemoryConversations`] |
//! | `thread_cache` | [`ThreadCache`] |
//! | `visitor_nodes`, `export` | the nodes that a visitor sees; export of threads as text, in pieces |

mod agent_feedback;
mod approval;
mod approval_request;
pub mod commit;
mod context;
mod decision;
mod error;
mod event_log;
mod export;
mod feedback;
mod fold;
mod id_check;
mod interrupt;
mod key;
mod memory;
mod merge;
mod node;
mod node_ids;
pub mod page;
mod pairing;
mod retention;
mod run;
mod run_error;
mod run_list;
mod run_log;
mod run_record;
mod run_write;
mod store;
mod thread;
mod thread_cache;
mod thread_limit;
mod time;
mod title;
mod tree;
mod visitor_nodes;

pub use agent_core::role::OnDisconnect;
pub use agent_feedback::{AgentFeedback, FeedbackCursor, FeedbackPage, RatedMessage};
pub use approval::{Approval, ApprovalState, CallExecution, DecisionRoute};
pub use approval_request::{approval_interrupt, parse_approval_id};
pub use context::{MAX_CONTEXT_BYTES, MAX_CONTEXT_PAGE_BYTES, PathContexts, SentContext, TurnContext};
pub use decision::{
    ChangeRunRequest, ChangedRun, Decision, MAX_REASON_CHARS, ReissueInterruptsRequest, RunChange, Verdict,
};
pub use error::ConversationError;
pub use event_log::{ChunkReader, ChunkWriter, LogChunk, LogError};
pub use export::{ExportFormat, OwnerExport, ThreadExport};
pub use feedback::{Feedback, MAX_COMMENT_BYTES, MAX_FEEDBACK_TAGS, MAX_TAG_BYTES, Rating};
pub use fold::{FoldedRun, RunFold, fold};
pub use id_check::{MAX_CONVERSATION_ID_BYTES, check_conversation_id};
pub use interrupt::interrupt_run;
pub use key::{NodeId, ThreadKey, ThreadOwner, VISITOR_OWNER_PREFIX};
pub use memory::MemoryConversations;
pub use merge::{
    MergeInput, MergeResult, ParentChoice, RequestFormat, UiTrigger, append_queued, continue_head,
    import_nodes, merge,
};
pub use node::{
    ContentHash, NewNode, Node, NodeContent, NodeLink, NodeMessage, NodeOrigin, NodeRole, NodeStatus,
    ReasoningMessage, ReasoningMessageRole, Siblings, StoredNode,
};
pub use node_ids::NodeIds;
pub(crate) use pairing::is_paired;
pub use retention::{ActiveThread, MAX_SCANNED_THREADS, ThreadRetention, ThreadScan};
pub use run::{
    CancelReason, RUN_LEASE_MS, Run, RunContext, RunEndKind, RunEnding, RunLogState, RunState, RunStep,
    RunStepError, RunTrigger, RunTriggerKind,
};
pub use run_error::{PublicRunError, RUN_INTERRUPTED};
pub use run_list::{DueRuns, MAX_REAPED_RUNS, RunFilter, RunPage, WaitingRuns, parse_number_cursor};
pub use run_log::{
    AppendedEvents, LogEnd, LogPage, MAX_LOG_PAGE_BYTES, MAX_TRIMMED_LOGS, RunChunk, RunClock, RunKey,
    RunSignal,
};
pub use run_record::{
    CallTiming, MAX_RUN_ATTEMPTS, MAX_TIMED_CALLS, MAX_TIMED_ROUNDS, PromptCacheLine, RoundTiming, RunPrompt,
    RunPromptPart, RunPromptTool, RunRecord, RunSelection, RunTiming,
};
pub use run_write::{
    BeginOrder, BeginRunRequest, BegunRun, EndRunRequest, EndedRun, MAX_QUEUED_RUNS, QueueRunRequest,
    RunLease,
};
pub use store::{
    AppendedNodes, Conversations, CreateThreadRequest, DEFAULT_PAGE_NODES, DeleteFilter, DeletedThreads,
    ForkThreadRequest, MAX_DELETED_THREADS, MAX_PAGE_NODES, NodePage, NodeQuery, NodeSelection, ThreadLinks,
    ThreadPath,
};
pub use thread::{
    MAX_METADATA_BYTES, MAX_PAGE_THREADS, MAX_TITLE_CHARS, NewThread, Thread, ThreadCursor, ThreadFilter,
    ThreadOrigin, ThreadPage, ThreadPatch, ThreadStatus, TitleSource, VisitorThreadCursor,
};
pub(crate) use thread_cache::message_bytes;
pub use thread_cache::{LoadedThread, ThreadCache};
pub use thread_limit::{
    MAX_NODE_CHILDREN, MAX_THREAD_NODES, MAX_USER_THREADS, MAX_VISITOR_THREADS, ThreadLimit, max_threads,
};
pub use title::{MAX_MESSAGE_TITLE_CHARS, title};
pub use visitor_nodes::VisitorNodes;

#[cfg(test)]
mod wire_tests;
