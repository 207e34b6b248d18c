//! Which instructions this process uses.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// An instruction set, by the name of its x86-64 level. Each includes the ones before it.
///
/// All give the same bits; they differ in speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Every CPU. Multiply-add is fused in software where the hardware has none, which is slow.
    V2,
    /// AVX2 and FMA: a logical vector is two of 256 bits.
    V3,
    /// AVX-512 F, BW, CD, DQ and VL.
    V4,
}

impl Isa {
    /// All of them, the most portable first.
    pub const ALL: [Isa; 3] = [Isa::V2, Isa::V3, Isa::V4];

    /// Those that this CPU has.
    pub fn supported() -> impl Iterator<Item = Isa> {
        Isa::ALL.into_iter().filter(|&isa| isa <= detect())
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::V2 => "v2",
            Isa::V3 => "v3",
            Isa::V4 => "v4",
        })
    }
}

/// The text names no instruction set.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is no instruction set: expected v2, v3 or v4")]
pub struct ParseIsaError(String);

impl FromStr for Isa {
    type Err = ParseIsaError;

    fn from_str(text: &str) -> Result<Isa, ParseIsaError> {
        match text {
            "v2" => Ok(Isa::V2),
            "v3" => Ok(Isa::V3),
            "v4" => Ok(Isa::V4),
            _ => Err(ParseIsaError(text.to_owned())),
        }
    }
}

/// Why an instruction set cannot be selected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SelectError {
    /// The CPU, or its operating system, lacks it.
    #[error("this CPU lacks {asked}: the newest it has is {newest}")]
    Unsupported {
        /// What was asked for.
        asked: Isa,
        /// The newest that [`detect`] finds.
        newest: Isa,
    },
    /// Kernels may have run with another one already.
    #[error("{asked} was asked for, but this process already uses {active}")]
    AlreadyActive {
        /// What was asked for.
        asked: Isa,
        /// What the process uses.
        active: Isa,
    },
}

static ACTIVE: OnceLock<Isa> = OnceLock::new();

/// The newest instruction set that this CPU has.
pub fn detect() -> Isa {
    static DETECTED: OnceLock<Isa> = OnceLock::new();
    *DETECTED.get_or_init(detect_now)
}

#[cfg(target_arch = "x86_64")]
fn detect_now() -> Isa {
    let v3 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt");
    let v4 = v3
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (v3, v4) {
        (_, true) => Isa::V4,
        (true, false) => Isa::V3,
        (false, false) => Isa::V2,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect_now() -> Isa {
    Isa::V2
}

/// Fixes the instruction set of this process. Selecting the same one again is allowed.
pub fn select(isa: Isa) -> Result<(), SelectError> {
    if isa > detect() {
        return Err(SelectError::Unsupported {
            asked: isa,
            newest: detect(),
        });
    }
    match *ACTIVE.get_or_init(|| isa) {
        active if active == isa => Ok(()),
        active => Err(SelectError::AlreadyActive { asked: isa, active }),
    }
}

/// The instruction set of this process: what was selected, or else the newest there is. The first
/// call fixes it.
pub fn active() -> Isa {
    *ACTIVE.get_or_init(detect)
}
