//! Text in columns.

use brambling_bench::Table;
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

/// Rows of any number of columns, each as wide as its widest cell.
pub(crate) fn rows<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// A text of somebody else's as it may stand on a terminal.
pub(crate) fn shown(text: &str) -> String {
    let letters = text.lines().next().unwrap_or_default().chars();
    letters.filter(|letter| !letter.is_control()).collect()
}

/// As many letters of a text.
pub(crate) fn cut(text: &str, letters: usize) -> String {
    match text.chars().count() > letters {
        true => text.chars().take(letters - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// A table of numbers under its heads, each aligned to the right.
pub(crate) fn numbers(table: &Table) -> String {
    let heads = table.heads.iter().map(|&head| head.to_owned()).collect();
    let mut rows = vec![(String::new(), heads)];
    for (name, values) in &table.rows {
        let cells: Vec<String> = values.iter().copied().map(cell).collect();
        rows.push((name.clone(), cells));
    }
    let name_width = rows.iter().map(|(name, _)| name.chars().count()).max();
    let width = |column: usize| {
        let cells = rows.iter().map(|(_, cells)| cells[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.heads.len()).map(width).collect();
    let line = |(name, cells): &(String, Vec<String>)| {
        let mut line = format!("  {name:width$}", width = name_width.unwrap_or(0));
        for (cell, width) in cells.iter().zip(&widths) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        line + "\n"
    };
    rows.iter().map(line).collect()
}

/// Counts as they are.
fn cell(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        number(value)
    }
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
    fn columns_are_as_wide_as_their_widest_cell() {
        let table = Table {
            title: String::new(),
            heads: &["tasks", "µs"],
            rows: vec![
                ("a".into(), vec![1234.0, 0.5]),
                ("sum".into(), vec![7.0, 12.25]),
            ],
        };
        let expected = "       tasks     µs\n  a     1234  0.500\n  sum      7   12.2\n";
        assert_eq!(numbers(&table), expected);
    }

    #[test]
    fn what_others_say_stays_in_its_line_and_cell() {
        let cells = [["a", "bb", ""], ["ccc", "", "d"]].map(|row| row.map(str::to_owned));
        assert_eq!(rows(&cells), "a    bb\nccc      d\n");
        assert_eq!(shown("\u{1b}[2Jone\ttwo\nthree"), "[2Jonetwo");
        assert_eq!(
            (cut("abcd", 4), cut("abcde", 4)),
            ("abcd".into(), "abc…".into())
        );
    }

    #[test]
    fn numbers_keep_three_digits() {
        let text: Vec<_> = [1234.5, 12.345, 1.2345, 0.12345, 0.0].map(number).into();
        assert_eq!(text, ["1234", "12.3", "1.23", "0.123", "0"]);
    }
}
