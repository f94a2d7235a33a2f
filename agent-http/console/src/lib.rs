//! The console, a web page for people who build agents, and the widget, a chat for any page; both are embedded in the
//! program.
//!
//! The page is plain ES modules below `web/`, without a build step, and imports the JavaScript client from
//! `clients/js`; the widget shares its modules. [`respond`] and [`widget::respond`] are pure functions of path and request
//! headers. All files but the page and the widget's loader have the hash of the whole tree in their paths, so that
//! browsers keep them indefinitely and relative imports need no rewriting.

#[cfg(debug_assertions)]
mod disk;
mod file;
mod negotiate;
#[cfg(test)]
mod tests;
pub mod widget;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Response, StatusCode};

use file::File;
use files::{FILES, HASH};
use negotiate::{ContentCoding, matches_etag, preferred_coding};

/// Path of the page.
pub const PAGE_PATH: &str = "/";

/// Path of the assets, followed by the tree's hash, a slash and the file's path.
pub const ASSETS_PATH: &str = "/assets/";

/// Content security policy: nothing but the page's own files and its own server, and no text that becomes HTML or
/// script (Trusted Types without a policy).
pub const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Security headers of the page and its assets.
const SECURITY_HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("permissions-policy"), PERMISSIONS_POLICY),
];

/// Features of the browser that the page does not use.
const PERMISSIONS_POLICY: &str = "accelerometer=(), autoplay=(), camera=(), clipboard-read=(), display-capture=(), \
    encrypted-media=(), fullscreen=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(), midi=(), \
    payment=(), picture-in-picture=(), publickey-credentials-get=(), screen-wake-lock=(), usb=(), web-share=(), \
    xr-spatial-tracking=(), clipboard-write=(self)";

/// The page is revalidated each time; its `ETag` makes that cheap.
const REVALIDATE: &str = "no-cache";
/// Assets never change under their path.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// The table that the build script writes.
mod files {
    use crate::file::File;

    include!(concat!(env!("OUT_DIR"), "/files.rs"));
}

/// Returns the response to a `GET` of `path` with these request headers; `None` if nothing of the console has the path.
///
/// The response is complete for `GET`; for `HEAD` the server leaves out the body.
#[must_use]
pub fn respond(path: &str, request: &HeaderMap) -> Option<Response<Bytes>> {
    let name = match path.strip_prefix(ASSETS_PATH) {
        Some(asset) => asset.split_once('/').filter(|(hash, name)| *hash == HASH && *name != "index.html")?.1,
        None if path == PAGE_PATH => "index.html",
        None => return None,
    };
    let file = FILES.iter().find(|file| file.path == name)?;
    #[cfg(debug_assertions)]
    if let Some(response) = serve_from_disk(file, &SECURITY_HEADERS) {
        return Some(response);
    }
    let cache = if name == "index.html" { REVALIDATE } else { IMMUTABLE };
    Some(serve(file, request, &SECURITY_HEADERS, cache))
}

/// Returns the paths of all assets below the server, for tests of the whole set.
pub fn asset_paths() -> impl Iterator<Item = String> {
    let assets = FILES.iter().filter(|file| file.path != "index.html");
    assets.map(|file| format!("{ASSETS_PATH}{HASH}/{}", file.path))
}

/// Headers that all responses of a kind have.
type FixedHeaders = [(HeaderName, &'static str)];

/// Returns the file as it is in the folder for work on the page, if one is set.
#[cfg(debug_assertions)]
fn serve_from_disk(file: &File, fixed: &FixedHeaders) -> Option<Response<Bytes>> {
    let bytes = disk::read(file.path, HASH)?;
    let headers = [(CONTENT_TYPE, file.mime), (CACHE_CONTROL, "no-store")];
    Some(response(StatusCode::OK, fixed, &headers, bytes))
}

fn serve(file: &File, request: &HeaderMap, fixed: &FixedHeaders, cache: &str) -> Response<Bytes> {
    let coding = preferred_coding(request);
    let (name, suffix) = match coding {
        ContentCoding::Brotli => (Some("br"), "-br"),
        ContentCoding::Gzip => (Some("gzip"), "-gz"),
        ContentCoding::Identity => (None, ""),
    };
    // Each encoding is a separate representation (RFC 9110, section 8.8.3.3).
    let etag = format!("\"{}{suffix}\"", &file.sha256[..32]);
    let mut headers = vec![(CACHE_CONTROL, cache), (ETAG, &*etag), (VARY, "accept-encoding")];
    if matches_etag(request, &etag) {
        return response(StatusCode::NOT_MODIFIED, fixed, &headers, Bytes::new());
    }
    headers.push((CONTENT_TYPE, file.mime));
    headers.extend(name.map(|name| (CONTENT_ENCODING, name)));
    response(StatusCode::OK, fixed, &headers, file.content(coding))
}

fn response(
    status: StatusCode,
    fixed: &FixedHeaders,
    headers: &[(HeaderName, &str)],
    body: Bytes,
) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in fixed.iter().chain(headers) {
        let value = HeaderValue::from_str(value).expect("the values are printable ASCII");
        response.headers_mut().insert(name, value);
    }
    response
}
