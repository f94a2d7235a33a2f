//! Parts of a schema that refer to themselves.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::schema_keywords::{ONE_SCHEMA, SCHEMA_LISTS, SCHEMA_MAPS};

/// Keywords whose schemas are applied to the same value as the schema that has them.
const SAME_VALUE_KEYWORDS: [&str; 9] =
    ["allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then"];

/// Schema that a reference names, with its position that a reference names.
pub(super) struct ReferencedSchema<'a> {
    /// JSON Pointer of the schema.
    pub(super) pointer: &'a str,
    /// The schema.
    pub(super) schema: &'a Value,
}

/// Returns the schema that a reference names; `None` if it names no object in the schema by its path.
pub(super) fn resolve_reference<'a>(root: &'a Value, reference: &'a str) -> Option<ReferencedSchema<'a>> {
    let pointer = reference.strip_prefix('#')?;
    if pointer.is_empty() {
        return Some(ReferencedSchema { pointer, schema: root });
    }
    // Percent-encoded references could be understood differently by the validator.
    let is_plain = pointer.starts_with('/') && !pointer.contains('%');
    let schema = root.pointer(pointer).filter(|schema| is_plain && schema.is_object())?;
    Some(ReferencedSchema { pointer, schema })
}

/// Error of a schema that leads back to itself without a step into the answer, so that its check would have no end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecursionError<'a> {
    /// JSON Pointer of a place from which the references lead back.
    pub(super) pointer: &'a str,
}

/// Returns the pointers of the referenced schemas from which references lead on endlessly: recursive schemas, and schemas that
/// refer to them.
///
/// # Errors
/// A place from which references lead back to the same value.
pub(super) fn recursive_places(schema: &Value) -> Result<BTreeSet<&str>, RecursionError<'_>> {
    let mut graph = ReferenceGraph { root: schema, pointers: Vec::new(), indices: HashMap::new() };
    graph.index("");
    let (mut edges, mut same_value_edges) = (Vec::new(), Vec::new());
    let mut source = 0;
    while let Some(pointer) = graph.pointers.get(source) {
        let place = schema.pointer(pointer);
        let mut references = Vec::new();
        if let Some(place) = place {
            collect_references(place, true, &mut references);
        }
        for (reference, is_same_value) in references {
            if let Some(target) = graph.index_of_reference(reference) {
                edges.push((source, target));
                same_value_edges.extend(is_same_value.then_some((source, target)));
            }
        }
        source += 1;
    }
    if let Some(first) = endless(&same_value_edges, graph.pointers.len()).first() {
        return Err(RecursionError { pointer: graph.pointers[*first] });
    }
    let recursive = endless(&edges, graph.pointers.len());
    Ok(recursive.into_iter().map(|index| graph.pointers[index]).collect())
}

/// Returns true if references of a schema lead on without an end.
pub(super) fn is_recursive(schema: &Value) -> bool {
    !recursive_places(schema).is_ok_and(|places| places.is_empty())
}

/// Locations in a schema, in the order in which they are found.
struct ReferenceGraph<'a> {
    root: &'a Value,
    pointers: Vec<&'a str>,
    indices: HashMap<&'a str, usize>,
}

impl<'a> ReferenceGraph<'a> {
    fn index_of_reference(&mut self, reference: &'a str) -> Option<usize> {
        Some(self.index(resolve_reference(self.root, reference)?.pointer))
    }

    /// Returns the index of a place, which is added if it is new.
    fn index(&mut self, pointer: &'a str) -> usize {
        let next = self.pointers.len();
        let index = *self.indices.entry(pointer).or_insert(next);
        if index == next {
            self.pointers.push(pointer);
        }
        index
    }
}

/// Collects the references of a schema and of those within it. `is_same_value` is true if the schema is applied to the value to
/// which the place is applied; it is false for schemas that are applied to a part of it, or not at all.
fn collect_references<'a>(schema: &'a Value, is_same_value: bool, references: &mut Vec<(&'a str, bool)>) {
    let Value::Object(members) = schema else { return };
    for (name, value) in members {
        let name = name.as_str();
        let is_same_value = is_same_value && SAME_VALUE_KEYWORDS.contains(&name);
        match value {
            Value::Array(schemas) if SCHEMA_LISTS.contains(&name) => {
                schemas.iter().for_each(|schema| collect_references(schema, is_same_value, references));
            }
            Value::Object(schemas) if SCHEMA_MAPS.contains(&name) => {
                schemas.values().for_each(|schema| collect_references(schema, is_same_value, references));
            }
            Value::Object(_) if ONE_SCHEMA.contains(&name) => {
                collect_references(value, is_same_value, references);
            }
            _ => {}
        }
    }
    if let Some(Value::String(reference)) = members.get("$ref") {
        references.push((reference.as_str(), is_same_value));
    }
}

/// Returns the places from which the edges lead on without an end, in ascending order.
fn endless(edges: &[(usize, usize)], places: usize) -> Vec<usize> {
    let mut outgoing = vec![0_usize; places];
    let mut sources = vec![Vec::new(); places];
    for &(source, target) in edges {
        outgoing[source] += 1;
        sources[target].push(source);
    }
    let mut ended: Vec<usize> = (0..places).filter(|place| outgoing[*place] == 0).collect();
    while let Some(place) = ended.pop() {
        for &source in &sources[place] {
            outgoing[source] -= 1;
            if outgoing[source] == 0 {
                ended.push(source);
            }
        }
    }
    (0..places).filter(|place| outgoing[*place] > 0).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_that_lead_back_to_themselves_are_recursive() {
        let list = json!({"$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}, "name": {"$ref": "#/$defs/name"}}},
            "name": {"type": "string"}}, "properties": {"first": {"$ref": "#/$defs/node"}}});
        let tree = json!({"properties": {"children": {"items": {"$ref": "#"}}}});
        let name =
            json!({"$defs": {"name": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/name"}}});
        for (schema, expected) in [
            (&list, vec!["", "/$defs/node"]),
            (&tree, vec![""]),
            (&name, vec![]),
            // A value that is data, and a name of a property.
            (&json!({"const": {"$ref": "#"}, "properties": {"$ref": {"type": "string"}}}), vec![]),
        ] {
            let places = recursive_places(schema).map(Vec::from_iter);
            assert_eq!(places, Ok(expected), "{schema}");
        }
    }

    #[test]
    fn a_place_that_leads_back_to_the_same_value_is_an_error() {
        for (schema, pointer) in [
            (json!({"$ref": "#"}), ""),
            (
                json!({"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}, {"type": "null"}]}}}),
                "/properties/a",
            ),
            // The step into the answer is on another way to the same place.
            (
                json!({"$defs": {"a": {"properties": {"b": {"$ref": "#/$defs/b"}}, "allOf": [{"$ref": "#/$defs/b"}]},
                    "b": {"not": {"$ref": "#/$defs/a"}}}}),
                "/$defs/b",
            ),
        ] {
            assert_eq!(recursive_places(&schema), Err(RecursionError { pointer }), "{schema}");
        }
    }
}
