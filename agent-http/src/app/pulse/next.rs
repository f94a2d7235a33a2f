//! `POST /api/pulse/next`: the next occurrences of a schedule. It needs no scheduler and stores nothing.

use std::iter::successors;

use agent_core::request::Principal;
use agent_jobs::schedule::{ScheduleSpec, write_time};
use http::StatusCode;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::{App, response};
use super::TAG;
use crate::endpoint::{Operation, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::service::HandlerResult;

/// Default and maximum number of occurrences.
const DEFAULT_COUNT: usize = 10;
const MAX_COUNT: usize = 100;

#[derive(Deserialize, JsonSchema)]
struct NextRequest {
    /// The schedule, as a job would have it if it were created now.
    schedule: ScheduleSpec,
    /// Number of occurrences; 10 if absent.
    #[schemars(range(min = 1, max = MAX_COUNT))]
    count: Option<usize>,
    /// RFC 3339; only occurrences after this time. Now if absent, and the time of a one-off schedule even if it has passed.
    after: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct NextOccurrences {
    /// The occurrences in order; fewer than `count` if the schedule ends.
    next: Vec<OccurrenceTime>,
}

/// RFC 3339 in UTC with milliseconds.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
struct OccurrenceTime(
    #[serde(serialize_with = "write_time")]
    #[schemars(with = "String")]
    Timestamp,
);

/// Handles `POST /api/pulse/next`.
pub(in crate::app) async fn post(context: RequestContext<App>, _: Principal) -> HandlerResult {
    let RequestContext { state: app, head, body, .. } = context;
    let request: NextRequest = body.read_json(&head.headers).await?;
    let count = request.count.unwrap_or(DEFAULT_COUNT);
    if !(1..=MAX_COUNT).contains(&count) {
        return Err(HttpError::invalid("count", format!("must be a whole number from 1 to {MAX_COUNT}")));
    }
    let now = app.pulse.now();
    let schedule = request.schedule.resolve(now);
    let schedule = schedule.map_err(|error| HttpError::new(Code::InvalidRequest, error.to_string()))?;
    let first = match request.after.map(|after| after.parse::<Timestamp>()) {
        None => schedule.first(now),
        Some(Ok(after)) => schedule.next_after(after),
        Some(Err(_)) => return Err(HttpError::invalid("after", "must be a time in RFC 3339")),
    };
    let times = successors(first, |last| schedule.next_after(*last));
    response::json(StatusCode::OK, &NextOccurrences { next: times.take(count).map(OccurrenceTime).collect() })
}

pub(in crate::app) fn describe(schemas: &mut Schemas) -> Operation {
    Operation::new(
        "nextOccurrences",
        TAG,
        "Returns the next occurrences of a schedule; nothing is scheduled.",
    )
    .body(schemas.schema_for::<NextRequest>())
    .json_response(200, "The occurrences.", schemas.schema_for::<NextOccurrences>())
}
