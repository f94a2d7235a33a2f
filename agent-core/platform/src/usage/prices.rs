//! [`PriceTable`], and the cost of a call.

use std::sync::Arc;

use agent_core::role::{AgentServer, EmbeddedAi, SubscriptionConnector};
use agent_core::secret::Secret;
use url::Url;

use super::TokenCounts;
use crate::catalog::{Catalog, CatalogError, CatalogModel, LOCAL_PROVIDER, ModelPrice, NanoUsd, TokenPrices};

/// Largest price of one call. Thousands of calls at it can be summed up.
const MAX_CALL_COST: NanoUsd = NanoUsd::new(1_000_000_000_000_000);
/// Number of tokens that prices are for.
const TOKENS_PER_PRICE: i128 = 1_000_000;
/// Provider whose servers ask for no key.
const OLLAMA_PROVIDER: &str = "ollama";

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

    /// Returns the counts for which a call with these tokens costs the most: a prompt that is written to the provider's
    /// cache may cost more than one that is not.
    pub(super) fn max_cost_counts(&self, input_tokens: u64, output_tokens: u64) -> TokenCounts {
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
    pub fn built_in() -> Self {
        Catalog::built_in().into()
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

/// Names and price under which the calls of a container are booked, in place of those of the catalogue.
#[derive(Debug, Clone)]
pub(super) struct CallBilling {
    /// Name of the provider, or the identifier of a company's own.
    pub(super) provider: String,
    /// Name of the built-in provider whose API it has.
    pub(super) provider_type: String,
    /// Price of the model, if it is known.
    pub(super) price: Option<ModelPrice>,
}

impl CallBilling {
    /// Returns true if the provider is one of the company, whose models have names of the company's choice.
    pub(super) fn is_of_company(&self) -> bool {
        self.provider != self.provider_type
    }
}

/// Addresses at which the operator pays for models, with the server's own keys or its own hardware.
#[derive(Debug, Clone, Default)]
pub struct OperatorAddresses(Vec<Url>);

impl OperatorAddresses {
    /// Collects base URLs.
    pub fn new(base_urls: impl IntoIterator<Item = Url>) -> Self {
        Self(base_urls.into_iter().collect())
    }

    /// Returns true if a base URL has the origin of one of the addresses, or none.
    fn contains(&self, base_url: &str) -> bool {
        let url = Url::parse(base_url.trim());
        url.map_or(true, |url| self.0.iter().any(|own| own.origin() == url.origin()))
    }
}

/// Settings of a container or a fallback, as far as the names and the price of its calls depend on them.
pub trait PricedSettings {
    /// Returns the entry of the company's provider for the model.
    fn company_model(&self) -> Option<CatalogModel> {
        None
    }

    /// Returns the price that the settings set. It applies only to calls that neither the operator nor the company pays for:
    /// calls with a key in the settings, or to an address in the settings that is not one of the `operator`'s. With `None`, the
    /// operator's addresses are unknown and a key is required.
    fn own_price(&self, _operator: Option<&OperatorAddresses>) -> Option<ModelPrice> {
        None
    }
}

impl PricedSettings for EmbeddedAi {
    fn company_model(&self) -> Option<CatalogModel> {
        CatalogModel::of_company(self.company_model.as_deref())
    }

    fn own_price(&self, operator: Option<&OperatorAddresses>) -> Option<ModelPrice> {
        if self.company_model.is_some() {
            return None;
        }
        let payer = CallPayer::new(&self.provider, &self.api_key, &self.base_url);
        ModelPrice::of_role(&self.prices).ok()?.filter(|_| payer.is_settings_owner(operator))
    }
}

impl PricedSettings for AgentServer {
    fn own_price(&self, operator: Option<&OperatorAddresses>) -> Option<ModelPrice> {
        let Self { agent_server_provider, agent_server_api_key, agent_server_local_url, .. } = self;
        let payer = CallPayer::new(agent_server_provider, agent_server_api_key, agent_server_local_url);
        ModelPrice::of_role(&self.prices).ok()?.filter(|_| payer.is_settings_owner(operator))
    }
}

impl PricedSettings for SubscriptionConnector {}

/// Settings of a source with a single model, which set no price.
impl PricedSettings for () {}

/// Settings that determine who pays for a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallPayer<'a> {
    provider: &'a str,
    has_key: bool,
    base_url: Option<&'a str>,
}

impl<'a> CallPayer<'a> {
    /// Reads the provider, the key and the base URL of a container. A masked key stands for a stored one.
    pub(crate) fn new(
        provider: &'a Option<String>,
        key: &Option<Secret>,
        base_url: &'a Option<String>,
    ) -> Self {
        Self {
            provider: provider.as_deref().unwrap_or_default().trim(),
            has_key: key.as_ref().is_some_and(|key| !key.expose().trim().is_empty()),
            base_url: base_url.as_deref().map(str::trim).filter(|url| !url.is_empty()),
        }
    }

    /// Returns true if the settings name a key or a separate address. Ollama asks for no key, and the model in the
    /// process has neither.
    pub(crate) fn has_own_key_or_address(&self) -> bool {
        match self.provider {
            LOCAL_PROVIDER => false,
            OLLAMA_PROVIDER => self.base_url.is_some(),
            _ => self.has_key || self.base_url.is_some(),
        }
    }

    /// Returns true if the owner of the settings pays for the calls.
    fn is_settings_owner(&self, operator: Option<&OperatorAddresses>) -> bool {
        let has_own_address =
            operator.zip(self.base_url).is_some_and(|(operator, base_url)| !operator.contains(base_url));
        self.has_own_key_or_address()
            && (has_own_address || (self.has_key && self.provider != OLLAMA_PROVIDER))
    }
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
    fn the_built_in_table_is_read() {
        let prices = PriceTable::built_in();
        assert!(prices.len() > 150 && PriceTable::empty().is_empty());
        let nano = prices.price("openai", "gpt-5-nano").expect("a price");
        assert_eq!(nano.prices.cost(&tokens(1_000_000, 0, 0, 0)), NanoUsd::new(50_000_000));
        assert_eq!(nano.prices.cost(&tokens(1, 0, 0, 0)), NanoUsd::new(50));
        assert_eq!(nano.prices.cost(&tokens(100, 60, 0, 10)), NanoUsd::new(40 * 50 + 60 * 5 + 10 * 400));
        assert_eq!(prices.price("openai", "gpt-5-nano-2025-08-07"), Some(nano));
        assert_eq!(prices.price("openai", "gpt-5-nano-20250807"), Some(nano));
        assert_eq!(prices.price("openai-responses", "gpt-5-nano"), Some(nano));
        assert_eq!(prices.price("openai", "GPT-5-Nano-2025-08-07"), Some(nano));
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
        let merged = PriceTable::built_in().merged(file).expect("merged");
        let price = merged.price("openai", "gpt-5").expect("a price");
        let expected = ("2026-02-03", NanoUsd::parse("7").expect("7"));
        assert_eq!((price.as_of.as_str(), price.prices.cached_input), expected);
        assert_eq!(merged.len(), PriceTable::built_in().len() + 1);
        for model in ["m", "another", "*", ""] {
            assert_eq!(merged.price("p", model), merged.price("p", "*"), "{model}");
        }
        assert!(PriceTable::empty().merged("{}").is_err());
    }

    #[test]
    fn a_price_of_a_role_holds_where_neither_operator_nor_company_pays() {
        let operator = OperatorAddresses::new([
            Url::parse("https://api.openai.com/v1").expect("a URL"),
            Url::parse("http://127.0.0.1:11434").expect("a URL"),
        ]);
        for (provider, key, base_url, expected) in [
            ("openai", "k", "", true),
            ("openai", "k", "https://api.openai.com/v1", true),
            ("openai", "", "https://api.openai.com/other", false),
            ("openai", "", "HTTPS://API.OPENAI.COM:443", false),
            ("openai", "", "https://models.example/v1", true),
            ("openai", "", "no address", false),
            ("openai", "", "", false),
            ("ollama", "k", "http://127.0.0.1:11434/", false),
            ("ollama", "", "http://127.0.0.1:11435", true),
            ("ollama", "k", "", false),
            ("local", "k", "https://models.example", false),
        ] {
            let settings = EmbeddedAi {
                provider: Some(provider.to_owned()),
                api_key: Some(Secret::new(key)),
                base_url: Some(base_url.to_owned()),
                prices: serde_json::from_str(r#"{"input":"1","output":"2"}"#).expect("prices"),
                ..EmbeddedAi::default()
            };
            let price = settings.own_price(Some(&operator));
            assert_eq!(price.is_some(), expected, "{provider} {key} {base_url}");
            assert!(price.is_none_or(|price| price.as_of == "role"));
            let server = AgentServer {
                agent_server_provider: settings.provider.clone(),
                agent_server_api_key: settings.api_key.clone(),
                agent_server_local_url: settings.base_url.clone(),
                prices: settings.prices.clone(),
                ..AgentServer::default()
            };
            assert_eq!(server.own_price(Some(&operator)).is_some(), expected, "{provider} {key} {base_url}");
            // Without the operator's addresses, an address may be one of them.
            let with_key = expected && !key.is_empty();
            assert_eq!(settings.own_price(None).is_some(), with_key, "{provider} {key} {base_url}");
            let invalid =
                EmbeddedAi { prices: serde_json::from_str(r#"{"input":"1"}"#).expect("JSON"), ..settings };
            assert_eq!(invalid.own_price(Some(&operator)), None, "stored before it was checked");
        }
        let company_model = serde_json::from_str(r#"{"provider":"acme","model":"m"}"#).expect("an entry");
        let settings = EmbeddedAi {
            api_key: Some(Secret::new("the company's")),
            company_model: Some(Arc::new(company_model)),
            prices: serde_json::from_str(r#"{"input":"0","output":"0"}"#).expect("prices"),
            ..EmbeddedAi::default()
        };
        assert_eq!(settings.own_price(Some(&operator)), None);
    }
}
