//! Identifiers, one type for each kind, so that swapped arguments do not compile.
//!
//! An identifier is shared text: a clone allocates nothing. It dereferences to [`str`], its JSON is a string, and it is
//! compared, ordered and hashed like its text. The `From` conversions check nothing: the code that receives an
//! identifier from outside checks it.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! identifiers {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the identifier's text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        // Inline, so that the fields' descriptions and limits stand beside the type.
        #[cfg(feature = "schemars")]
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                String::schema_name()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                String::json_schema(generator)
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                self
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self)
            }
        }

        impl<T: Into<Arc<str>>> From<T> for $name {
            fn from(text: T) -> Self {
                Self(text.into())
            }
        }

        impl From<&$name> for $name {
            fn from(id: &$name) -> Self {
                id.clone()
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.as_str() == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.as_str() == *other
            }
        }
    )*};
}

identifiers! {
    /// Identifier of a company, the tenant.
    CompanyId
    /// Identifier of a user within the company.
    UserId
    /// Identifier of an agent.
    AgentId
    /// Identifier of a conversation.
    ThreadId
    /// Identifier of a run: one turn of a conversation.
    RunId
    /// Identifier of a job.
    JobId
}

/// Identifier of a message, a call or a round, which many events share.
pub type Id = Arc<str>;

/// Position in a distributed trace (W3C Trace Context): the members of the headers `traceparent` and `tracestate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// Identifier of the trace, not zero.
    pub trace_id: u128,
    /// Identifier of the request that the work belongs to, not zero.
    pub parent_id: u64,
    /// Flags of the trace, such as 1 for one that is recorded.
    pub flags: u8,
    /// State of tracing systems, which is passed on unchanged.
    pub state: Option<Arc<str>>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn json_is_a_plain_string() {
        let id: UserId = serde_json::from_str(r#""ada""#).expect("a string");
        assert_eq!(id, "ada");
        assert_eq!(serde_json::to_string(&id).expect("plain data"), r#""ada""#);
        assert!(serde_json::from_str::<UserId>("1").is_err());
    }

    #[test]
    fn text_is_shown_without_the_type() {
        let id = JobId::from("a\"b");
        assert_eq!(format!("{id} {id:?}"), r#"a"b "a\"b""#);
        assert_eq!(format!("{:>5}|", RunId::from("r")), "    r|");
    }

    #[test]
    fn a_map_is_searched_by_text() {
        let map = BTreeMap::from([(CompanyId::from("acme"), 1)]);
        assert_eq!(map.get("acme"), Some(&1));
    }

    #[test]
    fn a_clone_shares_the_text() {
        let id = ThreadId::from("t");
        assert!(std::ptr::eq(id.as_str(), id.clone().as_str()));
    }
}
