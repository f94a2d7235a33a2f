//! Origin of a URL.

/// Origin of a URL, which decides whether the address policy applies to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlTrust {
    /// From the operator's configuration: reached at any address.
    Operator,
    /// From a role or a request: reached only at a public or allowed address.
    Supplied,
}
