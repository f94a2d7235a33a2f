//! `/api/settings/{id}`: settings of a company. There is one, `approvalFloor`: the tools whose calls need an approval, whatever
//! the roles of the company's agents say. An admin of the company changes it, and its users may read it.

use std::sync::Arc;

use agent_core::request::Principal;
use agent_platform::approval_floor::{
    APPROVAL_FLOOR, ApprovalFloor, FloorHint, delete_approval_floor, get_approval_floor, put_approval_floor,
};
use agent_platform::records::{ListQuery, Precondition, Record, StoreError};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::App;
use super::ownership::{AGENTS_TAG, check_admin};
use super::resource::{IdOrigin, Listing, Resource, Versioned, set_or_check_id};
use super::thread_docs::object;
use crate::endpoint::{Operation, Params, Schemas};
use crate::error::{Code, HttpError};

/// Member with the hints of an approval floor.
const ANNOTATIONS: &str = "annotations";

/// Settings of the caller's company.
pub(super) struct CompanySettings {
    app: Arc<App>,
    principal: Principal,
}

#[async_trait]
impl Listing for CompanySettings {
    type Page = Value;

    async fn open(app: Arc<App>, principal: Principal, _: &Params) -> Result<Self, HttpError> {
        Ok(Self { app, principal })
    }

    async fn page(&self, _: ListQuery) -> Result<Value, HttpError> {
        let floor = self.floor().await?;
        Ok(json!({"settings": floor.iter().map(|floor| view(&floor.value)).collect::<Vec<_>>()}))
    }
}

#[async_trait]
impl Resource for CompanySettings {
    type Input = ApprovalFloor;
    type View = Value;

    async fn load(&self, id: &str) -> Result<Versioned<Value>, HttpError> {
        check_known(id)?;
        let Record { version, value, .. } = self.floor().await?.ok_or_else(HttpError::not_found)?;
        Ok(Versioned { version, value: view(&value) })
    }

    async fn authorize_put(&self, id: &str) -> Result<(), HttpError> {
        check_known(id)?;
        check_admin(&self.app, &self.principal).await
    }

    async fn validate(&self, id: &str, mut body: Map<String, Value>) -> Result<ApprovalFloor, HttpError> {
        set_or_check_id(&mut body, "id", id, IdOrigin::Path)?;
        body.remove("id");
        read_floor(&body)
    }

    async fn version_for_put(&self, _: &str) -> Result<Option<u64>, HttpError> {
        Ok(self.floor().await?.map(|record| record.version))
    }

    async fn store(
        &self,
        _: &str,
        floor: &ApprovalFloor,
        condition: Precondition,
    ) -> Result<u64, StoreError> {
        put_approval_floor(&*self.app.records, &self.principal.company_id, floor, condition).await
    }

    async fn stored(
        &self,
        _: &str,
        floor: ApprovalFloor,
        version: u64,
        _: bool,
    ) -> Result<Versioned<Value>, HttpError> {
        Ok(Versioned { version, value: view(&floor) })
    }

    async fn version_for_delete(&self, id: &str) -> Result<u64, HttpError> {
        check_known(id)?;
        check_admin(&self.app, &self.principal).await?;
        Ok(self.floor().await?.ok_or_else(HttpError::not_found)?.version)
    }

    async fn remove(&self, _: &str, condition: Precondition) -> Result<bool, StoreError> {
        delete_approval_floor(&*self.app.records, &self.principal.company_id, condition).await
    }

    async fn removed(&self, _: &str) -> Result<(), HttpError> {
        Ok(())
    }
}

impl CompanySettings {
    async fn floor(&self) -> Result<Option<Record<ApprovalFloor>>, HttpError> {
        Ok(get_approval_floor(&*self.app.records, &self.principal.company_id).await?)
    }
}

fn check_known(id: &str) -> Result<(), HttpError> {
    match id {
        APPROVAL_FLOOR => Ok(()),
        _ => Err(HttpError::not_found()),
    }
}

fn view(floor: &ApprovalFloor) -> Value {
    json!({"id": APPROVAL_FLOOR, "annotations": floor.annotations})
}

