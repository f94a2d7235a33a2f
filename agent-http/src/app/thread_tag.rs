//! Entity tags of threads.

use agent_platform::conversation::Thread;
use headers::ETag;

use super::resource::entity_tag;

/// Returns the entity tags of a thread: the one that responses have, and one of the version alone, which clients make of the
/// field `version`. A thread that is created again under the id of a deleted one has the same versions once more, so the first
/// tag also has the time of the creation.
pub(super) fn thread_tags(thread: &Thread) -> [ETag; 2] {
    let (version, created) = (thread.version, thread.created_at.as_millisecond());
    let tag = format!("\"{version}-{created:x}\"");
    [tag.parse().expect("letters and digits in quotation marks are an entity tag"), entity_tag(version)]
}

#[cfg(test)]
mod tests {
    use agent_platform::conversation::{CreateThreadRequest, NewThread, ThreadKey, commit};
    use headers::HeaderMapExt;
    use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
    use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
    use jiff::Timestamp;

    use super::super::resource::{check_tags, get_tagged};
    use super::*;

    fn created_at(millis: i64) -> Thread {
        let create = CreateThreadRequest {
            key: ThreadKey::new("c", "u", "t"),
            agent_id: "a".into(),
            new: NewThread::default(),
            retention: None,
            nodes: Vec::new(),
            now: Timestamp::from_millisecond(millis).expect("a time"),
        };
        commit::create(create, 0).expect("a thread").0
    }

    fn condition(name: HeaderName, tag: &HeaderValue) -> HeaderMap {
        HeaderMap::from_iter([(name, tag.clone())])
    }

    #[test]
    fn a_thread_that_is_created_again_has_another_tag() {
        let (deleted, again) = (thread_tags(&created_at(1)), thread_tags(&created_at(2)));
        let mut sent = HeaderMap::new();
        sent.typed_insert(deleted[0].clone());
        let tag = &sent[ETAG];
        assert_eq!(tag, "\"1-1\"");
        for (tags, status, holds) in
            [(&deleted, StatusCode::NOT_MODIFIED, true), (&again, StatusCode::OK, false)]
        {
            let read = get_tagged(&condition(IF_NONE_MATCH, tag), tags, &"a value").expect("a response");
            assert_eq!(read.status(), status);
            assert_eq!(check_tags(&condition(IF_MATCH, tag), tags).is_ok(), holds);
        }
        // The version alone, from the field of the thread.
        let version = HeaderValue::from_static("\"1\"");
        let read = get_tagged(&condition(IF_NONE_MATCH, &version), &again, &"a value").expect("a response");
        assert_eq!(
            (read.status(), &read.headers()[ETAG]),
            (StatusCode::NOT_MODIFIED, &HeaderValue::from_static("\"1-2\""))
        );
        assert!(check_tags(&condition(IF_MATCH, &version), &again).is_ok());
        assert!(check_tags(&condition(IF_MATCH, &HeaderValue::from_static("\"2\"")), &again).is_err());
    }
}
