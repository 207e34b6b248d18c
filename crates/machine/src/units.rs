//! Sizes, rates and times as people write them: `1TB`, `260MB/s`, `1.5h`.
//!
//! This module owns the units that the model and the probe take and tell. The command and the
//! Python package call it; it never guesses a unit that is not written, and knows no hardware.
//!
//! Units are decimal, as those of disks and networks are: 1 TB is 10¹² bytes. Powers of 1,024 have
//! names of their own, such as GiB. A small b is a bit, so networks may be given as `1Gbit/s`.

use Quantity::{Rate, Size, Time};

const SIZES: &[(&str, f64)] = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("PB", 1e15),
    ("EB", 1e18),
    ("KB", 1e3),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("PiB", 1_125_899_906_842_624.0),
];

const BITS: &[(&str, f64)] = &[
    ("bit/s", 0.125),
    ("kbit/s", 125.0),
    ("Mbit/s", 125e3),
    ("Gbit/s", 125e6),
    ("Tbit/s", 125e9),
    ("bps", 0.125),
    ("kbps", 125.0),
    ("Mbps", 125e3),
    ("Gbps", 125e6),
    ("Tbps", 125e9),
];

const TIMES: &[(&str, f64)] = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("sec", 1.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
];

/// What a text says how much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes.
    Size,
    /// Bytes per second.
    Rate,
    /// Seconds.
    Time,
}

impl Quantity {
    /// What it is called, and how it is written.
    fn example(self) -> &'static str {
        match self {
            Size => "a size is written as 1TB or 500GB",
            Rate => "a rate is written as 260MB/s or 10Gbit/s",
            Time => "a time is written as 62s or 1.5h",
        }
    }

    fn factor(self, unit: &str) -> Option<f64> {
        let of = |table: &[(&str, f64)], unit: &str| {
            let found = table.iter().find(|(name, _)| *name == unit);
            found.map(|&(_, factor)| factor)
        };
        match self {
            Size => of(SIZES, unit),
            Time => of(TIMES, unit),
            Rate => {
                let bytes = unit.strip_suffix("/s").and_then(|unit| of(SIZES, unit));
                bytes.or_else(|| of(BITS, unit))
            }
        }
    }

    fn units(self) -> &'static str {
        match self {
            Size => "B, kB, MB, GB, TB, PB, EB, and KiB to PiB",
            Rate => "B/s to EB/s, KiB/s to PiB/s, and bit/s to Tbit/s",
            Time => "ns, us, ms, s, min, h, d",
        }
    }
}

/// Why a text is no size, rate or time. Each says how one is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// It does not begin with a number.
    #[error("there is no number at its beginning; {}", .quantity.example())]
    NoNumber {
        /// What was wanted.
        quantity: Quantity,
    },
    /// There is a number alone.
    #[error("the unit is missing; {}", .quantity.example())]
    NoUnit {
        /// What was wanted.
        quantity: Quantity,
    },
    /// What follows the number is no unit of this kind.
    #[error("`{unit}` is not one of the units {}; {}", .quantity.units(), .quantity.example())]
    UnknownUnit {
        /// What was wanted.
        quantity: Quantity,
        /// What stands there.
        unit: String,
    },
    /// It is below zero.
    #[error("it is negative; {}", .quantity.example())]
    Negative {
        /// What was wanted.
        quantity: Quantity,
    },
    /// It is beyond what a number can hold.
    #[error("it is too large; {}", .quantity.example())]
    TooLarge {
        /// What was wanted.
        quantity: Quantity,
    },
}

/// Bytes, bytes per second or seconds, not negative and finite, of a text such as `1TB`, `260MB/s`
/// or `62s`. Spaces around the number and the unit do not count.
///
/// # Errors
/// When the number or the unit is missing, unknown, negative or too large.
pub fn parse(text: &str, quantity: Quantity) -> Result<f64, UnitError> {
    let text = text.trim();
    let (number, unit) = split(text).ok_or(UnitError::NoNumber { quantity })?;
    if number < 0.0 {
        return Err(UnitError::Negative { quantity });
    }
    if unit.is_empty() {
        return Err(UnitError::NoUnit { quantity });
    }
    let factor = quantity
        .factor(unit)
        .ok_or_else(|| UnitError::UnknownUnit {
            quantity,
            unit: unit.to_owned(),
        })?;
    let value = number * factor;
    if !value.is_finite() {
        return Err(UnitError::TooLarge { quantity });
    }
    Ok(value)
}

