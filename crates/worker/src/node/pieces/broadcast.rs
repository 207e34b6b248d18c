//! What one shard sends to many alike: handed on from worker to worker where there are many.
//!
//! # Rules
//! * The sender's map says which worker has which destinations. Where more than `fan_out` others have some, it sends the piece to a few of them, each
//!   with a part of the others ([`Route`]).
//! * Whoever is sent such a frame takes the destinations that are in no route as from anybody, and hands on the rest in the same way.
//! * Those who have left, or from whom this node has parted, are sent nothing more: what is for them is taken here, and the router, whose map is
//!   newer than the sender's then, forwards it.
//! * Who has neither acknowledged nor said anything here is sent its part directly, and hands on nothing.
//!
//! # Why nothing is lost or merged twice
//! Routes are cut into parts, so each destination is named on one way, and lists become shorter. Each hop is numbered by its session. What is
//! handed on has left when its frame has been taken, and waits for a flush at most, which a worker that leaves waits for too. What
//! comes where a shard no longer is, goes the way of any piece: the router's.

use super::{About, PIECES, PieceBytes, PieceData, PieceRouting, Post};
use brambling_exchange::{Item, Parcel, Router};
use brambling_memory::mutants;
use brambling_program::ShardId;
use brambling_protocol::frame::Route;
use brambling_protocol::{Priority, Version, WorkerId};
use std::collections::BTreeSet;
use std::ops::Range;

/// Destinations with one owner and one version, in the sender's map.
pub(super) type DestinationGroup = (Range<u32>, WorkerId, Version);

/// Whether so many ways are walked by handing on.
pub(super) fn is_handed_on(post: &Post, ways: &[DestinationGroup]) -> bool {
    let fan_out = post.options.fan_out;
    if ways.len() <= fan_out {
        return false;
    }
    let others = ways.iter().map(|(_, to, _)| *to);
    let others: BTreeSet<WorkerId> = others.filter(|to| *to != post.me()).collect();
    others.len() > fan_out.max(1)
}

impl PieceRouting {
    /// Sends an item to all of these, some of them through others; `about` is its exchange, turn and group.
    pub(super) fn hand_out(
        &mut self,
        post: &mut Post,
        about: About,
        ways: &[DestinationGroup],
        item: &Item<PieceData>,
    ) {
        let owners: BTreeSet<WorkerId> = ways.iter().map(|(_, to, _)| *to).collect();
        let (relays, others) = post.members.split(owners);
        let fan_out = post.options.fan_out.max(1).min(relays.len());
        let mut parts: Vec<&[WorkerId]> = (0..fan_out)
            .map(|part| &relays[part * relays.len() / fan_out..(part + 1) * relays.len() / fan_out])
            .collect();
        parts.extend(others.iter().map(std::slice::from_ref));
        if mutants::is_on("pieces-forget-their-last-part") {
            parts.pop();
        }
        for part in parts {
            let is_its = |way: &&DestinationGroup| part.contains(&way.1);
            let its = ways.iter().filter(is_its);
            let routes = its.clone().filter(|(_, to, _)| *to != part[0]);
            let routes = routes.map(|(destinations, to, _)| Route {
                first: destinations.start,
                end: destinations.end,
                to: *to,
            });
            let routes: Vec<Route> = routes.collect();
            for (destinations, version) in joined(its) {
                let parcel = Parcel::new(about, destinations, version, item.clone());
                let priority = Priority::new(PIECES).expect("one of eight");
                self.put(post, part[0], priority, parcel, &routes);
            }
        }
    }

    /// What has come for destinations of others is handed on, each item once for all of them; what is left is for this node.
    pub(super) fn hand_on(
        &mut self,
        post: &mut Post,
        parcels: Vec<Parcel<PieceBytes>>,
        routes: &[Route],
    ) -> Vec<Parcel<PieceBytes>> {
        let mut own = Vec::new();
        for same in parcels.chunk_by(is_of_same) {
            let mut ways = Vec::new();
            for parcel in same {
                part_routes((post, &self.router), parcel, routes, &mut own, &mut ways);
            }
            if !ways.is_empty() {
                let Parcel {
                    exchange,
                    turn,
                    group,
                    ref item,
                    ..
                } = same[0];
                let item = item.clone().map(PieceData::Bytes);
                self.hand_out(post, (exchange, turn, group), &ways, &item);
            }
        }
        own
    }
}

