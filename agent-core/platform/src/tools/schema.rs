//! JSON Schemas of tool arguments and results, generated from their types.

use schemars::generate::{Contract, SchemaSettings};
use schemars::transform::{RecursiveTransform, RestrictFormats};
use schemars::{JsonSchema, Schema};
use serde_json::Value;
use serde_json::value::to_raw_value;

use agent_core::message::SharedJson;

/// Returns the schema of the arguments that deserialize as `T`.
pub(super) fn input_schema<T: JsonSchema>() -> SharedJson {
    schema::<T>(Contract::Deserialize)
}

/// Returns the schema of `T` as serialized JSON.
pub(super) fn output_schema<T: JsonSchema>() -> SharedJson {
    schema::<T>(Contract::Serialize)
}

/// Generates a compact schema without references: small models and many clients do not resolve them, and every byte
/// of a schema is part of every prompt.
fn schema<T: JsonSchema>(contract: Contract) -> SharedJson {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        settings.contract = contract;
    });
    let mut formats = RestrictFormats::default();
    formats.infer_from_meta_schema = false;
    let settings = settings.with_transform(formats).with_transform(RecursiveTransform(without_optional_null));
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // The title and description of the root type are for readers of the code.
    schema.remove("title");
    schema.remove("description");
    // Some vendors require an object schema with `properties` also for a tool without arguments.
    schema.ensure_object().entry("properties").or_insert_with(|| Value::Object(Default::default()));
    to_raw_value(&schema).expect("a schema is JSON").into()
}

/// Removes null from optional properties: an optional property is omitted, never null.
fn without_optional_null(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    let required = object.get("required").cloned().unwrap_or_default();
    let Some(Value::Object(properties)) = object.get_mut("properties") else { return };
    for (name, property) in properties {
        let required = required.as_array().is_some_and(|names| names.iter().any(|one| one == name));
        if required {
            continue;
        }
        property.as_object_mut().map(|property| property.remove("default"));
        if let Some(Value::Array(types)) = property.get_mut("type") {
            types.retain(|name| name != "null");
            if let [one] = types.as_slice() {
                property["type"] = one.clone();
            }
        }
        if let Some(Value::Array(values)) = property.get_mut("enum") {
            values.retain(|value| !value.is_null());
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde::{Deserialize, Serialize};

    use super::*;

    /// Not for models.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    struct Sample {
        /// Name of the sample.
        #[schemars(length(min = 1, max = 10))]
        given_name: String,
        /// Number of samples.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 200))]
        limit: Option<usize>,
        inner: Option<Inner>,
        anything: Value,
    }

    /// A part.
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Inner {
        version: u64,
    }

    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}

    #[test]
    fn a_schema_says_what_is_needed() {
        let show = |schema: SharedJson| {
            let value: Value = serde_json::from_str(schema.get()).expect("JSON");
            format!("{value:#}")
        };
        expect![[r#"
            {
              "type": "object",
              "properties": {
                "givenName": {
                  "description": "Name of the sample.",
                  "type": "string",
                  "minLength": 1,
                  "maxLength": 10
                },
                "limit": {
                  "description": "Number of samples.",
                  "type": "integer",
                  "maximum": 200,
                  "minimum": 1
                },
                "inner": {
                  "description": "A part.",
                  "type": "object",
                  "properties": {
                    "version": {
                      "type": "integer",
                      "minimum": 0
                    }
                  },
                  "required": [
                    "version"
                  ]
                },
                "anything": true
              },
              "required": [
                "givenName",
                "anything"
              ]
            }"#]]
        .assert_eq(&show(input_schema::<Sample>()));
        expect![[r#"
            {
              "type": "object",
              "properties": {
                "givenName": {
                  "description": "Name of the sample.",
                  "type": "string",
                  "minLength": 1,
                  "maxLength": 10
                },
                "limit": {
                  "description": "Number of samples.",
                  "type": "integer",
                  "maximum": 200,
                  "minimum": 1
                },
                "inner": {
                  "description": "A part.",
                  "type": [
                    "object",
                    "null"
                  ],
                  "properties": {
                    "version": {
                      "type": "integer",
                      "minimum": 0
                    }
                  },
                  "required": [
                    "version"
                  ]
                },
                "anything": true
              },
              "required": [
                "givenName",
                "inner",
                "anything"
              ]
            }"#]]
        .assert_eq(&show(output_schema::<Sample>()));
        expect![[r#"{"type":"object","properties":{}}"#]].assert_eq(input_schema::<Nothing>().get());
    }
}
