//! Checks of a role before it is saved: unknown names, which are refused, and settings without effect, which are
//! reported as warnings. Pure. Roles that were stored before a check existed are read without it.

mod addresses;
mod fallbacks;
mod finding;
mod numbers;
mod prices;
mod provider;
#[cfg(test)]
mod tests;
mod texts;

use std::num::NonZeroU32;
use std::sync::LazyLock;

use agent_core::allowed_tools::{EXPLICIT_ONLY_TOOLS, allowed_tools};
use agent_core::role::{AgentServer, ApprovalRule, Container, EmbeddedAi, RoleBlock, RoleContent};
use agent_core::select::select_backend;
use agent_core::tool::Caller;
use serde_json::{Map, Value};

pub use finding::RoleFinding;
pub use numbers::rounded_numbers;
pub(crate) use provider::company_provider_faults;
pub(crate) use texts::MAX_NAME_BYTES;

use addresses::check_addresses;
use fallbacks::{check_model_fallbacks, check_server_fallbacks};
use prices::{check_model_prices, check_server_prices};
use provider::{SERVER_PROVIDERS, check_model_provider, check_provider, check_summary_provider, is_blank};
use texts::check_texts;

use crate::catalog::LOCAL_PROVIDER;
use crate::compaction_settings::{CompactionSettings, CompactionSettingsError};
use crate::own_tools::{self, ToolSettingsError};
use crate::parameters::{ModelApi, ModelParameters, thinking_switch};
use crate::response_format::check_response_format;

/// Names of the built-in tools, sorted.
pub(crate) const TOOL_NAMES: [&str; 23] = [
    "appendDoc",
    "cancelScheduledTool",
    "createDoc",
    "createTodo",
    "deleteTodo",
    "forget",
    "getDoc",
    "getEpicDetails",
    "listDocs",
    "readEpics",
    "readMetrics",
    "readNotifications",
    "readPlan",
    "readTodos",
    "recall",
    "recordMetric",
    "remember",
    "scheduleTool",
    "searchDocs",
    "sendMessengerMessage",
    "sendNotification",
    "updatePlan",
    "updateTodo",
];
/// Other names of the fields of a prompt block.
const PROMPT_BLOCK_ALIASES: [&str; 3] = ["name", "id", "content"];

/// Returns the fields of a role, given as JSON, that roles do not have.
pub(crate) fn unknown_fields(role: &Value) -> Vec<RoleFinding> {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(RoleBlock).to_value());
    let mut paths = Vec::new();
    SchemaWalk { root: &SCHEMA }.unknown(role, &SCHEMA, "", &mut paths);
    paths.into_iter().map(|path| RoleFinding::new(path, "is not a field of a role")).collect()
}

/// Search for fields that a schema does not have.
struct SchemaWalk<'a> {
    root: &'a Value,
}

