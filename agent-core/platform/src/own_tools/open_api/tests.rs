mod bodies;

use agent_core::role::OwnTools;
use agent_core::tool::ToolAnnotations;
use serde_json::json;

use super::*;

/// A pet store in the manner of the well-known example, in revision 3.0.
const PETS_3_0: &str = include_str!("tests/pets-3.0.json");
/// The same in revision 3.1.
const PETS_3_1: &str = include_str!("tests/pets-3.1.json");
/// An issue tracker, in revision 3.1: shared parameters, lists, headers, patches.
const ISSUES: &str = include_str!("tests/issues-3.1.json");
/// A shop, in revision 3.0: composed and recursive schemas, a form, a file.
const SHOP: &str = include_str!("tests/shop-3.0.json");
/// The application's own API, which is real and large.
const OWN: &str = include_str!("../../../../../docs/openapi.json");

fn document(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn entry(operations: &[String]) -> Map<String, Value> {
    let entry = json!({"id": "x", "server": "https://api.acme.example/v1/", "operations": operations});
    entry.as_object().expect("an object").clone()
}

/// Compiles these operations; returns the entry.
fn compile(document: &Value, operations: &[&str]) -> Map<String, Value> {
    let operations: Vec<String> = operations.iter().map(|key| (*key).to_owned()).collect();
    let mut entry = entry(&operations);
    compile_open_api(&mut entry, document).expect("compiled");
    entry
}

fn tools(entry: &Map<String, Value>) -> Vec<HttpTool> {
    parse_open_api(&OwnTool { auth: None, settings: entry.clone() }).expect("valid tools")
}

fn tool(document: &Value, operation: &str) -> Value {
    let entry = compile(document, &[operation]);
    assert_eq!(entry.get("skipped"), None, "{operation}");
    assert_eq!(tools(&entry).len(), 1);
    entry["compiled"][0].clone()
}

fn reason(document: &Value, operation: &str) -> String {
    let entry = compile(document, &[operation]);
    assert_eq!(entry.get("compiled"), None, "{operation}");
    assert!(tools(&entry).is_empty());
    entry["skipped"][0]["reason"].as_str().expect("a reason").to_owned()
}

#[test]
fn operations_become_http_tools() {
    for text in [PETS_3_0, PETS_3_1] {
        let pets = document(text);
        let get = tool(&pets, "getPetById");
        assert_eq!(
            get["request"],
            json!({"method": "GET", "url": "https://api.acme.example/v1/pet/{petId}"})
        );
        assert_eq!(get["name"], "x_getPetById");
        assert_eq!(get["description"], "Finds a pet.\nReturns a single pet.");
        assert_eq!(get["inputSchema"]["required"], json!(["petId"]));
        let find = tool(&pets, "findPets");
        assert_eq!(find["request"]["query"], json!({"status": "{status}", "tags": "{tags}"}));
        let add = tool(&pets, "addPet");
        assert_eq!(add["request"]["body"], "{body}");
        let schema = &add["inputSchema"];
        assert_eq!(schema["properties"]["body"], json!({"$ref": "#/$defs/Pet"}));
        let pet = &schema["$defs"]["Pet"];
        assert_eq!(pet["required"], json!(["name"]), "the server sets the id");
        assert!(pet["properties"].get("id").is_none() && pet.get("xml").is_none(), "{pet}");
        assert_eq!(pet["properties"]["nickname"]["type"], json!(["string", "null"]));
        assert_eq!(pet["properties"]["weight"], json!({"type": "number", "exclusiveMinimum": 0}));
        let delete = tool(&pets, "DELETE /pet/{petId}");
        assert_eq!(delete["name"], "x_DELETE__pet__petId_");
        assert_eq!(delete["request"]["headers"], json!({"X-Reason": "{X-Reason}"}));
        assert_eq!(reason(&pets, "uploadImage"), "has a body that is neither JSON nor a form");
    }
}

#[test]
fn hints_depend_on_the_method_only() {
    for (method, read_only_hint, idempotent_hint) in [
        ("get", true, true),
        ("put", false, true),
        ("delete", false, true),
        ("post", false, false),
        ("patch", false, false),
    ] {
        let expected = ToolAnnotations {
            read_only_hint,
            destructive_hint: !read_only_hint,
            idempotent_hint,
            open_world_hint: true,
        };
        let document = json!({"openapi": "3.1.0", "paths": {"/a": {method: {"operationId": "a"}}}});
        let mut entry = compile(&document, &["a"]);
        assert_eq!(tools(&entry)[0].spec.annotations, Some(expected), "{method}");
        // As an earlier version has compiled it, and as a client may send it.
        entry["compiled"][0]["annotations"] =
            json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true});
        assert_eq!(tools(&entry)[0].spec.annotations, Some(expected), "{method}");
    }
}

