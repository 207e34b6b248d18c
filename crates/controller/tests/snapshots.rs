//! Cuts are ordered, answered and committed as written in `snapshots.rs`, whatever order shards speak in.

use brambling_controller::snapshots::{SnapshotEffect, SnapshotEvery, SnapshotNotice, Snapshots};
use brambling_program::{CutAnswer, CutPlan, CutTurn, GroupId, GroupState, OutermostLoop, ShardId};
use proptest::prelude::*;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(10);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn shard(group: u32, index: u32) -> ShardId {
    let group = GroupId(group);
    ShardId { group, index }
}

fn state(turns: u64) -> GroupState {
    GroupState {
        at: 3,
        entered: vec![1, turns + 1],
        counters: vec![turns],
    }
}

/// Two groups of three shards and one of one, in a loop.
fn plan(turns: Option<u64>) -> CutPlan {
    CutPlan {
        shards: vec![3, 3, 1],
        loops: vec![OutermostLoop {
            turns,
            is_crossed: false,
            is_split: false,
            takers: vec![GroupId(0), GroupId(1)],
            free: Vec::new(),
            first_stage: "improve".into(),
        }],
    }
}

fn shards() -> Vec<ShardId> {
    let shards = [(0, 3), (1, 3), (2, 1)].into_iter();
    shards
        .flat_map(|(group, count)| (0..count).map(move |index| shard(group, index)))
        .collect()
}

/// Asked where they stand, shards answer: then the order.
fn order(machine: &mut Snapshots, at: Duration, turns: [u64; 2]) -> (u64, CutTurn) {
    machine.on_tick(at);
    for (look, turns) in turns.into_iter().enumerate() {
        assert_eq!(machine.take_effects(), [SnapshotEffect::Look]);
        machine.on_stands(shard(0, 1), Some((0, turns)));
        machine.on_stands(shard(1, 0), Some((0, turns.saturating_sub(2))));
        machine.on_stands(shard(2, 0), None);
        machine.on_tick(at + ms(60) * (look as u32 + 1));
    }
    let [SnapshotEffect::Order { cut, turn, .. }] = machine.take_effects()[..] else {
        panic!("a cut is ordered");
    };
    (cut, turn)
}

#[test]
fn a_cut_is_ordered_twice_as_far_ahead_as_the_fastest_runs() {
    let every = SnapshotEvery::Time(EVERY);
    let mut machine = Snapshots::new(plan(Some(1_000)), every, None);
    machine.on_tick(EVERY - ms(1));
    assert!(machine.take_effects().is_empty(), "not before its time");
    let (cut, turn) = order(&mut machine, EVERY, [100, 110]);
    assert_eq!((cut, turn), (1, CutTurn::After(131)));
    // Somebody has passed it: the margin doubles.
    machine.on_answer(ms(10_200), cut, CutAnswer::Will);
    machine.on_answer(ms(10_200), cut, CutAnswer::Past);
    let void = [SnapshotEffect::Forget, SnapshotEffect::Discard(1)];
    assert_eq!(machine.take_effects(), void);
    let (cut, turn) = order(&mut machine, ms(10_300), [140, 150]);
    assert_eq!((cut, turn), (2, CutTurn::After(191)));
    // What is said of an older cut changes nothing.
    machine.on_answer(ms(10_500), 1, CutAnswer::Past);
    assert_eq!(machine.open(), Some(2));
}

#[test]
fn a_loop_that_somebody_has_left_gets_no_cuts_and_spoils_none() {
    let mut plan = plan(Some(1_000));
    plan.loops.push(OutermostLoop {
        first_stage: "polish".into(),
        ..plan.loops[0].clone()
    });
    let mut machine = Snapshots::new(plan, SnapshotEvery::Time(EVERY), None);
    let (cut, _) = order(&mut machine, EVERY, [900, 901]);
    machine.on_loop_ended(ms(10_200), 0);
    machine.on_answer(ms(10_200), cut, CutAnswer::Past);
    machine.take_effects();
    let mut orders = 0;
    for at in (10_260..15_000).step_by(10) {
        machine.on_tick(ms(at));
        machine.on_stands(shard(0, 0), Some((0, 950)));
        let effects = machine.take_effects();
        orders += effects
            .iter()
            .filter(|it| matches!(it, SnapshotEffect::Order { .. }))
            .count();
    }
    assert_eq!(orders, 0);
    // The next loop is saved, and not further ahead for that.
    let mut ahead = None;
    for at in (15_000..17_000).step_by(10) {
        machine.on_tick(ms(at));
        machine.on_stands(shard(0, 0), Some((1, 10)));
        for effect in machine.take_effects() {
            if let SnapshotEffect::Order { turn, .. } = effect {
                ahead.get_or_insert(turn);
            }
        }
    }
    assert_eq!(ahead, Some(CutTurn::After(12)));
}