impl SchemaWalk<'_> {
    fn unknown(&self, value: &Value, schema: &Value, path: &str, unknown_paths: &mut Vec<String>) {
        if let Some(reference) = schema["$ref"].as_str() {
            let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            return target.map_or((), |target| self.unknown(value, target, path, unknown_paths));
        }
        for key in ["anyOf", "oneOf"] {
            let Some(forms) = schema[key].as_array() else { continue };
            let of_form = |form: &Value| {
                let mut unknown_paths = Vec::new();
                self.unknown(value, form, path, &mut unknown_paths);
                unknown_paths
            };
            let best = forms.iter().filter(|form| self.admits(form, value)).map(of_form).min_by_key(Vec::len);
            unknown_paths.extend(best.unwrap_or_default());
        }
        match (value, schema["properties"].as_object()) {
            (Value::Object(fields), Some(properties)) => {
                // The settings of a role's own tools are checked with them.
                let is_open = schema["additionalProperties"] == true;
                self.fields(fields, (properties, is_open), path, unknown_paths);
            }
            (Value::Array(items), _) if schema["items"].is_object() => {
                for (i, item) in items.iter().enumerate() {
                    self.unknown(item, &schema["items"], &format!("{path}[{i}]"), unknown_paths);
                }
            }
            _ => {}
        }
    }

    fn fields(
        &self,
        fields: &Map<String, Value>,
        (properties, is_open): (&Map<String, Value>, bool),
        path: &str,
        unknown_paths: &mut Vec<String>,
    ) {
        for (name, value) in fields {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let is_alias =
                path.starts_with("content.promptBlocks[") && PROMPT_BLOCK_ALIASES.contains(&name.as_str());
            match properties.get(name) {
                Some(schema) => self.unknown(value, schema, &path, unknown_paths),
                None if is_alias || is_open => {}
                None => unknown_paths.push(path),
            }
        }
    }

    /// Returns true if a form of a choice can be meant by the value: its type and its constant fields agree.
    fn admits(&self, form: &Value, value: &Value) -> bool {
        let form = match form["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
            Some(pointer) => self.root.pointer(pointer).unwrap_or(form),
            None => form,
        };
        let is_of_type = match form["type"].as_str() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("null") => value.is_null(),
            _ => true,
        };
        let agrees = |(name, schema): (&String, &Value)| {
            let (constant, refused) = (schema.get("const"), schema["not"]["enum"].as_array());
            constant.is_none_or(|constant| *constant == value[name])
                && refused.is_none_or(|refused| !refused.contains(&value[name]))
        };
        is_of_type && form["properties"].as_object().is_none_or(|properties| properties.iter().all(agrees))
    }
}

/// Returns the names in a role that nothing has: tools, among them the embedder's `own_tools`, and providers; and settings
/// out of their bounds, such as invalid addresses.
pub(crate) fn unknown_names(role: &RoleBlock, own_tools: &[String]) -> Vec<RoleFinding> {
    let mut findings = Vec::new();
    let defined: Vec<String> = role.content.own_tools.names().collect();
    let unknown_tools = |findings: &mut Vec<RoleFinding>, at: &str, names: &[String]| {
        let is_known = |name: &String| {
            TOOL_NAMES.contains(&name.as_str()) || own_tools.contains(name) || defined.contains(name)
        };
        let unknown = names.iter().enumerate().filter(|(_, name)| !is_known(name));
        findings.extend(
            unknown.map(|(i, _)| RoleFinding::new(format!("{at}[{i}]"), "is not the name of a tool")),
        );
    };
    let check_server = |findings: &mut Vec<RoleFinding>, at: &str, server: &AgentServer| {
        let provider = &server.agent_server_provider;
        check_provider(findings, format!("{at}.agentServerProvider"), provider, &SERVER_PROVIDERS);
        let tools = server.agent_server_tools.as_deref().unwrap_or_default();
        unknown_tools(findings, &format!("{at}.agentServerTools"), tools);
        check_server_fallbacks(findings, at, server);
        check_parameters(findings, at, server_parameters(server));
        check_server_prices(findings, at, server);
    };
    let RoleContent { mcp_preset, tools, widget_tools, agent_server, .. } = &role.content;
    unknown_tools(&mut findings, "content.mcpPreset", mcp_preset.as_deref().unwrap_or_default());
    unknown_tools(&mut findings, "content.tools", tools);
    unknown_tools(&mut findings, "content.widgetTools", widget_tools);
    for (i, rule) in role.content.approvals.iter().enumerate() {
        unknown_tools(&mut findings, &format!("content.approvals[{i}].tools"), &rule.tools);
    }
    check_server(&mut findings, "content", agent_server);
    for (i, child) in role.children.iter().enumerate() {
        let at = format!("children[{i}].content");
        match child {
            Container::AgentServer(server) => check_server(&mut findings, &at, server),
            Container::EmbeddedAi(embedded) => {
                check_model_provider(&mut findings, format!("{at}.provider"), &embedded.provider);
                check_model_fallbacks(&mut findings, &at, embedded);
                check_parameters(&mut findings, &at, parameters_of(embedded));
                check_model_prices(&mut findings, &at, embedded);
                let format = embedded.response_format.as_deref().map(check_response_format);
                if let Some(Err(fault)) = format {
                    let path = format!("{at}.responseFormat.{}", fault.path);
                    findings.push(RoleFinding::new(path, fault.message));
                }
            }
            _ => {}
        }
    }
    check_addresses(&mut findings, role);
    check_texts(&mut findings, role);
    findings.extend(role.content.compaction.iter().flat_map(compaction_faults));
    let is_taken = |name: &str| TOOL_NAMES.contains(&name) || own_tools.iter().any(|own| own == name);
    findings.extend(
        own_tools::faults(&role.content.own_tools, is_taken)
            .into_iter()
            .map(|ToolSettingsError { path, message }| RoleFinding::new(format!("content.{path}"), message)),
    );
    findings
}