/// Compiles all operations whose body, if they need one, is JSON or a form of plain values; returns their number, and those that
/// are no tools with the reasons.
fn compile_all(text: &str) -> (usize, Vec<String>) {
    let root = document(text);
    let read = OpenApiDocument::new(&root).expect("a document");
    let (mut count, mut unusable) = (0, Vec::new());
    for operation in read.operations() {
        let id = operation.fields.get("operationId").and_then(Value::as_str);
        let path = format!("{} {}", operation.method.to_ascii_uppercase(), operation.path);
        let entry = compile(&root, &[id.unwrap_or(&path)]);
        let skipped = entry.get("skipped").filter(|_| entry.get("compiled").is_none());
        let reason = skipped.map(|skipped| skipped[0]["reason"].as_str().expect("text").to_owned());
        if matches!(
            reason.as_deref(),
            Some(
                "has a body that is neither JSON nor a form"
                    | "has a form that is not an object of plain values"
            )
        ) {
            continue;
        }
        count += 1;
        unusable.extend(reason.map(|reason| format!("{path} {reason}")));
    }
    (count, unusable)
}

#[test]
fn nearly_all_operations_with_json_are_usable() {
    let mut total = 0;
    for text in [PETS_3_0, PETS_3_1, ISSUES, SHOP, OWN] {
        let (count, unusable) = compile_all(text);
        assert!(unusable.len() * 20 <= count, "of {count}: {unusable:#?}");
        total += count;
    }
    assert!(total > 150, "{total}");
}

#[test]
fn parameters_are_sent_in_the_style_of_the_document() {
    let list = json!({"type": "array", "items": {"type": "string"}});
    let object = json!({"type": "object", "required": ["from", "made"], "properties": {
        "from": {"type": "string"}, "to": {"type": "string"}, "tags": list, "made": {"type": "string", "readOnly": true}}});
    let root = |location: &str, schema: &Value, fields: Value, required: bool| {
        let mut parameter = json!({"name": "p", "in": location, "schema": schema, "required": required});
        for (name, value) in fields.as_object().expect("an object") {
            parameter[name] = value.clone();
        }
        let path = if location == "path" { "/a/{p}" } else { "/a" };
        json!({"openapi": "3.1.0", "paths": {path: {"get": {"operationId": "a", "parameters": [parameter]}}}})
    };
    let one = |separator: &str| json!({"p": {"list": "{p}", "separator": separator}});
    for (schema, fields, query) in [
        (&list, json!({}), json!({"p": "{p}"})),
        (&list, json!({"explode": false}), one(",")),
        (&list, json!({"style": "spaceDelimited"}), one(" ")),
        (&list, json!({"style": "pipeDelimited", "explode": false}), one("|")),
        (&list, json!({"style": "pipeDelimited", "explode": true}), json!({"p": "{p}"})),
        (&object, json!({}), json!({"from": "{from}", "to": "{to}"})),
        (&object, json!({"style": "deepObject"}), json!({"p[from]": "{p_from_}", "p[to]": "{p_to_}"})),
    ] {
        for is_required in [false, true] {
            let tool = tool(&root("query", schema, fields.clone(), is_required), "a");
            assert_eq!(tool["request"]["query"], query, "{fields}");
            let required =
                tool["inputSchema"].get("required").map_or(0, |names| names.as_array().map_or(0, Vec::len));
            assert_eq!(required, usize::from(is_required), "{fields}: {}", tool["inputSchema"]);
        }
    }
    let header = tool(&root("header", &list, json!({}), true), "a");
    assert_eq!(header["request"]["headers"], json!({"p": "{p}"}));
    let path = tool(&root("path", &list, json!({}), true), "a");
    assert_eq!(path["request"]["url"], "https://api.acme.example/v1/a/{p}");
    let text = json!({"type": "string"});
    for (location, schema, fields, expected) in [
        ("cookie", &text, json!({}), "which is a cookie"),
        ("path", &text, json!({"style": "matrix"}), "whose style is not supported"),
        ("path", &object, json!({}), "which is an object"),
        ("header", &object, json!({}), "which is an object"),
        ("query", &object, json!({"explode": false}), "which is an object"),
        ("query", &list, json!({"style": "deepObject"}), "whose style is not supported"),
        ("query", &text, json!({"content": {}}), "which is serialized as a media type"),
        ("header", &text, json!({"name": "Host"}), "is a header that a tool cannot set"),
    ] {
        let name = fields["name"].as_str().unwrap_or("p").to_owned();
        let found = reason(&root(location, schema, fields.clone(), true), "a");
        assert_eq!(found, format!("has the parameter {name:?}, {expected}"));
        if location != "path" {
            let optional = tool(&root(location, schema, fields, false), "a");
            assert_eq!(optional["inputSchema"], json!({"type": "object", "properties": {}}));
        }
    }
}

