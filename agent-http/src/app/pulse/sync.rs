//! Synchronization of assignments with the scheduler, and cancellation of jobs that an agent may no longer run.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use agent_core::ids::{AgentId, CompanyId};
use agent_core::role::RoleBlock;
use agent_core::tool::Caller;
use agent_jobs::job::{JobFilter, JobKind, JobOrder, JobScope};
use agent_platform::assignment::{self, SyncError, SyncTarget};
use agent_platform::pulse::{Pulse, PulseError};
use agent_platform::records::{ListQuery, MAX_PAGE_RECORDS, Record, RecordsExt, StoreError};
use agent_platform::run_tools::allowed_tools_in_run;
use agent_platform::workspace::{Assignment, assignment_key, list_assignments};

use tokio::time::timeout;

use super::super::App;

/// Time limit of cancelling the jobs that an agent may no longer run, which a change of the agent waits for.
const CANCEL_JOBS_TIMEOUT: Duration = Duration::from_secs(3);

/// Synchronizes an assignment with the scheduler. Returns false if none is configured or reachable, so that the caller asks it
/// nothing more. Errors are logged; upkeep retries.
pub(in crate::app) async fn sync_with_scheduler(app: &App, company_id: &CompanyId, id: &str) -> bool {
    if app.pulse.client().is_err() {
        return false;
    }
    match synchronize(app, company_id, id).await {
        Ok(()) | Err(SyncError::Busy) => true,
        Err(error) => {
            tracing::warn!(%error, id, "failed to synchronize an assignment; maintenance tries again");
            !matches!(&error, SyncError::Pulse(error) if is_unreachable(error))
        }
    }
}

/// Returns true if further calls to the scheduler would fail too.
pub(super) fn is_unreachable(error: &PulseError) -> bool {
    matches!(error, PulseError::Unavailable(_) | PulseError::Refused(_))
}

/// Synchronizes an assignment with the scheduler.
///
/// # Errors
/// See [`assignment::sync_assignment`].
async fn synchronize(app: &App, company_id: &CompanyId, id: &str) -> Result<(), SyncError> {
    let Ok(pulse) = app.pulse.client() else { return Err(PulseError::NotConfigured.into()) };
    let saved: Option<Record<Assignment>> = app.records.get_as(&assignment_key(company_id, id)?).await?;
    let target = SyncTargets::default().of(app, saved.as_ref()).await?;
    assignment::sync_assignment(&*app.records, pulse, (company_id, id), target, app.pulse.now()).await
}

/// Returns the target of an assignment of an agent.
pub(in crate::app) fn target(app: &App, role: Option<&RoleBlock>, assignment: &Assignment) -> SyncTarget {
    SyncTarget { can_run: assignment.can_run(role), is_local: app.pulse.remote.is_none() }
}

/// Targets of assignments, with the roles that were read for them: a pass reads each role once.
#[derive(Default)]
pub(in crate::app) struct SyncTargets(HashMap<(CompanyId, AgentId), Option<RoleBlock>>);

impl SyncTargets {
    /// Returns the target of a stored assignment.
    ///
    /// # Errors
    /// Errors of the store.
    pub(in crate::app) async fn of(
        &mut self,
        app: &App,
        saved: Option<&Record<Assignment>>,
    ) -> Result<SyncTarget, StoreError> {
        let Some(saved) = saved else {
            return Ok(SyncTarget { can_run: false, is_local: app.pulse.remote.is_none() });
        };
        let key = (saved.value.company_id.clone(), saved.value.agent_id.clone());
        if !self.0.contains_key(&key) {
            let role = app.roles.masked_role(&key.0, &key.1).await?.map(|record| record.value);
            self.0.insert(key.clone(), role);
        }
        Ok(target(app, self.0.get(&key).and_then(Option::as_ref), &saved.value))
    }
}

/// Synchronizes the assignments of an agent, and cancels its other open jobs whose tool it may no longer call; all jobs if
/// `role` is `None`, because the agent was deleted. If the scheduler is unreachable, the jobs end at their next callback, and
/// upkeep synchronizes the assignments.
pub(in crate::app) async fn cancel_disallowed_jobs(
    app: &App,
    company_id: &CompanyId,
    agent: &AgentId,
    role: Option<&RoleBlock>,
) -> Result<(), StoreError> {
    let Ok(pulse) = app.pulse.client() else { return Ok(()) };
    // First: an assignment that does not know that its job is cancelled would keep it when the agent has the tool again.
    if !sync_assignments(app, company_id, agent).await? {
        return Ok(());
    }
    match timeout(CANCEL_JOBS_TIMEOUT, cancel_withdrawn(pulse, company_id, agent, role)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, %agent, "failed to cancel the jobs of tools that the agent may not use any more");
        }
        Err(_) => {
            tracing::warn!(%agent, "the jobs of tools that the agent may not use any more were not cancelled in time");
        }
    }
    Ok(())
}

/// Synchronizes the assignments of an agent. Returns false if the scheduler is unreachable; the others are left out.
async fn sync_assignments(app: &App, company_id: &CompanyId, agent: &AgentId) -> Result<bool, StoreError> {
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    loop {
        let page = list_assignments(&*app.records, company_id, agent, &list).await?;
        for record in page.items {
            if !sync_with_scheduler(app, company_id, &record.id).await {
                return Ok(false);
            }
        }
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(true);
        }
    }
}

async fn cancel_withdrawn(
    pulse: &dyn Pulse,
    company_id: &CompanyId,
    agent: &AgentId,
    role: Option<&RoleBlock>,
) -> Result<(), PulseError> {
    let scope = JobScope { company: Some(company_id.clone()), user: None };
    let agent_filter = JobFilter { scope, agent: Some(agent.clone()), open: true, ..JobFilter::default() };
    let Some(role) = role else { return pulse.cancel_jobs(&agent_filter).await.map(drop) };
    let allowed = allowed_tools_in_run(role, Caller::Proactive);
    let (mut withdrawn, mut named_by_turns, mut cursor) = (BTreeSet::new(), BTreeSet::new(), None::<String>);
    loop {
        let order = JobOrder::NewestFirst;
        let page = pulse.list_jobs(&agent_filter, order, cursor.as_deref(), MAX_PAGE_RECORDS).await?;
        for job in &page.jobs {
            let is_call = job.payload.kind == JobKind::Tool;
            let tools = if is_call { &mut withdrawn } else { &mut named_by_turns };
            tools.extend(job.payload.tool_id.clone().filter(|tool| !allowed.contains(tool)));
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    // Jobs of older versions may also name a tool for a turn, which needs none. Jobs that call such a tool are not cancelled
    // here, and end when they are due.
    for tool in withdrawn.difference(&named_by_turns) {
        pulse.cancel_jobs(&JobFilter { tool: Some(tool.clone()), ..agent_filter.clone() }).await?;
    }
    Ok(())
}
