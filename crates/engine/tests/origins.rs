//! Where a failure on a worker began, as its client learns it.

mod support;

use brambling::cluster::{Cluster, Prints, Source};
use brambling::prelude::*;
use brambling::program::{Bindings, KernelError, Plan};
use brambling::{Caller, Error, Failure, FailureKind, Origin, QuietCaller};
use std::sync::Arc;
use support::cluster::{controller, options, threads_and_memory, worker};

/// Fails as its name says: on partition 3, in the third turn.
fn failing(how: &str) -> Program {
    let how = how.to_owned();
    let mut p = Program::new("failing");
    let parts = p.load("parts", 4, Partitioner::Opaque, |part, _| vec![part]);
    p.keep(&parts);
    p.repeat(5, |p| {
        p.compute("goes wrong").update(&parts).run_with_context(
            move |context: &mut Context<'_>, part: &mut Vec<u32>| {
                if context.partition() != 3 || context.turn() != 2 {
                    return Ok(());
                }
                match how.as_str() {
                    "panic" => panic!("on purpose"),
                    // Beyond the budget of the worker.
                    "memory" => part.resize(1 << 24, 0),
                    _ => return Err(KernelError::new("on purpose")),
                }
                Ok(())
            },
        );
    });
    p
}

struct Named;

impl Source for Named {
    fn program(&self, bytes: &[u8], _: &Prints) -> Result<Program, String> {
        Ok(failing(
            std::str::from_utf8(bytes).map_err(|it| it.to_string())?,
        ))
    }
    fn caller(&self) -> Box<dyn Caller> {
        Box::new(QuietCaller)
    }
    fn explain(&self, failure: &Failure) -> String {
        format!("{failure}\nand more of it")
    }
    fn cause(&self, failure: &Failure) -> Vec<u8> {
        match failure {
            Failure::Kernel { .. } => b"its cause".to_vec(),
            // Too much to send.
            _ => vec![7; 1 << 24],
        }
    }
}

/// What is told of the failure, and where it began.
fn failure(cluster: &Cluster, how: &str) -> (String, Origin) {
    let plan = Plan::compile(Arc::new(failing(how)), &Bindings::default()).unwrap();
    let failed = cluster.run(plan, how.as_bytes(), 1, &mut QuietCaller);
    match failed.map(drop).expect_err(how) {
        Error::Failure(Failure::Elsewhere {
            failure,
            origin: Some(origin),
        }) => (failure, *origin),
        other => panic!("{how}: {other:?}"),
    }
}

#[test]
fn a_client_learns_where_a_failure_began() {
    let (_controller, at) = controller(options());
    let _workers = [(); 2].map(|()| worker(&at, threads_and_memory(1, "16MB"), Named));
    let cluster = Cluster::connect(&at).unwrap();

    let (told, origin) = failure(&cluster, "kernel");
    let message = "stage `goes wrong` failed on partition 3 at turn 2: on purpose";
    assert_eq!(told, format!("on worker w2: {message}\nand more of it"));
    let expected = Origin {
        kind: FailureKind::Kernel,
        stage: "goes wrong".into(),
        partition: 3,
        turn: 2,
        message: message.into(),
        cause: b"its cause".into(),
    };
    assert_eq!(origin, expected);

    let (_, panicked) = failure(&cluster, "panic");
    assert_eq!(panicked.kind, FailureKind::Kernel);
    assert!(panicked.message.contains("panicked"), "{panicked:?}");
    assert_eq!(panicked.cause, b"", "it was too much");

    let (told, full) = failure(&cluster, "memory");
    assert_eq!(full.kind, FailureKind::OutOfMemory, "{told}");
    assert_eq!((&*full.stage, full.partition), ("goes wrong", 3));
}
