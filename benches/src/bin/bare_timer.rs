//! The reference of the lateness benchmark: tokio's timer, without a store.
//!
//! `bare_timer URL FIRST_MS COUNT EVERY_MS` posts COUNT callbacks, the first at FIRST_MS (milliseconds since 1970),
//! then one every EVERY_MS, each from its own task that sleeps until then. It uses the scheduler's HTTP client;
//! bodies are serialized beforehand, and nothing is signed. Two worker threads.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_client::outbound::{OutboundClient, OutboundConfig, UrlTrust};
use agent_jobs::job::Delivery;
use anyhow::{Context, Result, ensure};
use benches::delivery::payload;
use bytes::Bytes;
use http::{HeaderValue, header::CONTENT_TYPE};
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use url::Url;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, first, count, every] = &arguments[..] else {
        anyhow::bail!("usage: bare_timer URL FIRST_MS COUNT EVERY_MS")
    };
    let (url, outbound) = (Url::parse(url)?, OutboundClient::new(OutboundConfig::default())?);
    let (first, count, every): (u64, usize, u64) = (first.parse()?, count.parse()?, every.parse()?);

    let mut posts = JoinSet::new();
    for n in 0..count {
        let due = Duration::from_millis(first + every * n as u64);
        let ahead = due.checked_sub(SystemTime::now().duration_since(UNIX_EPOCH)?);
        let at = Instant::now() + ahead.context("the first time has passed")?;
        let delivery = Delivery {
            payload: payload(n, 100).into(),
            job_id: format!("job-{n}").into(),
            occurrence: 1,
            scheduled_for: Timestamp::from_duration(due.try_into()?)?,
            attempt: 1,
        };
        let body = Bytes::from(serde_json::to_vec(&delivery)?);
        let (url, outbound) = (url.clone(), outbound.clone());
        posts.spawn(async move {
            sleep_until(at).await;
            post(&outbound, &url, body).await
        });
    }
    while let Some(posted) = posts.join_next().await {
        posted??;
    }
    Ok(())
}

async fn post(outbound: &OutboundClient, url: &Url, body: Bytes) -> Result<()> {
    let request = outbound.post(url, UrlTrust::Operator).map_err(anyhow::Error::new)?;
    let request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut response = request.body(body).send().await.map_err(anyhow::Error::new)?;
    ensure!(response.status.is_success(), "the receiver answers {}", response.status);
    // Reads the body to its end, so that the connection is reused.
    while futures_util::StreamExt::next(&mut response.body).await.is_some() {}
    Ok(())
}
