//! A member's part of a job: shards that run turns, each for itself, and are saved where they stand. What a shard computes follows from all its turns.

use super::chance::Chance;
use super::shelf::{Made, Shelf};
use super::wire::Parcel;
use brambling_program::{
    CutAnswer, CutPlan, DatasetId, GroupId, GroupState, OutermostLoop, ShardId,
};
use brambling_protocol::frame::{
    Ack, Body, CutAsk, CutReply, CutWord, Finished, Frame, SavedParts, SavedShards, ShardRange,
};
use brambling_protocol::kept::{CutManifest, StoredPart, checksum};
use brambling_protocol::message::{Holding, Prepare};
use brambling_protocol::{FrameSession, JobKey, Priority, Received, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// All shards are of one group.
pub const GROUP: GroupId = GroupId(0);
/// How many shards a job has, and turns.
pub const SHARDS: u32 = 6;
pub const TURNS: u64 = 60;

/// Where such a job may be saved.
pub fn cut_plan() -> CutPlan {
    CutPlan {
        shards: vec![SHARDS],
        loops: vec![OutermostLoop {
            turns: Some(TURNS),
            is_crossed: false,
            is_split: false,
            takers: vec![GROUP],
            free: vec![GROUP],
            first_stage: "turn".into(),
        }],
    }
}

fn turn(value: u64, shard: u32, turn: u64) -> u64 {
    let mixed = value ^ (u64::from(shard) << 32) ^ turn;
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(23) ^ turn
}

/// What a shard has in the end, whatever happens.
pub fn expected(shard: u32) -> u64 {
    (0..TURNS).fold(u64::from(shard), |value, at| turn(value, shard, at))
}

fn id(index: u32) -> ShardId {
    ShardId {
        group: GROUP,
        index,
    }
}

/// Turns done, and what has come of them.
#[derive(Clone, Copy)]
struct Standing {
    done: u64,
    value: u64,
}

/// A member's part.
pub struct Part {
    pub key: JobKey,
    pub me: WorkerId,
    place: Option<String>,
    /// The other members, as far as it knows.
    members: BTreeSet<WorkerId>,
    /// The term of the controller that it has met.
    term: u32,
    session: FrameSession,
    is_linked: bool,
    shards: BTreeMap<u32, Standing>,
    told: BTreeSet<u32>,
    cut: Option<(u64, BTreeSet<u32>)>,
    made: u32,
    pub is_over: bool,
    /// A controller has ended it, perhaps one that another had taken over from.
    is_void: bool,
    out: Vec<Parcel>,
}

impl Part {
    /// Begins, at the cut that it is told. None where the store does not have that.
    pub fn begin(prepare: &Prepare, me: WorkerId, shelf: &Shelf) -> Option<Part> {
        let mine = prepare.map.iter().filter(|it| it.entry.owner == me);
        let mine: Vec<u32> = mine.flat_map(|it| it.first..it.end).collect();
        let kept = prepare.kept.as_ref();
        let manifest = match kept.and_then(|kept| Some((kept, kept.cut?))) {
            Some((kept, cut)) => {
                let bytes = shelf.get(&manifest_key(&kept.place, cut))?;
                Some(CutManifest::decode(bytes).ok()?)
            }
            None => None,
        };
        let standing = |shard: u32| match &manifest {
            Some(manifest) => found(manifest, shard, shelf),
            None => Some(Standing {
                done: 0,
                value: u64::from(shard),
            }),
        };
        let shards = mine.iter().map(|shard| Some((*shard, standing(*shard)?)));
        let mut part = Part {
            key: prepare.key,
            me,
            place: kept.map(|it| it.place.clone()),
            members: (prepare.members.iter())
                .map(|it| it.worker)
                .filter(|it| *it != me)
                .collect(),
            term: 0,
            session: FrameSession::default(),
            is_linked: false,
            shards: shards.collect::<Option<_>>()?,
            told: BTreeSet::new(),
            cut: None,
            made: 0,
            is_over: false,
            is_void: false,
            out: Vec::new(),
        };
        part.greet();
        Some(part)
    }

    /// What a shard has, if it is here and has ended.
    pub fn result(&self, shard: u32) -> Option<u64> {
        let standing = self.shards.get(&shard)?;
        (self.is_over && standing.done == TURNS).then_some(standing.value)
    }

    /// A new link, or a new job: the controller is greeted.
    pub fn greet(&mut self) {
        self.is_linked = false;
        let received = self.session.received();
        self.out.push(Parcel::Greets(self.key, self.me, received));
    }

    /// A controller has taken over: what is here?
    pub fn holding(&mut self, term: u32) -> Holding {
        if term > self.term {
            self.term = term;
            self.session = FrameSession::default();
            self.told.clear();
            self.greet();
        }
        let mut shards: Vec<ShardRange> = Vec::new();
        for &first in self.shards.keys() {
            let (group, end) = (GROUP, first + 1);
            shards.push(ShardRange { group, first, end });
        }
        Holding {
            key: self.key,
            me: self.me,
            members: self.members.iter().copied().collect(),
            shards,
            is_busy: self.is_void,
            has_ended: self.is_over,
        }
    }

    /// What is to be sent.
    pub fn take(&mut self) -> Vec<Parcel> {
        std::mem::take(&mut self.out)
    }

    fn say(&mut self, body: &Body<'_>) {
        if let Some(packet) = self.session.say(Priority::FIRST, body)
            && self.is_linked
        {
            let bytes = packet.to_bytes().to_vec();
            self.out.push(Parcel::OfJob(self.key, self.me, bytes));
        }
    }

    fn say_of_cut(&mut self, what: CutWord) {
        let JobKey { job, generation } = self.key;
        self.say(&Body::CutReply(CutReply {
            job,
            generation,
            what,
        }));
    }

    /// The controller has greeted: what it has not is said again.
    pub fn on_greeted(&mut self, received: u64) {
        // One that another had taken over from speaks of the session before.
        let Ok(again) = self.session.on_reconnect(received) else {
            return;
        };
        self.is_linked = true;
        let again: Vec<Vec<u8>> = again
            .map(|(_, (_, packet))| packet.to_bytes().to_vec())
            .collect();
        let of_job = |bytes| Parcel::OfJob(self.key, self.me, bytes);
        self.out.extend(again.into_iter().map(of_job));
    }

    /// A frame of its controller.
    pub fn on_frame(&mut self, bytes: &[u8]) {
        if !self.is_linked {
            return;
        }
        let (frame, _) = Frame::decode(bytes).expect("a whole frame");
        if let Some(sequence) = frame.sequence {
            if self
                .session
                .receive(sequence)
                .expect("an honest controller")
                == Received::Repeated
            {
                return;
            }
            let received = self.session.received();
            let ack = Frame {
                priority: Priority::FIRST,
                sequence: None,
                body: Body::Ack(Ack { received }),
            };
            let bytes = ack.to_bytes().to_vec();
            self.out.push(Parcel::OfJob(self.key, self.me, bytes));
        }
        match frame.body {
            Body::Ack(ack) => {
                let opened = self.session.on_ack(ack.received);
                drop(opened.expect("an honest controller"));
            }
            Body::CutCall(call) => self.on_cut(&call.what),
            Body::Ended(ended) => match ended.failure {
                None => self.is_over = true,
                Some(_) => self.is_void = true,
            },
            Body::Joined(joined) => drop(self.members.insert(joined.worker)),
            _ => {}
        }
    }

    fn on_cut(&mut self, ask: &CutAsk) {
        match ask {
            CutAsk::Where => {
                let done = self.shards.values().map(|it| it.done);
                let furthest = done.filter(|it| *it < TURNS).max();
                let at = furthest.map(|done| (0, done));
                self.say_of_cut(CutWord::Stand(vec![(GROUP, at)]));
            }
            CutAsk::Save(order) => {
                let left: BTreeSet<u32> = self.shards.keys().copied().collect();
                let shards = left.iter().map(|it| id(*it)).collect();
                self.cut = Some((order.cut, left));
                self.say_of_cut(CutWord::Told {
                    cut: order.cut,
                    answer: CutAnswer::Will,
                    shards,
                });
            }
            CutAsk::Forget => self.cut = None,
            // Nothing is kept beside the store there.
            CutAsk::Name { .. } | CutAsk::Committed { .. } => {}
        }
    }

    /// A shard runs a turn, if one has any left; shards that end one are saved, and those that have ended are told.
    pub fn step(&mut self, now: u64, shelf: &mut Shelf, chance: &mut Chance) {
        if self.is_over || self.is_void {
            return;
        }
        let running = self.shards.iter().filter(|(_, it)| it.done < TURNS);
        let running: Vec<u32> = running.map(|(shard, _)| *shard).collect();
        if let Some(shard) = chance.of(&running) {
            let it = self.shards.get_mut(&shard).expect("just seen");
            *it = Standing {
                done: it.done + 1,
                value: turn(it.value, shard, it.done),
            };
        }
        self.save(now, shelf, chance);
        let ended = self.shards.iter().filter(|(_, it)| it.done == TURNS);
        let ended: Vec<u32> = ended.map(|(shard, _)| *shard).collect();
        for first in ended
            .into_iter()
            .filter(|it| !self.told.contains(it))
            .collect::<Vec<_>>()
        {
            self.told.insert(first);
            let JobKey { job, generation } = self.key;
            let range = ShardRange {
                group: GROUP,
                first,
                end: first + 1,
            };
            self.say(&Body::Finished(Finished {
                job,
                generation,
                shards: vec![range],
            }));
        }
    }

    /// One shard or more of an open cut.
    fn save(&mut self, now: u64, shelf: &mut Shelf, chance: &mut Chance) {
        let (Some((cut, left)), Some(place)) = (&self.cut, &self.place) else {
            return;
        };
        let begun = left.iter().filter(|it| self.shards[it].done > 0);
        let begun: Vec<u32> = begun.copied().collect();
        if begun.is_empty() || !chance.one_in(4) {
            return;
        }
        let cut = *cut;
        let key = format!(
            "{place}/parts/{cut}-g{}-w{}-{}",
            self.key.generation.0, self.me.0, self.made
        );
        self.made += 1;
        let (mut object, mut parts, mut shards) = (Vec::new(), Vec::new(), Vec::new());
        for shard in &begun {
            let Standing { done, value } = self.shards[shard];
            let bytes = value.to_le_bytes();
            parts.push(StoredPart {
                dataset: DatasetId(0),
                shard: *shard,
                object: 0,
                start: object.len() as u64,
                bytes: 8,
                checksum: checksum(&bytes),
            });
            object.extend_from_slice(&bytes);
            let is_in_loop = done < TURNS;
            shards.push(SavedShards {
                state: GroupState {
                    at: 1 + u32::from(!is_in_loop),
                    entered: vec![1, done],
                    counters: vec![done],
                },
                turns: is_in_loop.then(|| (0, done - 1)),
                shards: vec![id(*shard)],
            });
        }
        let word = match shelf.put(now, &key, &object, chance) {
            Made::Yes => CutWord::Saved(SavedParts {
                cut,
                shards,
                outcomes: Vec::new(),
                objects: vec![key],
                parts,
                spent_ns: 1,
            }),
            Made::Exists | Made::Unknown => {
                self.cut = None;
                let why = "the store is full".into();
                return self.say_of_cut(CutWord::Unsaved { cut, why });
            }
        };
        if let Some((_, left)) = &mut self.cut {
            left.retain(|it| !begun.contains(it));
        }
        self.say_of_cut(word);
    }
}

pub fn manifest_key(place: &str, cut: u64) -> String {
    format!("{place}/manifests/{cut:020}")
}

fn found(manifest: &CutManifest, shard: u32, shelf: &Shelf) -> Option<Standing> {
    let part = manifest.parts.iter().find(|it| it.shard == shard)?;
    let object = &manifest.objects[part.object as usize];
    let bytes = shelf.part(object, part.start, part.bytes, part.checksum)?;
    Some(Standing {
        done: manifest.states.of(id(shard)).counters[0],
        value: u64::from_le_bytes(bytes.try_into().ok()?),
    })
}
