//! OpenAPI 3.1 description of the services, generated from the types that the handlers read and write.
//!
//! The operations are those of the services' tables of endpoints. A test fails if the checked-in `docs/openapi.json`
//! differs from the generated document.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Map, Value, json};

use crate::endpoint::{Endpoint, Schemas, openai_error_response, problem_response};
use crate::state::ServiceState;
use crate::{app, runtime, scheduler};

/// Service of the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DescribedService {
    /// The application server.
    App,
    /// The agent runtime.
    Runtime,
    /// The scheduler.
    Scheduler,
}

impl DescribedService {
    /// Returns the OpenAPI server object with the default address.
    fn server(self) -> Value {
        let (url, description) = match self {
            Self::App => ("http://127.0.0.1:3000", "the application, `agentd app`"),
            Self::Runtime => ("http://127.0.0.1:3001", "the agent runtime, `agentd runtime`"),
            Self::Scheduler => ("http://127.0.0.1:3002", "the scheduler, `agentd scheduler`"),
        };
        json!({"url": url, "description": description})
    }
}

/// Operation of a service.
struct DescribedOperation {
    service: DescribedService,
    method: Method,
    path: &'static str,
    /// OpenAPI operation object.
    object: Value,
}

/// Returns the operations of all services, in the order of their tables.
fn operations(schemas: &mut Schemas) -> Vec<DescribedOperation> {
    let mut all = describe(DescribedService::App, app::endpoints(), schemas);
    all.extend(describe(DescribedService::Runtime, runtime::endpoints(), schemas));
    all.extend(describe(DescribedService::Scheduler, scheduler::endpoints(), schemas));
    all
}

fn describe<S: ServiceState>(
    service: DescribedService,
    endpoints: Vec<Endpoint<S>>,
    schemas: &mut Schemas,
) -> Vec<DescribedOperation> {
    let described = endpoints.into_iter().map(|endpoint| {
        let object = endpoint.operation(schemas);
        DescribedOperation { service, method: endpoint.method, path: endpoint.path, object }
    });
    described.collect()
}

/// Returns the description of all services.
#[must_use]
pub fn document() -> Value {
    let mut schemas = Schemas::new();
    let operations = operations(&mut schemas);
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Agent chat platform",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The application server, the agent runtime and the scheduler. See also docs/http-api.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [DescribedService::App.server()],
        "tags": [
            {"name": "chat", "description": "Runs of agents."},
            {"name": "openai", "description": "Agents as models of OpenAI's API. Errors have its shape."},
            {"name": "threads", "description": "Stored conversations: threads, messages and runs."},
            {"name": "previews", "description": "Previews of prompts, without calling a model."},
            {"name": "agents", "description": "Agents and their tokens, and settings of the company."},
            {"name": "documents", "description": "Documents that agents can read."},
            {"name": "files", "description": "Users' files for messages."},
            {"name": "runtime", "description": "Turns of models with the tools of a remote application."},
            {"name": "coding", "description": "The sign-in to a user's own subscription."},
            {"name": "usage", "description": "Usage, budgets, providers and the catalogue of models."},
            {"name": "mcp", "description": "The tool server of an agent's tools, and its audit log."},
            {"name": "jobs", "description": "Scheduled jobs and assignments, in the application."},
            {"name": "scheduler", "description": "The scheduler's jobs."},
            {"name": "console", "description": "The console: its page, and the sign-in to it."},
            {"name": "widget", "description": "The chat widget's files."},
            {"name": "health", "description": "Liveness, readiness, status and metrics."},
            {"name": "deprecated", "description": "Routes of earlier versions."},
        ],
        "paths": paths(operations),
        "components": {
            "securitySchemes": security_schemes(),
            "responses": {"Problem": problem_response(), "ApiError": openai_error_response()},
            "schemas": schemas.into_definitions(),
        },
    })
}

/// Returns the operations by path and method. Paths of services other than the application name their servers, since
/// the document's own server is the application's. An operation that several services have is described once.
fn paths(operations: Vec<DescribedOperation>) -> Value {
    let mut services: BTreeMap<String, Vec<DescribedService>> = BTreeMap::new();
    let mut items: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for DescribedOperation { service, method, path, object } in operations {
        let path = path.replace("{*", "{");
        let path_services = services.entry(path.clone()).or_default();
        if !path_services.contains(&service) {
            path_services.push(service);
        }
        items.entry(path).or_default().entry(method.as_str().to_ascii_lowercase()).or_insert(object);
    }
    let with_servers = items.into_iter().map(|(path, operations)| {
        let path_services = &services[&path];
        let mut item = Map::new();
        if *path_services != [DescribedService::App] {
            item.insert("servers".to_owned(), path_services.iter().map(|service| service.server()).collect());
        }
        item.extend(operations);
        (path, Value::Object(item))
    });
    Value::Object(with_servers.collect())
}

