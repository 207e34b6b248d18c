//! The name that somebody may have meant.

/// The name nearest to `wanted`, when it is near enough to be meant.
pub(crate) fn nearest<'n>(
    wanted: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    let (distance, name) = names
        .into_iter()
        .map(|name| (distance(wanted, name), name))
        .min()?;
    (distance <= name.chars().count().max(3) / 2).then_some(name)
}

/// How many letters to insert, remove or replace.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_fingers_are_understood() {
        let names = ["flights", "word-count", "heat"];
        assert_eq!(nearest("flihgts", names), Some("flights"));
        assert_eq!(nearest("Flights", names), Some("flights"));
        assert_eq!(nearest("wordcount", names), Some("word-count"));
        assert_eq!(nearest("zebra-crossing", names), None);
        assert_eq!(nearest("x", []), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
