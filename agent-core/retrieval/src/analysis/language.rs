//! Languages: detection, stemmers and stop words.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};
use unicode_segmentation::UnicodeSegmentation;
use whatlang::{Lang, Script};

use super::fold::{lowercase, strip_marks};
use super::term::truncate_term;

/// Bytes of each of the three parts of a text (start, middle, end) that detection reads.
const SAMPLE_BYTES: usize = 600;
/// Minimum confidence of a detection by the frequencies of letters.
const MIN_CONFIDENCE: f64 = 0.9;

/// Declares the languages with a Snowball stemmer: name, code in stored indexes, ISO 639-1 code, language of whatlang.
macro_rules! languages {
    ($($name:ident = $code:literal, $iso:literal, $detected:ident;)*) => {
        /// The language of the stemmer for the words of a document.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Language {
            /// A language without a stemmer, or none: words stay as they are.
            #[default]
            Other = 0,
            $(
                #[doc = stringify!($name)]
                $name = $code,
            )*
        }

        impl Language {
            /// Every language, in the order of the codes.
            pub(crate) const ALL: &'static [Self] = &[Self::Other, $(Self::$name),*];

            /// Returns the ISO 639-1 code, or `und` for [`Language::Other`].
            pub fn iso_code(self) -> &'static str {
                match self {
                    Self::Other => "und",
                    $(Self::$name => $iso,)*
                }
            }

            fn algorithm(self) -> Option<Algorithm> {
                match self {
                    Self::Other => None,
                    $(Self::$name => Some(Algorithm::$name),)*
                }
            }

            fn from_detected(language: Lang) -> Self {
                match language {
                    $(Lang::$detected => Self::$name,)*
                    _ => Self::Other,
                }
            }
        }
    };
}

languages! {
    Arabic = 1, "ar", Ara;
    Danish = 2, "da", Dan;
    Dutch = 3, "nl", Nld;
    English = 4, "en", Eng;
    Finnish = 5, "fi", Fin;
    French = 6, "fr", Fra;
    German = 7, "de", Deu;
    Greek = 8, "el", Ell;
    Hungarian = 9, "hu", Hun;
    Italian = 10, "it", Ita;
    Norwegian = 11, "no", Nob;
    Portuguese = 12, "pt", Por;
    Romanian = 13, "ro", Ron;
    Russian = 14, "ru", Rus;
    Spanish = 15, "es", Spa;
    Swedish = 16, "sv", Swe;
    Tamil = 17, "ta", Tam;
    Turkish = 18, "tr", Tur;
}

impl Language {
    /// Detects the language of a document from samples of its text.
    ///
    /// The language whose function words are clearly the most frequent is taken, which needs a few words only; else
    /// the one that the frequencies of letters give with confidence. A text that is too short or too mixed for both has the
    /// most frequent language of its script: English for Latin letters, Russian for Cyrillic ones.
    pub fn detect(text: &str) -> Self {
        let sample = sample(text);
        if let Some(language) = Self::by_function_words(&sample) {
            return language;
        }
        let Some(info) = whatlang::detect(&sample) else {
            return Self::Other;
        };
        if info.confidence() >= MIN_CONFIDENCE {
            return Self::from_detected(info.lang());
        }
        match info.script() {
            Script::Latin => Self::English,
            Script::Cyrillic => Self::Russian,
            Script::Arabic => Self::Arabic,
            _ => Self::from_detected(info.lang()),
        }
    }

