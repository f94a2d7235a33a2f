//! OpenAPI 3.1 description of the services, generated from the types that the handlers read and write.
//!
//! Tests fail if the described routes differ from the route tables, or if the checked-in `docs/openapi.json` differs
//! from the generated document.

mod app;
mod operation;
mod pulse;
mod runtime;
mod scheduler;
mod schemas;

use serde_json::{Map, Value, json};

use operation::{DescribedService, Operation};
use schemas::Schemas;

/// Returns the description of all services.
#[must_use]
pub fn document() -> Value {
    let mut schemas = Schemas::new();
    let mut operations: Vec<Operation> = app::operations(&mut schemas);
    operations.extend(runtime::operations());
    operations.extend(scheduler::operations(&mut schemas));
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Agent chat platform",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The application server, the agent runtime and the scheduler. docs/http-api.md says the same in words.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [DescribedService::App.server()],
        "tags": [
            {"name": "chat", "description": "A message in, a run out."},
            {"name": "agents", "description": "Agents and their tokens."},
            {"name": "documents", "description": "Texts that agents read."},
            {"name": "runtime", "description": "A model and its tool loop, for other machines."},
            {"name": "jobs", "description": "What agents do later: the application's side of the scheduler."},
            {"name": "scheduler", "description": "Jobs that wait for their time."},
            {"name": "health", "description": "For probes."},
        ],
        "paths": paths(operations),
        "components": {
            "securitySchemes": security_schemes(),
            "responses": {"Problem": schemas::problem_response()},
            "schemas": schemas.into_definitions(),
        },
    })
}

/// Returns the operations by path and method. Paths of services other than the application name their servers, since
/// the document's own server is the application's.
fn paths(operations: Vec<Operation>) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations {
        let item = paths.entry(operation.path()).or_insert_with(|| json!({}));
        if operation.services != [DescribedService::App] {
            item["servers"] = operation.services.iter().map(|service| service.server()).collect();
        }
        item[operation.method.as_str().to_ascii_lowercase()] = operation.description;
    }
    paths.sort_keys();
    Value::Object(paths)
}

fn security_schemes() -> Value {
    json!({
        "mcpToken": {"type": "http", "scheme": "bearer", "description": "An MCP token of an agent."},
        "session": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "A user's session token."},
        "sessionCookie": {"type": "apiKey", "in": "cookie", "name": crate::auth::SESSION_COOKIE,
            "description": "The same in a cookie. What may change something needs an `Origin` of the application's own."},
        "widgetToken": {"type": "apiKey", "in": "header", "name": "X-Widget-Token",
            "description": "A visitor's token. It may stand in the parameter `widgetToken` as well."},
        "internal": {"type": "http", "scheme": "bearer",
            "description": "INTERNAL_SECRET, beside the header `X-Proactive-Trigger`."},
        "cronSecret": {"type": "http", "scheme": "bearer", "description": "CRON_SECRET of the application."},
        "pulseSecret": {"type": "http", "scheme": "bearer", "description": "PULSE_SECRET of the scheduler."},
        "runtimeSecret": {"type": "http", "scheme": "bearer", "description": "RUNTIME_SECRET, where it is set."},
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use expect_test::expect_file;

    use super::*;

    /// Returns the server URL, method and path of every described operation.
    fn described(document: &Value) -> BTreeSet<(String, String, String)> {
        let mut all = BTreeSet::new();
        for (path, item) in document["paths"].as_object().expect("an object") {
            let servers = item.get("servers").unwrap_or(&document["servers"]).as_array().expect("a list");
            for server in servers {
                let url = server["url"].as_str().expect("an address");
                for method in item.as_object().expect("an object").keys().filter(|key| *key != "servers") {
                    all.insert((url.to_owned(), method.to_ascii_uppercase(), path.clone()));
                }
            }
        }
        all
    }

    #[test]
    fn every_route_is_described_and_everything_described_is_a_route() {
        let mut routed = BTreeSet::new();
        for (service, routes) in [
            (DescribedService::App, crate::app::route_patterns()),
            (DescribedService::Runtime, crate::runtime::described_routes()),
            (DescribedService::Scheduler, crate::scheduler::route_patterns()),
        ] {
            let url = service.server()["url"].as_str().expect("an address").to_owned();
            routed.extend(
                routes
                    .into_iter()
                    .map(|(method, pattern)| (url.clone(), method.to_string(), pattern.replace("{*", "{"))),
            );
        }
        assert_eq!(described(&document()), routed);
    }

    #[test]
    fn the_checked_in_document_is_the_one_that_the_code_makes() {
        let text = serde_json::to_string_pretty(&document()).expect("JSON") + "\n";
        expect_file!["../../docs/openapi.json"].assert_eq(&text);
    }

    #[test]
    fn references_lead_somewhere_and_operations_have_names_of_their_own() {
        fn walk<'v>(value: &'v Value, visit: &mut impl FnMut(&'v str, &'v Value)) {
            match value {
                Value::Object(members) => members.iter().for_each(|(name, value)| {
                    visit(name, value);
                    walk(value, visit);
                }),
                Value::Array(values) => values.iter().for_each(|value| walk(value, visit)),
                _ => {}
            }
        }
        let document = document();
        let (mut references, mut names) = (Vec::new(), Vec::new());
        walk(&document, &mut |name, value| match (name, value.as_str()) {
            ("$ref", Some(reference)) => references.push(reference),
            ("operationId", Some(name)) => names.push(name),
            _ => {}
        });
        for reference in references {
            let pointer = reference.strip_prefix('#').expect("a place in the document");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        let different: BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
    }
}
