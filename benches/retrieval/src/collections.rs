//! Public test collections: documents, queries and relevance judgements.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Deserialize;

/// A document of a collection.
pub(crate) struct Document {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) text: String,
}

/// A query with the identifiers of the relevant documents.
pub(crate) struct Judged {
    pub(crate) text: String,
    pub(crate) relevant: BTreeSet<String>,
}

/// Documents with judged queries.
pub(crate) struct Collection {
    pub(crate) documents: Vec<Document>,
    pub(crate) queries: Vec<Judged>,
}

impl Collection {
    /// Keeps the first passages, and the queries to which some of them are relevant.
    pub(crate) fn keep_first(&mut self, passages: usize) {
        self.documents.truncate(passages);
        let kept: BTreeSet<&str> = self.documents.iter().map(|document| document.id.as_str()).collect();
        for query in &mut self.queries {
            query.relevant.retain(|id| kept.contains(id.as_str()));
        }
        self.queries.retain(|query| !query.relevant.is_empty());
    }
}

/// Name of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CollectionName {
    /// 240 passages of XQuAD in English.
    XquadEn,
    /// The same passages in German.
    XquadDe,
    /// 1,460 abstracts.
    Cisi,
    /// 11,426 very short texts.
    Npl,
}

impl CollectionName {
    /// All collections, in the order of their measurement.
    pub(crate) const ALL: [Self; 4] = [Self::XquadEn, Self::XquadDe, Self::Cisi, Self::Npl];

    /// Returns the name in the table of results.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::XquadEn => "xquad en",
            Self::XquadDe => "xquad de",
            Self::Cisi => "cisi",
            Self::Npl => "npl",
        }
    }

    /// Reads the collection.
    pub(crate) fn read(self, folder: &Path) -> Result<Collection> {
        match self {
            Self::XquadEn => xquad(folder, "en"),
            Self::XquadDe => xquad(folder, "de"),
            Self::Cisi => cisi(folder),
            Self::Npl => npl(folder),
        }
    }
}

/// Reads CISI: 1,460 abstracts, 76 judged queries.
pub(crate) fn cisi(folder: &Path) -> Result<Collection> {
    let documents = dot_records(&read(folder, "CISI.ALL")?)
        .into_iter()
        .map(|(id, mut fields)| Document {
            id,
            title: fields.remove("T").unwrap_or_default(),
            text: fields.remove("W").unwrap_or_default(),
        })
        .collect();
    let mut relevant: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in read(folder, "CISI.REL")?.lines() {
        let mut words = line.split_whitespace().map(str::to_owned);
        if let (Some(query), Some(document)) = (words.next(), words.next()) {
            relevant.entry(query).or_default().insert(document);
        }
    }
    let queries = dot_records(&read(folder, "CISI.QRY")?)
        .into_iter()
        .filter_map(|(id, mut fields)| {
            let text = format!(
                "{} {}",
                fields.remove("T").unwrap_or_default(),
                fields.remove("W").unwrap_or_default()
            );
            Some(Judged { text, relevant: relevant.remove(&id)? })
        })
        .collect();
    Ok(Collection { documents, queries })
}

/// Reads records that begin with `.I` and whose fields begin with a dot and a letter.
fn dot_records(text: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let mut records: Vec<(String, BTreeMap<String, String>)> = Vec::new();
    let mut field = String::new();
    for line in text.lines() {
        if let Some(id) = line.strip_prefix(".I ") {
            records.push((id.trim().to_owned(), BTreeMap::new()));
        } else if line.starts_with('.') && line.trim_end().len() == 2 {
            field = line[1..2].to_owned();
        } else if let Some((_, fields)) = records.last_mut() {
            let content = fields.entry(field.clone()).or_default();
            content.push_str(line);
            content.push('\n');
        }
    }
    records
}

/// Reads NPL: 11,426 very short texts, 93 queries.
pub(crate) fn npl(folder: &Path) -> Result<Collection> {
    let records = |name: &str| -> Result<Vec<(String, String)>> {
        let text = read(folder, name)?;
        Ok(text
            .split('/')
            .filter_map(|record| {
                let (id, text) = record.trim().split_once('\n')?;
                Some((id.trim().to_owned(), text.trim().to_owned()))
            })
            .collect())
    };
    let documents = records("npl_doc-text")?
        .into_iter()
        .map(|(id, text)| Document { id, title: String::new(), text })
        .collect();
    let relevant: BTreeMap<String, BTreeSet<String>> = records("npl_rlv-ass")?
        .into_iter()
        .map(|(id, list)| (id, list.split_whitespace().map(str::to_owned).collect()))
        .collect();
    let queries = records("npl_query-text")?
        .into_iter()
        // The queries are in capitals, which are not acronyms.
        .map(|(id, text)| Judged {
            text: text.to_lowercase(),
            relevant: relevant.get(&id).cloned().unwrap_or_default(),
        })
        .filter(|query| !query.relevant.is_empty())
        .collect();
    Ok(Collection { documents, queries })
}

#[derive(Deserialize)]
struct Squad {
    data: Vec<Article>,
}

#[derive(Deserialize)]
struct Article {
    #[serde(default)]
    title: String,
    paragraphs: Vec<Paragraph>,
}

#[derive(Deserialize)]
struct Paragraph {
    context: String,
    qas: Vec<Question>,
}

#[derive(Deserialize)]
struct Question {
    question: String,
}

/// Reads XQuAD in a language: 240 passages, 1,190 questions, each with one relevant passage.
pub(crate) fn xquad(folder: &Path, language: &str) -> Result<Collection> {
    let squad: Squad = serde_json::from_str(&read(folder, &format!("xquad.{language}.json"))?)?;
    let mut collection = Collection { documents: Vec::new(), queries: Vec::new() };
    for article in squad.data {
        for paragraph in article.paragraphs {
            let id = format!("{:04}", collection.documents.len());
            for question in paragraph.qas {
                collection.queries.push(Judged { text: question.question, relevant: [id.clone()].into() });
            }
            let title = article.title.replace('_', " ");
            collection.documents.push(Document { id, title, text: paragraph.context });
        }
    }
    Ok(collection)
}

fn read(folder: &Path, name: &str) -> Result<String> {
    let path = folder.join(name);
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
