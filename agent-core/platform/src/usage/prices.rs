//! [`PriceTable`], and the cost of a call.

use std::sync::Arc;

use super::TokenCounts;
use crate::catalog::{Catalog, CatalogError, ModelPrice, NanoUsd, TokenPrices};

/// Largest price of one call. Thousands of calls at it can be summed up.
const MAX_CALL_COST: NanoUsd = NanoUsd::new(1_000_000_000_000_000);
/// Number of tokens that prices are for.
const TOKENS_PER_PRICE: i128 = 1_000_000;

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

    /// Returns the counts with which a call of so many tokens costs the most: a prompt that is written to the provider's
    /// cache may cost more than one that is not.
    pub(super) fn dearest_counts(&self, input_tokens: u64, output_tokens: u64) -> TokenCounts {
        let cache_write_tokens = if self.cache_write > self.input { input_tokens } else { 0 };
        TokenCounts { input_tokens, cache_write_tokens, output_tokens, ..TokenCounts::default() }
    }
}

/// The prices of a [`Catalog`].
#[derive(Debug, Clone)]
pub struct PriceTable {
    catalog: Arc<Catalog>,
}

impl PriceTable {
    /// Creates a table without prices.
    pub fn empty() -> Self {
        Arc::new(Catalog::default()).into()
    }

    /// Returns the table that is compiled in.
    pub fn shipped() -> Self {
        Catalog::shipped().into()
    }

    /// Adds the prices of a file, in place of those that the table has of the same models.
    ///
    /// # Errors
    /// [`CatalogError`]; the table is lost then.
    pub fn merged(self, file: &str) -> Result<Self, CatalogError> {
        Ok(Arc::new(Arc::unwrap_or_clone(self.catalog).merged(file)?).into())
    }

    /// Returns the price of a model: its own, that of the name without the date at its end, or the provider's for all
    /// models.
    pub fn price(&self, provider: &str, model: &str) -> Option<&ModelPrice> {
        self.catalog.price(provider, model)
    }

    /// Returns the number of prices.
    pub fn len(&self) -> usize {
        self.catalog.price_count()
    }

    /// Returns true if there are no prices.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Arc<Catalog>> for PriceTable {
    fn from(catalog: Arc<Catalog>) -> Self {
        Self { catalog }
    }
}

/// Names and price with which the calls of a company's provider are booked.
#[derive(Debug, Clone)]
pub(super) struct CompanyBilling {
    /// Identifier of the provider.
    pub(super) provider: String,
    /// Name of the built-in provider whose API it has.
    pub(super) provider_type: String,
    /// Price of the model, if it is known.
    pub(super) price: Option<ModelPrice>,
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

    fn table(file: &str) -> PriceTable {
        PriceTable::empty().merged(file).expect("a table")
    }

    #[test]
    fn the_shipped_table_is_read() {
        let prices = PriceTable::shipped();
        assert!(prices.len() > 150 && PriceTable::empty().is_empty());
        let nano = prices.price("openai", "gpt-5-nano").expect("a price");
        assert_eq!(nano.prices.cost(&tokens(1_000_000, 0, 0, 0)), NanoUsd::new(50_000_000));
        assert_eq!(nano.prices.cost(&tokens(1, 0, 0, 0)), NanoUsd::new(50));
        assert_eq!(nano.prices.cost(&tokens(100, 60, 0, 10)), NanoUsd::new(40 * 50 + 60 * 5 + 10 * 400));
        assert_eq!(prices.price("openai", "gpt-5-nano-2025-08-07"), Some(nano));
        assert_eq!(prices.price("openai", "gpt-5-nano-20250807"), Some(nano));
        assert_eq!(prices.price("openai-responses", "gpt-5-nano"), Some(nano));
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
        let table = table(file);
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
    fn a_file_overrides_and_has_prices_for_all_models_of_a_provider() {
        let file = r#"{"asOf":"2026-02-03","models":[
            {"provider":"openai","model":"gpt-5","prices":{"input":"7","output":"8"},"tools":true},
            {"provider":"p","model":"*","prices":{"input":"1","output":"1"}},{"provider":"p","model":"m"}]}"#;
        let merged = PriceTable::shipped().merged(file).expect("merged");
        let price = merged.price("openai", "gpt-5").expect("a price");
        let expected = ("2026-02-03", NanoUsd::parse("7").expect("7"));
        assert_eq!((price.as_of.as_str(), price.prices.cached_input), expected);
        assert_eq!(merged.len(), PriceTable::shipped().len() + 1);
        for model in ["m", "another", "*", ""] {
            assert_eq!(merged.price("p", model), merged.price("p", "*"), "{model}");
        }
        assert!(PriceTable::empty().merged("{}").is_err());
    }
}
