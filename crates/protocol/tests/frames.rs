//! What is sent is read again; what was damaged on the way, or was never a frame, is refused.

mod samples;

use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, GroupId, ShardId};
use brambling_protocol::frame::*;
use brambling_protocol::{Generation, JobId, Priority};
use bytes::Bytes;
use proptest::prelude::*;

fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

/// Puts a body behind a header with right checksums: only the body's own rules are left to refuse it.
fn sealed(kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut ack = encoded(&samples::frames().pop().unwrap().1);
    ack.truncate(HEADER_BYTES);
    ack[6] = kind as u8;
    ack[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
    ack[16..20].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    reseal(&mut ack);
    ack.extend_from_slice(body);
    ack
}

fn reseal(bytes: &mut [u8]) {
    let checksum = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&checksum.to_le_bytes());
}

fn body_of(name: &str) -> (Kind, Vec<u8>) {
    let (_, frame) = samples::frames()
        .into_iter()
        .find(|(other, _)| *other == name)
        .unwrap();
    (frame.body.kind(), encoded(&frame)[HEADER_BYTES..].to_vec())
}

#[test]
fn frames_follow_each_other_in_a_stream() {
    let frames = samples::frames();
    let stream: Vec<u8> = frames
        .iter()
        .flat_map(|(_, frame)| encoded(frame))
        .collect();
    let mut rest = &stream[..];
    for (name, frame) in &frames {
        let (read, used) = Frame::decode(rest).unwrap();
        assert_eq!(&read, frame, "{name}");
        rest = &rest[used..];
    }
    assert!(rest.is_empty());
}

/// A frame of pieces whose payloads are these.
fn pieces(payloads: &[Bytes]) -> Frame<'_> {
    let piece = |(place, payload): (usize, &'_ Bytes)| Piece {
        first: 0,
        end: 1,
        source: TreeNode::leaf(place as u64),
        chunk: 0,
        last: true,
        // As long as the test.
        payload: Box::leak(payload.to_vec().into_boxed_slice()),
    };
    let data = Data {
        head: DataHead {
            job: JobId(1),
            generation: Generation(0),
            exchange: ExchangeId(2),
            turn: 3,
            group: GroupId(4),
        },
        versions: vec![VersionRange {
            first: 0,
            end: 1,
            version: 1,
        }],
        pieces: payloads.iter().enumerate().map(piece).collect(),
        empties: Vec::new(),
        routes: Vec::new(),
    };
    Frame {
        priority: Priority::FIRST,
        sequence: Some(5),
        body: Body::Data(data),
    }
}

