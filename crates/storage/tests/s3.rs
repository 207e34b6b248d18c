//! Stores in buckets, against a server in a process of its own.

#![allow(clippy::print_stderr)] // Who skips a test says so.

#[path = "s3/lossy.rs"]
mod lossy;
#[path = "s3/server.rs"]
mod server;

use brambling_storage::{
    Locking, ObjectKey, ObjectStore, PlacedStore, S3Store, StoreError, StoreTrouble,
};
use lossy::LossyWire;
use server::{KEY, S3Server, SECRET, place, variables};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn key(key: &str) -> ObjectKey {
    ObjectKey::new(key).unwrap()
}

#[test]
fn an_object_is_made_once_and_read_in_parts() {
    let Some(server) = S3Server::start() else {
        return;
    };
    for prefix in ["", "jobs/of me+1"].map(|it| it.replace(' ', "-")) {
        let store = server.store(&prefix);
        store.create(&key("a/b"), b"seven of nine").unwrap();
        let again = store.create(&key("a/b"), b"other").unwrap_err();
        assert_eq!(again.trouble, StoreTrouble::Exists);
        // Not even the same bytes are made twice.
        let same = store.create(&key("a/b"), b"seven of nine").unwrap_err();
        assert_eq!(same.trouble, StoreTrouble::Exists);
        assert_eq!(store.read(&key("a/b"), None).unwrap(), b"seven of nine");
        assert_eq!(store.read(&key("a/b"), Some(6..8)).unwrap(), b"of");
        assert_eq!(store.read(&key("a/b"), Some(6..6)).unwrap(), b"");
        for beyond in [6..14, 20..21] {
            let refused = store.read(&key("a/b"), Some(beyond)).unwrap_err();
            assert!(
                matches!(refused.trouble, StoreTrouble::Damaged(_)),
                "{refused}"
            );
            assert!(refused.to_string().contains("it has 13 bytes"), "{refused}");
        }
        store.create(&key("a/c/d"), b"").unwrap();
        store.create(&key("ab"), b"beside").unwrap();
        assert_eq!(store.list(&key("a")).unwrap(), [key("a/b"), key("a/c/d")]);
        let within = store.within(&key("a")).unwrap();
        assert_eq!(within.read(&key("b"), None).unwrap(), b"seven of nine");
        store.delete(&key("a/b")).unwrap();
        store.delete(&key("a/b")).unwrap();
        for range in [None, Some(0..0), Some(0..3)] {
            let absent = store.read(&key("a/b"), range).unwrap_err();
            assert_eq!(absent.trouble, StoreTrouble::Absent);
        }
        store.clear(&key("a")).unwrap();
        assert!(store.list(&key("a")).unwrap().is_empty());
        store.clear(&key("a")).unwrap();
        assert_eq!(store.read(&key("ab"), None).unwrap(), b"beside");
    }
}

#[test]
fn what_was_not_created_never_was_and_what_is_large_is_whole() {
    let Some(server) = S3Server::start() else {
        return;
    };
    let store = server.store("x");
    let chunk: Vec<u8> = (0..3_000_001u32).map(|it| (it % 251) as u8).collect();
    let mut writer = store.begin(&key("parts/1")).unwrap();
    writer.write(&chunk).unwrap();
    drop(writer);
    assert!(store.list(&key("parts")).unwrap().is_empty());
    let mut writer = store.begin(&key("parts/1")).unwrap();
    (0..20).for_each(|_| writer.write(&chunk).unwrap());
    writer.create().unwrap();
    let all = store
        .read(&key("parts/1"), Some(0..20 * 3_000_001))
        .unwrap();
    assert!(all.chunks(chunk.len()).all(|it| it == chunk));
}

