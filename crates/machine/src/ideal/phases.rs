//! Table 1: what each phase moves, and how long disk and network need for it.
//!
//! This module owns the operations and the time of a phase, the larger of its disk time and its
//! network time. `time` calls it; it never searches for other setups.

use super::Setup;
use serde::Serialize;

/// What a phase waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelResource {
    /// The disks of a node, for reads and writes together.
    Disk,
    /// The network of a node.
    Network,
}

impl ModelResource {
    /// As JSON and texts call it.
    pub fn name(self) -> &'static str {
        match self {
            ModelResource::Disk => "disk",
            ModelResource::Network => "network",
        }
    }
}

/// One line of Table 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Operation {
    /// As Table 1 calls it, such as `disk read (input)`.
    pub name: &'static str,
    /// Which resource it uses.
    pub resource: ModelResource,
    /// What one node moves, in bytes.
    pub bytes: f64,
    /// How long its resource needs for it.
    pub seconds: f64,
}

/// One of the two phases, between which the sort waits for its last record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelPhase {
    /// `map` is phase 1, `reduce` is phase 2.
    pub name: &'static str,
    /// The larger of the next two.
    pub seconds: f64,
    /// How long the disks are used.
    pub disk_seconds: f64,
    /// How long the network is used.
    pub network_seconds: f64,
    /// Which of the two is used for longer; the disks where both are used as long, and none where
    /// the phase moves nothing.
    pub bound_by: Option<ModelResource>,
    /// What the phase moves, zeros included.
    pub operations: Vec<Operation>,
}

impl ModelPhase {
    fn of(name: &'static str, operations: Vec<Operation>) -> ModelPhase {
        let sum = |resource| {
            let of_it = operations.iter().filter(|it| it.resource == resource);
            of_it.fold(0.0, |sum, it| sum + it.seconds)
        };
        let (disk_seconds, network_seconds) =
            (sum(ModelResource::Disk), sum(ModelResource::Network));
        let seconds = f64::max(disk_seconds, network_seconds);
        let bound_by = match seconds {
            0.0 => None,
            _ if disk_seconds >= network_seconds => Some(ModelResource::Disk),
            _ => Some(ModelResource::Network),
        };
        ModelPhase {
            name,
            seconds,
            disk_seconds,
            network_seconds,
            bound_by,
            operations,
        }
    }

    /// How long this phase uses a resource.
    pub(super) fn seconds_of(&self, resource: ModelResource) -> f64 {
        match resource {
            ModelResource::Disk => self.disk_seconds,
            ModelResource::Network => self.network_seconds,
        }
    }
}

impl Setup {
    /// d_1, d_2 and d_3: bytes of one node before the map, after it, and after the reduce.
    fn flow(&self) -> (f64, f64, f64) {
        let d1 = self.input_bytes / self.nodes as f64;
        let d2 = d1 * self.map_ratio;
        (d1, d2, d2 * self.reduce_ratio)
    }

    fn read(&self, name: &'static str, bytes: f64) -> Operation {
        let (resource, speed) = (ModelResource::Disk, self.disk_read_bytes_per_s);
        operation(name, resource, bytes, speed)
    }

    fn write(&self, name: &'static str, bytes: f64) -> Operation {
        let (resource, speed) = (ModelResource::Disk, self.disk_write_bytes_per_s);
        operation(name, resource, bytes, speed)
    }

    fn send(&self, name: &'static str, bytes: f64) -> Operation {
        let (resource, speed) = (ModelResource::Network, self.network_bytes_per_s);
        operation(name, resource, bytes, speed)
    }

    /// Table 1, for the sort and the backup of this setup.
    pub(super) fn phases(&self) -> [ModelPhase; 2] {
        let (d1, d2, d3) = self.flow();
        let (n, r) = (self.nodes as f64, self.replication as f64);

        let mut map = vec![self.read("disk read (input)", d1)];
        if self.backup {
            map.push(self.write("disk write (backup)", d2));
        }
        // A node keeps the part that is its own.
        map.push(self.send("network (exchange)", (n - 1.0) / n * d2));
        if self.external {
            map.push(self.write("disk write (sort)", d2));
        }

        let mut reduce = Vec::new();
        if self.external {
            reduce.push(self.read("disk read (sort)", d2));
        }
        // Its own output goes to others, and as much of theirs comes in to be stored.
        reduce.push(self.send("network (replicas)", (r - 1.0) * d3));
        reduce.push(self.write("disk write (output)", r * d3));
        [ModelPhase::of("map", map), ModelPhase::of("reduce", reduce)]
    }
}

fn operation(name: &'static str, resource: ModelResource, bytes: f64, speed: f64) -> Operation {
    Operation {
        name,
        resource,
        bytes,
        seconds: bytes / speed,
    }
}
