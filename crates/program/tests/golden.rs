//! The program's encoding, held by a file that every later version must read.
//!
//! `program-1.brmp` is format version 1, in which programs without streams are written, and `program-2.brmp` is version 2. A new version gets a file
//! of its own, beside these.

use brambling_program::{
    BuildError, Inbox, Outbox, Partitioner, PlacementHint, Program, ProgramNode, Relation,
    RelationTable, Spec, StageKind, Streams, Sum, Use, links,
};

const GOLDEN: &[u8] = include_bytes!("golden/program-1.brmp");
const STREAMED: &[u8] = include_bytes!("golden/program-2.brmp");

/// A program with every kind of instruction, relation, count and use. Kernels are named, so that neither the
/// compiler nor this file's lines enter the bytes.
fn every_instruction() -> Program {
    let mut p = Program::new("every instruction").with_seed(7);
    let count = p.symbol("shards");
    let numbers = p.load("numbers", count, Partitioner::Blocks, |index, _| {
        u64::from(index)
    });
    let scaled = p.like::<u64, u64>("scaled", &numbers);
    let total = p.dataset::<u64>("total", 1);
    p.repeat(3, |p| {
        p.compute("scale")
            .read(&numbers)
            .write(&scaled)
            .named("golden::scale", vec![1, 2, 3])
            .run(|from: &u64, to: &mut u64| *to = from * 2);
        send(p, "gathered", Relation::AllToOne, &scaled, &total);
        let done = p
            .signal("done")
            .read(&total)
            .named("golden::done", vec![])
            .run(|total: &u64| *total > 9);
        p.branch(
            done,
            |p| send(p, "spread", Relation::OneToAll, &total, &scaled),
            |p| {
                send(
                    p,
                    "shifted",
                    Relation::Offsets {
                        offsets: vec![-1, 1],
                        wrap: true,
                    },
                    &scaled,
                    &scaled,
                )
            },
        );
    });
    p.repeat_while(
        "small",
        &total,
        |total: &u64| *total < 100,
        |p| {
            p.compute("double")
                .update(&total)
                .named("golden::double", vec![])
                .run(|total: &mut u64| *total *= 2);
        },
    );
    let table = RelationTable {
        sources: vec![vec![0], vec![0, 1]],
    };
    let pair = p.value("pair", 2, 1u64);
    send(
        &mut p,
        "table",
        Relation::Tables {
            prologue: vec![table.clone()],
            period: vec![table],
        },
        &pair,
        &pair,
    );
    send(&mut p, "all", Relation::AllToAll, &pair, &pair);
    p
}

fn send(
    p: &mut Program,
    name: &str,
    relation: Relation,
    from: &brambling_program::Dataset<u64>,
    to: &brambling_program::Dataset<u64>,
) {
    let exchange = p.exchange::<u64>(name, relation);
    p.scatter(format!("send {name}"), &exchange)
        .read(from)
        .named("golden::send", vec![])
        .run(|from: &u64, out: &mut Outbox<'_, u64>| out.for_each(|_, piece| *piece = *from));
    p.gather(format!("take {name}"), &exchange)
        .update(to)
        .named("golden::take", vec![])
        .run(|inbox: &mut Inbox<'_, u64>, to: &mut u64| inbox.for_each(|(_, piece)| *to += *piece));
}

#[test]
fn todays_bytes_are_the_golden_ones() {
    let bytes = every_instruction().spec().encode();
    if std::env::var_os("BRAMBLING_WRITE_GOLDEN").is_some() {
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/program-1.brmp"),
            &bytes,
        )
        .unwrap();
    }
    assert_eq!(
        bytes, GOLDEN,
        "the encoding changed: raise the format version and keep reading this file"
    );
}

#[test]
fn the_golden_file_is_read() {
    let spec = Spec::decode(GOLDEN).unwrap();
    assert_eq!(&spec, every_instruction().spec());
    assert_eq!(spec.hash(), every_instruction().spec().hash());
    assert_eq!(
        spec.stages
            .iter()
            .filter(|stage| stage.kind == StageKind::Signal)
            .count(),
        2
    );
    assert!(
        spec.stages
            .iter()
            .any(|stage| stage.uses.iter().any(|(_, how)| *how == Use::Update))
    );
    assert!(
        spec.blocks
            .iter()
            .flatten()
            .any(|node| matches!(node, ProgramNode::Branch { .. }))
    );
}

#[test]
fn a_newer_format_is_refused_with_both_versions() {
    let mut newer = GOLDEN.to_vec();
    newer[4] = 9;
    let error = Spec::decode(&newer).unwrap_err();
    assert_eq!(error, BuildError::NewerFormat { found: 9, known: 2 });
}

#[test]
fn no_cut_of_the_file_is_a_program() {
    for cut in 0..GOLDEN.len() {
        assert!(Spec::decode(&GOLDEN[..cut]).is_err(), "cut at {cut}");
    }
    let longer = [GOLDEN, &[0]].concat();
    assert!(Spec::decode(&longer).is_err());
}

/// A program that streams: what version 2 adds.
fn streams() -> Program {
    let mut p = Program::new("streams").with_seed(3);
    let (from, to) = (p.value("from", 3, 1u64), p.dataset::<u64>("to", 2));
    let chunks = p.streamed::<u64>("chunks", Relation::AllToAll);
    let send = p.stream("send").send(&chunks).read(&from).repeatable();
    send.named("golden::send", vec![4])
        .run(|_| (), |(): &mut (), _: &mut Streams<'_, '_>, _: &u64| {});
    let take = p.stream("take").take(&chunks).write(&to);
    take.named("golden::take", vec![]).run(
        |_| (),
        |(): &mut (), _: &mut Streams<'_, '_>, _: &mut u64| {},
    );
    p
}

#[test]
fn what_streams_is_written_in_version_2() {
    let bytes = streams().spec().encode();
    if std::env::var_os("BRAMBLING_WRITE_GOLDEN").is_some() {
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/program-2.brmp"),
            &bytes,
        )
        .unwrap();
    }
    assert_eq!(bytes, STREAMED);
    let spec = Spec::decode(STREAMED).unwrap();
    assert_eq!(&spec, streams().spec());
    assert!(spec.streams[0].repeatable && spec.exchanges[0].streamed);
    for cut in 0..STREAMED.len() {
        assert!(Spec::decode(&STREAMED[..cut]).is_err(), "cut at {cut}");
    }
}

