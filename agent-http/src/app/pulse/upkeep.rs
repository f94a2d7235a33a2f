//! What nobody waits for: assignments that are out of step with the scheduler, and marks that are over.

use std::sync::Arc;
use std::time::Duration;

use agent_platform::assignment::{self, Assignment, LINKS, Link, SyncError};
use agent_platform::occurrence::{Mark, OCCURRENCES};
use agent_platform::pulse::PulseError;
use agent_platform::records::{Collection, Key, List, MAX_PAGE, Precondition, Record, StoreError, Write};
use agent_platform::workspace::collection::ASSIGNMENTS;

use super::super::App;

/// How long there is nothing to do between two passes.
const PAUSE: Duration = Duration::from_secs(60);
/// How many pages of records one pass looks at; the next goes on from there.
const PAGES: usize = 50;

/// Keeps assignments in step and forgets old marks, again and again, beginning now. It never ends; whoever
/// spawns it drops it.
pub async fn upkeep(app: Arc<App>) {
    let mut walk = Walk::default();
    loop {
        if let Err(error) = pass(&app, &mut walk).await {
            tracing::warn!(%error, "upkeep of jobs was interrupted");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What is looked at in each company, in this order.
const STAGES: [&str; 3] = [ASSIGNMENTS, LINKS, OCCURRENCES];

/// Where a pass has come to. From the end it begins anew.
#[derive(Default)]
struct Walk {
    /// The companies that are yet to be visited of those that were read, the next one last.
    companies: Vec<String>,
    /// The last company that was read.
    after: Option<String>,
    stage: usize,
    cursor: Option<String>,
}

async fn pass(app: &App, walk: &mut Walk) -> Result<(), StoreError> {
    let mut reachable = app.pulse.client.is_some();
    for _ in 0..PAGES {
        if walk.companies.is_empty() {
            walk.companies = app.pulse.inventory.companies(walk.after.as_deref()).await?;
            walk.after = walk.companies.last().cloned();
            walk.companies.reverse();
        }
        // What is of no company is the platform's own.
        let Some(company) = walk.companies.last().cloned() else { return Ok(()) };
        let next = match company.as_str() {
            "" => None,
            company => {
                let records = Collection::new(company, STAGES[walk.stage])?;
                page(app, &records, walk.cursor.take(), &mut reachable).await?
            }
        };
        walk.cursor = next;
        if walk.cursor.is_some() {
            continue;
        }
        walk.stage += 1;
        if company.is_empty() || walk.stage == STAGES.len() {
            walk.stage = 0;
            walk.companies.pop();
        }
    }
    Ok(())
}

/// Looks at a page, and says where the next begins.
async fn page(
    app: &App,
    collection: &Collection,
    cursor: Option<String>,
    reachable: &mut bool,
) -> Result<Option<String>, StoreError> {
    let list = List { limit: Some(MAX_PAGE), cursor, ..List::default() };
    let page = app.records.list(collection, &list).await?;
    let ids: Vec<String> = page.records.iter().map(|record| record.id.clone()).collect();
    if collection.path() == OCCURRENCES {
        forget(app, collection, page.records).await?;
    } else {
        for id in out_of_step(app, collection.company(), ids).await? {
            if *reachable {
                *reachable = sync(app, collection.company(), &id).await;
            }
        }
    }
    Ok(page.next_cursor)
}

async fn forget(app: &App, collection: &Collection, records: Vec<Record>) -> Result<(), StoreError> {
    let now = app.pulse.now();
    let mut writes = Vec::new();
    for record in records {
        // One in a shape that is not known is nobody's to forget.
        let Ok(record) = record.parse::<Mark>(collection) else { continue };
        if record.value.is_over(now) {
            let precondition = Precondition::Version(record.version);
            writes.push(Write::Delete { key: collection.key(record.id)?, precondition });
        }
    }
    match writes.is_empty() {
        true => Ok(()),
        // Somebody works on one of them: they are looked at again at the next pass.
        false => match app.records.commit(writes).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        },
    }
}

/// Of these assignments, or links of such, those of which the scheduler does not know all.
async fn out_of_step(app: &App, company: &str, ids: Vec<String>) -> Result<Vec<String>, StoreError> {
    let mut keys: Vec<Key> = Vec::with_capacity(2 * ids.len());
    for id in &ids {
        keys.extend([assignment::key(company, id)?, assignment::link_key(company, id)?]);
    }
    let mut found = app.records.get_many(&keys).await?.into_iter().zip(&keys);
    let mut out = Vec::new();
    for id in ids {
        let saved =
            found.next().and_then(|(record, key)| Some(record?.parse::<Assignment>(key.collection())));
        let link = found.next().and_then(|(record, key)| Some(record?.parse::<Link>(key.collection())));
        match (saved.transpose(), link.transpose()) {
            (Ok(saved), Ok(link)) if assignment::is_in_step(saved.as_ref(), link.as_ref()) => {}
            (Ok(_), Ok(_)) => out.push(id),
            // One that an older version has kept in another shape is left to its owner.
            (Err(error), _) | (_, Err(error)) => tracing::warn!(%error, id, "an assignment cannot be read"),
        }
    }
    Ok(out)
}

/// Tells the scheduler of an assignment, and says whether it is worth telling it more.
async fn sync(app: &App, company: &str, id: &str) -> bool {
    let Some(pulse) = app.pulse.client.as_deref() else { return false };
    match assignment::sync(&*app.records, pulse, (company, id), app.pulse.now()).await {
        Ok(()) | Err(SyncError::Busy) => true,
        Err(error) => {
            tracing::warn!(%error, id, "an assignment stays out of step with the scheduler");
            !matches!(error, SyncError::Pulse(PulseError::Unavailable(_) | PulseError::Refused(_)))
        }
    }
}
