//! JSON Schemas of the role types that derive cannot express.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::{AgentServer, Container, EmbeddedAi, SubscriptionConnector, WorkflowConnector};
use crate::secret::Secret;

pub(super) fn deserialize_preset(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [
        {"type": "array", "items": {"type": "string"}},
        {"enum": ["base", "none"]},
        {"type": "null"},
    ]})
}

impl JsonSchema for Container {
    fn schema_name() -> Cow<'static, str> {
        "Container".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let known = [
            ("AgentServer", generator.subschema_for::<Option<AgentServer>>()),
            ("WorkflowConnector", generator.subschema_for::<Option<WorkflowConnector>>()),
            ("EmbeddedAI", generator.subschema_for::<Option<EmbeddedAi>>()),
            ("SubscriptionConnector", generator.subschema_for::<Option<SubscriptionConnector>>()),
        ];
        let names = known.each_ref().map(|(name, _)| *name);
        let form = |name: Value, content: Value| json!({"type": "object", "required": ["name"], "properties": {"name": name, "content": content}});
        let known = known.map(|(name, content)| form(json!({"const": name}), content.to_value()));
        let other =
            form(json!({"type": "string", "not": {"enum": names}}), json!({"type": ["object", "null"]}));
        let forms: Vec<Value> = known.into_iter().chain([other]).collect();
        json_schema!({"description": "A module below a role, by name.", "oneOf": forms})
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A secret, shown as `***`. When a role is saved, an absent secret or `***` keeps the stored \
                            secret, and an empty text clears it.",
            "type": "string",
        })
    }
}
