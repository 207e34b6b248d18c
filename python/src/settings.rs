//! Settings that only Python uses.

use crate::run::settings_error;
use brambling::Settings;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

/// A setting's value as text, every source consulted.
#[pyfunction]
pub fn setting(key: &str) -> PyResult<String> {
    let used = Settings::default().in_use().map_err(settings_error)?;
    let found = used.into_iter().find(|setting| setting.key == key);
    found
        .map(|setting| setting.value)
        .ok_or_else(|| PyKeyError::new_err(format!("there is no setting {key}")))
}
