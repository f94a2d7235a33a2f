//! Strings that must not be shown.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A string that is never shown: `Debug` and serialization give [`Secret::MASK`].
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    /// Placeholder for a shown secret. In a role that is saved it stands for the stored one, so a role can be sent back.
    pub const MASK: &str = "***";

    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// Returns the placeholder [`MASK`](Self::MASK) as a secret.
    pub fn mask() -> Self {
        Self::new(Self::MASK)
    }

    /// Returns true if this is the placeholder [`MASK`](Self::MASK) instead of a secret.
    pub fn is_mask(&self) -> bool {
        self.0 == Self::MASK
    }

    /// Returns the secret itself, for the code that sends it to its destination.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::MASK)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The deserializer's own message would quote the value.
        String::deserialize(deserializer).map(Self).map_err(|_| D::Error::custom("expected a string"))
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Self::MASK)
    }
}
