//! Kinds of Office documents.

use crate::media_type::MediaType;

/// Signature of an entry of an archive's directory.
const DIRECTORY_ENTRY: &[u8] = b"PK\x01\x02";
/// Offset of the length of an entry's name, and of the name itself.
const NAME_LENGTH_OFFSET: usize = 28;
const NAME_OFFSET: usize = 46;

/// Returns the kind of Office document by the names in the archive's directory.
///
/// It reads the names alone and allocates nothing. Archives that are stored within the archive come before its own
/// directory, so the last name decides.
pub(crate) fn office_type(bytes: &[u8]) -> Option<MediaType> {
    let (mut has_types, mut kind) = (false, None);
    for offset in memchr::memmem::find_iter(bytes, DIRECTORY_ENTRY) {
        let Some(name) = entry_name(&bytes[offset..]) else { continue };
        has_types |= name == b"[Content_Types].xml";
        let folders = [("word/", MediaType::Docx), ("xl/", MediaType::Xlsx), ("ppt/", MediaType::Pptx)];
        let folder = folders.into_iter().find(|(folder, _)| name.starts_with(folder.as_bytes()));
        kind = folder.map(|(_, media_type)| media_type).or(kind);
    }
    kind.filter(|_| has_types)
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
    fn kinds_are_told_by_the_entries() {
        let types: (&str, &[u8]) = ("[Content_Types].xml", b"<Types/>");
        for (entries, expected) in [
            (&[types, ("word/document.xml", b"")][..], Some(MediaType::Docx)),
            (&[types, ("word/embeddings/a.xlsx", b"xl/")], Some(MediaType::Docx)),
            (&[types, ("xl/workbook.xml", b"")], Some(MediaType::Xlsx)),
            (&[types, ("ppt/presentation.xml", b"")], Some(MediaType::Pptx)),
            (&[("word/document.xml", b"")], None),
            (&[types], None),
        ] {
            assert_eq!(office_type(&archive(entries)), expected);
        }
        let nested = archive(&[types, ("xl/workbook.xml", b"")]);
        let outer = archive(&[types, ("ppt/presentation.xml", b""), ("ppt/embeddings/a.xlsx", &nested)]);
        assert_eq!(office_type(&outer), Some(MediaType::Pptx));
        for bytes in
            [&b"PK\x03\x04"[..], b"PK\x03\x04 PK\x01\x02", &[b"PK\x01\x02", &[0xff; 50][..]].concat()]
        {
            assert_eq!(office_type(bytes), None);
        }
    }
}
