//! What kernels print on workers, as the client of their job has it.

use brambling_protocol::WorkerId;
use brambling_protocol::message::PrintStream;
use std::fmt::{Display, Formatter, Result};

/// A line that a kernel has printed on a worker, or what is missing there. As text it says where it comes from. Its own texts hold no
/// control characters but tabs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Printed {
    /// Where.
    pub worker: WorkerId,
    /// To what.
    pub stream: PrintStream,
    /// What.
    pub what: PrintedWhat,
}

/// What has come of what kernels print.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PrintedWhat {
    /// A line.
    Line {
        /// The stage whose kernel it was; none: the program was being built.
        stage: Option<String>,
        /// The line, without its end.
        text: String,
        /// So many bytes more were cut off.
        cut_bytes: u64,
    },
    /// So many lines before the next one found no place on the worker.
    LeftOut(u64),
}

impl Display for Printed {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let worker = self.worker;
        match &self.what {
            PrintedWhat::LeftOut(1) => write!(f, "[{worker}] ... 1 line left out"),
            PrintedWhat::LeftOut(lines) => {
                write!(f, "[{worker}] ... {} lines left out", grouped(*lines))
            }
            PrintedWhat::Line {
                stage,
                text,
                cut_bytes,
            } => {
                match stage {
                    Some(stage) => write!(f, "[{worker}, {stage}] {text}")?,
                    None => write!(f, "[{worker}] {text}")?,
                }
                match cut_bytes {
                    0 => Ok(()),
                    bytes => write!(f, " ... {} bytes left out", grouped(*bytes)),
                }
            }
        }
    }
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(what: PrintedWhat, shown: &str) {
        let (worker, stream) = (WorkerId(2), PrintStream::Out);
        let printed = Printed {
            worker,
            stream,
            what,
        };
        assert_eq!(printed.to_string(), shown);
    }

    fn line(stage: Option<&str>, cut_bytes: u64) -> PrintedWhat {
        PrintedWhat::Line {
            stage: stage.map(str::to_owned),
            text: "loss\t0.25".into(),
            cut_bytes,
        }
    }

    #[test]
    fn lines_say_where_they_come_from() {
        check(line(Some("count"), 0), "[w2, count] loss\t0.25");
        check(line(None, 0), "[w2] loss\t0.25");
        check(
            line(None, 12_345),
            "[w2] loss\t0.25 ... 12,345 bytes left out",
        );
        check(PrintedWhat::LeftOut(1), "[w2] ... 1 line left out");
        check(PrintedWhat::LeftOut(123), "[w2] ... 123 lines left out");
        check(
            PrintedWhat::LeftOut(1_234_567),
            "[w2] ... 1,234,567 lines left out",
        );
    }
}
