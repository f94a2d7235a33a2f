//! The chat widget for third-party pages: a small loader, and the modules that it imports.

use bytes::Bytes;
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, HeaderName, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, Response};

use crate::files::{FILES, HASH};
use crate::{FixedHeaders, IMMUTABLE, REVALIDATE, serve};

/// Path of the loader.
pub const LOADER_PATH: &str = "/widget.js";

/// Path of the widget's modules, followed by the tree's hash, a slash and the file's path.
pub const MODULES_PATH: &str = "/widget/";

/// Name of the loader among the files.
const LOADER: &str = "widget.js";
/// Folder of the widget's own modules.
const FOLDER: &str = "widget/";
/// Modules of the console and of the client that the widget imports.
const SHARED: [&str; 5] =
    ["client/errors.js", "client/follow.js", "client/stream.js", "lib/markdown.js", "vendor/markdown.js"];

/// Time for which a browser may cache the loader, which names the other files.
const LOADER_CACHE: &str = "public, max-age=300";

/// Headers that let any page import the files, which are the same for all clients.
const HEADERS: [(HeaderName, &str); 3] = [
    (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    (HeaderName::from_static("cross-origin-resource-policy"), "cross-origin"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// Returns the response to a `GET` of `path` with these request headers; `None` if nothing of the widget has the path.
///
/// A request for a file of another version returns the file of this version, without caching: a page may still have a
/// loader from before an upgrade.
#[must_use]
pub fn respond(path: &str, request: &HeaderMap) -> Option<Response<Bytes>> {
    let (name, cache) = match path.strip_prefix(MODULES_PATH) {
        Some(module) => {
            let (hash, name) = module.split_once('/').filter(|(hash, _)| is_hash(hash))?;
            (name, if hash == HASH { IMMUTABLE } else { REVALIDATE })
        }
        None if path == LOADER_PATH => (LOADER, LOADER_CACHE),
        None => return None,
    };
    let is_own = name == LOADER || name.starts_with(FOLDER) || SHARED.contains(&name);
    let file = FILES.iter().find(|file| is_own && file.path == name)?;
    let fixed: &FixedHeaders = &HEADERS;
    #[cfg(debug_assertions)]
    if let Some(response) = crate::serve_from_disk(file, fixed) {
        return Some(response);
    }
    Some(serve(file, request, fixed, cache))
}

fn is_hash(text: &str) -> bool {
    text.len() == HASH.len() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH};

    use super::*;
    use crate::negotiate::ContentCoding;

    fn get(path: &str) -> Option<Response<Bytes>> {
        respond(path, &HeaderMap::new())
    }

    fn text(response: &Response<Bytes>, name: HeaderName) -> &str {
        response.headers()[name].to_str().expect("text")
    }

    #[test]
    fn the_widget_has_only_its_own_files() {
        for name in SHARED.into_iter().chain(["widget.js", "widget/main.js", "widget/questions.js"]) {
            let response = get(&format!("/widget/{HASH}/{name}")).unwrap_or_else(|| panic!("no {name}"));
            assert_eq!(text(&response, CACHE_CONTROL), IMMUTABLE, "{name}");
        }
        for path in [
            "/",
            "/widget",
            "/widget/",
            "/widget/main.js",
            &format!("/widget/{HASH}"),
            &format!("/widget/{HASH}/"),
            &format!("/widget/{HASH}/index.html"),
            &format!("/widget/{HASH}/app.js"),
            &format!("/widget/{HASH}/client/index.js"),
            &format!("/widget/{HASH}/widget/../app.js"),
            "/widget/ABCDEFABCDEF/widget/main.js",
            "/widget/0123/widget/main.js",
            "/widget.js/",
        ] {
            assert!(get(path).is_none(), "{path}");
        }
    }

    #[test]
    fn every_page_may_load_the_widget() {
        for path in ["/widget.js".to_owned(), format!("/widget/{HASH}/widget/main.js")] {
            let response = get(&path).expect("a file");
            for (name, value) in HEADERS {
                assert_eq!(text(&response, name), value, "{path}");
            }
            assert_eq!(text(&response, CONTENT_TYPE), "text/javascript; charset=utf-8");
            let etag = response.headers()[ETAG].clone();
            let again = respond(&path, &HeaderMap::from_iter([(IF_NONE_MATCH, etag)])).expect("a file");
            assert_eq!((again.status().as_u16(), again.body().len()), (304, 0));
            for coding in ["br", "gzip"] {
                let accepted = HeaderMap::from_iter([(ACCEPT_ENCODING, coding.parse().expect("a value"))]);
                let compressed = respond(&path, &accepted).expect("a file");
                assert_eq!(text(&compressed, CONTENT_ENCODING), coding);
            }
        }
    }

    #[test]
    fn the_loader_names_this_version_and_an_old_one_still_works() {
        let loader = get(LOADER_PATH).expect("the loader");
        assert_eq!(text(&loader, CACHE_CONTROL), LOADER_CACHE);
        let source = std::str::from_utf8(loader.body()).expect("text");
        assert!(
            source.contains(&format!("widget/{HASH}/widget/main.js")) && !source.contains("{{"),
            "{source}"
        );
        let old = get("/widget/0123456789ab/widget/main.js").expect("the module");
        assert_eq!(text(&old, CACHE_CONTROL), REVALIDATE);
        assert_eq!(old.body(), get(&format!("/widget/{HASH}/widget/main.js")).expect("the module").body());
    }

    #[test]
    fn modules_import_what_is_served() {
        let files = FILES.iter().filter(|file| file.path.starts_with(FOLDER) || SHARED.contains(&file.path));
        for file in files {
            let content = file.content(ContentCoding::Identity);
            let source = std::str::from_utf8(&content).expect("text");
            let folder = file.path.rsplit_once('/').expect("a folder").0;
            for line in source.lines().filter(|line| line.starts_with("import ")) {
                let name = line.split('\'').nth(1).unwrap_or_else(|| panic!("{line}"));
                let path = match name.strip_prefix("../") {
                    Some(rest) => rest.to_owned(),
                    None => format!("{folder}/{}", name.trim_start_matches("./")),
                };
                assert!(get(&format!("/widget/{HASH}/{path}")).is_some(), "{} imports {path}", file.path);
            }
        }
    }
}