fn conditions_are_honoured() {
    let Some(server) = S3Server::start() else {
        return;
    };
    let (store, other) = (server.store("probed"), server.store("probed"));
    let begun = Instant::now();
    store.probe(&other).unwrap();
    eprintln!("a hundred races took {:.1?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_server_that_honours_conditions_is_taken() {
    conditions_are_honoured();
}

#[test]
fn a_lease_is_of_one_and_leaves_nothing() {
    let Some(server) = S3Server::start() else {
        return;
    };
    let store = server.store("");
    let take = || store.lock(&key("a.lock/1"), &mut |_, _| true).unwrap();
    let Locking::Ours(lock) = take() else {
        panic!("it is free")
    };
    assert!(lock.is_held());
    assert!(matches!(take(), Locking::Held));
    drop(lock);
    assert!(store.list(&key("a.lock")).unwrap().is_empty());
    assert!(matches!(take(), Locking::Ours(_)));
}

#[test]
fn a_server_that_is_killed_loses_and_doubles_nothing() {
    let Some(mut server) = S3Server::start() else {
        return;
    };
    let store = server.store("k");
    let (goes_on, written) = (AtomicBool::new(true), AtomicU32::new(0));
    let write = |writer: usize| {
        let mut made: Vec<(ObjectKey, Result<(), StoreError>)> = Vec::new();
        while goes_on.load(Ordering::Relaxed) {
            let key = key(&format!("{writer}/{}", made.len()));
            let done = store.create(&key, key.as_str().as_bytes());
            made.push((key, done));
            written.fetch_add(1, Ordering::Relaxed);
        }
        made
    };
    let made = std::thread::scope(|scope| {
        let writers = [0, 1].map(|writer| scope.spawn(move || write(writer)));
        for round in 1..4 {
            let until = Instant::now() + Duration::from_secs(30);
            while written.load(Ordering::Relaxed) < 20 * round {
                assert!(Instant::now() < until, "nothing is written");
                std::thread::sleep(Duration::from_millis(1));
            }
            server.kill();
            std::thread::sleep(Duration::from_millis(300));
            server.restart();
        }
        goes_on.store(false, Ordering::Relaxed);
        writers.map(|it| it.join().unwrap()).concat()
    });
    for (key, done) in &made {
        match done {
            Ok(()) => {
                assert_eq!(store.read(key, None).unwrap(), key.as_str().as_bytes());
                let again = store.create(key, b"other").unwrap_err();
                assert_eq!(again.trouble, StoreTrouble::Exists);
            }
            // Nobody else has made it: it must not be called another's.
            Err(error) => assert_ne!(error.trouble, StoreTrouble::Exists, "{error}"),
        }
    }
}

#[test]
fn a_server_that_is_away_is_told_in_time_and_is_used_when_it_is_back() {
    let Some(mut server) = S3Server::start() else {
        return;
    };
    let store = server.store("k");
    store.create(&key("a"), b"a").unwrap();
    server.kill();
    let begun = Instant::now();
    for refused in [
        store.create(&key("b"), b"b").unwrap_err(),
        store.read(&key("a"), None).unwrap_err(),
        store.delete(&key("a")).unwrap_err(),
        store.list(&key("k")).unwrap_err(),
    ] {
        assert!(
            matches!(refused.trouble, StoreTrouble::Unreachable(_)),
            "{refused:?}"
        );
        let text = refused.to_string();
        assert!(text.starts_with("store s3://bucket/k: "), "{text}");
        assert!(text.contains("refused"), "{text}");
        assert!(text.contains("AWS_ENDPOINT_URL"), "{text}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
    server.restart();
    assert_eq!(store.read(&key("a"), None).unwrap(), b"a");
    store.create(&key("b"), b"b").unwrap();
}

fn lost_answers_are_settled() {
    let Some(server) = S3Server::start() else {
        return;
    };
    let wire = LossyWire::to(server.port);
    let store = S3Store::with_variables(&place("w"), &variables(wire.port, KEY, SECRET)).unwrap();
    for (object, losses) in [("a", 1), ("b", 2)] {
        wire.losses.store(losses, Ordering::SeqCst);
        store.create(&key(object), b"ours").unwrap();
        assert_eq!(wire.losses.load(Ordering::SeqCst), 0);
        assert_eq!(store.read(&key(object), None).unwrap(), b"ours");
    }
    // Another's is another's, of the same length too.
    for other in [&b"hers"[..], b"longer than ours"] {
        wire.losses.store(1, Ordering::SeqCst);
        let refused = store.create(&key("a"), other).unwrap_err();
        assert_eq!(refused.trouble, StoreTrouble::Exists);
    }
    assert_eq!(store.read(&key("a"), None).unwrap(), b"ours");
    // All of them are lost: it is told, and nothing waits for ever.
    wire.losses.store(u32::MAX, Ordering::SeqCst);
    let lost = store.create(&key("c"), b"ours").unwrap_err();
    assert!(
        matches!(lost.trouble, StoreTrouble::Unreachable(_)),
        "{lost}"
    );
}

#[test]
fn an_answer_that_is_lost_is_settled_by_the_bytes() {
    lost_answers_are_settled();
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_of_creation_in_buckets_are_caught() {
    use brambling_memory::mutants::assert_caught;
    if S3Server::start().is_none() {
        return;
    }
    assert_caught("lost-answers-are-refusals", lost_answers_are_settled);
    assert_caught("creates-over-others", conditions_are_honoured);
}

#[test]
fn credentials_appear_in_no_text() {
    let Some(server) = S3Server::start() else {
        return;
    };
    let texts = |store: &S3Store| {
        let error = store.create(&key("a"), b"a").unwrap_err();
        let trouble = error.trouble.clone();
        let listed = store.list(&key("a")).unwrap_err();
        let all = format!(
            "{error} {error:?} {listed} {listed:?} {store:?} {}",
            store.name()
        );
        for secret in [
            SECRET,
            KEY,
            "not-the-secret",
            "AKIAUNKNOWN",
            "tokentoken",
            "password",
        ] {
            assert!(!all.contains(secret), "{secret}: {all}");
        }
        (trouble, all)
    };
    let with = |port, key: &str, secret: &str| {
        let mut variables = variables(port, key, secret);
        variables.insert("AWS_SESSION_TOKEN".into(), "tokentoken".into());
        S3Store::with_variables(&place("c"), &variables).unwrap()
    };
    for (id, secret) in [(KEY, "not-the-secret"), ("AKIAUNKNOWN", SECRET)] {
        let (trouble, all) = texts(&with(server.port, id, secret));
        assert!(matches!(trouble, StoreTrouble::Credentials(_)), "{all}");
        assert!(all.contains("set AWS_ACCESS_KEY_ID"), "{all}");
    }
    let mut in_address = server.variables();
    let address = "http://password:not-the-secret@127.0.0.1:1".to_owned();
    in_address.insert("AWS_ENDPOINT_URL".into(), address);
    texts(&S3Store::with_variables(&place("c"), &in_address).unwrap());
    drop(server);
}

#[test]
fn a_bucket_that_is_not_there_is_named() {
    let Some(server) = S3Server::start() else {
        return;
    };
    let Ok(brambling_storage::StoreLocation::S3(place)) =
        brambling_storage::StoreLocation::parse("s3://other-bucket/x")
    else {
        panic!("it is a bucket")
    };
    let store = S3Store::with_variables(&place, &server.variables()).unwrap();
    for refused in [
        store.create(&key("a"), b"a").unwrap_err(),
        store.list(&key("a")).unwrap_err(),
        store.read(&key("a"), None).unwrap_err(),
    ] {
        let text = refused.to_string();
        assert!(
            text.contains("there is no bucket `other-bucket`; make it"),
            "{text}"
        );
    }
}
