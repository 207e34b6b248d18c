//! `brambling run`: a script, or an example by its name.

use crate::nearest::nearest;
use crate::reports::Wanted;
use crate::{Host, Streams, USAGE};
use brambling::machine::report::Report;
use std::path::Path;

/// Where jobs of the script are kept.
pub(crate) struct KeptIn {
    pub(crate) store: Option<String>,
    pub(crate) fresh: bool,
}

impl KeptIn {
    /// Tells the engine, which finds what an earlier process of this very command has stored.
    fn begin(&self, script: &str, args: &[String]) {
        let path = std::fs::canonicalize(script).unwrap_or_else(|_| script.into());
        let arguments = args.iter().map(|argument| format!("\0{argument}"));
        let arguments: String = arguments.collect();
        brambling::set_command(&format!("{}{arguments}", path.display()));
        brambling::set_fresh(self.fresh);
        if let Some(store) = &self.store {
            brambling::set_store(store);
        }
    }
}

pub(crate) fn run(
    (script, args): (&str, &[String]),
    kept: &KeptIn,
    wanted: &Wanted,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let found = find("run", script, host);
    let refusal = found.as_ref().err().cloned().or_else(|| wanted.refusal());
    if let Some(why) = refusal {
        streams.err(why);
        return USAGE;
    }
    if wanted.is_any() {
        brambling::record_ledgers();
    }
    kept.begin(script, args);
    let code = match found {
        Ok(Is::Example) => host.run_example(script, args),
        _ => host.run_script(Path::new(script), args),
    };
    // It has ended well: nobody starts it again to go on.
    if code == 0
        && let Err(error) = brambling::clear_stored()
    {
        streams.err(format!("warning: {error}"));
    }
    match wanted.is_any() {
        true => wanted.tell(code, streams),
        false => code,
    }
}

/// Reports of the jobs that have ended here since somebody asked for reports.
pub(crate) fn recorded() -> Vec<Report> {
    let ledgers = brambling::recorded_ledgers().into_iter();
    ledgers.map(Report::of).collect()
}

/// What a script is.
pub(crate) enum Is {
    File,
    Example,
}

/// What the script is that a command was given, or why it is none.
pub(crate) fn find(command: &str, script: &str, host: &dyn Host) -> Result<Is, String> {
    let examples = host.examples();
    let path = Path::new(script);
    if path.is_file() {
        return Ok(Is::File);
    }
    if examples.iter().any(|(name, _)| name == script) {
        return Ok(Is::Example);
    }
    Err(unknown(command, script, path, &examples))
}

fn unknown(command: &str, script: &str, path: &Path, examples: &[(String, String)]) -> String {
    let mut text = if path.is_dir() {
        format!("error: {script} is a directory; give a Python file in it\n")
    } else {
        format!("error: {script} is neither a file nor an example\n")
    };
    if path.with_extension("py").is_file() {
        text.push_str(&format!(
            "\n  did you mean: brambling {command} {script}.py\n"
        ));
    } else if let Some(name) = nearest(script, examples.iter().map(|(name, _)| name.as_str())) {
        text.push_str(&format!("\n  did you mean: brambling {command} {name}\n"));
    }
    text.push_str("\nExamples:\n");
    text.push_str(&crate::table::two_columns(
        examples
            .iter()
            .map(|(name, line)| (name.as_str(), line.as_str())),
    ));
    text
}
