//! Approvals that the caller has decided in the runs of others.

use std::collections::HashSet;

use agent_core::ids::{CompanyId, UserId};
use agent_core::request::Principal;
use agent_core::tool::Caller;
use agent_platform::conversation::{
    Approval, ConversationError, Conversations, Run, ThreadOwner, parse_approval_id,
};
use agent_platform::workspace::{delete_decided_approvals, list_approvers, list_decided_approvals};
use jiff::Timestamp;

use super::super::App;
use crate::error::HttpError;

impl App {
    /// Returns the approvals that the caller has decided in the runs of others and may still see, each as it is at a time.
    pub(in super::super) async fn decided_approvals(
        &self,
        store: &dyn Conversations,
        principal: &Principal,
        now: Timestamp,
    ) -> Result<Vec<Approval>, HttpError> {
        // A visitor decides in own runs alone.
        if principal.caller == Caller::Widget {
            return Ok(Vec::new());
        }
        let person = (&principal.company_id, &principal.user_id);
        let DecidedRuns { runs, obsolete } = DecidedRuns::find(self, store, person).await?;
        // After an error, the next sweep deletes them.
        if !obsolete.is_empty()
            && let Err(error) = delete_decided_approvals(&*self.records, person, obsolete).await
        {
            tracing::warn!(%error, "failed to delete the decisions of deleted runs; trying again later");
        }
        let mut decided = Vec::new();
        for (id, owner, run) in runs {
            for approval in run.at(now).approvals {
                let is_wanted = approval.id == id
                    && approval.decided_by.as_ref() == Some(&principal.user_id)
                    && self.may_decide(principal, &owner, &approval).await?;
                decided.extend(is_wanted.then_some(approval));
            }
        }
        Ok(decided)
    }
}

/// Runs of others in which a person has decided.
#[derive(Default)]
struct DecidedRuns {
    /// The decided approval of each run, the run's owner and the run.
    runs: Vec<(String, ThreadOwner, Run)>,
    /// Ids of the records of deleted runs.
    obsolete: Vec<String>,
}

impl DecidedRuns {
    async fn find(
        app: &App,
        store: &dyn Conversations,
        person: (&CompanyId, &UserId),
    ) -> Result<Self, ConversationError> {
        let (mut found, mut known) = (Self::default(), HashSet::new());
        for record in list_decided_approvals(&*app.records, person).await? {
            if known.contains(&record.value) {
                continue;
            }
            let found_run = match parse_approval_id(&record.value) {
                Some((owner, id)) => {
                    let owner = ThreadOwner::new(person.0.clone(), owner);
                    store.run(&owner, &id).await?.map(|run| (owner, run))
                }
                None => None,
            };
            match found_run {
                Some((owner, run)) => {
                    known.insert(record.value.clone());
                    found.runs.push((record.value, owner, run));
                }
                None => found.obsolete.push(record.id),
            }
        }
        Ok(found)
    }
}

/// Deletes what the lists of decided approvals in a company have of deleted runs. Returns the number of deleted records.
///
/// # Errors
/// Errors of the stores.
pub(super) async fn delete_obsolete_decisions(
    app: &App,
    store: &dyn Conversations,
    company: &CompanyId,
) -> Result<usize, ConversationError> {
    let (mut deleted, mut cursor) = (0, None::<String>);
    loop {
        let (people, next) = list_approvers(&*app.pulse.inventory, company, cursor.as_deref()).await?;
        for person in people {
            let DecidedRuns { obsolete, .. } = DecidedRuns::find(app, store, (company, &person)).await?;
            deleted += delete_decided_approvals(&*app.records, (company, &person), obsolete).await?;
        }
        cursor = next;
        if cursor.is_none() {
            return Ok(deleted);
        }
    }
}