/// Each mistake with streams is told with the stage, the exchange and the way out.
#[test]
fn streams_that_do_not_fit_are_refused() {
    let told = |build: fn(&mut Program)| {
        let mut p = Program::new("mistaken");
        build(&mut p);
        p.validate().unwrap_err().to_string()
    };
    fn idle(_: &mut (), _: &mut Streams<'_, '_>, _: &u64) {}
    let scatters = told(|p| {
        let from = p.dataset::<u64>("from", 2);
        let chunks = p.streamed::<u64>("chunks", Relation::AllToAll);
        send(p, "whole", Relation::AllToAll, &from, &from);
        p.scatter("push", &chunks)
            .read(&from)
            .run(|_: &u64, _: &mut Outbox<'_, u64>| {});
    });
    assert!(
        scatters.contains("`push`")
            && scatters.contains("`chunks`")
            && scatters.contains("declare the stage with stream"),
        "{scatters}"
    );
    let whole = told(|p| {
        let from = p.dataset::<u64>("from", 2);
        let pieces = p.exchange::<u64>("pieces", Relation::AllToAll);
        p.stream("flow").send(&pieces).read(&from).run(|_| (), idle);
    });
    assert!(
        whole.contains("`flow`")
            && whole.contains("`pieces`")
            && whole.contains("make it with streamed"),
        "{whole}"
    );
    let twice = told(|p| {
        let from = p.dataset::<u64>("from", 2);
        let (a, b) = (
            p.streamed::<u64>("a", Relation::AllToAll),
            p.streamed::<u64>("b", Relation::AllToAll),
        );
        p.stream("both")
            .send(&a)
            .send(&b)
            .read(&from)
            .run(|_| (), idle);
    });
    assert!(
        twice.contains("`both`") && twice.contains("`b`") && twice.contains("a stage of its own"),
        "{twice}"
    );
    let anew = told(|p| {
        let from = p.dataset::<u64>("from", 2);
        let a = p.streamed::<u64>("a", Relation::AllToAll);
        p.stream("send").send(&a).read(&from).run(|_| (), idle);
        p.stream("take")
            .take(&a)
            .read(&from)
            .repeatable()
            .run(|_| (), idle);
    });
    assert!(
        anew.contains("`take`") && anew.contains("`a`") && anew.contains("leave out repeatable"),
        "{anew}"
    );
    let alone = told(|p| {
        let from = p.dataset::<u64>("from", 2);
        let a = p.streamed::<u64>("a", Relation::AllToAll);
        p.stream("take").take(&a).read(&from).run(|_| (), idle);
    });
    assert!(alone.contains("it has a gather but no scatter"), "{alone}");
    let merged = told(|p| {
        let a = p.streamed::<u64>("a", Relation::AllToOne);
        p.combine(&a, |_: &mut u64, _| {});
    });
    assert!(
        merged.contains("`a`") && merged.contains("leave out combine"),
        "{merged}"
    );
}

fn double(by: &u64, x: &mut u64) {
    *x *= by;
}

fn from_index(first: &u64, index: u32, _: u32) -> u64 {
    first + u64::from(index)
}

/// A program that links, with each kind of source and of function.
fn linked(p: &mut Program) {
    let x = p.scan("x", 3, Partitioner::Opaque, 5, from_index);
    let y = p.load("y", 3, Partitioner::Opaque, |_, _| 1u64);
    let total = p.value("total", 1, 7u64);
    p.hint_placement(&x, PlacementHint::Columns(3));
    let stage = p
        .compute("double")
        .update(&x)
        .named("golden::double", vec![]);
    stage.with(3).run(double);
    send(p, "shifted", Relation::AllToAll, &x, &y);
    p.named("golden::sum", vec![]).reduce_to(Sum, &y, &total);
}
links!("golden" 4, linked);

#[test]
fn what_links_is_written_and_read_as_ever() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/linked-1.brml");
    let mut p = Program::new("linked").with_seed(9);
    linked(&mut p);
    let bytes = p.encode().unwrap();
    if std::env::var_os("BRAMBLING_WRITE_GOLDEN").is_some() {
        std::fs::write(path, &bytes).unwrap();
    }
    let golden = std::fs::read(path).unwrap();
    assert_eq!(
        bytes, golden,
        "the encoding changed: raise the format version and keep reading this file"
    );
    let read = Program::link(&golden).unwrap();
    assert_eq!(read.spec(), p.spec());
    assert_eq!(read.encode().unwrap(), golden);
}

/// People see what streams.
#[test]
fn streams_are_shown() {
    let text = streams().spec().to_string();
    assert!(text.contains("stream send to chunks  repeatable"), "{text}");
    assert!(text.contains("stream take from chunks"), "{text}");
    let picture = streams().spec().picture();
    assert!(picture.contains("s0 ==> s1"), "{picture}");
}
