//! Routing by method and path.

use agent_platform::ids::check_id;
use agent_platform::records::MAX_ID_BYTES;
use http::{Method, Request};
use percent_encoding::percent_decode_str;

use crate::error::HttpError;
use crate::metrics::MatchedRoute;

/// Entry of a route table.
///
/// A pattern is a path whose segments are literal, `{name}` for any one segment that is not empty, or, at the end,
/// `{*name}` for one or more segments.
#[derive(Clone, Debug)]
pub(crate) struct Route<H> {
    /// HTTP method.
    pub(crate) method: Method,
    /// Path pattern.
    pub(crate) pattern: &'static str,
    /// Handler of the route.
    pub(crate) handler: H,
    /// True if a `GET` route also answers `HEAD` (RFC 9110 section 9.3.2). The handler runs as for `GET`, and the
    /// server omits the body.
    pub(crate) head: bool,
}

impl<H> Route<H> {
    /// Creates a route.
    pub(crate) const fn new(method: Method, pattern: &'static str, handler: H) -> Self {
        Self { method, pattern, handler, head: true }
    }

    /// Excludes `HEAD`: for a `GET` whose handler has side effects.
    #[must_use]
    pub(crate) fn without_head(self) -> Self {
        Self { head: false, ..self }
    }

    /// Returns the methods that the route answers.
    fn methods(&self) -> impl Iterator<Item = Method> {
        let head = (self.head && self.method == Method::GET).then_some(Method::HEAD);
        std::iter::once(self.method.clone()).chain(head)
    }
}

/// Route table of a service. A literal segment takes precedence over a parameter, whatever their order in the table.
#[derive(Clone, Debug)]
pub(crate) struct RouteTable<H>(Vec<(Vec<Segment>, Route<H>)>);

/// Path segment of a pattern, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    Literal(&'static str),
    One(&'static str),
    Rest(&'static str),
}

/// Result of looking up a method and a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RouteLookup<'t, H> {
    /// The handler, and the path parameters.
    Found(&'t H, Params),
    /// The path exists, with these methods only, each listed once.
    MethodNotAllowed(Vec<Method>),
    /// The path does not exist.
    NotFound,
}

impl<'t, H> RouteLookup<'t, H> {
    /// Converts the result into the handler, or into the error response.
    ///
    /// # Errors
    ///
    /// Returns 404 if the path does not exist, or 405 if it has no such method.
    pub(crate) fn into_result(self) -> Result<(&'t H, Params), HttpError> {
        match self {
            Self::Found(handler, params) => Ok((handler, params)),
            Self::MethodNotAllowed(allow) => Err(HttpError::method_not_allowed(allow)),
            Self::NotFound => Err(HttpError::not_found()),
        }
    }
}

/// Percent-decoded path parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Params(Vec<(&'static str, String)>);

impl Params {
    /// Returns the path parameter called `name` in the pattern. It is never empty.
    ///
    /// # Errors
    ///
    /// Returns 500 if the pattern has no such parameter, which is a bug.
    pub(crate) fn get(&self, name: &str) -> Result<&str, HttpError> {
        let param = self.0.iter().find(|(key, _)| *key == name);
        param
            .map(|(_, value)| value.as_str())
            .ok_or_else(|| HttpError::internal(format!("no path parameter {name}")))
    }

    /// Returns the path parameter called `name`, checked as the id of a new resource.
    ///
    /// # Errors
    ///
    /// Returns 400 if it is not a valid identifier.
    pub(crate) fn id(&self, name: &str) -> Result<&str, HttpError> {
        let id = self.get(name)?;
        check_id(id, MAX_ID_BYTES).map_err(|error| HttpError::invalid(name, error))?;
        Ok(id)
    }
}

impl<H> RouteTable<H> {
    /// Creates a table of `routes`.
    ///
    /// # Panics
    ///
    /// Panics if a pattern is malformed, or if two routes of one method match the same paths. Tables are part of the
    /// program, so either is a bug.
    pub(crate) fn new(routes: impl IntoIterator<Item = Route<H>>) -> Self {
        let mut table: Vec<_> = routes.into_iter().map(|route| (segments(route.pattern), route)).collect();
        table.sort_by_cached_key(|(pattern, route)| precedence_key(pattern, &route.method));
        for pair in table.windows(2) {
            let [(first_segments, first), (second_segments, second)] = pair else {
                unreachable!("windows are of two")
            };
            let first_key = precedence_key(first_segments, &first.method);
            let is_same = first_key == precedence_key(second_segments, &second.method);
            assert!(!is_same, "{} {} and {} are the same route", first.method, first.pattern, second.pattern);
        }
        Self(table)
    }

    /// Looks up the handler for `method` and `path`, which is percent-encoded as in the request. A trailing slash
    /// starts a separate segment, and so makes a different path.
    #[must_use]
    pub(crate) fn lookup(&self, method: &Method, path: &str) -> RouteLookup<'_, H> {
        let mut allowed: Vec<Method> = Vec::new();
        for (pattern, route) in &self.0 {
            let Some(params) = match_path(pattern, path) else { continue };
            for answered in route.methods() {
                if answered == *method {
                    return RouteLookup::Found(&route.handler, params);
                }
                if !allowed.contains(&answered) {
                    allowed.push(answered);
                }
            }
        }
        if allowed.is_empty() { RouteLookup::NotFound } else { RouteLookup::MethodNotAllowed(allowed) }
    }

    /// Finds the handler of a request, and records the matched route for the metrics.
    ///
    /// # Errors
    ///
    /// Returns 404 if the path does not exist, or 405 with the methods that it has.
    pub(crate) fn find<B>(&self, request: &Request<B>) -> Result<(&H, Params), HttpError> {
        let (method, path) = (request.method(), request.uri().path());
        let matched = self.0.iter().find_map(|(pattern, route)| {
            let answers = route.methods().any(|answered| answered == *method);
            answers.then(|| match_path(pattern, path).map(|params| (route, params)))?
        });
        let Some((route, params)) = matched else { return self.lookup(method, path).into_result() };
        if let Some(recorder) = request.extensions().get::<MatchedRoute>() {
            recorder.record(route.pattern);
        }
        Ok((&route.handler, params))
    }
}

