use proptest::prelude::*;

use super::*;
use crate::document::TextFormat;

fn document(text: &str, format: TextFormat) -> ExtractedText {
    ExtractedText { text: text.to_owned(), format, ..ExtractedText::default() }
}

fn texts(chunker: StructuralChunker, document: &ExtractedText) -> Vec<&str> {
    chunker.chunk(document).iter().map(|chunk| &document.text[chunk.start..chunk.end]).collect()
}

/// Asserts the contract of a chunker and the limits of the structural one.
fn assert_chunks(document: &ExtractedText, chunks: &[Chunk], limit: usize) {
    let text = &document.text;
    let mut covered = 0;
    for chunk in chunks {
        assert!(text.is_char_boundary(chunk.start) && text.is_char_boundary(chunk.end), "{chunk:?}");
        assert!(chunk.start < chunk.end, "{chunk:?} is empty");
        let content = &text[chunk.start..chunk.end];
        assert_eq!(content.trim(), content);
        assert!(content.chars().count() <= limit, "{} characters", content.chars().count());
        assert!(chunk.end > covered, "{chunk:?} adds nothing");
        if chunk.start > covered {
            assert!(text[covered..chunk.start].trim().is_empty(), "text before {chunk:?} is in no chunk");
        }
        covered = chunk.end;
    }
    assert!(text[covered..].trim().is_empty(), "the end of the text is in no chunk");
    assert!(chunks.windows(2).all(|pair| pair[0].start <= pair[1].start));
}

/// These would take hours if the time were quadratic.
#[test]
fn runs_behind_a_full_stop_are_split_in_linear_time() {
    for run in ["(", " \u{93f}", "\"' "] {
        let text = format!("One.{}two", run.repeat(500_000));
        let document = document(&text, TextFormat::Plain);
        assert_chunks(&document, &StructuralChunker::default().chunk(&document), 900);
    }
}

#[test]
fn paragraphs_are_merged_up_to_the_limit() {
    let document =
        document("First paragraph.\n\nSecond one.\n\nThird, which is longer.\n", TextFormat::Plain);
    assert_eq!(
        texts(StructuralChunker::new(32, 0), &document),
        ["First paragraph.\n\nSecond one.", "Third, which is longer."]
    );
}

#[test]
fn a_long_paragraph_is_split_between_sentences_and_a_long_word_between_characters() {
    let document = document("One two three. Four five six. abcdefghijklmnopqrstuvwxyz", TextFormat::Plain);
    assert_eq!(
        texts(StructuralChunker::new(16, 0), &document),
        ["One two three.", "Four five six.", "abcdefghijklmnop", "qrstuvwxyz"]
    );
}

#[test]
fn a_chunk_repeats_the_last_sentence_of_the_one_before() {
    let document =
        document("Alpha beta gamma delta. Short one. Epsilon zeta eta theta iota.", TextFormat::Plain);
    assert_eq!(
        texts(StructuralChunker::new(45, 20), &document),
        ["Alpha beta gamma delta. Short one.", "Short one. Epsilon zeta eta theta iota."]
    );
}

#[test]
fn markdown_headings_are_the_path_of_their_chunks() {
    let text = "# Guide\n\nIntroduction text.\n\n## Install\n\nRun the installer.\n\n```sh\n# not a heading\n```\n\n## Remove #\n\nDelete it.\n";
    let document = document(text, TextFormat::Markdown);
    let chunks = StructuralChunker::new(50, 10).chunk(&document);
    let headings: Vec<_> = chunks.iter().map(|chunk| chunk.heading.as_deref().unwrap_or("-")).collect();
    assert_eq!(headings, ["Guide", "Guide > Install", "Guide > Install", "Guide > Remove"]);
    assert!(text[chunks[3].start..].starts_with("## Remove"), "no overlap crosses a heading");
}

#[test]
fn indented_code_stays_in_its_section() {
    let text = "# Setup\n\nRun these:\n\n\t# as root\n\t```\n\tmake\n\n1. Then:\n\n       # code of the step\n\n## Check\n\nAsk it.\n";
    let document = document(text, TextFormat::Markdown);
    let chunks = StructuralChunker::new(40, 0).chunk(&document);
    let parts: Vec<_> = chunks
        .iter()
        .map(|chunk| (chunk.heading.as_deref().unwrap_or("-"), &text[chunk.start..chunk.end]))
        .collect();
    let expected = [
        ("Setup", "# Setup\n\nRun these:"),
        ("Setup", "# as root\n\t```\n\tmake\n\n1. Then:"),
        ("Setup", "# code of the step"),
        ("Setup > Check", "## Check\n\nAsk it."),
    ];
    assert_eq!(parts, expected);
}

