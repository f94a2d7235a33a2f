//! Parts of an Office document that are changed before it is read.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};

use agent_retrieval::extract::ExtractError;
use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

/// The parts of an Office document.
pub(super) struct OfficeParts<'b> {
    archive: ZipArchive<Cursor<&'b [u8]>>,
    /// Changed parts of the archive by their names; `None` for removed ones.
    changes: BTreeMap<String, Option<Vec<u8>>>,
}

impl<'b> OfficeParts<'b> {
    /// Opens a document, whose archive is within the limits.
    pub(super) fn open(bytes: &'b [u8]) -> Result<Self, ExtractError> {
        let archive = ZipArchive::new(Cursor::new(bytes)).map_err(|_| malformed())?;
        Ok(Self { archive, changes: BTreeMap::new() })
    }

    /// Returns the names of the parts in the archive.
    pub(super) fn names(&self) -> Vec<String> {
        self.archive.file_names().filter_map(Result::ok).map(|name| name.into_owned()).collect()
    }

    /// Returns the bytes of a part of the archive. A part that is missing or damaged has none.
    pub(super) fn bytes(&mut self, name: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        // The reader decides which parts of a damaged part can be read.
        self.archive.by_name(name).ok()?.read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Returns the text of a part of the archive that is XML.
    pub(super) fn xml(&mut self, name: &str) -> Option<String> {
        decode_xml(self.bytes(name)?)
    }

    /// Puts a part in place of that of the archive.
    pub(super) fn put(&mut self, name: &str, content: impl Into<Vec<u8>>) {
        self.changes.insert(name.to_owned(), Some(content.into()));
    }

    /// Removes a part, unless another was put in its place.
    pub(super) fn remove(&mut self, name: &str) {
        self.changes.entry(name.to_owned()).or_insert(None);
    }

    /// Returns the changed document, or `None` if nothing was changed.
    pub(super) fn finish(mut self) -> Result<Option<Vec<u8>>, ExtractError> {
        if self.changes.is_empty() {
            return Ok(None);
        }
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for index in 0..self.archive.len() {
            let is_kept = match self.archive.name_for_index(index) {
                Some(Ok(name)) => !self.changes.contains_key(&*name),
                _ => false,
            };
            if !is_kept {
                continue;
            }
            if let Ok(entry) = self.archive.by_index_raw(index) {
                writer.raw_copy_file(entry).map_err(|_| malformed())?;
            }
        }
        for (name, content) in &self.changes {
            let Some(content) = content else { continue };
            writer.start_file(name.as_str(), SimpleFileOptions::default()).map_err(|_| malformed())?;
            writer.write_all(content).map_err(|_| malformed())?;
        }
        Ok(Some(writer.finish().map_err(|_| malformed())?.into_inner()))
    }
}

fn malformed() -> ExtractError {
    ExtractError::Malformed("not a valid zip archive".to_owned())
}

/// Decodes XML in UTF-8 or UTF-16, with or without a byte order mark.
fn decode_xml(bytes: Vec<u8>) -> Option<String> {
    let encoding = match bytes[..] {
        [_, 0, _, 0, ..] => Some(UTF_16LE),
        [0, _, 0, _, ..] => Some(UTF_16BE),
        _ => Encoding::for_bom(&bytes).map(|(encoding, _)| encoding),
    };
    match encoding {
        Some(encoding) => Some(encoding.decode_with_bom_removal(&bytes).0.into_owned()),
        None => String::from_utf8(bytes).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::archive;

    #[test]
    fn parts_are_changed_and_the_others_copied() {
        let document = archive(&[
            ("a.xml".to_owned(), b"a".to_vec()),
            ("b.xml".to_owned(), b"b".to_vec()),
            ("c.xml".to_owned(), b"\xff\xfec\0".to_vec()),
        ]);
        assert_eq!(OfficeParts::open(&document).unwrap().finish(), Ok(None));
        let mut parts = OfficeParts::open(&document).unwrap();
        assert_eq!(parts.xml("c.xml").as_deref(), Some("c"));
        parts.put("a.xml", "new");
        parts.put("d.xml", "d");
        parts.remove("a.xml");
        parts.remove("b.xml");
        let changed = parts.finish().unwrap().unwrap();
        let mut parts = OfficeParts::open(&changed).unwrap();
        assert_eq!(parts.names(), ["c.xml", "a.xml", "d.xml"]);
        assert_eq!(parts.bytes("a.xml").as_deref(), Some(&b"new"[..]));
        assert_eq!(parts.bytes("b.xml"), None);
        assert_eq!(parts.xml("c.xml").as_deref(), Some("c"));
    }
}