#[test]
fn free_loops_are_saved_after_turns_as_well() {
    let mut plan = plan(Some(1_000));
    plan.loops[0].free = plan.loops[0].takers.clone();
    let mut machine = Snapshots::new(plan, SnapshotEvery::Turns(20), None);
    let mut ordered = Vec::new();
    for turns in 0..40u64 {
        machine.on_tick(ms(60 * turns));
        machine.on_stands(shard(0, 0), Some((0, turns)));
        for effect in machine.take_effects() {
            if let SnapshotEffect::Order { cut, turn, .. } = effect {
                assert_eq!(turn, CutTurn::Next);
                ordered.push(turns);
                for it in shards() {
                    machine.on_saved(ms(60 * turns), cut, it, state(turns));
                }
                machine.on_committed(ms(60 * turns), (0, turns + 1), Duration::ZERO);
            }
        }
    }
    assert_eq!(ordered, [20]);
}

#[test]
fn turns_may_be_named() {
    let mut machine = Snapshots::new(plan(Some(1_000)), SnapshotEvery::Turns(20), None);
    let (_, turn) = order(&mut machine, ms(0), [3, 4]);
    assert_eq!(turn, CutTurn::After(20));
    // Of a signal's loop, whoever gives it names the turn.
    let mut machine = Snapshots::new(plan(None), SnapshotEvery::Time(EVERY), None);
    machine.on_tick(EVERY);
    machine.on_stands(shard(0, 0), Some((0, 7)));
    machine.on_tick(EVERY + ms(60));
    let effects = machine.take_effects();
    assert!(matches!(
        effects[..],
        [
            SnapshotEffect::Look,
            SnapshotEffect::Order {
                turn: CutTurn::Signalled,
                ..
            }
        ]
    ));
}

#[test]
fn a_loop_that_ends_voids_a_cut_that_its_signal_did_not_name() {
    let mut machine = Snapshots::new(plan(None), SnapshotEvery::Time(EVERY), None);
    let begin = |machine: &mut Snapshots, at: Duration| {
        machine.on_tick(at);
        machine.on_stands(shard(0, 0), Some((0, 7)));
        machine.on_tick(at + ms(60));
        machine.take_effects();
        machine.open().expect("a cut is open")
    };
    let cut = begin(&mut machine, EVERY);
    // A group that takes no part waits for the loop's end, and has saved.
    machine.on_saved(ms(10_100), cut, shard(2, 0), state(0));
    machine.on_loop_ended(ms(10_100), 0);
    assert_eq!(machine.open(), None);
    assert_eq!(
        machine.take_effects().last(),
        Some(&SnapshotEffect::Discard(cut))
    );
    // One that was named is complete by and by, though the loop has ended.
    let mut machine = Snapshots::new(plan(None), SnapshotEvery::Time(EVERY), None);
    let cut = begin(&mut machine, ms(20_200));
    machine.on_saved(ms(20_300), cut, shard(0, 0), state(9));
    machine.on_loop_ended(ms(20_300), 0);
    assert_eq!(machine.open(), Some(cut));
}

#[test]
fn shards_that_stand_apart_make_a_cut_void_unless_they_are_free() {
    let mut machine = Snapshots::new(plan(Some(100)), SnapshotEvery::Time(EVERY), None);
    let (cut, _) = order(&mut machine, EVERY, [3, 4]);
    assert!(machine.on_saved(ms(10_200), cut, shard(0, 0), state(7)));
    assert!(!machine.on_saved(ms(10_200), cut, shard(0, 1), state(8)));
    assert_eq!(machine.open(), None);
    let mut plan = plan(Some(100));
    plan.loops[0].free = vec![GroupId(0)];
    let mut machine = Snapshots::new(plan, SnapshotEvery::Time(EVERY), None);
    machine.on_tick(EVERY);
    // It may be anywhere, and says nothing of the others.
    machine.on_stands(shard(0, 0), Some((0, 90)));
    for turns in [3, 4] {
        machine.on_stands(shard(1, 0), Some((0, turns)));
        machine.on_tick(EVERY + ms(60) * turns as u32);
    }
    let cut = machine.open().expect("a cut is open");
    for (index, of) in (0..).zip(shards()) {
        let own = if of.group == GroupId(0) {
            state(80 + index)
        } else {
            state(7)
        };
        assert!(machine.on_saved(ms(10_600), cut, of, own));
    }
    let effects = machine.take_effects();
    let Some(SnapshotEffect::Commit { states, .. }) = effects.last() else {
        panic!("all have saved: {effects:?}");
    };
    assert_eq!(states.of(shard(0, 0)), &state(80));
    assert_eq!(states.of(shard(0, 2)), &state(82));
    assert_eq!(states.of(shard(1, 1)), &state(7));
}

