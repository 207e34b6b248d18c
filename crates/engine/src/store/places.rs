//! Where in a store a job has its place.

use super::key;
use brambling_memory::held;
use brambling_storage::{DirectoryStore, ObjectKey, ObjectStore, StoreError, StoreLock};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use xxhash_rust::xxh3::xxh3_64;

/// What this process does, if somebody has said it.
static COMMAND: Mutex<Option<String>> = Mutex::new(None);
/// The store of this process.
static STORE: Mutex<Option<String>> = Mutex::new(None);
/// How often a program was begun here.
static BEGUN: Mutex<BTreeMap<u128, u32>> = Mutex::new(BTreeMap::new());
/// What this process has taken. It keeps its places, and their locks, until it ends: it may have ended a job and not its script.
static TAKEN: Mutex<Vec<Taken>> = Mutex::new(Vec::new());
/// Whether what is there already is left alone.
static FRESH: AtomicBool = AtomicBool::new(false);
/// Other live processes that do the same, at most.
const OTHERS_MAX: u32 = 1_000;

/// Whether somebody has said what this process does: then that one also says when it has ended well.
pub fn is_commanded() -> bool {
    held::lock(&COMMAND).is_some()
}

/// The store of all jobs of this process that name none: before the environment, behind arguments.
pub fn set_store(directory: &str) {
    *held::lock(&STORE) = Some(directory.to_owned());
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
    store: DirectoryStore,
    command: ObjectKey,
    place: ObjectKey,
    _lock: StoreLock,
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

/// The place of a job that begins now. Where another live process has it, one beside it, aloud.
pub(super) fn take(
    all: &DirectoryStore,
    name: &str,
    program: u128,
    told: &mut Vec<String>,
) -> Result<DirectoryStore, StoreError> {
    let begun = {
        let mut begun = held::lock(&BEGUN);
        let begun = begun.entry(program).or_insert(0);
        *begun += 1;
        *begun
    };
    let place = format!("{}/{}", command(), plain(name));
    let own = format!("{place}-{:016x}-{begun}", program as u64);
    if all.list(&key(&format!("{own}/manifests")))?.is_empty() && has_another(all, &place)? {
        told.push(format!(
            "what the store has of `{name}` is of another program, which has changed since: this one begins at its start"
        ));
    }
    for other in 1..OTHERS_MAX {
        let place = match other {
            1 => key(&own),
            other => key(&format!("{own}.{other}")),
        };
        let lock = all.lock(&lock_of(&place))?;
        let Some(lock) = lock else { continue };
        if other > 1 {
            told.push(format!(
                "another process runs `{name}` of the same command with this store: this one keeps its snapshots in {place}"
            ));
        }
        let within = all.within(&place)?;
        held::lock(&TAKEN).push(Taken {
            process: std::process::id(),
            store: all.clone(),
            command: command(),
            place,
            _lock: lock,
        });
        return Ok(within);
    }
    unreachable!("there are fewer processes")
}

/// Whether there is a job of that name, of a program that this process has not begun.
fn has_another(all: &DirectoryStore, place: &str) -> Result<bool, StoreError> {
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
    Ok(all.list(&command())?.iter().any(is_another))
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
    let own = std::process::id();
    let own: Vec<Taken> = taken.into_iter().filter(|it| it.process == own).collect();
    let mut commands: Vec<(DirectoryStore, ObjectKey)> = Vec::new();
    for Taken {
        store,
        command,
        place,
        ..
    } in own
    {
        store.clear(&place)?;
        store.delete(&lock_of(&place))?;
        let is_known = |(_, known): &(_, ObjectKey)| *known == command;
        if !commands.iter().any(is_known) {
            commands.push((store, command));
        }
    }
    // What earlier processes have left: of a program that has changed since, for one.
    for (store, command) in commands {
        for left in store.list(&command)? {
            let place = left.as_str().strip_suffix(".lock");
            let Some(place) = place.and_then(ObjectKey::new) else {
                continue;
            };
            if let Some(lock) = store.lock(&left)? {
                store.clear(&place)?;
                store.delete(&left)?;
                drop(lock);
            }
        }
        store.clear_empty(&command)?;
    }
    Ok(())
}

fn lock_of(place: &ObjectKey) -> ObjectKey {
    key(&format!("{place}.lock"))
}
