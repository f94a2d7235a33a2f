//! Preparation of prompts for a model of a few hundred million parameters.
//!
//! Such a model loses a fact among others, repeats text of its context, and invents the rest. So it reads
//! the operator's own text as the system prompt; of stored texts only the sentences that share words with the question;
//! no clock where nothing asks for the time; and the question last. A question that stored sentences answer is answered
//! with one of them: the model chooses which, see [`Quote`].

use agent_core::message::{Message, Role};
use agent_core::prompt::{Fragment, Prompt};

use crate::call::Quote;
use crate::intent::{have_common_stem, words};

/// Identifiers of the fragments about the caller, which is left out, and the time.
const CALLER_FRAGMENT: &str = "caller";
const CLOCK_FRAGMENT: &str = "time";
/// Words that ask for the present time.
const TIME_WORDS: [&str; 9] =
    ["clock", "date", "now", "time", "today", "tomorrow", "tonight", "week", "yesterday"];
/// First words of questions that may lack a question mark.
const QUESTION_WORDS: [&str; 20] = [
    "are", "can", "could", "did", "do", "does", "has", "have", "how", "is", "may", "must", "should", "what",
    "when", "where", "which", "who", "why", "will",
];
/// Stop words, which say nothing about the subject of a question.
const EMPTY_WORDS: [&str; 46] = [
    "about", "and", "any", "anything", "are", "before", "been", "but", "can", "could", "did", "does", "ever",
    "for", "from", "get", "give", "has", "have", "how", "into", "know", "many", "may", "much", "must",
    "need", "often", "please", "should", "some", "tell", "that", "the", "their", "them", "there", "this",
    "until", "was", "were", "will", "with", "would", "you", "your",
];
/// Maximum number of sentences in the context, and their maximum total length in characters.
const MAX_FACTS: usize = 4;
const MAX_FACT_CHARS: usize = 900;
/// Maximum length of a sentence, in characters. A longer one is left out.
const MAX_SENTENCE_CHARS: usize = 300;
/// Smallest share of a question's words, by weight, that a sentence must contain to answer it.
const MIN_COVERAGE: f32 = 0.3;
/// Scores of at least this share of the best one count as equal.
const TIE_RATIO: f32 = 0.8;
/// Share of a word's weight that counts if the word is only in the title of the sentence's document.
const TITLE_WEIGHT: f32 = 0.5;
/// Bonus, as a share, of a sentence with a figure for a question that asks for one.
const FIGURE_BONUS: f32 = 0.25;

/// Example turns in front of a question, so that the model answers in one sentence from the facts.
const EXAMPLES: [(&str, &str); 2] = [
    (
        "Facts:\n- The pool is heated.\n- Towels cost 2 euros.\n\nQuestion: How much is a towel?",
        "Towels cost 2 euros.",
    ),
    (
        "Facts:\n- The library lends films for a week.\n- Children read for free.\n\nQuestion: How long can I keep a film?",
        "The library lends films for a week.",
    ),
];

/// A prompt in the form that the model reads.
pub(crate) struct ShapedPrompt {
    /// System prompt.
    pub(crate) system: String,
    /// The conversation, the question last.
    pub(crate) messages: Vec<Message>,
    /// Sentences that answer the question; empty if the model is to answer in its own words.
    pub(crate) quotes: Vec<Quote>,
}

/// A sentence of a stored text.
struct Sentence<'a> {
    /// Index of the stored text.
    text: usize,
    title: &'a str,
    words: &'a str,
    score: f32,
}

/// Shapes a prompt. `is_latest` is true if the conversation ends with the user's message.
pub(crate) fn shape(prompt: &Prompt, is_latest: bool) -> ShapedPrompt {
    let question = prompt.latest_user_text().unwrap_or_default();
    let question = question.trim();
    let own = prompt.system_fragments().iter().filter(|fragment| fragment.origin.is_none());
    let own: Vec<&str> = own.map(|fragment| fragment.part.text()).collect();
    let system = own.join("\n\n");

    let stored: Vec<&Fragment> = prompt.system_fragments().iter().chain(prompt.turn_fragments()).collect();
    let mut sentences = split_sentences(&stored);
    let terms = content_words(question, &system);
    score_sentences(&mut sentences, &terms, asks_for_figure(question));
    let quotes = match is_latest && is_question(question) {
        true => select_quotes(&sentences),
        false => Vec::new(),
    };
    let clock = quotes.is_empty() && asks_for_clock(question);
    let user_text =
        context_of_turn(prompt, clock) + &format_question(question, &sentences, !quotes.is_empty());
    let mut messages: Vec<Message> =
        prompt.messages().iter().map(|message| message.original().clone()).collect();
    match messages.iter().rposition(|message| message.role == Role::User) {
        Some(latest) => {
            messages[latest] = Message::user(user_text);
            if !quotes.is_empty() {
                messages.splice(latest..latest, examples());
            }
        }
        None => messages.push(Message::user(user_text)),
    }
    ShapedPrompt { system, messages, quotes }
}

fn examples() -> impl Iterator<Item = Message> {
    EXAMPLES
        .into_iter()
        .flat_map(|(user, assistant)| [Message::user(user), Message::text(Role::Assistant, assistant)])
}

