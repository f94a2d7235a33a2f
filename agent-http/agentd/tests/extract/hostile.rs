//! Documents that are made to exhaust their reader.

use agent_extract::fixtures::{PdfBuilder, PdfText, archive, deflate, docx_parts, xlsx_parts};

use super::*;

fn text(text: &str) -> PdfText<'_> {
    PdfText { x: 72, y: 700, size: 12, text }
}

/// Returns a PDF document with a page of text, changed by `change`.
fn pdf(change: impl FnOnce(&mut PdfBuilder)) -> Vec<u8> {
    let mut builder = PdfBuilder::new();
    builder.text_page(&[text("A page before.")]);
    change(&mut builder);
    builder.build()
}

fn replaced(document: Vec<u8>, from: &str, to: &str) -> Vec<u8> {
    let start =
        document.windows(from.len()).position(|window| window == from.as_bytes()).expect("it is there");
    [&document[..start], to.as_bytes(), &document[start + from.len()..]].concat()
}

/// Returns documents with their names.
fn pdfs() -> Vec<(&'static str, Vec<u8>)> {
    let flate = "/Filter /FlateDecode";
    let stream = |builder: &mut PdfBuilder, entries: &str, content: &[u8]| {
        let number = builder.stream(entries, content);
        builder.page(b"", &format!("/XObject << /Fm {number} 0 R >>"));
    };
    let fonts = |font: &str| {
        pdf(|builder| {
            let cmap = builder.stream(
                "",
                b"begincmap 1 begincodespacerange <00000000> <ffffffff> endcodespacerange \
                  1 beginbfrange <00000000> <ffffffff> <0041> endbfrange endcmap",
            );
            let font = builder.object(font.replace("CMAP", &format!("{cmap} 0 R")));
            builder.page(
                b"BT /F2 12 Tf 72 700 Td <0041004200430044> Tj ET",
                &format!("/Font << /F2 {font} 0 R >>"),
            );
        })
    };
    vec![
        ("a length of 1 TiB", replaced(pdf(|_| ()), "/Length ", "/Length 1099511627776 /L ")),
        ("a size of 4 Gi objects", replaced(pdf(|_| ()), "<< /Size ", "<< /Size 4294967295 /S ")),
        ("2 Gi pages", replaced(pdf(|_| ()), "/Count ", "/Count 2147483647 /C ")),
        ("a page tree in a circle", replaced(pdf(|_| ()), "/Kids [", "/Kids [2 0 R 2 0 R 2 0 R ")),
        ("a stream that unpacks to 256 MiB", {
            let content = deflate(&vec![b' '; 256 * 1024 * 1024]);
            pdf(|builder| {
                let number = builder.stream(flate, &content);
                let page = format!("/Contents {number} 0 R >>");
                builder.object(page);
                builder.page(&[], "");
            })
        }),
        ("page content that unpacks to 256 MiB", {
            let document = pdf(|builder| {
                builder.stream(flate, &deflate(&b"BT (A) Tj ET ".repeat(20 * 1024 * 1024)));
            });
            replaced(document, "/Contents 4 0 R", "/Contents 6 0 R")
        }),
        ("a predictor of 2 Gi columns", {
            let parameters =
                "/DecodeParms << /Predictor 12 /Columns 2147483647 /Colors 32 /BitsPerComponent 16 >>";
            let document = pdf(|builder| {
                builder.stream(&format!("{flate} {parameters}"), &deflate(b"BT (A) Tj ET"));
            });
            replaced(document, "/Contents 4 0 R", "/Contents 6 0 R")
        }),
        ("an object stream of 4 Gi objects", {
            pdf(|builder| stream(builder, "/Type /ObjStm /N 4294967295 /First 4294967295", b"1 0 2 9"))
        }),
        ("a cross-reference stream of 1 Ti entries", {
            let document = pdf(|builder| {
                builder.stream(
                    "/Type /XRef /W [8 8 8] /Index [0 1099511627776] /Size 4294967295 /Root 1 0 R",
                    &[1; 24],
                );
            });
            let object = document.windows(7).position(|window| window == b"6 0 obj").expect("it is there");
            let start = document.windows(9).rposition(|window| window == b"startxref").expect("it is there");
            [&document[..start], format!("startxref\n{object}\n%%EOF").as_bytes()].concat()
        }),
        (
            "nested arrays",
            pdf(|builder| {
                builder.object("[".repeat(2_000_000));
            }),
        ),
        ("nested page content", pdf(|builder| builder.page("[".repeat(2_000_000).as_bytes(), ""))),
        ("a form that contains itself", {
            pdf(|builder| {
                let entries =
                    "/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /Fm 6 0 R >> >>";
                let form = builder.stream(entries, b"/Fm Do /Fm Do /Fm Do");
                builder.page(b"/Fm Do", &format!("/XObject << /Fm {form} 0 R >>"));
            })
        }),
        (
            "a map of 4 Gi characters",
            fonts("<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /ToUnicode CMAP >>"),
        ),
        (
            "4 Gi widths",
            fonts(
                "<< /Type /Font /Subtype /TrueType /BaseFont /X /FirstChar 0 /LastChar 4294967295 /Widths [1] >>",
            ),
        ),
        ("100,000 pages", {
            let document = pdf(|_| ());
            replaced(document, "/Kids [", &format!("/Kids [{}", "5 0 R ".repeat(100_000)))
        }),
        ("a million words on a page", {
            let words: String = (0..1_000_000)
                .map(|number| format!("1 0 0 1 {} {} Tm (w) Tj ", number % 612, number % 792))
                .collect();
            pdf(|builder| builder.page(format!("BT /F1 1 Tf {words} ET").as_bytes(), ""))
        }),
        ("nothing after its signature", b"%PDF-1.7".to_vec()),
    ]
}

