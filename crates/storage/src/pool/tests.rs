use super::*;
use crate::{Delete, FileRead, FileWrite, Flush, NamedFile, Put, Recall, SpillDirectory};
use brambling_memory::{Budget, Class, Floors, Spill, SpillError};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Wake;

/// A directory of its own, which is gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("brambling-pool-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> Arc<NamedFile> {
        Arc::new(NamedFile::create(&self.0.join(name)).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whatever a test wants done.
struct Work<F>(F);

impl<T: Send + 'static, F: FnOnce() -> T + Send + 'static> Request for Work<F> {
    type Done = T;
    fn run(self) -> Result<T, FileError> {
        Ok((self.0)())
    }
    fn name(&self) -> String {
        "working".into()
    }
}

/// Counts how often it is woken, and wakes a thread.
struct Bell {
    rung: AtomicUsize,
    thread: thread::Thread,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

fn bell() -> Arc<Bell> {
    Arc::new(Bell {
        rung: AtomicUsize::new(0),
        thread: thread::current(),
    })
}

impl Bell {
    fn rung(&self) -> usize {
        self.rung.load(Ordering::SeqCst)
    }

    fn wait_for(&self, rung: usize) {
        while self.rung() < rung {
            thread::park();
        }
    }
}

/// Gives a request, again and again if it must, and waits until it has ended as a task would: by its waker alone.
fn done<R: Request>(pool: &FilePool, mut request: R) -> Result<R::Done, FileError> {
    loop {
        let bell = bell();
        match pool.give(request, &bell.clone().into()) {
            Ok(mut ticket) => {
                bell.wait_for(1);
                return ticket
                    .take()
                    .expect("the end lies there before the waker is woken");
            }
            Err(back) => {
                bell.wait_for(1);
                request = back;
            }
        }
    }
}

/// A request that runs until it is told.
fn held() -> (
    Work<impl FnOnce() + Send + 'static>,
    Receiver<()>,
    Sender<()>,
) {
    let (begin, begun) = channel();
    let (end, ended) = channel::<()>();
    let work = move || {
        begin.send(()).unwrap();
        let _ = ended.recv();
    };
    (Work(work), begun, end)
}

fn refused() -> brambling_memory::OutOfMemory {
    Budget::new(10, Floors::default())
        .reserve(Class::Early, 11)
        .unwrap_err()
}

#[test]
fn thousands_of_requests_from_many_threads() {
    let folder = Folder::new("many");
    let (pool, file) = (FilePool::of(3, 8).unwrap(), folder.file("many"));
    let directory: Arc<dyn Spill> = Arc::new(SpillDirectory::open(&folder.0, None).unwrap());
    let bytes = |number: u64| -> Vec<u8> { (0..100).map(|at| (number * 7 + at) as u8).collect() };
    thread::scope(|scope| {
        for thread in 0..8u64 {
            let (pool, file, to) = (&pool, &file, &directory);
            scope.spawn(move || {
                for number in (0..250).map(|at| at * 8 + thread) {
                    let (start, file) = (number * 100, file.clone());
                    let bytes = bytes(number);
                    let write = FileWrite {
                        file: file.clone(),
                        start,
                        bytes: bytes.clone(),
                    };
                    assert_eq!(done(pool, write).unwrap(), bytes);
                    let into = vec![0; 100];
                    let read = FileRead { file, start, into };
                    assert_eq!(done(pool, read).unwrap(), bytes);
                    let put = Put {
                        to: to.clone(),
                        parts: vec![bytes[..30].to_vec(), bytes[30..].to_vec()],
                        refused: refused(),
                    };
                    // Some cannot wait by a waker.
                    let spilled = match number % 3 {
                        0 => pool.finish(put).unwrap(),
                        _ => done(pool, put).unwrap(),
                    };
                    let recall = Recall {
                        spilled,
                        start: 20,
                        into: vec![0; 50],
                    };
                    assert_eq!(done(pool, recall).unwrap(), bytes[20..70]);
                }
            });
        }
    });
    done(&pool, Flush(file)).unwrap();
    done(&pool, Delete(folder.0.join("many"))).unwrap();
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
}

#[test]
fn what_goes_wrong_names_the_file_and_the_cause() {
    let folder = Folder::new("wrong");
    let (pool, file) = (FilePool::start().unwrap(), folder.file("short"));
    let path = folder.0.display().to_string();
    let tells = |error: &FileError, words: &[&str]| {
        let told = error.to_string();
        for word in words {
            assert!(told.contains(word), "{told} has no {word}");
        }
    };
    let missing = folder.0.join("missing");
    tells(
        &NamedFile::open(&missing).unwrap_err(),
        &["opening", &path, "missing", "No such file"],
    );
    let error = done(&pool, Delete(missing)).unwrap_err();
    tells(&error, &["deleting", &path, "missing", "No such file"]);
    done(
        &pool,
        FileWrite {
            file: file.clone(),
            start: 0,
            bytes: vec![1; 70],
        },
    )
    .unwrap();
    let cut = FileRead {
        file: file.clone(),
        start: 60,
        into: vec![0; 11],
    };
    let error = done(&pool, cut).unwrap_err();
    assert!(
        matches!(
            error,
            FileError::Short {
                found_bytes: 70,
                ..
            }
        ),
        "{error:?}"
    );
    tells(
        &error,
        &[
            "reading 11 bytes",
            &path,
            "short",
            "from byte 60",
            "after 70 bytes",
        ],
    );
    assert_eq!(
        done(
            &pool,
            FileRead {
                file,
                start: 60,
                into: vec![0; 10]
            }
        )
        .unwrap(),
        [1; 10]
    );
    // A disk that is full, whatever is written to it.
    let full = NamedFile::with(
        &PathBuf::from("/dev/full"),
        std::fs::OpenOptions::new().write(true),
    );
    let full = FileWrite {
        file: Arc::new(full.unwrap()),
        start: 0,
        bytes: vec![0; 9],
    };
    let error = done(&pool, full).unwrap_err();
    tells(&error, &["writing 9 bytes", "/dev/full", "No space left"]);
    assert!(matches!(
        error,
        FileError::Failed {
            kind: io::ErrorKind::StorageFull,
            ..
        }
    ));
    let to = SpillDirectory::open(&folder.0, Some(100)).unwrap();
    let put = Put {
        to: Arc::new(to),
        parts: vec![vec![0; 101]],
        refused: refused(),
    };
    let error = done(&pool, put).unwrap_err();
    assert!(
        matches!(
            error,
            FileError::Spill(SpillError::Full {
                asked_bytes: 101,
                ..
            })
        ),
        "{error:?}"
    );
}

/// What runs ends, what is queued is cancelled, who waits for room comes again, and nobody waits any more.
fn a_pool_ends_with_requests_in_flight() {
    let pool = FilePool::of(1, 4).unwrap();
    let (work, begun, end) = held();
    let waker = |bell: &Arc<Bell>| Waker::from(bell.clone());
    let (running_bell, queued_bell, room_bell) = (bell(), bell(), bell());
    let mut running = pool.give(work, &waker(&running_bell)).ok().unwrap();
    begun.recv().unwrap();
    let queue = |number| {
        pool.give(Work(move || number), &waker(&queued_bell))
            .ok()
            .unwrap()
    };
    let mut queued: Vec<_> = (0..4).map(queue).collect();
    assert!(pool.give(Work(|| ()), &waker(&room_bell)).is_err());
    assert!(queued[0].take().is_none() && running.take().is_none());
    pool.close();
    for ticket in &mut queued {
        let end = ticket.take().expect("it has ended");
        assert!(matches!(end, Err(FileError::Cancelled { .. })), "{end:?}");
        assert!(ticket.take().is_none(), "taken");
    }
    assert_eq!(
        (queued_bell.rung(), room_bell.rung(), running_bell.rung()),
        (4, 1, 0)
    );
    let mut late = pool.give(Work(|| ()), &waker(&room_bell)).ok().unwrap();
    assert!(matches!(
        late.take(),
        Some(Err(FileError::Cancelled { .. }))
    ));
    assert!(matches!(
        pool.finish(Work(|| ())),
        Err(FileError::Cancelled { .. })
    ));
    let dropper = thread::spawn(move || drop(pool));
    assert!(running.take().is_none());
    end.send(()).unwrap();
    dropper.join().unwrap();
    running_bell.wait_for(1);
    assert_eq!(running.take(), Some(Ok(())));
}

#[test]
fn a_pool_may_end_with_requests_in_flight() {
    a_pool_ends_with_requests_in_flight();
}

#[cfg(feature = "mutants")]
#[test]
fn a_mutant_that_forgets_what_is_queued_is_caught() {
    let check = a_pool_ends_with_requests_in_flight;
    brambling_memory::mutants::assert_caught("pool-forgets-its-queue", check);
}

/// The last handle of a pool may be a request's own.
#[test]
fn a_pool_may_end_on_a_thread_of_its_own() {
    let pool = Arc::new(FilePool::of(1, 4).unwrap());
    let (own, bell) = (pool.clone(), bell());
    let (go, gone) = channel::<()>();
    let work = move || {
        gone.recv().unwrap();
        drop(own);
    };
    let mut ticket = pool.give(Work(work), &bell.clone().into()).ok().unwrap();
    drop(pool);
    go.send(()).unwrap();
    bell.wait_for(1);
    assert_eq!(ticket.take(), Some(Ok(())));
}

/// One that waits for room and does not come again, since its task has ended, keeps nobody else waiting.
#[test]
fn who_does_not_come_again_keeps_nobody_waiting() {
    let pool = FilePool::of(1, 2).unwrap();
    let (work, begun, end) = held();
    let noop = Waker::noop();
    let _running = pool.give(work, noop).ok().unwrap();
    begun.recv().unwrap();
    let queued: Vec<_> = (0..2)
        .map(|_| pool.give(Work(|| ()), noop).ok().unwrap())
        .collect();
    let bells: Vec<_> = (0..5).map(|_| bell()).collect();
    for bell in &bells {
        assert!(pool.give(Work(|| ()), &bell.clone().into()).is_err());
        assert!(
            pool.give(Work(|| ()), &bell.clone().into()).is_err(),
            "asked twice"
        );
    }
    assert_eq!(bells.iter().map(|bell| bell.rung()).sum::<usize>(), 0);
    end.send(()).unwrap();
    bells.iter().for_each(|bell| bell.wait_for(1));
    queued.into_iter().for_each(|ticket| ticket.wait().unwrap());
    assert!(
        bells.iter().all(|bell| bell.rung() == 1),
        "nobody is woken again"
    );
}

#[test]
fn what_nobody_wants_is_not_done() {
    let pool = FilePool::of(1, 9).unwrap();
    let (work, begun, end) = held();
    let mut running = pool.give(work, Waker::noop()).ok().unwrap();
    begun.recv().unwrap();
    let (tell, told) = channel();
    let bell = bell();
    let mut unwanted = pool
        .give(Work(move || tell.send(())), &bell.clone().into())
        .ok()
        .unwrap();
    assert!(unwanted.cancel());
    assert!(!unwanted.cancel() && !running.cancel());
    assert!(matches!(
        unwanted.take(),
        Some(Err(FileError::Cancelled { .. }))
    ));
    end.send(()).unwrap();
    assert_eq!(running.wait(), Ok(()));
    drop(pool);
    assert!(told.recv().is_err(), "it was dropped undone");
    assert_eq!(bell.rung(), 0);
}

#[test]
fn a_fault_of_ours_ends_its_request_alone() {
    let pool = FilePool::of(1, 9).unwrap();
    let faulty = Work(|| {
        // Not a message in the tests' output.
        std::panic::resume_unwind(Box::new("fault"));
    });
    let error = done::<Work<_>>(&pool, faulty).unwrap_err();
    assert!(matches!(error, FileError::Panicked { .. }));
    assert_eq!(done(&pool, Work(|| 7)).unwrap(), 7);
}
