//! Programs that are encoded and linked: they are what they were, and what cannot be linked is told by name.
//!
//! The oracle is the program that was encoded, and, for values, the sequential interpreter's engine tests. Hostile bytes are the fuzz target's.

use brambling_program::{
    Bindings, Blocks, BuildError, Context, Dataset, DatasetId, Inbox, LinkError, Outbox,
    Partitioner, PlacementHint, Plan, Program, Progress, Relation, Spec, Streams, Sum, links,
};
use std::sync::Arc;
use std::task::Poll;

fn scale(by: &f64, x: &f64, y: &mut f64) {
    *y = by * x;
}

fn count_up(context: &mut Context<'_>, x: &mut f64) {
    *x += f64::from(context.partition());
}

fn add(far: &f64, x: &mut f64) {
    *x += far;
}

fn is_small(limit: &f64, total: &f64) -> bool {
    total < limit
}

fn send(x: &f64, out: &mut Outbox<'_, f64>) {
    out.for_each(|_, piece| *piece = *x);
}

fn take(bias: &f64, inbox: &mut Inbox<'_, f64>, x: &mut f64) {
    *x = bias + inbox.map(|(_, piece)| *piece).sum::<f64>();
}

fn shrink(x: &mut f64) {
    *x *= 0.5;
}

/// A program with each kind of stage, each with parameters where it can have them.
fn every_kind(p: &mut Program, by: f64, limit: f64) -> Dataset<f64> {
    let x = p.load("x", 4, Partitioner::Opaque, |index, _| f64::from(index));
    let y = p.like::<f64, _>("y", &x);
    let read = |by: &f64, index: u32, count: u32| by * f64::from(index + count);
    let far = p.scan("far", 4, Partitioner::Opaque, by, read);
    p.compute("add").read(&far).update(&x).run(add);
    let total = p.value("total", 1, 1.5f64);
    let local = p.like::<f64, _>("local", &x);
    p.hint_placement(&x, PlacementHint::Columns(2));
    p.compute("count").update(&x).run_with_context(count_up);
    p.compute("scale").read(&x).write(&y).with(by).run(scale);
    let small = p.signal("small").read(&total).with(limit).run(is_small);
    p.branch(
        small,
        |p| p.compute("shrink").update(&y).run(shrink),
        |p| p.compute("shrink").update(&x).run(shrink),
    );
    let beside = Relation::Offsets {
        offsets: vec![-1, 1],
        wrap: true,
    };
    let exchange = p.exchange::<f64>("beside", beside);
    p.scatter("send", &exchange).read(&y).run(send);
    p.gather("take", &exchange).update(&x).with(by).run(take);
    p.reduce_to(Sum, &x, &total);
    p.broadcast(&total, &local);
    let chunks = p.streamed::<Vec<f64>>("chunks", Relation::AllToAll);
    let send = p.stream("flow").send(&chunks).read(&local).repeatable();
    send.run(|_| (), flow);
    p.stream("drink")
        .take(&chunks)
        .update(&y)
        .run(|_| 0u32, drink);
    total
}

fn flow(_: &mut (), streams: &mut Streams<'_, '_>, local: &f64) {
    let chunks = streams.output::<Vec<f64>>();
    streams.send(&chunks, 0, vec![*local]);
}

fn drink(_: &mut u32, streams: &mut Streams<'_, '_>, y: &mut f64) -> Progress {
    let chunks = streams.input::<Vec<f64>>(0);
    match streams.poll(&chunks) {
        Poll::Pending => Progress::Pending,
        Poll::Ready(None) => Progress::Done,
        Poll::Ready(Some((_, chunk))) => {
            *y += chunk[0];
            Progress::More
        }
    }
}

links!("tests.every kind" 3, |p| {
    every_kind(p, 0.0, 0.0);
});

#[test]
fn a_program_that_is_linked_is_what_it_was() {
    let mut p = Program::new("every kind").with_seed(11);
    every_kind(&mut p, 2.0, 5.0);
    let bytes = p.encode().unwrap();
    let mut linked = Program::link(&bytes).unwrap();
    assert_eq!(linked.encode().unwrap(), bytes, "it travels on");
    let plan = Plan::compile(Arc::new(linked.clone()), &Bindings::default());
    assert_eq!(
        plan.err().unwrap().to_string(),
        "nobody has given what dataset `x` begins with: the program comes from another process; give it with give before it runs"
    );
    let to_be_given: Vec<DatasetId> = linked.to_be_given().collect();
    assert_eq!(to_be_given.len(), 1);
    for dataset in to_be_given {
        assert!(p.is_made_here(dataset));
        let p = p.clone();
        linked.give(
            dataset,
            Arc::new(move |index, count| p.initial(dataset, index, count)),
        );
    }
    assert_eq!(linked.spec(), p.spec());
    assert_eq!(linked.spec().hash(), p.spec().hash());
    for (at, dataset) in p.spec().datasets.iter().enumerate() {
        let id = DatasetId(at as u32);
        let bits = |p: &Program| p.initial(id, 0, 1).get::<f64>().unwrap().to_bits();
        assert_eq!(bits(&linked), bits(&p), "{}", dataset.name);
    }
}