/// Which of a parcel's destinations are for this node, and which for others.
fn part_routes(
    (post, router): (&Post, &Router<PieceData>),
    parcel: &Parcel<PieceBytes>,
    routes: &[Route],
    own: &mut Vec<Parcel<PieceBytes>>,
    ways: &mut Vec<DestinationGroup>,
) {
    let mut at = parcel.destinations.start;
    let begin = routes.partition_point(|route| route.end <= at);
    let mut keep = |range: Range<u32>| {
        if !range.is_empty() {
            own.push(Parcel {
                destinations: range,
                ..parcel.clone()
            });
        }
    };
    for route in &routes[begin..] {
        let first = route.first.max(at);
        let end = route.end.min(parcel.destinations.end);
        if first >= end {
            break;
        }
        keep(at..first);
        at = end;
        let is_told = route.to != post.me() && post.members.may_hear(route.to);
        if !is_told && !mutants::is_on("pieces-follow-who-has-left") {
            keep(first..end);
            continue;
        }
        // A piece for a shard that is here is not handed on: the worker that the map names may take
        // that for the news that the shard has left here.
        let shard = |index| ShardId {
            group: parcel.group,
            index,
        };
        let mut next = first;
        for here in router.here_in(shard(first)..shard(end)) {
            keep(here.index..here.index + 1);
            if next < here.index {
                ways.push((next..here.index, route.to, parcel.version));
            }
            next = here.index + 1;
        }
        if next < end {
            ways.push((next..end, route.to, parcel.version));
        }
    }
    keep(at..parcel.destinations.end);
}

/// Whether both are what one source sends, of destinations that have other versions.
fn is_of_same(one: &Parcel<PieceBytes>, other: &Parcel<PieceBytes>) -> bool {
    match (&one.item, &other.item) {
        (
            Item::Piece {
                source,
                chunk,
                payload,
                ..
            },
            Item::Piece {
                source: others,
                chunk: place,
                payload: same,
                ..
            },
        ) => (source, chunk) == (others, place) && payload == same,
        (Item::Empty { sources }, Item::Empty { sources: others }) => sources == others,
        _ => false,
    }
}

/// Neighbours of one version are one range.
fn joined<'a>(ways: impl Iterator<Item = &'a DestinationGroup>) -> Vec<(Range<u32>, Version)> {
    let mut ranges: Vec<(Range<u32>, Version)> = Vec::new();
    for (destinations, _, version) in ways {
        match ranges.last_mut() {
            Some((range, same)) if range.end == destinations.start && same == version => {
                range.end = destinations.end;
            }
            _ => ranges.push((destinations.clone(), *version)),
        }
    }
    ranges
}

/// Routes of another piece of the same turn with those of one before: ascending, each destination once. All are of one scatter, so they agree
/// where both have a destination.
pub(super) fn add_routes(routes: &mut Vec<Route>, others: &[Route]) {
    if others.is_empty() || routes[..] == *others {
        return;
    }
    let mut all = std::mem::take(routes);
    all.extend_from_slice(others);
    all.sort_by_key(|route| (route.first, route.end));
    for route in all {
        match routes.last_mut() {
            Some(before) if before.to == route.to && route.first <= before.end => {
                before.end = before.end.max(route.end);
            }
            Some(before) if route.first < before.end => {
                let first = before.end;
                if first < route.end {
                    routes.push(Route { first, ..route });
                }
            }
            _ => routes.push(route),
        }
    }
}

/// The parts of routes that parcels are for.
pub(super) fn clipped<P>(routes: &[Route], parcels: &[Parcel<P>]) -> Vec<Route> {
    let mut clipped: Vec<Route> = Vec::new();
    if routes.is_empty() {
        return clipped;
    }
    let mut spans: Vec<&Range<u32>> = parcels.iter().map(|it| &it.destinations).collect();
    spans.sort_by_key(|span| span.start);
    let mut at = 0;
    for span in spans {
        let begin = routes.partition_point(|route| route.end <= span.start.max(at));
        for route in &routes[begin..] {
            let (first, end) = (route.first.max(span.start).max(at), route.end.min(span.end));
            if first >= end {
                break;
            }
            at = end;
            clipped.push(Route {
                first,
                end,
                ..*route
            });
        }
        at = at.max(span.end);
    }
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a worker that lies has named a destination twice, a frame can be made of what it said.
    #[test]
    fn each_destination_has_one_route() {
        let route = |first, end, to| Route {
            first,
            end,
            to: WorkerId(to),
        };
        let mut routes = Vec::new();
        add_routes(&mut routes, &[route(0, 4, 1), route(6, 8, 2)]);
        add_routes(&mut routes, &[route(0, 4, 1), route(6, 8, 2)]);
        add_routes(&mut routes, &[route(4, 5, 1)]);
        assert_eq!(routes, [route(0, 5, 1), route(6, 8, 2)]);
        add_routes(&mut routes, &[route(2, 3, 9), route(4, 7, 9)]);
        let expected = [route(0, 5, 1), route(5, 7, 9), route(7, 8, 2)];
        assert_eq!(routes, expected);
    }
}
