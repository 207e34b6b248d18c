//! Fuzz targets: one plain function per decoder of bytes that somebody else wrote.
//!
//! A target must not panic, whatever the bytes. What it decodes must survive being encoded and
//! decoded again. `cargo test -p brambling-fuzz` replays the corpus and mutations of it.

use brambling_memory::cgroup;
use brambling_program::tree::TreeNode;
use brambling_program::{
    Blocks, GroupId, Partitioner, Payload, PlacementHint, Program, Spec, Sum, links,
};
use brambling_protocol::frame::{FORMAT, Frame, FrameTail, HEADER_BYTES, Header, Incoming, Kind};
use brambling_protocol::greeting::{Dialer, Listener, Token};
use brambling_protocol::{EntryRange, PartitionMap};
use bytes::Bytes;

/// A target.
pub type Target = fn(&[u8]);

/// Every target, by the name of its corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("frame", frame),
    ("body", body),
    ("greeting", greeting),
    ("map", map),
    ("cgroup", cgroup),
    ("program", program),
    ("linked", linked),
    ("payload", payload),
];

/// A connection's bytes: frame after frame.
pub fn frame(mut bytes: &[u8]) {
    while let Ok((frame, used)) = Frame::decode(bytes) {
        assert!(used >= HEADER_BYTES && used <= bytes.len());
        survives(&frame);
        bytes = &bytes[used..];
    }
}

