//! Conversations stored on the server: start, progress and end of their runs, and maintenance of the stored data.

mod approval;
mod begin_error;
mod contexts;
mod continue_run;
mod continued;
mod decided_approvals;
mod detach;
mod error;
mod expiry;
mod job;
mod live_guard;
mod log_reader;
mod notifications;
mod plan;
mod planning;
mod preview;
mod queue;
mod queued_begin;
mod reissue_interrupts;
mod repeated;
mod resume;
mod retention;
mod starting_client;
mod stop;
mod stored_end;
mod stored_run_recorder;
mod stored_turn;
mod summaries;
#[cfg(test)]
mod test_runs;
mod turn;
mod upkeep;

pub(super) use continue_run::continue_run;
pub(super) use error::events_path;
pub(super) use expiry::sweep_approvals;
pub(super) use job::start_job_turn;
pub(super) use log_reader::{LogReader, log_gone, too_many_readers};
pub(super) use notifications::{
    delete_message_notifications, delete_obsolete_notifications, delete_thread_notifications,
    sweep_notifications,
};
pub(super) use preview::load_preview_messages;
pub(super) use retention::sweep_threads;
pub(super) use stored_turn::StoredTurn;
pub(super) use summaries::{delete_obsolete_summaries, sweep_summaries};
pub(super) use turn::ThreadRequest;
