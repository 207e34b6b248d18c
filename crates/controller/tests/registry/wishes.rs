//! Who wants a shard moved hears what becomes of it.

use crate::callers::{CLIENT, FIRST, OTHER, refusal, say, submit, told, two_workers};
use brambling_controller::registry::{Order, OwnedMessage, Registry};
use brambling_program::{GroupId, ShardId};
use brambling_protocol::message::{Message, Move};
use brambling_protocol::{JobId, WorkerId};
use std::time::Duration;

#[test]
fn who_wants_a_shard_moved_hears_what_becomes_of_it() {
    let mut registry = two_workers();
    let (group, to) = (GroupId(0), WorkerId(2));
    let shard = ShardId { group, index: 1 };
    let wish = |job: Option<u64>, index, to| {
        let (job, shard) = (job.map(JobId), ShardId { group, index });
        Message::Move(Move { job, shard, to })
    };
    let asks = |registry: &mut Registry, wish| {
        let orders = say(registry, OTHER, wish);
        refusal(&orders, OTHER).to_owned()
    };
    assert!(asks(&mut registry, wish(None, 1, to)).contains("no job runs"));
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, CLIENT, submit(&[4]));
    for (wish, why) in [
        (wish(Some(9), 1, to), "no job j9"),
        (wish(Some(2), 1, to), "waits for its turn"),
        (wish(None, 4, to), "no shard 0.4"),
        (wish(None, 1, WorkerId(7)), "no worker w7"),
    ] {
        let text = asks(&mut registry, wish);
        assert!(text.contains(why), "{text}");
    }
    let key = FIRST;
    let ordered = [Order::Move { key, shard, to }];
    assert_eq!(say(&mut registry, OTHER, wish(None, 1, to)), ordered);
    assert!(asks(&mut registry, wish(Some(1), 1, to)).contains("on its way"));
    registry.on_moved(key, shard, to);
    let moved = Move {
        job: Some(key.job),
        shard,
        to,
    };
    assert_eq!(
        told(&registry.take_orders(), OTHER),
        [&OwnedMessage::Moved(moved)]
    );
    say(&mut registry, OTHER, wish(None, 1, to));
    registry.on_stays(key, shard, "no room");
    assert_eq!(refusal(&registry.take_orders(), OTHER), "no room");
    // Nobody is told of what nobody asked for, nor who is gone.
    registry.on_moved(key, shard, to);
    say(&mut registry, OTHER, wish(None, 1, to));
    registry.on_lost(OTHER, Duration::ZERO);
    registry.on_moved(key, shard, to);
    assert_eq!(registry.take_orders(), []);
    // What was on its way when the job ended.
    say(&mut registry, OTHER, wish(None, 1, to));
    registry.on_over(key, None);
    assert!(refusal(&registry.take_orders(), OTHER).contains("job j1 is over"));
    assert!(asks(&mut registry, wish(Some(1), 1, to)).contains("job j1 is over"));
}