#[test]
fn optional_objects_in_the_query_give_way_to_other_parameters() {
    let query = |count: usize| {
        let text = json!({"type": "string"});
        let names = (0..count).map(|i| (format!("f{i}"), text.clone()));
        let properties: Map<String, Value> = names.chain([("q".to_owned(), text.clone())]).collect();
        let filter = json!({"type": "object", "properties": properties});
        let parameters = json!([{"name": "filter", "in": "query", "schema": filter},
            {"name": "q", "in": "query", "schema": {"type": "integer"}}]);
        let operation = json!({"operationId": "a", "parameters": parameters});
        let tool = tool(&json!({"openapi": "3.1.0", "paths": {"/a": {"get": operation}}}), "a");
        assert_eq!(tool["inputSchema"]["properties"]["q"]["type"], "integer");
        tool["request"]["query"].as_object().expect("parameters").len()
    };
    assert_eq!(query(2), 3);
    assert_eq!(query(40), 1, "there is no room for the object");
}

#[test]
fn recursive_schemas_refer_to_themselves() {
    let shop = document(SHOP);
    let tool = tool(&shop, "putCategory");
    let category = &tool["inputSchema"]["$defs"]["Category"];
    assert_eq!(category["properties"]["children"]["items"], json!({"$ref": "#/$defs/Category"}));
    let parent = json!({"anyOf": [{"allOf": [{"$ref": "#/$defs/Category"}]}, {"type": "null"}]});
    assert_eq!(category["properties"]["parent"], parent, "it is nullable");
    let mut root = shop;
    root["paths"]["/loop"] = json!({"$ref": "#/paths/~1loop"});
    root["components"]["parameters"]["a"] = json!({"$ref": "#/components/parameters/a"});
    root["paths"]["/a"] =
        json!({"get": {"operationId": "a", "parameters": [{"$ref": "#/components/parameters/a"}]}});
    assert_eq!(reason(&root, "a"), "has a reference that leads to itself");
    assert_eq!(
        compile_open_api(&mut entry(&["GET /loop".to_owned()]), &root).expect_err("none").path,
        "operations[0]"
    );
    let named = json!({"openapi": "3.1.0", "paths": {"/a": {"get": {"operationId": "b"}, "post": {}}}});
    let fault = compile_open_api(&mut entry(&["c".to_owned()]), &named).expect_err("none");
    assert!(fault.message.ends_with("; the document has b, POST /a"), "{}", fault.message);
}

/// Returns a document with these schemas, whose operation `a` has a body of the schema.
fn document_with_schemas(revision: &str, body: &Value, schemas: &Value) -> Value {
    let body = json!({"content": {"application/json": {"schema": body}}});
    json!({"openapi": revision, "components": {"schemas": schemas},
        "paths": {"/a": {"post": {"operationId": "a", "requestBody": body}}}})
}

#[test]
fn what_only_the_service_sets_is_not_sent_if_a_reference_says_so() {
    let properties = json!({"id": {"$ref": "#/components/schemas/Id"}, "name": {"type": "string"}});
    let body = json!({"type": "object", "required": ["id", "name"], "properties": properties});
    let schemas =
        json!({"Id": {"$ref": "#/components/schemas/Key"}, "Key": {"type": "integer", "readOnly": true}});
    for revision in ["3.0.3", "3.1.0"] {
        let compiled = tool(&document_with_schemas(revision, &body, &schemas), "a");
        let expected =
            json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}});
        assert_eq!(compiled["inputSchema"]["properties"]["body"], expected, "{revision}");
        assert!(compiled["inputSchema"].get("$defs").is_none(), "{revision}");
    }
}

