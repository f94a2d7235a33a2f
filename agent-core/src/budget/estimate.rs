//! Heuristic token counts, for models whose vocabulary is not available.

use super::TokenCounter;

/// Estimates token counts by how byte-pair encodings with large vocabularies split text: into words with
/// the preceding space or punctuation character, groups of three digits, runs of punctuation and of white space.
///
/// For a few hundred bytes or more of prose in several scripts, source code, Markdown, JSON or tables, the estimate is
/// within 10 % of `o200k_base`. A quarter of the byte count is off by 20 % to 50 % on most of them. Text that is not a
/// language, such as Base64, is estimated a third too low.
#[derive(Debug, Clone, Copy, Default)]
pub struct EstimateCounter;

impl TokenCounter for EstimateCounter {
    fn id(&self) -> &'static str {
        "estimate"
    }

    fn count(&self, text: &str) -> usize {
        let mut rest = text.as_bytes();
        let mut previous = ByteClass::Newline;
        let mut sixteenths = 0;
        while let Some(&first) = rest.first() {
            let class = ByteClass::classify(first);
            let len = rest.iter().position(|&byte| ByteClass::classify(byte) != class).unwrap_or(rest.len());
            let (run, after) = rest.split_at(len);
            let next = after.first().map(|&byte| ByteClass::classify(byte));
            sixteenths += match class {
                ByteClass::Letter => letters_cost(run),
                ByteClass::Digit => len.div_ceil(3) * UNITS_PER_TOKEN,
                ByteClass::Punctuation => punctuation_cost(len, previous, next),
                ByteClass::Space => space_cost(len, next),
                ByteClass::Newline if previous == ByteClass::Punctuation => 0,
                ByteClass::Newline => UNITS_PER_TOKEN,
            };
            previous = class;
            rest = after;
        }
        sixteenths.div_ceil(UNITS_PER_TOKEN)
    }
}

/// Cost of one token; costs are in sixteenths of a token.
const UNITS_PER_TOKEN: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    /// Letters and all non-ASCII bytes.
    Letter,
    Digit,
    /// Any other ASCII character, control characters included.
    Punctuation,
    Space,
    Newline,
}

impl ByteClass {
    const TABLE: [Self; 256] = {
        let mut table = [Self::Punctuation; 256];
        let mut byte = 0;
        while byte < table.len() {
            table[byte] = match byte as u8 {
                b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => Self::Letter,
                b'0'..=b'9' => Self::Digit,
                b' ' | b'\t' => Self::Space,
                b'\n' | b'\r' => Self::Newline,
                _ => Self::Punctuation,
            };
            byte += 1;
        }
        table
    };

    fn classify(byte: u8) -> Self {
        Self::TABLE[byte as usize]
    }
}

/// Returns the cost of a run of punctuation. A single character right before a word belongs to the word's token.
fn punctuation_cost(len: usize, before: ByteClass, next: Option<ByteClass>) -> usize {
    match len {
        1 if before != ByteClass::Space && next == Some(ByteClass::Letter) => 0,
        1 | 2 => UNITS_PER_TOKEN,
        3 => 19,
        4 => 26,
        _ => len * 7,
    }
}

/// Returns the cost of a run of spaces. The last belongs to the next word or punctuation, all to a newline.
fn space_cost(len: usize, next: Option<ByteClass>) -> usize {
    match next {
        Some(ByteClass::Newline) => 0,
        Some(ByteClass::Letter | ByteClass::Punctuation) if len == 1 => 0,
        Some(ByteClass::Digit) if len > 1 => 2 * UNITS_PER_TOKEN,
        _ => UNITS_PER_TOKEN,
    }
}

/// Returns the cost of a run of letters, split where an upper-case letter follows a lower-case one.
fn letters_cost(run: &[u8]) -> usize {
    if !run.is_ascii() {
        return non_ascii_cost(run);
    }
    let mut cost = 0;
    let mut begin = 0;
    for index in 1..run.len() {
        if run[index].is_ascii_uppercase() && run[index - 1].is_ascii_lowercase() {
            cost += latin_word_cost(index - begin);
            begin = index;
        }
    }
    cost + latin_word_cost(run.len() - begin)
}

/// Returns the cost of a word in Latin script: about one token while it is short, growing with its length after that.
fn latin_word_cost(len: usize) -> usize {
    const SHORT_WORD_COSTS: [usize; 12] = [0, 16, 16, 16, 16, 17, 17, 18, 19, 21, 23, 24];
    if len < SHORT_WORD_COSTS.len() { SHORT_WORD_COSTS[len] } else { 3 * len - 12 }
}