/// Returns the turn's own context, such as the page, without stored texts, and with the clock if `clock` is true.
fn context_of_turn(prompt: &Prompt, clock: bool) -> String {
    let is_read = |fragment: &&Fragment| {
        let id = &*fragment.id;
        fragment.origin.is_none() && id != CALLER_FRAGMENT && (clock || id != CLOCK_FRAGMENT)
    };
    let fragments = prompt.turn_fragments().iter().filter(is_read);
    fragments.map(|fragment| format!("{}\n\n", fragment.part.text())).collect()
}

/// Writes the question below the facts: the relevant sentences, or the first ones if none is relevant.
fn format_question(question: &str, sentences: &[Sentence<'_>], is_answered: bool) -> String {
    let mut shown: Vec<usize> = (0..sentences.len()).collect();
    shown.sort_by(|&a, &b| sentences[b].score.total_cmp(&sentences[a].score));
    if sentences.iter().any(|sentence| sentence.score > 0.0) {
        shown.retain(|&i| sentences[i].score > 0.0);
    }
    shown.truncate(MAX_FACTS);
    shown.sort_unstable();
    let (mut facts, mut chars) = (String::new(), 0);
    for i in shown {
        chars += sentences[i].words.chars().count();
        if chars <= MAX_FACT_CHARS {
            facts += &format!("- {}\n", sentences[i].words);
        }
    }
    match (facts.is_empty(), is_answered) {
        (true, _) => question.to_owned(),
        (false, true) => format!("Facts:\n{facts}\nQuestion: {question}"),
        (false, false) => format!("Facts:\n{facts}\n{question}"),
    }
}

/// Splits the stored texts into sentences and list items.
fn split_sentences<'a>(fragments: &[&'a Fragment]) -> Vec<Sentence<'a>> {
    let mut sentences = Vec::new();
    for (text, fragment) in fragments.iter().enumerate() {
        let Some(stored) = fragment.stored_text() else { continue };
        let title = fragment.origin.as_ref().and_then(|origin| origin.title.as_deref()).unwrap_or_default();
        for line in stored.lines() {
            let line = line.trim_start_matches(|c: char| c.is_whitespace() || "-*#>".contains(c));
            let ends = line.match_indices(['.', '!', '?']).map(|(at, end)| at + end.len());
            let ends = ends.filter(|&end| line[end..].starts_with(char::is_whitespace));
            let mut begin = 0;
            for end in ends.chain([line.len()]) {
                let words = line[begin..end].trim();
                begin = end;
                if !words.is_empty() && words.chars().count() <= MAX_SENTENCE_CHARS {
                    sentences.push(Sentence { text, title, words, score: 0.0 });
                }
            }
        }
    }
    sentences
}

/// Returns the content words of the question. The words of the operator's own prompt, such as the
/// company's name, are in every question and say nothing about it.
fn content_words(question: &str, system: &str) -> Vec<String> {
    let system_words = words(system);
    let mut terms = words(question);
    terms.retain(|word| !EMPTY_WORDS.contains(&word.as_str()) && !QUESTION_WORDS.contains(&word.as_str()));
    let is_in_system_prompt = |word: &String| system_words.contains(word);
    if !terms.iter().all(is_in_system_prompt) {
        terms.retain(|word| !is_in_system_prompt(word));
    }
    terms.sort();
    terms.dedup();
    terms
}