fn security_schemes() -> Value {
    json!({
        "apiToken": {"type": "http", "scheme": "bearer", "description": "An API token of a user."},
        "mcpToken": {"type": "http", "scheme": "bearer", "description": "An MCP token of an agent."},
        "session": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "A user's session token."},
        "sessionCookie": {"type": "apiKey", "in": "cookie", "name": crate::auth::SESSION_COOKIE,
            "description": "A user's session token in a cookie. Requests other than GET and HEAD must have the application's own `Origin`."},
        "widgetToken": {"type": "apiKey", "in": "header", "name": "X-Widget-Token",
            "description": "A widget token. It may also be sent as `widgetToken` in the query or body."},
        "visitorKey": {"type": "apiKey", "in": "header", "name": "X-Visitor-Key",
            "description": "A visitor's key: 22 to 128 characters of base64url that the page makes at random and keeps."},
        "internal": {"type": "http", "scheme": "bearer",
            "description": "INTERNAL_SECRET; for a proactive call together with the header `X-Proactive-Trigger`."},
        "cronSecret": {"type": "http", "scheme": "bearer", "description": "CRON_SECRET of the application."},
        "pulseSecret": {"type": "http", "scheme": "bearer", "description": "PULSE_SECRET of the scheduler."},
        "runtimeSecret": {"type": "http", "scheme": "bearer", "description": "RUNTIME_SECRET, if it is set."},
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use expect_test::expect_file;

    use super::*;
    use crate::endpoint::CredentialClass;
    use crate::error::Code;

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
    fn the_tags_are_those_of_operations() {
        let document = document();
        let tags = document["tags"].as_array().expect("a list");
        let described: BTreeSet<&str> = tags.iter().filter_map(|tag| tag["name"].as_str()).collect();
        let paths = document["paths"].as_object().expect("an object").values();
        let operations = paths.flat_map(|path| path.as_object().expect("an object").values());
        let used: BTreeSet<&str> = operations.filter_map(|operation| operation["tags"][0].as_str()).collect();
        assert_eq!(described, used);
    }

    /// Adds the server URL, method and path of every endpoint to `routed`, and checks each endpoint's class and
    /// description.
    fn check_endpoints<S: ServiceState>(
        service: DescribedService,
        endpoints: Vec<Endpoint<S>>,
        routed: &mut BTreeSet<(String, String, String)>,
    ) {
        let url = service.server()["url"].as_str().expect("an address").to_owned();
        for endpoint in endpoints {
            let name = format!("{} {}", endpoint.method, endpoint.path);
            let operation = endpoint.operation(&mut Schemas::new());
            for text in ["/operationId", "/tags/0", "/summary"] {
                let text = operation.pointer(text).and_then(Value::as_str);
                assert!(text.is_some_and(|text| !text.is_empty()), "{name}: {operation}");
            }
            let responses = operation["responses"].as_object().expect("an object");
            assert!(responses.values().any(|response| response.get("description").is_some()), "{name}");
            let security = operation["security"].as_array().expect("a list");
            assert_eq!(security.is_empty(), endpoint.class == CredentialClass::Public, "{name}");
            for scheme in security.iter().flat_map(|schemes| schemes.as_object().expect("an object").keys()) {
                assert!(security_schemes().get(scheme).is_some(), "{name}: {scheme}");
            }
            if endpoint.class != CredentialClass::Public {
                let unavailable = Code::StoreUnavailable.status();
                assert!(responses.contains_key(unavailable.as_str()), "{name}: its credential may be stored");
            }
            let path = endpoint.path.replace("{*", "{");
            assert!(routed.insert((url.clone(), endpoint.method.to_string(), path)), "{name} is there twice");
        }
    }

    #[test]
    fn every_endpoint_is_described_and_everything_described_is_an_endpoint() {
        let mut routed = BTreeSet::new();
        check_endpoints(DescribedService::App, app::endpoints(), &mut routed);
        check_endpoints(DescribedService::Runtime, runtime::endpoints(), &mut routed);
        check_endpoints(DescribedService::Scheduler, scheduler::endpoints(), &mut routed);
        assert_eq!(described(&document()), routed);
        let checked_in = include_str!("../../docs/openapi.json");
        assert_eq!(described(&serde_json::from_str(checked_in).expect("JSON")), routed);
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
