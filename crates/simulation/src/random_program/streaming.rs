//! Programs all of whose exchanges are streamed: what sources send differs in number and size, and streams lie in loops and branches.
//!
//! # What occurs
//! * Sources that send nothing at all, to some, or to all; no chunk, one, or a dozen to a destination; chunks without bytes, and of kilobytes.
//! * Chunks that are written in several calls, and a last one that nobody flushes.
//! * A stream of a dataset into itself, which cannot be taken before all of it was sent.
//! * Streams that are merged into a third, and taken further by tasks that take and send.
//! * Tasks that have enough before the end.

use super::Writer;
use crate::kernels::{RandomValue, mix};
use brambling_program::{Context, Dataset, Exchange, Program, Progress, Relation, Streams};
use std::task::Poll;

/// What a source sends to one destination, as its hash says.
#[derive(Clone, Copy)]
struct Share {
    hash: u64,
    chunks: u64,
    /// Whether its last chunk is left to the end of the task.
    is_left: bool,
}

impl Share {
    fn new(salt: u64, digest: u64, source: u32, destination: u32) -> Share {
        let says = mix(salt, digest);
        let hash = mix(says, mix(source.into(), destination.into()));
        // One source in four sends nothing to anybody.
        let chunks = match mix(says, source.into()) % 4 {
            0 => 0,
            _ => [0, 1, 2, 3, 9][(hash % 5) as usize],
        };
        let is_left = hash.is_multiple_of(3);
        Share {
            hash,
            chunks,
            is_left,
        }
    }

    /// Empty, of some numbers, or of kilobytes.
    fn write(self, chunk: u64, into: &mut Vec<u64>) {
        let hash = mix(self.hash, chunk);
        let len = [0, 0, 1, 3, 40, 600][(hash % 6) as usize];
        into.clear();
        into.extend((0..len).map(|place| mix(hash, place)));
    }
}

/// How far a source is.
#[derive(Default)]
struct Sending {
    /// Chunks flushed, by place among the destinations.
    flushed: Vec<u64>,
    /// Where it writes a chunk, of which half is there.
    begun: Option<usize>,
}

impl Writer {
    /// As `Writer::statement`, of a program that streams.
    pub(super) fn streaming(&mut self, p: &mut Program, depth: u32) {
        match self
            .random
            .below(if depth < super::DEPTH_MAX { 20 } else { 12 })
        {
            0..2 => self.typed_compute(p),
            2 => {
                self.signal(p);
            }
            3..7 => self.stream(p, depth),
            7..9 => self.stream_into_itself(p),
            9..12 => self.stream_on(p, depth),
            12..15 => self.branch(p, depth),
            15..18 => self.repeat(p, depth),
            _ => self.repeat_while(p, depth),
        }
    }

    fn relation(&mut self, from: usize, to: usize) -> Relation {
        let counts = (self.families[from].count, self.families[to].count);
        super::exchanges::relation(&mut self.random, counts.0, counts.1)
    }

    /// A stage that sends, anything in between, and one that takes.
    fn stream(&mut self, p: &mut Program, depth: u32) {
        let (from, to) = (self.family(), self.family());
        let (name, salt) = (self.name("stream"), self.random.salt());
        let relation = self.relation(from, to);
        let exchange = p.streamed::<Vec<u64>>(name.clone(), relation);
        let a = self.random.pick(&self.families[from].vectors);
        let is_repeatable = self.random.one_in(2);
        send(p, &name, &exchange, salt, a, is_repeatable);
        if depth < super::DEPTH_MAX && self.random.one_in(3) {
            self.statements(p, depth + 1);
        }
        let most = self.random.pick(&[2, u64::MAX, u64::MAX]);
        if self.random.one_in(2) {
            let numbers = self.random.pick(&self.families[to].numbers);
            take(p, &name, &exchange, (salt, most), numbers);
        } else {
            let vectors = self.random.pick(&self.families[to].vectors);
            take(p, &name, &exchange, (salt, most), vectors);
        }
    }

    /// What takes writes what the source reads: all of it was sent before any of it is taken.
    fn stream_into_itself(&mut self, p: &mut Program) {
        let family = self.family();
        let (name, salt) = (self.name("into itself"), self.random.salt());
        let relation = self.relation(family, family);
        let exchange = p.streamed::<Vec<u64>>(name.clone(), relation);
        let x = self.random.pick(&self.families[family].vectors);
        let is_repeatable = self.random.one_in(2);
        send(p, &name, &exchange, salt, x, is_repeatable);
        take(p, &name, &exchange, (salt, u64::MAX), x);
    }

