//! Credentials of the chat endpoint, and isolation between users and companies.

mod credentials;
mod tenants;
mod twins;
