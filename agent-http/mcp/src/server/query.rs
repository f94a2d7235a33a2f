//! Query parameters of a request.

use std::borrow::Cow;

use http::Uri;

use super::admission::AdmissionError;

/// Percent-decoded query parameters. Bytes that are not UTF-8 become U+FFFD.
pub(super) struct QueryParams<'u>(Vec<(Cow<'u, str>, Cow<'u, str>)>);

impl<'u> QueryParams<'u> {
    pub(super) fn from_uri(uri: &'u Uri) -> Self {
        Self(url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).collect())
    }

    /// Returns the value of `name` if present; an error if it is repeated.
    pub(super) fn get(&self, name: &'static str) -> Result<Option<&str>, AdmissionError> {
        let mut values = self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_ref());
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(AdmissionError::RepeatedParameter(name)),
            (value, None) => Ok(value),
        }
    }
}