    /// One to three streams, a stage that takes them all and sends on, and one that takes what that has sent.
    fn stream_on(&mut self, p: &mut Program, depth: u32) {
        let (from, over, to) = (self.family(), self.family(), self.family());
        let (name, salt) = (self.name("stream on"), self.random.salt());
        let mut inputs = Vec::new();
        for place in 0..1 + self.random.below(3) {
            let relation = self.relation(from, over);
            let exchange = p.streamed::<Vec<u64>>(format!("{name}, input {place}"), relation);
            let a = self.random.pick(&self.families[from].vectors);
            let is_repeatable = self.random.one_in(2);
            let salt = mix(salt, place);
            send(p, &name, &exchange, salt, a, is_repeatable);
            inputs.push(exchange);
        }
        if depth < super::DEPTH_MAX && self.random.one_in(4) {
            self.statements(p, depth + 1);
        }
        let relation = self.relation(over, to);
        let output = p.streamed::<Vec<u64>>(format!("{name}, output"), relation);
        let numbers = self.random.pick(&self.families[over].numbers);
        merge(p, &name, (inputs, output), salt, numbers);
        let numbers = self.random.pick(&self.families[to].numbers);
        take(p, &name, &output, (mix(salt, 7), u64::MAX), numbers);
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
        |_: &mut Context<'_>| Sending::default(),
        move |at: &mut Sending, streams: &mut Streams<'_, '_>, a: &Vec<u64>| {
            let all: Vec<u32> = streams.destinations().collect();
            let (source, digest) = (streams.context().partition(), a.digest());
            at.flushed.resize(all.len(), 0);
            if let Some(place) = at.begun.take() {
                // The other half of what was begun in the call before.
                let number = at.flushed[place];
                streams.chunk(&to, all[place]).push(number);
                if !flush(at, streams, &to, (place, all[place])) {
                    return Progress::Pending;
                }
            }
            let share = |place: usize| Share::new(salt, digest, source, all[place]);
            let is_left = |at: &Sending, place: usize| at.flushed[place] < share(place).chunks;
            // In turn, so that destinations hear now and then.
            while let Some(place) = (0..all.len())
                .filter(|place| is_left(at, *place))
                .min_by_key(|place| (at.flushed[*place], share(*place).hash))
            {
                let (share, chunk) = (share(place), at.flushed[place]);
                share.write(chunk, streams.chunk(&to, all[place]));
                if share.is_left && chunk + 1 == share.chunks {
                    at.flushed[place] += 1;
                    continue;
                }
                let what = mix(share.hash, chunk) % 7;
                if what == 0 {
                    at.begun = Some(place);
                    return Progress::More;
                }
                if !flush(at, streams, &to, (place, all[place])) {
                    return Progress::Pending;
                }
                match what {
                    1 => return Progress::More,
                    2 => {
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

/// Whether there is room for more.
fn flush(
    at: &mut Sending,
    streams: &mut Streams<'_, '_>,
    to: &Exchange<Vec<u64>>,
    (place, destination): (usize, u32),
) -> bool {
    at.flushed[place] += 1;
    streams.flush(to, destination)
}

fn take<T: RandomValue>(
    p: &mut Program,
    name: &str,
    from: &Exchange<Vec<u64>>,
    (salt, most): (u64, u64),
    to: Dataset<T>,
) {
    let from = *from;
    let take = p.stream(format!("take {name}")).take(&from).update(&to);
    take.run(
        move |_: &mut Context<'_>| (salt, 0u64),
        move |(hash, count): &mut (u64, u64), streams: &mut Streams<'_, '_>, to: &mut T| {
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
            to.scramble(mix(*hash, *count));
            Progress::Done
        },
    );
}

/// Takes of all inputs, as the chunks say, and sends on what it makes of them; at the end it leaves something unflushed.
fn merge(
    p: &mut Program,
    name: &str,
    (from, to): (Vec<Exchange<Vec<u64>>>, Exchange<Vec<u64>>),
    salt: u64,
    numbers: Dataset<u64>,
) {
    let merge = p.stream(format!("merge {name}"));
    let merge = from.iter().fold(merge, |merge, from| merge.take(from));
    merge.send(&to).update(&numbers).run(
        move |_: &mut Context<'_>| (salt, from.clone()),
        move |(hash, left): &mut (u64, Vec<Exchange<Vec<u64>>>),
              streams: &mut Streams<'_, '_>,
              number: &mut u64| {
            let all: Vec<u32> = streams.destinations().collect();
            while !left.is_empty() {
                let which = (*hash % left.len() as u64) as usize;
                match streams.poll(&left[which]) {
                    Poll::Pending => return Progress::Pending,
                    Poll::Ready(None) => drop(left.remove(which)),
                    Poll::Ready(Some((source, chunk))) => {
                        *hash = mix(mix(*hash, source.into()), chunk.digest());
                    }
                }
                if all.is_empty() {
                    continue;
                }
                let destination = all[(*hash >> 8) as usize % all.len()];
                streams.chunk(&to, destination).set(mix(*hash, *number));
                if !left.is_empty() && !streams.flush(&to, destination) {
                    return Progress::Pending;
                }
            }
            *number = mix(*number, *hash);
            Progress::Done
        },
    );
}
