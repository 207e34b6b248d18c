//! Seconds, bytes, shares and counts as people read them.

/// "2.1 s", "83 ms", "12 µs", "3 min 20 s".
pub(super) fn seconds(seconds: f64) -> String {
    let absolute = seconds.abs();
    if absolute >= 3_600.0 {
        format!(
            "{:.0} h {:02.0} min",
            (seconds / 3_600.0).floor(),
            (seconds % 3_600.0 / 60.0).floor()
        )
    } else if absolute >= 100.0 {
        format!(
            "{:.0} min {:02.0} s",
            (seconds / 60.0).floor(),
            (seconds % 60.0).floor()
        )
    } else if absolute >= 0.995 {
        format!("{} s", figures(seconds))
    } else if absolute >= 0.000_995 {
        format!("{} ms", figures(seconds * 1e3))
    } else if absolute > 0.0 {
        format!("{} µs", figures(seconds * 1e6))
    } else {
        "0 s".into()
    }
}

/// "4.1 GB", in powers of 1,000.
pub(super) fn bytes(bytes: f64) -> String {
    scaled(bytes, "B")
}

/// "23 GB/s", "5.4 G/s".
pub(super) fn rate(per_s: f64, unit: &str) -> String {
    format!("{}/s", scaled(per_s, unit))
}

/// "2.9 GB" of 1,024 MB each, as budgets are written.
pub(super) fn memory(bytes: u64) -> String {
    const MB: f64 = (1 << 20) as f64;
    let bytes = bytes as f64;
    let (value, unit) = if bytes < 999.5 * MB {
        (bytes / MB, "MB")
    } else {
        (bytes / MB / 1024.0, "GB")
    };
    format!("{} {unit}", figures(value))
}

/// A number with a prefix of powers of 1,000 before its unit.
pub(super) fn scaled(value: f64, unit: &str) -> String {
    let mut rest = value;
    for prefix in ["", "k", "M", "G", "T"] {
        if rest < 999.5 {
            let number = if prefix.is_empty() {
                format!("{rest:.0}")
            } else {
                figures(rest)
            };
            return format!("{number} {prefix}{unit}").trim_end().to_string();
        }
        rest /= 1_000.0;
    }
    format!("{} P{unit}", figures(rest))
}

/// "83 %", "9.1 %", "0.3 %".
pub(super) fn percent(share: f64) -> String {
    // A negative zero would show its sign.
    let percent = share * 100.0 + 0.0;
    if percent == 0.0 || percent >= 9.95 {
        format!("{percent:.0} %")
    } else if percent < 0.05 {
        "< 0.1 %".into()
    } else {
        format!("{percent:.1} %")
    }
}

/// "10,000".
pub(super) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// "one thing" and "2 things".
pub(super) fn things(number: u64, thing: &str) -> String {
    if number == 1 {
        format!("1 {thing}")
    } else {
        format!("{} {thing}s", count(number))
    }
}

/// A size as the setting `memory` takes it, rounded up: "4GB", of 1,024 MB each.
pub(super) fn setting(bytes: u64) -> String {
    const MB: u64 = 1 << 20;
    const GB: u64 = 1 << 30;
    if bytes > 10 * GB {
        format!("{}GB", bytes.div_ceil(GB))
    } else if bytes >= GB {
        // Half gigabytes are near enough, and easy to remember.
        let halves = bytes.div_ceil(GB / 2);
        if halves.is_multiple_of(2) {
            format!("{}GB", halves / 2)
        } else {
            format!("{}MB", halves * 512)
        }
    } else {
        format!("{}MB", bytes.div_ceil(MB).next_multiple_of(8))
    }
}

/// Two figures, or all those before the point.
fn figures(value: f64) -> String {
    if value.abs() < 9.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_people_read_them() {
        let times = [0.0, 12.4e-6, 0.083, 0.9999, 2.1, 61.0, 200.0, 7_260.0].map(seconds);
        assert_eq!(
            times,
            [
                "0 s",
                "12 µs",
                "83 ms",
                "1.0 s",
                "2.1 s",
                "61 s",
                "3 min 20 s",
                "2 h 01 min"
            ]
        );
        assert_eq!(
            [0.0, 999.0, 1_500.0, 4.1e9, 2e15].map(bytes),
            ["0 B", "999 B", "1.5 kB", "4.1 GB", "2.0 PB"]
        );
        assert_eq!(
            [0.0, 0.0004, 0.091, 0.834, 1.0].map(percent),
            ["0 %", "< 0.1 %", "9.1 %", "83 %", "100 %"]
        );
        assert_eq!(
            [7, 1_000, 1_234_567].map(count),
            ["7", "1,000", "1,234,567"]
        );
        assert_eq!(
            [1, 2].map(|number| things(number, "thread")),
            ["1 thread", "2 threads"]
        );
        assert_eq!(
            [3 << 20, 1 << 30, 3 << 29, 4 << 30, 33 << 30].map(setting),
            ["8MB", "1GB", "1536MB", "4GB", "33GB"]
        );
    }
}