#[test]
fn saving_takes_a_small_share_of_the_time() {
    let mut machine = Snapshots::new(plan(Some(1_000)), SnapshotEvery::Time(EVERY), None);
    let (cut, _) = order(&mut machine, EVERY, [3, 4]);
    shards()
        .into_iter()
        .for_each(|it| assert!(machine.on_saved(EVERY, cut, it, state(9))));
    machine.take_effects();
    // It took 0.6 s: then 40 s pass before the next.
    machine.on_committed(EVERY + ms(700), (0, 9), ms(600));
    machine.on_tick(ms(50_000));
    assert!(machine.take_effects().is_empty());
    machine.on_tick(ms(50_200));
    assert_eq!(machine.take_effects(), [SnapshotEffect::Look]);
}

#[test]
fn a_store_that_fails_ends_no_job() {
    let mut machine = Snapshots::new(plan(Some(1_000)), SnapshotEvery::Time(EVERY), None);
    let (cut, _) = order(&mut machine, EVERY, [3, 4]);
    machine.on_failed(ms(10_500), cut);
    assert_eq!(
        machine.take_effects().last(),
        Some(&SnapshotEffect::Discard(cut))
    );
    machine.on_tick(ms(20_499));
    assert!(machine.take_effects().is_empty());
    let (next, _) = order(&mut machine, ms(20_500), [30, 40]);
    assert_eq!(next, cut + 1);
}

#[test]
fn people_are_told_once_why_nothing_is_saved() {
    let told = |change: fn(&mut CutPlan)| {
        let mut plan = plan(Some(1_000));
        change(&mut plan);
        let mut machine = Snapshots::new(plan, SnapshotEvery::Time(EVERY), None);
        let mut told = Vec::new();
        for at in (10_000..60_000).step_by(60) {
            machine.on_tick(ms(at));
            machine.on_stands(shard(0, 0), Some((0, at / 60)));
            let notices = machine
                .take_effects()
                .into_iter()
                .filter_map(|effect| match effect {
                    SnapshotEffect::Tell(notice) => Some(notice),
                    _ => None,
                });
            told.extend(notices);
        }
        told
    };
    let stage = || "improve".to_owned();
    assert_eq!(
        told(|plan| plan.loops[0].is_crossed = true),
        [SnapshotNotice::Crossed(stage())]
    );
    assert_eq!(
        told(|plan| plan.loops[0].is_split = true),
        [SnapshotNotice::Split(stage())]
    );
    assert_eq!(told(|plan| plan.loops.clear()), [SnapshotNotice::NoLoop]);
    // Nobody saves: a turn takes long.
    assert_eq!(told(|_| {}), [SnapshotNotice::LongTurn(stage())]);
}

/// All say that they have saved, in an order and some twice: it is committed with the last of them, and not before.
fn commits_with_the_last(saved: &[ShardId]) {
    let mut machine = Snapshots::new(plan(Some(1_000)), SnapshotEvery::Time(EVERY), None);
    let (cut, _) = order(&mut machine, EVERY, [3, 4]);
    let mut all = shards();
    for it in saved {
        machine.on_saved(EVERY, cut, *it, state(9));
        all.retain(|left| left != it);
        let effects = machine.take_effects();
        let is_committed = matches!(effects[..], [SnapshotEffect::Commit { .. }]);
        assert_eq!(is_committed, all.is_empty(), "{} are missing", all.len());
        if is_committed {
            return;
        }
    }
}

proptest! {
    /// Catches a snapshot without some shard (invariant 8).
    #[test]
    fn a_cut_is_committed_when_every_shard_has_saved(saved in prop::collection::vec(0usize..7, 0..40)) {
        let all = shards();
        let saved: Vec<ShardId> = saved.into_iter().map(|it| all[it]).chain(all.clone()).collect();
        commits_with_the_last(&saved);
    }
}

/// A word that came late made the cut void whose manifest was being made, and another was ordered beside it.
#[test]
fn what_could_not_be_written_of_an_earlier_cut_leaves_this_one() {
    let mut machine = Snapshots::new(plan(Some(1_000)), SnapshotEvery::Time(EVERY), None);
    let (first, _) = order(&mut machine, EVERY, [100, 110]);
    machine.give_up(EVERY);
    let _ = machine.take_effects();
    let (second, _) = order(&mut machine, EVERY * 2, [200, 210]);
    for shard in shards() {
        assert!(machine.on_saved(EVERY * 2, second, shard, state(231)));
    }
    let effects = machine.take_effects();
    assert!(matches!(effects[..], [SnapshotEffect::Commit { cut, .. }] if cut == second));
    machine.on_failed(EVERY * 2, first);
    machine.on_tick(EVERY * 9);
    assert!(machine.take_effects().is_empty(), "it is being made");
    machine.on_failed(EVERY * 9, second);
    assert_eq!(machine.take_effects(), [SnapshotEffect::Discard(second)]);
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_of_incomplete_cuts_are_caught() {
    brambling_memory::mutants::assert_caught("commits-incomplete-cuts", || {
        commits_with_the_last(&shards());
    });
}