fn told(build: impl FnOnce(&mut Program)) -> String {
    let mut p = Program::new("refused");
    build(&mut p);
    let error = p.encode().unwrap_err();
    assert_eq!(p.check_links().unwrap_err(), error);
    error.to_string()
}

#[test]
fn what_cannot_travel_is_told_by_its_stage() {
    let captured = 3.0;
    let text = told(|p| {
        let x = p.value("x", 2, 1.0f64);
        p.compute("adds")
            .update(&x)
            .run(move |x: &mut f64| *x += captured);
    });
    assert_eq!(
        text,
        "stage `adds` runs in its own process only: its function captures values, which cannot be sent; give them to the stage by with, and register \
         the program with links!"
    );
    let text = told(|p| {
        let x = p.value("x", 2, 1.0f64);
        p.compute("doubles").update(&x).run(|x: &mut f64| *x += *x);
    });
    assert_eq!(
        text,
        "stage `doubles` runs in its own process only: its function has no name that other processes know; register the program that uses it with links!"
    );
    let text = told(|p| {
        let x = p.value("x", 2, 1.0f64);
        let y = p.value("y", 1, 1.0f64);
        let add = move |left: &mut f64, right: &f64| *left += right * captured;
        p.reduce_to(add, &x, &y);
    });
    assert!(
        text.starts_with("stage `reduce x` runs in its own"),
        "{text}"
    );
    let wrong = told(|p| {
        let _ = p.dataset::<f64>("x", 0);
    });
    assert_eq!(wrong, "dataset `x` has zero partitions; give it at least 1");
}

/// What a linker sees of bytes in which a text was replaced by one as long.
fn linked_with(old: &str, new: &str) -> LinkError {
    let mut p = Program::new("every kind");
    every_kind(&mut p, 2.0, 5.0);
    let mut bytes = p.encode().unwrap();
    let at = bytes.windows(old.len()).position(|it| it == old.as_bytes());
    let at = at.expect("it is there");
    bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
    Program::link(&bytes).unwrap_err()
}

#[test]
fn what_is_missing_is_named() {
    let error = linked_with("tests.every kind/scale", "tests.every kind/SCALE");
    assert_eq!(
        error.to_string(),
        "this process has no kernel `tests.every kind/SCALE` of version 3; install the same package, or the same version of it, wherever programs run"
    );
    let error = linked_with("tests.every kind/scale\u{3}", "tests.every kind/scale\u{4}");
    assert!(
        error
            .to_string()
            .contains("of version 4, only of version 3;"),
        "{error}"
    );
}

/// A kernel is handed what the bytes say: it must be what it was compiled for.
#[test]
fn a_kernel_is_not_handed_what_it_does_not_take() {
    // A kernel of the same kind and shape over other types, by its name.
    let error = linked_with("tests.every kind/shrink", "tests.other kinds/grows");
    assert_eq!(
        error.to_string(),
        "these bytes are no program: stage `shrink` hands kernel `tests.other kinds/grows` other datasets or pieces than it takes"
    );
}

fn grow(x: &mut u64) {
    *x += 1;
}

links!("tests.other kinds" 3, |p| {
    let x = p.value("x", 1, 1u64);
    p.compute("grows").update(&x).run(grow);
    let blocks = p.value("blocks", 1, Blocks::<u64>::default());
    p.all_reduce_blocks(Sum, &blocks, &x);
});

#[test]
fn bytes_of_other_kinds_are_refused() {
    let mut p = Program::new("every kind");
    every_kind(&mut p, 2.0, 5.0);
    let bytes = p.encode().unwrap();
    let told = |bytes: &[u8]| Program::link(bytes).unwrap_err();
    assert!(told(b"").to_string().contains("shorter than a header"));
    assert!(told(b"nothing at all").to_string().contains("not BRML"));
    let mut newer = bytes.clone();
    newer[4] = 200;
    assert!(matches!(
        told(&newer),
        LinkError::NewerFormat { found: 200, .. }
    ));
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(told(&longer).to_string().contains("1 bytes too many"));
    for end in 0..bytes.len() {
        assert!(Program::link(&bytes[..end]).is_err());
    }
    // The spec alone is no program that links.
    assert!(told(&p.spec().encode()).to_string().contains("not BRML"));
    assert!(matches!(
        Spec::decode(&bytes),
        Err(BuildError::Malformed { .. })
    ));
}
