//! `GET /api/runs/{id}/events`: the log of a run, from any event on, continued live; and
//! `GET /api/agent/chat/{threadId}/stream`, with which the AI SDK resumes a thread's run.

use agent_core::event::Event;
use agent_core::request::Principal;
use agent_platform::conversation::{Run, RunKey, RunState, Thread};
use futures_util::stream;
use http::{HeaderMap, HeaderName, request};
use jiff::Timestamp;

use super::conversation::{LogReader, log_gone, too_many_readers};
use super::reader_access::ReaderAccess;
use super::threads::{OwnConversations, private};
use super::{App, resource};
use crate::endpoint::RequestContext;
use crate::error::{Code, HttpError};
use crate::exchange_permit::hold_until_sent;
use crate::request::Query;
use crate::service::HandlerResult;
use crate::stream::{Framing, LogEvents, negotiate, replay_response};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Handles `GET /api/runs/{id}/events`.
pub(super) async fn get(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, .. } = context;
    let query = Query::from_uri(&head.uri);
    let conversations = OwnConversations::open(state, &principal)?.named(&principal, &query)?;
    let key = conversations.run_key(params.get("id")?)?;
    let framing = negotiate(&head.headers, query.get("format")?)?;
    let from = first_event(&head.headers, &query)?;
    let waits = match query.get("wait")? {
        None | Some("true") => true,
        Some("false") => false,
        Some(_) => return Err(HttpError::invalid("wait", "must be true or false")),
    };
    let run = conversations.store.run(&key.owner, &key.id).await?.ok_or_else(HttpError::not_found)?;
    conversations.check_agent(&run.agent_id).await?;
    match log_position(&run, from, conversations.app.conversations.now())? {
        LogPosition::End => private(Ok(resource::no_content())),
        LogPosition::From(from) => {
            attach(
                &conversations,
                ReaderAccess::new(&conversations, &principal, head, &run),
                run,
                framing,
                from,
                waits,
            )
            .await
        }
    }
}

/// Handles `GET /api/agent/chat/{threadId}/stream`.
pub(super) async fn resume(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state, head, params, .. } = context;
    let conversations = OwnConversations::open(state, &principal)?;
    let key = conversations.key(params.get("threadId")?)?;
    let framing = resume_framing(&head)?;
    let thread = conversations.store.thread(&key).await?;
    let live = |thread: Thread| thread.active_run_id.or_else(|| thread.queued_run_ids.into_iter().next());
    let run = match thread.and_then(live) {
        Some(id) => conversations.store.run(&conversations.owner, &id).await?,
        // Clients ask before the thread has its first message, too.
        None => None,
    };
    match run {
        None => private(Ok(resource::no_content())),
        Some(run) => {
            attach(
                &conversations,
                ReaderAccess::new(&conversations, &principal, head, &run),
                run,
                framing,
                0,
                true,
            )
            .await
        }
    }
}

/// Returns the format of a resumed run: the AI SDK's, unless `format` names another.
fn resume_framing(head: &request::Parts) -> Result<Framing, HttpError> {
    match Query::from_uri(&head.uri).get("format")? {
        None => Ok(Framing::UiMessage),
        format => Ok(negotiate(&head.headers, format)?),
    }
}

/// Returns the number of the first event that the client does not have. The header counts before the parameter, since an
/// `EventSource` repeats the address when it connects again.
fn first_event(headers: &HeaderMap, query: &Query<'_>) -> Result<u64, HttpError> {
    let header =
        headers.get(LAST_EVENT_ID).map(|value| ("Last-Event-ID", value.to_str().unwrap_or_default()));
    let after = match header {
        Some(header) => Some(header),
        None => query.get("after")?.map(|after| ("after", after)),
    };
    let Some((name, text)) = after else { return Ok(0) };
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number).and_then(|number: u64| number.checked_add(1));
    number.ok_or_else(|| HttpError::invalid(name, "must be the number of an event"))
}

/// Position in a run's log.
#[derive(Debug, PartialEq, Eq)]
enum LogPosition {
    /// The log from this event on.
    From(u64),
    /// The end: the client has all events.
    End,
}

/// Returns the position of event `from` in a run's log.
///
/// # Errors
/// 410 if the log has been deleted.
fn log_position(run: &Run, from: u64, now: Timestamp) -> Result<LogPosition, HttpError> {
    if run.state.is_live() {
        return Ok(LogPosition::From(from));
    }
    if !run.has_log(now) {
        return Err(log_gone());
    }
    let count = run.events.count;
    Ok(match from.cmp(&count) {
        std::cmp::Ordering::Less => LogPosition::From(from),
        std::cmp::Ordering::Equal => LogPosition::End,
        // The client saw events that were lost with the run's process; it receives the last stored one.
        std::cmp::Ordering::Greater => LogPosition::From(count - 1),
    })
}

