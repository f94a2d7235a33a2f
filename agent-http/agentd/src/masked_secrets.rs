//! Secrets that a workspace file masks and the database does not have.

use agent_core::secret::Secret;
use agent_platform::records::StoreError;
use agent_platform::roles::{RecordRoleStore, RoleFinding, RoleStore as _};
use agent_platform::workspace::WorkspaceFile;
use serde::Deserialize;
use serde_json::Value;

/// The agents of a workspace file as they are written there.
#[derive(Default, Deserialize)]
struct WrittenAgents {
    #[serde(default)]
    agents: Vec<Value>,
}

/// Returns a finding for each masked secret of the file's agents that the stored agents do not have: the file was exported from
/// another database, or the secret's address has changed. `text` is the text of the file.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn find_missing_secrets(
    text: &str,
    file: &WorkspaceFile,
    roles: &RecordRoleStore,
) -> Result<Vec<RoleFinding>, StoreError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let WrittenAgents { agents } = serde_json::from_str(text).unwrap_or_default();
    let mut findings = Vec::new();
    for (index, (written, role)) in agents.iter().zip(&file.agents).enumerate() {
        let mut masked = Vec::new();
        collect_masked(written, "", &format!("agents[{index}]"), &mut masked);
        if masked.is_empty() {
            continue;
        }
        let stored = roles.masked_role(&role.company_id, &role.id).await?.map(|record| record.value);
        let stored = serde_json::to_value(stored).unwrap_or_default();
        for (pointer, path) in masked {
            if stored.pointer(&pointer).and_then(Value::as_str) != Some(Secret::MASK) {
                let message =
                    "is masked, and the database does not have this secret: save it again".to_owned();
                findings.push(RoleFinding { path, message });
            }
        }
    }
    Ok(findings)
}

/// Adds the places of texts that are the mask of secrets: their JSON Pointers, and their paths for people.
fn collect_masked(value: &Value, pointer: &str, path: &str, masked: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) if text == Secret::MASK => masked.push((pointer.to_owned(), path.to_owned())),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_masked(item, &format!("{pointer}/{index}"), &format!("{path}[{index}]"), masked);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                collect_masked(field, &format!("{pointer}/{escaped}"), &format!("{path}.{name}"), masked);
            }
        }
        _ => {}
    }
}
