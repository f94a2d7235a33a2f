//! Start and preview of turns, with the files of their messages.

use std::sync::Arc;

use agent_client::outbound::for_tenant;
use agent_core::event::EventStream;
use agent_core::ids::ThreadId;
use agent_core::message::Message;
use agent_core::request::{Principal, TurnRequest};
use agent_core::turn::{TurnError, run_observed_turn, run_turn};
use agent_platform::approval_floor::load_approval_floor;
use agent_platform::message_files::{MessageFiles, has_files};
use agent_platform::own_tools::sends_files;
use agent_platform::preview::{Preview, preview_turn};
use agent_platform::records::StoreError;
use agent_platform::run_observer::RunObserver;
use agent_platform::trace::begin_trace;

use super::App;
use crate::error::HttpError;

impl App {
    /// Runs a turn that is not kept.
    pub(super) async fn run_turn(
        &self,
        principal: &Principal,
        mut turn: TurnRequest,
    ) -> Result<EventStream, TurnError> {
        turn.trace.get_or_insert_with(begin_trace);
        self.load_files(principal, &mut turn, None).await?;
        for_tenant(&principal.company_id, run_turn(&self.platform, principal, turn)).await
    }

    /// Runs a turn in a thread, which keeps the files of its messages.
    pub(super) async fn run_stored_turn(
        &self,
        principal: &Principal,
        mut turn: TurnRequest,
        observer: &RunObserver,
    ) -> Result<EventStream, TurnError> {
        turn.trace.get_or_insert_with(begin_trace);
        let thread_id = turn.thread_id.clone();
        self.load_files(principal, &mut turn, Some(&thread_id)).await?;
        let started = run_observed_turn(&self.platform, principal, turn, observer);
        let started = for_tenant(&principal.company_id, started).await;
        started.inspect_err(|error| observer.record_start_error(error))
    }

    /// Previews a turn.
    pub(super) async fn preview_turn(
        &self,
        principal: &Principal,
        mut turn: TurnRequest,
    ) -> Result<Preview, TurnError> {
        self.load_files(principal, &mut turn, None).await?;
        let floor = load_approval_floor(&*self.records, &principal.company_id).await?;
        let preview =
            for_tenant(&principal.company_id, preview_turn(&self.platform, principal, turn)).await?;
        Ok(preview.with_approval_floor(&floor))
    }

    /// Checks that the caller has the files of the latest message.
    ///
    /// # Errors
    /// 400 that names a file which does not exist, or is another user's.
    pub(super) async fn check_files(
        &self,
        principal: &Principal,
        messages: &[Arc<Message>],
    ) -> Result<(), HttpError> {
        match self.files_of(principal).find_missing(messages).await? {
            None => Ok(()),
            Some(id) => {
                Err(HttpError::invalid("the message", format!("has the file {id}, which does not exist")))
            }
        }
    }

    /// Keeps the files of messages as long as `thread`, which has the messages.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) async fn retain_files(
        &self,
        principal: &Principal,
        messages: &[Message],
        thread: &ThreadId,
    ) -> Result<(), StoreError> {
        self.files_of(principal).retain_for_thread(messages, thread).await
    }

    /// Replaces references to files by their contents, with the ids of the files if the agent has tools that send files.
    async fn load_files(
        &self,
        principal: &Principal,
        turn: &mut TurnRequest,
        thread: Option<&ThreadId>,
    ) -> Result<(), TurnError> {
        if !has_files(&turn.messages) {
            return Ok(());
        }
        let role = match &turn.role {
            Some(previewed) => Some(previewed.clone()),
            None => self.roles.role(&principal.company_id, &turn.agent_id).await?,
        };
        let shows_ids = role.is_some_and(|role| sends_files(&role.content.own_tools));
        Ok(self.files_of(principal).load(&mut turn.messages, thread, shows_ids).await?)
    }

    fn files_of<'a>(&'a self, principal: &'a Principal) -> MessageFiles<'a> {
        let Principal { company_id, user_id, .. } = principal;
        MessageFiles { records: &*self.records, company_id, user_id }
    }
}
