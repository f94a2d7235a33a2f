//! Tests of the bodies of operations: JSON, forms and files.

use super::*;

/// Returns a document whose operation `a` of this method has a body of these media types; the title of each schema is its
/// media type.
fn document_with_body(method: &str, media_types: &[&str], is_required: bool) -> Value {
    let content: Map<String, Value> = media_types
        .iter()
        .map(|name| ((*name).to_owned(), json!({"schema": {"type": "object", "title": name}})))
        .collect();
    let body = json!({"required": is_required, "description": "The body.", "content": content});
    json!({"openapi": "3.1.0", "paths": {"/a": {method: {"operationId": "a", "requestBody": body}}}})
}

#[test]
fn json_bodies_keep_the_media_type_of_the_document() {
    let patch = "application/merge-patch+json";
    let versioned = "Application/Vnd.Acme.v2+JSON; charset=utf-8";
    let with_charset = "application/json; charset=utf-8";
    let form = "application/x-www-form-urlencoded";
    for (media_types, chosen, sent) in [
        (vec!["application/json"], "application/json", None),
        (vec![patch], patch, Some(patch)),
        (vec![versioned], versioned, Some(versioned)),
        (vec!["text/plain", with_charset], with_charset, Some(with_charset)),
        (vec!["application/xml", patch, "application/json"], "application/json", None),
        (vec!["*/*", patch], patch, Some(patch)),
        (vec!["application/*"], "application/*", None),
        (vec!["application/*+json"], "application/*+json", None),
        (vec!["*/*"], "*/*", None),
        (vec![form], form, Some(form)),
        (vec![form, patch], patch, Some(patch)),
        (vec![form, "*/*"], "*/*", None),
    ] {
        let tool = tool(&document_with_body("patch", &media_types, true), "a");
        assert_eq!(tool["inputSchema"]["properties"]["body"]["title"], chosen, "{media_types:?}");
        assert_eq!(tool["request"]["body"], "{body}", "{media_types:?}");
        assert_eq!(tool["request"].get("contentType"), sent.map(Value::from).as_ref(), "{media_types:?}");
    }
    let mut nested = document_with_body("post", &[form], true);
    let schema = &mut nested["paths"]["/a"]["post"]["requestBody"]["content"][form]["schema"];
    schema["properties"] = json!({"a": {"type": "string"}, "b": {"type": "object"}});
    assert_eq!(reason(&nested, "a"), "has a form that is not an object of plain values");
    let forged = document_with_body("post", &["application/json; a=b\r\nX-Evil: 1"], true);
    assert!(reason(&forged, "a").starts_with("request.contentType"), "{forged}");
}

#[test]
fn an_operation_is_a_tool_without_an_optional_body_that_is_not_json() {
    for media_type in [
        "application/xml",
        "application/json-seq",
        "application/geo+json-seq",
        "application/jsonlines",
        "+json",
        "application/a b+json",
    ] {
        let optional = tool(&document_with_body("post", &[media_type], false), "a");
        assert_eq!(optional["request"], json!({"method": "POST", "url": "https://api.acme.example/v1/a"}));
        assert_eq!(optional["inputSchema"], json!({"type": "object", "properties": {}}));
        assert_eq!(optional["description"], "POST /a", "no word of a body that is not sent");
        let entry = compile(&document_with_body("post", &[media_type], false), &["a"]);
        assert_eq!(entry.keys().collect::<Vec<_>>(), ["id", "server", "operations", "compiled"]);
        let own_tools: OwnTools = serde_json::from_value(json!({"openApi": [entry]})).expect("own tools");
        let incomplete = incomplete_operations(&own_tools);
        assert_eq!(
            incomplete.into_iter().map(|report| report.reason).collect::<Vec<_>>(),
            ["has a body that is neither JSON nor a form, so it is called without a body"]
        );
        let required = document_with_body("post", &[media_type], true);
        assert_eq!(reason(&required, "a"), "has a body that is neither JSON nor a form", "{media_type}");
        let entry = compile(&required, &["a"]);
        let own_tools: OwnTools = serde_json::from_value(json!({"openApi": [entry]})).expect("own tools");
        let (open_api_id, operation) = ("x".to_owned(), "a".to_owned());
        let reason = "has a body that is neither JSON nor a form".to_owned();
        assert_eq!(
            skipped_operations(&own_tools),
            [SkippedOperationReport { open_api_id, operation, reason }]
        );
    }
    let json = ["application/json"];
    let optional = tool(&document_with_body("get", &json, false), "a");
    assert_eq!(optional["request"].get("body"), None);
    assert_eq!(reason(&document_with_body("get", &json, true), "a"), "has a body, which GET does not allow");
}

