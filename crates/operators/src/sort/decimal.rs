//! The order of decimal numbers in text, as GNU `sort -n` has it.
//!
//! A number is: blanks, a minus sign or none, digits, and perhaps a point with more digits. Text
//! that does not begin with one counts as 0. Numbers of any length are compared exactly.
//! [`super::layout`] calls this for each record; nothing here allocates.

use std::cmp::Ordering;

/// A number as its digits lie in the text.
struct Decimal<'a> {
    is_negative: bool,
    /// Without leading zeros.
    integer: &'a [u8],
    /// Without trailing zeros.
    fraction: &'a [u8],
}

/// The order of the numbers with which two texts begin.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let (a, b) = (Decimal::of(a), Decimal::of(b));
    match (a.is_negative, b.is_negative) {
        (false, false) => a.compare_size(&b),
        (true, true) => b.compare_size(&a),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    }
}

/// A number whose order is that of the numbers, but for such that lie too close together: these get
/// the same.
pub(super) fn prefix(text: &[u8]) -> u64 {
    let decimal = Decimal::of(text);
    // Rounding to the nearest double never turns two numbers round.
    let bits = decimal.size().to_bits();
    match decimal.is_negative {
        true => !(bits | 1 << 63),
        false => bits | 1 << 63,
    }
}

impl<'a> Decimal<'a> {
    fn of(text: &'a [u8]) -> Decimal<'a> {
        let blanks = text.iter().take_while(|&&byte| is_blank(byte)).count();
        let text = &text[blanks..];
        let (is_negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            _ => (false, text),
        };
        let (integer, rest) = split_digits(text);
        let fraction = match rest {
            [b'.', rest @ ..] => split_digits(rest).0,
            _ => &[],
        };
        let zeros = integer.iter().take_while(|&&byte| byte == b'0').count();
        let trailing = fraction.iter().rev().take_while(|&&byte| byte == b'0');
        let fraction = &fraction[..fraction.len() - trailing.count()];
        let integer = &integer[zeros..];
        Decimal {
            // Minus zero is zero.
            is_negative: is_negative && !(integer.is_empty() && fraction.is_empty()),
            integer,
            fraction,
        }
    }

    fn compare_size(&self, other: &Decimal<'_>) -> Ordering {
        let by_length = self.integer.len().cmp(&other.integer.len());
        by_length
            .then_with(|| self.integer.cmp(other.integer))
            .then_with(|| self.fraction.cmp(other.fraction))
    }

    /// The double that is nearest to the number without its sign.
    fn size(&self) -> f64 {
        let digits = self.integer.iter().chain(self.fraction);
        if self.integer.len() + self.fraction.len() <= 15 {
            // Both are exact, so their quotient is the nearest double.
            let value = digits.fold(0u64, |value, digit| value * 10 + u64::from(digit - b'0'));
            return value as f64 / POWERS_OF_TEN[self.fraction.len()];
        }
        let mut text = String::with_capacity(self.integer.len() + self.fraction.len() + 2);
        text.extend(self.integer.iter().map(|&digit| char::from(digit)));
        text.push('.');
        text.extend(self.fraction.iter().map(|&digit| char::from(digit)));
        text.parse().expect("digits and one point")
    }
}

const POWERS_OF_TEN: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// Whether a byte is a blank in the C locale.
pub(super) fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    text.split_at(digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(ascending: &[&str]) {
        for (at, low) in ascending.iter().enumerate() {
            for high in &ascending[at + 1..] {
                let (low, high) = (low.as_bytes(), high.as_bytes());
                assert_eq!(compare(low, high), Ordering::Less);
                assert_eq!(compare(high, low), Ordering::Greater);
                assert!(prefix(low) <= prefix(high));
            }
        }
    }

    #[test]
    fn numbers_of_any_length_have_their_order() {
        check(&[
            "-123456789012345678901234567890.5",
            "-20",
            "-3.25",
            "-3.2",
            "-.5",
            "0",
            ".0000000000000000000000000001",
            "  .5",
            "1",
            "1.000000000000000000000000000000001",
            "2",
            "10",
            "123456789012345678",
            "123456789012345679",
            "123456789012345679.1",
        ]);
        let huge = "9".repeat(400);
        check(&["1", &huge, &format!("{huge}.1")]);
    }

    #[test]
    fn what_is_no_number_is_zero() {
        for text in ["", "-", "abc", "+5", "- 5", "-0.000", "00", ".", "\t0x10"] {
            assert_eq!(compare(text.as_bytes(), b"0"), Ordering::Equal, "{text:?}");
            assert_eq!(prefix(text.as_bytes()), prefix(b"0"), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn prefixes_never_contradict_the_order(a in "[ ]{0,2}-?[0-9]{0,20}(\\.[0-9]{0,20})?",
                                               b in "-?[0-9]{0,20}(\\.[0-9]{0,20})?") {
            let (a, b) = (a.as_bytes(), b.as_bytes());
            let by_prefix = prefix(a).cmp(&prefix(b));
            prop_assert!(by_prefix == Ordering::Equal || by_prefix == compare(a, b));
        }
    }
}
