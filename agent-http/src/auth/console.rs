//! The console's session: an opaque token in a cookie, accepted from the console's own pages alone.
//!
//! Cookies ignore ports: another server on the same host gets them too. So the cookie alone changes nothing: a request
//! that is not safe must have our own `Origin`, and one that a page of another site has made is refused. With a `Host`
//! that is not ours, a page whose name was rebound to this machine could be the sender, so it is refused as well.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use agent_core::request::Principal;
use agent_core::tool::Caller;
use agent_platform::console::{ConsoleError, ConsoleSessions};
use http::header::{HOST, HeaderName};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, request};
use url::Url;

use super::{AuthError, cookie, single_header};

/// Header in which browsers state the origin of a request (W3C Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Loopback host names.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Name of the cookie over https. The prefix makes browsers refuse it from other hosts and without `Secure`.
const SECURE_COOKIE: &str = "__Host-agent_console";

/// Verification of the console's sessions, and the hosts under which the console is reached.
pub struct ConsoleAuth {
    /// The sessions.
    pub sessions: Arc<ConsoleSessions>,
    /// Lower-case host names without ports; IPv6 addresses in brackets.
    hosts: BTreeSet<String>,
    cookie_name: String,
    is_secure: bool,
}

impl fmt::Debug for ConsoleAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleAuth").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl ConsoleAuth {
    /// Creates the verification for a server that is reached at `public_url`, on loopback and under `hosts`.
    pub fn new(
        sessions: Arc<ConsoleSessions>,
        public_url: &Url,
        hosts: impl IntoIterator<Item = String>,
    ) -> Self {
        let own = public_url.host_str().map(str::to_ascii_lowercase);
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase());
        let hosts = LOOPBACK.map(str::to_owned).into_iter().chain(own).chain(hosts).collect();
        let is_secure = public_url.scheme() == "https";
        let port = public_url.port_or_known_default().unwrap_or_default();
        let cookie_name = if is_secure { SECURE_COOKIE.to_owned() } else { format!("agent_console_{port}") };
        Self { sessions, hosts, cookie_name, is_secure }
    }

    /// Checks that `Host` is one under which the console is reached.
    ///
    /// # Errors
    /// [`AuthError::UnknownHost`].
    pub(crate) fn check_host(&self, headers: &HeaderMap) -> Result<(), AuthError> {
        let host = single_header(headers, &HOST)?.and_then(host_name);
        if host.is_some_and(|host| self.hosts.contains(&host)) { Ok(()) } else { Err(AuthError::UnknownHost) }
    }

    /// Returns the `Set-Cookie` of a session, or of its end if `text` is empty.
    pub(crate) fn set_cookie(&self, text: &str) -> String {
        let age = if text.is_empty() { 0 } else { agent_platform::console::MAX_SESSION_TTL.as_secs() };
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!("{}={text}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}", self.cookie_name)
    }

    /// Returns the text of the session cookie.
    ///
    /// # Errors
    /// [`AuthError::Ambiguous`] if it is repeated.
    pub(crate) fn cookie<'h>(&self, headers: &'h HeaderMap) -> Result<Option<&'h str>, AuthError> {
        cookie(headers, &self.cookie_name)
    }

    /// Returns the user of a request with the cookie of a valid session; `None` without one. `is_own_origin` tells
    /// whether the request's `Origin` is our own, `None` if it has none.
    pub(super) async fn verify(
        &self,
        head: &request::Parts,
        is_own_origin: Option<bool>,
    ) -> Result<Option<Principal>, AuthError> {
        let Some(text) = self.cookie(&head.headers)? else { return Ok(None) };
        self.check_host(&head.headers)?;
        check_site(head, is_own_origin)?;
        match self.sessions.find(text).await {
            Ok(session) => Ok(Some(Principal::new(session.user_id, session.company_id, Caller::Session))),
            Err(ConsoleError::Store(error)) => Err(AuthError::Store(error)),
            Err(_) => Ok(None),
        }
    }
}