/// Checks the settings of the compaction.
fn compaction_faults(members: &Map<String, Value>) -> Vec<RoleFinding> {
    let finding = |CompactionSettingsError { path, message }| {
        RoleFinding::new(format!("content.compaction.{path}"), message)
    };
    let settings = match CompactionSettings::read(members) {
        Ok(settings) => settings,
        Err(faults) => return faults.into_iter().map(finding).collect(),
    };
    let mut findings = Vec::new();
    if let Some(model) = &settings.model {
        check_summary_provider(&mut findings, &model.provider);
    }
    findings
}

/// Checks the parameters of a container's model and of its fallbacks, which are given with their paths.
fn check_parameters<'a>(
    findings: &mut Vec<RoleFinding>,
    at: &str,
    parameters: impl Iterator<Item = (String, &'a Map<String, Value>)>,
) {
    for (name, parameters) in parameters {
        for fault in ModelParameters::read(parameters).err().into_iter().flatten() {
            findings.push(RoleFinding::new(format!("{at}.{name}.{}", fault.name), fault.message));
        }
    }
}

/// Returns the parameters of a runtime's model and of its fallbacks, with their paths.
fn server_parameters(server: &AgentServer) -> impl Iterator<Item = (String, &Map<String, Value>)> {
    let fallbacks = server.fallbacks.iter().enumerate();
    let fallbacks = fallbacks.map(|(i, other)| (format!("fallbacks[{i}].parameters"), &other.parameters));
    std::iter::once(("parameters".to_owned(), &server.parameters)).chain(fallbacks)
}

/// Returns the parameters of a container's model and of its fallbacks, with their paths.
fn parameters_of(embedded: &EmbeddedAi) -> impl Iterator<Item = (String, &Map<String, Value>)> {
    let fallbacks = embedded.fallbacks.iter().enumerate();
    let fallbacks = fallbacks.map(|(i, other)| (format!("fallbacks[{i}].parameters"), &other.parameters));
    std::iter::once(("parameters".to_owned(), &embedded.parameters)).chain(fallbacks)
}