/// Returns Office documents with their names.
fn office_documents() -> Vec<(&'static str, MediaType, Vec<u8>)> {
    let with_part = |mut parts: Vec<(String, Vec<u8>)>, name: &str, content: Vec<u8>| {
        parts.retain(|(existing, _)| existing != name);
        parts.push((name.to_owned(), content));
        archive(&parts)
    };
    let document = "word/document.xml";
    let main = "xmlns:w=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\"";
    let entities: String = (1..20)
        .map(|level| format!("<!ENTITY e{level} \"{}\">", format!("&e{};", level - 1).repeat(20)))
        .collect();
    let sheet = "<worksheet xmlns=\"http://schemas.openxmlformats.org/spreadsheetml/2006/main\"><sheetData>\
        <row r=\"1048576\"><c r=\"XFD1048576\"><v>1</v></c></row><row r=\"1\"><c r=\"A1\"><v>1</v></c></row></sheetData>\
        <mergeCells><mergeCell ref=\"A1:XFD1048576\"/></mergeCells></worksheet>";
    vec![
        ("a bomb", MediaType::Docx, with_part(docx_parts(), document, vec![b' '; 64 * 1024 * 1024])),
        ("an entry that is larger than it says", MediaType::Docx, {
            let size = 64 * 1024 * 1024_u32;
            let mut bytes = with_part(docx_parts(), document, vec![b' '; size as usize]);
            while let Some(offset) = bytes.windows(4).position(|window| window == size.to_le_bytes()) {
                bytes[offset..offset + 4].copy_from_slice(&16_u32.to_le_bytes());
            }
            bytes
        }),
        ("many entries", MediaType::Xlsx, {
            let parts =
                xlsx_parts().into_iter().chain((0..3_000).map(|number| (format!("xl/{number}"), Vec::new())));
            archive(&parts.collect::<Vec<_>>())
        }),
        ("nested elements", MediaType::Docx, {
            let depth = 200_000;
            let nested = "<w:tbl><w:tr><w:tc>".repeat(depth) + &"</w:tc></w:tr></w:tbl>".repeat(depth);
            with_part(
                docx_parts(),
                document,
                format!("<w:document {main}><w:body>{nested}</w:body></w:document>").into(),
            )
        }),
        ("entities that multiply", MediaType::Docx, {
            let xml = format!(
                "<!DOCTYPE d [<!ENTITY e0 \"lol\">{entities}]><w:document {main}><w:body><w:p><w:r><w:t>&e19;</w:t>\
                               </w:r></w:p></w:body></w:document>"
            );
            with_part(docx_parts(), document, xml.into())
        }),
        (
            "a cell at the end of the sheet",
            MediaType::Xlsx,
            with_part(xlsx_parts(), "xl/worksheets/sheet1.xml", sheet.into()),
        ),
        ("an encrypted container", MediaType::Docx, {
            let name = "EncryptedPackage".encode_utf16().flat_map(u16::to_le_bytes);
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".iter().copied().chain(name).collect()
        }),
    ]
}

/// Extracts a hostile document and reports the result.
async fn survive(extractor: &ProcessExtractor, name: &str, media_type: MediaType, bytes: Vec<u8>) -> String {
    let start = std::time::Instant::now();
    let result = match extract(extractor, media_type.as_str(), bytes).await {
        Ok(extraction) => format!("{} bytes of text", extraction.document.text.len()),
        Err(error @ ExtractError::Unavailable(_)) => panic!("{name}: {error}"),
        Err(error) => error.to_string(),
    };
    format!("{media_type}, {name}: {result} ({:.1} s)", start.elapsed().as_secs_f64())
}

fn limited() -> Arc<ProcessExtractor> {
    extractor(ExtractionConfig { timeout: Duration::from_secs(10), ..ExtractionConfig::default() })
}

#[tokio::test]
async fn hostile_pdf_documents_have_typed_results() {
    let extractor = limited();
    for (name, bytes) in pdfs() {
        report(&survive(&extractor, name, MediaType::Pdf, bytes).await);
    }
    assert!(extract(&extractor, "text/plain", "alive").await.is_ok());
}

#[tokio::test]
async fn hostile_office_documents_have_typed_results() {
    let extractor = limited();
    let mut results = String::new();
    for (name, media_type, bytes) in office_documents() {
        results += &survive(&extractor, name, media_type, bytes).await;
        results.push('\n');
    }
    report(&results);
    for expected in [
        "a bomb: the document exceeds a limit: a compression ratio above 100",
        "many entries: the document exceeds a limit: more than 2000 entries in the archive",
        "an encrypted container: the document is protected by a password",
        "an entry that is larger than it says: the document cannot be read",
    ] {
        assert!(results.contains(expected), "{expected}\n{results}");
    }
    assert!(extract(&extractor, "text/plain", "alive").await.is_ok());
}

#[tokio::test]
async fn hostile_texts_have_typed_results() {
    let extractor = limited();
    let html = "<b><i>".repeat(50_000) + &"<p>x".repeat(50_000);
    let csv = "a,b\n\"".to_owned() + &"x,\n".repeat(1_000_000);
    for (name, media_type, text) in [
        ("elements that are not closed", MediaType::Html, html),
        ("nested values", MediaType::Json, "[".repeat(1_000_000)),
        ("a quote without end", MediaType::Csv, csv),
        ("one word", MediaType::Plain, "x".repeat(10_000_000)),
    ] {
        report(&survive(&extractor, name, media_type, text.into()).await);
    }
    assert!(extract(&extractor, "text/plain", "alive").await.is_ok());
}
