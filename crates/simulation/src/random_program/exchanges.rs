//! Exchanges of random programs: by hand, and the high-level ones.

use super::variables::Any;
use super::{Random, Writer};
use crate::kernels::{RandomValue, mix};
use crate::objects::Object;
use brambling_program::{
    Blocks, Dataset, Exchange, Inbox, Outbox, Program, Relation, RelationTable,
};

/// Runs an expression with a dataset of whatever type; blocks neither send nor receive by themselves.
macro_rules! typed {
    ($any:expr, $dataset:ident => $body:expr) => {
        match $any {
            Any::Number($dataset) => $body,
            Any::Vector($dataset) => $body,
            Any::Rows($dataset) => $body,
            Any::Object($dataset) => $body,
            Any::Blocks(_) => unreachable!("not among the cells"),
        }
    };
}

impl Writer {
    /// A scatter, anything in between, its gather.
    pub(super) fn exchange(&mut self, p: &mut Program, depth: u32) {
        match self.random.below(4) {
            0 => self.exchange_of::<u64>(p, depth),
            1 | 2 => self.exchange_of::<Vec<u64>>(p, depth),
            _ => self.exchange_of::<Object>(p, depth),
        }
    }

    fn exchange_of<P: RandomValue>(&mut self, p: &mut Program, depth: u32) {
        let (from, to) = (self.family(), self.family());
        let (sources, destinations) = (self.families[from].count, self.families[to].count);
        let name = self.name("exchange");
        let relation = relation(&mut self.random, sources, destinations);
        if self.streams.one_in(3) {
            return self.streamed(p, depth, relation, (from, to));
        }
        let exchange = p.exchange::<P>(name.clone(), relation);
        let read = self.families[from].cells();
        let read = self.random.some(&read, 2);
        let salt = self.random.salt();
        typed!(read[0], first => match read.get(1) {
            Some(second) => typed!(*second, second => scatter_two(p, &name, &exchange, salt, first, second)),
            None => scatter(p, &name, &exchange, salt, first),
        });
        if depth < super::DEPTH_MAX && self.random.one_in(2) {
            // The same block: what is given here may be tested after the gather.
            self.statements(p, depth + 1);
        }
        let written = self.families[to].cells();
        let written = self.random.some(&written, 2);
        let overwrite = self.random.one_in(3);
        typed!(written[0], first => match written.get(1) {
            Some(second) => typed!(*second, second => gather_two(p, &name, &exchange, salt, first, second)),
            None => gather(p, &name, &exchange, salt, overwrite, first),
        });
    }

    pub(super) fn broadcast(&mut self, p: &mut Program) {
        let to = self.family();
        self.stages_left = self.stages_left.saturating_sub(1);
        // Never rows: broadcast and shuffled in a loop they would multiply.
        let from = self.random.pick(&self.families[0].vectors);
        p.broadcast(&from, &self.random.pick(&self.families[to].vectors));
    }

    pub(super) fn reduce(&mut self, p: &mut Program) {
        let family = self.family();
        self.stages_left = self.stages_left.saturating_sub(1);
        let from = self.random.pick(&self.families[family].vectors);
        let to = self.random.pick(&self.families[0].vectors);
        match self.random.below(3) {
            0 => p.reduce(fold, &from, &to, |to: &mut Vec<u64>, total: &Vec<u64>| {
                to.scramble(total.digest());
            }),
            1 => p.reduce_to(fold, &from, &to),
            _ => {
                let everywhere = self.family();
                let to = self.random.pick(&self.families[everywhere].vectors);
                p.all_reduce(fold, &from, &to);
            }
        }
    }

    /// All send to one, some of them nothing, and what they send may be merged on its way.
    pub(super) fn merged(&mut self, p: &mut Program) {
        let family = self.family();
        self.stages_left = self.stages_left.saturating_sub(1);
        let from = self.random.pick(&self.families[family].vectors);
        let to = self.random.pick(&self.families[0].vectors);
        if self.random.one_in(3) {
            self.merged_of::<Object>(p, from, to);
        } else {
            self.merged_of::<Vec<u64>>(p, from, to);
        }
    }

