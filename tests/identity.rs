//! Who asks, for whom, and what nobody else gets to see.

mod credentials;
mod tenants;