/// Checks that a request comes from our own pages: `Origin`, which a request that is not safe must have, and
/// `Sec-Fetch-Site` where the browser sends it.
///
/// # Errors
/// [`AuthError::CrossOrigin`].
pub(crate) fn check_site(head: &request::Parts, is_own_origin: Option<bool>) -> Result<(), AuthError> {
    let is_safe = head.method.is_safe();
    let is_own_site = match single_header(&head.headers, &SEC_FETCH_SITE)?.map(HeaderValue::as_bytes) {
        None | Some(b"same-origin") => true,
        // An address that the user has typed.
        Some(b"none") => is_safe,
        Some(_) => false,
    };
    if is_own_site && is_own_origin.unwrap_or(is_safe) { Ok(()) } else { Err(AuthError::CrossOrigin) }
}

/// Returns the name in a `Host` header, in lower case without its port; `None` if it is not a host.
fn host_name(host: &HeaderValue) -> Option<String> {
    let authority: Authority = host.to_str().ok()?.parse().ok()?;
    (!authority.as_str().contains('@')).then(|| authority.host().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use agent_core::clock::SystemClock;
    use agent_platform::memory::MemoryRecords;
    use http::Request;

    use super::*;

    fn console(public_url: &str, hosts: &[&str]) -> ConsoleAuth {
        let sessions = ConsoleSessions::new(Arc::new(MemoryRecords::default()), Arc::new(SystemClock));
        let hosts = hosts.iter().map(|host| (*host).to_owned());
        ConsoleAuth::new(Arc::new(sessions), &public_url.parse().expect("a URL"), hosts)
    }

    #[test]
    fn hosts_are_loopback_the_public_one_and_those_that_are_listed() {
        let console = console("https://agents.example/x", &["Inside.example"]);
        for (host, is_known) in [
            ("agents.example", true),
            ("AGENTS.example:8443", true),
            ("inside.example", true),
            ("localhost:3000", true),
            ("127.0.0.1", true),
            ("[::1]:9", true),
            ("evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("agents.example.evil.example", false),
            ("agents.example@evil.example", false),
            ("evil.example@agents.example", false),
            ("0.0.0.0", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(HOST, host.parse().expect("a value"))]);
            assert_eq!(console.check_host(&headers).is_ok(), is_known, "{host}");
        }
        assert!(matches!(console.check_host(&HeaderMap::new()), Err(AuthError::UnknownHost)));
    }

    #[test]
    fn the_cookie_fits_the_scheme() {
        assert_eq!(
            console("https://agents.example", &[]).set_cookie("ags_x"),
            "__Host-agent_console=ags_x; Path=/; Max-Age=604800; HttpOnly; SameSite=Strict; Secure"
        );
        assert_eq!(
            console("http://127.0.0.1:3000", &[]).set_cookie(""),
            "agent_console_3000=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
        );
    }

    #[test]
    fn requests_must_come_from_the_services_pages() {
        for (method, site, is_own_origin, is_accepted) in [
            ("POST", None, Some(true), true),
            ("POST", Some("same-origin"), Some(true), true),
            ("POST", None, None, false),
            ("POST", None, Some(false), false),
            ("POST", Some("same-origin"), None, false),
            ("POST", Some("same-site"), Some(true), false),
            ("POST", Some("cross-site"), Some(true), false),
            ("POST", Some("none"), Some(true), false),
            ("DELETE", None, None, false),
            ("GET", None, None, true),
            ("GET", Some("same-origin"), None, true),
            ("GET", Some("none"), None, true),
            ("GET", Some("same-site"), None, false),
            ("GET", Some("cross-site"), None, false),
            ("GET", None, Some(false), false),
            ("HEAD", Some("cross-site"), Some(true), false),
        ] {
            let mut request = Request::builder().method(method);
            if let Some(site) = site {
                request = request.header("sec-fetch-site", site);
            }
            let (head, ()) = request.body(()).expect("a request").into_parts();
            let checked = check_site(&head, is_own_origin);
            assert_eq!(checked.is_ok(), is_accepted, "{method} {site:?} {is_own_origin:?}");
        }
    }
}
