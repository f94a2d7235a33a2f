//! Weights of the embedded model: location, download and loading.
//!
//! A build without the feature `embedded` has no such model, and returns an error where one is required.

use std::path::PathBuf;
use std::sync::Arc;

use agent_core::model::Model;
use agent_retrieval::embed::Embedder;

use crate::StartError;
use crate::config::AppConfig;

#[cfg(feature = "embedded")]
pub(crate) use local_embedder::InProcessEmbedder;
#[cfg(feature = "embedded")]
use tenant_model::TenantEmbeddedModel;

#[cfg(feature = "embedded")]
mod http_source;
#[cfg(feature = "embedded")]
mod local_embedder;
#[cfg(feature = "embedded")]
mod tenant_model;

/// Opens the embedded model from the configured weights, or else from the downloaded default ones. Returns
/// `None` if there are none.
///
/// # Errors
/// The weights are configured or downloaded but cannot be used.
#[cfg(feature = "embedded")]
pub(crate) fn open_configured(config: &AppConfig) -> Result<Option<Arc<dyn Model>>, StartError> {
    Ok(open(config)?.map(|model| Arc::new(TenantEmbeddedModel::new(model)) as Arc<dyn Model>))
}

#[cfg(feature = "embedded")]
fn open(config: &AppConfig) -> Result<Option<Arc<agent_embedded::EmbeddedModel>>, StartError> {
    use agent_core::model::Model as _;
    use agent_embedded::{EmbeddedConfig, EmbeddedModel, catalog};

    let pulled = || Some(catalog::default_model().path_in(&config.model_dir)).filter(|path| path.exists());
    let Some(path) = config.embedded_model_path.clone().or_else(pulled) else { return Ok(None) };
    let model = EmbeddedModel::open(EmbeddedConfig::new(&path)).map_err(|error| {
        StartError::Other(format!("the embedded model cannot be used: {}", crate::with_source(&error)))
    })?;
    let info = model.info();
    tracing::info!(model = info.model, weights = %path.display(), "a demo model is available in this process");
    Ok(Some(Arc::new(model)))
}

/// Downloads the weights of a known model into `MODEL_DIR` and returns their path.
///
/// # Errors
/// The name is unknown, or the download fails.
#[cfg(feature = "embedded")]
pub(crate) async fn pull(config: &AppConfig, name: Option<&str>) -> Result<PathBuf, StartError> {
    use agent_embedded::catalog;
    use agent_embedded::pull::WeightsDownloader;

    let model = match name {
        None => catalog::default_model(),
        Some(name) => catalog::find(name).ok_or_else(|| {
            let names: Vec<&str> = catalog::models().iter().map(|model| model.name).collect();
            StartError::Other(format!("there is no model {name:?}; there is {}", names.join(", ")))
        })?,
    };
    let failed = |error| StartError::Other(format!("the weights cannot be downloaded: {error}"));
    // Without the address policy: an operator starts the download by hand, from addresses that are compiled in.
    let tls = agent_client::outbound::default_tls_config()?;
    let proxies = hyper_util::client::proxy::matcher::Matcher::from_env();
    let downloader = WeightsDownloader::new(http_source::HttpSource::new(tls, proxies)).with_progress_bar();
    downloader.run(model, &config.model_dir, &print_line).await.map_err(failed)
}

/// Returns the known models, one line each.
#[cfg(feature = "embedded")]
pub(crate) fn list(config: &AppConfig) -> Vec<String> {
    let line = |model: &agent_embedded::catalog::KnownModel| {
        let path = model.path_in(&config.model_dir);
        let location =
            if model.is_in(&config.model_dir) { path.display().to_string() } else { "not pulled".to_owned() };
        let megabytes = model.bytes() / 1_000_000;
        format!("{}\t{megabytes} MB\t{}\t{location}\t{}", model.name, model.license, model.description)
    };
    agent_embedded::catalog::models().iter().map(line).collect()
}

