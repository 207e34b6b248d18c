//! The instruction sets that kernels are compiled for: the x86-64 levels v2, v3 and v4.

use std::fmt;
use std::str::FromStr;

/// A level of the x86-64 instruction set; a higher one contains the lower ones.
///
/// `V2` is the floor: it is assumed, not detected, and stands for "no vectors wider than 128 bits,
/// no FMA" on other architectures too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Isa {
    /// SSE4.2; 128-bit vectors, no FMA.
    V2,
    /// AVX2, FMA, BMI; 256-bit vectors.
    V3,
    /// AVX-512 F, BW, CD, DQ and VL; 512-bit vectors.
    V4,
}

/// Why a requested instruction set cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IsaError {
    /// The name is none of `v2`, `v3` and `v4`.
    #[error("unknown instruction set \"{name}\": expected v2, v3 or v4")]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The CPU does not have it.
    #[error("instruction set {asked} was asked for, but this CPU only has {best}")]
    Unavailable {
        /// What was asked for.
        asked: Isa,
        /// The highest level this CPU has.
        best: Isa,
    },
}

impl Isa {
    /// All levels, lowest first.
    pub const ALL: [Isa; 3] = [Isa::V2, Isa::V3, Isa::V4];

    /// The highest level this CPU and its operating system support.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Isa {
        let v3 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("movbe");
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

    /// The highest level this CPU and its operating system support.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Isa {
        Isa::V2
    }

    /// Whether this CPU has this level.
    pub fn is_available(self) -> bool {
        self <= Isa::detect()
    }

    /// The level to use when `asked` was requested, or the best one when nothing was.
    ///
    /// Fails when `asked` is above what this CPU has: falling back silently would measure another
    /// machine than the one asked for.
    pub fn resolve(asked: Option<Isa>) -> Result<Isa, IsaError> {
        resolve_with(asked, Isa::detect())
    }

    /// `v2`, `v3` or `v4`.
    pub fn name(self) -> &'static str {
        match self {
            Isa::V2 => "v2",
            Isa::V3 => "v3",
            Isa::V4 => "v4",
        }
    }
}

fn resolve_with(asked: Option<Isa>, best: Isa) -> Result<Isa, IsaError> {
    match asked {
        None => Ok(best),
        Some(asked) if asked <= best => Ok(asked),
        Some(asked) => Err(IsaError::Unavailable { asked, best }),
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Isa {
    type Err = IsaError;

    fn from_str(name: &str) -> Result<Isa, IsaError> {
        Isa::ALL
            .into_iter()
            .find(|isa| isa.name() == name)
            .ok_or_else(|| IsaError::Unknown {
                name: name.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for isa in Isa::ALL {
            assert_eq!(isa.name().parse(), Ok(isa));
        }
        let error = "avx9".parse::<Isa>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown instruction set \"avx9\": expected v2, v3 or v4"
        );
    }

    #[test]
    fn asking_for_more_than_the_cpu_has_is_an_error() {
        assert_eq!(resolve_with(None, Isa::V3), Ok(Isa::V3));
        assert_eq!(resolve_with(Some(Isa::V2), Isa::V3), Ok(Isa::V2));
        let error = resolve_with(Some(Isa::V4), Isa::V3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "instruction set v4 was asked for, but this CPU only has v3"
        );
    }

    #[test]
    fn the_detected_level_is_available() {
        assert!(Isa::V2.is_available());
        assert!(Isa::detect().is_available());
        assert_eq!(Isa::resolve(None), Ok(Isa::detect()));
    }
}
