//! The costs of this machine: measured now, or read from where they were measured before.

use brambling_machine::network::loopback;
use brambling_machine::probes::wake_us;
use brambling_simulation::costed::{Costs, Machine, calibrate};
use std::error::Error;
use std::time::Instant;

/// Measures everything; some seconds, on two CPUs at best.
pub fn measure() -> Result<Costs, Box<dyn Error>> {
    let wire = loopback()?;
    let machine = Machine {
        wake_ns: wake_us() * 1e3,
        write_ns: wire.write_us * 1e3,
        pipelined_ns: wire.pipelined_us * 1e3,
        round_trip_ns: wire.round_trip_us * 1e3,
    };
    let start = Instant::now();
    Ok(calibrate(&|| start.elapsed(), machine))
}

/// What `--costs FILE` has, or what is measured now.
pub fn costs(args: &[String]) -> Result<Costs, Box<dyn Error>> {
    match args.iter().position(|arg| arg == "--costs") {
        None => measure(),
        Some(at) => {
            let file = args.get(at + 1).ok_or("--costs needs a file")?;
            let text = std::fs::read_to_string(file)?;
            Ok(serde_json::from_str(&text)?)
        }
    }
}

/// The number after a name, if it is there.
#[allow(dead_code)] // Not every example takes numbers.
pub fn number(args: &[String], name: &str) -> Result<Option<f64>, Box<dyn Error>> {
    let Some(at) = args.iter().position(|arg| arg == name) else {
        return Ok(None);
    };
    let number = args.get(at + 1).ok_or(format!("{name} needs a number"))?;
    Ok(Some(number.parse()?))
}
