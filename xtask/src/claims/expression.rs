//! Arithmetic over JSON: `25 * indirect_call_ns.median`, `max(patterns[*].overhead_us.median)`.
//!
//! ```text
//! bar     := ("<=" | ">=" | "<" | ">" | "==") product
//! product := factor (("*" | "/") factor)*
//! factor  := number | ("max" | "min" | "count") "(" path ")" | path
//! path    := name ("." name | "[" string "]" | "[*]" | "[" test ("," test)* "]")*
//! test    := name ("=" word | ">=" number); a word may have hyphens
//! ```
//! `[*]` takes every item of a list, `[width=16]` those whose `width` is 16, `[width>=4]` those whose `width` is at least 4. Outside of `max`, `min`
//! and `count` a path has to name exactly one number.

use serde_json::Value;

/// The figure, the bar's right side, and whether the comparison holds.
#[derive(Debug, PartialEq)]
pub struct Comparison {
    /// Our figure.
    pub figure: f64,
    /// What it is compared with.
    pub limit: f64,
    /// Whether the bar is kept.
    pub holds: bool,
}

/// Compares `figure` with `bar`, both taken from `json`.
pub fn compare(figure: &str, bar: &str, json: &Value) -> Result<Comparison, String> {
    let figure = evaluate(figure, json)?;
    let (holds, rest): (fn(&f64, &f64) -> bool, &str) = match bar.trim() {
        bar if bar.starts_with("<=") => (f64::le, &bar[2..]),
        bar if bar.starts_with(">=") => (f64::ge, &bar[2..]),
        bar if bar.starts_with("==") => (f64::eq, &bar[2..]),
        bar if bar.starts_with('<') => (f64::lt, &bar[1..]),
        bar if bar.starts_with('>') => (f64::gt, &bar[1..]),
        bar => return Err(format!("the bar {bar:?} begins with no comparison")),
    };
    let limit = evaluate(rest, json)?;
    Ok(Comparison {
        figure,
        limit,
        holds: holds(&figure, &limit),
    })
}

/// The number that a product over `json` stands for.
pub fn evaluate(text: &str, json: &Value) -> Result<f64, String> {
    let mut reader = Reader { rest: text.trim() };
    let mut value = reader.factor(json)?;
    while !reader.rest.is_empty() {
        let divide = reader.take("/");
        if !divide && !reader.take("*") {
            return Err(format!("cannot read {:?} in {text:?}", reader.rest));
        }
        let factor = reader.factor(json)?;
        value = if divide {
            value / factor
        } else {
            value * factor
        };
    }
    Ok(value)
}

type Fold = fn(&[f64]) -> Option<f64>;