    fn merged_of<P: RandomValue + Joins>(
        &mut self,
        p: &mut Program,
        from: Dataset<Vec<u64>>,
        to: Dataset<Vec<u64>>,
    ) {
        let (name, salt) = (self.name("merged"), self.random.salt());
        // Often whole groups of neighbours, or all.
        let silent = self.random.pick(&[2, 3, 100]);
        let exchange = p.exchange::<P>(name.clone(), Relation::AllToOne);
        p.combine(&exchange, |first: &mut P, others| {
            others.for_each(|other| first.join(other));
        });
        let scatter = p.scatter(name.clone(), &exchange).read(&from);
        scatter.run(move |from: &Vec<u64>, out: &mut Outbox<'_, P>| {
            let hash = mix(salt, from.digest());
            let neighbours = (u64::from(out.source()) / silent).is_multiple_of(2);
            if hash % 100 >= silent && !(silent < 100 && neighbours) {
                let hash = mix(hash, out.source().into());
                out.piece(0).set(hash);
            }
        });
        let gather = p.gather(name, &exchange).update(&to);
        gather.run(move |inbox: &mut Inbox<'_, P>, to: &mut Vec<u64>| {
            // How they are grouped must not show.
            let values = inbox.flat_map(|(_, piece)| piece.take());
            to.scramble(values.fold(salt, mix));
        });
    }

    pub(super) fn shuffle(&mut self, p: &mut Program) {
        let (from, to) = (self.family(), self.family());
        self.stages_left = self.stages_left.saturating_sub(1);
        let from = self.random.pick(&self.families[from].rows);
        let to = self.random.pick(&self.families[to].rows);
        if from.id() != to.id() {
            p.shuffle(&from, &to);
        }
    }

    pub(super) fn neighbours(&mut self, p: &mut Program) {
        let family = self.family();
        let dataset = self.random.pick(&self.families[family].vectors);
        let (offsets, wrap, salt) = (
            offsets(&mut self.random),
            self.random.one_in(2),
            self.random.salt(),
        );
        let name = self.name("neighbours");
        p.exchange_neighbours(
            &name,
            &dataset,
            &offsets,
            wrap,
            move |value: &Vec<u64>, neighbour, piece: &mut Vec<u64>| {
                piece.set(mix(value.digest(), mix(salt, neighbour.into())));
            },
            |value: &mut Vec<u64>, neighbour, piece: &Vec<u64>| {
                value.scramble(mix(neighbour.into(), piece.digest()));
            },
        );
    }

    /// A map over blocks and a reduction of its results, where there are blocks.
    pub(super) fn map_blocks(&mut self, p: &mut Program) {
        let with = |family: &usize| !self.families[*family].blocks.is_empty();
        let with: Vec<usize> = (0..self.families.len()).filter(with).collect();
        if with.is_empty() {
            return self.compute(p);
        }
        let family = self.random.pick(&with);
        let blocks = self.families[family].blocks[0];
        let other = self.random.pick(&self.families[family].vectors);
        let salt = self.random.salt();
        let name = self.name("map");
        let results: Dataset<Blocks<Vec<u64>>> = p.like(format!("results of {name}"), &blocks);
        p.map(name, &blocks).read(&other).into(
            &results,
            move |block: &u64, other: &Vec<u64>, result: &mut Vec<u64>| {
                result.set(mix(mix(salt, *block), other.digest()));
            },
        );
        let to = self.family();
        if self.random.one_in(2) {
            p.all_reduce_blocks(
                fold,
                &results,
                &self.random.pick(&self.families[to].vectors),
            );
        } else {
            let to = self.random.pick(&self.families[0].numbers);
            p.reduce_blocks(fold, &results, &to, |to: &mut u64, total: &Vec<u64>| {
                *to = mix(*to, total.digest());
            });
        }
    }
}

/// What is merged on its way by being joined.
pub(crate) trait Joins {
    fn join(&mut self, other: &mut Self);
    fn take(&mut self) -> Vec<u64>;
}

impl Joins for Vec<u64> {
    fn join(&mut self, other: &mut Self) {
        self.append(other);
    }
    fn take(&mut self) -> Vec<u64> {
        std::mem::take(self)
    }
}

