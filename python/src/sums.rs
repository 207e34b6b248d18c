//! Sums of arrays and numbers, without the interpreter: what `reduce("sum", ...)` does most.
#![allow(unsafe_code)] // Elements at addresses.

use crate::array::{CompiledLeaf, Leaf, Made, Views};
use brambling::program::Number;
use std::sync::Arc;

/// Whether the interpreter's sum of two such leaves is one of ours: elements of these types, and floats.
fn is_known(leaf: &Leaf) -> bool {
    match (leaf.kind, leaf.dimensions) {
        (b'f', _) => matches!(leaf.size, 4 | 8),
        (b'i' | b'u', Some(_)) => leaf.size == 8,
        _ => false,
    }
}

/// Address and lengths of each leaf.
fn leaves(views: &Views) -> impl Iterator<Item = (&Leaf, i64, &[i64])> {
    let mut words = &views.words[..];
    views.layout.leaves.iter().map(move |leaf| {
        let dimensions = usize::from(leaf.dimensions.unwrap_or(0));
        let (address, rest) = words.split_first().expect("an address for each leaf");
        let (lengths, rest) = rest.split_at(dimensions);
        words = rest;
        (leaf, *address, lengths)
    })
}

/// Whether two values can be added here: equal types that are known, and equal lengths.
pub fn can_add(left: &Views, right: &Views) -> bool {
    !(left.has_scalars || right.has_scalars)
        && left.layout == right.layout
        && left.layout.leaves.iter().all(is_known)
        && leaves(left).zip(leaves(right)).all(|(l, r)| l.2 == r.2)
}

fn elements(lengths: &[i64]) -> usize {
    lengths.iter().product::<i64>() as usize
}

/// Whether a sum of such leaves has more room than they have, as NumPy's sums of small integers and of truth values.
fn is_narrow(leaf: &Leaf) -> bool {
    match leaf.kind {
        b'b' => true,
        b'i' | b'u' => leaf.size < 8,
        _ => false,
    }
}

/// Whether a sum of such values is of another type than they are.
pub fn widens(views: &Views) -> bool {
    views.layout.leaves.iter().any(is_narrow)
}

/// A value of the type that its sum has.
pub fn widened(views: &Views) -> Made {
    let mut made = copied(views);
    for ((part, leaf), (_, address, lengths)) in made
        .parts
        .iter_mut()
        .zip(&mut made.layout.leaves)
        .zip(leaves(views))
    {
        if !is_narrow(leaf) {
            continue;
        }
        let count = elements(lengths);
        // SAFETY: a leaf has as many elements of its type as its lengths say, alive while its value is.
        let words = unsafe {
            match (leaf.kind, leaf.size) {
                (b'i', 1) => words(address as *const i8, count),
                (b'i', 2) => words(address as *const i16, count),
                (b'i', _) => words(address as *const i32, count),
                (b'u', 2) => words(address as *const u16, count),
                (b'u', 4) => words(address as *const u32, count),
                _ => words(address as *const u8, count),
            }
        };
        *leaf = Leaf {
            kind: if leaf.kind == b'u' { b'u' } else { b'i' },
            size: 8,
            dimensions: leaf.dimensions,
        };
        *part = Arc::new(CompiledLeaf {
            leaf: *leaf,
            shape: lengths.to_vec(),
            buffer: words,
        });
    }
    made
}

/// Integers with all their digits: the sign's too.
///
/// # Safety
/// `count` elements at the address, aligned.
unsafe fn words<T: Copy + Into<i64>>(from: *const T, count: usize) -> Box<[u64]> {
    let from = match count {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(from, count) },
    };
    let mut words: Vec<u64> = from.iter().map(|&value| value.into() as u64).collect();
    // An address is there, even when nothing else is.
    words.resize(count.max(1), 0);
    words.into_boxed_slice()
}

/// A value of one's own, to add others to.
pub fn copied(views: &Views) -> Made {
    let part = |(leaf, address, lengths): (&Leaf, i64, &[i64])| {
        let bytes = elements(lengths) * usize::from(leaf.size);
        let mut buffer = vec![0u64; bytes.div_ceil(8).max(1)].into_boxed_slice();
        // SAFETY: a leaf has as many elements as its lengths say, alive while its value is.
        unsafe {
            std::ptr::copy_nonoverlapping(
                address as *const u8,
                buffer.as_mut_ptr().cast::<u8>(),
                bytes,
            );
        }
        Arc::new(CompiledLeaf {
            leaf: *leaf,
            shape: lengths.to_vec(),
            buffer,
        })
    };
    Made {
        layout: views.layout.clone(),
        parts: leaves(views).map(part).collect(),
    }
}

/// Adds a value that [`can_add`] has seen; false when somebody else sees the sum.
pub fn add(sum: &mut Made, right: &Views) -> bool {
    if !sum
        .parts
        .iter_mut()
        .all(|part| Arc::get_mut(part).is_some())
    {
        return false;
    }
    for (part, (leaf, address, lengths)) in sum.parts.iter_mut().zip(leaves(right)) {
        let part = Arc::get_mut(part).expect("looked at above");
        let count = elements(lengths);
        let into = part.buffer.as_mut_ptr();
        // SAFETY: both have as many elements of this type, and the sum is nobody else's.
        unsafe {
            match (leaf.kind, leaf.size) {
                (b'f', 8) => add_elements::<f64>(into.cast(), address as *const f64, count),
                (b'f', _) => add_elements::<f32>(into.cast(), address as *const f32, count),
                _ => add_elements::<u64>(into, address as *const u64, count),
            }
        }
    }
    true
}

/// # Safety
/// `count` elements at both addresses; those of `into` are nobody else's.
unsafe fn add_elements<T: Number>(into: *mut T, from: *const T, count: usize) {
    // SAFETY: the caller's promise.
    let (into, from) = unsafe {
        (
            std::slice::from_raw_parts_mut(into, count),
            std::slice::from_raw_parts(from, count),
        )
    };
    for (sum, &value) in into.iter_mut().zip(from) {
        *sum = sum.add(value);
    }
}