/// Returns the settings of a role that are legal and have no effect, or not the one that they seem to have.
pub fn warnings(role: &RoleBlock) -> Vec<RoleFinding> {
    let mut findings = Vec::new();
    tool_warnings(&mut findings, role);
    let RoleContent { document_ids, rag_document_ids, agent_server, .. } = &role.content;
    if role.content.enable_auto_rag && document_ids.is_empty() && rag_document_ids.is_empty() {
        findings.push(RoleFinding::new("content.enableAutoRag", "has no effect without documents"));
    }
    if role.content.rag_placement.is_some() && !role.content.enable_auto_rag {
        findings.push(RoleFinding::new("content.ragPlacement", "has no effect without enableAutoRag"));
    }
    if is_blank(&agent_server.agent_server_url) {
        let AgentServer { agent_server_provider, agent_server_model, .. } = agent_server;
        for (name, is_set) in [
            ("agentServerProvider", agent_server_provider.is_some()),
            ("agentServerModel", agent_server_model.is_some()),
            ("agentServerEnableThinking", agent_server.agent_server_enable_thinking.is_some()),
            ("agentServerLocalUrl", agent_server.agent_server_local_url.is_some()),
            ("agentServerApiKey", agent_server.agent_server_api_key.is_some()),
            ("parameters", !agent_server.parameters.is_empty()),
            ("prices", !agent_server.prices.is_empty()),
            ("retry", agent_server.retry.is_some()),
            ("fallbacks", !agent_server.fallbacks.is_empty()),
        ] {
            if is_set {
                let path = format!("content.{name}");
                findings.push(RoleFinding::new(path, "has no effect without agentServerUrl beside it"));
            }
        }
    } else {
        server_warnings(&mut findings, "content", agent_server);
    }
    for (i, child) in role.children.iter().enumerate() {
        let max_output_tokens = role.content.token_limits.max_output_tokens;
        container_warnings(&mut findings, &format!("children[{i}]"), child, max_output_tokens);
    }
    // A container of another name may be a backend of the embedder, and is warned of itself.
    let has_other = role.children.iter().any(|child| matches!(child, Container::Other { .. }));
    if !has_other && select_backend(role).choice.is_none() {
        findings
            .push(RoleFinding::new("children", "has no backend that can be used, so each run is refused"));
    }
    findings
}

fn tool_warnings(findings: &mut Vec<RoleFinding>, role: &RoleBlock) {
    let content = &role.content;
    let own = allowed_tools(role, Caller::Session, None);
    let is_disabled =
        |name: &str| EXPLICIT_ONLY_TOOLS.contains(&name) && content.tools.iter().all(|tool| tool != name);
    for (i, name) in content.mcp_preset.iter().flatten().enumerate().filter(|(_, name)| is_disabled(name)) {
        let path = format!("content.mcpPreset[{i}]");
        findings.push(RoleFinding::new(path, format!("has no effect: {name} must be named in tools")));
    }
    for (i, name) in content.widget_tools.iter().enumerate().filter(|(_, name)| !own.contains(*name)) {
        let message = match is_disabled(name) {
            true => format!("has no effect: {name} must be named in tools"),
            false => "is open to visitors, but is not a tool of the agent's users".to_owned(),
        };
        findings.push(RoleFinding::new(format!("content.widgetTools[{i}]"), message));
    }
    let server_tools = content.agent_server.agent_server_tools.iter().flatten().enumerate();
    for (i, _) in
        server_tools.filter(|(_, name)| !own.contains(*name) && !content.widget_tools.contains(name))
    {
        let message = "has no effect: the list restricts the agent's tools and adds none";
        findings.push(RoleFinding::new(format!("content.agentServerTools[{i}]"), message));
    }
    let is_empty = |rule: &ApprovalRule| rule.tools.is_empty() && rule.annotations.is_empty();
    for (i, _) in content.approvals.iter().enumerate().filter(|(_, rule)| is_empty(rule)) {
        let message = "has no effect without tools or annotations";
        findings.push(RoleFinding::new(format!("content.approvals[{i}]"), message));
    }
    if own.contains("sendMessengerMessage") && content.messenger_token.is_none() {
        let message = "is missing, so the tool sendMessengerMessage cannot send";
        findings.push(RoleFinding::new("content.messengerToken", message));
    }
}

