//! HTTP client of the scheduler.

use std::time::Duration;

use agent_core::error::AgentError;
use agent_core::ids::JobId;
use agent_core::secret::Secret;
use agent_jobs::job::{InsertOutcome, JobFilter, JobOrder, JobScope, JobState, JobView, StepError};
use agent_jobs::schedule::ScheduleSpec;
use agent_platform::ids::check_id;
use agent_platform::pulse::{
    CancelResult, JobControl, JobRequest, JobStatus, JobViewPage, Pulse, PulseError, ScheduledJob,
};
use agent_platform::records::MAX_ID_BYTES;
use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::outbound::{OutboundClient, UrlTrust};
use crate::problem::ProblemDetails;

/// Time limit of a request to the scheduler.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of jobs on a page of the scheduler.
const MAX_PAGE_SIZE: usize = 200;
/// Maximum size of a response: a page of 200 jobs with the largest payload each.
const MAX_RESPONSE_BYTES: usize = 24 << 20;

/// The scheduler at `PULSE_URL`. The URL is set by the operator, so no address is denied. The secret is sent to that
/// URL only.
///
/// Of the texts of error responses, only those of a [`StepError`] and of a conflict of keys are repeated: a different server at
/// that URL could echo what it was sent.
#[derive(Debug, Clone)]
pub struct PulseClient {
    outbound: OutboundClient,
    url: Url,
    secret: Secret,
}

impl PulseClient {
    /// Creates a client of the scheduler at `url`, authenticated with `secret`.
    pub fn new(outbound: OutboundClient, url: Url, secret: Secret) -> Self {
        Self { outbound, url, secret }
    }

    /// Returns the URL of a job, or of an operation on it. The id is checked first: a URL drops a segment `..`, and the
    /// shorter path is that of an operation on many jobs. No job has an invalid id, so it is reported as not found.
    fn job_url(&self, scope: &JobScope, id: &JobId, operation: &[&str]) -> Result<Url, PulseError> {
        check_id(id, MAX_ID_BYTES).map_err(|_| PulseError::NotFound)?;
        Ok(self.url(&[&["jobs", id.as_str()], operation].concat(), &scope_query(scope)))
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        url: &Url,
        body: Option<Vec<u8>>,
    ) -> Result<T, PulseError> {
        let request = self.outbound.request(method, url, UrlTrust::Operator).map_err(unavailable)?;
        let mut request =
            request.header_timeout(REQUEST_TIMEOUT).bearer(&self.secret).map_err(unavailable)?;
        if let Some(body) = body {
            request = request
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(Bytes::from(body));
        }
        let response = request.send().await.map_err(unavailable)?;
        let status = response.status;
        let answer = response.read_limited(MAX_RESPONSE_BYTES, REQUEST_TIMEOUT).await.map_err(unavailable)?;
        if !status.is_success() {
            return Err(status_error(status, &answer));
        }
        serde_json::from_slice(&answer).map_err(|error| {
            // The parser's message could quote the response.
            PulseError::Refused(format!("the response is invalid JSON at column {}", error.column()).into())
        })
    }
}

fn unavailable(failure: AgentError) -> PulseError {
    PulseError::Unavailable(failure.into())
}

fn status_error(status: StatusCode, answer: &[u8]) -> PulseError {
    /// Member of the scheduler's conflict with a limit.
    #[derive(Deserialize)]
    struct LimitProblem {
        limit: u64,
    }
    match status.as_u16() {
        404 => PulseError::NotFound,
        400 | 413 | 415 | 422 => PulseError::Invalid("the scheduler rejected the job".to_owned()),
        409 => match serde_json::from_slice(answer) {
            Ok(LimitProblem { limit }) => PulseError::LimitReached(limit),
            Err(_) => PulseError::Conflict(conflict_text(answer)),
        },
        401 | 403 | 405 | 406 => PulseError::Refused(format!("HTTP {status}").into()),
        _ => PulseError::Unavailable(format!("HTTP {status}").into()),
    }
}

/// Returns the message for a conflict: the message of the [`StepError`] or of the key conflict that the response contains,
/// otherwise a general one. Any other text in the response is dropped.
fn conflict_text(answer: &[u8]) -> String {
    let finals = [JobState::Completed, JobState::Discarded, JobState::Cancelled].map(StepError::Final);
    let refusals = [StepError::Busy, StepError::NothingDiscarded];
    let detail = ProblemDetails::parse(answer).and_then(|problem| problem.detail);
    let refusals = finals.into_iter().chain(refusals).map(|error| error.to_string());
    let mut texts = refusals.chain([InsertOutcome::KEY_CONFLICT_TEXT.to_owned()]);
    let known = texts.find(|text| Some(text) == detail.as_ref());
    known.unwrap_or_else(|| "the job is final, or its idempotency key belongs to another job".to_owned())
}