/// Opens the embedding model with a name from the catalogue.
///
/// # Errors
/// An embedding model that does not exist, or whose files are not in `MODEL_DIR`.
#[cfg(feature = "embedded")]
pub(crate) fn open_embedder(config: &AppConfig, name: &str) -> Result<Arc<dyn Embedder>, StartError> {
    use agent_embedded::{LocalEmbedder, catalog};

    let model = catalog::find(name).filter(|model| model.embedding.is_some()).ok_or_else(|| {
        let models = catalog::models().iter().filter(|model| model.embedding.is_some());
        let names: Vec<&str> = models.map(|model| model.name).collect();
        StartError::Other(format!("there is no embedding model {name:?}; there is {}", names.join(", ")))
    })?;
    let embedder = LocalEmbedder::open(model, &config.model_dir, None)
        .map_err(|error| StartError::Other(format!("the embedding model cannot be used: {error}")))?;
    Ok(Arc::new(InProcessEmbedder::new(model, embedder)))
}

/// Returns an error: this build has no embedding model.
///
/// # Errors
/// Always: a local embedding model needs the feature `embedded`.
#[cfg(not(feature = "embedded"))]
pub(crate) fn open_embedder(_: &AppConfig, _: &str) -> Result<Arc<dyn Embedder>, StartError> {
    Err(missing_feature_error("EMBEDDING_PROVIDER=local"))
}

/// Returns `None`: this build has no embedded model.
///
/// # Errors
/// `EMBEDDED_MODEL_PATH` is set, but this build cannot use it.
#[cfg(not(feature = "embedded"))]
pub(crate) fn open_configured(config: &AppConfig) -> Result<Option<Arc<dyn Model>>, StartError> {
    match &config.embedded_model_path {
        Some(_) => Err(missing_feature_error("EMBEDDED_MODEL_PATH")),
        None => Ok(None),
    }
}

/// Returns an error: this build has no embedded model.
///
/// # Errors
/// Always: `model pull` needs the feature `embedded`.
#[cfg(not(feature = "embedded"))]
pub(crate) async fn pull(_: &AppConfig, _: Option<&str>) -> Result<PathBuf, StartError> {
    Err(missing_feature_error("model pull"))
}

/// Returns an empty list: this build has no embedded model.
#[cfg(not(feature = "embedded"))]
pub(crate) fn list(_: &AppConfig) -> Vec<String> {
    Vec::new()
}

#[cfg(not(feature = "embedded"))]
fn missing_feature_error(setting: &str) -> StartError {
    StartError::Other(format!("{setting} needs a build with the feature `embedded`"))
}

/// Opens and loads the embedded model. Downloads its weights if they are missing.
///
/// # Errors
/// As [`open_configured`] and [`pull`], or the weights cannot be loaded.
#[cfg(feature = "embedded")]
pub(crate) async fn open_or_pull(config: &AppConfig) -> Result<Option<Arc<dyn Model>>, StartError> {
    print_line(
        "No key in the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY) and no model on an Ollama server, so a small \
         demo model answers in this process.",
    );
    let model = match open(config)? {
        Some(model) => Some(model),
        None => {
            pull(config, None).await?;
            open(config)?
        }
    };
    if let Some(model) = &model {
        model
            .warm()
            .await
            .map_err(|error| StartError::Other(format!("the embedded model cannot be loaded: {error}")))?;
    }
    Ok(model.map(|model| Arc::new(TenantEmbeddedModel::new(model)) as Arc<dyn Model>))
}

/// Returns the result of [`open_configured`]: this build has no embedded model.
///
/// # Errors
/// As [`open_configured`].
#[cfg(not(feature = "embedded"))]
pub(crate) async fn open_or_pull(config: &AppConfig) -> Result<Option<Arc<dyn Model>>, StartError> {
    open_configured(config)
}

/// Prints a text for the person who waits for the download, which continues if the output is closed.
#[cfg(feature = "embedded")]
fn print_line(text: &str) {
    use std::io::Write;

    let _ = writeln!(std::io::stderr(), "{text}");
}