/// Returns the log of a run from event `from` on, until its end or until the client has lost its right to it.
async fn attach(
    conversations: &OwnConversations,
    access: ReaderAccess,
    run: Run,
    framing: Framing,
    from: u64,
    waits: bool,
) -> HandlerResult {
    let service = &conversations.app.conversations;
    let is_queued = run.state == RunState::Queued;
    let key = RunKey { owner: conversations.owner.clone(), id: run.id };
    let permit = conversations.app.bounds.readers.admit_log(&key.owner.company, framing == Framing::Json)?;
    let reader = LogReader::open(service, &conversations.store, key, framing.first_read(from), waits);
    let reader = reader.ok_or_else(too_many_readers)?;
    let log = stream::unfold(Some((reader, access)), move |attached| async move {
        let (mut reader, mut access) = attached?;
        let next = tokio::select! {
            biased;
            () = access.wait_until_lost() => return None,
            next = reader.next() => next,
        };
        let next_number = reader.next_number();
        match next {
            Ok(events) => {
                let events = events.map(|events| LogEvents::before(next_number, events));
                events.map(|events| (Ok(events), Some((reader, access))))
            }
            // The client has a part of the events, and cannot get the others by attaching again.
            Err(error) if error.code() == Code::RunLogGone && framing != Framing::Json => {
                Some((Ok(LogEvents { first: next_number, events: vec![error_event(&error)] }), None))
            }
            Err(error) => Some((Err(error), None)),
        }
    });
    let limits = &conversations.app.stream;
    let response = replay_response(framing, from, run.turn_id, is_queued, log, limits).await?;
    private(Ok(hold_until_sent(response, permit)))
}

/// Returns the terminal event with this error, for a stream that has already started.
fn error_event(error: &HttpError) -> Event {
    let (message, code) = (error.detail().to_owned(), error.code().as_str().to_owned());
    Event::RunError { message, code, usage: Vec::new() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(state: &str, count: u64) -> Run {
        serde_json::from_value(json!({
            "id": "r", "threadId": "t", "turnId": "r", "agentId": "a", "state": state,
            "trigger": {"kind": "chat"}, "nodeIds": [], "onDisconnect": "cancel", "attached": 0,
            "events": {"count": count, "complete": true, "until": "2026-01-02T00:00:00.000Z"}, "usage": [],
            "createdAt": "2026-01-01T00:00:00.000Z",
        }))
        .expect("a run")
    }

    #[test]
    fn the_place_in_a_log_depends_on_the_run_s_state() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("a time");
        let later: Timestamp = "2026-01-02T00:00:00Z".parse().expect("a time");
        for (state, from, expected) in [
            ("running", 0, LogPosition::From(0)),
            ("running", 99, LogPosition::From(99)),
            ("completed", 0, LogPosition::From(0)),
            ("completed", 9, LogPosition::From(9)),
            ("completed", 10, LogPosition::End),
            ("interrupted", 11, LogPosition::From(9)),
        ] {
            assert_eq!(
                log_position(&run(state, 10), from, now).expect("it is kept"),
                expected,
                "{state} {from}"
            );
        }
        for (run, at) in [(run("completed", 10), later), (run("completed", 0), now)] {
            assert_eq!(log_position(&run, 0, at).expect_err("it is gone").code(), Code::RunLogGone);
        }
        assert!(log_position(&run("running", 0), 0, later).is_ok(), "a live run has a log");
    }

    #[test]
    fn the_number_of_the_last_event_is_read_strictly() {
        let read = |header: Option<&str>, query: &str| {
            let mut headers = HeaderMap::new();
            headers.extend(header.map(|id| (LAST_EVENT_ID, id.parse().expect("a header value"))));
            let uri: http::Uri = format!("/x?{query}").parse().expect("an address");
            first_event(&headers, &Query::from_uri(&uri)).map_err(|error| error.code())
        };
        assert_eq!(read(None, ""), Ok(0));
        assert_eq!(read(None, "after=0"), Ok(1));
        assert_eq!(read(Some("7"), "after=3"), Ok(8), "an EventSource repeats the address");
        for wrong in ["-1", "1e99", "1.5", "+1", "18446744073709551615", "99999999999999999999", "x"] {
            assert_eq!(read(None, &format!("after={wrong}")), Err(Code::InvalidRequest), "{wrong}");
            assert_eq!(read(Some(wrong), ""), Err(Code::InvalidRequest), "{wrong}");
        }
    }
}
