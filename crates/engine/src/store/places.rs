//! Where in a store a job has its place.

use super::key;
use brambling_memory::held;
use brambling_storage::{LockWait, Locking, ObjectKey, PlacedStore, StoreError, StoreLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use xxhash_rust::xxh3::xxh3_64;

/// What this process does, if somebody has said it.
static COMMAND: Mutex<Option<String>> = Mutex::new(None);
/// The store of this process.
static STORE: Mutex<Option<String>> = Mutex::new(None);
/// How often a program was begun here.
static BEGUN: Mutex<BTreeMap<u128, u32>> = Mutex::new(BTreeMap::new());
/// The places that this process has taken, one for each store and command. It keeps them, and their locks, until it ends: it may have ended a job
/// and not its script.
static TAKEN: Mutex<Vec<Taken>> = Mutex::new(Vec::new());
/// Had by whoever takes a place.
static TAKING: Mutex<()> = Mutex::new(());
/// How often a job looks whether another one has taken the place of both.
const TAKING_GLANCE: Duration = Duration::from_millis(10);
/// Whether what is there already is left alone.
static FRESH: AtomicBool = AtomicBool::new(false);
/// Other live processes that do the same, at most.
const OTHERS_MAX: u32 = 1_000;

/// Whether somebody has said what this process does: then that one also says when it has ended well.
pub fn is_commanded() -> bool {
    held::lock(&COMMAND).is_some()
}

/// The store of all jobs of this process that name none: before the environment, behind arguments.
pub fn set_store(store: &str) {
    *held::lock(&STORE) = Some(store.to_owned());
}

pub(crate) fn of_process() -> Option<String> {
    held::lock(&STORE).clone()
}

/// From now on jobs of this process ignore what an earlier process has stored of them.
pub fn set_fresh(fresh: bool) {
    FRESH.store(fresh, Ordering::Relaxed);
}

pub(super) fn is_fresh() -> bool {
    FRESH.load(Ordering::Relaxed)
}

struct Taken {
    /// The process: one that was forked has neither the place nor the lock.
    process: u32,
    store: Arc<dyn PlacedStore>,
    command: ObjectKey,
    /// The command's, or one beside it.
    number: u32,
    lock: Arc<StoreLock>,
}

/// Names what this process does, as people would say it: the script and its arguments. Processes that do the same find each other's jobs. Without it the
/// process's own arguments and its directory are taken.
///
/// ```
/// brambling::set_command("nightly.py --region north");
/// ```
pub fn set_command(command: &str) {
    *held::lock(&COMMAND) = Some(command.to_owned());
}

/// The directory of this process's command.
fn command() -> ObjectKey {
    let given = held::lock(&COMMAND).clone();
    let said = given.unwrap_or_else(|| {
        let arguments: Vec<String> = std::env::args_os()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        arguments.join("\0")
    });
    let place = std::env::current_dir().unwrap_or_default();
    let hash = xxh3_64(format!("{said}\0{}", place.display()).as_bytes());
    let script = said.split(['\0', ' ']).find(|it| it.ends_with(".py"));
    let script = script
        .or(said.split(['\0', ' ']).next())
        .unwrap_or_default();
    let stem = script.rsplit('/').next().unwrap_or_default();
    key(&format!(
        "{}-{hash:016x}",
        plain(stem.trim_end_matches(".py"))
    ))
}

/// A name as a part of a key.
fn plain(name: &str) -> String {
    let plain = |it: char| match it {
        'a'..='z' | '0'..='9' | '-' => it,
        'A'..='Z' => it.to_ascii_lowercase(),
        _ => '-',
    };
    let name: String = name.chars().map(plain).take(40).collect();
    if name.is_empty() { "job".into() } else { name }
}

/// Where a job's objects are, and what guards them.
pub(super) type PlaceAndLock = (Arc<dyn PlacedStore>, Arc<StoreLock>);

/// The place of a job that begins now, and the lock that guards it. Where another live process has the command's place, one in a place beside it,
/// aloud. None if whoever asked did not wait.
pub(super) fn take(
    all: &Arc<dyn PlacedStore>,
    name: &str,
    program: u128,
    told: &mut Vec<String>,
    waits: &mut LockWait<'_>,
) -> Result<Option<PlaceAndLock>, StoreError> {
    let Some((command, lock)) = take_command(all, name, told, waits)? else {
        return Ok(None);
    };
    let begun = {
        let mut begun = held::lock(&BEGUN);
        let begun = begun.entry(program).or_insert(0);
        *begun += 1;
        *begun
    };
    let place = format!("{command}/{}", plain(name));
    let own = key(&format!("{place}-{:016x}-{begun}", program as u64));
    if all.list(&key(&format!("{own}/manifests")))?.is_empty()
        && has_another(&**all, &command, &place)?
    {
        told.push(format!(
            "what the store has of `{name}` is of another program, which has changed since: this one begins at its start"
        ));
    }
    Ok(Some((all.within(&own)?, lock)))
}

/// The place of this process's command, which it takes once.
fn take_command(
    all: &Arc<dyn PlacedStore>,
    name: &str,
    told: &mut Vec<String>,
    waits: &mut LockWait<'_>,
) -> Result<Option<(ObjectKey, Arc<StoreLock>)>, StoreError> {
    let (process, command) = (std::process::id(), command());
    // Jobs that begin at the same time wait for each other: the process takes a lock once. Who is told meanwhile may want an interpreter.
    let begun = Instant::now();
    let _taking = loop {
        match TAKING.try_lock() {
            Ok(taking) => break taking,
            Err(TryLockError::Poisoned(taking)) => break taking.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
        if !waits(
            "another job of this process takes its place",
            begun.elapsed(),
        ) {
            return Ok(None);
        }
        std::thread::sleep(TAKING_GLANCE);
    };
    let is_it = |it: &&Taken| {
        it.process == process && it.store.name() == all.name() && it.command == command
    };
    if let Some(taken) = held::lock(&TAKEN).iter().find(is_it) {
        let place = place_of(&command, taken.number);
        return Ok(Some((place, taken.lock.clone())));
    }
    for number in 1..OTHERS_MAX {
        let lock = match all.lock(&lock_of(&command, number), waits)? {
            Locking::Ours(lock) => Arc::new(lock),
            Locking::Held => continue,
            Locking::GaveUp => return Ok(None),
        };
        let place = place_of(&command, number);
        if number > 1 {
            told.push(format!(
                "another process runs `{name}` of the same command with this store: this one keeps its snapshots in {place}"
            ));
        }
        held::lock(&TAKEN).push(Taken {
            process,
            store: all.clone(),
            command,
            number,
            lock: lock.clone(),
        });
        return Ok(Some((place, lock)));
    }
    unreachable!("there are fewer processes")
}

/// Whether there is a job of that name, of a program that this process has not begun.
fn has_another(
    all: &dyn PlacedStore,
    command: &ObjectKey,
    place: &str,
) -> Result<bool, StoreError> {
    let begun: Vec<String> = held::lock(&BEGUN)
        .keys()
        .map(|program| format!("{:016x}", *program as u64))
        .collect();
    let is_another = |found: &ObjectKey| {
        let behind = found.as_str().strip_prefix(place);
        let behind = behind.and_then(|behind| behind.strip_prefix('-'));
        let Some((program, rest)) = behind.and_then(|behind| behind.split_once('-')) else {
            return false;
        };
        let is_program = program.len() == 16 && program.bytes().all(|it| it.is_ascii_hexdigit());
        let is_manifest = rest.contains("/manifests/");
        is_program && is_manifest && !begun.iter().any(|known| known == program)
    };
    Ok(all.list(command)?.iter().any(is_another))
}

/// Tells the objects of this run from those of others.
pub(super) fn run_name() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("{:x}-{:x}", now.as_nanos(), std::process::id())
}

/// Takes away what this process's command has stored, in whatever store: its script has ended well, and nobody starts it again to go on. What
/// other live processes of the same command have stays.
///
/// # Errors
/// What may be there still.
pub fn clear_stored() -> Result<(), StoreError> {
    let taken = std::mem::take(&mut *held::lock(&TAKEN));
    let (own, others): (Vec<Taken>, Vec<Taken>) =
        (taken.into_iter()).partition(|it| it.process == std::process::id());
    // Those of the process that this one was forked from.
    drop(others);
    for taken in own {
        let (store, command) = (&taken.store, &taken.command);
        clear(&**store, command, taken.number, taken.lock)?;
        // What earlier processes have left that ran beside others: whose lock can be had, does not live.
        for number in numbers(&**store, command)? {
            let lock = store.lock(&lock_of(command, number), &mut |_, _| false)?;
            if let Locking::Ours(lock) = lock {
                clear(&**store, command, number, Arc::new(lock))?;
            }
        }
        store.clear_empty(&locks_of(command))?;
    }
    Ok(())
}

/// Takes away a place and its lock.
fn clear(
    store: &dyn PlacedStore,
    command: &ObjectKey,
    number: u32,
    lock: Arc<StoreLock>,
) -> Result<(), StoreError> {
    store.clear(&place_of(command, number))?;
    // The name goes first: who finds it locks it.
    store.delete(&lock_of(command, number))?;
    drop(lock);
    Ok(())
}

/// The numbers of a command's places that have locks.
fn numbers(store: &dyn PlacedStore, command: &ObjectKey) -> Result<BTreeSet<u32>, StoreError> {
    let locks = locks_of(command);
    let number = |it: &ObjectKey| {
        let behind = it.as_str().strip_prefix(locks.as_str())?;
        behind.strip_prefix('/')?.split('/').next()?.parse().ok()
    };
    Ok(store.list(&locks)?.iter().filter_map(number).collect())
}

/// The directory of a command, or one beside it.
fn place_of(command: &ObjectKey, number: u32) -> ObjectKey {
    match number {
        1 => command.clone(),
        number => key(&format!("{command}.{number}")),
    }
}

fn locks_of(command: &ObjectKey) -> ObjectKey {
    key(&format!("{command}.locks"))
}

fn lock_of(command: &ObjectKey, number: u32) -> ObjectKey {
    key(&format!("{}/{number}", locks_of(command)))
}
