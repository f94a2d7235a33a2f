//! Session ids that contain their session's state, sealed under the operator's key (`DATA_SECRET`).
//!
//! Every process that has the key can restore such a session, without a store and without routing a client's requests
//! to one process. The seal is bound to the credential and the company that opened the session, so that another
//! credential cannot open it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_core::clock::{Clock, SystemClock};
use agent_core::secret::Secret;
use agent_platform::seal::Sealer;
use rmcp::model::{Implementation, InitializeRequestParams};
use serde::{Deserialize, Serialize};

use crate::server::identity::Identity;

/// First part of the associated data; no other sealed text of the platform has it.
const SESSION_DATA: &str = "mcp session id";
/// Time after its `initialize` for which a session can be restored.
const RESTORE_WINDOW: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Maximum length of a sealed session id, which is a header of every request: proxies commonly allow 8 KiB per header.
const MAX_SEALED_ID_BYTES: usize = 2048;
/// Maximum length of the client's name and of its version in the state.
const MAX_CLIENT_INFO_BYTES: usize = 128;

/// State of a session, as sealed into its id.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SealedState {
    /// Time of the `initialize` request, in seconds since the Unix epoch.
    opened_at: u64,
    params: InitializeRequestParams,
}

/// Body of an `initialize` request.
#[derive(Deserialize)]
struct InitializeMessage {
    params: InitializeRequestParams,
}

/// Returns true if `body` has the parameters of an `initialize` request.
pub(in crate::server) fn has_initialize_params(body: &[u8]) -> bool {
    serde_json::from_slice::<InitializeMessage>(body).is_ok()
}

/// Seals the state of sessions into their ids, and opens them.
pub(in crate::server) struct SessionSealer {
    sealer: Arc<Sealer>,
    clock: Arc<dyn Clock>,
}

impl SessionSealer {
    /// Creates a sealer of session ids; returns `None` if `sealer` has no key.
    pub(in crate::server) fn new(sealer: Arc<Sealer>) -> Option<Self> {
        Self::with_clock(sealer, Arc::new(SystemClock))
    }

    pub(super) fn with_clock(sealer: Arc<Sealer>, clock: Arc<dyn Clock>) -> Option<Self> {
        sealer.has_key().then_some(Self { sealer, clock })
    }

    /// Returns the id of the session that the `initialize` request in `body` opens for `identity`.
    ///
    /// Returns `None` if the request is invalid, declares more capabilities than an id can contain, or the system has no
    /// random numbers. The session then exists in this process only.
    pub(in crate::server) fn seal(&self, identity: &Identity, body: &[u8]) -> Option<Arc<str>> {
        let InitializeMessage { mut params } = serde_json::from_slice(body).ok()?;
        params.meta = None;
        let Implementation { name, version, .. } = params.client_info;
        params.client_info = Implementation::new(truncate(name), truncate(version));
        let state = SealedState { opened_at: self.now(), params };
        let text = Secret::new(serde_json::to_string(&state).ok()?);
        let sealed = self.sealer.seal(&associated_data(identity), &text).ok()?;
        (sealed.len() <= MAX_SEALED_ID_BYTES).then(|| sealed.into())
    }

    /// Returns the `initialize` parameters of a session that `identity` has opened; `None` for any other id, and after
    /// [`RESTORE_WINDOW`].
    pub(in crate::server) fn open(&self, identity: &Identity, id: &str) -> Option<InitializeRequestParams> {
        if id.len() > MAX_SEALED_ID_BYTES {
            return None;
        }
        let text = self.sealer.open(&associated_data(identity), id).ok()?;
        let state: SealedState = serde_json::from_str(text.expose()).ok()?;
        // A time in the future is the time of a process whose clock is ahead.
        let age = self.now().saturating_sub(state.opened_at);
        (age <= RESTORE_WINDOW.as_secs()).then_some(state.params)
    }

    fn now(&self) -> u64 {
        let now: SystemTime = self.clock.now();
        now.duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
    }
}

fn associated_data(identity: &Identity) -> [&str; 3] {
    [SESSION_DATA, identity.context.company_id.as_str(), &identity.id]
}

