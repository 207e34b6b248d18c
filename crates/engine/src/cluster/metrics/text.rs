//! The text that Prometheus reads: its exposition format, version 0.0.4.

use std::fmt::Write;
use std::time::Duration;

/// The format's name in HTTP.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How a series moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cluster) enum MetricKind {
    /// Only up, from 0 when its process begins.
    Counter,
    /// Up and down.
    Gauge,
}

impl MetricKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        }
    }
}

/// Series of one name, which differ in their labels.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::cluster) struct MetricFamily {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) labels: &'static [&'static str],
    /// One line, without a backslash.
    pub(super) help: &'static str,
}

/// A value, as it is written.
pub(in crate::cluster) enum MetricValue {
    Whole(u64),
    Real(f64),
}

impl From<u64> for MetricValue {
    fn from(value: u64) -> MetricValue {
        MetricValue::Whole(value)
    }
}

impl From<u32> for MetricValue {
    fn from(value: u32) -> MetricValue {
        MetricValue::Whole(value.into())
    }
}

impl From<usize> for MetricValue {
    fn from(value: usize) -> MetricValue {
        MetricValue::Whole(value as u64)
    }
}

impl From<f64> for MetricValue {
    fn from(value: f64) -> MetricValue {
        MetricValue::Real(value)
    }
}

impl From<Duration> for MetricValue {
    /// In seconds.
    fn from(value: Duration) -> MetricValue {
        MetricValue::Real(value.as_secs_f64())
    }
}

/// What a scrape is answered with, family by family.
#[derive(Default)]
pub(in crate::cluster) struct Text(String);

impl Text {
    /// Begins a family: samples of it follow, if there are any.
    pub(in crate::cluster) fn family(
        &mut self,
        family: &'static MetricFamily,
    ) -> MetricSamples<'_> {
        let MetricFamily {
            name, kind, help, ..
        } = family;
        let kind = kind.name();
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        MetricSamples { text: self, family }
    }

    /// A family of one series without labels.
    pub(in crate::cluster) fn one(
        &mut self,
        family: &'static MetricFamily,
        value: impl Into<MetricValue>,
    ) {
        self.family(family).add(&[], value);
    }

    pub(in crate::cluster) fn finish(self) -> String {
        self.0
    }

    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        self.0.write_fmt(what).expect("a string takes all");
    }
}

/// The samples of a family.
pub(in crate::cluster) struct MetricSamples<'a> {
    text: &'a mut Text,
    family: &'static MetricFamily,
}

impl MetricSamples<'_> {
    /// One sample, with the values of the family's labels.
    pub(in crate::cluster) fn add(&mut self, labels: &[&str], value: impl Into<MetricValue>) {
        let MetricFamily {
            name,
            labels: names,
            ..
        } = self.family;
        assert_eq!(labels.len(), names.len(), "the labels of {name}");
        self.text.put(format_args!("{name}"));
        for (place, (label, value)) in names.iter().zip(labels).enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let value = escaped(value);
            self.text.put(format_args!("{before}{label}=\"{value}\""));
        }
        let after = if names.is_empty() { "" } else { "}" };
        match value.into() {
            MetricValue::Whole(value) => self.text.put(format_args!("{after} {value}\n")),
            MetricValue::Real(value) => self.text.put(format_args!("{after} {value}\n")),
        }
    }
}

/// A label's value between its quotes.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    static PLAIN: MetricFamily = MetricFamily {
        name: "a_total",
        kind: MetricKind::Counter,
        labels: &[],
        help: "What.",
    };
    static LABELLED: MetricFamily = MetricFamily {
        name: "b",
        kind: MetricKind::Gauge,
        labels: &["x", "y"],
        help: "Which.",
    };

    #[test]
    fn families_are_written_as_the_format_says() {
        let mut text = Text::default();
        text.one(&PLAIN, u64::MAX);
        text.one(&PLAIN, Duration::from_millis(1_250));
        let mut samples = text.family(&LABELLED);
        samples.add(&["1", ""], 0.5);
        samples.add(&["2", "host-7"], 3_usize);
        text.family(&LABELLED);
        let expected = "# HELP a_total What.\n# TYPE a_total counter\na_total 18446744073709551615\n\
             # HELP a_total What.\n# TYPE a_total counter\na_total 1.25\n\
             # HELP b Which.\n# TYPE b gauge\nb{x=\"1\",y=\"\"} 0.5\nb{x=\"2\",y=\"host-7\"} 3\n\
             # HELP b Which.\n# TYPE b gauge\n";
        assert_eq!(text.finish(), expected);
    }

    /// A machine may be called anything.
    #[test]
    fn a_label_cannot_end_its_quotes_nor_its_line() {
        let mut text = Text::default();
        let host = "h\"} 1\nfake_total 9\\";
        text.family(&LABELLED).add(&[host, "ß"], 1_u32);
        let expected = r#"b{x="h\"} 1\nfake_total 9\\",y="ß"} 1"#;
        assert_eq!(text.finish().lines().nth(2), Some(expected));
    }
}
