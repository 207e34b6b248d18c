//! The steps of a job that goes from files to files, as Krevat et al. count them: "Applying performance models to understand
//! data-intensive computing efficiency", §5 and §7. Whoever tells of such a job asks a [`Report`]; this module only sums what
//! its stages have, and measures nothing.
//!
//! Steps overlap, and so do threads: the seconds of a step are a thread's on average. What a thread waits for a disk before it runs
//! a stage is that stage's.

use serde::Serialize;

use super::Report;
use super::ideal::{Resource, StageReport};

/// What a job makes of files. Its stages are known by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipeline {
    /// Sorting: read, partition, exchange, sort, write.
    Sort,
    /// Map-reduce: read, map, exchange, reduce, write. Its combiner is the map's, and its sort the reduce's.
    MapReduce,
    /// Searching: read, search.
    Search,
}

/// A step of a job on files. Its JSON has these fields as keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelineStep {
    /// Such as "read".
    pub name: &'static str,
    /// Mean seconds of a thread: in kernels, or without work while it waited for the disk or for pieces of others.
    pub seconds: f64,
    /// The least seconds; null where nobody probed.
    pub ideal_seconds: Option<f64>,
    /// Bytes of files for "read" and "write", with backups and runs; bytes between processes for "exchange"; of memory for others.
    pub bytes: u64,
}

/// The stages that read, the name of what their kernels do, and the same of those that write.
struct Steps {
    sources: &'static [&'static str],
    by_sources: &'static str,
    sinks: &'static [&'static str],
    by_sinks: &'static str,
}

impl Pipeline {
    fn steps(self) -> Steps {
        match self {
            Pipeline::Sort => Steps {
                sources: &["sample", "read"],
                by_sources: "partition",
                sinks: &["sort", "copy"],
                by_sinks: "sort",
            },
            Pipeline::MapReduce => Steps {
                sources: &["map"],
                by_sources: "map",
                sinks: &["reduce"],
                by_sinks: "reduce",
            },
            Pipeline::Search => Steps {
                sources: &["search"],
                by_sources: "search",
                sinks: &[],
                by_sinks: "",
            },
        }
    }
}

impl Report {
    /// The steps of a job on files, in their order; none of a job without such stages. After the job its output took so many seconds to be on the disk.
    pub fn pipeline(&self, pipeline: Pipeline, output_seconds: f64) -> Vec<PipelineStep> {
        let steps = pipeline.steps();
        let of = |names: &'static [&'static str]| -> Vec<&StageReport> {
            let named = |stage: &&StageReport| names.contains(&stage.name.as_str());
            self.stages.iter().filter(named).collect()
        };
        let (sources, sinks) = (of(steps.sources), of(steps.sinks));
        if sources.is_empty() {
            return Vec::new();
        }
        let mut all = vec![
            disk("read", &sources, 0.0),
            self.kernels(steps.by_sources, &sources),
        ];
        if !steps.sinks.is_empty() {
            all.push(self.exchange());
            all.push(self.kernels(steps.by_sinks, &sinks));
            all.push(disk("write", &sinks, output_seconds));
        }
        all
    }

    /// As [`Report::pipeline`], as JSON, of a job whose output is on the disk when it ends.
    pub fn pipeline_json(&self, pipeline: Pipeline) -> String {
        let steps = self.pipeline(pipeline, 0.0);
        serde_json::to_string(&steps).expect("steps have no keys but strings")
    }

    fn kernels(&self, name: &'static str, stages: &[&StageReport]) -> PipelineStep {
        let sum = |of: fn(&StageReport) -> f64| stages.iter().fold(0.0, |sum, it| sum + of(it));
        PipelineStep {
            name,
            seconds: sum(|stage| stage.kernels.seconds),
            ideal_seconds: self
                .probed
                .then(|| sum(|stage| stage.kernels.ideal_seconds)),
            bytes: used(stages, Resource::MemoryBandwidth).0 as u64,
        }
    }

    fn exchange(&self) -> PipelineStep {
        let sent = self.resources.iter();
        let sent = sent.filter(|used| used.resource == Resource::Network);
        let (bytes, ideal_seconds) = sent.fold((0.0, Some(0.0)), |(bytes, seconds), used| {
            (bytes + used.amount, plus(seconds, used.ideal_seconds))
        });
        PipelineStep {
            name: "exchange",
            seconds: (self.shares.exchange + self.shares.memory) * self.actual_seconds,
            ideal_seconds,
            bytes: bytes as u64,
        }
    }
}

fn disk(name: &'static str, stages: &[&StageReport], more_seconds: f64) -> PipelineStep {
    let waited = stages.iter().fold(0.0, |sum, stage| sum + stage.parts.disk);
    let (bytes, ideal_seconds) = used(stages, Resource::Disk);
    PipelineStep {
        name,
        seconds: waited + more_seconds.max(0.0),
        ideal_seconds,
        bytes: bytes as u64,
    }
}

/// How much of a resource stages used, and the least seconds of that.
fn used(stages: &[&StageReport], resource: Resource) -> (f64, Option<f64>) {
    let uses = stages.iter().flat_map(|stage| &stage.resources);
    let its = uses.filter(|used| used.resource == resource);
    its.fold((0.0, Some(0.0)), |(amount, seconds), used| {
        (amount + used.amount, plus(seconds, used.ideal_seconds))
    })
}

fn plus(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.zip(other).map(|(one, other)| one + other)
}
