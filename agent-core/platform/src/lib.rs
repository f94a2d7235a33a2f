//! The product's domain over [`agent_core`]'s traits: records, roles at rest, tools, tokens and scheduled effects.
//!
//! Nothing here does I/O of its own: data goes through [`records::Records`], jobs through [`pulse::Pulse`], messages
//! through [`messenger::Messenger`].

mod amount;
pub mod approval_floor;
pub mod approval_tools;
pub mod assignment;
pub mod backoff;
#[cfg(feature = "bpe")]
pub mod bpe;
pub mod call_reports;
pub mod catalog;
pub mod coding;
pub mod compaction;
pub mod compaction_settings;
mod company_cache;
pub mod company_permits;
pub mod company_table;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod console;
pub mod content_notes;
pub mod conversation;
mod error_text;
pub mod exact_json;
pub mod exact_object;
pub mod fallback;
mod forward_model;
pub mod gateway_status;
pub mod history;
mod http_url;
pub mod ids;
pub mod ingestion;
pub mod job_request;
pub mod journal;
pub mod json;
pub mod jwt;
mod known_companies;
pub mod layers;
pub mod local_models;
pub mod local_pulse;
pub mod media_type;
pub mod memory;
pub mod message_files;
pub mod messages_model;
pub mod messenger;
mod minute_rate;
pub mod model_cache;
pub mod model_notice;
pub mod occurrence;
pub mod own_tools;
pub mod parameter_notices;
pub mod parameters;
pub mod preview;
pub mod providers;
pub mod pulse;
pub mod records;
pub mod replay;
pub mod response_format;
pub mod retrieval;
pub mod roles;
pub mod run_observer;
pub mod run_registry;
mod run_table;
pub mod run_tools;
pub mod scheduled_calls;
mod schema_guards;
mod schema_keywords;
mod schema_steps;
pub mod seal;
pub mod spawner;
mod tags;
#[cfg(feature = "conformance")]
pub mod testing;
mod time;
pub mod token;
pub mod tool_files;
pub mod tools;
pub mod trace;
pub mod usage;
pub mod user_rates;
pub mod users;
pub mod workspace;