/// Not even associative: only the fixed tree gives these bits.
pub(super) fn fold(left: &mut Vec<u64>, right: &Vec<u64>) {
    left.set(mix(left.digest(), right.digest()));
}

fn scatter<P: RandomValue, A: RandomValue>(
    p: &mut Program,
    name: &str,
    to: &Exchange<P>,
    salt: u64,
    a: Dataset<A>,
) {
    let scatter = p.scatter(name, to).read(&a);
    scatter.run(move |a: &A, out: &mut Outbox<'_, P>| send(mix(salt, a.digest()), out));
}

fn scatter_two<P: RandomValue, A: RandomValue, B: RandomValue>(
    p: &mut Program,
    name: &str,
    to: &Exchange<P>,
    salt: u64,
    a: Dataset<A>,
    b: Dataset<B>,
) {
    let scatter = p.scatter(name, to).read(&a).read(&b);
    scatter.run(move |a: &A, b: &B, out: &mut Outbox<'_, P>| {
        send(mix(mix(salt, a.digest()), b.digest()), out);
    });
}

/// A piece to most of the destinations, in either order.
fn send<P: RandomValue>(hash: u64, out: &mut Outbox<'_, P>) {
    let count = out.fan_out();
    for place in 0..count {
        let place = if hash.is_multiple_of(2) {
            place
        } else {
            count - 1 - place
        };
        let destination = out.destination(place);
        let hash = mix(hash, mix(out.source().into(), destination.into()));
        if !hash.is_multiple_of(4) {
            out.piece(destination).set(hash);
        }
    }
}

fn gather<P: RandomValue, A: RandomValue>(
    p: &mut Program,
    name: &str,
    from: &Exchange<P>,
    salt: u64,
    overwrite: bool,
    a: Dataset<A>,
) {
    let gather = p.gather(name, from);
    if overwrite {
        gather
            .write(&a)
            .run(move |inbox: &mut Inbox<'_, P>, a: &mut A| a.set(receive(salt, inbox)));
    } else {
        gather
            .update(&a)
            .run(move |inbox: &mut Inbox<'_, P>, a: &mut A| a.scramble(receive(salt, inbox)));
    }
}

fn gather_two<P: RandomValue, A: RandomValue, B: RandomValue>(
    p: &mut Program,
    name: &str,
    from: &Exchange<P>,
    salt: u64,
    a: Dataset<A>,
    b: Dataset<B>,
) {
    let gather = p.gather(name, from).read(&a).update(&b);
    gather.run(move |inbox: &mut Inbox<'_, P>, a: &A, b: &mut B| {
        b.scramble(mix(receive(salt, inbox), a.digest()));
    });
}

/// Some gathers leave pieces where they are.
fn receive<P: RandomValue>(salt: u64, inbox: &mut Inbox<'_, P>) -> u64 {
    let most = if salt.is_multiple_of(4) {
        2
    } else {
        usize::MAX
    };
    let piece =
        |hash, (source, piece): (u32, &mut P)| mix(mix(hash, source.into()), piece.digest());
    inbox.take(most).fold(salt, piece)
}

fn offsets(random: &mut Random) -> Vec<i64> {
    (-3..=3).filter(|_| random.one_in(2)).collect()
}

pub(super) fn relation(random: &mut Random, sources: u32, destinations: u32) -> Relation {
    match random.below(6) {
        0 if sources == 1 => Relation::OneToAll,
        0 | 1 if destinations == 1 => Relation::AllToOne,
        1 | 2 if sources == destinations => Relation::Offsets {
            offsets: offsets(random),
            wrap: random.one_in(2),
        },
        3..5 => {
            let mut tables = |least| -> Vec<RelationTable> {
                let count = least + random.below(3);
                (0..count)
                    .map(|_| table(random, sources, destinations))
                    .collect()
            };
            Relation::Tables {
                prologue: tables(0),
                period: tables(1),
            }
        }
        _ => Relation::AllToAll,
    }
}

fn table(random: &mut Random, sources: u32, destinations: u32) -> RelationTable {
    let mut list = || (0..sources).filter(|_| random.one_in(2)).collect();
    RelationTable {
        sources: (0..destinations).map(|_| list()).collect(),
    }
}
