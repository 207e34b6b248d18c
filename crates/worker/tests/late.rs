//! A thread that comes late to a job takes what waits in another's queue, also while that one is in its first kernel.
//!
//! Kernels here wait for each other, which kernels should not: so a shard that nobody takes is seen.

use brambling_memory::Budget;
use brambling_program::{Bindings, Context, Plan, Program};
use brambling_worker::executor::{Job, JobOptions, Pool, QuietCaller};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Far more than anything here takes, also on a machine that is busy with others.
const PATIENCE: Duration = Duration::from_secs(60);

/// A count that is waited for.
#[derive(Clone, Default)]
struct Count(Arc<(Mutex<u32>, Condvar)>);

impl Count {
    fn add(&self) {
        *self.0.0.lock().unwrap() += 1;
        self.0.1.notify_all();
    }

    /// Whether so many have come in time.
    fn reaches(&self, count: u32) -> bool {
        let (mutex, news) = &*self.0;
        let waited = news.wait_timeout_while(mutex.lock().unwrap(), PATIENCE, |it| *it < count);
        !waited.unwrap().1.timed_out()
    }
}

fn job(pool: &Pool, name: &str, step: impl Fn(u32) -> bool + Send + Sync + 'static) -> Arc<Job> {
    let mut p = Program::new(name);
    let x = p.value("x", 2, 0u64);
    p.compute("step")
        .update(&x)
        .run_with_context(move |context: &mut Context<'_>, x: &mut u64| {
            *x = u64::from(step(context.partition()));
        });
    let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
    let options = JobOptions {
        budget: Budget::unlimited(),
        ..JobOptions::default()
    };
    Job::new(plan, pool.parkers(), options)
}

#[test]
fn a_thread_that_comes_late_takes_what_waits() {
    for _ in 0..20 {
        let pool = Pool::new(2, true).unwrap();
        let (begun, gate, met) = (Count::default(), Count::default(), Count::default());
        let keeps = {
            let (begun, gate) = (begun.clone(), gate.clone());
            job(&pool, "keeps", move |partition| {
                if partition == 0 {
                    begun.add();
                    return gate.reaches(1);
                }
                true
            })
        };
        let meets = {
            let met = met.clone();
            job(&pool, "meets", move |_| {
                met.add();
                met.reaches(2)
            })
        };
        std::thread::scope(|scope| {
            let kept = scope.spawn(|| pool.run(&keeps, &mut QuietCaller));
            assert!(begun.reaches(1));
            let meeting = scope.spawn(|| pool.run(&meets, &mut QuietCaller));
            // One thread is in its kernel, and the other one in that of the first job.
            assert!(met.reaches(1));
            gate.add();
            assert!(met.reaches(2), "a shard waits where nobody takes it");
            meeting.join().unwrap().unwrap();
            kept.join().unwrap().unwrap();
        });
    }
}
