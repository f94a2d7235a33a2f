//! Media types, as `Content-Type` and OpenAPI documents have them.

/// Returns the type and subtype of a media type in lower case, without parameters.
pub fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns true for `application/json` and for types with the suffix `+json` (RFC 6839), with parameters or without.
pub fn is_json(media_type: &str) -> bool {
    let essence = essence(media_type);
    let Some((kind, subtype)) = essence.split_once('/') else { return false };
    is_restricted_name(kind)
        && is_restricted_name(subtype)
        && (essence == "application/json" || subtype.ends_with("+json"))
}

/// Returns true for a restricted name (RFC 6838, section 4.2).
fn is_restricted_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_with_the_suffix_are_json_in_any_case_and_with_parameters() {
        for media_type in [
            "application/json",
            " Application/JSON ; charset=utf-8",
            "application/problem+json",
            "application/vnd.acme.v2+json; a=b",
            "model/gltf+json",
        ] {
            assert!(is_json(media_type), "{media_type}");
        }
        for media_type in [
            "",
            "json",
            "+json",
            "/json",
            "/a+json",
            "application/",
            "application/+json",
            "application/a b+json",
            "application/a/b+json",
            "application/json-seq",
            "application/jsonx",
            "text/json",
            "text/plain; a=application/json",
            "application/ä+json",
        ] {
            assert!(!is_json(media_type), "{media_type}");
        }
        assert_eq!(essence(" Text/Plain ;charset=UTF-8"), "text/plain");
    }
}
