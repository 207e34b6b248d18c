//! Rows stay where they are only while nothing but shuffles has written them.

use brambling::RunOptions;
use brambling::program::{Dataset, Partitioner, Program, Relation, Rows, partition_of};

const PARTITIONS: u32 = 5;

fn numbers(p: &mut Program) -> Dataset<Rows<u64, u64>> {
    p.load("numbers", PARTITIONS, Partitioner::Opaque, |index, _| {
        (0..40).map(|i| (u64::from(index) * 40 + i, i)).collect()
    })
}

/// Gives every row another key.
fn rename(rows: &mut Rows<u64, u64>) {
    for (key, _) in rows {
        *key = key.wrapping_mul(31) + 1;
    }
}

/// Runs a program and asserts that each of 200 rows lies in its key's partition.
fn assert_by_key(p: Program, rows: &Dataset<Rows<u64, u64>>) {
    let mut outcome = RunOptions::new().threads(2).run(p).unwrap();
    let partitions = outcome.take_all(rows);
    assert_eq!(partitions.iter().map(Vec::len).sum::<usize>(), 200);
    for (index, rows) in partitions.iter().enumerate() {
        for (key, _) in rows {
            let home = partition_of(key, PARTITIONS) as usize;
            assert_eq!(home, index, "key {key} lies in {index}");
        }
    }
}

fn relations(p: &Program) -> Vec<bool> {
    let stays = Relation::Offsets {
        offsets: vec![0],
        wrap: false,
    };
    let exchanges = &p.spec().exchanges;
    exchanges.iter().map(|it| it.relation == stays).collect()
}

/// Catches rows that are hashed and sent again although they lie by key.
#[test]
fn what_lies_by_key_stays() {
    let mut p = Program::new("twice");
    let numbers = numbers(&mut p);
    let once = p.temporary::<Rows<u64, u64>>("once", PARTITIONS);
    let twice = p.dataset::<Rows<u64, u64>>("twice", PARTITIONS);
    p.shuffle(&numbers, &once);
    p.shuffle(&once, &twice);
    assert_eq!(relations(&p), [false, true]);
    assert_by_key(p, &twice);
}

/// Catches trust in a dataset that is only like one that lies by key.
#[test]
fn a_likeness_is_not_trusted() {
    let mut p = Program::new("like");
    let numbers = numbers(&mut p);
    let once = p.temporary::<Rows<u64, u64>>("once", PARTITIONS);
    p.shuffle(&numbers, &once);
    let renamed = p.like::<Rows<u64, u64>, _>("renamed", &once);
    p.compute("rename").read(&once).write(&renamed).run(
        |once: &Rows<u64, u64>, renamed: &mut Rows<u64, u64>| {
            renamed.clone_from(once);
            rename(renamed);
        },
    );
    let twice = p.dataset::<Rows<u64, u64>>("twice", PARTITIONS);
    p.shuffle(&renamed, &twice);
    assert_eq!(relations(&p), [false, false]);
    assert_by_key(p, &twice);
}

/// Catches trust in rows that a later stage of the same loop gives other keys.
#[test]
fn a_write_after_the_shuffle_is_seen() {
    let mut p = Program::new("loop");
    let numbers = numbers(&mut p);
    let once = p.temporary::<Rows<u64, u64>>("once", PARTITIONS);
    let twice = p.dataset::<Rows<u64, u64>>("twice", PARTITIONS);
    p.shuffle(&numbers, &once);
    p.repeat(3, |p| {
        p.shuffle(&once, &twice);
        p.compute("rename").update(&once).run(rename);
    });
    assert_eq!(relations(&p), [false, false]);
    assert_by_key(p, &twice);
}
