//! Query parameters.

use std::borrow::Cow;

use http::Uri;

use crate::error::HttpError;

/// Maximum length of a filter or a cursor of lists of jobs, in bytes. The application checks the parameters that it passes to
/// the scheduler against it.
pub(crate) const MAX_JOB_PARAMETER_BYTES: usize = 256;

/// Percent-decoded query parameters. Bytes that are not UTF-8 become U+FFFD.
#[derive(Clone, PartialEq, Eq)]
pub struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Parses the query of `uri`; empty if it has none.
    #[must_use]
    pub fn from_uri(uri: &'a Uri) -> Self {
        Self(url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).collect())
    }

    /// Returns the value of `name` if present.
    ///
    /// # Errors
    ///
    /// Returns 400 if the parameter is repeated, since two readers might each pick a different value.
    pub fn get(&self, name: &str) -> Result<Option<&str>, HttpError> {
        let mut values = self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_ref());
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(HttpError::invalid(name, "occurs more than once in the query")),
            (value, None) => Ok(value),
        }
    }

    /// Returns an iterator over all parameters, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Returns the value of `name`.
    ///
    /// # Errors
    ///
    /// Returns 400 if the parameter is missing, empty or repeated.
    pub fn require(&self, name: &str) -> Result<&str, HttpError> {
        match self.get(name)? {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(HttpError::invalid(name, "is missing in the query")),
        }
    }
}

/// Formats the names only, since a value may be a token.
impl std::fmt::Debug for Query<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_single() {
        let uri = Uri::from_static("/x?a=1&b=x%20y+z&empty=&a=2&flag&t=%F0%9F%98%80&bad=%ff");
        let query = Query::from_uri(&uri);
        fn detail(result: Result<Option<&str>, HttpError>) -> Result<Option<&str>, String> {
            result.map_err(|error| error.detail().to_owned())
        }
        assert_eq!(detail(query.get("a")), Err("a occurs more than once in the query".to_owned()));
        assert_eq!(detail(query.get("b")), Ok(Some("x y z")));
        assert_eq!(detail(query.get("empty")), Ok(Some("")));
        assert_eq!(detail(query.get("flag")), Ok(Some("")));
        assert_eq!(detail(query.get("t")), Ok(Some("😀")));
        assert_eq!(detail(query.get("bad")), Ok(Some("\u{fffd}")));
        assert_eq!(detail(query.get("none")), Ok(None));
        assert!(
            query.require("b").is_ok() && query.require("empty").is_err() && query.require("none").is_err()
        );
        assert!(Query::from_uri(&Uri::from_static("/x")).get("a").is_ok_and(|value| value.is_none()));
    }

    #[test]
    fn values_are_not_shown() {
        let uri = Uri::from_static("/x?token=secret");
        assert_eq!(format!("{:?}", Query::from_uri(&uri)), r#"{"token"}"#);
    }
}