/// Scores each sentence by the share of the question's words that it contains. A word weighs more the fewer sentences
/// contain it.
fn score_sentences(sentences: &mut [Sentence<'_>], terms: &[String], asks_for_figure: bool) {
    let contains = |text: &[String], term: &String| text.iter().any(|word| have_common_stem(word, term));
    let texts: Vec<Vec<String>> = sentences.iter().map(|sentence| words(sentence.words)).collect();
    let weights: Vec<f32> = terms
        .iter()
        .map(|term| {
            let count = texts.iter().filter(|text| contains(text, term)).count() as f32;
            (1.0 + sentences.len() as f32 / (count + 0.5)).ln()
        })
        .collect();
    let total = weights.iter().sum::<f32>().max(f32::MIN_POSITIVE);
    for (sentence, text) in sentences.iter_mut().zip(&texts) {
        let title = words(sentence.title);
        let weigh = |(term, weight): (&String, &f32)| match (contains(text, term), contains(&title, term)) {
            (true, _) => *weight,
            (false, true) => weight * TITLE_WEIGHT,
            (false, false) => 0.0,
        };
        sentence.score = terms.iter().zip(&weights).map(weigh).sum::<f32>() / total;
        if asks_for_figure && sentence.words.contains(|c: char| c.is_ascii_digit()) {
            sentence.score *= 1.0 + FIGURE_BONUS;
        }
    }
}

/// Selects the answers that the model chooses from: for each stored text its best sentence, together with another one
/// that is about as good.
fn select_quotes(sentences: &[Sentence<'_>]) -> Vec<Quote> {
    let best = sentences.iter().map(|sentence| sentence.score).fold(0.0, f32::max);
    if best < MIN_COVERAGE {
        return Vec::new();
    }
    let mut quotes: Vec<(usize, Quote)> = Vec::new();
    for sentence in sentences.iter().filter(|sentence| sentence.score >= best * TIE_RATIO) {
        match quotes.iter_mut().find(|(text, _)| *text == sentence.text) {
            Some((_, quote)) if quote.text.len() + sentence.words.len() < MAX_SENTENCE_CHARS => {
                quote.text = format!("{} {}", quote.text, sentence.words);
            }
            Some(_) => {}
            None => quotes.push((sentence.text, Quote { text: sentence.words.to_owned() })),
        }
    }
    quotes.truncate(MAX_FACTS);
    quotes.into_iter().map(|(_, quote)| quote).collect()
}

fn asks_for_clock(question: &str) -> bool {
    words(question).iter().any(|word| TIME_WORDS.contains(&word.as_str()))
}

fn is_question(text: &str) -> bool {
    let first = text.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty());
    text.ends_with('?') || first.is_some_and(|word| QUESTION_WORDS.contains(&word.to_lowercase().as_str()))
}

/// Returns true if the question asks for a time, a price or an amount.
fn asks_for_figure(question: &str) -> bool {
    let question = question.to_lowercase();
    ["when", "what time", "how much", "how many", "how long", "how late", "how early"]
        .iter()
        .any(|phrase| question.contains(phrase))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_core::prompt::{Part, PromptMessage, Stability, StoredOrigin};

    use super::*;

    fn stored(id: &str, title: &str, text: &str) -> Fragment {
        let origin =
            StoredOrigin { title: Some(title.into()), text: 0..text.len(), ..StoredOrigin::default() };
        Fragment::new(id, "documents", Stability::Agent, Part::new(text)).with_origin(origin)
    }

    fn shaped(question: &str) -> ShapedPrompt {
        let role =
            Fragment::new("system-prompt", "role", Stability::Role, Part::new("You work at the Old Mill."));
        let hours = stored("doc:hours", "Opening hours", "The Old Mill opens at 8. It stays shut in winter.");
        let prices = stored("doc:prices", "Prices", "- Bread costs 3 euros.\n- Cake costs 4 euros.\n");
        let messages = vec![PromptMessage::new(Message::user(question))];
        shape(&Prompt::new(vec![role, hours, prices], messages), true)
    }

    #[test]
    fn a_question_is_answered_from_the_sentences_with_its_words() {
        for (question, expected) in [
            ("When does the Old Mill open?", &["The Old Mill opens at 8."][..]),
            ("Can I visit in winter?", &["It stays shut in winter."]),
            ("What does a cake cost?", &["Cake costs 4 euros."]),
            ("what do you cost", &["Bread costs 3 euros. Cake costs 4 euros."]),
            ("Who painted the ceiling of the chapel in Rome?", &[]),
            ("Write a poem about cake.", &[]),
        ] {
            let shaped = shaped(question);
            let quotes: Vec<&str> = shaped.quotes.iter().map(|quote| quote.text.as_str()).collect();
            assert_eq!(quotes, expected, "{question}");
            let last = shaped.messages.last().expect("a message").content.to_text().into_owned();
            assert!(last.ends_with(question), "the question is last: {last}");
            assert!(
                expected
                    .iter()
                    .all(|quote| quote.split(". ").all(|fact| last.contains(fact.trim_end_matches('.'))))
            );
            assert_eq!(
                shaped.messages.len() > 1,
                !expected.is_empty(),
                "examples precede a question with facts"
            );
            assert_eq!(shaped.system, "You work at the Old Mill.");
        }
    }

    #[test]
    fn only_relevant_facts_are_kept() {
        let last = |question: &str| {
            shaped(question).messages.pop().expect("a message").content.to_text().into_owned()
        };
        let asked = last("What does a cake cost?");
        assert!(asked.contains("Cake costs") && !asked.contains("winter"), "{asked}");
        // Without any match the first sentences are shown.
        assert!(last("Hello!").starts_with("Facts:\n- The Old Mill opens at 8.\n"));
    }

    #[test]
    fn the_clock_is_read_where_the_question_is_about_time() {
        let turn =
            |id: &'static str| Fragment::new(id, "caller", Stability::Turn, Part::new(format!("## {id}")));
        let cache = agent_core::prompt::PartCache::default();
        for (question, expected) in
            [("Hello", "## page\n\nHello"), ("What time is it?", "## time\n\n## page\n\nWhat time is it?")]
        {
            let prompt = agent_core::prompt::assemble(agent_core::prompt::AssemblyInput {
                fragments: vec![turn("caller"), turn("time"), turn("page")],
                history: vec![PromptMessage::new(Message::user(question))],
                tools: &[],
                budget: agent_core::budget::TokenBudget { max_prompt_tokens: 1_000 },
                counter: Arc::new(agent_core::budget::EstimateCounter),
                retrieval: Default::default(),
                cache: &cache,
                history_report: None,
            })
            .expect("it fits");
            let shaped = shape(&prompt, true);
            assert_eq!(shaped.messages.last().expect("a message").content.to_text(), expected);
        }
    }
}
