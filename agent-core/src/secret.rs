//! Strings that must not be shown.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A string that is shown to nobody: `Debug` and serialisation give [`Secret::MASK`].
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    /// What stands in a secret's place wherever it is shown. In a role that is saved it stands for the
    /// secret that is there already, so that what was shown can be sent back.
    pub const MASK: &str = "***";

    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// What stands in a secret's place.
    pub fn mask() -> Self {
        Self::new(Self::MASK)
    }

    /// Whether this is no secret but what stands in its place.
    pub fn is_mask(&self) -> bool {
        self.0 == Self::MASK
    }

    /// The secret itself, for the code that sends it to where it was meant to go.
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
        // The reader's own message would quote what stands there.
        String::deserialize(deserializer).map(Self).map_err(|_| D::Error::custom("expected a string"))
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Self::MASK)
    }
}
