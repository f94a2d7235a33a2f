//! Prices of models.

use std::collections::HashMap;

use serde::Deserialize;

use super::{NanoUsd, TokenCounts};

/// The table that is compiled in.
const SHIPPED_PRICES: &str = include_str!("prices.json");
/// Maximum size of a price file in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;
/// Name that stands for all models of a provider without a price of their own.
const ANY_MODEL: &str = "*";
/// Largest price.
const MAX_PRICE: NanoUsd = NanoUsd::new(10_000_000_000_000);
/// Largest price of one call. Thousands of calls at it can be summed up.
const MAX_CALL_COST: NanoUsd = NanoUsd::new(1_000_000_000_000_000);
/// Number of tokens that prices are for.
const TOKENS_PER_PRICE: i128 = 1_000_000;

/// Prices of a model, in dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenPrices {
    /// Input tokens.
    pub input: NanoUsd,
    /// Input tokens read from the provider's cache.
    pub cached_input: NanoUsd,
    /// Input tokens written to the provider's cache.
    pub cache_write: NanoUsd,
    /// Output tokens.
    pub output: NanoUsd,
}

impl TokenPrices {
    /// Returns the price of tokens, rounded up to a nano-dollar.
    pub fn cost(&self, tokens: &TokenCounts) -> NanoUsd {
        let cached = tokens.cached_input_tokens.min(tokens.input_tokens);
        let written = tokens.cache_write_tokens.min(tokens.input_tokens - cached);
        let parts = [
            (tokens.input_tokens - cached - written, self.input),
            (cached, self.cached_input),
            (written, self.cache_write),
            (tokens.output_tokens, self.output),
        ];
        // At most 2⁶⁴ × 2⁶³ for each part.
        let sum = parts.into_iter().fold(0i128, |sum, (tokens, price)| {
            sum.saturating_add(i128::from(tokens).saturating_mul(price.get().into()))
        });
        let nanos = sum.saturating_add(TOKENS_PER_PRICE - 1) / TOKENS_PER_PRICE;
        NanoUsd::new(i64::try_from(nanos).unwrap_or(i64::MAX)).min(MAX_CALL_COST)
    }
}

/// Price of a model with its date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPrice {
    /// The prices.
    pub prices: TokenPrices,
    /// Date of the prices.
    pub as_of: String,
}

/// Error of a price file.
#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    /// The file is too large.
    #[error("the file has more than {MAX_FILE_BYTES} bytes")]
    TooLarge,
    /// The file is no JSON of the expected form.
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

/// Prices by provider and model.
#[derive(Debug, Clone)]
pub struct PriceTable {
    models: HashMap<String, HashMap<String, ModelPrice>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PriceFile {
    as_of: String,
    models: Vec<PricedModel>,
}

#[derive(Deserialize)]
struct PricedModel {
    provider: String,
    model: String,
    /// Absent for models that the file has no prices of.
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
    /// Parses the prices. Cached tokens without a price of their own cost as much as others.
    fn parse(&self, model: &str) -> Result<TokenPrices, PriceError> {
        let parse = |member: &'static str, text: &str| {
            let amount = NanoUsd::parse(text).ok().filter(|amount| *amount <= MAX_PRICE);
            amount.ok_or_else(|| PriceError::Price { model: model.to_owned(), member })
        };
        let input = parse("input", &self.input)?;
        let part =
            |member, text: &Option<String>| text.as_ref().map_or(Ok(input), |text| parse(member, text));
        Ok(TokenPrices {
            input,
            cached_input: part("cachedInput", &self.cached_input)?,
            cache_write: part("cacheWrite", &self.cache_write)?,
            output: parse("output", &self.output)?,
        })
    }
}

impl PriceTable {
    /// Creates a table without prices.
    pub fn empty() -> Self {
        Self { models: HashMap::new() }
    }

    /// Returns the table that is compiled in.
    pub fn shipped() -> Self {
        Self::empty().merged(SHIPPED_PRICES).unwrap_or_else(|_| Self::empty())
    }

    /// Adds the prices of a file, in place of those that the table has of the same models.
    ///
    /// # Errors
    /// [`PriceError`]; the table is lost then.
    pub fn merged(mut self, file: &str) -> Result<Self, PriceError> {
        if file.len() > MAX_FILE_BYTES {
            return Err(PriceError::TooLarge);
        }
        let PriceFile { as_of, models } = serde_json::from_str(file)?;
        as_of.parse::<jiff::civil::Date>().map_err(|_| PriceError::Date)?;
        for PricedModel { provider, model, prices } in models {
            let Some(prices) = prices else { continue };
            let price = ModelPrice { prices: prices.parse(&model)?, as_of: as_of.clone() };
            self.models.entry(provider).or_default().insert(model, price);
        }
        Ok(self)
    }