/// Set of the paths that match any of some patterns.
#[derive(Clone, Debug)]
pub(crate) struct PathSet(Vec<Vec<Segment>>);

impl PathSet {
    /// Creates the set of the paths that match `patterns`.
    ///
    /// # Panics
    ///
    /// Panics if a pattern is malformed, which is a bug.
    pub(crate) fn new(patterns: impl IntoIterator<Item = &'static str>) -> Self {
        Self(patterns.into_iter().map(segments).collect())
    }

    /// Returns true if a path matches. The path is percent-encoded as in the request.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.0.iter().any(|pattern| match_path(pattern, path).is_some())
    }
}

fn segments(pattern: &'static str) -> Vec<Segment> {
    let tail =
        pattern.strip_prefix('/').unwrap_or_else(|| panic!("the pattern {pattern} has no leading slash"));
    let segments: Vec<_> = tail.split('/').map(segment).collect();
    let early_rest = segments.iter().rev().skip(1).any(|segment| matches!(segment, Segment::Rest(_)));
    assert!(!early_rest, "the pattern {pattern} goes on after its rest");
    segments
}

fn segment(text: &'static str) -> Segment {
    match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
        Some(name) => name.strip_prefix('*').map_or(Segment::One(name), Segment::Rest),
        None => Segment::Literal(text),
    }
}

/// Returns a sort key by precedence, equal for two routes that match the same paths. Parameter names are ignored.
fn precedence_key(pattern: &[Segment], method: &Method) -> (Vec<Segment>, String) {
    let nameless = pattern.iter().map(|segment| match segment {
        Segment::Literal(text) => Segment::Literal(text),
        Segment::One(_) => Segment::One(""),
        Segment::Rest(_) => Segment::Rest(""),
    });
    (nameless.collect(), method.to_string())
}

/// Returns the parameters of `path` if it matches `pattern`. The path is split before it is decoded, so that an
/// encoded slash is part of a segment.
fn match_path(pattern: &[Segment], path: &str) -> Option<Params> {
    let mut params = Vec::new();
    let mut remaining = Some(path.strip_prefix('/')?);
    for segment in pattern {
        let rest = remaining?;
        let (text, after) = rest.split_once('/').map_or((rest, None), |(text, after)| (text, Some(after)));
        remaining = after;
        match segment {
            Segment::Literal(literal) if *literal == text => {}
            Segment::Literal(_) => return None,
            Segment::One(name) => params.push((*name, decode_param(text)?)),
            Segment::Rest(name) => {
                params.push((*name, decode_param(rest)?));
                remaining = None;
            }
        }
    }
    remaining.is_none().then_some(Params(params))
}