#[test]
fn forms_with_parts_are_bodies_with_their_files() {
    let form = |schema: Value, encoding: Value| {
        let content = json!({"multipart/form-data": {"schema": schema, "encoding": encoding}});
        json!({"openapi": "3.1.0", "paths": {"/a": {"post": {"operationId": "a",
            "requestBody": {"required": true, "content": content}}}},
            "components": {"schemas": {"Form": schema, "Meta": {"type": "object"},
                "File": {"type": "string", "contentMediaType": "image/png", "description": "A picture."}}}})
    };
    let properties = json!({
        "title": {"type": "string"}, "meta": {"$ref": "#/components/schemas/Meta"}, "csv": {"type": "string"},
        "base64": {"type": "string", "contentMediaType": "image/png", "contentEncoding": "base64"},
        "image": {"$ref": "#/components/schemas/File"}, "old": {"type": "string", "format": "binary"},
        "files": {"anyOf": [{"type": "array", "items": {"type": "string", "format": "binary"}}, {"type": "null"}]},
        "thumb": {"type": "string", "format": "binary", "readOnly": true},
        "xml": {"type": "string"}, "signed": {"type": "string"}});
    let encoding = json!({
        "meta": {"contentType": "application/xml, application/vnd.acme+json"}, "csv": {"contentType": "text/csv"},
        "xml": {"contentType": "application/xml"},
        "signed": {"headers": {"X-Signature": {"required": true, "schema": {"type": "string"}}}}});
    let schema = json!({"type": "object", "required": ["title", "thumb"], "properties": properties});
    let whole = form(schema.clone(), encoding);
    let entry = compile(&whole, &["a"]);
    assert_eq!(tools(&entry).len(), 1);
    let compiled = &entry["compiled"][0];
    assert_eq!(
        compiled["request"],
        json!({"method": "POST", "url": "https://api.acme.example/v1/a", "body": "{body}",
            "contentType": "multipart/form-data", "fileParts": ["image", "old", "files"],
            "partTypes": {"meta": "application/vnd.acme+json", "csv": "text/csv"}})
    );
    let body = &compiled["inputSchema"]["properties"]["body"];
    let mut kept: Vec<_> = body["properties"].as_object().expect("properties").keys().collect();
    kept.sort();
    assert_eq!(kept, ["base64", "csv", "files", "image", "meta", "old", "title"]);
    let description = "Id of a stored file of the user, which is sent.";
    let one = |description: &str| json!({"type": "string", "description": description});
    assert_eq!(body["properties"]["image"], one(&format!("A picture.\n{description}")));
    assert_eq!(body["properties"]["old"], one(description));
    assert_eq!(
        body["properties"]["files"],
        json!({"type": "array", "items": {"type": "string"}, "description": description})
    );
    assert_eq!(body["required"], json!(["title"]));
    let own_tools: OwnTools = serde_json::from_value(json!({"openApi": [entry]})).expect("own tools");
    let incomplete = incomplete_operations(&own_tools);
    assert_eq!((incomplete.len(), incomplete[0].operation.as_str()), (1, "a"));
    for name in ["xml", "signed"] {
        assert!(incomplete[0].reason.contains(&format!("{name:?}")), "{:?}", incomplete[0]);
    }
    for name in ["thumb", "image", "old", "files"] {
        assert!(
            !incomplete[0].reason.contains(name),
            "sent, or set by the service alone: {:?}",
            incomplete[0]
        );
    }
    assert!(skipped_operations(&own_tools).is_empty());
    // Earlier versions know no other fields, and offer nothing of an entry with a tool that they cannot read and do not skip.
    let entry = compile(&form(json!({"type": "object", "properties": {"title": {}}}), json!({})), &["a"]);
    assert_eq!(tools(&entry).len(), 1);
    assert_eq!(entry.keys().collect::<Vec<_>>(), ["id", "server", "operations", "compiled", "skipped"]);
    assert_eq!(entry["skipped"], json!([{"operation": "a", "reason": SKIPPED_BY_EARLIER_VERSIONS}]));
    let own_tools: OwnTools = serde_json::from_value(json!({"openApi": [entry]})).expect("own tools");
    assert!(skipped_operations(&own_tools).is_empty() && incomplete_operations(&own_tools).is_empty());

    let file = json!({"type": "string", "format": "binary"});
    for schema in [
        json!({"type": "object", "properties": {"file": file}}),
        json!({"type": "object", "required": ["file"], "properties": {"file": file, "a": {}}}),
    ] {
        let tool = &compile(&form(schema.clone(), json!({})), &["a"])["compiled"][0];
        assert_eq!(tool["request"]["fileParts"], json!(["file"]), "{schema}");
        let required = &tool["inputSchema"]["properties"]["body"]["required"];
        assert_eq!(required, &schema["required"]);
    }
    let signed =
        json!({"file": {"headers": {"X-Signature": {"required": true, "schema": {"type": "string"}}}}});
    for (schema, expected) in [
        (
            json!({"type": "object", "properties": {"file": file}}),
            "has a form without a part that can be sent",
        ),
        (
            json!({"type": "object", "properties": {"file": file, "id": {"readOnly": true}}}),
            "has a form without a part that can be sent",
        ),
        (
            json!({"type": "object", "required": ["file"], "properties": {"file": file, "a": {}}}),
            "requires \"file\", which cannot be sent",
        ),
        (
            json!({"allOf": [{"$ref": "#/components/schemas/Meta"}]}),
            "has a form whose parts are not the properties",
        ),
        (json!({"type": "string"}), "has a form whose parts are not the properties"),
    ] {
        let document = form(schema.clone(), signed.clone());
        assert!(reason(&document, "a").starts_with(expected), "{schema}: {}", reason(&document, "a"));
    }
    // A reference to the form is followed, and a form without parts comes first.
    let mut other = form(schema, json!({}));
    let content = &mut other["paths"]["/a"]["post"]["requestBody"]["content"];
    content["multipart/form-data"]["schema"] = json!({"$ref": "#/components/schemas/Form"});
    assert_eq!(compile(&other, &["a"])["compiled"][0]["request"]["contentType"], "multipart/form-data");
    let content = &mut other["paths"]["/a"]["post"]["requestBody"]["content"];
    content["application/x-www-form-urlencoded"] =
        json!({"schema": {"type": "object", "properties": {"a": {"type": "string"}}}});
    assert_eq!(tool(&other, "a")["request"]["contentType"], "application/x-www-form-urlencoded");
}
