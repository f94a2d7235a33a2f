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
        let person = (&principal.company_id, &principal.user_id);
        // A visitor decides in own runs alone.
        if principal.caller == Caller::Widget {
            return Ok(Vec::new());
        }
        let (mut decided, mut known) = (Vec::new(), HashSet::new());
        for record in list_decided_approvals(&*self.records, person).await? {
            if known.contains(&record.value) {
                continue;
            }
            let Some((owner, run)) = decided_run(store, &principal.company_id, &record.value).await? else {
                continue;
            };
            for approval in run.at(now).approvals {
                let is_wanted = approval.id == record.value
                    && approval.decided_by.as_ref() == Some(&principal.user_id)
                    && self.may_decide(principal, &owner, &approval).await?;
                decided.extend(is_wanted.then_some(approval));
            }
            known.insert(record.value);
        }
        Ok(decided)
    }
}

/// Returns the run of an approval with its owner; `None` if it is deleted.
async fn decided_run(
    store: &dyn Conversations,
    company: &CompanyId,
    approval_id: &str,
) -> Result<Option<(ThreadOwner, Run)>, ConversationError> {
    let Some((owner, run)) = parse_approval_id(approval_id) else { return Ok(None) };
    let owner = ThreadOwner::new(company.clone(), owner);
    Ok(store.run(&owner, &run).await?.map(|run| (owner, run)))
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
            deleted += delete_obsolete_of(app, store, company, &person).await?;
        }
        cursor = next;
        if cursor.is_none() {
            return Ok(deleted);
        }
    }
}

async fn delete_obsolete_of(
    app: &App,
    store: &dyn Conversations,
    company: &CompanyId,
    person: &UserId,
) -> Result<usize, ConversationError> {
    let mut obsolete = Vec::new();
    for record in list_decided_approvals(&*app.records, (company, person)).await? {
        if decided_run(store, company, &record.value).await?.is_none() {
            obsolete.push(record.id);
        }
    }
    Ok(delete_decided_approvals(&*app.records, (company, person), obsolete).await?)
}
