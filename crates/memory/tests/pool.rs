//! Buffers come back, stay counted, and are bounded.

use brambling_memory::{Budget, Class, Floors, Pool};

#[test]
fn a_buffer_comes_back_empty() {
    let pool = Pool::new(Budget::unlimited(), Class::Transfer, 1 << 20);
    let mut buf = pool.take(5_000).unwrap();
    assert!(buf.capacity() >= 5_000);
    buf.extend_from_slice(b"left over");
    let at = buf.as_ptr();
    drop(buf);
    assert_eq!(pool.free_bytes(), 8192);
    let again = pool.take(6_000).unwrap();
    assert!(again.is_empty());
    assert_eq!(again.as_ptr(), at);
    assert_eq!(pool.free_bytes(), 0);
}

#[test]
fn the_free_list_is_bounded_and_counted() {
    let budget = Budget::new(1 << 20, Floors::default());
    let pool = Pool::new(budget.clone(), Class::Transfer, 8192);
    let bufs: Vec<_> = (0..4).map(|_| pool.take(1).unwrap()).collect();
    assert_eq!(budget.in_use_bytes(), 4 * 4096);
    drop(bufs);
    assert_eq!(pool.free_bytes(), 8192);
    assert_eq!(budget.in_use_bytes(), 8192);
    pool.trim();
    assert_eq!((pool.free_bytes(), budget.in_use_bytes()), (0, 0));
}

#[test]
fn what_waits_for_reuse_makes_way() {
    let budget = Budget::new(8192, Floors::default());
    let pool = Pool::new(budget, Class::Transfer, 1 << 20);
    let both = (pool.take(1).unwrap(), pool.take(1).unwrap());
    drop(both);
    let _large = pool.take(8192).unwrap();
    assert!(pool.take(1).is_err());
}

#[test]
fn a_buffer_that_grew_is_counted_when_settled_and_not_kept() {
    let budget = Budget::new(1 << 20, Floors::default());
    let pool = Pool::new(budget.clone(), Class::Transfer, 1 << 20);
    let mut buf = pool.take(1).unwrap();
    buf.resize(5_000, 0);
    buf.settle().unwrap();
    assert_eq!(budget.in_use_bytes(), buf.capacity() as u64);
    let huge = pool.take(5 << 20);
    assert!(huge.is_err());
    let grown = pool.take(1).map(|mut buf| buf.resize(5_000, 1));
    grown.unwrap();
    drop(buf);
    // Only the settled one may be kept.
    assert!(pool.free_bytes() <= 8192);
    pool.trim();
    assert_eq!(budget.in_use_bytes(), 0);
}

#[test]
fn parts_share_a_buffer_until_the_last_is_gone() {
    let pool = Pool::new(Budget::unlimited(), Class::Exchange, 1 << 20);
    let mut buf = pool.take(16).unwrap();
    buf.extend_from_slice(b"chaffinch brambling");
    let whole = buf.share();
    let part = whole.slice(10..19).slice(0..7);
    assert_eq!(whole.slice_of(&whole[10..17]).as_ref(), Some(&part));
    assert_eq!(whole.slice_of(b"elsewhere"), None);
    drop(whole);
    assert_eq!(&*part, b"brambli");
    assert_eq!(pool.free_bytes(), 0);
    drop(part);
    assert_eq!(pool.free_bytes(), 4096);
}
