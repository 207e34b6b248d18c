//! What closures capture is in the program's hash when it is named, in every statement that takes them.

use brambling_program::{Blocks, Combine, Program, Sum};

fn hash(add: impl FnOnce(&mut Program, Vec<u8>), captured: u64) -> u128 {
    let mut p = Program::new("captured");
    add(&mut p, captured.to_le_bytes().to_vec());
    p.validate().unwrap();
    p.spec().hash()
}

/// Same captured value, same hash; another one, another hash.
fn check(statement: &str, add: fn(&mut Program, u64, Vec<u8>)) {
    let of = |captured| hash(|p, bytes| add(p, captured, bytes), captured);
    assert_eq!(of(3), of(3), "{statement}");
    assert_ne!(of(3), of(4), "{statement}");
}

fn modulo(by: u64) -> impl Combine<u64> {
    move |left: &mut u64, right: &u64| *left = (*left + right) % by
}

#[test]
fn another_captured_value_is_another_program() {
    check("repeat_while", |p, limit, bytes| {
        let x = p.dataset::<u64>("x", 1);
        let test = move |x: &u64| *x < limit;
        let named = p.named("below", bytes);
        named.repeat_while("small", &x, test, |p| {
            p.compute("grow").update(&x).run(|x: &mut u64| *x += 1);
        });
    });
    check("reduce", |p, by, bytes| {
        let (x, total) = (p.dataset::<u64>("x", 4), p.dataset::<u64>("total", 1));
        let step = move |total: &mut u64, sum: &u64| *total += by * sum;
        p.named("scaled", bytes).reduce(Sum, &x, &total, step);
    });
    check("reduce_blocks", |p, by, bytes| {
        let x = p.dataset::<Blocks<u64>>("x", 4);
        let total = p.dataset::<u64>("total", 1);
        let step = move |total: &mut u64, sum: &u64| *total += by * sum;
        p.named("scaled", bytes)
            .reduce_blocks(Sum, &x, &total, step);
    });
    check("reduce_to", |p, by, bytes| {
        let (x, total) = (p.dataset::<u64>("x", 4), p.dataset::<u64>("total", 1));
        p.named("modulo", bytes).reduce_to(modulo(by), &x, &total);
    });
    check("all_reduce", |p, by, bytes| {
        let (x, totals) = (p.dataset::<u64>("x", 4), p.dataset::<u64>("totals", 2));
        p.named("modulo", bytes).all_reduce(modulo(by), &x, &totals);
    });
    check("all_reduce_blocks", |p, by, bytes| {
        let x = p.dataset::<Blocks<u64>>("x", 4);
        let totals = p.dataset::<u64>("totals", 2);
        p.named("modulo", bytes)
            .all_reduce_blocks(modulo(by), &x, &totals);
    });
    check("exchange_neighbours", |p, by, bytes| {
        let x = p.dataset::<u64>("x", 4);
        let send = move |x: &u64, _: u32, piece: &mut u64| *piece = by * x;
        let receive = |x: &mut u64, _: u32, piece: &u64| *x += piece;
        p.named("scaled", bytes)
            .exchange_neighbours("halo", &x, &[-1, 1], true, send, receive);
    });
}

#[test]
fn the_name_of_a_while_is_that_of_its_test_alone() {
    let mut p = Program::new("captured");
    let x = p.dataset::<u64>("x", 1);
    p.named("below", vec![3]).repeat_while(
        "small",
        &x,
        |x| *x < 3,
        |p| {
            p.compute("grow").update(&x).run(|x: &mut u64| *x += 1);
        },
    );
    let kernels = &p.spec().kernels;
    assert_eq!(
        (kernels[0].name.as_str(), &*kernels[0].parameters),
        ("below", &[3][..])
    );
    assert_ne!(kernels[1].name, "below");
    assert!(kernels[1].parameters.is_empty());
}
