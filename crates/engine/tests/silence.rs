//! A worker that is there, but does not answer, is not waited for without end.

mod support;

use brambling::cluster::{Cluster, ClusterError, Prints, Source};
use brambling::prelude::*;
use brambling::program::{Bindings, DecodeError, Payload, Plan};
use brambling::{Caller, Error, Failure, QuietCaller};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use support::cluster::{controller, options, threads, worker};

/// Whether values may be encoded.
static GATE: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
static IS_ENCODED: AtomicBool = AtomicBool::new(false);

/// A value that is encoded when the test lets it.
#[derive(Clone, Default)]
struct Slow(u32);

impl Payload for Slow {
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("Slow")
    }
    fn heap_bytes(&self) -> usize {
        0
    }
    fn encode(&self, out: &mut Vec<u8>) {
        let (is_open, opened) = &GATE;
        let is_closed = |is_open: &mut bool| !*is_open;
        drop(opened.wait_while(is_open.lock().unwrap(), is_closed));
        IS_ENCODED.store(true, Ordering::Release);
        self.0.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Slow, DecodeError> {
        u32::decode(input).map(Slow)
    }
}

fn slow() -> Program {
    let mut p = Program::new("slow");
    let parts = p.load("parts", 2, Partitioner::Opaque, |part, _| Slow(part));
    p.keep(&parts);
    p
}

struct Only;

impl Source for Only {
    fn program(&self, _: &[u8], _: &Prints) -> Result<Program, String> {
        Ok(slow())
    }
    fn caller(&self) -> Box<dyn Caller> {
        Box::new(QuietCaller)
    }
    fn explain(&self, failure: &Failure) -> String {
        failure.to_string()
    }
    fn cause(&self, _: &Failure) -> Vec<u8> {
        Vec::new()
    }
}

#[test]
fn a_worker_that_does_not_answer_is_not_waited_for_without_end() {
    let (_controller, at) = controller(options());
    let _worker = worker(&at, threads(1), Only);
    let run = |silence| {
        let cluster = Cluster::connect(&at).unwrap().silent_at_most(silence);
        let plan = Plan::compile(Arc::new(slow()), &Bindings::default()).unwrap();
        cluster.run(plan, b"slow", 1, &mut QuietCaller)
    };
    let silent = run(Duration::from_millis(200)).map(drop);
    match silent.expect_err("nothing can have come") {
        Error::Cluster(ClusterError::ResultsGone { worker, why }) => {
            assert_eq!(worker, "w1");
            assert!(why.contains("has said nothing for"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert!(!IS_ENCODED.load(Ordering::Acquire));
    *GATE.0.lock().unwrap() = true;
    GATE.1.notify_all();
    // The cluster is as useful as before.
    run(Duration::from_secs(60)).unwrap();
}
