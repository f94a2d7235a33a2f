use http::header::{ACCEPT_ENCODING, IF_NONE_MATCH};

use super::*;

fn get(path: &str, headers: &[(HeaderName, &str)]) -> Option<Response<Bytes>> {
    let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().expect("a value")));
    respond(path, &headers.collect())
}

fn header(response: &Response<Bytes>, name: impl http::header::AsHeaderName) -> Option<&str> {
    response.headers().get(name).map(|value| value.to_str().expect("text"))
}

#[test]
fn only_the_page_and_its_assets_have_paths() {
    let script = format!("/assets/{HASH}/app.js");
    assert_eq!(get(&script, &[]).expect("the script").status(), 200);
    for path in [
        "",
        "/index.html",
        "/app.js",
        "/assets/",
        "/assets/app.js",
        "/assets/000000000000/app.js",
        &format!("/assets/{HASH}"),
        &format!("/assets/{HASH}/"),
        &format!("/assets/{HASH}/index.html"),
        &format!("/assets/{HASH}/../app.js"),
        &format!("/assets/{HASH}/./app.js"),
        &format!("/assets/{HASH}/vendor/README.md"),
        &format!("/assets/{HASH}/APP.js"),
    ] {
        assert!(get(path, &[]).is_none(), "{path}");
    }
}

#[test]
fn the_page_names_assets_that_exist() {
    let page = get("/", &[]).expect("the page");
    assert_eq!(header(&page, CONTENT_TYPE), Some("text/html; charset=utf-8"));
    assert_eq!(header(&page, CACHE_CONTROL), Some("no-cache"));
    let text = std::str::from_utf8(page.body()).expect("text");
    let named: Vec<&str> = text.split('"').filter(|part| part.starts_with("assets/")).collect();
    assert!(named.len() >= 3, "{named:?}");
    for name in named {
        assert!(get(&format!("/{name}"), &[]).is_some(), "{name}");
    }
    assert!(!text.contains("{{"), "{text}");
}

#[test]
fn every_response_has_the_security_headers() {
    let etag = header(&get("/", &[]).expect("the page"), ETAG).expect("a tag").to_owned();
    let mut responses: Vec<_> = asset_paths().map(|path| get(&path, &[]).expect("an asset")).collect();
    responses.push(get("/", &[]).expect("the page"));
    responses.push(get("/", &[(IF_NONE_MATCH, &etag)]).expect("the page"));
    for response in responses {
        for (name, value) in &SECURITY_HEADERS {
            assert_eq!(header(&response, name), Some(*value));
        }
    }
    for word in ["unsafe", "http:", "https:", "*"] {
        assert!(!CONTENT_POLICY.contains(word), "{word}");
    }
}

/// Returns the headers of a request that accepts codings, one line each.
fn accepting(lines: &[&str]) -> HeaderMap {
    lines.iter().map(|line| (ACCEPT_ENCODING, line.parse().expect("a value"))).collect()
}

#[test]
fn assets_are_sent_in_the_coding_that_the_client_prefers() {
    let script = format!("/assets/{HASH}/app.js");
    for (accepted, coding) in [
        (&[][..], None),
        (&[""], None),
        (&["*"], None),
        (&["*;q=0.5, identity;q=0.1"], None),
        (&["deflate"], None),
        (&["brotli"], None),
        (&["br;q=0"], None),
        (&["br; q=0.000, gzip;q=0"], None),
        (&["identity, gzip;q=0.5"], None),
        (&["gzip, deflate"], Some("gzip")),
        (&["x-gzip"], Some("gzip")),
        (&["GZIP;q=0.1"], Some("gzip")),
        (&["br;q=0, gzip"], Some("gzip")),
        (&["gzip;q=1.0, BR;q=0.5"], Some("gzip")),
        (&["identity;q=0, gzip;q=0.2"], Some("gzip")),
        (&["gzip, deflate, br, zstd"], Some("br")),
        (&["gzip;q=0.5, br; Q=0.8"], Some("br")),
        (&["br;q=many"], Some("br")),
        (&["identity", "br"], Some("br")),
    ] {
        let response = respond(&script, &accepting(accepted)).expect("the script");
        assert_eq!(header(&response, CONTENT_ENCODING), coding, "{accepted:?}");
        assert_eq!(header(&response, VARY), Some("accept-encoding"));
        assert_eq!(header(&response, CACHE_CONTROL), Some(IMMUTABLE));
    }
}

#[test]
fn every_file_is_whole_without_a_coding() {
    for file in FILES {
        let content = file.content(ContentCoding::Identity);
        assert_eq!(content.len(), file.len, "{}", file.path);
        assert!(file.brotli.len() < file.gzip.len() && file.gzip.len() < file.len, "{}", file.path);
        let etag = |accepted: &[&str]| {
            let response = serve(file, &accepting(accepted), &SECURITY_HEADERS, REVALIDATE);
            header(&response, ETAG).expect("a tag").to_owned()
        };
        let tags = std::collections::BTreeSet::from([etag(&[]), etag(&["gzip"]), etag(&["br"])]);
        assert_eq!(tags.len(), 3, "{}: {tags:?}", file.path);
    }
}

#[test]
fn a_known_representation_is_not_sent_again() {
    let etag = |headers: &[(HeaderName, &str)]| {
        header(&get("/", headers).expect("the page"), ETAG).expect("a tag").to_owned()
    };
    let (plain, brotli) = (etag(&[]), etag(&[(ACCEPT_ENCODING, "br")]));
    let gzip = etag(&[(ACCEPT_ENCODING, "gzip")]);
    for (tags, status) in [
        (plain.clone(), 304),
        (format!("W/{plain}"), 304),
        (format!("\"other\", {plain}"), 304),
        ("*".to_owned(), 304),
        (brotli, 200),
        (gzip.clone(), 200),
        ("\"other\"".to_owned(), 200),
        (plain.trim_matches('"').to_owned(), 200),
    ] {
        let response = get("/", &[(IF_NONE_MATCH, &tags)]).expect("the page");
        assert_eq!(response.status(), status, "{tags}");
        assert_eq!(response.body().is_empty(), status == 304);
        assert_eq!(header(&response, ETAG), Some(&*plain));
    }
    let known = [(ACCEPT_ENCODING, "gzip"), (IF_NONE_MATCH, &*gzip)];
    let response = get("/", &known).expect("the page");
    assert_eq!((response.status().as_u16(), header(&response, ETAG)), (304, Some(&*gzip)));
    assert_eq!(header(&response, VARY), Some("accept-encoding"));
}