const FOLDS: [(&str, Fold); 3] = [
    ("max(", |numbers| numbers.iter().copied().reduce(f64::max)),
    ("min(", |numbers| numbers.iter().copied().reduce(f64::min)),
    ("count(", |numbers| Some(numbers.len() as f64)),
];

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn take(&mut self, mark: &str) -> bool {
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, mark: &str) -> Result<(), String> {
        if self.take(mark) {
            return Ok(());
        }
        Err(format!("expected {mark:?} before {:?}", self.rest))
    }

    /// The longest prefix of characters that `keep` accepts; at least one.
    fn word(&mut self, keep: fn(char) -> bool) -> Result<&'a str, String> {
        let end = self.rest.find(|c| !keep(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() {
            return Err(format!("expected a word before {rest:?}"));
        }
        self.rest = rest.trim_start();
        Ok(word)
    }

    fn factor(&mut self, json: &Value) -> Result<f64, String> {
        if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            let number = self.word(|c| c.is_ascii_digit() || matches!(c, '.' | '_' | 'e'))?;
            let plain = number.replace('_', "");
            return plain
                .parse()
                .map_err(|_| format!("{number:?} is no number"));
        }
        let fold = FOLDS.iter().find(|(name, _)| self.take(name));
        let start = self.rest;
        let numbers = self.path(json)?;
        if let Some((_, fold)) = fold {
            self.expect(")")?;
            return fold(&numbers).ok_or_else(|| format!("{start:?} names no number"));
        }
        match numbers.as_slice() {
            [number] => Ok(*number),
            _ => Err(format!(
                "{start:?} names {} numbers, not one",
                numbers.len()
            )),
        }
    }

    fn path(&mut self, json: &Value) -> Result<Vec<f64>, String> {
        let start = self.rest;
        let first = self.word(is_name)?;
        let mut here = vec![field(json, first)?];
        loop {
            here = if self.take(".") {
                let name = self.word(is_name)?;
                here.into_iter()
                    .map(|value| field(value, name))
                    .collect::<Result<_, _>>()?
            } else if self.take("[") {
                self.index(here)?
            } else {
                break;
            };
        }
        here.into_iter()
            .map(|value| {
                value
                    .as_f64()
                    .ok_or_else(|| format!("{start:?} is no number: {value}"))
            })
            .collect()
    }

    /// What follows an opening bracket.
    fn index<'j>(&mut self, here: Vec<&'j Value>) -> Result<Vec<&'j Value>, String> {
        if self.take("\"") {
            let key = self.word(|c| c != '"')?;
            self.expect("\"")?;
            self.expect("]")?;
            return here.into_iter().map(|value| field(value, key)).collect();
        }
        let mut items = Vec::new();
        for value in here {
            items.extend(
                value
                    .as_array()
                    .ok_or("a list was expected before a bracket")?,
            );
        }
        if self.take("*") {
            self.expect("]")?;
            return Ok(items);
        }
        loop {
            let name = self.word(is_name)?;
            if self.take(">=") {
                let least = self.word(is_name)?;
                let least: f64 = least
                    .parse()
                    .map_err(|_| format!("{least:?} is no number"))?;
                let number = |item: &&Value| item.get(name).and_then(Value::as_f64);
                items.retain(|item| number(item).is_some_and(|number| number >= least));
            } else {
                self.expect("=")?;
                let wanted = self.word(|c| is_name(c) || c == '-')?;
                items.retain(|item| item.get(name).is_some_and(|value| shown(value) == wanted));
            }
            if !self.take(",") {
                self.expect("]")?;
                return Ok(items);
            }
        }
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn field<'j>(json: &'j Value, name: &str) -> Result<&'j Value, String> {
    json.get(name)
        .ok_or_else(|| format!("the output has no key {name:?}"))
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(text: &str, expected: Result<f64, &str>) {
        let json = json!({
            "ns": {"median": 60.0},
            "us": {"2": {"median": 9.0}},
            "patterns": [
                {"pattern": "fft", "width": 2, "us": 1.0},
                {"pattern": "fft", "width": 16, "us": 3.0},
                {"pattern": "tree", "width": 16, "us": 2.0},
            ],
            "limits": [{"name": "bare", "us": 5.0}, {"name": "bare-2", "us": 4.0}],
            "word": "cpu",
        });
        let found = evaluate(text, &json);
        match expected {
            Ok(number) => assert_eq!(found, Ok(number), "{text}"),
            Err(part) => assert!(found.unwrap_err().contains(part), "{text}"),
        }
    }

    #[test]
    fn paths_and_products() {
        check("ns.median", Ok(60.0));
        check("25 * ns.median", Ok(1500.0));
        check("1.15 * 10e6 * 21 * 8", Ok(1.15 * 10e6 * 21.0 * 8.0));
        check("count(patterns[width>=3].us)", Ok(2.0));
        check("min(patterns[width>=2].us)", Ok(1.0));
        check("max(patterns[width>=wide].us)", Err("no number"));
        check("ns.median / us[\"2\"].median * 3", Ok(20.0));
        check("patterns[pattern=fft, width=16].us", Ok(3.0));
        check("max(patterns[*].us)", Ok(3.0));
        check("min(patterns[width=16].us)", Ok(2.0));
        check("count(patterns[*].us)", Ok(3.0));
        check("limits[name=bare-2].us", Ok(4.0));
    }

    #[test]
    fn what_cannot_be_evaluated_says_why() {
        check("missing.median", Err("no key \"missing\""));
        check("patterns[*].us", Err("names 3 numbers"));
        check("max(patterns[width=4].us)", Err("names no number"));
        check("word", Err("is no number"));
        check("ns.median + 1", Err("cannot read"));
    }

    #[test]
    fn a_bar_is_kept_or_not() {
        let json = json!({"ours": 60.0, "limit": 2.4});
        assert!(compare("ours", "<= 25 * limit", &json).unwrap().holds);
        assert!(!compare("ours", "<= 24 * limit", &json).unwrap().holds);
        assert!(compare("ours", ">= 60", &json).unwrap().holds);
        assert!(compare("ours", "25 * limit", &json).is_err());
    }

    #[test]
    fn a_figure_that_is_not_a_number_keeps_no_bar() {
        let json = json!({"zero": 0.0});
        assert!(!compare("zero / zero", "<= 1", &json).unwrap().holds);
    }
}
