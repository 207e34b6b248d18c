//! Probes: short measurements of what the hardware can do. Each returns one sample; callers take
//! several and keep their spread (see [`crate::measure`]).

pub mod bandwidth;
pub mod call;
pub mod copy;
pub mod disk;
pub mod flops;
pub mod memory;
pub mod process;
pub mod settled;
pub mod spin;
pub mod table;
pub mod wake;

pub use crate::network::polled::polled_round_trip_us;
pub use bandwidth::{ReadLoop, read_bandwidth};
pub use call::indirect_call_ns;
pub use copy::copy_bandwidth;
pub use disk::{DiskError, DiskFiles, DiskMode};
pub use flops::flops_per_ns;
pub use memory::{peak_rss_bytes, reset_peak_rss, rss_bytes};
pub use process::{open_descriptors, process_cpu_time, thread_cpu_time, threads};
pub use settled::{Noise, Settled};
pub use spin::spin_round_trip_us;
pub use table::random_accesses_per_s;
pub use wake::wake_us;
