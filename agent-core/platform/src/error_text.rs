//! Text of an error with its sources, for the log.

use std::error::Error;

/// Formats an error with all its sources, because only the last one names the cause, such as a full disk.
pub(crate) fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::StoreError;

    #[test]
    fn the_cause_follows_the_error() {
        let full = std::io::Error::other("the disk is full");
        let text = with_sources(&StoreError::unavailable(full));
        assert_eq!(text, "the store is unavailable: the disk is full");
    }
}
