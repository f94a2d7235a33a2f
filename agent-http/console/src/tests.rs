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

#[test]
fn assets_are_compressed_for_clients_that_accept_it() {
    let script = format!("/assets/{HASH}/app.js");
    for (accepted, is_compressed) in [
        (&[][..], false),
        (&[(ACCEPT_ENCODING, "gzip, deflate")], false),
        (&[(ACCEPT_ENCODING, "*")], false),
        (&[(ACCEPT_ENCODING, "brotli")], false),
        (&[(ACCEPT_ENCODING, "gzip, br")], true),
        (&[(ACCEPT_ENCODING, "gzip;q=1.0, BR;q=0.5")], true),
        (&[(ACCEPT_ENCODING, "br;q=0")], false),
        (&[(ACCEPT_ENCODING, "br; q=0.000")], false),
        (&[(ACCEPT_ENCODING, "identity"), (ACCEPT_ENCODING, "br")], true),
    ] {
        let headers: HeaderMap = accepted.iter().fold(HeaderMap::new(), |mut headers, (name, value)| {
            headers.append(name, value.parse().expect("a value"));
            headers
        });
        let response = respond(&script, &headers).expect("the script");
        assert_eq!(header(&response, CONTENT_ENCODING).is_some(), is_compressed, "{accepted:?}");
        assert_eq!(header(&response, VARY), Some("accept-encoding"));
        assert_eq!(header(&response, CACHE_CONTROL), Some(IMMUTABLE));
    }
}

#[test]
fn a_known_representation_is_not_sent_again() {
    let etag = |headers: &[(HeaderName, &str)]| {
        header(&get("/", headers).expect("the page"), ETAG).expect("a tag").to_owned()
    };
    let (plain, compressed) = (etag(&[]), etag(&[(ACCEPT_ENCODING, "br")]));
    assert_ne!(plain, compressed);
    for (tags, status) in [
        (plain.clone(), 304),
        (format!("W/{plain}"), 304),
        (format!("\"other\", {plain}"), 304),
        ("*".to_owned(), 304),
        (compressed, 200),
        ("\"other\"".to_owned(), 200),
        (plain.trim_matches('"').to_owned(), 200),
    ] {
        let response = get("/", &[(IF_NONE_MATCH, &tags)]).expect("the page");
        assert_eq!(response.status(), status, "{tags}");
        assert_eq!(response.body().is_empty(), status == 304);
        assert_eq!(header(&response, ETAG), Some(&*plain));
    }
}
