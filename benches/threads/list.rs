//! Pages of an owner's threads over HTTP, among many threads of other owners.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use agent_platform::conversation::{ThreadCursor, ThreadOwner};
use anyhow::{Result, ensure};
use benches::application::{company_id, session, user_id};
use benches::comparison::{Bound, Comparison};
use benches::delivery::{HttpConnection, body};
use benches::measure::millis;
use benches::subjects::{Bench, WORKER_THREADS};
use benches::table::{median, percentile};
use jiff::{Timestamp, ToSpan};
use rusqlite::{Connection, params};
use serde_json::Value;

use crate::stored::{create_all, open, thread};
use crate::thread_app::{app_over, programs};

/// Number of owners, which have as many threads each.
const OWNERS: usize = 10;
/// Number of threads on a page.
const PAGE: usize = 50;
/// Number of the page far down in the list.
const FAR_PAGE: usize = 1_000;
/// Number of requests of each page per repeat.
const REQUESTS: usize = 500;
const LIMIT_MS: f64 = 5.0;

const SELECT: &str = "
    SELECT id, body FROM threads
    WHERE company = ?1 AND owner = ?2 AND archived = 0 AND (active_ms, id) < (?3, ?4)
    ORDER BY active_ms DESC, id DESC LIMIT 51";

/// Times by page: of the reference, and of the application.
type PageTimes = [[Vec<f64>; 2]; 2];

pub(crate) async fn measure(repeats: usize, threads: usize) -> Result<Vec<Comparison>> {
    let per_owner = (threads / OWNERS).max(2 * PAGE);
    let far_page = FAR_PAGE.min(per_owner / PAGE);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("app.db");
    let fill_started = Instant::now();
    let started = fill(&path, per_owner).await?;
    let filled = fill_started.elapsed().as_secs();
    let bench = Bench::start(programs())?;
    let url = format!("sqlite://{}", path.display());
    let application = bench.start_replica(&url, app_over(), WORKER_THREADS)?;
    let raw = Connection::open(&path)?;
    let mut connection = HttpConnection::connect(application.address).await?;
    let pages = [1, far_page].map(|number| ListPage::new(number, per_owner, started));
    for page in &pages {
        page.check(application.address, &mut connection).await?;
    }
    let (mut p50, mut p99) = (PageTimes::default(), PageTimes::default());
    for _ in 0..repeats {
        let mut times = PageTimes::default();
        for _ in 0..REQUESTS {
            for (page, times) in pages.iter().zip(&mut times) {
                times[0].push(page.read(&raw)?);
                times[1].push(page.request(application.address, &mut connection).await?);
            }
        }
        for (page, times) in times.into_iter().enumerate() {
            for (subject, times) in times.into_iter().enumerate() {
                p50[page][subject].push(median(times.clone()));
                p99[page][subject].push(percentile(times, 99));
            }
        }
    }
    let mut rows = Vec::new();
    for (at, page) in pages.iter().enumerate() {
        let description = format!(
            "page {} of {PAGE} of an owner's {per_owner} threads among {}, created in {filled} s, over HTTP, p99, beside \
             the statement alone",
            page.number,
            per_owner * OWNERS
        );
        let [reference, figures] = &p99[at];
        rows.push(Comparison::new(description, "ms", Bound::FigureAtMost(LIMIT_MS), reference, figures));
        let [reference, figures] = &p50[at];
        rows.push(Comparison::new("the same, p50", "ms", Bound::Unbounded, reference, figures));
    }
    Ok(rows)
}

fn id(n: usize) -> String {
    format!("thread-{n:06}")
}

/// Creates the threads of all owners. Returns the time of the oldest one's activity; the others follow a millisecond apart.
async fn fill(path: &Path, per_owner: usize) -> Result<Timestamp> {
    let started = Timestamp::now() - i64::try_from(per_owner)?.milliseconds();
    let store = open(path)?;
    let make = move |number: usize| {
        let (owner, n) = (number % OWNERS, number / OWNERS);
        let owner = match owner {
            0 => user_id().to_owned(),
            other => format!("owner-{other}"),
        };
        let key = ThreadOwner::new(company_id(), &*owner).thread(id(n));
        thread(key, Vec::new(), activity(started, n))
    };
    create_all(&store, per_owner * OWNERS, make).await?;
    Ok(started)
}

/// Returns the time of a thread's last activity.
fn activity(started: Timestamp, n: usize) -> Timestamp {
    started + i64::try_from(n).unwrap_or(i64::MAX).milliseconds()
}

/// A page of the owner's threads.
struct ListPage {
    number: usize,
    /// Place behind the thread before the page.
    after: ThreadCursor,
    /// Id of the first thread.
    first: String,
}

impl ListPage {
    /// Returns the page with this number, from 1.
    fn new(number: usize, per_owner: usize, started: Timestamp) -> Self {
        // The newest threads come first.
        let before = (number - 1) * PAGE;
        let after = match before {
            0 => ThreadCursor::start(),
            before => {
                let n = per_owner - before;
                ThreadCursor { active_ms: activity(started, n).as_millisecond(), id: id(n).into() }
            }
        };
        Self { number, after, first: id(per_owner - before - 1) }
    }

    fn bytes(&self, address: SocketAddr) -> Result<Vec<u8>> {
        let cursor = match self.number {
            1 => String::new(),
            _ => format!("&cursor={}", self.after),
        };
        let token = session(company_id())?;
        let head = format!("GET /api/threads?limit={PAGE}{cursor} HTTP/1.1\r\nhost: {address}\r\n");
        Ok(format!("{head}authorization: Bearer {token}\r\n\r\n").into_bytes())
    }

    /// Checks that the application gives the right threads.
    async fn check(&self, address: SocketAddr, connection: &mut HttpConnection) -> Result<()> {
        let message = connection.call(&self.bytes(address)?, 200).await?;
        let page: Value = serde_json::from_slice(body(&message))?;
        let threads = page["threads"].as_array().map_or(0, Vec::len);
        ensure!(threads == PAGE && page["threads"][0]["id"] == *self.first, "a wrong page: {page}");
        Ok(())
    }

    async fn request(&self, address: SocketAddr, connection: &mut HttpConnection) -> Result<f64> {
        let request = self.bytes(address)?;
        let started = Instant::now();
        connection.call(&request, 200).await?;
        Ok(millis(started.elapsed()))
    }

    fn read(&self, raw: &Connection) -> Result<f64> {
        let started = Instant::now();
        let mut statement = raw.prepare_cached(SELECT)?;
        let values = params![company_id(), user_id(), self.after.active_ms, &*self.after.id];
        let rows = statement.query_map(values, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let rows: Vec<(String, String)> = rows.collect::<rusqlite::Result<_>>()?;
        let elapsed = millis(started.elapsed());
        ensure!(rows.len() >= PAGE && rows[0].0 == self.first, "wrong rows");
        Ok(elapsed)
    }
}
