//! Negotiation of the encoding, and conditional requests (RFC 9110, sections 12.5.3 and 13.1.2).

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, IF_NONE_MATCH};

/// A content coding in which the files can be sent (RFC 9110, section 8.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentCoding {
    Brotli,
    Gzip,
    Identity,
}

impl ContentCoding {
    /// All codings. The first one counts if the client has no preference.
    const ALL: [Self; 3] = [Self::Brotli, Self::Gzip, Self::Identity];

    /// Returns true if a client means this coding by the name.
    fn has_name(self, name: &str) -> bool {
        let names: &[&str] = match self {
            Self::Brotli => &["br"],
            Self::Gzip => &["gzip", "x-gzip"],
            Self::Identity => &["identity"],
        };
        names.iter().any(|own| name.eq_ignore_ascii_case(own))
    }
}

/// Returns the coding that the client names with the highest weight; identity if it names none. A wildcard names none.
pub(crate) fn preferred_coding(request: &HeaderMap) -> ContentCoding {
    let mut preferred = (ContentCoding::Identity, 0.0);
    for coding in ContentCoding::ALL {
        let named = list(request, ACCEPT_ENCODING).filter_map(|item| {
            let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
            coding.has_name(name.trim()).then(|| weight(parameters))
        });
        let weight = named.fold(0.0, f32::max);
        if weight > preferred.1 {
            preferred = (coding, weight);
        }
    }
    preferred.0
}

/// Returns true if `If-None-Match` lists the tag or `*`. Tags are compared weakly, as the header requires.
pub(crate) fn matches_etag(request: &HeaderMap, etag: &str) -> bool {
    list(request, IF_NONE_MATCH).any(|item| item == "*" || item.strip_prefix("W/").unwrap_or(item) == etag)
}

/// Returns the items of a header that is a list. The tags of this crate contain no comma.
fn list(request: &HeaderMap, name: http::HeaderName) -> impl Iterator<Item = &str> {
    let lines = request.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Returns the weight among an item's parameters, from 0 to 1; 1 if it has none, or an invalid one.
fn weight(parameters: &str) -> f32 {
    let named = parameters.split(';').filter_map(|parameter| parameter.split_once('='));
    let mut weights = named.filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    let weight = weights.next().and_then(|(_, weight)| weight.trim().parse().ok());
    weight.map_or(1.0, |weight: f32| weight.clamp(0.0, 1.0))
}