    /// Returns the language whose function words make up at least a fifth of the text's words and outnumber those of every other
    /// language by two and by a third.
    fn by_function_words(text: &str) -> Option<Self> {
        static WORDS: LazyLock<Vec<HashSet<&'static str>>> = LazyLock::new(|| {
            Language::ALL.iter().map(|language| language.function_words().collect()).collect()
        });
        let mut counts = vec![0_usize; Self::ALL.len()];
        let mut total = 0;
        for word in text.unicode_words() {
            let word = word.to_lowercase();
            total += 1;
            for (count, words) in counts.iter_mut().zip(&*WORDS) {
                *count += usize::from(words.contains(word.as_str()));
            }
        }
        let max_count = counts.iter().copied().max().filter(|&max_count| max_count * 5 >= total)?;
        let is_close = |count: usize| count + 2 > max_count || count * 4 > max_count * 3;
        let mut candidates =
            Self::ALL.iter().zip(&counts).filter(|(_, count)| **count == max_count || is_close(**count));
        candidates
            .next()
            .filter(|_| max_count >= 2 && candidates.next().is_none())
            .map(|(&language, _)| language)
    }

    fn function_words(self) -> impl Iterator<Item = &'static str> {
        // The English list has no abbreviations, and of all personal pronouns lacks *us*.
        let missing: &'static [&'static str] = match self {
            Self::English => &["e.g", "eg", "i.e", "ie", "us"],
            _ => &[],
        };
        stop_words::lookup(self.iso_code()).unwrap_or_default().iter().chain(missing).copied()
    }

    /// Returns the bit of this language in a set of languages.
    pub(crate) fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Returns the language of a code in a stored index.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// Returns true if a term is that of a function word of this language.
    pub(crate) fn is_stop_term(self, term: &str) -> bool {
        static STOP_TERMS: LazyLock<Vec<HashSet<String>>> = LazyLock::new(|| {
            let terms = |&language: &Language| {
                let stemming = Stemming::new(language);
                language.function_words().map(|word| stemming.term(word)).collect()
            };
            Language::ALL.iter().map(terms).collect()
        });
        STOP_TERMS[self as usize].contains(term)
    }

    /// Returns true if the language is written in the Latin alphabet, or is unknown.
    fn is_latin(self) -> bool {
        !matches!(self, Self::Arabic | Self::Greek | Self::Russian | Self::Tamil)
    }

    /// Returns true if a word is written in the language's script.
    fn writes(self, word: &str) -> bool {
        let range = match self {
            Self::Arabic => '\u{600}'..='\u{6ff}',
            Self::Greek => '\u{370}'..='\u{3ff}',
            Self::Russian => '\u{400}'..='\u{4ff}',
            Self::Tamil => '\u{b80}'..='\u{bff}',
            _ => 'a'..='\u{24f}',
        };
        word.chars().all(|character| range.contains(&character))
    }
}

/// Returns the start, the middle and the end of a text, or all of a short one.
fn sample(text: &str) -> Cow<'_, str> {
    if text.len() <= 3 * SAMPLE_BYTES {
        return Cow::Borrowed(text);
    }
    let starts = [0, text.len() / 2, text.len() - SAMPLE_BYTES];
    let samples = starts.map(|start| {
        let start = text.floor_char_boundary(start);
        &text[start..text.floor_char_boundary(start + SAMPLE_BYTES)]
    });
    Cow::Owned(samples.join("\n"))
}

/// Converts single words to terms: lowercases, stems and strips marks.
pub(super) struct Stemming {
    language: Language,
    stemmer: Option<Stemmer>,
    /// Stemmer of Latin words in a document of another script: names, code and borrowed words are mostly English.
    latin: Option<Stemmer>,
}

impl Stemming {
    pub(super) fn new(language: Language) -> Self {
        Self {
            language,
            stemmer: language.algorithm().map(Stemmer::create),
            latin: (!language.is_latin()).then(|| Stemmer::create(Algorithm::English)),
        }
    }

    /// Returns the term of a word or of a part of it.
    pub(super) fn term(&self, word: &str) -> String {
        let mut lower = lowercase(word, self.language == Language::Turkish);
        truncate_term(&mut lower);
        let stemmer = match &self.stemmer {
            Some(stemmer) if self.language.writes(&lower) => Some(stemmer),
            _ => self.latin.as_ref().filter(|_| Language::English.writes(&lower)),
        };
        match stemmer {
            Some(stemmer) => strip_marks(&stemmer.stem(&lower)).into_owned(),
            None => strip_marks(&lower).into_owned(),
        }
    }
}