fn scope_query(scope: &JobScope) -> Vec<(&str, &str)> {
    let parts = [("companyId", scope.company.as_deref()), ("userId", scope.user.as_deref())];
    parts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn filter_query(filter: &JobFilter) -> Vec<(&str, &str)> {
    let JobFilter { scope, agent, tool, assignment, state, open } = filter;
    let mut query = scope_query(scope);
    let open = open.then_some(JobFilter::OPEN_STATES);
    let further = [
        ("agentId", agent.as_deref()),
        ("toolId", tool.as_deref()),
        ("assignmentId", assignment.as_deref()),
        // No caller asks for a state and for open jobs at once; the state says more.
        ("state", state.map(|state| state.as_str()).or(open)),
    ];
    query.extend(further.into_iter().filter_map(|(name, value)| Some((name, value?))));
    query
}

fn json(value: &impl serde::Serialize) -> Result<Option<Vec<u8>>, PulseError> {
    serde_json::to_vec(value).map(Some).map_err(|error| PulseError::Invalid(error.to_string()))
}

#[async_trait]
impl Pulse for PulseClient {
    async fn schedule_job(&self, job: &JobRequest) -> Result<ScheduledJob, PulseError> {
        self.send(Method::POST, &self.url(&["jobs"], &[]), json(job)?).await
    }

    async fn get_job(&self, scope: &JobScope, id: &JobId) -> Result<JobView, PulseError> {
        self.send(Method::GET, &self.job_url(scope, id, &[])?, None).await
    }

    async fn cancel_job(&self, scope: &JobScope, id: &JobId) -> Result<CancelResult, PulseError> {
        self.send(Method::DELETE, &self.job_url(scope, id, &[])?, None).await
    }

    async fn reschedule_job(
        &self,
        scope: &JobScope,
        id: &JobId,
        schedule: &ScheduleSpec,
    ) -> Result<ScheduledJob, PulseError> {
        let url = self.job_url(scope, id, &["reschedule"])?;
        self.send(Method::POST, &url, json(schedule)?).await
    }

    async fn control_job(
        &self,
        scope: &JobScope,
        id: &JobId,
        control: JobControl,
    ) -> Result<JobStatus, PulseError> {
        self.send(Method::POST, &self.job_url(scope, id, &[control.as_str()])?, None).await
    }

    async fn cancel_jobs(&self, filter: &JobFilter) -> Result<u64, PulseError> {
        #[derive(Deserialize)]
        struct Cancelled {
            cancelled: u64,
        }
        let url = self.url(&["jobs"], &filter_query(filter));
        self.send(Method::DELETE, &url, None).await.map(|answer: Cancelled| answer.cancelled)
    }

    async fn list_jobs(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<JobViewPage, PulseError> {
        let limit = limit.min(MAX_PAGE_SIZE).to_string();
        let mut query = filter_query(filter);
        query.extend([("order", order.as_str()), ("limit", &limit)]);
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        self.send(Method::GET, &self.url(&["jobs"], &query), None).await
    }

    async fn count_jobs(&self, filter: &JobFilter) -> Result<u64, PulseError> {
        #[derive(Deserialize)]
        struct Count {
            count: u64,
        }
        let url = self.url(&["jobs", "count"], &filter_query(filter));
        self.send(Method::GET, &url, None).await.map(|answer: Count| answer.count)
    }

    async fn check_health(&self) -> Result<(), PulseError> {
        #[derive(Deserialize)]
        struct Health {
            status: String,
        }
        let health: Health = self.send(Method::GET, &self.url(&["health"], &[]), None).await?;
        match health.status.as_str() {
            "ok" => Ok(()),
            _ => Err(PulseError::Unavailable("it reports an unhealthy status".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_platform::pulse::user_scope;

    use super::*;
    use crate::outbound::OutboundConfig;

    #[test]
    fn a_conflict_with_a_limit_is_one_of_the_number_of_open_jobs() {
        let error = |answer: &str| status_error(StatusCode::CONFLICT, answer.as_bytes());
        assert!(matches!(error(r#"{"code":"CONFLICT","limit":100}"#), PulseError::LimitReached(100)));
        for answer in [r#"{"code":"CONFLICT"}"#, r#"{"limit":"many"}"#, ""] {
            assert!(matches!(error(answer), PulseError::Conflict(_)), "{answer}");
        }
    }

    #[test]
    fn a_conflict_has_the_schedulers_reason_and_no_other_text() {
        let text = |detail: &str| {
            let answer = serde_json::json!({"code": "CONFLICT", "detail": detail}).to_string();
            status_error(StatusCode::CONFLICT, answer.as_bytes()).to_string()
        };
        for reason in [
            "the job is completed",
            "the job is discarded",
            "the job is cancelled",
            "the job has no discarded occurrence to redrive",
            "the job is being delivered or waits for a retry",
            "the idempotencyKey belongs to another job",
        ] {
            assert_eq!(text(reason), reason);
        }
        let general = text("Authorization: Bearer canary");
        assert_eq!(general, "the job is final, or its idempotency key belongs to another job");
    }

    #[test]
    fn addresses_keep_the_operators_path_and_escape_ids() {
        let outbound = OutboundClient::new(OutboundConfig::default()).expect("a client");
        for (base, expected) in [
            ("http://pulse.internal:3002", "http://pulse.internal:3002/jobs/..x%3Fa%23b%25"),
            ("https://example.com/scheduler/", "https://example.com/scheduler/jobs/..x%3Fa%23b%25"),
        ] {
            let url = Url::parse(base).expect("an address");
            let client = PulseClient::new(outbound.clone(), url, Secret::new("0123456789abcdef"));
            let job_url = |id: &str| client.job_url(&JobScope::default(), &id.into(), &[]);
            assert_eq!(job_url("..x?a#b%").expect("an id").as_str(), expected);
            for id in [".", "..", "", " ", "a/b", "a\u{200b}"] {
                assert!(matches!(job_url(id), Err(PulseError::NotFound)), "{id:?}");
            }
            let scope = user_scope(&"c&d".into(), &"u".into());
            let url = client.url(&["jobs"], &scope_query(&scope));
            assert!(url.as_str().ends_with("/jobs?companyId=c%26d&userId=u"), "{url}");
        }
    }
}
