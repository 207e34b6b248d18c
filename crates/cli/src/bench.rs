//! `brambling bench`: a bench's table, or its JSON.

use crate::nearest::nearest;
use crate::table::{numbers, spread, two_columns};
use crate::{FAILED, Host, HostBench, INTERRUPTED, OK, Streams, USAGE};
use brambling_bench::{BenchError, Options, Report};

pub(crate) fn run(
    name: Option<&str>,
    options: &Options,
    json: bool,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let Some(name) = name else {
        streams.out(format!("Benches:\n{}", list(host)));
        return OK;
    };
    if host.benches().iter().any(|(own, _)| own == name) {
        return run_of_host(name, options, json, host, streams);
    }
    match brambling_bench::run(name, options, &mut || host.interrupted()) {
        Ok(report) if json => {
            let text = serde_json::to_string(&report).expect("a report has only text and numbers");
            streams.out(text + "\n");
            OK
        }
        Ok(report) => {
            streams.out(render(&report));
            OK
        }
        Err(BenchError::Unknown { .. }) => {
            streams.err(unknown(name, host));
            USAGE
        }
        Err(error @ (BenchError::NotItsOption { .. } | BenchError::OutOfRange { .. })) => {
            streams.err(format!("error: {error}"));
            USAGE
        }
        Err(BenchError::Interrupted) => {
            streams.err("interrupted");
            INTERRUPTED
        }
        Err(error) => {
            streams.err(format!("error: {error}"));
            FAILED
        }
    }
}

fn run_of_host(
    name: &str,
    options: &Options,
    json: bool,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    if let Err(error) = options.refuse_own(name) {
        streams.err(format!("error: {error}"));
        return USAGE;
    }
    let (threads, smoke) = (options.threads, options.smoke);
    let options = HostBench {
        threads,
        smoke,
        json,
    };
    host.run_bench(name, options)
}

fn all(host: &dyn Host) -> Vec<(String, String)> {
    let ours = brambling_bench::descriptions().into_iter();
    let ours = ours.map(|(name, claim)| (name.to_owned(), claim.to_owned()));
    ours.chain(host.benches()).collect()
}

fn list(host: &dyn Host) -> String {
    let all = all(host);
    two_columns(all.iter().map(|(name, claim)| (&**name, &**claim)))
}

fn unknown(name: &str, host: &dyn Host) -> String {
    let mut text = format!("error: there is no bench {name:?}\n");
    let names = all(host);
    if let Some(name) = nearest(name, names.iter().map(|(name, _)| name.as_str())) {
        text.push_str(&format!("\n  did you mean: brambling bench {name}\n"));
    }
    text + "\nBenches:\n" + &list(host)
}

fn render(report: &Report) -> String {
    let mut text = format!(
        "{}   {} threads   {} ({})   brambling {}\n",
        report.bench, report.threads, report.cpu, report.isa, report.version
    );
    let rows: Vec<_> = report
        .lines
        .iter()
        .map(|line| {
            let (median, extremes) = spread(&line.figure);
            [
                line.name.clone(),
                median,
                line.unit.into(),
                extremes,
                line.note.clone(),
            ]
        })
        .collect();
    let width = |column: usize| {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or(0)
    };
    let (name, median, unit, extremes) = (width(0), width(1), width(2), width(3));
    for row in &rows {
        let line = format!(
            "  {:name$}  {:>median$} {:unit$}  {:extremes$}  {}",
            row[0], row[1], row[2], row[3], row[4]
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    for table in &report.tables {
        text.push_str(&format!("{}\n{}", table.title, numbers(table)));
    }
    text.push_str(&format!("median of {} rounds (least–most)", report.rounds));
    if report.repeated > 0 {
        text.push_str(&format!(
            "; {} rounds repeated, in which a limit had moved",
            report.repeated
        ));
    }
    if report.unsettled > 0 {
        text.push_str(&format!(
            "; in {} rounds it moved all the same: this machine is busy",
            report.unsettled
        ));
    }
    if report.smoke {
        text.push_str("; sizes were tiny: these figures say nothing");
    }
    text + "\n"
}
