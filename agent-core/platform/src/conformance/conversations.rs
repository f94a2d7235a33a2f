//! Conformance suite for [`Conversations`].

use std::sync::Arc;

use crate::conversation::Conversations;

mod approvals;
mod contexts;
mod decision_races;
mod deletion;
mod feedback;
mod limits;
mod lists;
mod logs;
mod queue;
mod runs;
pub(crate) mod support;
mod threads;

/// Runs the conformance suite of [`Conversations`] against stores from `make`, which must return an empty one at every
/// call.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn conversations(make: impl AsyncFn() -> Arc<dyn Conversations>) {
    threads::a_thread_is_created_with_imported_messages(&*make().await).await;
    threads::owners_and_companies_are_isolated(&*make().await).await;
    threads::a_patch_changes_what_it_names(&*make().await).await;
    threads::messages_are_appended_without_a_run(&*make().await).await;
    threads::any_text_is_kept_as_it_is(&*make().await).await;
    threads::a_fork_copies_the_path(&*make().await).await;
    threads::paths_and_trees_are_read_in_pages(&*make().await).await;
    threads::a_thread_is_read_with_its_path(&*make().await).await;
    runs::a_run_begins_and_ends_in_one_commit_each(&*make().await).await;
    runs::the_record_of_a_run_is_kept_with_it(&*make().await).await;
    runs::a_regenerated_answer_is_a_sibling_of_the_first(&*make().await).await;
    runs::a_busy_thread_refuses_other_runs(&*make().await).await;
    runs::a_used_run_id_is_refused_whatever_the_thread(&*make().await).await;
    runs::a_refused_run_writes_nothing(&*make().await).await;
    runs::a_run_of_a_lost_process_does_not_block_its_thread(&*make().await).await;
    runs::lost_runs_are_reaped(&*make().await).await;
    runs::a_continued_run_belongs_to_the_turn(&*make().await).await;
    runs::repeated_ids_of_a_vendor_are_made_unique(&*make().await).await;
    runs::one_of_a_hundred_concurrent_runs_begins(make().await).await;
    queue::runs_are_queued(&make).await;
    logs::runs_are_logged(&make).await;
    approvals::a_run_waits_until_all_calls_are_decided(&*make().await).await;
    approvals::an_approved_call_begins_once_in_its_process(&*make().await).await;
    approvals::results_complete_their_calls(&make).await;
    approvals::questions_remain_open_for_their_time(&make).await;
    approvals::due_runs_are_read_in_pages(&*make().await).await;
    approvals::waiting_runs_are_read_in_pages(&*make().await).await;
    approvals::erased_messages_leave_no_arguments(&*make().await).await;
    approvals::erased_calls_are_not_made(&*make().await).await;
    approvals::erased_calls_of_the_client_are_not_waited_for(&*make().await).await;
    approvals::messages_below_calls_of_the_client_end_the_wait(&*make().await).await;
    decision_races::one_of_many_concurrent_decisions_counts(make().await).await;
    decision_races::a_decision_and_the_expiry_exclude_each_other(make().await).await;
    decision_races::a_clock_set_back_reopens_no_expired_approval(&*make().await).await;
    decision_races::a_message_and_the_last_decision_exclude_each_other(make().await).await;
    decision_races::threads_are_deleted_while_their_runs_are_interrupted(make().await).await;
    contexts::a_context_is_of_a_message_and_a_turn(&*make().await).await;
    contexts::a_turn_keeps_its_first_context(&*make().await).await;
    contexts::contexts_go_with_their_message(&*make().await).await;
    contexts::contexts_are_limited(&*make().await).await;
    lists::threads_are_listed_by_activity(&*make().await).await;
    lists::pages_are_stable_while_others_write(&*make().await).await;
    lists::runs_are_listed_newest_first(&*make().await).await;
    limits::nodes_children_and_threads_are_limited(&*make().await).await;
    limits::ten_thousand_nodes_are_read(&*make().await).await;
    deletion::threads_and_messages_are_deleted(&make).await;
    feedback::a_message_is_rated_by_its_owner(&*make().await).await;
    feedback::feedback_is_limited(&*make().await).await;
    feedback::feedback_goes_with_what_it_rates(&*make().await).await;
    feedback::an_agent_s_feedback_is_listed_in_pages(&*make().await).await;
    feedback::visitors_threads_are_listed_by_agent(&*make().await).await;
}