/// Returns the cost of a run with non-ASCII characters, classified by their first UTF-8 bytes.
fn non_ascii_cost(run: &[u8]) -> usize {
    let (mut ascii, mut accented, mut alphabetic, mut semitic, mut cost) = (0, 0, 0, 0, 0);
    for byte in run {
        match byte {
            ..0x80 => ascii += 1,
            // Continuation bytes.
            0x80..0xC0 => {}
            // Latin with diacritics.
            0xC0..0xCD => accented += 1,
            // Greek, Cyrillic, Armenian.
            0xCD..0xD6 => alphabetic += 1,
            // Hebrew, Arabic.
            0xD6..0xE0 => semitic += 1,
            // The scripts of India and South-East Asia.
            0xE0 => cost += 5,
            // Hangul.
            0xEA..0xEE => cost += 11,
            // Dashes, quotes, arrows.
            0xE2 => cost += 16,
            // Kana, Han, full-width punctuation.
            0xE1..0xF0 => cost += 12,
            // Emoji and other supplementary characters.
            0xF0.. => cost += 28,
        }
    }
    if ascii + accented > 0 {
        cost += latin_word_cost(ascii + accented) + 5 * accented;
    }
    if alphabetic > 0 {
        cost += UNITS_PER_TOKEN + 4 * usize::saturating_sub(alphabetic, 4);
    }
    if semitic > 0 {
        cost += UNITS_PER_TOKEN + 4 * usize::saturating_sub(semitic, 2);
    }
    cost
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with their `o200k_base` token counts.
    const SAMPLES: [(&str, usize); 11] = [
        ("The parcel hasn't arrived, although the page has been showing \"delivered\" since Monday.", 18),
        ("Die Lieferung ist leider noch nicht eingetroffen; wir schicken Ihnen morgen kostenlos Ersatz.", 17),
        (
            "Le colis n'est pas encore arrivé, bien que le suivi affirme le contraire depuis hier après-midi.",
            20,
        ),
        ("Посылка ещё не пришла, хотя отслеживание утверждает обратное со вчерашнего дня.", 22),
        ("إذا لم تكن متأكدا من القاعدة المناسبة، فاسأل بدلا من التخمين.", 21),
        ("包裹还没有到，虽然物流信息从昨天开始就显示已送达。", 19),
        ("回答をそのまま転送します。推測せずに質問してください。", 17),
        ("어떤 규칙이 적용되는지 확실하지 않으면 추측하지 말고 질문하세요.", 21),
        (
            r#"[{"id":17,"title":"Call the supplier","done":false,"dueDate":"2026-11-21T09:00:00Z","tags":["billing"]}]"#,
            38,
        ),
        (
            "fn total(&self) -> usize {\n    self.parts.iter().map(|part| part.len()).sum()\n}\n\n// Never negative.\n",
            26,
        ),
        (
            "## Rules\n\n1. **Ask** before you delete.\n2. Answer within 24 hours.\n\n| day | units |\n|---|---|\n| 2026-01-02 | 1250 |\n",
            43,
        ),
    ];

    #[test]
    fn the_estimate_is_near_the_count() {
        for (text, tokens) in SAMPLES {
            let estimate = EstimateCounter.count(text);
            let off = estimate.abs_diff(tokens) as f64 / tokens as f64;
            assert!(off <= 0.25, "{estimate} for {tokens}: {text}");
        }
        let all = SAMPLES.map(|(text, _)| EstimateCounter.count(text)).iter().sum::<usize>();
        let tokens = SAMPLES.map(|(_, tokens)| tokens).iter().sum::<usize>();
        assert!(all.abs_diff(tokens) * 20 <= tokens, "{all} for {tokens}");
    }

    #[test]
    fn the_samples_counts_are_the_encodings() {
        for (text, tokens) in SAMPLES {
            assert_eq!(bpe_openai::o200k_base().count(text), tokens, "{text}");
        }
    }

    #[test]
    fn empty_text_has_no_tokens_and_any_other_text_has_some() {
        assert_eq!(EstimateCounter.count(""), 0);
        for text in ["a", " ", "\n", "7", "é", "€", "😀", ".", "\u{0}"] {
            assert!(EstimateCounter.count(text) >= 1, "{text:?}");
        }
    }
}