/// Returns a decoded parameter; `None` if it is empty or not UTF-8, which matches no resource.
fn decode_param(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    (!text.is_empty()).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_paths_matches_patterns() {
        let set = PathSet::new(["/threads", "/threads/{id}", "/widget/{*path}"]);
        for path in ["/threads", "/threads/a", "/threads/a%2Fb", "/widget/a", "/widget/a/b"] {
            assert!(set.contains(path), "{path}");
        }
        for path in ["/", "/threads/", "/threads/a/b", "/thread", "/threads/%FF", "/widget", "threads"] {
            assert!(!set.contains(path), "{path}");
        }
    }

    fn table() -> RouteTable<&'static str> {
        RouteTable::new([
            Route::new(Method::GET, "/", "root"),
            Route::new(Method::GET, "/jobs/{id}", "one job"),
            Route::new(Method::DELETE, "/jobs/{id}", "cancel"),
            Route::new(Method::GET, "/jobs/due", "due jobs"),
            Route::new(Method::POST, "/jobs/{id}/pause", "pause"),
            Route::new(Method::GET, "/docs/{*path}", "docs"),
            Route::new(Method::GET, "/docs/index", "index"),
            Route::new(Method::GET, "/a/{x}/b/{y}", "two"),
            Route::new(Method::GET, "/listen", "stream").without_head(),
        ])
    }

    #[test]
    fn paths_find_their_handlers() {
        type Found = (&'static str, &'static [(&'static str, &'static str)]);
        let cases: &[(&str, &str, Result<Found, u16>)] = &[
            ("GET", "/", Ok(("root", &[]))),
            ("GET", "/jobs/7", Ok(("one job", &[("id", "7")]))),
            ("GET", "/jobs/due", Ok(("due jobs", &[]))),
            ("DELETE", "/jobs/due", Ok(("cancel", &[("id", "due")]))),
            ("POST", "/jobs/7/pause", Ok(("pause", &[("id", "7")]))),
            ("GET", "/jobs/a%2Fb%20c", Ok(("one job", &[("id", "a/b c")]))),
            ("GET", "/a/1/b/2", Ok(("two", &[("x", "1"), ("y", "2")]))),
            ("GET", "/docs/x", Ok(("docs", &[("path", "x")]))),
            ("GET", "/docs/x/y", Ok(("docs", &[("path", "x/y")]))),
            ("GET", "/docs/index", Ok(("index", &[]))),
            ("GET", "/docs/", Err(404)),
            ("GET", "/docs", Err(404)),
            ("GET", "/jobs/", Err(404)),
            ("GET", "/jobs/7/", Err(404)),
            ("GET", "/jobs//pause", Err(404)),
            ("GET", "/jobs/%FF", Err(404)),
            ("GET", "//", Err(404)),
            ("GET", "", Err(404)),
            ("GET", "*", Err(404)),
            ("GET", "/Jobs/7", Err(404)),
            ("PUT", "/jobs/7", Err(405)),
            ("HEAD", "/", Ok(("root", &[]))),
            ("HEAD", "/jobs/7", Ok(("one job", &[("id", "7")]))),
            ("HEAD", "/jobs/7/pause", Err(405)),
            ("GET", "/listen", Ok(("stream", &[]))),
            ("HEAD", "/listen", Err(405)),
            ("GET", "/jobs/7/pause", Err(405)),
        ];
        let table = table();
        for (method, path, expected) in cases {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let found =
                table.lookup(&method, path).into_result().map_err(|error| error.code().status().as_u16());
            let expected = expected.map(|(handler, params)| {
                (handler, Params(params.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()))
            });
            assert_eq!(found.map(|(handler, params)| (*handler, params)), expected, "{method} {path}");
        }
    }

    #[test]
    fn the_methods_of_all_patterns_that_match_are_allowed() {
        let allowed = vec![Method::GET, Method::HEAD, Method::DELETE];
        assert_eq!(table().lookup(&Method::PUT, "/jobs/due"), RouteLookup::MethodNotAllowed(allowed));
    }

    #[test]
    fn a_parameter_is_got_by_its_name() {
        let table = table();
        let (_, params) = table.lookup(&Method::GET, "/jobs/7").into_result().expect("a route");
        assert_eq!(params.get("id").expect("an id"), "7");
        assert!(params.get("name").is_err());
    }

    #[test]
    #[should_panic(expected = "the same route")]
    fn two_routes_for_the_same_are_refused() {
        RouteTable::new([
            Route::new(Method::GET, "/jobs/{id}", ()),
            Route::new(Method::GET, "/jobs/{job}", ()),
        ]);
    }

    #[test]
    #[should_panic(expected = "goes on after its rest")]
    fn a_rest_in_the_middle_is_refused() {
        RouteTable::new([Route::new(Method::GET, "/{*rest}/x", ())]);
    }
}
