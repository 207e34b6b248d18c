//! Text in columns.

use brambling_machine::Figure;

/// Names, and what they are, one a line.
pub(crate) fn two_columns<'t>(rows: impl IntoIterator<Item = (&'t str, &'t str)>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let width = rows.iter().map(|(name, _)| name.chars().count()).max();
    rows.iter()
        .map(|(name, what)| format!("  {name:width$}  {what}\n", width = width.unwrap_or(0)))
        .collect()
}

/// Three columns, one row a line.
pub(crate) fn columns(rows: &[[String; 3]]) -> String {
    let width = |column: usize| {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or(0)
    };
    let (first, second) = (width(0), width(1));
    rows.iter()
        .map(|[a, b, c]| format!("  {a:first$}  {b:second$}  {c}\n"))
        .collect()
}

/// A median with its spread.
pub(crate) fn spread(figure: &Figure) -> (String, String) {
    (
        number(figure.median),
        format!("({}–{})", number(figure.min), number(figure.max)),
    )
}

/// Three digits that matter, at least.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        0.0 => 0,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let text: Vec<_> = [1234.5, 12.345, 1.2345, 0.12345, 0.0].map(number).into();
        assert_eq!(text, ["1234", "12.3", "1.23", "0.123", "0"]);
    }
}
