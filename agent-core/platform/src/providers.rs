//! Providers of models that belong to a company: address, key and models that any of its agents may name, so that one change of
//! the key holds for all of them.
//!
//! A provider is a record in its company's collection `providers`, with the key sealed. [`ProviderRoles`] completes the roles
//! that turns run with: a container that names a provider gets the provider's type, address and key, and its entry for the model.
//! A container with a provider keeps no address or key of its own, so that the provider's key is not sent to another address.
//! [`ProviderModels`] reads the provider again before each call.

mod models;
mod provider;
mod role_source;
mod rotation;
mod store;

#[cfg(test)]
mod tests;

pub use models::ProviderModels;
pub use provider::{
    InvalidProviderError, MAX_KEY_BYTES, MAX_PROVIDER_MODELS, Provider, ProviderInput, ProviderType,
};
pub use role_source::ProviderRoles;
pub use rotation::rotate_secrets;
pub use store::{OpenedProvider, Providers, StoredProvider, agents_with_provider};
pub(crate) use store::{named_providers, provider_key};