/// However its payloads lie, a frame has the same bytes; the large ones at its end are not copied.
#[test]
fn a_packet_is_its_frame() {
    let payload = |bytes: usize| Bytes::from((0..bytes).map(|at| at as u8).collect::<Vec<_>>());
    for (sizes, shared) in [
        (&[][..], 0),
        (&[10], 0),
        (&[SHARED_BYTES - 1], 0),
        (&[SHARED_BYTES], 1),
        (&[0, 7, 5_000, 70_000], 2),
        (&[5_000, 7, 70_000], 1),
        (&[5_000, 7], 0),
    ] {
        let payloads: Vec<Bytes> = sizes.iter().map(|bytes| payload(*bytes)).collect();
        let frame = pieces(&payloads);
        let packet = frame.to_packet(&payloads);
        assert!(packet.to_bytes() == encoded(&frame), "{sizes:?}");
        assert_eq!(packet.bytes(), packet.to_bytes().len());
        let apart: Vec<_> = packet.parts().skip(1).map(|part| part.as_ptr()).collect();
        let last = &payloads[payloads.len() - shared..];
        assert_eq!(
            apart,
            last.iter().map(|part| part.as_ptr()).collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_part_of_a_shard_is_not_copied() {
    for bytes in [0, 1, 127, 128, SHARED_BYTES - 1, SHARED_BYTES, 100_000] {
        let bytes = Bytes::from(vec![5; bytes]);
        let part = ShardPart {
            job: JobId(3),
            generation: Generation(1),
            shard: ShardId {
                group: GroupId(2),
                index: 300,
            },
            version: 4,
            part: 1,
            parts: 2,
            bytes: &bytes,
        };
        let frame = Frame {
            priority: Priority::LAST,
            sequence: Some(7),
            body: Body::ShardPart(part),
        };
        let packet = frame.to_packet(std::slice::from_ref(&bytes));
        assert!(packet.to_bytes() == encoded(&frame), "{}", bytes.len());
        let is_shared = packet.parts().any(|it| it.as_ptr() == bytes.as_ptr());
        assert_eq!(is_shared, bytes.len() >= SHARED_BYTES);
    }
}

/// A frame of some pieces, of which the last one is large, and where that begins.
fn ends_large(before: &[usize], chunk: u32) -> (Vec<u8>, usize) {
    let payload = |bytes: usize| Bytes::from((0..bytes).map(|at| at as u8).collect::<Vec<_>>());
    let sizes = before.iter().copied().chain([50_000]);
    let payloads: Vec<Bytes> = sizes.map(payload).collect();
    let mut frame = pieces(&payloads);
    let Body::Data(data) = &mut frame.body else {
        unreachable!("made of pieces")
    };
    data.pieces.last_mut().unwrap().chunk = chunk;
    let bytes = encoded(&frame);
    let at = bytes.len() - 50_000;
    (bytes, at)
}

/// As soon as a frame's tables and its small payloads have come, and not before, it is known where its last payload is to lie.
#[test]
fn the_beginning_of_a_frame_says_how_it_ends() {
    for before in [&[][..], &[8], &[0, 3, 70]] {
        let (frame, at) = ends_large(before, 4);
        let ending = FrameTail::of(&frame[..at]).unwrap();
        assert_eq!((ending.at, ending.bytes, ending.chunk), (at, 50_000, 4));
        assert_eq!(ending.source, TreeNode::leaf(before.len() as u64));
        assert_eq!((ending.first, ending.end, ending.last), (0, 1, true));
        assert_eq!((ending.head.turn, ending.before), (3, None));
        for cut in 0..at {
            assert_eq!(FrameTail::of(&frame[..cut]), None, "{cut} of {at}");
        }
        for more in [at + 1, at + 1_000, frame.len()] {
            assert_eq!(FrameTail::of(&frame[..more]), Some(ending), "{more}");
        }
    }
    // Its first chunk, which says how long a piece is, may be in the same frame.
    let (mut frame, at) = ends_large(&[8], 1);
    let source = at - 8 - 2 * 28;
    assert_eq!(
        FrameTail::of(&frame[..at]).unwrap().before,
        None,
        "another source's"
    );
    frame[source..source + 8].copy_from_slice(&1u64.to_le_bytes());
    let head: Vec<u8> = (0..8).collect();
    assert_eq!(FrameTail::of(&frame[..at]).unwrap().before, Some(&head[..]));
    // What lies before it is no first chunk, though it is of the same piece.
    frame[source + 16..source + 20].copy_from_slice(&5u32.to_le_bytes());
    assert_eq!(FrameTail::of(&frame[..at]).unwrap().before, None, "chunk 5");
    let (other, at) = ends_large(&[], 1);
    assert_eq!(FrameTail::of(&other[..at]).unwrap().before, None);
    let (kind, body) = body_of("signal");
    assert_eq!(FrameTail::of(&sealed(kind, &body)), None);
}

/// Nothing of a beginning was checked yet: one whose tables do not add up says nothing of its end, rather than something wrong.
#[test]
fn a_beginning_that_does_not_add_up_says_nothing() {
    let (good, at) = ends_large(&[8], 4);
    assert!(FrameTail::of(&good[..at]).is_some());
    // The last payload is said to be shorter, or longer, than what the header leaves for it.
    let payload_bytes = at - 8 - 8;
    for bytes in [49_999u32, 50_001, 0, u32::MAX] {
        let mut frame = good.clone();
        frame[payload_bytes..payload_bytes + 4].copy_from_slice(&bytes.to_le_bytes());
        assert_eq!(FrameTail::of(&frame[..at]), None, "{bytes}");
    }
    // There is no piece at all.
    let none = encoded(&pieces(&[]));
    assert_eq!(FrameTail::of(&none), None);
}

/// A last payload that lies apart is the same as one that does not, and is checked like it.
#[test]
fn a_last_payload_may_lie_apart() {
    for before in [&[][..], &[8], &[0, 3, 70]] {
        let (frame, at) = ends_large(before, 4);
        let last = Bytes::copy_from_slice(&frame[at..]);
        let incoming = Incoming::in_two(&frame[..at], &last);
        assert_eq!((incoming.len(), incoming.is_empty()), (frame.len(), false));
        let came = Frame::come(incoming).unwrap();
        assert_eq!(came, Frame::decode(&frame).unwrap().0);
        let Body::Data(data) = came.body else {
            panic!("pieces were sent")
        };
        let kept = incoming.keep(data.pieces.last().unwrap().payload);
        assert_eq!(kept.as_ptr(), last.as_ptr());
        // Damaged, cut elsewhere, or too short.
        let mut flipped = last.to_vec();
        flipped[49_999] ^= 1;
        let flipped = Bytes::from(flipped);
        assert_eq!(
            Frame::come(Incoming::in_two(&frame[..at], &flipped)),
            Err(FrameError::Damaged { part: "body" })
        );
        for cut in [at + 1, at - 1, at + 49_999] {
            let last = Bytes::copy_from_slice(&frame[cut..]);
            let came = Frame::come(Incoming::in_two(&frame[..cut], &last));
            assert!(
                matches!(came, Err(FrameError::Malformed { .. })),
                "{came:?}"
            );
        }
        let short = last.slice(1..);
        assert!(Frame::come(Incoming::in_two(&frame[..at], &short)).is_err());
    }
    // Something lies apart, and the frame has no piece whose payload it could be.
    let mut body = encoded(&pieces(&[]))[HEADER_BYTES..].to_vec();
    let last = Bytes::from(vec![7; 5_000]);
    body.extend_from_slice(&last);
    let frame = sealed(Kind::Data, &body);
    let begun = &frame[..frame.len() - last.len()];
    let came = Frame::come(Incoming::in_two(begun, &last));
    assert!(
        matches!(came, Err(FrameError::Malformed { .. })),
        "{came:?}"
    );
    // What comes before is no header.
    let came = Frame::come(Incoming::in_two(&frame[1..HEADER_BYTES + 1], &last));
    assert_eq!(came, Err(FrameError::NotAFrame));
    let (kind, body) = body_of("failed");
    let frame = sealed(kind, &body);
    let (begun, last) = frame.split_at(HEADER_BYTES + 1);
    let last = Bytes::copy_from_slice(last);
    let came = Frame::come(Incoming::in_two(begun, &last));
    assert!(
        matches!(came, Err(FrameError::Malformed { .. })),
        "{came:?}"
    );
}

/// What is kept of a frame that came is shared where it is large and the frame's buffer can be kept, and copied else.
#[test]
fn parts_are_kept() {
    let buffer = Bytes::from(vec![1; 3 * SHARED_BYTES]);
    let (large, small) = (&buffer[7..7 + SHARED_BYTES], &buffer[9..SHARED_BYTES]);
    let incoming = Incoming::from(&buffer);
    assert_eq!(incoming.keep(large).as_ptr(), large.as_ptr());
    assert_ne!(incoming.keep(small).as_ptr(), small.as_ptr());
    let lent = Incoming::from(&buffer[..]);
    assert_ne!(lent.keep(large).as_ptr(), large.as_ptr());
    assert_eq!(lent.keep(large), large);
}

#[test]
fn every_flipped_bit_is_noticed() {
    for (name, frame) in samples::frames() {
        let bytes = encoded(&frame);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::decode(&damaged).is_err(), "{name}, bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(
                Frame::decode(&bytes[..len]).unwrap_err(),
                FrameError::Truncated,
                "{name}"
            );
        }
    }
}

#[test]
fn damage_is_noticed() {
    every_flipped_bit_is_noticed();
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_caught() {
    brambling_memory::mutants::assert_caught("frame-skips-checksum", every_flipped_bit_is_noticed);
}

#[test]
fn another_format_is_refused_by_its_number_whatever_else_it_says() {
    for found in [0, FORMAT - 1, FORMAT + 1, 9] {
        let mut bytes = encoded(&samples::frames()[1].1);
        bytes[4..6].copy_from_slice(&found.to_le_bytes());
        bytes[28..].fill(0xff);
        let error = Frame::decode(&bytes).unwrap_err();
        let known = FORMAT;
        assert_eq!(error, FrameError::Format { found, known });
        let text = error.to_string();
        assert!(text.contains(&format!("format {found},")), "{text}");
    }
}

#[test]
fn another_protocol_is_told_apart() {
    let http = b"GET / HTTP/1.1\r\nHost: brambling\r\n\r\n";
    assert_eq!(Frame::decode(http).unwrap_err(), FrameError::NotAFrame);
}

#[test]
fn undefined_fields_are_refused() {
    let frames = samples::frames();
    let mut plain = frames.iter().filter(|(_, frame)| frame.sequence.is_none());
    let (_, plain) = plain.next().expect("an acknowledgement");
    let last = Kind::ALL.map(|kind| kind as u8).into_iter().max().unwrap();
    for (at, value, expected) in [
        (6, 0, "kind"),
        // A kind that was.
        (6, 1, "kind"),
        (6, last + 1, "kind"),
        (7, 8, "priority"),
        (8, 1, "compression"),
        (9, 2, "flags"),
        (10, 1, "reserved field"),
    ] {
        let mut bytes = encoded(plain);
        bytes[at] = value;
        reseal(&mut bytes);
        let error = Frame::decode(&bytes).unwrap_err();
        assert!(
            matches!(error, FrameError::Undefined { field, .. } if field == expected),
            "{error}"
        );
    }
    let mut numbered = encoded(plain);
    numbered[20] = 1;
    reseal(&mut numbered);
    assert!(matches!(
        Frame::decode(&numbered),
        Err(FrameError::Malformed { .. })
    ));
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_the_body_is_there() {
    let mut bytes = encoded(&samples::frames()[0].1);
    bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    reseal(&mut bytes);
    let refused = Header::decode(&bytes[..HEADER_BYTES]).unwrap_err();
    let max_bytes = BODY_BYTES_MAX as u64;
    assert_eq!(
        refused,
        FrameError::TooLarge {
            bytes: u32::MAX.into(),
            max_bytes
        }
    );
}

#[test]
fn data_that_breaks_a_rule_is_refused() {
    let (kind, good) = body_of("data");
    assert!(Frame::decode(&sealed(kind, &good)).is_ok());
    // Offsets: head 48 bytes, then 3 versions of 16, 2 pieces of 28, 1 empty mark of 24.
    let (versions, pieces, empties) = (48, 96, 152);
    for (why, at, value) in [
        ("more versions than bytes", 32, u32::MAX),
        ("more pieces than bytes", 36, u32::MAX / 28),
        ("fewer pieces than bytes", 36, 1),
        ("more empty marks than bytes", 40, 2),
        ("more routes than bytes", 44, 1),
        ("an empty version range", versions + 4, 4),
        ("versions that overlap", versions + 16, 7),
        ("a piece outside the versions", pieces + 12, 11),
        ("a piece across a gap", pieces + 12, 21),
        ("a piece that begins in a gap", pieces + 28 + 8, 15),
        ("a piece for nobody", pieces + 8, 10),
        ("a payload longer than the rest", pieces + 20, 12),
        ("a payload shorter than the rest", pieces + 20, 10),
        ("a node too high", pieces + 24, 64),
        ("a flag that is no flag", pieces + 24, 0x0203),
        ("a piece's reserved field", pieces + 24, 0x0001_0103),
        ("empty marks without sources", empties + 8, 48),
        ("empty marks for nobody", empties + 20, 5),
    ] {
        let mut body = good.clone();
        body[at..at + 4].copy_from_slice(&value.to_le_bytes());
        refused(kind, why, &body);
    }
    let (kind, good) = body_of("data-handed-on");
    let routes = empties + 24;
    for (why, at, value) in [
        ("fewer routes than bytes", 44, 2u32),
        ("a route for nobody", routes + 4, 6),
        ("a route into a gap", routes + 12 + 4, 11),
        ("routes that overlap", routes + 12, 7),
        ("routes that go back", routes + 24, 4),
        (
            "a route to the controller",
            routes + 8,
            brambling_protocol::WorkerId::CONTROLLER.0,
        ),
    ] {
        let mut body = good.clone();
        body[at..at + 4].copy_from_slice(&value.to_le_bytes());
        refused(kind, why, &body);
    }
}

fn refused(kind: Kind, why: &str, body: &[u8]) {
    let outcome = Frame::decode(&sealed(kind, body)).map(|(frame, _)| frame.body.kind());
    assert!(
        matches!(outcome, Err(FrameError::Malformed { .. })),
        "{why}: {outcome:?}"
    );
}

/// All workers there could be are ten bytes.
#[test]
fn news_for_too_many_hearers_are_refused() {
    let (kind, body) = body_of("relay-map");
    assert_eq!(body[..4], [1, 1, 0xe8, 7], "workers 1 to 999");
    let all = [&[1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f], &body[4..]].concat();
    let twice = [&[2, 1, 0xe8, 7, 1, 0xe8, 7], &body[4..]].concat();
    for body in [all, twice] {
        let outcome = Frame::decode(&sealed(kind, &body)).map(|(frame, _)| frame.body.kind());
        assert!(
            matches!(outcome, Err(FrameError::Malformed { .. })),
            "{outcome:?}"
        );
    }
}

#[test]
fn bytes_after_a_body_are_refused() {
    for (name, _) in samples::frames() {
        let (kind, mut body) = body_of(name);
        body.push(0);
        assert!(Frame::decode(&sealed(kind, &body)).is_err(), "{name}");
    }
}

type DrawnVersion = (u32, u32, u64);
type DrawnPiece = (usize, u8, u64, u32, bool, Vec<u8>);

fn any_data() -> impl Strategy<Value = (Vec<DrawnVersion>, Vec<DrawnPiece>)> {
    let versions = prop::collection::vec((0..3u32, 1..5u32, any::<u64>()), 1..5);
    let payload = prop::collection::vec(any::<u8>(), 0..40);
    let piece = (
        any::<usize>(),
        0..20u8,
        0..1000u64,
        any::<u32>(),
        any::<bool>(),
        payload,
    );
    (versions, prop::collection::vec(piece, 0..6))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn data_is_read_as_it_was_sent((steps, drawn) in any_data(), sequence: Option<u64>) {
        let mut versions = Vec::new();
        let mut at = 0;
        for (gap, len, version) in steps {
            versions.push(VersionRange { first: at + gap, end: at + gap + len, version });
            at += gap + len;
        }
        let mut empties = Vec::new();
        let mut pieces = Vec::new();
        for (which, level, index, chunk, last, payload) in &drawn {
            let VersionRange { first, end, .. } = versions[which % versions.len()];
            let source = TreeNode { level: *level, index: *index };
            pieces.push(Piece { first, end, source, chunk: *chunk, last: *last, payload });
            empties.push(EmptyMarks { first, end, sources: *index..*index + 1 });
        }
        let (job, generation) = (JobId(1), Generation(2));
        let (exchange, group) = (ExchangeId(3), GroupId(4));
        let head = DataHead { job, generation, exchange, turn: 5, group };
        let route = |(place, range): (usize, &VersionRange)| Route { first: range.first, end: range.end, to: brambling_protocol::WorkerId(place as u32 % 3) };
        let routes = versions.iter().enumerate().filter(|(place, _)| place % 2 == drawn.len() % 2).map(route).collect();
        let body = Body::Data(Data { head, versions, pieces, empties, routes });
        let frame = Frame { priority: Priority::LAST, sequence, body };
        let bytes = encoded(&frame);
        prop_assert_eq!(Frame::decode(&bytes).unwrap(), (frame, bytes.len()));
    }

    #[test]
    fn no_body_makes_the_decoder_panic(kind in 0..8usize, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Frame::decode(&sealed(Kind::ALL[kind], &body));
        let _ = Frame::decode(&body);
    }
}