#[test]
fn definitions_with_similar_names_are_kept_apart() {
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let properties = json!({"a": reference("AB_2"), "b": reference("AB"), "c": reference("A<B>")});
    let body = json!({"type": "object", "properties": properties});
    let schemas = json!({"AB_2": {"type": "string"}, "AB": {"type": "integer"}, "A<B>": {"type": "boolean"}});
    let compiled = tool(&document_with_schemas("3.1.0", &body, &schemas), "a");
    let schema = &compiled["inputSchema"];
    let kind = |property: &str| {
        let reference = &schema["properties"]["body"]["properties"][property]["$ref"];
        let pointer = reference.as_str().expect("a reference").trim_start_matches('#');
        schema.pointer(pointer).expect("a definition")["type"].clone()
    };
    assert_eq!([kind("a"), kind("b"), kind("c")], ["string", "integer", "boolean"]);
}

#[test]
fn hostile_documents_are_bounded() {
    let body = |schema: Value| {
        json!({"openapi": "3.1.0", "paths": {"/a": {"post": {"operationId": "a",
        "description": "d".repeat(1 << 20),
        "requestBody": {"required": true, "content": {"application/json": {"schema": schema}}}}}}})
    };
    let cut = tool(&body(json!({"type": "object", "description": "x".repeat(1 << 20)})), "a");
    assert!(cut.to_string().len() < 4096, "long descriptions are truncated");
    let mut deep = json!({"type": "string"});
    for _ in 0..60 {
        deep = json!({"type": "array", "items": deep});
    }
    let many: Map<String, Value> =
        (0..200).map(|i| (format!("p{i}"), json!({"$ref": format!("#/components/schemas/S{i}")}))).collect();
    let mut wide = body(json!({"type": "object", "properties": many}));
    wide["components"]["schemas"] =
        (0..200).map(|i| (format!("S{i}"), json!({"type": "string"}))).collect::<Map<_, _>>().into();
    for (root, expected) in [
        (body(deep), "has a schema that is nested too deeply"),
        (body(json!({"$ref": "https://evil.example/schema.json"})), "refers to another document"),
        (body(json!({"$ref": "other.json#/a"})), "refers to another document"),
        (body(json!({"items": {"$ref": "file:///etc/passwd"}})), "refers to another document"),
        (
            body(json!({"$ref": "#/components/schemas/None"})),
            "refers to a part that the document does not have",
        ),
        (body(json!({"$dynamicRef": "#a"})), "has a dynamic reference"),
        (wide, "refers to more than 128 schemas"),
    ] {
        assert_eq!(reason(&root, "a"), expected);
    }
    // A pattern that the linear engine refuses is left out.
    let look = tool(&body(json!({"type": "string", "pattern": "^(?!a)b"})), "a");
    assert_eq!(look["inputSchema"]["properties"]["body"], json!({"type": "string"}));
    // Two operations of one name, and paths that leave the server's.
    let twice = json!({"openapi": "3.0.3", "paths": {
        "/a": {"get": {"operationId": "a"}}, "/b": {"get": {"operationId": "a"}},
        "/../admin": {"get": {"operationId": "up"}}, "@evil.example/": {"get": {"operationId": "host"}},
        "/x/{id}": {"get": {"operationId": "no-parameter"}}}});
    assert_eq!(reason(&twice, "a"), "is the name of several operations");
    assert!(reason(&twice, "up").starts_with("request.url"));
    assert_eq!(reason(&twice, "host"), "has a path that does not begin with a slash");
    assert!(reason(&twice, "no-parameter").contains("not a property of inputSchema"));
    for (root, expected) in [(json!({"swagger": "2.0", "paths": {}}), "document"), (json!([]), "document")] {
        assert_eq!(
            compile_open_api(&mut entry(&["a".to_owned()]), &root).expect_err("a fault").path,
            expected
        );
    }
}

