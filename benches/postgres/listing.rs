//! Pages of a company's documents over HTTP, from a table with many documents of many companies.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use benches::application::{list_documents, session};
use benches::comparison::{Bound, Comparison};
use benches::delivery::HttpConnection;
use benches::measure::millis;
use benches::subjects::{Bench, WORKER_THREADS};
use benches::table::{median, percentile};
use tokio_postgres::{Client, Statement};

use crate::server::connect;

const COMPANIES: usize = 1000;
/// Number of documents on a page.
const PAGE: usize = 50;
/// Number of pages of each subject per repeat.
const PAGES: usize = 500;
const LIMIT_MS: f64 = 5.0;

/// Documents `$1` of a company, all companies in turn.
const LOAD: &str = "
    INSERT INTO app.records (company, collection, id, version, updated_ms, value)
    SELECT company, 'documents', id, n + 1, 1700000000000 + n,
        json_build_object('id', id, 'companyId', company, 'ownerId', 'user-' || n % 20, 'title', 'Document ' || n,
            'text', repeat('- answer politely, name the **exact** day: ' || n || '. ', 10))::text
    FROM (
        SELECT n, 'company-' || lpad((n / $1::int8)::text, 4, '0') AS company,
            'document-' || lpad((n % $1::int8)::text, 6, '0') AS id
        FROM generate_series(0, $1::int8 * $2::int8 - 1) AS n
    ) AS new";
const FINISH: &str = "
    SELECT setval('app.record_version', (SELECT max(version) FROM app.records));
    VACUUM (FREEZE, ANALYZE) app.records";
const SELECT: &str = "
    SELECT id, version, updated_ms, value FROM app.records
    WHERE company = $1 AND collection = 'documents' AND id > $2 ORDER BY id LIMIT 50";

pub(crate) async fn measure(
    url: &str,
    bench: &Bench,
    repeats: usize,
    documents: usize,
) -> Result<Vec<Comparison>> {
    let program = Path::new(env!("CARGO_BIN_EXE_app_over"));
    let application = bench.start_replica(url, program, WORKER_THREADS)?;
    let client = connect(url).await?;
    let per_company = (documents / COMPANIES).max(2 * PAGE);
    let started = Instant::now();
    client.execute(LOAD, &[&i64::try_from(per_company)?, &i64::try_from(COMPANIES)?]).await?;
    for statement in FINISH.split(';') {
        client.batch_execute(statement).await?;
    }
    let loaded = started.elapsed().as_secs();
    let select = client.prepare(SELECT).await?;
    let mut connection = HttpConnection::connect(application.address).await?;
    let (mut p50, mut p99) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for repeat in 0..repeats {
        let mut times = [const { Vec::new() }; 2];
        for number in repeat * PAGES..(repeat + 1) * PAGES {
            let page = DocumentPage::of(number, per_company);
            times[0].push(page.read(&client, &select).await?);
            times[1].push(page.request(application.address, &mut connection).await?);
        }
        for (index, times) in times.into_iter().enumerate() {
            p50[index].push(median(times.clone()));
            p99[index].push(percentile(times, 99));
        }
    }
    let description = format!(
        "a page of {PAGE} of {} documents of {COMPANIES} companies over HTTP, loaded in {loaded} s, p99, beside the \
         statement alone",
        per_company * COMPANIES
    );
    Ok(vec![
        Comparison::new(description, "ms", Bound::FigureAtMost(LIMIT_MS), &p99[0], &p99[1]),
        Comparison::new("the same, p50", "ms", Bound::Unbounded, &p50[0], &p50[1]),
    ])
}

/// A page that was not requested before, so that no cache has it.
struct DocumentPage {
    company: String,
    after: String,
}

impl DocumentPage {
    /// Returns another page for each number: of another company each time, in no order.
    fn of(number: usize, per_company: usize) -> Self {
        let company = (number * 617) % COMPANIES;
        let pages = per_company / PAGE - 1;
        let page = (number / COMPANIES * 7 + number) % pages;
        let after = format!("document-{:06}", page * PAGE + 3);
        Self { company: format!("company-{company:04}"), after }
    }

    async fn read(&self, client: &Client, select: &Statement) -> Result<f64> {
        let started = Instant::now();
        let rows = client.query(select, &[&self.company, &self.after]).await?;
        let elapsed = millis(started.elapsed());
        ensure!(rows.len() == PAGE, "{} rows", rows.len());
        Ok(elapsed)
    }

    async fn request(&self, address: std::net::SocketAddr, connection: &mut HttpConnection) -> Result<f64> {
        let request = list_documents(address, &session(&self.company)?, &self.after);
        let started = Instant::now();
        connection.call(&request, 200).await?;
        Ok(millis(started.elapsed()))
    }
}
