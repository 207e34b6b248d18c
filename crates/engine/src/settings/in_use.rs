//! Where each setting's value comes from.

use super::table::SETTINGS;
use super::{FILE_NAME, Settings, SettingsError};
use std::fmt;
use std::path::PathBuf;
use toml::de::DeTable;

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingSource {
    /// As an argument.
    Argument,
    /// In the environment, under this name.
    Environment(&'static str),
    /// In the settings file.
    File {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// Nowhere.
    Default,
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingSource::Argument => f.write_str("argument"),
            SettingSource::Environment(name) => write!(f, "environment: {name}"),
            SettingSource::File { path, line } => write!(f, "{}:{line}", path.display()),
            SettingSource::Default => f.write_str("default"),
        }
    }
}

/// A setting's value as jobs will use it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InUse {
    /// The setting's name.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// Where it was given.
    pub source: SettingSource,
}

impl Settings {
    /// Every setting with its value and where that comes from, in the order of the table.
    ///
    /// # Errors
    /// As [`Settings::resolve`].
    pub fn in_use(&self) -> Result<Vec<InUse>, SettingsError> {
        let resolved = self.resolve()?;
        let environment = Settings::from_environment(|name| std::env::var(name).ok())?;
        let text = std::fs::read_to_string(FILE_NAME).unwrap_or_default();
        let used = SETTINGS.iter().map(|setting| {
            let source = if self.has(setting.key) {
                SettingSource::Argument
            } else if environment.has(setting.key) {
                SettingSource::Environment(setting.variable)
            } else if let Some(line) = line_of(&text, setting.key) {
                let path = std::path::absolute(FILE_NAME).unwrap_or_else(|_| FILE_NAME.into());
                SettingSource::File { path, line }
            } else {
                SettingSource::Default
            };
            InUse {
                key: setting.key,
                value: resolved.shown(setting.key),
                source,
            }
        });
        Ok(used.collect())
    }
}

/// The line of a key in a settings file that has been read before.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let (found, _) = table
        .get_ref()
        .iter()
        .find(|(name, _)| name.get_ref() == key)?;
    Some(text[..found.span().start].matches('\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_on_its_line() {
        let text = "# threads = 9\n\nmemory = \"\"\"\nthreads = 2\n\"\"\"\n  \"threads\" = 4\n";
        assert_eq!(line_of(text, "threads"), Some(6));
        assert_eq!(line_of(text, "memory"), Some(3));
        assert_eq!(line_of(text, "isa"), None);
    }

    #[test]
    fn arguments_come_first_and_what_nobody_gave_is_a_default() {
        let settings = Settings {
            stall_seconds: Some(5.5),
            ..Settings::default()
        };
        let used = settings.in_use().unwrap();
        let of = |key| used.iter().find(|it| it.key == key).unwrap();
        assert_eq!(of("stall_seconds").value, "5.5");
        assert_eq!(of("stall_seconds").source, SettingSource::Argument);
        assert_eq!(of("log").source.to_string(), "default");
        assert_eq!(of("log").value, "off");
        assert_eq!(used.len(), SETTINGS.len());
    }
}
