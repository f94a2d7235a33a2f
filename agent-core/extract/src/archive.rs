//! Limits on the expanded size of an Office document's zip archive.

use std::io::{self, Cursor, Read};

use agent_retrieval::extract::ExtractError;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::limits::ExtractionLimits;

/// Maximum size of uncompressed entries whose compression ratio is not limited, in bytes.
const RATIO_FREE_BYTES: u64 = 1024 * 1024;

/// Checks the limits of an archive by unpacking its entries, since the sizes in its directory may lie.
pub(crate) fn check(bytes: &[u8], limits: &ExtractionLimits) -> Result<(), ExtractError> {
    let malformed = |_| ExtractError::Malformed("not a valid zip archive".to_owned());
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(malformed)?;
    if archive.len() > limits.max_archive_entries {
        let message = format!("more than {} entries in the archive", limits.max_archive_entries);
        return Err(ExtractError::LimitExceeded(message));
    }
    let ratio_bytes = limits.max_archive_ratio.saturating_mul(bytes.len() as u64).max(RATIO_FREE_BYTES);
    let max_bytes = ratio_bytes.min(limits.max_unpacked_bytes);
    let mut unpacked = 0;
    for index in 0..archive.len() {
        match archive.by_index(index) {
            // A damaged entry is the reader's to judge: it may be a picture, which is not read.
            Ok(entry) => unpacked += unpacked_bytes(entry, max_bytes + 1 - unpacked),
            Err(ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED)) => {
                return Err(ExtractError::Encrypted);
            }
            Err(_) => {}
        }
        if unpacked > max_bytes {
            return Err(ExtractError::LimitExceeded(if ratio_bytes < limits.max_unpacked_bytes {
                format!("a compression ratio above {}", limits.max_archive_ratio)
            } else {
                format!("more than {} bytes in the archive", limits.max_unpacked_bytes)
            }));
        }
    }
    Ok(())
}

/// Returns the unpacked size of an entry, up to its end, an error or the limit.
fn unpacked_bytes(entry: impl Read, limit: u64) -> u64 {
    let mut counted = CountedSink(0);
    let _ = io::copy(&mut entry.take(limit), &mut counted);
    counted.0
}

/// A writer that counts bytes.
struct CountedSink(u64);

impl io::Write for CountedSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let parts: Vec<_> =
            entries.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())).collect();
        crate::fixtures::archive(&parts)
    }

    #[test]
    fn bombs_are_refused() {
        let limits = ExtractionLimits::default();
        let zeros = vec![0; 8 * 1024 * 1024];
        let error = check(&archive(&[("word/document.xml", &zeros)]), &limits).unwrap_err();
        assert_eq!(error.to_string(), "the document exceeds a limit: a compression ratio above 100");
        // The same entry beside pictures that do not shrink is within the ratio.
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(200_000)
        .collect();
        let beside = archive(&[("word/document.xml", &zeros), ("word/media/a.png", &noise)]);
        assert_eq!(check(&beside, &limits), Ok(()));
        let limits = ExtractionLimits { max_unpacked_bytes: 4 * 1024 * 1024, ..limits };
        let error = check(&beside, &limits).unwrap_err();
        assert_eq!(error.to_string(), "the document exceeds a limit: more than 4194304 bytes in the archive");
    }

    #[test]
    fn entries_are_counted() {
        let names: Vec<String> = (0..2_001).map(|number| number.to_string()).collect();
        let entries: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
        assert_eq!(check(&archive(&entries[..2_000]), &ExtractionLimits::default()), Ok(()));
        let error = check(&archive(&entries), &ExtractionLimits::default()).unwrap_err();
        assert_eq!(error.to_string(), "the document exceeds a limit: more than 2000 entries in the archive");
    }
}
