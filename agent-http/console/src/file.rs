//! A file of the console or the widget, compressed in the binary.

use std::io::Read as _;

use bytes::Bytes;
use flate2::read::GzDecoder;

use crate::negotiate::ContentCoding;

/// An embedded file.
pub(crate) struct File {
    /// Path below the assets' path, such as `lib/api.js`.
    pub(crate) path: &'static str,
    /// Media type.
    pub(crate) mime: &'static str,
    /// SHA-256 of the content, in hexadecimal.
    pub(crate) sha256: &'static str,
    /// Length of the content in bytes.
    pub(crate) len: usize,
    /// Content compressed with brotli (RFC 7932).
    pub(crate) brotli: &'static [u8],
    /// Content compressed with gzip (RFC 1952), from which other clients are served too.
    pub(crate) gzip: &'static [u8],
}

impl File {
    /// Returns the content in a coding. For the identity it is decompressed.
    pub(crate) fn content(&self, coding: ContentCoding) -> Bytes {
        match coding {
            ContentCoding::Brotli => Bytes::from_static(self.brotli),
            ContentCoding::Gzip => Bytes::from_static(self.gzip),
            ContentCoding::Identity => {
                let mut content = Vec::with_capacity(self.len);
                GzDecoder::new(self.gzip)
                    .read_to_end(&mut content)
                    .expect("the build script has compressed it");
                content.into()
            }
        }
    }
}
