//! Kinds of Office documents.

use crate::media_type::MediaType;

/// Signature of an entry of an archive's directory.
const DIRECTORY_ENTRY: &[u8] = b"PK\x01\x02";
/// Offset of the length of an entry's name, and of the name itself.
const NAME_LENGTH_OFFSET: usize = 28;
const NAME_OFFSET: usize = 46;

/// Kind of a zip archive by the names in its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArchiveKind {
    /// An Office document.
    Office(MediaType),
    /// An archive without a directory, or with a part of that of an Office document.
    Damaged,
    /// Any other archive.
    Other,
}

/// Returns the kind of an archive by the names in its directory.
///
/// It reads the names alone and allocates nothing. Archives that are stored within the archive come before its own
/// directory, so the last name decides.
pub(crate) fn archive_kind(bytes: &[u8]) -> ArchiveKind {
    let (mut has_names, mut has_types, mut kind) = (false, false, None);
    for offset in memchr::memmem::find_iter(bytes, DIRECTORY_ENTRY) {
        let Some(name) = entry_name(&bytes[offset..]) else { continue };
        has_names = true;
        has_types |= name == b"[Content_Types].xml";
        let folders = [("word/", MediaType::Docx), ("xl/", MediaType::Xlsx), ("ppt/", MediaType::Pptx)];
        let folder = folders.into_iter().find(|(folder, _)| name.starts_with(folder.as_bytes()));
        kind = folder.map(|(_, media_type)| media_type).or(kind);
    }
    match kind {
        Some(media_type) if has_types => ArchiveKind::Office(media_type),
        None if has_names && !has_types => ArchiveKind::Other,
        _ => ArchiveKind::Damaged,
    }
}

fn entry_name(entry: &[u8]) -> Option<&[u8]> {
    let length = entry.get(NAME_LENGTH_OFFSET..NAME_LENGTH_OFFSET + 2)?;
    let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
    entry.get(NAME_OFFSET..NAME_OFFSET + length)
}

#[cfg(all(test, feature = "documents"))]
mod tests {
    use std::io::{Cursor, Write};

    use zip::write::SimpleFileOptions;
    use zip::{CompressionMethod, ZipWriter};

    use super::*;

    fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        for (name, content) in entries {
            writer.start_file(*name, stored).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn archive_kinds_are_detected_by_their_entries() {
        let types: (&str, &[u8]) = ("[Content_Types].xml", b"<Types/>");
        for (entries, expected) in [
            (&[types, ("word/document.xml", b"")][..], ArchiveKind::Office(MediaType::Docx)),
            (&[types, ("word/embeddings/a.xlsx", b"xl/")], ArchiveKind::Office(MediaType::Docx)),
            (&[types, ("xl/workbook.xml", b"")], ArchiveKind::Office(MediaType::Xlsx)),
            (&[types, ("ppt/presentation.xml", b"")], ArchiveKind::Office(MediaType::Pptx)),
            (&[("word/document.xml", b"")], ArchiveKind::Damaged),
            (&[types], ArchiveKind::Damaged),
            (&[], ArchiveKind::Damaged),
            (&[("mimetype", b"application/epub+zip"), ("content.opf", b"")], ArchiveKind::Other),
        ] {
            assert_eq!(archive_kind(&archive(entries)), expected);
        }
        let nested = archive(&[types, ("xl/workbook.xml", b"")]);
        let outer = archive(&[types, ("ppt/presentation.xml", b""), ("ppt/embeddings/a.xlsx", &nested)]);
        assert_eq!(archive_kind(&outer), ArchiveKind::Office(MediaType::Pptx));
        for bytes in
            [&b"PK\x03\x04"[..], b"PK\x03\x04 PK\x01\x02", &[b"PK\x01\x02", &[0xff; 50][..]].concat()]
        {
            assert_eq!(archive_kind(bytes), ArchiveKind::Damaged);
        }
    }
}
