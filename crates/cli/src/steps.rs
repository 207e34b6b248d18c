//! The steps of a job on files, as a table for people. `sort` and `grep` show it.

use brambling::machine::report::PipelineStep;
use brambling::machine::units;

/// A line for each step that took time or moved bytes, and one of the threads that others waited for.
pub(crate) fn table(steps: &[PipelineStep], stragglers_seconds: f64) -> String {
    let mut text = String::new();
    for step in steps {
        if step.seconds < LEAST_SECONDS && step.bytes == 0 {
            continue;
        }
        let ideal = match step.ideal_seconds {
            Some(ideal) if step.bytes > 0 => format!("   ideal {:>8}", units::seconds(ideal)),
            _ => String::new(),
        };
        let (name, time) = (step.name, units::seconds(step.seconds));
        let moved = units::bytes(step.bytes as f64);
        text.push_str(&format!("  {name:<10}{time:>9}{moved:>11}{ideal}\n"));
    }
    if stragglers_seconds >= LEAST_SECONDS {
        let time = units::seconds(stragglers_seconds);
        text.push_str(&format!("  {:<10}{time:>9}\n", "stragglers"));
    }
    text
}

/// Less is not worth a line.
const LEAST_SECONDS: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_did_nothing_are_left_out() {
        let step = |name, seconds, ideal_seconds, bytes| PipelineStep {
            name,
            seconds,
            ideal_seconds,
            bytes,
        };
        let steps = [
            step("read", 1.5, Some(1.25), 2_000_000_000),
            step("exchange", 0.0, Some(0.0), 0),
            step("write", 3.0, None, 0),
        ];
        let text = table(&steps, 0.25);
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = lines.iter().map(|line| words(line)).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines[0].starts_with("read 1.5") && lines[0].contains("ideal"),
            "{text}"
        );
        assert!(
            lines[1].starts_with("write 3") && !lines[1].contains("ideal"),
            "{text}"
        );
        assert!(lines[2].starts_with("stragglers"), "{text}");
    }
}
