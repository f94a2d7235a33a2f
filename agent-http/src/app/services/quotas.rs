//! Maximum numbers and sizes of a company's resources.

use jiff::SignedDuration;

/// Maximum numbers of resources per company that sessions can create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceQuotas {
    /// Agents; 1,000.
    pub agents: u64,
    /// Documents; 10,000.
    pub documents: u64,
    /// Size in bytes of one uploaded document; 25,000,000.
    pub upload_bytes: usize,
    /// Total size in bytes of the uploaded documents' originals and of users' files; 2,000,000,000.
    pub uploaded_bytes: u64,
    /// Size in bytes of one file for messages; 20 MiB.
    pub file_bytes: usize,
    /// Time for which such a file is stored if no thread has it; 30 days.
    pub file_ttl: SignedDuration,
}

impl Default for ResourceQuotas {
    fn default() -> Self {
        Self {
            agents: 1_000,
            documents: 10_000,
            upload_bytes: 25_000_000,
            uploaded_bytes: 2_000_000_000,
            file_bytes: 20 * 1024 * 1024,
            file_ttl: SignedDuration::from_hours(30 * 24),
        }
    }
}
