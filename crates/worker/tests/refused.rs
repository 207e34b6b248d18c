//! A frame that a node cannot take: it counts as received, so it does not come again, and the job has to fail.
//!
//! Catches a job that waits for ever, and a failure of which the cluster does not hear.

mod support;

use brambling_memory::{Budget, Floors};
use brambling_program::tree::TreeNode;
use brambling_program::{Bindings, ExchangeId, Max, Plan, Program, ShardId};
use brambling_protocol::frame::{Body, Data, DataHead, Frame, Packet, Piece, VersionRange};
use brambling_protocol::{Priority, WorkerId};
use brambling_worker::executor::{
    Failure, Job, JobOptions, Membership, Pool, QuietCaller, Transport,
};
use brambling_worker::node::{NodeError, NodeOptions};
use brambling_worker::piece_data::PieceBytes;
use std::sync::{Arc, Mutex};
use support::{JOB, ME, NOW, PEER, options};

/// Keeps what is sent.
#[derive(Default)]
struct Kept(Mutex<Vec<(WorkerId, PieceBytes)>>);

impl Transport for Kept {
    fn send(&self, frames: Vec<(WorkerId, Priority, Packet)>) {
        let frames = frames
            .into_iter()
            .map(|(to, _, packet)| (to, packet.to_bytes()));
        self.0.lock().unwrap().extend(frames);
    }
}

impl Kept {
    /// The failures of which the controller was told.
    fn failures(&self) -> Vec<String> {
        let kept = self.0.lock().unwrap();
        let failure =
            |(to, bytes): &(WorkerId, PieceBytes)| match Frame::decode(bytes).unwrap().0.body {
                Body::Failed(failed) if *to == WorkerId::CONTROLLER => {
                    Some(failed.failure.to_owned())
                }
                _ => None,
            };
        kept.iter().filter_map(failure).collect()
    }
}

/// A member of a job that holds no shard and knows of none; it may hold so many bytes.
fn member(pool: &Pool, budget_bytes: u64, carrier: &Arc<Kept>) -> Arc<Job> {
    let mut p = Program::new("reduce");
    let counts = p.dataset::<u64>("counts", 3);
    p.all_reduce(Max, &counts, &counts);
    let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
    let options = NodeOptions {
        budget: Budget::new(budget_bytes, Floors::of(budget_bytes)),
        ..options(ME, [PEER])
    };
    let membership = Membership {
        node: support::node(&plan, options),
        carrier: carrier.clone(),
        placed: Vec::new(),
    };
    Job::member(plan, pool.parkers(), JobOptions::default(), membership).unwrap()
}

/// A piece of the reduction for its only destination, which is nowhere yet.
fn piece(job: &Job, payload: &[u8]) -> Vec<u8> {
    let exchange = ExchangeId(0);
    let group = job.plan().exchanges[0].as_ref().unwrap().destination;
    let ShardId { group, index } = ShardId { group, index: 0 };
    let head = DataHead {
        job: JOB,
        generation: NOW,
        exchange,
        turn: 0,
        group,
    };
    let (first, end) = (index, index + 1);
    let body = Body::Data(Data {
        head,
        versions: vec![VersionRange {
            first,
            end,
            version: 1,
        }],
        pieces: vec![Piece {
            first,
            end,
            source: TreeNode::leaf(2),
            chunk: 0,
            last: true,
            payload,
        }],
        empties: Vec::new(),
        routes: Vec::new(),
    });
    let frame = Frame {
        priority: Priority::FIRST,
        sequence: Some(0),
        body,
    };
    frame.to_bytes().to_vec()
}

#[test]
fn a_piece_for_which_there_is_no_room_ends_the_job() {
    let carrier = Arc::<Kept>::default();
    let pool = Pool::new(1, true).unwrap();
    let job = member(&pool, 1_000, &carrier);
    let frame = piece(&job, &[7; 2_000]);
    let refused = job.on_frame(PEER, &frame);
    assert!(matches!(refused, Err(NodeError::Router(_))), "{refused:?}");
    // It counts as received: nobody sends it again.
    assert_eq!(job.received(PEER), 1);
    let ended = pool.run(&job, &mut QuietCaller);
    assert!(
        matches!(ended, Err(Failure::OutOfMemory { .. })),
        "{ended:?}"
    );
    let told = carrier.failures();
    let [told] = &told[..] else {
        panic!("{told:?}");
    };
    let begins = "stage `arrival of a piece` on partition 0, sending pieces of exchange `reduce counts`, ran out of memory";
    assert!(told.starts_with(begins), "{told}");
}

#[test]
fn what_no_honest_peer_sends_ends_the_job() {
    let carrier = Arc::<Kept>::default();
    let pool = Pool::new(1, true).unwrap();
    let job = member(&pool, 1 << 20, &carrier);
    let frame = piece(&job, &[7; 20]);
    job.on_frame(PEER, &frame).unwrap();
    let elsewhere = Frame {
        priority: Priority::FIRST,
        sequence: Some(1 << 20),
        body: Body::Joined(brambling_protocol::frame::Joined { worker: PEER }),
    };
    assert_eq!(carrier.failures(), [""; 0]);
    let refused = job.on_frame(PEER, &elsewhere.to_bytes());
    assert!(matches!(refused, Err(NodeError::Session(_))), "{refused:?}");
    let why = "a fault between workers, please report it: a peer's session is broken: frame 1048576 came while frame 1 is missing";
    assert_eq!(carrier.failures(), [why]);
    assert!(job.has_stopped());
    // What comes later changes nothing, and is not told.
    job.on_frame(PEER, &elsewhere.to_bytes()).unwrap_err();
    assert_eq!(carrier.failures(), [why]);
}