#[test]
fn keywords_with_values_that_json_schema_does_not_allow_are_left_out() {
    let body = json!({"type": "object", "required": ["file", "file", 7], "properties": {
        "file": {"type": "file", "required": true, "title": 7, "minLength": -1},
        "size": {"type": ["integer", "integer"], "minimum": 0, "exclusiveMinimum": true, "multipleOf": 0},
        "kind": {"type": "string", "enum": "a", "pattern": false, "uniqueItems": "no", "format": "uuid"}}});
    let root = json!({"openapi": "3.1.0", "paths": {"/a/{id}": {"post": {"operationId": "a",
        "parameters": [{"name": "id", "in": "path", "required": true, "type": "integer"},
            {"name": "page", "in": "query", "schema": {"type": "int", "minimum": "1", "maximum": 9}}],
        "requestBody": {"content": {"application/json": {"schema": body}}}}}}});
    let tool = tool(&root, "a");
    let schema = &tool["inputSchema"];
    assert_eq!(schema["required"], json!(["id"]));
    assert_eq!(schema["properties"]["id"], json!({}), "a parameter without a schema");
    assert_eq!(schema["properties"]["page"], json!({"maximum": 9}));
    let expected = json!({"type": "object", "required": ["file"], "properties": {
        "file": {}, "size": {"minimum": 0}, "kind": {"type": "string", "format": "uuid"}}});
    assert_eq!(schema["properties"]["body"], expected);
}

#[test]
fn long_names_end_with_a_hash() {
    let keys = ["organization", "enterprise"].map(|of| format!("actions/{}-{of}", "self-hosted".repeat(6)));
    let root = json!({"openapi": "3.0.3", "paths": {
        "/a": {"get": {"operationId": keys[0]}}, "/b": {"get": {"operationId": keys[1]}}}});
    let entry = compile(&root, &[&keys[0], &keys[1]]);
    let own_tools: OwnTools = serde_json::from_value(json!({"openApi": [entry]})).expect("own tools");
    assert_eq!(super::super::faults(&own_tools, |_| false), Vec::<ToolSettingsError>::new());
    let names: Vec<String> = tools(&entry).into_iter().map(|tool| tool.spec.name.clone()).collect();
    assert_eq!(names, own_tools.names().collect::<Vec<_>>(), "the names by which the agent may call them");
    assert_ne!(names[0], names[1]);
    for name in names {
        assert_eq!(name.len(), super::super::MAX_NAME_BYTES);
        assert!(name.starts_with("x_actions_self-hostedself-hosted"), "{name}");
    }
}

#[test]
fn arguments_do_not_collide() {
    let root = json!({"openapi": "3.0.3", "paths": {"/a/{id}": {
        "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}},
            {"name": "page", "in": "query", "schema": {"type": "string"}}],
        "post": {"operationId": "a", "parameters": [
            {"name": "id", "in": "query", "schema": {"type": "integer"}},
            {"name": "page", "in": "query", "description": "own", "schema": {"type": "integer"}},
            {"name": "filter[name]", "in": "query", "schema": {"type": "string"}},
            {"name": "body", "in": "query", "schema": {"type": "string"}},
            {"name": "session", "in": "cookie", "schema": {"type": "string"}},
            {"name": "Authorization", "in": "header", "required": true, "schema": {"type": "string"}}],
            "requestBody": {"content": {"application/json; charset=utf-8": {"schema": {"type": "array"}}}}}}}});
    let tool = tool(&root, "a");
    assert_eq!(tool["request"]["url"], "https://api.acme.example/v1/a/{id}");
    assert_eq!(
        tool["request"]["query"],
        json!({"page": "{page}", "id": "{id_2}", "filter[name]": "{filter_name_}", "body": "{body}"})
    );
    assert_eq!((&tool["request"]["body"], &tool["request"].get("headers")), (&json!("{body_2}"), &None));
    assert_eq!(tool["request"]["contentType"], "application/json; charset=utf-8");
    assert_eq!(tool["inputSchema"]["properties"]["page"], json!({"type": "integer", "description": "own"}));
}

#[test]
fn parameters_of_a_path_whose_names_are_alike_keep_their_places() {
    let parameter =
        |name: &str| json!({"name": name, "in": "path", "required": true, "schema": {"title": name}});
    let root = json!({"openapi": "3.1.0", "paths": {"/a/{user.id}/b/{user_id}/c/{user_id_2}": {"get": {
        "operationId": "a",
        "parameters": [parameter("user.id"), parameter("user_id"), parameter("user_id_2")]}}}});
    let tool = tool(&root, "a");
    let url = "https://api.acme.example/v1/a/{user_id}/b/{user_id_2}/c/{user_id_2_2}";
    assert_eq!(tool["request"]["url"], url);
    for (argument, name) in [("user_id", "user.id"), ("user_id_2", "user_id"), ("user_id_2_2", "user_id_2")] {
        assert_eq!(tool["inputSchema"]["properties"][argument]["title"], name);
    }
}

