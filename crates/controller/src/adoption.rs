//! Owns how a controller takes over a generation that runs: from what its members hold, with sessions that begin anew. The registry decides when that can be
//! done ([`Adoption`]); nobody's task waits for it (invariant 10).
//!
//! # Why it can be done
//! Each member has said what it holds after it had stopped to believe the controllers before. No shard is on its way, and each is held once: so what they
//! said is where all shards are, and the versions of this term, which are larger than all before, say so to everybody. Which shards have finished, and
//! how the job has failed, members say again. A cut that was open is void.

use crate::{Controller, ControllerEffect};
use brambling_memory::mutants;
use brambling_protocol::frame::{Body, CutAsk, CutCall, Joined};
use brambling_protocol::message::Holding;
use brambling_protocol::{Entry, EntryRange, JobKey, PartitionMap, WorkerId, first_version};
use std::collections::BTreeMap;

/// A generation that can be taken over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adoption {
    /// Which.
    pub key: JobKey,
    /// Where its shards are, by versions of this term.
    pub map: PartitionMap,
    /// Each member, and the others that it knows.
    pub members: BTreeMap<WorkerId, Vec<WorkerId>>,
    /// Members were told already that it has ended well.
    pub has_ended: bool,
}

impl Adoption {
    /// What these members hold of a generation, if that is all of it: each shard once, none on its way, and no member that they name is missing.
    pub fn of(
        key: JobKey,
        shards: &[u32],
        term: u32,
        holdings: &BTreeMap<WorkerId, Holding>,
    ) -> Option<Adoption> {
        let is_of_it = |it: &Holding| it.key == key;
        let of_it = || holdings.iter().filter(|(_, it)| is_of_it(it));
        let are_here = |it: &Holding| {
            let known = |member| holdings.get(member).is_some_and(is_of_it);
            !it.is_busy && it.members.iter().all(known)
        };
        let is_missed = mutants::is_on("jobs-are-adopted-in-part");
        if !of_it().all(|(_, it)| are_here(it) || is_missed) {
            return None;
        }
        let mut map = PartitionMap::new(shards.iter().copied());
        let version = first_version(term);
        let mut held = 0;
        for (&owner, holding) in of_it() {
            for range in &holding.shards {
                let entry = EntryRange {
                    group: range.group,
                    first: range.first,
                    end: range.end,
                    entry: Entry { owner, version },
                };
                // Two that hold one shard are no two owners of one version for long: one of them has just let it go.
                let _ = map.apply(&entry).ok()?;
                held += u64::from(range.end.saturating_sub(range.first));
            }
        }
        let all: u64 = shards.iter().copied().map(u64::from).sum();
        let is_whole = held == all || is_missed;
        is_whole.then(|| Adoption {
            key,
            map,
            members: of_it().map(|(id, it)| (*id, it.members.clone())).collect(),
            has_ended: of_it().any(|(_, it)| it.has_ended),
        })
    }
}

impl Controller {
    /// A controller of a generation that runs already.
    pub fn adopting(adoption: Adoption) -> Controller {
        let Adoption {
            key,
            map,
            members,
            has_ended,
        } = adoption;
        let workers = members.keys().copied();
        let mut controller = Controller::new(key.job, key.generation, map, workers);
        if has_ended {
            controller.ends.have_been_told();
            controller
                .effects
                .push(ControllerEffect::Ended { failure: None });
        }
        for (&to, known) in &members {
            let others = members.keys().filter(|it| **it != to);
            for &worker in others.filter(|it| !known.contains(it)) {
                controller.send(to, &Body::Joined(Joined { worker }));
            }
            // Before all that is said of cuts from here: one of an earlier controller may be open there.
            controller.send(
                to,
                &Body::CutCall(CutCall {
                    job: key.job,
                    generation: key.generation,
                    what: CutAsk::Forget,
                }),
            );
            controller.tell_map(to);
            controller.tell_end(to);
        }
        controller
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::{GroupId, ShardId};
    use brambling_protocol::frame::ShardRange;
    use brambling_protocol::{Generation, JobId};

    const KEY: JobKey = JobKey {
        job: JobId(7),
        generation: Generation(1),
    };

    fn holding(me: u32, others: &[u32], shards: &[(u32, u32)]) -> (WorkerId, Holding) {
        let range = |&(first, end): &(u32, u32)| ShardRange {
            group: GroupId(0),
            first,
            end,
        };
        let holding = Holding {
            key: KEY,
            me: WorkerId(me),
            members: others.iter().copied().map(WorkerId).collect(),
            shards: shards.iter().map(range).collect(),
            is_busy: false,
            has_ended: false,
        };
        (WorkerId(me), holding)
    }

    fn adopted(holdings: impl IntoIterator<Item = (WorkerId, Holding)>) -> Option<Adoption> {
        Adoption::of(KEY, &[4], 3, &holdings.into_iter().collect())
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn mutant_of_jobs_that_are_adopted_in_part() {
        let check = a_generation_is_adopted_when_each_shard_is_held_once;
        brambling_memory::mutants::assert_caught("jobs-are-adopted-in-part", check);
    }

    #[test]
    fn a_generation_is_adopted_when_each_shard_is_held_once() {
        let both = [
            holding(1, &[2], &[(0, 1), (3, 4)]),
            holding(2, &[1], &[(1, 3)]),
        ];
        let adoption = adopted(both.clone()).expect("all is there");
        let index = 3;
        let group = GroupId(0);
        let entry = adoption.map.entry(ShardId { group, index });
        let expected = Entry {
            owner: WorkerId(1),
            version: 3 << 32,
        };
        assert_eq!(entry, Ok(Some(expected)));

        // One that others know has said nothing yet.
        assert_eq!(adopted(both[..1].to_vec()), None);
        // A shard is on its way, and nobody has it.
        assert_eq!(
            adopted([holding(1, &[2], &[(0, 1)]), holding(2, &[1], &[(1, 3)])]),
            None
        );
        // Two have it, since one of them told an older state.
        assert_eq!(
            adopted([holding(1, &[2], &[(0, 2)]), holding(2, &[1], &[(1, 4)])]),
            None
        );
        // One is about to let a shard go.
        let mut busy = both.clone();
        busy[1].1.is_busy = true;
        assert_eq!(adopted(busy), None);
        // One has an older generation.
        let mut other = both;
        other[1].1.key.generation = Generation(0);
        assert_eq!(adopted(other), None);
    }

    #[test]
    fn members_that_do_not_know_each_other_are_told() {
        let both = [holding(1, &[], &[(0, 4)]), holding(2, &[1], &[])];
        let mut controller = Controller::adopting(adopted(both).expect("all is there"));
        let effects = controller.take_effects();
        let frames = |to: u32| {
            let to_it = effects.iter().filter(move |it| {
                matches!(it, ControllerEffect::Send { to: its, .. } if *its == WorkerId(to))
            });
            to_it.count()
        };
        // Who joined, what is void, and the map.
        assert_eq!((frames(1), frames(2)), (3, 2));
    }
}
