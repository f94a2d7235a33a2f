use proptest::prelude::*;

use super::*;

fn terms(language: Language, text: &str) -> Vec<String> {
    let mut analyzer = Analyzer::new(language);
    let mut numbers = Vec::new();
    analyzer.append_terms(text, &mut numbers);
    numbers.iter().map(|&number| analyzer.terms()[number as usize].to_string()).collect()
}

fn english(text: &str) -> String {
    terms(Language::English, text).join(" ")
}

#[test]
fn identifiers_are_indexed_whole_and_in_parts() {
    assert_eq!(english("DiffExecutor"), "diffexecutor diff executor");
    assert_eq!(english("diff_executor"), "diffexecutor diff executor");
    assert_eq!(english("HTTPServer2"), "httpserver2 http server 2");
    assert_eq!(english("config.retryLimit"), "config.retrylimit config retri limit");
    assert_eq!(english("PDFs"), "pdfs");
    assert_eq!(english("iPhone"), "iphon i phone");
}

#[test]
fn abbreviations_are_one_term() {
    assert_eq!(english("the U.K. or UK, U.S.A.'s"), "the uk or uk usa s");
    assert_eq!(terms(Language::German, "z.B. É.N.A."), ["zb", "ena"]);
    assert_eq!(english("Ph.D. a.b.com"), "ph.d ph d a.b.com a b com");
}

#[test]
fn abbreviations_like_function_words_are_indexed_with_their_dots() {
    assert_eq!(english("U.S. US I.T. a.m."), "us u.s us it i.t am a.m");
    assert_eq!(english("e.g. i.e. eg ie"), "eg e.g ie i.e eg ie");
    let is_stop_term = |term: &&str| Language::English.is_stop_term(term);
    let found: Vec<&str> =
        ["us", "u.s", "am", "a.m", "eg", "e.g", "ie", "i.e"].into_iter().filter(is_stop_term).collect();
    assert_eq!(found, ["us", "am", "eg", "e.g", "ie", "i.e"]);
    assert!(!Language::German.is_stop_term("eg"));
}

#[test]
fn words_with_apostrophes_lose_the_short_parts() {
    assert_eq!(english("the user's files"), "the user file");
    assert_eq!(terms(Language::French, "l’homme"), ["homm"]);
    assert_eq!(english("I'm"), "im");
}

#[test]
fn numbers_are_one_term() {
    assert_eq!(english("192.168.0.1 3.14 1,000"), "192.168.0.1 3.14 1000");
}

#[test]
fn case_marks_and_compatibility_forms_are_folded() {
    assert_eq!(english("Ｆｕｌｌ ﬁne CAFÉ naïve"), "full fine cafe naiv");
    assert_eq!(terms(Language::German, "Straße Häuser"), ["strass", "haus"]);
    assert_eq!(terms(Language::Turkish, "IŞIK İstanbul"), ["isik", "istanbul"]);
    assert_eq!(terms(Language::Other, "Łódź smørrebrød Æsir"), ["lodz", "smorrebrod", "aesir"]);
}

#[test]
fn marks_that_distinguish_letters_stay() {
    assert_eq!(terms(Language::Other, "май маи ёлка"), ["май", "маи", "елка"]);
    assert_eq!(terms(Language::Other, "が か"), ["が", "か"]);
    assert_eq!(terms(Language::Other, "हिन्दी"), ["हिन्दी"]);
}

#[test]
fn invisible_characters_do_not_hide_words() {
    assert_eq!(
        english("pass\u{200b}wo\u{ad}rd \u{202e}sec\u{0}ret\u{2066} t\u{e0041}ag"),
        "password secret tag"
    );
    assert_eq!(visible_text("a\tb\nc"), "a\tb\nc");
    assert_eq!(visible_text("\u{feff}a\u{1b}[0m"), "a[0m");
}

#[test]
fn scripts_without_spaces_give_pairs_of_characters() {
    assert_eq!(terms(Language::Other, "搜索引擎 v2"), ["搜索", "索引", "引擎", "v2", "v", "2"]);
    assert_eq!(terms(Language::Other, "茶"), ["茶"]);
    assert_eq!(terms(Language::Other, "ไทย"), ["ไท", "ทย"]);
    assert_eq!(terms(Language::Other, "データ"), ["デー", "ータ"]);
}