#[test]
fn the_parameter_of_the_credential_is_not_an_argument() {
    for (auth, location, name) in [
        (json!({"type": "query", "name": "api_key"}), "query", "api_key"),
        (json!({"type": "header", "name": "x-api-key"}), "header", "X-Api-Key"),
        (json!({"type": "cookie", "name": "sid"}), "cookie", "sid"),
    ] {
        let parameter = |name: &str, location: &str| json!({"name": name, "in": location, "required": true, "schema": {"type": "string"}});
        let document = json!({"openapi": "3.1.0", "paths": {"/a": {"get": {"operationId": "a",
            "parameters": [parameter(name, location), parameter("q", "query")]}}}});
        let mut with_auth = entry(&["a".to_owned()]);
        with_auth.insert("auth".to_owned(), auth.clone());
        compile_open_api(&mut with_auth, &document).expect("compiled");
        let properties =
            with_auth["compiled"][0]["inputSchema"]["properties"].as_object().expect("properties");
        assert_eq!(properties.keys().collect::<Vec<_>>(), ["q"], "{auth}");
        let without = compile(&document, &["a"]);
        if location == "cookie" {
            assert_eq!(without["skipped"][0]["reason"], "has the parameter \"sid\", which is a cookie");
            continue;
        }
        assert!(without["compiled"][0]["inputSchema"]["properties"].get(name).is_some(), "{without:?}");
        // Compiled with another credential, the model could choose the key.
        let auth = serde_json::from_value(auth).expect("auth");
        let parsed = parse_open_api(&OwnTool { auth: Some(auth), settings: without });
        assert_eq!(
            parsed.err().map(|fault| fault.path),
            (location == "query").then(|| "operations[0]".to_owned())
        );
    }
}

#[test]
fn variables_of_servers_are_refused() {
    let root = json!({"openapi": "3.1.0", "paths": {"/a/{version}": {"get": {"operationId": "a", "parameters": [
        {"name": "version", "in": "path", "required": true, "schema": {"type": "string"}}]}}}});
    let mut entry = entry(&["a".to_owned()]);
    entry.insert("server".to_owned(), "https://api.acme.example/{version}".into());
    assert_eq!(compile_open_api(&mut entry, &root).expect_err("a variable").path, "server");
}

#[test]
fn compiled_tools_belong_to_their_entry() {
    let pets = document(PETS_3_0);
    let compiled = compile(&pets, &["getPetById", "uploadImage"]);
    assert!(compiled.get("document").is_none());
    let fault = |change: &dyn Fn(&mut Map<String, Value>)| {
        let mut entry = compiled.clone();
        change(&mut entry);
        let own_tools: OwnTools = serde_json::from_value(json!({"openApi": [entry]})).expect("own tools");
        let faults = super::super::faults(&own_tools, |name| name == "builtin_tool");
        faults.into_iter().map(|fault| fault.path).collect::<Vec<_>>()
    };
    assert_eq!(fault(&|_| {}), Vec::<String>::new());
    assert_eq!(
        fault(&|entry| drop(entry.insert("server".to_owned(), json!("https://api.acme.example.evil/")))),
        ["openApi[0].operations[0]"],
        "another server, which would receive the credential"
    );
    assert_eq!(
        fault(&|entry| drop(entry.insert("operations".to_owned(), json!(["addPet"])))),
        ["openApi[0].operations[0]"]
    );
    assert_eq!(fault(&|entry| drop(entry.insert("id".to_owned(), json!("a b")))), ["openApi[0].id"]);
    assert_eq!(fault(&|entry| drop(entry.insert("document".to_owned(), json!({})))), ["openApi[0].document"]);
    let server = json!("https://u:p@api.acme.example/v1");
    assert_eq!(
        fault(&|entry| drop(entry.insert("server".to_owned(), server.clone()))),
        ["openApi[0].server"]
    );
    let mut entry = compiled.clone();
    entry.insert("identity".to_owned(), json!("signed"));
    let auth = serde_json::from_value(json!({"type": "bearer", "secret": "secret-canary"})).expect("auth");
    let tools = parse_open_api(&OwnTool { auth: Some(auth), settings: entry }).expect("valid tools");
    assert!(tools[0].is_signed);
}
