//! Background maintenance of assignments, and deletion of expired records.
//!
//! - Synchronizes assignments with the scheduler, and cancels the jobs of deleted users.
//! - Deletes expired records: occurrences, journal entries, leases of ended processes, sign-ins to subscriptions, run ids,
//!   ended run tokens, users' rates and users' files.
//! - Deletes pieces of uploads that no document names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::ids::{CompanyId, UserId};
use agent_jobs::job::JobScope;
use agent_platform::assignment::{self, AssignmentSync, SYNC_COLLECTION};
use agent_platform::coding::{SIGN_IN_COLLECTION, expire_sign_ins};
use agent_platform::journal::{JOURNAL_COLLECTION, delete_obsolete_entries, delete_user_entries};
use agent_platform::occurrence::{OCCURRENCE_COLLECTION, OccurrenceState, delete_expired_leases};
use agent_platform::pulse::{PulseError, user_scope};
use agent_platform::records::{
    Collection, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Record, StoreError, Write,
};
use agent_platform::run_registry::{RUN_ID_COLLECTION, delete_old_run_ids};
use agent_platform::user_rates::RateRecordSweep;
use agent_platform::workspace::collection::ASSIGNMENTS;
use agent_platform::workspace::{
    Assignment, DELETED_USER_COLLECTION, PENDING_COLLECTION, STORED_COLLECTION, USER_FILE_COLLECTION,
    assignment_key, cancel_user_jobs, sweep_pending_pieces, sweep_stored_contents,
};
use jiff::Timestamp;

use super::super::App;
use super::super::files;
use super::handover::hand_over_local_jobs;
use super::sync;

/// Pause between two passes.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum duration of a pass, after which it reads no further page; the next pass resumes where this one stopped. The number of
/// pages is not limited, since each company has ten, of which most are empty.
const MAX_PASS_TIME: Duration = Duration::from_secs(5);
/// Maximum number of pages of users' rates that a pass reads.
const MAX_RATE_PAGES_PER_PASS: usize = 50;
/// Maximum number of companies that a pass leaves to the next walk, since a page of theirs has failed. More of them mean that the
/// store is away.
const MAX_FAILED_COMPANIES: usize = 10;
/// Time added to the time limit of a job's run, after which a run of a deleted user creates no jobs any more.
const DELETED_USER_MARGIN: Duration = Duration::from_secs(60);

/// Synchronizes assignments and deletes expired records, at once and then after each pause. Runs until the future is dropped.
pub(in super::super) async fn run_maintenance(app: Arc<App>) {
    let mut position = MaintenanceCursor::default();
    loop {
        if let Err(error) = run_pass(&app, &mut position).await {
            tracing::warn!(%error, "a pass of the jobs' maintenance failed; the next pass continues");
        }
        tokio::time::sleep(MAINTENANCE_INTERVAL).await;
    }
}

/// The collections to visit in each company, in this order.
const MAINTAINED_COLLECTIONS: [&str; 10] = [
    DELETED_USER_COLLECTION,
    ASSIGNMENTS,
    SYNC_COLLECTION,
    OCCURRENCE_COLLECTION,
    JOURNAL_COLLECTION,
    SIGN_IN_COLLECTION,
    RUN_ID_COLLECTION,
    PENDING_COLLECTION,
    STORED_COLLECTION,
    USER_FILE_COLLECTION,
];

/// Position of the maintenance walk. It restarts after the last company.
#[derive(Default)]
struct MaintenanceCursor {
    rates: RateRecordSweep,
    /// Companies of the current page that have not been visited, in reverse order.
    companies: Vec<String>,
    /// The last company of the current page; the cursor of the next one.
    after: Option<String>,
    stage: usize,
    cursor: Option<String>,
}

impl MaintenanceCursor {
    /// Moves to the next company.
    fn skip_company(&mut self) {
        (self.stage, self.cursor) = (0, None);
        self.companies.pop();
    }
}

