//! Reads the text format of Prometheus, version 0.0.4, as strictly as it is written down: what it does not know it refuses. Timestamps, and types other
//! than counters and gauges, we do not write, so it does not know them.

use std::collections::BTreeMap;

/// What a scrape has brought.
#[derive(Debug, Default)]
pub struct Exposition {
    /// Type and help by name.
    families: BTreeMap<String, (String, String)>,
    /// Values by series, as they are written.
    samples: BTreeMap<String, f64>,
}

impl Exposition {
    /// Names and types of all families, in order.
    pub fn families(&self) -> Vec<(String, String)> {
        let families = self.families.iter();
        families
            .map(|(name, (kind, _))| (name.clone(), kind.clone()))
            .collect()
    }

    /// A series' value, if it is there.
    pub fn get(&self, series: &str) -> Option<f64> {
        self.samples.get(series).copied()
    }

    /// A series' value; NaN, which equals nothing and exceeds nothing, if it is not there.
    pub fn value(&self, series: &str) -> f64 {
        self.get(series).unwrap_or(f64::NAN)
    }

    /// All series that only grow.
    pub fn counters(&self) -> impl Iterator<Item = (&str, f64)> {
        let is_counter = |series: &str| self.families[name(series)].0 == "counter";
        let samples = self.samples.iter();
        let samples = samples.map(|(series, value)| (series.as_str(), *value));
        samples.filter(move |(series, _)| is_counter(series))
    }
}

/// The name of a series.
fn name(series: &str) -> &str {
    series.split('{').next().unwrap_or(series)
}

/// Reads all of it.
///
/// # Panics
/// At the first line that is not as it should be.
pub fn parse(text: &str) -> Exposition {
    assert!(text.ends_with('\n'), "the last line has no end");
    let mut found = Exposition::default();
    // The family that has begun: all its lines are together, HELP first, then TYPE, then samples.
    let mut begun: Option<(String, Option<String>)> = None;
    let mut help = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = rest.split_once(' ').expect(line);
            assert!(is_name(name) && !text.trim().is_empty(), "{line}");
            assert!(!found.families.contains_key(name), "{name} comes twice");
            (begun, help) = (Some((name.to_owned(), None)), text.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect(line);
            assert!(matches!(kind, "counter" | "gauge"), "{line}");
            assert_eq!(begun, Some((name.to_owned(), None)), "{line}");
            begun = Some((name.to_owned(), Some(kind.to_owned())));
            let family = (kind.to_owned(), help.clone());
            found.families.insert(name.to_owned(), family);
        } else {
            let (series, value) = sample(line);
            let Some((family, Some(kind))) = &begun else {
                panic!("no family has begun: {line}");
            };
            assert_eq!(name(&series), family, "{line}");
            assert!(kind != "counter" || value >= 0.0, "{line}");
            let before = found.samples.insert(series, value);
            assert_eq!(before, None, "{line} comes twice");
        }
    }
    assert!(
        !matches!(begun, Some((_, None))),
        "the last family has no type"
    );
    found
}

/// A series as it is written, and its value.
fn sample(line: &str) -> (String, f64) {
    let labels_begin = line.find('{');
    let (series, value) = match labels_begin {
        None => line.split_once(' ').expect(line),
        Some(begin) => {
            assert!(is_name(&line[..begin]), "{line}");
            let end = begin + 1 + labels(&line[begin + 1..]).expect(line);
            let value = line[end..].strip_prefix(' ').expect(line);
            (&line[..end], value)
        }
    };
    assert!(is_name(name(series)), "{line}");
    let is_number = |it: char| it.is_ascii_digit() || matches!(it, '.' | '-' | 'e');
    assert!(value.chars().all(is_number), "{line}");
    (series.to_owned(), value.parse().expect(line))
}

/// How long the labels are that begin here, their closing brace included.
fn labels(text: &str) -> Option<usize> {
    let mut rest = text;
    loop {
        let (label, after) = rest.split_once("=\"")?;
        if !is_name(label) || label.contains(':') {
            return None;
        }
        rest = &after[quoted(after)?..];
        if let Some(after) = rest.strip_prefix(',') {
            rest = after;
        } else {
            let after = rest.strip_prefix('}')?;
            return Some(text.len() - after.len());
        }
    }
}

/// How long a label's value is, its closing quote included.
fn quoted(text: &str) -> Option<usize> {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some(at + 1),
            '\\' => {
                let (_, escaped) = letters.next()?;
                if !matches!(escaped, '\\' | '"' | 'n') {
                    return None;
                }
            }
            _ => {}
        }
    }
    None
}

fn is_name(text: &str) -> bool {
    let may_begin = |it: char| it.is_ascii_alphabetic() || matches!(it, '_' | ':');
    let may_follow = |it: char| may_begin(it) || it.is_ascii_digit();
    text.starts_with(may_begin) && text.chars().all(may_follow)
}

#[test]
fn what_is_well_written_is_read() {
    let text = "# HELP a_total What.\n# TYPE a_total counter\na_total 7\n\
         # HELP b Which.\n# TYPE b gauge\nb{x=\"1\",y=\"} \\\" \\\\ \\n\"} 0.25\n";
    let found = parse(text);
    let kinds = [("a_total", "counter"), ("b", "gauge")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(found.families(), kinds);
    assert_eq!(found.value("a_total"), 7.0);
    assert_eq!(found.value("b{x=\"1\",y=\"} \\\" \\\\ \\n\"}"), 0.25);
    assert_eq!(found.counters().collect::<Vec<_>>(), [("a_total", 7.0)]);
}

#[test]
fn what_is_not_is_refused() {
    let whole = "# HELP a_total What.\n# TYPE a_total counter\na_total 7\n";
    parse(whole);
    for text in [
        "a_total 7\n",
        "# TYPE a_total counter\na_total 7\n",
        "# HELP a_total What.\na_total 7\n",
        "# HELP a_total What.\n# TYPE a_total counter\na_total 7",
        "# HELP a_total What.\n# TYPE a_total counter\nb_total 7\n",
        "# HELP a_total What.\n# TYPE a_total counter\na_total 7\na_total 7\n",
        "# HELP a_total What.\n# TYPE a_total counter\na_total -7\n",
        "# HELP a_total What.\n# TYPE a_total counter\na_total 7 8\n",
        "# HELP a_total What.\n# TYPE a_total counter\na_total seven\n",
        "# HELP a_total What.\n# TYPE a_total counter\na_total{} 7\n",
        "# HELP a_total What.\n# TYPE a_total counter\na_total{x=1} 7\n",
        "# HELP a_total What.\n# TYPE a_total counter\na_total{x=\"\\t\"} 7\n",
        "# HELP a_total What.\n# TYPE a_total counter\na_total{x=\"1\" 7\n",
        "# HELP a_total What.\n# TYPE a_total counter\n\na_total 7\n",
        "# HELP a_total What.\n# TYPE a_total summary\na_total 7\n",
    ] {
        assert!(std::panic::catch_unwind(|| parse(text)).is_err(), "{text}");
        let twice = whole.to_owned() + text;
        assert!(
            std::panic::catch_unwind(|| parse(&twice)).is_err(),
            "{text}"
        );
    }
}
