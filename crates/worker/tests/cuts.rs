//! A shard saves at the cut that it was told of, once, and says where it has passed one.
//!
//! What is saved then, and that a job begins with it, random programs show (`simulation/tests/cuts.rs`).

use brambling_program::{
    Bindings, CutAnswer, CutTurn, ExchangeId, GroupId, LoopId, Plan, Program, ShardId, StageId,
    Turn,
};
use brambling_worker::{Next, Shard, Surroundings};
use std::sync::Arc;

/// All there is has come; loops have ended when it is said; a signal is true, and has a cut after one of its turns.
struct Around {
    ended: bool,
    cut_after: Option<Turn>,
}

impl Surroundings for Around {
    fn is_complete(&mut self, _: ExchangeId, _: Turn) -> bool {
        true
    }
    fn has_room(&mut self, _: ExchangeId, _: Turn) -> bool {
        true
    }
    fn outcome(&mut self, _: StageId, turn: Turn) -> Option<bool> {
        Some(turn < 10)
    }
    fn has_ended(&mut self, _: LoopId) -> bool {
        self.ended
    }
    fn announce(&mut self, _: LoopId) {}
    fn cut_after(&mut self, _: StageId, turn: Turn) -> Option<u64> {
        (self.cut_after == Some(turn)).then_some(CUT)
    }
}

const GROUP: GroupId = GroupId(0);
const CUT: u64 = 7;

fn around() -> Around {
    Around {
        ended: false,
        cut_after: None,
    }
}

fn plan(is_while: bool) -> Plan {
    let mut p = Program::new("cuts");
    let many = p.dataset::<u64>("many", 2);
    let body = |p: &mut Program| {
        p.compute("count")
            .update(&many)
            .run(|many: &mut u64| *many += 1);
    };
    if is_while {
        let one = p.dataset::<u64>("one", 1);
        p.repeat_while("goes on", &one, |_: &u64| true, body);
    } else {
        p.repeat(10, body);
    }
    p.compute("after").update(&many).run(|_: &mut u64| {});
    Plan::compile(Arc::new(p), &Bindings::default()).unwrap()
}

/// The group whose shards count.
fn group(plan: &Plan) -> GroupId {
    let place = plan.counts.iter().position(|count| *count == 2);
    GroupId(place.unwrap() as u32)
}

fn shard(plan: &Plan) -> Shard {
    let group = group(plan);
    let index = 1;
    Shard::new(ShardId { group, index }, &plan.codes[group.index()])
}

/// Walks on, and comes to the next task but does not run it; the turns of the tasks that ran, and why it stopped.
fn walk(plan: &Plan, shard: &mut Shard, around: &mut Around, tasks: usize) -> (Vec<Turn>, Next) {
    let code = &plan.codes[group(plan).index()];
    let mut ran = Vec::new();
    loop {
        match shard.next(code, around) {
            Next::Run(issue) if ran.len() < tasks => {
                ran.push(issue.turn);
                shard.retire(issue);
            }
            Next::Yield => {}
            stopped => return (ran, stopped),
        }
    }
}

fn counted_shard_saves_where_it_was_told() {
    let plan = plan(false);
    let code = &plan.codes[GROUP.index()];
    let (site, mut around) = (code.cut_site(0), around());
    // Told before the loop, inside of it, and at its last moment.
    for walked in [0, 2, 3] {
        let mut shard = shard(&plan);
        walk(&plan, &mut shard, &mut around, walked);
        let answer = shard.tell_cut(code, CUT, site, CutTurn::After(4));
        assert_eq!(answer, CutAnswer::Will);
        let (ran, stopped) = walk(&plan, &mut shard, &mut around, 100);
        assert_eq!((ran.len(), stopped), (4 - walked, Next::Save));
        let state = shard.group_state();
        assert_eq!(plan.turn_of(GROUP, &state), Some((0, 3)));
        // Until it has saved the answer stays; then it goes on, and saves no more.
        assert_eq!(shard.next(code, &mut around), Next::Save);
        shard.forget_cut(code);
        let (ran, stopped) = walk(&plan, &mut shard, &mut around, 100);
        assert_eq!(
            (ran.as_slice(), stopped),
            (&[4, 5, 6, 7, 8, 9][..], Next::Stalled)
        );
    }
    // In turn 4 it has passed the top of that turn, and behind the loop all of them.
    for walked in [4, 7, 10] {
        let mut shard = shard(&plan);
        walk(&plan, &mut shard, &mut around, walked);
        let answer = shard.tell_cut(code, CUT, site, CutTurn::After(4));
        assert_eq!(answer, CutAnswer::Past);
        let (ran, stopped) = walk(&plan, &mut shard, &mut around, 100);
        assert_eq!((ran.len(), stopped), (10 - walked, Next::Stalled));
    }
}