async fn run_pass(app: &Arc<App>, position: &mut MaintenanceCursor) -> Result<(), StoreError> {
    if let Err(error) = hand_over_local_jobs(app).await {
        tracing::warn!(%error, "failed to hand local jobs over to the scheduler; the next pass tries again");
    }
    let mut reachable = app.pulse.client().is_ok();
    delete_expired_leases(&*app.records, app.pulse.now()).await?;
    app.tokens.delete_expired_ended_run_tokens().await?;
    for _ in 0..MAX_RATE_PAGES_PER_PASS {
        if !position.rates.delete_page(&*app.pulse.inventory, app.pulse.now().into()).await? {
            break;
        }
    }
    let mut failed_companies = 0;
    let began = Instant::now();
    while began.elapsed() < MAX_PASS_TIME {
        if position.companies.is_empty() {
            position.companies = app.pulse.inventory.companies(position.after.as_deref()).await?;
            position.after = position.companies.last().cloned();
            position.companies.reverse();
        }
        // Records without a company belong to the platform itself.
        let Some(company) = position.companies.last().cloned() else { return Ok(()) };
        if company.is_empty() {
            position.skip_company();
            continue;
        }
        let records = Collection::new(&*company, MAINTAINED_COLLECTIONS[position.stage])?;
        match process_page(app, &records, position.cursor.take(), &mut reachable).await {
            Ok(next) => position.cursor = next,
            // Such as a locked record, which delays no other company.
            Err(error) if failed_companies < MAX_FAILED_COMPANIES => {
                tracing::warn!(%error, %company, "a page of the jobs' maintenance failed; the next pass tries again");
                failed_companies += 1;
                position.skip_company();
                continue;
            }
            Err(error) => return Err(error),
        }
        if position.cursor.is_none() {
            position.stage += 1;
            if position.stage == MAINTAINED_COLLECTIONS.len() {
                position.skip_company();
            }
        }
    }
    Ok(())
}

/// Processes one page and returns the cursor of the next.
async fn process_page(
    app: &App,
    collection: &Collection,
    cursor: Option<String>,
    reachable: &mut bool,
) -> Result<Option<String>, StoreError> {
    if collection.path() == JOURNAL_COLLECTION {
        return delete_obsolete_entries(&*app.records, &collection.company().into(), cursor).await;
    }
    if collection.path() == RUN_ID_COLLECTION {
        let (inventory, now) = (&*app.pulse.inventory, app.pulse.now().into());
        let has_more = delete_old_run_ids(inventory, &collection.company().into(), now).await?;
        // The next page is again the first, since this one was deleted.
        return Ok(has_more.then(String::new));
    }
    if collection.path() == PENDING_COLLECTION {
        let company = collection.company().into();
        return sweep_pending_pieces(&*app.records, &company, cursor, app.pulse.now()).await;
    }
    if collection.path() == STORED_COLLECTION {
        return sweep_stored_contents(&*app.records, &collection.company().into(), cursor).await;
    }
    if collection.path() == USER_FILE_COLLECTION {
        return files::sweep_page(app, &collection.company().into(), cursor).await;
    }
    let list = ListQuery { limit: Some(MAX_PAGE_RECORDS), cursor, ..ListQuery::default() };
    let page = app.records.list(collection, &list).await?;
    let ids: Vec<String> = page.records.iter().map(|record| record.id.clone()).collect();
    if collection.path() == OCCURRENCE_COLLECTION {
        delete_expired(app, collection, page.records).await?;
    } else if collection.path() == DELETED_USER_COLLECTION {
        cancel_jobs_of_deleted_users(app, collection, page.records, reachable).await?;
    } else if collection.path() == SIGN_IN_COLLECTION {
        for id in ids {
            expire_sign_ins(&*app.records, &collection.company().into(), &id.into(), app.pulse.now()).await?;
        }
    } else {
        let company = CompanyId::from(collection.company());
        for id in unsynchronized(app, &company, ids).await? {
            if *reachable {
                *reachable = sync::sync_with_scheduler(app, &company, &id).await;
            }
        }
    }
    Ok(page.next_cursor)
}