fn read_floor(body: &Map<String, Value>) -> Result<ApprovalFloor, HttpError> {
    if let Some(name) = body.keys().find(|name| *name != ANNOTATIONS) {
        let message = format!("is not a member of the approval floor; expected {ANNOTATIONS}");
        return Err(HttpError::invalid(name, message));
    }
    let Some(Value::Array(hints)) = body.get(ANNOTATIONS) else {
        return Err(HttpError::invalid(ANNOTATIONS, "must be an array"));
    };
    if hints.is_empty() {
        return Err(HttpError::invalid(ANNOTATIONS, "is empty; delete the setting instead"));
    }
    let hint = |(index, hint): (usize, &Value)| {
        FloorHint::deserialize(hint)
            .map_err(|_| HttpError::invalid(&format!("{ANNOTATIONS}[{index}]"), unknown_hint()))
    };
    Ok(ApprovalFloor { annotations: hints.iter().enumerate().map(hint).collect::<Result<_, _>>()? })
}

fn unknown_hint() -> String {
    let names = FloorHint::ALL.map(|hint| json!(hint).as_str().unwrap_or_default().to_owned());
    format!("must be one of {}", names.join(", "))
}

fn members() -> Value {
    let text = "Calls of tools with one of these hints need an approval. `notReadOnly` means all tools that are not annotated as read-only.";
    json!({ANNOTATIONS: {
        "type": "array", "minItems": 1, "items": {"enum": FloorHint::ALL}, "description": text,
    }})
}

fn setting_schema() -> Value {
    let mut members = members();
    members["id"] = json!({"enum": [APPROVAL_FLOOR]});
    object(&["id", ANNOTATIONS], members)
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(id, AGENTS_TAG, summary)
}

pub(super) fn describe_list(_: &mut Schemas) -> Operation {
    let all = json!({"type": "array", "items": setting_schema()});
    operation("listCompanySettings", "Lists the settings of the company that have a value.").json_response(
        200,
        "The settings.",
        object(&["settings"], json!({ "settings": all })),
    )
}

pub(super) fn describe_get(_: &mut Schemas) -> Operation {
    operation("getCompanySetting", "Returns a setting of the company.")
        .conditional_read()
        .versioned_response(200, "The setting.", setting_schema())
        .problems(&[Code::NotFound])
}

pub(super) fn describe_put(_: &mut Schemas) -> Operation {
    let mut body = object(&[ANNOTATIONS], members());
    body["additionalProperties"] = false.into();
    operation("putCompanySetting", "Sets a setting of the company. It applies from the next tool call on.")
        .describe("For admins of the company.")
        .conditional_write(&["If-Match", "If-None-Match"])
        .body(body)
        .versioned_response(200, "The setting was replaced.", setting_schema())
        .versioned_response(201, "The setting was created.", setting_schema())
        .problems(&[Code::Forbidden, Code::NotFound])
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    operation("deleteCompanySetting", "Deletes a setting of the company.")
        .describe("For admins of the company.")
        .conditional_write(&["If-Match"])
        .empty_response(204, "The setting was deleted.")
        .problems(&[Code::Forbidden, Code::NotFound])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_read_strictly() {
        for (body, fault) in [
            (json!({}), "annotations must be an array"),
            (json!({"annotations": "destructive"}), "annotations must be an array"),
            (json!({"annotations": []}), "annotations is empty; delete the setting instead"),
            (
                json!({"annotations": ["openWorld", "sk-1"]}),
                "annotations[1] must be one of destructive, openWorld, notReadOnly",
            ),
            (
                json!({"annotations": [1]}),
                "annotations[0] must be one of destructive, openWorld, notReadOnly",
            ),
            (
                json!({"annotations": ["openWorld"], "by": 1}),
                "by is not a member of the approval floor; expected annotations",
            ),
        ] {
            let error = read_floor(body.as_object().expect("an object")).expect_err(fault);
            assert_eq!(error.detail(), fault);
        }
        let body = json!({"annotations": ["openWorld", "destructive", "openWorld"]});
        let floor = read_floor(body.as_object().expect("an object")).expect("a floor");
        assert_eq!(view(&floor), json!({"id": "approvalFloor", "annotations": ["destructive", "openWorld"]}));
        assert_eq!(json!(FloorHint::ALL), json!(["destructive", "openWorld", "notReadOnly"]));
    }
}
