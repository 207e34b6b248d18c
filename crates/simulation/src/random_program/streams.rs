//! Streamed exchanges of random programs: any number of chunks to each destination, taken while others are sent.

use super::Writer;
use crate::kernels::{RandomValue, mix};
use brambling_program::{Dataset, Exchange, Program, Progress, Relation, Streams};
use std::task::Poll;

/// How far a task that sends is.
#[derive(Default)]
struct At {
    place: usize,
    chunk: u64,
}

impl Writer {
    /// One stage that sends by chunks, anything in between, and one that takes; perhaps one between them that takes from both and sends on.
    pub(super) fn streamed(
        &mut self,
        p: &mut Program,
        depth: u32,
        relation: Relation,
        ends: (usize, usize),
    ) {
        let (from, to) = ends;
        let (name, salt) = (self.name("stream"), self.random.salt());
        let exchange = p.streamed::<Vec<u64>>(name.clone(), relation);
        let a = self.random.pick(&self.families[from].vectors);
        let is_repeatable = self.random.one_in(2);
        send(p, &name, &exchange, salt, a, is_repeatable);
        if depth < super::DEPTH_MAX && self.random.one_in(2) {
            self.statements(p, depth + 1);
        }
        let numbers = self.random.pick(&self.families[to].numbers);
        if self.random.one_in(3) {
            let end = self.family();
            let second = p.streamed::<Vec<u64>>(format!("second {name}"), Relation::AllToAll);
            let merged = p.streamed::<Vec<u64>>(format!("merged {name}"), Relation::AllToAll);
            let a = self.random.pick(&self.families[from].vectors);
            send(p, &name, &second, mix(salt, 1), a, !is_repeatable);
            merge(p, &name, [exchange, second, merged], salt, numbers);
            let numbers = self.random.pick(&self.families[end].numbers);
            take(p, &name, &merged, mix(salt, 2), numbers);
        } else {
            take(p, &name, &exchange, salt, numbers);
        }
    }
}

fn send(
    p: &mut Program,
    name: &str,
    to: &Exchange<Vec<u64>>,
    salt: u64,
    a: Dataset<Vec<u64>>,
    is_repeatable: bool,
) {
    let to = *to;
    let stage = p.stream(format!("send {name}")).send(&to).read(&a);
    let stage = if is_repeatable {
        stage.repeatable()
    } else {
        stage
    };
    stage.run(
        |_| At::default(),
        move |at: &mut At, streams: &mut Streams<'_, '_>, a: &Vec<u64>| {
            let all: Vec<u32> = streams.destinations().collect();
            let source = streams.context().partition();
            while let Some(&destination) = all.get(at.place) {
                let hash = mix(
                    mix(salt, a.digest()),
                    mix(source.into(), destination.into()),
                );
                if at.chunk == hash % 5 {
                    *at = At {
                        place: at.place + 1,
                        chunk: 0,
                    };
                    continue;
                }
                let hash = mix(hash, at.chunk);
                streams.chunk(&to, destination).set(hash);
                at.chunk += 1;
                let has_room = streams.flush(&to, destination);
                match hash % 4 {
                    _ if !has_room => return Progress::Pending,
                    0 => return Progress::More,
                    1 => {
                        streams.context().completion().wake();
                        return Progress::Pending;
                    }
                    _ => {}
                }
            }
            Progress::Done
        },
    );
}

fn take(p: &mut Program, name: &str, from: &Exchange<Vec<u64>>, salt: u64, to: Dataset<u64>) {
    let from = *from;
    // Some have enough before the end.
    let most = if salt.is_multiple_of(4) { 2 } else { u64::MAX };
    let take = p.stream(format!("take {name}")).take(&from).update(&to);
    take.run(
        move |_| (salt, 0u64),
        move |(hash, count): &mut (u64, u64), streams: &mut Streams<'_, '_>, to: &mut u64| {
            while *count < most {
                match streams.poll(&from) {
                    Poll::Pending => return Progress::Pending,
                    Poll::Ready(None) => break,
                    Poll::Ready(Some((source, chunk))) => {
                        *hash = mix(mix(*hash, source.into()), chunk.digest());
                        *count += 1;
                    }
                }
                if hash.is_multiple_of(3) {
                    return Progress::More;
                }
            }
            *to = mix(*to, *hash);
            Progress::Done
        },
    );
}

/// Takes of both in turn, and sends on what it makes of a chunk.
fn merge(
    p: &mut Program,
    name: &str,
    [first, second, to]: [Exchange<Vec<u64>>; 3],
    salt: u64,
    numbers: Dataset<u64>,
) {
    let from = [first, second];
    let merge = p.stream(format!("merge {name}"));
    let merge = merge
        .take(&from[0])
        .take(&from[1])
        .send(&to)
        .update(&numbers);
    merge.run(
        move |_| (salt, [false; 2]),
        move |(hash, ended): &mut (u64, [bool; 2]),
              streams: &mut Streams<'_, '_>,
              number: &mut u64| {
            let all: Vec<u32> = streams.destinations().collect();
            while *ended != [true; 2] {
                let which = match ended {
                    [false, false] => (*hash % 2) as usize,
                    [true, _] => 1,
                    [_, true] => 0,
                };
                match streams.poll(&from[which]) {
                    Poll::Pending => return Progress::Pending,
                    Poll::Ready(None) => ended[which] = true,
                    Poll::Ready(Some((source, chunk))) => {
                        *hash = mix(mix(*hash, source.into()), chunk.digest());
                    }
                }
                let destination = all[(*hash >> 8) as usize % all.len()];
                streams.chunk(&to, destination).set(mix(*hash, *number));
                if !streams.flush(&to, destination) {
                    return Progress::Pending;
                }
            }
            *number = mix(*number, *hash);
            Progress::Done
        },
    );
}
