//! Prints every probe once. `cargo run --release -p brambling-bench --example probes [MIB]`
#![allow(clippy::print_stdout)]

use brambling_machine::cpu::{Processor, places};
use brambling_machine::isa::IsaLevel;
use brambling_machine::measure::Figure;
use brambling_machine::probes::{
    ReadLoop, flops_per_ns, indirect_call_ns, peak_rss_bytes, read_bandwidth, spin_round_trip_us,
};

fn main() {
    let processor = Processor::read().expect("the affinity mask can be read");
    println!("{processor:#?}");
    let mib: usize = std::env::args()
        .nth(1)
        .map_or(512, |arg| arg.parse().expect("MiB"));
    let data = vec![1.0f64; mib << 17];
    for threads in [1, processor.default_threads()] {
        let places = places(threads).expect("the affinity mask can be read");
        for read_loop in ReadLoop::available() {
            let samples = sample(|| read_bandwidth(read_loop, &[&data], &places));
            println!("{threads} {:24} {samples} GB/s", read_loop.name());
        }
        for isa in IsaLevel::ALL.into_iter().filter(|isa| isa.is_available()) {
            println!(
                "{threads} flops {isa} {} /ns",
                sample(|| flops_per_ns(isa, &places))
            );
        }
    }
    println!("indirect call {} ns", sample(indirect_call_ns));
    println!("spin round trip {} us", sample(spin_round_trip_us));
    println!("peak resident {:?} bytes", peak_rss_bytes());
}

fn sample(mut probe: impl FnMut() -> f64) -> String {
    let figure = Figure::of(&(0..7).map(|_| probe()).collect::<Vec<_>>());
    format!("{:.2} ({:.2}–{:.2})", figure.median, figure.min, figure.max)
}
