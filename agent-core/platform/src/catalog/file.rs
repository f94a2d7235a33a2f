//! Files of the catalogue.

use std::num::NonZeroU32;

use jiff::civil::Date;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::entry::{CatalogModel, InputModality, ModelPrice, ReasoningOption, StructuredOutput, TokenPrices};
use crate::amount::NanoUsd;

/// Maximum size of a file in bytes.
pub(super) const MAX_FILE_BYTES: usize = 1 << 20;
/// Largest price.
const MAX_PRICE: NanoUsd = NanoUsd::new(10_000_000_000_000);

/// Error of a file of the catalogue.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The file is too large.
    #[error("the file has more than {MAX_FILE_BYTES} bytes")]
    TooLarge,
    /// The file is not JSON of the expected form.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The date is missing or malformed.
    #[error("asOf must be a date such as 2026-01-31")]
    Date,
    /// A price is malformed.
    #[error("the price {member} of the model {model:?} must be a decimal number of dollars from 0 to 10000")]
    Price {
        /// Model.
        model: String,
        /// Member of the prices.
        member: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CatalogFile {
    as_of: String,
    models: Vec<ModelText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ModelText {
    provider: String,
    model: String,
    context_window: Option<NonZeroU32>,
    max_output_tokens: Option<NonZeroU32>,
    input: Option<Vec<InputModality>>,
    tools: Option<bool>,
    structured: Option<StructuredOutput>,
    reasoning: Option<Vec<ReasoningOption>>,
    prices: Option<PriceTexts>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PriceTexts {
    input: String,
    cached_input: Option<String>,
    cache_write: Option<String>,
    output: String,
}

impl PriceTexts {
    /// Parses the prices.
    fn parse(&self, model: &str) -> Result<TokenPrices, CatalogError> {
        let parse = |member: &'static str, text: &str| {
            parse_price(text).ok_or_else(|| CatalogError::Price { model: model.to_owned(), member })
        };
        let part = |member, text: &Option<String>| text.as_ref().map(|text| parse(member, text)).transpose();
        let input = parse("input", &self.input)?;
        let cached_input = part("cachedInput", &self.cached_input)?;
        let cache_write = part("cacheWrite", &self.cache_write)?;
        Ok(token_prices(input, cached_input, cache_write, parse("output", &self.output)?))
    }
}

fn parse_price(text: &str) -> Option<NanoUsd> {
    NanoUsd::parse(text).ok().filter(|amount| *amount <= MAX_PRICE)
}

/// Returns the prices of a model. Cached tokens without a separate price cost as much as others.
fn token_prices(
    input: NanoUsd,
    cached_input: Option<NanoUsd>,
    cache_write: Option<NanoUsd>,
    output: NanoUsd,
) -> TokenPrices {
    let (cached_input, cache_write) = (cached_input.unwrap_or(input), cache_write.unwrap_or(input));
    TokenPrices { input, cached_input, cache_write, output }
}

impl ModelText {
    fn read(self, as_of: &str) -> Result<CatalogModel, CatalogError> {
        let prices = self.prices.map(|prices| prices.parse(&self.model)).transpose()?;
        Ok(CatalogModel {
            price: prices.map(|prices| ModelPrice { prices, as_of: as_of.to_owned() }),
            provider: self.provider,
            model: self.model,
            context_window: self.context_window,
            max_output_tokens: self.max_output_tokens,
            input: self.input,
            tools: self.tools,
            structured: self.structured,
            reasoning: self.reasoning,
        })
    }
}

/// Names of the prices of a model. The first and the last are required.
const PRICE_NAMES: [&str; 4] = ["input", "cachedInput", "cacheWrite", "output"];

/// Reads prices by their names.
///
/// # Errors
/// The members that are unknown, missing or not prices.
pub(super) fn read_prices(members: &Map<String, Value>) -> Result<TokenPrices, Vec<CatalogEntryError>> {
    let fault =
        |path: &str, message: &str| CatalogEntryError { path: path.to_owned(), message: message.to_owned() };
    let unknown = members.keys().filter(|name| !PRICE_NAMES.contains(&name.as_str()));
    let message = format!("is not the name of a price: expected one of {}", PRICE_NAMES.join(", "));
    let mut faults: Vec<_> = unknown.map(|name| fault(name, &message)).collect();
    let [input, cached_input, cache_write, output] = PRICE_NAMES.map(|name| {
        let amount = members.get(name)?.as_str().and_then(parse_price);
        if amount.is_none() {
            faults.push(fault(
                name,
                "must be a text with a decimal number of dollars from 0 to 10000, such as \"0.25\"",
            ));
        }
        amount
    });
    for name in ["input", "output"] {
        if !members.contains_key(name) {
            faults.push(fault(name, "is missing"));
        }
    }
    match (input, output) {
        (Some(input), Some(output)) if faults.is_empty() => {
            Ok(token_prices(input, cached_input, cache_write, output))
        }
        _ => Err(faults),
    }
}

/// Error of a model's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CatalogEntryError {
    /// Path of the member; empty for the entry itself.
    pub(crate) path: String,
    /// Description, worded to follow the path. It does not repeat the value.
    pub(crate) message: String,
}

/// Reads one entry with the members that files have, with the date of its prices.
pub(super) fn read_entry(entry: &Map<String, Value>, as_of: &str) -> Result<CatalogModel, CatalogEntryError> {
    let text: ModelText =
        serde_path_to_error::deserialize(Value::Object(entry.clone())).map_err(|error| {
            let path = error.path().to_string();
            let message = error.inner().to_string();
            let message = match message.rsplit_once(", expected ") {
                Some((_, expected)) => format!("must be {expected}"),
                None if message.starts_with("missing field") => format!("has a {message}"),
                None => "is not valid".to_owned(),
            };
            CatalogEntryError { path: if path == "." { String::new() } else { path }, message }
        })?;
    text.read(as_of).map_err(|error| match error {
        CatalogError::Price { member, .. } => CatalogEntryError {
            path: format!("prices.{member}"),
            message: "must be a decimal number of dollars from 0 to 10000".to_owned(),
        },
        _ => CatalogEntryError { path: String::new(), message: "is not valid".to_owned() },
    })
}

/// Reads the date and the models of a file.
///
/// # Errors
/// [`CatalogError`].
pub(super) fn parse(text: &str) -> Result<(Date, Vec<CatalogModel>), CatalogError> {
    if text.len() > MAX_FILE_BYTES {
        return Err(CatalogError::TooLarge);
    }
    let CatalogFile { as_of, models } = serde_json::from_str(text)?;
    let date = as_of.parse::<Date>().map_err(|_| CatalogError::Date)?;
    let models = models.into_iter().map(|text| text.read(&as_of));
    Ok((date, models.collect::<Result<_, CatalogError>>()?))
}
