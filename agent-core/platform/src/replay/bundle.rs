//! Bundles: a run with its inputs and its log, as one JSON text with a digest.

use agent_core::event::Event;
use agent_core::role::RoleBlock;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::conversation::{Run, RunPrompt};
use crate::roles::fill_secrets;
use crate::run_observer::RunInputs;

/// Maximum size of a bundle, in bytes.
pub const MAX_BUNDLE_BYTES: usize = 64 << 20;
/// Name and version of the format.
const FORMAT: &str = "agentd-run-bundle/1";

/// A run with all of its stored data. Secrets of the role are masked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunBundle {
    /// Version of the program that has made the bundle.
    pub program: String,
    /// The run, without the manifest of its prompt.
    pub run: Run,
    /// Manifest of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Box<RunPrompt>>,
    /// Inputs; absent if they were not recorded or have been deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<RunInputs>,
    /// Events that the run's caller has received; absent if they have been deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<Event>>,
}

/// Bundle as it is written: the digest is of the bytes of `record`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DigestedRecord<'a> {
    format: String,
    sha256: String,
    #[serde(borrow)]
    record: &'a RawValue,
}

/// Error of a bundle.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The text is too long.
    #[error("the bundle has more than {MAX_BUNDLE_BYTES} bytes")]
    TooLarge,
    /// The text is not a bundle, or parts of it are damaged.
    #[error("this is not a bundle of a run: {0}")]
    Malformed(#[source] serde_json::Error),
    /// The bundle has another format.
    #[error("the bundle has the format {0:?}, and this program reads {FORMAT:?}")]
    Format(String),
    /// The record was changed after the bundle was made.
    #[error("the bundle was changed: its record does not have the digest that it names")]
    Altered,
    /// The inputs were not recorded.
    #[error(
        "the run's inputs are not recorded; RUN_PROMPTS=keep records those of later runs, as long as their logs are kept"
    )]
    NoInputs,
    /// The run has not ended.
    #[error("the run has not ended")]
    NotEnded,
    /// The log is not kept.
    #[error("the run's events are not kept any more; see RUN_LOG_RETENTION_MS")]
    NoEvents,
}

impl RunBundle {
    /// Parses a bundle.
    ///
    /// # Errors
    /// [`BundleError`] for any other text, and for a bundle that was changed.
    pub fn parse(text: &[u8]) -> Result<Self, BundleError> {
        Self::read(text, true)
    }

    /// Parses a bundle that may have been changed, such as to see what a change of its inputs does.
    ///
    /// # Errors
    /// [`BundleError`] for a text that is not a bundle.
    pub fn parse_changed(text: &[u8]) -> Result<Self, BundleError> {
        Self::read(text, false)
    }

    fn read(text: &[u8], is_checked: bool) -> Result<Self, BundleError> {
        if text.len() > MAX_BUNDLE_BYTES {
            return Err(BundleError::TooLarge);
        }
        let envelope: DigestedRecord<'_> = serde_json::from_slice(text).map_err(BundleError::Malformed)?;
        if envelope.format != FORMAT {
            return Err(BundleError::Format(envelope.format));
        }
        if is_checked && digest(envelope.record) != envelope.sha256 {
            return Err(BundleError::Altered);
        }
        serde_json::from_str(envelope.record.get()).map_err(BundleError::Malformed)
    }

    /// Sets the masked secrets of the recorded role, as [`fill_secrets`] does.
    #[must_use]
    pub fn with_secrets_of(mut self, stored: RoleBlock) -> Self {
        if let Some(inputs) = &mut self.inputs {
            fill_secrets(&mut inputs.role, stored);
        }
        self
    }

    /// Returns the bundle as a JSON text.
    ///
    /// # Errors
    /// [`BundleError::TooLarge`] beyond [`MAX_BUNDLE_BYTES`].
    pub fn to_json(&self) -> Result<String, BundleError> {
        let record = serde_json::value::to_raw_value(self).map_err(BundleError::Malformed)?;
        let (format, sha256) = (FORMAT.to_owned(), digest(&record));
        let text = serde_json::to_string(&DigestedRecord { format, sha256, record: &record });
        let text = text.map_err(BundleError::Malformed)?;
        if text.len() > MAX_BUNDLE_BYTES {
            return Err(BundleError::TooLarge);
        }
        Ok(text)
    }
}

fn digest(record: &RawValue) -> String {
    hex::encode(Sha256::digest(record.get()))
}
