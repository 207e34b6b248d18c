//! `brambling run`: a script, or an example by its name.

use crate::nearest::nearest;
use crate::{Host, Streams, USAGE};
use std::path::Path;

pub(crate) fn run(
    script: &str,
    args: &[String],
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let examples = host.examples();
    let is_example = examples.iter().any(|(name, _)| name == script);
    let path = Path::new(script);
    if path.is_file() {
        return host.run_script(path, args);
    }
    if is_example {
        return host.run_example(script, args);
    }
    streams.err(unknown(script, path, &examples));
    USAGE
}

fn unknown(script: &str, path: &Path, examples: &[(String, String)]) -> String {
    let mut text = if path.is_dir() {
        format!("error: {script} is a directory; give a Python file in it\n")
    } else {
        format!("error: {script} is neither a file nor an example\n")
    };
    if path.with_extension("py").is_file() {
        text.push_str(&format!("\n  did you mean: brambling run {script}.py\n"));
    } else if let Some(name) = nearest(script, examples.iter().map(|(name, _)| name.as_str())) {
        text.push_str(&format!("\n  did you mean: brambling run {name}\n"));
    }
    text.push_str("\nExamples:\n");
    text.push_str(&crate::table::two_columns(
        examples
            .iter()
            .map(|(name, line)| (name.as_str(), line.as_str())),
    ));
    text
}
