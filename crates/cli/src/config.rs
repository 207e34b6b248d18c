//! `brambling config`: each setting, its value, and where that comes from.

use crate::doctor::causes;
use crate::table::columns;
use crate::{FAILED, OK, Streams};
use brambling::{InUse, SettingSource, Settings};
use serde::Serialize;

/// One setting. Its keys are stable.
#[derive(Serialize)]
struct ConfigLine {
    setting: &'static str,
    value: String,
    /// argument, environment, file or default.
    source: &'static str,
    /// The variable, or the file and its line.
    place: Option<String>,
}

impl From<InUse> for ConfigLine {
    fn from(used: InUse) -> ConfigLine {
        let (source, place) = match &used.source {
            SettingSource::Environment(name) => ("environment", Some((*name).to_owned())),
            SettingSource::File { .. } => ("file", Some(used.source.to_string())),
            SettingSource::Argument => ("argument", None),
            _ => ("default", None),
        };
        ConfigLine {
            setting: used.key,
            value: used.value,
            source,
            place,
        }
    }
}

pub(crate) fn run(json: bool, streams: &mut Streams<'_>) -> u8 {
    let used = match Settings::default().in_use() {
        Ok(used) => used,
        Err(error) => {
            let text = causes(&error);
            streams.err(format!("error: {text}\n  brambling doctor says what to do"));
            return FAILED;
        }
    };
    if json {
        let lines: Vec<ConfigLine> = used.into_iter().map(ConfigLine::from).collect();
        let text = serde_json::to_string(&lines).expect("lines are text");
        streams.out(text + "\n");
    } else {
        let row = |it: InUse| [it.key.to_owned(), it.value, it.source.to_string()];
        streams.out(columns(&used.into_iter().map(row).collect::<Vec<_>>()));
    }
    OK
}
