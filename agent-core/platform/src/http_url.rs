//! Check of addresses in settings.

use url::Url;

/// Parses an `http` or `https` URL without user and password. The policy of outbound requests is checked where they are
/// made.
///
/// # Errors
/// Description of the fault, worded to follow the path of the address, which it does not repeat.
pub(crate) fn parse_http_url(text: &str) -> Result<Url, &'static str> {
    // A parser would leave out some of these characters.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("has a control character or a space");
    }
    let Ok(url) = Url::parse(text) else { return Err("is not a URL") };
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://");
    }
    if url.host().is_none() || url.port() == Some(0) {
        return Err("must have a host, and a port other than 0");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not have a user name or a password");
    }
    Ok(url)
}
