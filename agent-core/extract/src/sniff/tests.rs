use super::*;

#[test]
fn the_media_type_follows_the_content() {
    let utf16: Vec<u8> = "\u{feff}{\"a\": 1}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (bytes, declared, expected) in [
        (&b"%PDF-1.7\n"[..], "application/pdf", Some(MediaType::Pdf)),
        (b"junk\n%PDF-1.4", MediaType::Docx.as_str(), Some(MediaType::Pdf)),
        (b"<!DOCTYPE html><p>x", "application/pdf", Some(MediaType::Html)),
        (b"\n<!-- saved --> <HTML lang=en>", "text/plain", Some(MediaType::Html)),
        (b"<!-- saved from <a> --><html>", "text/plain", Some(MediaType::Html)),
        (b"<!-- a comment without an end <html>", "text/plain", Some(MediaType::Plain)),
        (b"<?xml version='1.0'?><!doctype html>", "application/json", Some(MediaType::Html)),
        (b"<p>fragment</p>", "text/html; charset=utf-8", Some(MediaType::Html)),
        (b"<p>fragment</p>", "", Some(MediaType::Plain)),
        (b"{\"a\": [1]}", "application/octet-stream", Some(MediaType::Json)),
        (&utf16, "text/plain", Some(MediaType::Json)),
        (&utf16[2..], "text/plain", Some(MediaType::Json)),
        (b"\0a\0,\0b", "text/csv", Some(MediaType::Csv)),
        (b"{not json}", "text/plain", Some(MediaType::Plain)),
        (b"{\"a\": 1}\n{\"a\": 2}\n", "application/x-ndjson", Some(MediaType::Json)),
        (b"{\"a\": 1}\n\n{\"a\": 2}", "text/plain", Some(MediaType::Json)),
        (b"{\"a\": 1}\n{\"a\": 2\n", "application/json", Some(MediaType::Plain)),
        (b"[1]\n[2]\n", "text/plain", Some(MediaType::Plain)),
        (b"\"text\"", "application/json", Some(MediaType::Json)),
        (b"[link](a) text", "text/markdown", Some(MediaType::Markdown)),
        (b"[1]", "text/markdown", Some(MediaType::Markdown)),
        (b"a,b\n1,2", "text/csv", Some(MediaType::Csv)),
        (b"a,b\n1,2", MediaType::Xlsx.as_str(), Some(MediaType::Plain)),
        ("Grüße".as_bytes(), "image/png", Some(MediaType::Plain)),
        (b"caf\xe9", "text/plain", Some(MediaType::Plain)),
        (b"a stray \x07 bell", "text/plain", Some(MediaType::Plain)),
        (b"", "text/plain", Some(MediaType::Plain)),
    ] {
        assert_eq!(sniff(bytes, declared), expected, "{:?} as {declared}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn other_data_is_refused() {
    let noise: Vec<u8> =
        (0..4096_u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u8 | 1).collect();
    for bytes in [
        &b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..],
        b"\x7fELF\x02\x01\x01\0",
        b"PK\x03\x04",
        b"\x01\x02\x03\x04 controls",
        b"{\\rtf1\\ansi Leave}",
        b"%!PS-Adobe-3.0\n",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0",
        &noise,
    ] {
        for declared in ["text/plain", "application/pdf", ""] {
            assert_eq!(sniff(bytes, declared), None);
        }
    }
}

#[test]
fn encrypted_office_documents_are_recognized() {
    let name = "EncryptedPackage".encode_utf16().flat_map(u16::to_le_bytes);
    let bytes: Vec<u8> =
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".iter().copied().chain([0; 64]).chain(name).collect();
    assert_eq!(sniff(&bytes, MediaType::Pptx.as_str()), Some(MediaType::Pptx));
    assert_eq!(sniff(&bytes, ""), Some(MediaType::Docx));
}

#[test]
fn damaged_archives_keep_their_declared_type() {
    let office = [MediaType::Docx, MediaType::Xlsx, MediaType::Pptx];
    for bytes in [&b"PK\x03\x04"[..], b"PK\x03\x04\x14\0\0\0\x08\0 a part of an archive", b"PK\x05\x06"] {
        for declared in office {
            assert_eq!(sniff(bytes, declared.as_str()), Some(declared));
        }
        for declared in ["application/zip", "application/pdf", "text/plain", ""] {
            assert_eq!(sniff(bytes, declared), None, "{declared}");
        }
    }
    // Only the beginning of an archive is one.
    assert_eq!(sniff(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", MediaType::Docx.as_str()), None);
    assert_eq!(sniff(b"\0\x03\x04", MediaType::Docx.as_str()), None);
}