/// Cancels the jobs of deleted users, deletes what their runs have stored, and the records of users whose runs have ended.
async fn cancel_jobs_of_deleted_users(
    app: &App,
    collection: &Collection,
    records: Vec<Record>,
    reachable: &mut bool,
) -> Result<(), StoreError> {
    let company = CompanyId::from(collection.company());
    let margin = app.pulse.deadline + DELETED_USER_MARGIN;
    for record in records {
        let user = UserId::from(record.id.as_str());
        let deleted_at = Timestamp::try_from(record.updated).unwrap_or_default();
        let created_until = deleted_at.saturating_add(margin).unwrap_or(Timestamp::MAX);
        delete_user_entries(&*app.records, (&company, &user), created_until.into()).await?;
        if app.pulse.remote.is_some() && !*reachable {
            continue;
        }
        let scope = user_scope(&company, &user);
        if let Err(error) = cancel_local_and_remote_jobs(app, &scope, created_until).await {
            tracing::warn!(%error, "failed to cancel the jobs of a deleted user; the next pass tries again");
            *reachable &= !sync::is_unreachable(&error);
            continue;
        }
        if app.pulse.now() <= created_until {
            continue;
        }
        let precondition = Precondition::Version(record.version);
        match app.records.delete(&collection.key(record.id)?, precondition).await {
            // The user was deleted again meanwhile.
            Ok(_) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn cancel_local_and_remote_jobs(
    app: &App,
    scope: &JobScope,
    created_until: Timestamp,
) -> Result<(), PulseError> {
    cancel_user_jobs(&*app.pulse.local, scope, created_until).await?;
    if let Some(remote) = &app.pulse.remote {
        cancel_user_jobs(&**remote, scope, created_until).await?;
    }
    Ok(())
}

async fn delete_expired(app: &App, collection: &Collection, records: Vec<Record>) -> Result<(), StoreError> {
    let now = app.pulse.now();
    let mut writes = Vec::new();
    for record in records {
        // A record in an unknown format is kept.
        let Ok(record) = record.parse::<OccurrenceState>(collection) else { continue };
        if record.value.is_expired(now) {
            let precondition = Precondition::Version(record.version);
            writes.push(Write::Delete { key: collection.key(record.id)?, precondition });
        }
    }
    match writes.is_empty() {
        true => Ok(()),
        // Another process has changed one of the records; the next pass retries.
        false => match app.records.commit(writes).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        },
    }
}

/// Returns the ids, of assignments or links, for which the scheduler does not have the current version.
async fn unsynchronized(app: &App, company: &CompanyId, ids: Vec<String>) -> Result<Vec<String>, StoreError> {
    let mut keys: Vec<Key> = Vec::with_capacity(2 * ids.len());
    for id in &ids {
        keys.extend([assignment_key(company, id)?, assignment::sync_key(company, id)?]);
    }
    let mut records = app.records.get_many(&keys).await?.into_iter().zip(&keys);
    let (mut outdated, mut targets) = (Vec::new(), sync::SyncTargets::default());
    for id in ids {
        let saved =
            records.next().and_then(|(record, key)| Some(record?.parse::<Assignment>(key.collection())));
        let link =
            records.next().and_then(|(record, key)| Some(record?.parse::<AssignmentSync>(key.collection())));
        match (saved.transpose(), link.transpose()) {
            (Ok(saved), Ok(link)) => {
                let target = targets.of(app, saved.as_ref()).await?;
                if !assignment::is_in_sync(saved.as_ref(), link.as_ref(), target) {
                    outdated.push(id);
                }
            }
            // An assignment in a format of an older version is left to its owner.
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(%error, id, "an assignment's record is invalid: its owner must save it again");
            }
        }
    }
    Ok(outdated)
}
