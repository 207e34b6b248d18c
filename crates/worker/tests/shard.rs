//! A shard's walk where it meets no task.
//!
//! Catches a shard that keeps its thread for as long as a loop turns in which it has nothing to do. What it runs in which order the random
//! programs check.

use brambling_program::{
    Bindings, ExchangeId, GroupId, LoopId, Plan, Program, ShardId, StageId, Turn,
};
use brambling_worker::{Next, Shard, Surroundings};
use std::sync::Arc;

/// All there is has come, and every signal said no.
struct AllIsThere;

impl Surroundings for AllIsThere {
    fn is_complete(&mut self, _: ExchangeId, _: Turn) -> bool {
        true
    }
    fn has_room(&mut self, _: ExchangeId, _: Turn) -> bool {
        true
    }
    fn outcome(&mut self, _: StageId, _: Turn) -> Option<bool> {
        Some(false)
    }
    fn has_ended(&mut self, _: LoopId) -> bool {
        true
    }
    fn announce(&mut self, _: LoopId) {}
}

/// Its only task stands in a branch that no turn takes.
#[test]
fn a_loop_without_a_task_gives_way_now_and_then() {
    const TURNS: u64 = 5_000;
    let mut p = Program::new("seldom");
    let one = p.dataset::<u64>("one", 1);
    let many = p.dataset::<u64>("many", 3);
    p.repeat(TURNS, |p| {
        let signal = p.signal("now").read(&one).run(|one: &u64| *one > 0);
        let then = |p: &mut Program| {
            let count = p.compute("count").update(&many);
            count.run(|many: &mut u64| *many += 1);
        };
        p.branch(signal, then, |_| {});
    });
    let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
    let group = plan.counts.iter().position(|count| *count == 3).unwrap();
    let id = ShardId {
        group: GroupId(group as u32),
        index: 1,
    };
    let code = &plan.codes[group];
    let mut shard = Shard::new(id, code);
    let mut entered = vec![shard.entered()];
    let end = loop {
        match shard.next(code, &mut AllIsThere) {
            Next::Yield => entered.push(shard.entered()),
            end => break end,
        }
    };
    assert_eq!(end, Next::Finished);
    assert!(entered.len() > 2, "{entered:?}");
    assert!(
        entered.is_sorted_by(|a, b| a < b),
        "each time further on: {entered:?}"
    );
}