    /// Returns the price of a model: its own, that of the name without the date at its end, or the provider's for all
    /// models.
    pub fn price(&self, provider: &str, model: &str) -> Option<&ModelPrice> {
        let models = self.models.get(provider)?;
        let undated = || models.get(without_date(model)?);
        models.get(model).or_else(undated).or_else(|| models.get(ANY_MODEL))
    }

    /// Returns the number of prices.
    pub fn len(&self) -> usize {
        self.models.values().map(HashMap::len).sum()
    }

    /// Returns true if there are no prices.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Returns a model's name without `-2025-08-07` or `-20250807` at its end.
pub(super) fn without_date(model: &str) -> Option<&str> {
    ["-0000-00-00", "-00000000"].into_iter().find_map(|form| {
        let (name, date) = model.split_at_checked(model.len().checked_sub(form.len())?)?;
        let is_date = date.bytes().zip(form.bytes()).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            dash => byte == dash,
        });
        (is_date && !name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(input: u64, cached: u64, write: u64, output: u64) -> TokenCounts {
        TokenCounts {
            input_tokens: input,
            cached_input_tokens: cached,
            cache_write_tokens: write,
            output_tokens: output,
            reasoning_tokens: output,
        }
    }

    fn table(file: &str) -> Result<PriceTable, PriceError> {
        PriceTable::empty().merged(file)
    }

    #[test]
    fn the_shipped_table_is_read() {
        assert!(PriceTable::empty().merged(SHIPPED_PRICES).expect("a table").len() > 20);
        let prices = PriceTable::shipped();
        let nano = prices.price("openai", "gpt-5-nano").expect("a price");
        assert_eq!(nano.prices.cost(&tokens(1_000_000, 0, 0, 0)), NanoUsd::new(50_000_000));
        assert_eq!(nano.prices.cost(&tokens(1, 0, 0, 0)), NanoUsd::new(50));
        assert_eq!(nano.prices.cost(&tokens(100, 60, 0, 10)), NanoUsd::new(40 * 50 + 60 * 5 + 10 * 400));
        assert_eq!(prices.price("openai", "gpt-5-nano-2025-08-07"), Some(nano));
        assert_eq!(prices.price("openai", "gpt-5-nano-20250807"), Some(nano));
        for unknown in
            ["gpt-5-nan", "gpt-5-nano-x", "gpt-5-nano-2025-8-07", "-20250807", "*", "", "ü-0250807"]
        {
            assert_eq!(prices.price("openai", unknown), None, "{unknown}");
        }
        assert_eq!(prices.price("local", "any").map(|price| price.prices.output), Some(NanoUsd::ZERO));
        assert_eq!(prices.price("other", "gpt-5"), None);
    }

    #[test]
    fn a_cost_is_rounded_up_once_and_saturates() {
        let file = r#"{"asOf":"2026-01-01","models":[{"provider":"p","model":"m","prices":
            {"input":"0.0001","cachedInput":"0.00001","cacheWrite":"0.0002","output":"10000"}}]}"#;
        let table = table(file).expect("a table");
        let prices = table.price("p", "m").expect("a price").prices;
        for (counts, nanos) in [
            (tokens(0, 0, 0, 0), 0),
            (tokens(1, 0, 0, 0), 1),
            (tokens(10, 0, 0, 0), 1),
            (tokens(11, 0, 0, 0), 2),
            (tokens(30, 10, 10, 0), 4),
            (tokens(5, 9, 9, 0), 1),
            (tokens(0, 0, 0, 1), 10_000_000),
            (tokens(u64::MAX, 0, 0, u64::MAX), MAX_CALL_COST.get()),
        ] {
            assert_eq!(prices.cost(&counts), NanoUsd::new(nanos), "{counts:?}");
        }
    }

    #[test]
    fn a_file_overrides_and_a_malformed_one_is_refused() {
        let file = |prices: &str| {
            format!(
                r#"{{"asOf":"2026-02-03","models":[{{"provider":"openai","model":"gpt-5","prices":{prices},"tools":true}},
                {{"provider":"x","model":"y"}}]}}"#
            )
        };
        let merged = PriceTable::shipped().merged(&file(r#"{"input":"7","output":"8"}"#)).expect("merged");
        let price = merged.price("openai", "gpt-5").expect("a price");
        assert_eq!(
            (price.as_of.as_str(), price.prices.cached_input),
            ("2026-02-03", NanoUsd::parse("7").expect("7"))
        );
        assert_eq!(merged.len(), PriceTable::shipped().len());
        for wrong in [
            r#"{"input":"1e400","output":"8"}"#,
            r#"{"input":"-1","output":"8"}"#,
            r#"{"input":"10000.1","output":"8"}"#,
            r#"{"input":1,"output":8}"#,
            r#"{"input":"1"}"#,
            r#"{"input":"1","output":"1","cached":"1"}"#,
        ] {
            assert!(table(&file(wrong)).is_err(), "{wrong}");
        }
        assert!(table(r#"{"asOf":"today","models":[]}"#).is_err());
        assert!(table(&" ".repeat(MAX_FILE_BYTES + 1)).is_err());
    }
}
