//! Responses of the application's routes, and the paths that they name.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

pub(super) use crate::answer::{json, json_bytes};

/// Characters of an id in a path that are percent-encoded: all but the unreserved ones (RFC 3986, section 2.3).
pub(super) const SEGMENT_ESCAPES: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
