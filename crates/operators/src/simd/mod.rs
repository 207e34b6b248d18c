//! Logical vectors of 512 bits, on every instruction set.
//!
//! A kernel is written once over `F64x8` and compiled three times. `dispatch` chooses among the
//! three, once per call of a kernel.
//!
//! # Why it is sound
//! The vector types are named only here, and are reached by kernels only as the type parameter of
//! `SimdKernel::run`, which `dispatch` calls after it has seen that the CPU has the instructions.

mod isa;
mod portable;
mod rows;
mod vector;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

pub use isa::{Isa, ParseIsaError, SelectError, active, detect, select};
pub use rows::TableValue;
pub(crate) use rows::{Eight, Octet, RowMatrix, Walk, prefetch, prefetch_line, prefetch_soon};
pub(crate) use vector::{F32x16, F64x8, SingleLine, VectorLine};

/// A kernel's body. Implementations of `run` and all that it calls in its hot loop must be
/// `#[inline(always)]` and free of closures: code that is not inlined is compiled without the
/// vector instructions.
pub(crate) trait SimdKernel {
    type Output;
    fn run<V: F64x8>(self) -> Self::Output;
}

/// Runs `kernel` compiled for `isa`.
///
/// # Panics
/// If the CPU lacks `isa`.
#[allow(unsafe_code)] // The one place where code compiled for a newer CPU is entered.
pub(crate) fn dispatch<K: SimdKernel>(isa: Isa, kernel: K) -> K::Output {
    assert!(isa <= detect(), "this CPU lacks {isa}");
    match isa {
        Isa::V2 => kernel.run::<portable::Portable>(),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `detect` found all features of x86-64-v3.
        Isa::V3 => unsafe { on_v3(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `detect` found all features of x86-64-v4.
        Isa::V4 => unsafe { on_v4(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        Isa::V3 | Isa::V4 => unreachable!("detect() never finds {isa} here"),
    }
}

/// A kernel over doubles and singles. What is asked of a [`SimdKernel`] is asked of it too.
pub(crate) trait PairKernel {
    type Output;
    fn run<V: F64x8, S: F32x16>(self) -> Self::Output;
}

/// Runs `kernel` compiled for `isa`.
///
/// # Panics
/// If `isa` has no vectors of singles, or the CPU lacks it.
#[allow(unsafe_code)] // As in `dispatch`.
pub(crate) fn dispatch_pair<K: PairKernel>(isa: Isa, kernel: K) -> K::Output {
    assert!(isa <= detect(), "this CPU lacks {isa}");
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `detect` found all features of x86-64-v3.
        Isa::V3 => unsafe { pair_on_v3(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `detect` found all features of x86-64-v4.
        Isa::V4 => unsafe { pair_on_v4(kernel) },
        other => {
            let _ = kernel;
            unreachable!("{other} has no kernel over singles")
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt")]
fn on_v3<K: SimdKernel>(kernel: K) -> K::Output {
    kernel.run::<avx2::Avx2>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt")]
fn on_v4<K: SimdKernel>(kernel: K) -> K::Output {
    kernel.run::<avx512::Avx512>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt")]
fn pair_on_v3<K: PairKernel>(kernel: K) -> K::Output {
    kernel.run::<avx2::Avx2, avx2::Avx2Singles>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt")]
fn pair_on_v4<K: PairKernel>(kernel: K) -> K::Output {
    kernel.run::<avx512::Avx512, avx512::Avx512Singles>()
}
