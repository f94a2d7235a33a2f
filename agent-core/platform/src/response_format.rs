//! Answers in JSON: their formats, the requests for them, and their validation.
//!
//! A role or a request names a [`ResponseFormat`](agent_core::role::ResponseFormat). [`FormattedModels`] request it of each
//! model by the method that the model supports, which is known before anything is sent; [`ValidatedModels`] hold an answer
//! back until it is complete and valid, and ask for another one if it is not.
//!
//! | module | content |
//! |---|---|
//! | `schema` | bounds of formats, and validation of answers |
//! | `recursion` | places of a schema that refer to themselves |
//! | `method` | methods that bind a model to a format |
//! | `dialect` | subsets of JSON Schema that providers take |
//! | `request` | [`FormattedModels`] |
//! | `answer` | [`ValidatedModels`] |

mod answer;
mod dialect;
mod method;
mod recursion;
mod request;
mod schema;
#[cfg(test)]
mod tests;

pub use answer::ValidatedModels;
pub use method::FormatMethod;
pub use request::FormattedModels;
pub use schema::{
    AnswerValidator, FormatError, MAX_REPAIRS, MAX_RESPONSE_SCHEMA_BYTES, check_response_format,
};
