//! The instruction sets that kernels are compiled for: the x86-64 levels v2, v3 and v4.

use std::fmt;
use std::str::FromStr;

/// A level of the x86-64 instruction set; a higher one contains the lower ones.
///
/// `V2` is the floor: it is assumed, not detected, and stands for "no vectors wider than 128 bits,
/// no FMA" on other architectures too.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum IsaLevel {
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
        asked: IsaLevel,
        /// The highest level this CPU has.
        best: IsaLevel,
    },
}

impl IsaLevel {
    /// All levels, lowest first.
    pub const ALL: [IsaLevel; 3] = [IsaLevel::V2, IsaLevel::V3, IsaLevel::V4];

    /// The highest level this CPU and its operating system support.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> IsaLevel {
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
            (_, true) => IsaLevel::V4,
            (true, false) => IsaLevel::V3,
            (false, false) => IsaLevel::V2,
        }
    }

    /// The highest level this CPU and its operating system support.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> IsaLevel {
        IsaLevel::V2
    }

    /// Whether this CPU has this level.
    pub fn is_available(self) -> bool {
        self <= IsaLevel::detect()
    }

    /// The level to use when `asked` was requested, or the best one when nothing was.
    ///
    /// Fails when `asked` is above what this CPU has: falling back silently would measure another
    /// machine than the one asked for.
    pub fn resolve(asked: Option<IsaLevel>) -> Result<IsaLevel, IsaError> {
        resolve_with(asked, IsaLevel::detect())
    }

    /// `v2`, `v3` or `v4`.
    pub fn name(self) -> &'static str {
        match self {
            IsaLevel::V2 => "v2",
            IsaLevel::V3 => "v3",
            IsaLevel::V4 => "v4",
        }
    }
}

fn resolve_with(asked: Option<IsaLevel>, best: IsaLevel) -> Result<IsaLevel, IsaError> {
    match asked {
        None => Ok(best),
        Some(asked) if asked <= best => Ok(asked),
        Some(asked) => Err(IsaError::Unavailable { asked, best }),
    }
}

impl fmt::Display for IsaLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IsaLevel {
    type Err = IsaError;

    fn from_str(name: &str) -> Result<IsaLevel, IsaError> {
        IsaLevel::ALL
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
        for isa in IsaLevel::ALL {
            assert_eq!(isa.name().parse(), Ok(isa));
        }
        let error = "avx9".parse::<IsaLevel>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown instruction set \"avx9\": expected v2, v3 or v4"
        );
    }

    #[test]
    fn asking_for_more_than_the_cpu_has_is_an_error() {
        assert_eq!(resolve_with(None, IsaLevel::V3), Ok(IsaLevel::V3));
        assert_eq!(
            resolve_with(Some(IsaLevel::V2), IsaLevel::V3),
            Ok(IsaLevel::V2)
        );
        let error = resolve_with(Some(IsaLevel::V4), IsaLevel::V3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "instruction set v4 was asked for, but this CPU only has v3"
        );
    }

    #[test]
    fn the_detected_level_is_available() {
        assert!(IsaLevel::V2.is_available());
        assert!(IsaLevel::detect().is_available());
        assert_eq!(IsaLevel::resolve(None), Ok(IsaLevel::detect()));
    }
}