#[test]
fn chunks_within_a_table_have_its_header() {
    let rows: String = (0..8).map(|row| format!("| North {row} | {row}0 | {row}5 |\n")).collect();
    let text = format!(
        "# Sales\n\nBy region.\n\n| Region | 2023 | 2024 |\n| --- | ---: | ---: |\n{rows}\nAll of them are in thousands of dollars.\n\n## Costs\n\nNone.\n"
    );
    let document = document(&text, TextFormat::Markdown);
    for (limit, overlap) in [(90, 0), (90, 40), (14, 7)] {
        let chunks = StructuralChunker::new(limit, overlap).chunk(&document);
        assert_chunks(&document, &chunks, limit);
        let body = text.find("| --- |").expect("a row")..text.find("All of").expect("a sentence");
        let mut within = 0;
        for chunk in &chunks {
            let heading = chunk.heading.as_deref().expect("all are below a heading");
            let content = &text[chunk.start..chunk.end];
            if body.contains(&chunk.start) {
                assert_eq!(heading, "Sales > | Region | 2023 | 2024 |", "{content:?}");
                within += 1;
            } else {
                assert!(["Sales", "Sales > Costs"].contains(&heading), "{heading:?}: {content:?}");
            }
        }
        assert!(within >= 2, "the table is divided");
    }
    let table = text[text.find("| Region").expect("a table")..].split_once("\n\n").expect("an end").0;
    let document = self::document(table, TextFormat::Markdown);
    let chunks = StructuralChunker::new(90, 0).chunk(&document);
    let headings: Vec<_> = chunks.iter().map(|chunk| chunk.heading.as_deref()).collect();
    assert_eq!(headings, [None, Some("| Region | 2023 | 2024 |"), Some("| Region | 2023 | 2024 |")]);
}

#[test]
fn plain_text_has_no_headings() {
    let document = document("# a comment of a script\n\nls", TextFormat::Plain);
    assert_eq!(StructuralChunker::default().chunk(&document)[0].heading, None);
}

#[test]
fn the_page_of_a_chunk_is_that_of_its_beginning() {
    let mut document = document("one\n\ntwo\n\nthree", TextFormat::Plain);
    document.page_starts = vec![0, 5, 10];
    let pages: Vec<_> =
        StructuralChunker::new(5, 0).chunk(&document).iter().map(|chunk| chunk.page).collect();
    assert_eq!(pages, [Some(1), Some(2), Some(3)]);
}

#[test]
fn hostile_texts_are_split_within_the_limits() {
    let texts = [
        "a".repeat(500_000),
        " ".repeat(500_000),
        "\n".repeat(250_000),
        "a\n\n".repeat(75_000),
        format!("a{}b", " ".repeat(250_000)),
        "# ".repeat(125_000),
        "#\n".repeat(75_000),
        "# h\n".repeat(50_000),
        "- ".repeat(125_000),
        "-\n\t-\n# h\n".repeat(25_000),
        "|-\n".repeat(125_000),
        "a|b\n-|-\n".repeat(50_000),
        format!("{}\n{}\n", "|a".repeat(75_000), "|-".repeat(75_000)),
        format!("{}\n{}\n{}", "|a".repeat(1_000), "|-".repeat(1_000), "|1\n".repeat(125_000)),
        format!("|a|\n|-|\n|{}", "\\|".repeat(125_000)),
        "\t".repeat(125_000),
        "e\u{301}".repeat(75_000),
        "\u{200b}".repeat(75_000),
        "\u{202e}\u{feff}x".repeat(25_000),
        "漢".repeat(75_000),
        "a.b".repeat(75_000),
        "\u{1f1e6}".repeat(50_000),
    ];
    for text in texts {
        for format in [TextFormat::Plain, TextFormat::Markdown] {
            let document = document(&text, format);
            assert_chunks(&document, &StructuralChunker::default().chunk(&document), 900);
        }
    }
}

proptest! {
    #[test]
    fn chunks_cover_any_text_on_boundaries_of_characters(
        text in "([a-zé漢\u{200b} ]{0,12}[.!?\n# ]{0,3}){0,60}|([a-z é]{0,6}[|\\\\:-]{0,2}\n?){0,60}", limit in 1_usize..80, overlap in 0_usize..60,
        markdown in any::<bool>(),
    ) {
        let format = if markdown { TextFormat::Markdown } else { TextFormat::Plain };
        let document = document(&text, format);
        assert_chunks(&document, &StructuralChunker::new(limit, overlap).chunk(&document), limit);
    }

    #[test]
    fn chunks_cover_arbitrary_unicode(text in "\\PC{0,400}|(?s:.{0,400})", limit in 1_usize..80) {
        let document = document(&text, TextFormat::Markdown);
        assert_chunks(&document, &StructuralChunker::new(limit, limit / 3).chunk(&document), limit);
    }
}

#[test]
fn chunks_below_an_underlined_heading_are_in_its_section() {
    let text = "Handbook\n========\n\nLeave\n-----\n\nEmployees have thirty days.\n\nTravel\n------\nTrains are booked.\n";
    let document = document(text, TextFormat::Markdown);
    let chunks = StructuralChunker::new(45, 0).chunk(&document);
    let headings: Vec<Option<&str>> = chunks.iter().map(|chunk| chunk.heading.as_deref()).collect();
    assert_eq!(headings.last(), Some(&Some("Handbook > Travel")), "{chunks:?}");
    assert!(text[chunks.last().expect("a chunk").start..].starts_with("Travel\n------\n"), "{chunks:?}");
}

#[test]
fn comments_of_front_matter_are_not_headings() {
    let text =
        "---\n# Settings of the site\nauthor: Ada\n---\nThirty days.\n\n## Travel\n\nTrains are booked.\n";
    let document = document(text, TextFormat::Markdown);
    let chunks = StructuralChunker::new(60, 0).chunk(&document);
    let headings: Vec<Option<&str>> = chunks.iter().map(|chunk| chunk.heading.as_deref()).collect();
    assert_eq!(headings, [None, Some("Travel")], "{chunks:?}");
}
