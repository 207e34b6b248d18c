//! Kernels: what a task computes.
//!
//! Every kernel gives the same bits on every instruction set. Three rules make it so, and a kernel
//! that is added here follows them:
//!
//! * Floating-point work is written over logical vectors of 512 bits ([`simd`]), so the order of
//!   every sum is fixed by lanes that exist on each machine, in hardware or not.
//! * Multiply-add is fused everywhere. `exp` and `log1p` are our own ([`numerics`]): the platform's
//!   differ between versions of its C library.
//! * A NaN leaves a kernel as [`numerics::CANONICAL_NAN`]: which operand's payload survives an
//!   addition depends on the order a compiler chose for its operands.
//!
//! A kernel takes the instruction set as its first argument and dispatches on it once per call.

pub mod graph;
pub mod grep;
pub mod grid;
pub mod map_reduce;
pub mod ml;
pub mod numerics;
pub mod parts;
pub mod simd;
pub mod sort;
