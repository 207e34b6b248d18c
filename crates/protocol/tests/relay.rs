//! News that are handed on: everybody who was named hears once, nothing goes round, and lists that others wrote are not taken on trust.

use brambling_program::{BlockId, ExchangeId, GroupId, Position, StageId};
use brambling_protocol::frame::{
    Body, Credit, HEARERS_MAX, Hearers, LoopEnd, MapUpdate, News, NoHearers, Relay, SignalOutcome,
    WorkerRange,
};
use brambling_protocol::{Generation, JobId, WorkerId};
use std::collections::{BTreeMap, VecDeque};

fn news() -> News {
    News::Signal(SignalOutcome {
        job: JobId(1),
        generation: Generation(0),
        position: Position {
            stage: StageId(3),
            turn: 4,
        },
        outcome: true,
        cut: None,
    })
}

fn ranges(ranges: &[(u32, u32)]) -> Vec<WorkerRange> {
    let range = |&(first, end): &(u32, u32)| WorkerRange { first, end };
    ranges.iter().map(range).collect()
}

/// How often each hears when all hand on, and in how many steps.
fn hand_on(hearers: &[WorkerId], fan_out: usize) -> (BTreeMap<WorkerId, u32>, usize) {
    let mut heard = BTreeMap::new();
    let mut under_way = VecDeque::from([(hearers.to_vec(), 0)]);
    let mut steps = 0;
    while let Some((rest, step)) = under_way.pop_front() {
        let said: Vec<(WorkerId, Body<'_>)> = news().relayed(&rest, fan_out).collect();
        assert!(said.len() <= fan_out, "{} are told at once", said.len());
        for (to, body) in said {
            *heard.entry(to).or_default() += 1;
            steps = steps.max(step + 1);
            match body {
                Body::Signal(_) => {}
                Body::Relay(Relay { to: next, .. }) => {
                    let next: Vec<WorkerId> = next.iter().collect();
                    assert!(next.len() < rest.len(), "a list that does not shrink");
                    assert!(!next.contains(&to), "{to} is to tell itself");
                    under_way.push_back((next, step + 1));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    (heard, steps)
}

#[test]
fn everybody_who_was_named_hears_once() {
    for fan_out in [1, 2, 3, 8, 1_000] {
        for count in [0, 1, 2, 7, 8, 9, 73, 585] {
            // With gaps, as where workers have left.
            let hearers: Vec<WorkerId> = (1..=count).map(|at| WorkerId(at * 7 / 5)).collect();
            let (heard, steps) = hand_on(&hearers, fan_out);
            let once: BTreeMap<WorkerId, u32> = hearers.iter().map(|it| (*it, 1)).collect();
            assert_eq!(heard, once, "{count} workers by {fan_out}");
            if count > 0 && count as usize <= fan_out {
                assert_eq!(steps, 1, "few hear at once");
            }
        }
    }
    let thousand: Vec<WorkerId> = (0..1_000).map(WorkerId).collect();
    assert_eq!(hand_on(&thousand, 8).1, 4);
    assert_eq!(hand_on(&thousand[..584], 8).1, 3);
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_of_relays() {
    for name in ["relay-forgets-its-last-child", "relay-goes-round"] {
        brambling_memory::mutants::assert_caught(name, everybody_who_was_named_hears_once);
    }
}

#[test]
fn a_list_is_as_long_as_its_gaps() {
    let hearers: Hearers = [9, 4, 5, 6, 5, 11].map(WorkerId).into_iter().collect();
    let by_hand = Hearers::try_from(ranges(&[(4, 7), (9, 10), (11, 12)]));
    assert_eq!(Ok(hearers.clone()), by_hand);
    assert_eq!(
        hearers.iter().map(|it| it.0).collect::<Vec<_>>(),
        [4, 5, 6, 9, 11]
    );
}

/// Catches lists that would take memory or time beyond their own bytes, and workers that are named twice.
#[test]
fn what_is_no_list_is_refused() {
    let most = HEARERS_MAX as u32;
    for fine in [&[(0, most)][..], &[(u32::MAX - 1, u32::MAX)], &[]] {
        assert!(Hearers::try_from(ranges(fine)).is_ok(), "{fine:?}");
    }
    let refused: &[&[(u32, u32)]] = &[
        &[(0, u32::MAX)],
        &[(0, most), (most, most + 1)],
        &[(4, 4)],
        &[(4, 3)],
        &[(4, 7), (6, 9)],
        &[(9, 10), (4, 7)],
        &[(4, 7), (4, 7)],
    ];
    for list in refused {
        assert_eq!(Hearers::try_from(ranges(list)), Err(NoHearers), "{list:?}");
    }
}

#[test]
fn all_news_are_of_one_generation_of_one_job() {
    let (job, generation) = (JobId(1), Generation(2));
    let position = Position {
        stage: StageId(3),
        turn: 4,
    };
    let all = [
        News::Signal(SignalOutcome {
            job,
            generation,
            position,
            outcome: true,
            cut: None,
        }),
        News::MapUpdate(MapUpdate {
            job,
            generation,
            entries: Vec::new(),
        }),
        News::Credit(Credit {
            job,
            generation,
            exchange: ExchangeId(0),
            group: GroupId(0),
            retired: Vec::new(),
        }),
        News::LoopEnd(LoopEnd {
            job,
            generation,
            body: BlockId(1),
            turns: 5,
        }),
    ];
    for news in all {
        assert!(news.is_of(job, generation), "{news:?}");
        for other in [Generation(1), Generation(3)] {
            assert!(!news.is_of(job, other), "{news:?} {other}");
        }
        assert!(!news.is_of(JobId(2), generation), "{news:?}");
    }
}
