//! Owns what runs came to: each is a file, so that what has been run is not run again.

use super::plan::{FigureSource, RunPlan};
use brambling::coflow::simulate::{CATEGORIES, Outcome, category};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// One more whenever policies or the simulator give other times than before.
const RULES: u32 = 1;

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunResult {
    /// From what it comes: what another trace or another rule came to is not taken for it.
    from: String,
    cct_s: Vec<f64>,
    isolated_s: Vec<f64>,
    bytes: Vec<f64>,
    arrival_s: Vec<f64>,
}

/// What all runs came to, by their names.
pub(super) struct KeptRuns {
    folder: PathBuf,
    from: String,
    found: BTreeMap<String, RunResult>,
}

impl KeptRuns {
    /// Those that a folder has. Runs of other coflows, or by other rules, lie beside them and stay.
    pub(super) fn open(folder: &Path, common: &FigureSource) -> io::Result<KeptRuns> {
        let from = format!(
            "rules-{RULES}-coflows-{:016x}-every-{}-{}-tick-{}s-seed-{}",
            common.trace.fingerprint(),
            common.every,
            common.every_of_large,
            common.resolution_s,
            common.seed,
        );
        let folder = folder.join(&from);
        std::fs::create_dir_all(&folder)?;
        Ok(KeptRuns {
            folder,
            from,
            found: BTreeMap::new(),
        })
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }

    /// Whether a run is known; one that the folder has is read. A file that is cut off or of another trace is none.
    pub(super) fn has(&mut self, plan: &RunPlan) -> bool {
        let key = plan.key();
        if self.found.contains_key(&key) {
            return true;
        }
        let text = std::fs::read_to_string(self.path(&key)).unwrap_or_default();
        let read = serde_json::from_str::<RunResult>(&text);
        match read.ok().filter(|it| it.from == self.from) {
            Some(result) => self.found.insert(key, result).is_none(),
            None => false,
        }
    }

    /// Keeps what a run came to.
    pub(super) fn keep(&mut self, plan: &RunPlan, outcome: &Outcome) -> io::Result<()> {
        let of = |value: fn(&brambling::coflow::simulate::Took) -> f64| {
            outcome.coflows.iter().map(value).collect()
        };
        let result = RunResult {
            from: self.from.clone(),
            cct_s: of(|it| it.cct_s),
            isolated_s: of(|it| it.isolated_s),
            bytes: of(|it| it.bytes),
            arrival_s: of(|it| it.arrival_s),
        };
        let key = plan.key();
        // Under its name only when it is whole.
        let whole = self.folder.join(format!(".{key}"));
        std::fs::write(&whole, serde_json::to_vec(&result)?)?;
        std::fs::rename(whole, self.path(&key))?;
        self.found.insert(key, result);
        Ok(())
    }

    /// What a run came to.
    ///
    /// # Panics
    /// If it has not been run.
    pub(super) fn of(&self, plan: &RunPlan) -> &RunResult {
        let result = self.found.get(&plan.key());
        result.unwrap_or_else(|| panic!("{} has not been run", plan.key()))
    }
}

impl RunResult {
    /// The mean time of coflows.
    pub(super) fn average_s(&self) -> f64 {
        mean(self.cct_s.iter().copied()).unwrap_or(0.0)
    }

    /// The mean time of the coflows of a category of Table 3; none: there are none.
    pub(super) fn average_of(&self, name: &str, sizes: &[f64; 4]) -> Option<f64> {
        let each = self.cct_s.iter().zip(&self.bytes);
        let of = each.filter(|(_, bytes)| category(**bytes, sizes) == name);
        mean(of.map(|(cct_s, _)| *cct_s))
    }

    /// When coflows were done, the first one first, after the first came.
    pub(super) fn ends_s(&self) -> Vec<f64> {
        let each = self.arrival_s.iter().zip(&self.cct_s);
        let mut ends: Vec<f64> = each.map(|(arrival_s, cct_s)| arrival_s + cct_s).collect();
        ends.sort_by(f64::total_cmp);
        ends
    }

    /// Which categories have coflows.
    pub(super) fn categories(&self, sizes: &[f64; 4]) -> Vec<&'static str> {
        let has = |name: &&&str| self.bytes.iter().any(|it| category(*it, sizes) == **name);
        CATEGORIES.iter().filter(has).copied().collect()
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum) = (0_u32, 0.0);
    for value in values {
        (count, sum) = (count + 1, sum + value);
    }
    (count > 0).then(|| sum / f64::from(count))
}
