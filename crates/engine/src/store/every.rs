//! How often snapshots are taken, as people write it.

use brambling_controller::snapshots::SnapshotEvery;
use std::time::Duration;

/// What may be given.
pub(crate) const GIVE: &str =
    "give a time such as 10s, 500ms or 2min, a number of turns such as `20 turns`, or off";

/// From what was given; a bare number is seconds.
pub(crate) fn parse(text: &str) -> Option<SnapshotEvery> {
    let text = text.trim();
    if text == "off" {
        return Some(SnapshotEvery::Off);
    }
    let digits = text.find(|it: char| !it.is_ascii_digit() && it != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = unit.trim();
    if matches!(unit, "turn" | "turns") {
        let turns = number.parse().ok().filter(|turns| *turns > 0)?;
        return Some(SnapshotEvery::Turns(turns));
    }
    let seconds = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    // A clock cannot add more.
    let every = (number * seconds).min(1e9);
    (every > 0.0).then(|| SnapshotEvery::Time(Duration::from_secs_f64(every)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_turns_and_never() {
        let time = |seconds| Some(SnapshotEvery::Time(Duration::from_secs_f64(seconds)));
        for (text, every) in [
            ("10s", time(10.0)),
            ("10", time(10.0)),
            ("500ms", time(0.5)),
            ("0.25 s", time(0.25)),
            ("2min", time(120.0)),
            ("20 turns", Some(SnapshotEvery::Turns(20))),
            ("1 turn", Some(SnapshotEvery::Turns(1))),
            ("off", Some(SnapshotEvery::Off)),
            ("0", None),
            ("0 turns", None),
            ("-3s", None),
            ("often", None),
            ("3 days", None),
            ("", None),
        ] {
            assert_eq!(parse(text), every, "{text}");
        }
    }
}
