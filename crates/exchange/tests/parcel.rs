//! Parcels become a frame and parcels again.

use brambling_exchange::*;
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, GroupId};
use brambling_protocol::frame::{Body, DataHead, Frame};
use brambling_protocol::{Generation, JobId, Priority};

const G: GroupId = GroupId(0);
const NOW: Generation = Generation(5);

fn parcel(turn: u64, destinations: std::ops::Range<u32>, version: u64) -> Parcel<Vec<u8>> {
    let item = Item::whole(TreeNode::leaf(turn), vec![1; 10]);
    Parcel::new((ExchangeId(0), turn, G), destinations, version, item)
}

fn a_frame_and_its_parcels_are_the_same() {
    let head = DataHead {
        job: JobId(1),
        generation: NOW,
        exchange: ExchangeId(0),
        turn: 6,
        group: G,
    };
    let empty = |sources| Parcel {
        item: Item::Empty { sources },
        bytes: 0,
        ..parcel(6, 0..3, 2)
    };
    // A broadcast over two versions, empty marks of neighbours, and a destination apart.
    let sent = [
        parcel(6, 0..3, 2),
        parcel(6, 3..4, 5),
        empty(7..8),
        empty(8..10),
        parcel(6, 9..10, 1),
    ];
    let body = Body::Data(coalesce(head, &sent));
    let mut bytes = Vec::new();
    Frame {
        priority: Priority::LAST,
        sequence: Some(1),
        body,
    }
    .encode(&mut bytes);
    let (
        Frame {
            body: Body::Data(data),
            ..
        },
        _,
    ) = Frame::decode(&bytes).unwrap()
    else {
        panic!("data was sent")
    };
    assert_eq!(data.empties.len(), 1, "marks of neighbours are batched");
    let mut received = Vec::new();
    parcels(&data, <[u8]>::to_vec, |parcel| received.push(parcel));
    assert_eq!(received[..2], sent[..2]);
    assert_eq!(received[2], sent[4]);
    assert_eq!(received[3], empty(7..10));
    assert_eq!(received.len(), 4);
}

#[test]
fn frames() {
    a_frame_and_its_parcels_are_the_same();
}

#[test]
fn where_the_map_changed_meanwhile_the_frame_has_the_older_version() {
    let head = DataHead {
        job: JobId(1),
        generation: NOW,
        exchange: ExchangeId(0),
        turn: 6,
        group: G,
    };
    let sent = [parcel(6, 0..4, 5), parcel(6, 1..2, 3)];
    let data = coalesce(head, &sent);
    let ranges: Vec<_> = data
        .versions
        .iter()
        .map(|v| (v.first, v.end, v.version))
        .collect();
    assert_eq!(ranges, [(0, 1, 5), (1, 2, 3), (2, 4, 5)]);
    let mut received = Vec::new();
    parcels(&data, <[u8]>::to_vec, |parcel| {
        received.push((parcel.destinations, parcel.version))
    });
    assert_eq!(received, [(0..1, 5), (1..2, 3), (2..4, 5), (1..2, 3)]);
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_caught() {
    let property = a_frame_and_its_parcels_are_the_same;
    brambling_memory::mutants::assert_caught("coalesce-forgets-empty-marks", property);
}

#[test]
fn a_parcel_occupies_what_its_payload_takes() {
    assert_eq!(parcel(6, 0..3, 2).bytes, 10);
    let empty = Item::<Vec<u8>>::Empty { sources: 0..9 };
    let marks = Parcel::new((ExchangeId(0), 6, G), 0..3, 2, empty);
    assert_eq!(marks.bytes, 0);
}

/// What one source sends to neighbours of several versions lies in the frame once; of others, or apart, it does not count as the same.
#[test]
fn what_neighbours_get_alike_is_one_piece() {
    let head = DataHead {
        job: JobId(1),
        generation: NOW,
        exchange: ExchangeId(0),
        turn: 6,
        group: G,
    };
    let shared = bytes::Bytes::from(vec![1; 10]);
    let of = |source, destinations, version, payload: &bytes::Bytes| {
        let item = Item::whole(TreeNode::leaf(source), payload.clone());
        Parcel::new((ExchangeId(0), 6, G), destinations, version, item)
    };
    let sent = [
        of(0, 0..3, 2, &shared),
        of(0, 3..4, 5, &shared),
        of(0, 6..7, 5, &shared),
        of(1, 7..8, 5, &shared),
        of(1, 8..9, 5, &bytes::Bytes::from(vec![1; 10])),
    ];
    let data = coalesce(head, &sent);
    let pieces = data.pieces.iter();
    let pieces: Vec<_> = pieces
        .map(|it| (it.source.index, it.first..it.end))
        .collect();
    assert_eq!(pieces, [(0, 0..4), (0, 6..7), (1, 7..8), (1, 8..9)]);
    let mut received = Vec::new();
    parcels(&data, <[u8]>::to_vec, |parcel| received.push(parcel));
    let received = received.iter();
    let received: Vec<_> = received
        .map(|it| (it.destinations.clone(), it.version))
        .collect();
    assert_eq!(
        received,
        [(0..3, 2), (3..4, 5), (6..7, 5), (7..8, 5), (8..9, 5)]
    );
}