#[test]
fn latin_words_in_other_scripts_are_stemmed_as_english() {
    assert_eq!(terms(Language::Russian, "установка installing"), ["установк", "instal"]);
}

#[test]
fn the_language_of_a_document_is_detected() {
    let cases = [
        ("The committee has decided to postpone the meeting until the end of next week.", Language::English),
        (
            "Der Ausschuss hat beschlossen, die Sitzung auf das Ende der nächsten Woche zu verschieben.",
            Language::German,
        ),
        ("Le comité a décidé de reporter la réunion à la fin de la semaine prochaine.", Language::French),
        ("Комитет решил отложить заседание до конца следующей недели.", Language::Russian),
        ("Komite toplantıyı gelecek haftanın sonuna kadar ertelemeye karar verdi.", Language::Turkish),
        ("委员会决定将会议推迟到下周末。", Language::Other),
        ("Die Pumpe ist defekt und wird ersetzt.", Language::German),
        ("circuit details are given for the construction of a unit", Language::English),
        ("ok", Language::English),
        ("", Language::Other),
        ("1234 5678", Language::Other),
    ];
    for (text, language) in cases {
        assert_eq!(Language::detect(text), language, "{text}");
    }
}

#[test]
fn codes_of_languages_are_their_positions() {
    for (code, &language) in Language::ALL.iter().enumerate() {
        assert_eq!(language as usize, code);
        assert_eq!(Language::from_code(code as u8), Some(language));
        assert!(
            language == Language::Other || stop_words::lookup(language.iso_code()).is_some(),
            "{language:?}"
        );
    }
    assert_eq!(Language::from_code(Language::ALL.len() as u8), None);
}

#[test]
fn term_hashes_are_stable() {
    assert_eq!(
        format!("{:016x} {:016x}", term_hash(""), term_hash("retriev")),
        "d1fba762150c532c 0640202eb843aa4b"
    );
}

#[test]
fn hostile_texts_give_bounded_terms() {
    let word = "x".repeat(10_000_000);
    let found = terms(Language::English, &word);
    assert_eq!(found.len(), 1);
    assert!(found[0].len() <= MAX_TERM_BYTES);
    for unit in
        ["a.", "aA", "a1", "a'", "\u{200b}", "e\u{301}", "\u{301}", "漢", "\u{fdfa}", "_", "\u{1f1e6}", "ก็"]
    {
        let text = unit.repeat(100_000);
        let found = terms(Language::English, &text);
        assert!(found.iter().all(|term| term.len() <= MAX_TERM_BYTES && !term.is_empty()), "{unit:?}");
        assert!(found.len() <= 2_000_000, "{unit:?} gives {} terms", found.len());
    }
}

proptest! {
    #[test]
    fn any_text_in_any_language_gives_bounded_terms(text in "(?s:.{0,200})", language in 0..Language::ALL.len()) {
        for term in terms(Language::ALL[language], &text) {
            prop_assert!(!term.is_empty() && term.len() <= MAX_TERM_BYTES);
        }
        Language::detect(&text);
    }

    /// The stemmers cut strings at computed places, so letters of every script of a stemmer are tried.
    #[test]
    fn stemmers_take_any_letters(
        words in "([a-zéäöüßñçşığåøæő']{1,20} |[а-яё]{1,20} |[α-ωάέήίόύώ]{1,20} |[\u{620}-\u{64a}]{1,20} |[\u{b85}-\u{bcd}]{1,20} ){1,8}",
        language in 0..Language::ALL.len(),
    ) {
        terms(Language::ALL[language], &words);
    }

    #[test]
    fn analysis_does_not_depend_on_invisible_characters(words in "[a-z]{1,8}( [a-z]{1,8}){0,4}", at in 0_usize..20) {
        let mut hidden = words.clone();
        hidden.insert(at.min(words.len()), '\u{200b}');
        prop_assert_eq!(english(&words), english(&hidden));
    }
}
