//! What every process shows of itself.

use super::super::VERSION;
use super::table;
use super::text::Text;
use brambling_exchange::transports::tcp::Carried;
use brambling_machine::probes;

/// Its version, what kind it is, and what it takes of its machine. What the system does not tell has no sample.
pub(in crate::cluster) fn process(text: &mut Text, role: &str) {
    text.family(&table::BUILD_INFO).add(&[VERSION, role], 1_u32);
    let mut cpu = text.family(&table::PROCESS_CPU_SECONDS);
    if let Ok(time) = probes::process_cpu_time(std::process::id()) {
        cpu.add(&[], time);
    }
    let mut resident = text.family(&table::PROCESS_RESIDENT_MEMORY_BYTES);
    if let Some(bytes) = probes::rss_bytes() {
        resident.add(&[], bytes);
    }
    let mut open = text.family(&table::PROCESS_OPEN_FDS);
    if let Ok(count) = probes::open_descriptors() {
        open.add(&[], count);
    }
}

/// What has gone over its links.
pub(in crate::cluster) fn carried(text: &mut Text, carried: Carried) {
    text.one(&table::SENT_BYTES, carried.sent_bytes);
    text.one(&table::SENT_FRAMES, carried.sent_frames);
    text.one(&table::RECEIVED_BYTES, carried.received_bytes);
    text.one(&table::RECEIVED_FRAMES, carried.received_frames);
}