/// Warns of the parameters of a container that the named models, with the role's limit on their answers, have no use for.
fn parameter_warnings(
    findings: &mut Vec<RoleFinding>,
    at: &str,
    embedded: &EmbeddedAi,
    max_output_tokens: Option<NonZeroU32>,
) {
    let fallbacks = embedded.fallbacks.iter();
    let fallbacks = fallbacks.map(|other| ((&other.provider, &other.model), &other.reasoning_effort));
    let own = ((&embedded.provider, &embedded.model), &embedded.reasoning_effort);
    for ((names, effort), (name, parameters)) in
        std::iter::once(own).chain(fallbacks).zip(parameters_of(embedded))
    {
        let thinking = thinking_switch(embedded.enable_thinking, effort.as_deref());
        let settings = (thinking, max_output_tokens);
        ignored_warnings(findings, &format!("{at}.{name}"), names, parameters, settings);
    }
}

/// Warns of the parameters of an agent server and of its fallbacks that the named model has no use for.
fn server_warnings(findings: &mut Vec<RoleFinding>, at: &str, server: &AgentServer) {
    let servers = std::iter::once(server).chain(&server.fallbacks);
    for (server, (name, parameters)) in servers.zip(server_parameters(server)) {
        let names = (&server.agent_server_provider, &server.agent_server_model);
        let settings = (server.agent_server_enable_thinking, None);
        ignored_warnings(findings, &format!("{at}.{name}"), names, parameters, settings);
    }
}

/// Warns of the parameters that a model of this provider has no use for. The settings are the switch of its thinking, and the
/// role's limit on its answers.
fn ignored_warnings(
    findings: &mut Vec<RoleFinding>,
    at: &str,
    (provider, model): (&Option<String>, &Option<String>),
    parameters: &Map<String, Value>,
    (thinking, max_output_tokens): (Option<bool>, Option<NonZeroU32>),
) {
    let api = ModelApi::of_provider(provider.as_deref().unwrap_or_default().trim());
    let (Some(api), Ok(parameters)) = (api, ModelParameters::read(parameters)) else { return };
    let model = model.as_deref().unwrap_or_default().trim();
    let limit = parameters.max_output_tokens.or(max_output_tokens).map(|tokens| tokens.get() as usize);
    for ignored in parameters.ignored(api, model, thinking, limit) {
        let message = "has no effect: it is not sent to this model";
        findings.push(RoleFinding::new(format!("{at}.{ignored}"), message));
    }
}

fn container_warnings(
    findings: &mut Vec<RoleFinding>,
    at: &str,
    child: &Container,
    max_output_tokens: Option<NonZeroU32>,
) {
    let is_unused = "is missing, so the container is not used";
    match child {
        Container::AgentServer(server) if is_blank(&server.agent_server_url) => {
            findings.push(RoleFinding::new(format!("{at}.content.agentServerUrl"), is_unused));
        }
        Container::AgentServer(server) => server_warnings(findings, &format!("{at}.content"), server),
        Container::WorkflowConnector(workflow) if is_blank(&workflow.webhook_url) => {
            findings.push(RoleFinding::new(format!("{at}.content.webhookUrl"), is_unused));
        }
        Container::SubscriptionConnector(subscription) if is_blank(&subscription.model) => {
            findings.push(RoleFinding::new(format!("{at}.content.model"), is_unused));
        }
        Container::EmbeddedAi(embedded) => {
            parameter_warnings(findings, &format!("{at}.content"), embedded, max_output_tokens);
            let is_local = embedded.provider.as_deref() == Some(LOCAL_PROVIDER);
            for (name, is_set) in [
                ("enableThinking", embedded.enable_thinking.is_some()),
                ("reasoningEffort", embedded.reasoning_effort.is_some()),
                ("baseUrl", embedded.base_url.is_some()),
                ("apiKey", embedded.api_key.is_some()),
            ] {
                if is_local && is_set {
                    let message = "has no effect on the embedded model";
                    findings.push(RoleFinding::new(format!("{at}.content.{name}"), message));
                }
            }
        }
        Container::Other { .. } => {
            findings
                .push(RoleFinding::new(format!("{at}.name"), "is not the name of a backend of this server"));
        }
        _ => {}
    }
}
