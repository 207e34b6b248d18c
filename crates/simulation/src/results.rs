//! What a run leaves, as bytes, so that equal means equal bit for bit.

use brambling_program::{Program, Value};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The kept datasets' partitions: encoded values by (dataset, index).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Results(BTreeMap<(u32, u32), Vec<u8>>);

impl Results {
    /// Adds a partition.
    pub fn add(&mut self, dataset: usize, index: u32, value: &Value) {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        let before = self.0.insert((dataset as u32, index), bytes);
        assert!(before.is_none(), "a partition stands in one place");
    }

    /// The first few partitions that differ, as text; none when all are equal.
    pub fn difference(&self, expected: &Results, program: &Program) -> Option<String> {
        if self == expected {
            return None;
        }
        let mut text = String::new();
        let keys: std::collections::BTreeSet<_> = self.0.keys().chain(expected.0.keys()).collect();
        let differing = keys
            .into_iter()
            .filter(|key| self.0.get(key) != expected.0.get(key));
        for (dataset, index) in differing.take(4) {
            let name = &program.spec().datasets[*dataset as usize].name;
            let show = |results: &Results| match results.0.get(&(*dataset, *index)) {
                Some(bytes) => format!("{:02x?}", &bytes[..bytes.len().min(40)]),
                None => "nothing".to_owned(),
            };
            let (expected, found) = (show(expected), show(self));
            let _ = writeln!(
                text,
                "{name}/{index}\n  expected {expected}\n  found    {found}"
            );
        }
        Some(text)
    }
}
