//! Setting of the catalogue of models.

use std::sync::Arc;

use agent_platform::catalog::Catalog;

use super::SettingError;
use super::file::read_file;
use super::resolve::ResolvedSettings;
use super::values::SettingValues;

const MODEL_CATALOG: &str = "MODEL_CATALOG";

/// Returns the built-in catalogue with the file merged over it, if there is one. Adds the error of a file that cannot be
/// used.
pub(super) fn load(
    resolved: &ResolvedSettings,
    values: &SettingValues,
    errors: &mut Vec<SettingError>,
) -> Arc<Catalog> {
    let built_in = Catalog::built_in();
    let Some(path) = values.path(MODEL_CATALOG) else { return built_in };
    let merged =
        read_file(&path).map_err(|problem| format!("names a file that {problem}")).and_then(|text| {
            Catalog::clone(&built_in).merged(&text).map_err(|error| format!("names a file in which {error}"))
        });
    merged.map(Arc::new).unwrap_or_else(|message| {
        let source = resolved.get(MODEL_CATALOG).map(|(_, source)| source.clone());
        errors.push(SettingError { name: MODEL_CATALOG.to_owned(), source, message });
        built_in
    })
}
