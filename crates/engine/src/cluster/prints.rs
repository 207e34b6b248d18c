//! What kernels print on workers, at the client of their job.

use brambling_protocol::WorkerId;
use brambling_protocol::message;
use brambling_worker::executor::{Printed, PrintedWhat};

/// What a worker says that was printed there, as it may stand on a terminal.
pub(super) fn shown(worker: WorkerId, printed: &message::PrintedLines<'_>) -> Vec<Printed> {
    let first = printed.lines.first().map(|line| line.stream);
    let left_out = first.filter(|_| printed.left_out > 0);
    let left_out = left_out.map(|stream| (stream, PrintedWhat::LeftOut(printed.left_out)));
    let lines = printed.lines.iter().map(|line| {
        let what = PrintedWhat::Line {
            stage: (!line.stage.is_empty()).then(|| cleaned(line.stage)),
            text: cleaned(line.text),
            cut_bytes: line.cut_bytes,
        };
        (line.stream, what)
    });
    let all = left_out.into_iter().chain(lines);
    let all = all.map(|(stream, what)| Printed {
        worker,
        stream,
        what,
    });
    all.collect()
}

/// A text of somebody else's: nothing in it drives a terminal.
fn cleaned(text: &str) -> String {
    let letters = text.chars();
    letters
        .filter(|letter| *letter == '\t' || !letter.is_control())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_protocol::message::{PrintStream, PrintedLine};
    use brambling_protocol::{Generation, JobId, JobKey};

    #[test]
    fn texts_of_workers_drive_no_terminal() {
        let line = PrintedLine {
            stream: PrintStream::Err,
            stage: "co\x1bunt",
            text: "\x1b[2Jloss\t0.25\r\n\u{9b}ü",
            cut_bytes: 0,
        };
        let printed = message::PrintedLines {
            key: JobKey::new(JobId(1), Generation(0)),
            number: 0,
            left_out: 3,
            lines: vec![line],
        };
        let shown = shown(WorkerId(2), &printed);
        let texts: Vec<String> = shown.iter().map(Printed::to_string).collect();
        assert_eq!(
            texts,
            ["[w2] ... 3 lines left out", "[w2, count] [2Jloss\t0.25ü"]
        );
        assert!(shown.iter().all(|it| it.stream == PrintStream::Err));
    }
}