/// The longest number at the beginning, and what follows it.
fn split(text: &str) -> Option<(f64, &str)> {
    // Words such as inf and nan are numbers to Rust.
    let begins = text.trim_start_matches(['+', '-']);
    if !begins.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
        return None;
    }
    let ends = text
        .char_indices()
        .map(|(at, letter)| at + letter.len_utf8());
    let cuts: Vec<usize> = ends.take_while(|&end| text[..end].is_ascii()).collect();
    cuts.into_iter().rev().find_map(|end| {
        let number = text[..end].parse().ok()?;
        Some((number, text[end..].trim()))
    })
}

/// Bytes as a text of three digits, such as `685 MB`.
pub fn bytes(value: f64) -> String {
    scaled(value, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// Bytes per second as a text of three digits, such as `260 MB/s`.
pub fn rate(value: f64) -> String {
    bytes(value) + "/s"
}

/// Seconds as a text of three digits at least, such as `8.86 s` and `6818 s`.
pub fn seconds(value: f64) -> String {
    match value {
        0.0 => "0 s".to_owned(),
        below if below < 1e-6 => digits(value * 1e9) + " ns",
        below if below < 1e-3 => digits(value * 1e6) + " µs",
        below if below < 1.0 => digits(value * 1e3) + " ms",
        _ => digits(value) + " s",
    }
}

fn scaled(value: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut left = units.iter();
    let mut unit = left.next().expect("a unit");
    // What rounds to a thousand is one of the next unit.
    while value >= 999.5 {
        let Some(next) = left.next() else { break };
        (value, unit) = (value / 1e3, next);
    }
    format!("{} {unit}", digits(value))
}

fn digits(value: f64) -> String {
    let places = match value {
        above if above >= 99.95 => 0,
        above if above >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(quantity: Quantity, cases: &[(&str, f64)]) {
        for &(text, value) in cases {
            let read = parse(text, quantity).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!((read - value).abs() <= value * 1e-12, "{text}: {read}");
        }
    }

    #[track_caller]
    fn refused(quantity: Quantity, cases: &[(&str, &str)]) {
        for (text, says) in cases {
            let error = parse(text, quantity).expect_err(text).to_string();
            assert!(error.starts_with(says), "{text}: {error}");
            assert!(error.ends_with(quantity.example()), "{text}: {error}");
        }
    }

    #[test]
    fn units_are_decimal() {
        check(
            Size,
            &[
                ("1TB", 1e12),
                ("1 PB", 1e15),
                ("1EB", 1e18),
                (" 1.5e3MB ", 1.5e9),
                ("+.5kB", 500.0),
                ("4KB", 4e3),
                ("1GiB", 1_073_741_824.0),
                ("0B", 0.0),
            ],
        );
        check(
            Rate,
            &[
                ("260MB/s", 260e6),
                ("1Gbit/s", 125e6),
                ("100 Mbps", 12.5e6),
                ("1GiB/s", 1_073_741_824.0),
            ],
        );
        check(
            Time,
            &[
                ("62s", 62.0),
                ("1.5h", 5400.0),
                ("90 min", 5400.0),
                ("5ms", 0.005),
                ("3µs", 3e-6),
            ],
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        refused(
            Rate,
            &[
                ("260", "the unit is missing"),
                ("-260", "it is negative"),
                ("-260MB/s", "it is negative"),
                ("260MB", "`MB` is not one of the units B/s"),
                ("260mb/s", "`mb/s` is not one"),
                ("1Gb/s", "`Gb/s` is not one"),
                ("fast", "there is no number"),
                ("", "there is no number"),
                ("MB/s", "there is no number"),
                ("infMB/s", "there is no number"),
                ("nan", "there is no number"),
                ("1e400MB/s", "it is too large"),
                ("1e300EB/s", "it is too large"),
            ],
        );
        refused(
            Size,
            &[
                ("1TB/s", "`TB/s` is not one"),
                ("1Gbit", "`Gbit` is not one"),
                ("1,5TB", "`,5TB` is not one"),
                ("１TB", "there is no number"),
                ("1µB", "`µB` is not one"),
            ],
        );
        refused(Time, &[("62", "the unit is missing"), ("1m", "`m` is not")]);
    }

    #[test]
    fn texts_have_three_digits() {
        let sizes = [0.0, 999.4, 999.6, 684_931_506.8, 1e12, 2.5e11, 1e21].map(bytes);
        let told = [
            "0 B", "999 B", "1 kB", "685 MB", "1 TB", "250 GB", "1000 EB",
        ];
        assert_eq!(sizes, told);
        assert_eq!([110e6, 10.96e6].map(rate), ["110 MB/s", "11 MB/s"]);
        let times = [0.0, 8.856, 62.0, 6817.6, 0.0044, 3e-6, 1e-8].map(seconds);
        assert_eq!(
            times,
            ["0 s", "8.86 s", "62 s", "6818 s", "4.4 ms", "3 µs", "10 ns"]
        );
    }
}
