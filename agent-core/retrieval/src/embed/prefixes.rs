//! Prefixes that embedding models were trained with.

use std::borrow::Cow;

use super::role::EmbedRole;

/// The texts that a model expects in front of questions and of documents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prefixes {
    query: &'static str,
    document: &'static str,
}

/// Prefix of the questions of several models that were trained on the same task.
const SEARCHING: &str = "Represent this sentence for searching relevant passages: ";

/// Beginnings of models' names in lower case with the prefixes; the first that fits counts.
const KNOWN: [(&str, Prefixes); 11] = [
    ("nomic-embed-text", Prefixes { query: "search_query: ", document: "search_document: " }),
    ("snowflake-arctic-embed2", Prefixes { query: "query: ", document: "" }),
    ("snowflake-arctic-embed-l-v2", Prefixes { query: "query: ", document: "" }),
    ("snowflake-arctic-embed-m-v2", Prefixes { query: "query: ", document: "" }),
    ("snowflake-arctic-embed", Prefixes { query: SEARCHING, document: "" }),
    ("mxbai-embed-large", Prefixes { query: SEARCHING, document: "" }),
    ("bge-small-en", Prefixes { query: SEARCHING, document: "" }),
    ("bge-base-en", Prefixes { query: SEARCHING, document: "" }),
    ("bge-large-en", Prefixes { query: SEARCHING, document: "" }),
    ("embeddinggemma", Prefixes { query: "task: search result | query: ", document: "title: none | text: " }),
    (
        "qwen3-embedding",
        Prefixes {
            query: "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:",
            document: "",
        },
    ),
];

/// Beginnings of the names of E5 models. Those that take instructions have other prefixes.
const E5: [&str; 4] = ["e5-small", "e5-base", "e5-large", "multilingual-e5-"];

impl Prefixes {
    /// Returns the prefixes of a model by its name, with or without the owner in front and a tag behind, as in
    /// `intfloat/multilingual-e5-small` and `nomic-embed-text:latest`. Models that are not known have none.
    pub fn of_model(name: &str) -> Self {
        let name = name.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        if E5.iter().any(|e5| name.starts_with(e5)) && !name.contains("instruct") {
            return Self { query: "query: ", document: "passage: " };
        }
        let entry = KNOWN.iter().find(|(beginning, _)| name.starts_with(beginning));
        entry.map(|(_, prefixes)| prefixes.clone()).unwrap_or_default()
    }

    /// Returns the prefix of questions.
    pub fn query(&self) -> &str {
        self.query
    }

    /// Returns the prefix of documents.
    pub fn document(&self) -> &str {
        self.document
    }

    /// Returns a text with the prefix of its role.
    pub fn apply<'t>(&self, text: &'t str, role: EmbedRole) -> Cow<'t, str> {
        let prefix = match role {
            EmbedRole::Query => self.query,
            EmbedRole::Document => self.document,
        };
        if prefix.is_empty() { text.into() } else { [prefix, text].concat().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_recognized_by_their_names() {
        let cases = [
            ("text-embedding-3-small", "", ""),
            ("granite-embedding-97m-multilingual-r2", "", ""),
            ("nomic-embed-text:v1.5", "search_query: ", "search_document: "),
            ("intfloat/multilingual-e5-small", "query: ", "passage: "),
            ("multilingual-e5-large-instruct", "", ""),
            ("snowflake-arctic-embed:33m", SEARCHING, ""),
            ("Snowflake/snowflake-arctic-embed-l-v2.0", "query: ", ""),
            ("snowflake-arctic-embed2", "query: ", ""),
            ("BAAI/bge-small-en-v1.5", SEARCHING, ""),
            ("bge-m3", "", ""),
        ];
        for (name, query, document) in cases {
            let prefixes = Prefixes::of_model(name);
            assert_eq!((prefixes.query(), prefixes.document()), (query, document), "{name}");
            assert_eq!(prefixes.apply("x", EmbedRole::Query), format!("{query}x"));
            assert_eq!(prefixes.apply("x", EmbedRole::Document), format!("{document}x"));
        }
    }
}
