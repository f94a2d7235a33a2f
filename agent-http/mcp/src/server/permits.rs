//! Parts of a request in progress that travel in its extensions to its handler.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::agent_limits;
use super::sessions::SessionUse;

/// Arguments of a tool call as the client has written them.
#[derive(Clone)]
pub(super) struct ArgumentsText(pub(super) Arc<str>);

impl ArgumentsText {
    /// Reads the arguments from the body of a request; `None` for one without arguments.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct CallBody<'a> {
            #[serde(borrow)]
            params: CallArguments<'a>,
        }
        #[derive(Deserialize)]
        struct CallArguments<'a> {
            #[serde(borrow)]
            arguments: &'a RawValue,
        }
        let request: CallBody<'_> = serde_json::from_slice(body).ok()?;
        Some(Self(request.params.arguments.get().into()))
    }
}

/// Permits that a request holds while it is processed. They travel in the request's extensions to its handler and are
/// released when the handler is done, even if the client has disconnected.
pub(super) struct RequestPermits {
    pub(super) _permit: Option<agent_limits::Permit>,
    pub(super) session: Option<SessionUse>,
}