/// The body of one frame, its kind in the first byte: with the right checksums, so that only the body's
/// own rules are left to refuse it.
pub fn body(bytes: &[u8]) {
    let Some((&kind, body)) = bytes.split_first() else {
        return;
    };
    let kind = Kind::ALL[kind as usize % Kind::ALL.len()];
    let mut sealed = vec![0; HEADER_BYTES];
    sealed[..4].copy_from_slice(b"BRMB");
    sealed[4..6].copy_from_slice(&FORMAT.to_le_bytes());
    sealed[6] = kind as u8;
    sealed[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
    sealed[16..20].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    let checksum = crc32fast::hash(&sealed[..28]);
    sealed[28..].copy_from_slice(&checksum.to_le_bytes());
    let header = Header::decode(&sealed).expect("a sealed header");
    if let Ok(frame) = Frame::decode_body(&header, body) {
        survives(&frame);
    }
    sealed.extend_from_slice(body);
    lies_apart(&sealed);
}

/// With its last payload elsewhere a frame is the same; what its beginning says of that is said by less of it, or not at all.
fn lies_apart(frame: &[u8]) {
    let Some(ending) = FrameTail::of(frame) else {
        return;
    };
    assert_eq!(ending.at + ending.bytes, frame.len());
    assert_eq!(FrameTail::of(&frame[..ending.at]), Some(ending));
    let last = Bytes::copy_from_slice(&frame[ending.at..]);
    let apart = Frame::come(Incoming::in_two(&frame[..ending.at], &last));
    assert_eq!(apart, Frame::come(Incoming::from(frame)));
}

fn survives(frame: &Frame<'_>) {
    let mut again = Vec::new();
    frame.encode(&mut again);
    let (decoded, used) = Frame::decode(&again).expect("what was decoded can be encoded");
    assert_eq!((&decoded, used), (frame, again.len()));
}

/// What a stranger says to a listener, and a listener to a dialer, one after the other: nobody is let in who does not
/// say, to the bit, what somebody says who knows the token.
pub fn greeting(bytes: &[u8]) {
    let token = Token::new([7; 32]);
    let Some((opening, rest)) = bytes.split_first_chunk() else {
        return;
    };
    if let Ok((listener, challenge)) = Listener::on_opening(token.clone(), opening, [8; 32]) {
        let mut nonce = [0; 32];
        nonce.copy_from_slice(&opening[16..]);
        let (knows, _) = Dialer::new(token.clone(), nonce);
        let right = knows.on_challenge(&challenge);
        let right = right.expect("an honest listener is believed");
        if let Some(answer) = rest.first_chunk() {
            let (verdict, is_in) = listener.on_answer(answer);
            assert_eq!(is_in.is_ok(), *answer == right);
            assert_eq!(knows.on_verdict(&verdict), is_in);
        }
    }
    let (dialer, opening) = Dialer::new(token.clone(), [9; 32]);
    if let Some(challenge) = rest.first_chunk::<80>()
        && dialer.on_challenge(challenge).is_ok()
    {
        let mut nonce = [0; 32];
        nonce.copy_from_slice(&challenge[16..48]);
        let honest = Listener::on_opening(token, &opening, nonce);
        let (_, right) = honest.expect("an opening of this version");
        assert_eq!(
            (&challenge[..11], &challenge[48..]),
            (&right[..11], &right[48..])
        );
    }
}

/// Updates of a partition map: they are taken or refused, and order never shows.
pub fn map(bytes: &[u8]) {
    let Ok(updates) = postcard::from_bytes::<Vec<EntryRange>>(bytes) else {
        return;
    };
    let mut map = PartitionMap::new([1, 0, 300, 70_000]);
    let mut taken: Vec<EntryRange> = Vec::new();
    for update in updates.into_iter().take(64) {
        let before = map.clone();
        match map.apply(&update) {
            Ok(_) => taken.push(update),
            Err(_) => assert_eq!(map, before),
        }
    }
    let mut backwards = PartitionMap::new([1, 0, 300, 70_000]);
    // Where nothing was refused in this order either, the maps are the same.
    if taken
        .iter()
        .rev()
        .all(|update| backwards.apply(update).is_ok())
    {
        assert_eq!(backwards, map);
    }
    let mut told = PartitionMap::new([1, 0, 300, 70_000]);
    for entry in map.entries() {
        assert!(told.apply(&entry).is_ok());
    }
    assert_eq!(told, map);
    assert!(
        map.runs(GroupId(2), 0..300)
            .is_ok_and(|mut runs| runs.next().is_some())
    );
}

/// Texts of the control groups' files.
pub fn cgroup(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = cgroup::parse_proc_cgroup(&text);
    let _ = cgroup::parse_meminfo(&text);
    let _ = cgroup::parse_memory_max(&text);
    let _ = cgroup::parse_limit_in_bytes(&text);
    let quota = cgroup::parse_cpu_max(&text);
    assert!(quota.is_none_or(|cpus| cpus > 0.0 && cpus.is_finite()));
}

/// A program that another worker or an earlier build wrote.
pub fn program(bytes: &[u8]) {
    let Ok(spec) = Spec::decode(bytes) else {
        return;
    };
    let again = spec.encode();
    let decoded = Spec::decode(&again).expect("what was decoded can be encoded");
    assert_eq!(decoded.encode(), again);
}

/// A program that a client wrote, to be linked here.
pub fn linked(bytes: &[u8]) {
    let Ok(program) = Program::link(bytes) else {
        return;
    };
    let again = program.encode().expect("what was linked can be encoded");
    let linked = Program::link(&again).expect("what was linked links again");
    assert_eq!(linked.encode().expect("as before"), again);
    assert_eq!(linked.spec(), program.spec());
}

fn scale(by: &f64, x: &f64, y: &mut f64) {
    *y = by * x;
}

fn is_small(limit: &f64, total: &f64) -> bool {
    total < limit
}

/// A program with whatever a linked one may have.
pub fn sample(p: &mut Program) {
    let first = |by: &f64, index: u32, _: u32| by * f64::from(index);
    let x = p.scan("x", 4, Partitioner::Opaque, 0.5, first);
    let y = p.load("y", 4, Partitioner::Opaque, |_, _| 1.0);
    let total = p.value("total", 1, 1.5);
    let blocks = p.value("blocks", 1, Blocks::<Vec<f64>>::default());
    let sums = p.value("sums", 1, vec![1.0]);
    p.hint_placement(&x, PlacementHint::Columns(2));
    let small = p.signal("small").read(&total).with(3.0).run(is_small);
    p.branch(
        small,
        |p| p.compute("scale").read(&x).write(&y).with(2.0).run(scale),
        |_| {},
    );
    p.reduce_to(Sum, &y, &total);
    p.broadcast(&total, &x);
    p.reduce_blocks(Sum, &blocks, &sums, |sums: &mut Vec<f64>, of: &Vec<f64>| {
        sums.clone_from(of)
    });
}
links!("fuzz.sample" 1, sample);

/// Values of partitions and pieces: the first byte says of which type.
pub fn payload(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind % 9 {
        0 => value::<u64>(bytes),
        1 => value::<f64>(bytes),
        2 => value::<bool>(bytes),
        3 => value::<String>(bytes),
        4 => value::<Vec<f64>>(bytes),
        5 => value::<Vec<Vec<String>>>(bytes),
        6 => value::<Option<(u32, Vec<u8>)>>(bytes),
        7 => value::<Vec<(String, [i16; 3])>>(bytes),
        _ => value::<TreeNode>(bytes),
    }
}

fn value<T: Payload>(bytes: &[u8]) {
    let mut rest = bytes;
    let Ok(value) = T::decode(&mut rest) else {
        return;
    };
    assert!(bytes.ends_with(rest));
    let (mut once, mut twice) = (Vec::new(), Vec::new());
    value.encode(&mut once);
    // Compared as bytes, because a NaN does not equal itself.
    let again = T::decode(&mut &once[..]).expect("what was decoded can be encoded");
    again.encode(&mut twice);
    assert_eq!(once, twice);
}
