//! `/api/providers/{id}`: the providers of models that belong to a company. An admin of the company manages them; agents name them
//! by their identifiers.

use std::sync::Arc;

use agent_core::ids::CompanyId;
use agent_core::request::Principal;
use agent_platform::providers::{
    InvalidProviderError, MAX_KEY_BYTES, MAX_PROVIDER_MODELS, ProviderInput, ProviderType, Providers,
    StoredProvider, agents_with_provider,
};
use agent_platform::records::{ListQuery, Precondition, Record, StoreError};
use agent_platform::roles::check_provider_id;
use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::App;
use super::catalog::model_schema;
use super::ownership::check_admin;
use super::resource::{IdOrigin, Listing, Resource, Versioned, check_quota, set_or_check_id};
use super::thread_docs::object;
use crate::endpoint::{Operation, Params, Schemas, string_schema};
use crate::error::{Code, HttpError};

/// Tag of the operations.
const TAG: &str = "usage";
/// Maximum number of providers of a company.
const MAX_PROVIDERS: u64 = 50;

/// Providers of the caller's company.
pub(super) struct CompanyProviders {
    app: Arc<App>,
    company: CompanyId,
}

#[async_trait]
impl Listing for CompanyProviders {
    type Page = Value;

    async fn open(app: Arc<App>, principal: Principal, _: &Params) -> Result<Self, HttpError> {
        check_admin(&app, &principal).await?;
        Ok(Self { app, company: principal.company_id })
    }

    async fn page(&self, list: ListQuery) -> Result<Value, HttpError> {
        let page = self.providers().list(&self.company, &list).await?;
        let providers: Vec<Value> =
            page.records.iter().map(|record| record.value.masked_json(&record.id)).collect();
        let mut body = json!({ "providers": providers });
        if let Some(cursor) = page.next_cursor {
            body["nextCursor"] = cursor.into();
        }
        Ok(body)
    }
}

#[async_trait]
impl Resource for CompanyProviders {
    type Input = ProviderInput;
    type View = Value;

    async fn load(&self, id: &str) -> Result<Versioned<Value>, HttpError> {
        let record = self.find(id).await?.ok_or_else(HttpError::not_found)?;
        Ok(Versioned { version: record.version, value: record.value.masked_json(id) })
    }

    async fn authorize_put(&self, id: &str) -> Result<(), HttpError> {
        check_provider_id(id).map_err(|error| HttpError::invalid("id", error))
    }

    async fn validate(&self, id: &str, mut body: Map<String, Value>) -> Result<ProviderInput, HttpError> {
        set_or_check_id(&mut body, "id", id, IdOrigin::Path)?;
        body.remove("id");
        let input = ProviderInput::read(&body)
            .map_err(|InvalidProviderError { path, message }| HttpError::invalid(&path, message))?;
        if let Some(url) = &input.provider.base_url {
            let checked = self.app.providers.models.check_address(url);
            checked.map_err(|error| HttpError::invalid("baseUrl", format_args!("is refused: {error}")))?;
        }
        Ok(input)
    }

    async fn version_for_put(&self, id: &str) -> Result<Option<u64>, HttpError> {
        Ok(self.find(id).await?.map(|record| record.version))
    }

    async fn prepare_create(&self, _: &str) -> Result<(), HttpError> {
        check_quota("providers", self.providers().count(&self.company).await?, MAX_PROVIDERS)
    }

    async fn store(
        &self,
        id: &str,
        input: &ProviderInput,
        condition: Precondition,
    ) -> Result<u64, StoreError> {
        if condition == Precondition::Absent {
            return self.providers().create(&self.company, id, input, MAX_PROVIDERS).await;
        }
        self.providers().put(&self.company, id, input, condition).await
    }

    async fn stored(
        &self,
        id: &str,
        _: ProviderInput,
        _: u64,
        _: bool,
    ) -> Result<Versioned<Value>, HttpError> {
        let record = self.find(id).await?.ok_or_else(|| {
            HttpError::conflict("the provider was saved and then deleted by a concurrent request")
        })?;
        Ok(Versioned { version: record.version, value: record.value.masked_json(id) })
    }

    /// Refuses to delete a provider that agents name.
    async fn version_for_delete(&self, id: &str) -> Result<u64, HttpError> {
        let record = self.find(id).await?.ok_or_else(HttpError::not_found)?;
        let agents = agents_with_provider(&*self.app.roles, &self.company, id).await?;
        if agents.is_empty() {
            return Ok(record.version);
        }
        let error = HttpError::conflict("agents of the company name this provider");
        Err(error.with_member("agents", json!(agents)))
    }

    async fn remove(&self, id: &str, condition: Precondition) -> Result<bool, StoreError> {
        self.providers().delete(&self.company, id, condition).await
    }

    async fn removed(&self, _: &str) -> Result<(), HttpError> {
        Ok(())
    }
}

impl CompanyProviders {
    fn providers(&self) -> &Providers {
        self.app.providers.store()
    }

    async fn find(&self, id: &str) -> Result<Option<Record<StoredProvider>>, HttpError> {
        Ok(self.providers().get(&self.company, id).await?)
    }
}

fn model_list() -> Value {
    let mut model = model_schema(false);
    model["additionalProperties"] = false.into();
    json!({"type": "array", "maxItems": MAX_PROVIDER_MODELS, "items": model})
}

fn members() -> Value {
    let key = "A key is shown as `***`. An absent key or `***` keeps the stored key unless the address changes; an empty key clears it.";
    json!({
        "type": {"enum": ProviderType::ALL.map(ProviderType::as_str), "description": "API of the provider."},
        "baseUrl": {"type": "string", "description": "Absent for the address of the server's settings."},
        "apiKey": {"type": "string", "maxLength": MAX_KEY_BYTES, "description": key},
        "models": model_list(),
    })
}

fn provider_schema() -> Value {
    let mut members = members();
    members["id"] = string_schema();
    object(&["id", "type", "models"], members)
}

fn operation(id: &str, summary: &str) -> Operation {
    Operation::new(id, TAG, summary).describe("For admins of the company.").problems(&[
        Code::InvalidRequest,
        Code::Forbidden,
        Code::NotFound,
    ])
}

pub(super) fn describe_list(_: &mut Schemas) -> Operation {
    let all = json!({"type": "array", "items": provider_schema()});
    let page = object(&["providers"], json!({"providers": all, "nextCursor": string_schema()}));
    operation("listProviders", "Lists the providers of the company, with their keys masked.")
        .paged()
        .json_response(200, "One page of providers.", page)
}

pub(super) fn describe_get(_: &mut Schemas) -> Operation {
    operation("getProvider", "Returns a provider of the company, with its key masked.")
        .conditional_read()
        .versioned_response(200, "The provider.", provider_schema())
}

pub(super) fn describe_put(_: &mut Schemas) -> Operation {
    let mut body = object(&["type"], members());
    body["additionalProperties"] = false.into();
    operation(
        "putProvider",
        "Creates or replaces a provider of the company. A changed key is used from the next call on.",
    )
    .conditional_write(&["If-Match", "If-None-Match"])
    .body(body)
    .versioned_response(200, "The provider was replaced.", provider_schema())
    .versioned_response(201, "The provider was created.", provider_schema())
    .problems(&[Code::Conflict])
}

pub(super) fn describe_delete(_: &mut Schemas) -> Operation {
    operation(
        "deleteProvider",
        "Deletes a provider of the company. While agents name it, this is 409 with some of them in `agents`.",
    )
    .conditional_write(&["If-Match"])
    .empty_response(204, "The provider was deleted.")
    .problems(&[Code::Conflict])
}