/// Truncates a text to [`MAX_CLIENT_INFO_BYTES`].
fn truncate(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_CLIENT_INFO_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use agent_core::testing::ManualClock;
    use agent_core::tool::ExecutionContext;
    use rmcp::model::ProtocolVersion;
    use serde_json::{Value, json};

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn identity(company: &str, id: &str) -> Identity {
        let context = ExecutionContext { company_id: company.into(), ..ExecutionContext::default() };
        Identity { id: id.to_owned(), context, calls: None }
    }

    fn sealer(secret: &str, previous: Option<&str>) -> Arc<Sealer> {
        Arc::new(Sealer::new(&Secret::new(secret), previous.map(Secret::new).as_ref()))
    }

    fn sessions(secret: &str) -> SessionSealer {
        SessionSealer::new(sealer(secret, None)).expect("the sealer has a key")
    }

    fn initialize(client_info: Value, capabilities: Value) -> Vec<u8> {
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities,
            "clientInfo": client_info, "_meta": {"trace": "x"}});
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string().into()
    }

    fn simple() -> Vec<u8> {
        initialize(json!({"name": "t", "version": "1"}), json!({"roots": {"listChanged": true}}))
    }

    #[test]
    fn an_id_contains_the_parameters_of_initialize() {
        let (sessions, ada) = (sessions("a secret"), identity("c", "ada"));
        let id = sessions.seal(&ada, &simple()).expect("sealed");
        assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
        assert_ne!(sessions.seal(&ada, &simple()).expect("sealed"), id, "each session has its own id");
        let params = sessions.open(&ada, &id).expect("opened");
        assert_eq!(params.protocol_version, ProtocolVersion::V_2025_06_18);
        assert_eq!(params.client_info, Implementation::new("t", "1"));
        assert_eq!(params.capabilities.roots.expect("declared").list_changed, Some(true));
        assert!(params.meta.is_none());
    }

    #[test]
    fn an_id_is_valid_for_its_credential_and_key_only() {
        let (session_sealer, ada) = (sessions("a secret"), identity("c", "ada"));
        let id = session_sealer.seal(&ada, &simple()).expect("sealed");
        for other in [identity("c", "bob"), identity("d", "ada"), identity("cada", "")] {
            assert!(session_sealer.open(&other, &id).is_none(), "{other:?}");
        }
        assert!(sessions("another secret").open(&ada, &id).is_none());
        let rotated =
            SessionSealer::new(sealer("another secret", Some("a secret"))).expect("the sealer has a key");
        assert!(rotated.open(&ada, &id).is_some(), "the previous key opens it");
        let last_char = if id.ends_with('A') { 'B' } else { 'A' };
        let damaged = format!("{}{last_char}", &id[..id.len() - 1]);
        let other_text =
            sealer("a secret", None).seal(&["role", "c", "ada"], &Secret::new("{}")).expect("sealed");
        for forged in ["", "v1", &id[1..], &damaged, &format!("{id}{id}"), &"x".repeat(100_000), &other_text]
        {
            assert!(session_sealer.open(&ada, forged).is_none(), "{forged:.100}");
        }
        assert!(SessionSealer::new(Arc::new(Sealer::without_key())).is_none());
    }

    #[test]
    fn an_id_is_bounded_in_size_and_time() {
        let clock = Arc::new(ManualClock::new());
        let sessions = SessionSealer::with_clock(sealer("a secret", None), clock.clone()).expect("a key");
        let ada = identity("c", "ada");
        let long_info =
            json!({"name": "ü".repeat(10_000), "version": "1".repeat(10_000), "title": "x".repeat(10_000)});
        let id = sessions.seal(&ada, &initialize(long_info, json!({}))).expect("sealed");
        assert!(id.len() < MAX_SEALED_ID_BYTES);
        let info = sessions.open(&ada, &id).expect("opened").client_info;
        assert_eq!([info.name.len(), info.version.len()], [MAX_CLIENT_INFO_BYTES; 2]);
        let large_capabilities = json!({"experimental": {"x": {"y": "z".repeat(MAX_SEALED_ID_BYTES)}}});
        let short_info = json!({"name": "t", "version": "1"});
        assert!(sessions.seal(&ada, &initialize(short_info, large_capabilities)).is_none());
        for invalid in ["", "{}", r#"{"params":{}}"#, r#"{"params":{"protocolVersion":"2025-06-18"}}"#] {
            assert!(sessions.seal(&ada, invalid.as_bytes()).is_none(), "{invalid}");
        }
        clock.advance(30 * DAY);
        assert!(sessions.open(&ada, &id).is_some());
        clock.advance(Duration::from_secs(1));
        assert!(sessions.open(&ada, &id).is_none());
    }
}