#[test]
fn a_counted_shard_saves_where_it_was_told() {
    counted_shard_saves_where_it_was_told();
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_of_passed_cuts_are_caught() {
    let check = counted_shard_saves_where_it_was_told;
    brambling_memory::mutants::assert_caught("past-counts-as-will", check);
}

#[test]
fn a_cut_that_is_void_is_passed() {
    let plan = plan(false);
    let code = &plan.codes[GROUP.index()];
    let (mut shard, mut around) = (shard(&plan), around());
    assert_eq!(
        shard.tell_cut(code, CUT, code.cut_site(0), CutTurn::After(3)),
        CutAnswer::Will
    );
    walk(&plan, &mut shard, &mut around, 1);
    shard.forget_cut(code);
    assert_eq!(walk(&plan, &mut shard, &mut around, 100).0.len(), 9);
}

#[test]
fn a_free_shard_saves_where_it_is() {
    let plan = plan(false);
    assert_eq!(plan.cut_plan().loops[0].free, [GROUP]);
    let code = &plan.codes[GROUP.index()];
    for walked in 0..10 {
        let (mut shard, mut around) = (shard(&plan), around());
        walk(&plan, &mut shard, &mut around, walked);
        let answer = shard.tell_cut(code, CUT, code.cut_site(0), CutTurn::Next);
        assert_eq!(answer, CutAnswer::Will);
        let (ran, stopped) = walk(&plan, &mut shard, &mut around, 100);
        // At the end of the turn at hand; of the last one as well.
        let expected = 1;
        assert_eq!((ran.len(), stopped), (expected, Next::Save), "{walked}");
        shard.forget_cut(code);
        let (ran, stopped) = walk(&plan, &mut shard, &mut around, 100);
        assert_eq!(
            (ran.len(), stopped),
            (10 - walked - expected, Next::Stalled)
        );
    }
    // Behind the loop it waits for the loop's end, and saves there.
    let (mut shard, mut around) = (shard(&plan), around());
    walk(&plan, &mut shard, &mut around, 100);
    let answer = shard.tell_cut(code, CUT, code.await_site(0), CutTurn::Next);
    assert_eq!(answer, CutAnswer::Will);
    assert_eq!(shard.next(code, &mut around), Next::Save);
    shard.forget_cut(code);
    around.ended = true;
    // Then it has one more task, and has passed every cut of the loop.
    walk(&plan, &mut shard, &mut around, 1);
    let answer = shard.tell_cut(code, CUT, code.await_site(0), CutTurn::Next);
    assert_eq!(answer, CutAnswer::Past);
}

#[test]
fn an_outcome_names_the_turn() {
    let plan = plan(true);
    let code = &plan.codes[group(&plan).index()];
    let (mut shard, mut around) = (shard(&plan), around());
    walk(&plan, &mut shard, &mut around, 2);
    around.cut_after = Some(4);
    // Of another cut it was told, which is void by now: that one is not meant.
    shard.tell_cut(code, CUT - 1, code.cut_site(0), CutTurn::Signalled);
    // It comes to the outcome before it was told: it gives way, and is told when it is asked next.
    let mut yields = 0;
    let mut turns = 2;
    loop {
        match shard.next(code, &mut around) {
            Next::Run(issue) => {
                turns += 1;
                shard.retire(issue);
            }
            Next::Yield => {
                yields += 1;
                shard.tell_cut(code, CUT, code.cut_site(0), CutTurn::Signalled);
            }
            stopped => {
                assert_eq!(stopped, Next::Save);
                break;
            }
        }
    }
    assert_eq!((yields, turns), (1, 5));
    let state = shard.group_state();
    assert_eq!(plan.turn_of(group(&plan), &state), Some((0, 4)));
    shard.forget_cut(code);
    around.cut_after = None;
    assert_eq!(walk(&plan, &mut shard, &mut around, 100).0.len(), 5);
}
