//! Going on from a snapshot that somebody names: in this process, or on a cluster, which may be another one than the one that made it.
//!
//! A snapshot is chosen once for a process, and taken by the program of its hash. What nobody has written until then, such as arrays of the caller, is made by
//! that program: its script has to be there, unless the program that is kept beside the snapshot makes all that it begins with.

use crate::cluster::JobId;
use crate::store::{NotNear, SnapshotName, each_part, read_values};
use brambling_memory::held;
use brambling_program::{Cut, DatasetId, Plan, Program};
use brambling_protocol::kept::{CutManifest, KeptError, KeptProgram};
use brambling_protocol::message::KeptPlace;
use brambling_storage::{ObjectStore, PlacedStore, StoreError, StoreLocation, StoreTrouble};
use brambling_worker::executor::Restored;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What this process goes on from.
static CHOSEN: Mutex<Option<Choice>> = Mutex::new(None);
/// Names that an error lists, at most.
const LISTED_MAX: usize = 20;

/// Why a snapshot is not gone on from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It has no snapshot of that name.
    #[error("there is no snapshot {name} in {store}; {there}")]
    NoSnapshot {
        /// What was asked for.
        name: String,
        /// The store.
        store: String,
        /// Those that there are.
        there: String,
    },
    /// Several clusters have saved jobs there.
    #[error("{store} has snapshots {name} of several clusters; say which one: {there}")]
    Ambiguous {
        /// What was asked for.
        name: String,
        /// The store.
        store: String,
        /// Those that there are.
        there: String,
    },
    /// Another Brambling has written it.
    #[error("snapshot {name} in {store} cannot be read: {why}")]
    OtherForm {
        /// The snapshot.
        name: String,
        /// The store.
        store: String,
        /// Which versions.
        why: KeptError,
    },
    /// It is damaged, and so are those before it.
    #[error(
        "snapshot {name} in {store} cannot be used, and there is none before it that can: {why}; run the program again"
    )]
    Damaged {
        /// The snapshot.
        name: String,
        /// The store.
        store: String,
        /// What is damaged.
        why: String,
    },
    /// The job has ended.
    #[error(
        "snapshot {name} in {store} is of a job that has ended; its results are read by whoever starts its command again with that store"
    )]
    Ended {
        /// The snapshot.
        name: String,
        /// The store.
        store: String,
    },
    /// The program is not kept beside it.
    #[error(
        "the program of snapshot {name} in {store} cannot be used: {why}; give the script that made it, as in brambling restore {name} FILE.py"
    )]
    NoProgram {
        /// The snapshot.
        name: String,
        /// The store.
        store: String,
        /// Why not.
        why: String,
    },
    /// The script has another program of that name.
    #[error(
        "`{program}` has changed since snapshot {name} was taken: its hash was {then:032x}, and is {now:032x} now; give the script as it was then, or run this one from its start"
    )]
    Changed {
        /// The program.
        program: String,
        /// The snapshot.
        name: String,
        /// The snapshot's.
        then: u128,
        /// The script's.
        now: u128,
    },
    /// The script has other data.
    #[error(
        "the input `{dataset}` of `{program}` has changed since snapshot {name} was taken; give the data as they were then, or run the script from its start"
    )]
    ChangedInput {
        /// The program.
        program: String,
        /// The snapshot.
        name: String,
        /// The input.
        dataset: String,
    },
    /// The script has begun no such program.
    #[error(
        "the script has run no program `{program}`, of which snapshot {name} is (hash {then:032x}); it ran {ran}; give the script, and arguments, that made the snapshot"
    )]
    NotRun {
        /// The snapshot's program.
        program: String,
        /// The snapshot.
        name: String,
        /// Its hash.
        then: u128,
        /// What the script ran.
        ran: String,
    },
}

/// A store, for people who look for a snapshot.
#[derive(Debug)]
pub struct SnapshotStore {
    store: Arc<dyn PlacedStore>,
    /// As other processes find it.
    location: String,
}

/// A snapshot of a store.
#[derive(Clone, Debug)]
pub struct ListedSnapshot {
    /// By which it is asked for.
    pub name: String,
    /// The program's name.
    pub program: String,
    /// The job of a cluster that made it.
    pub job: Option<JobId>,
    /// Its cut.
    pub cut: u64,
    /// Turns of its loop that were done.
    pub turns: u64,
    /// All of it, what earlier ones have saved included.
    pub bytes: u64,
    /// In how many objects.
    pub objects: u64,
    /// Why it cannot be used, as far as can be seen without reading all of it.
    pub trouble: Option<String>,
}

/// A snapshot that a program goes on from. All of it was read and compared with its checksums.
#[derive(Clone, Debug)]
pub struct ChosenSnapshot {
    store: Arc<dyn PlacedStore>,
    location: String,
    name: SnapshotName,
    manifest: CutManifest,
}

/// The snapshot of this process, until its program has begun, and the programs that have.
struct Choice {
    snapshot: ChosenSnapshot,
    is_taken: bool,
    ran: Vec<(String, u128)>,
}

impl SnapshotStore {
    /// Opens a store that is there: a directory, or `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// When there is none, or it cannot be used.
    pub fn open(location: &str) -> Result<SnapshotStore, StoreError> {
        let refused = |why: String| StoreError {
            store: StoreLocation::without_user(location),
            doing: "opening it".into(),
            trouble: StoreTrouble::Other(why),
        };
        let found = StoreLocation::parse(location).map_err(&refused)?;
        let mut location = location.to_owned();
        if let StoreLocation::Directory(directory) = &found {
            if !directory.exists() {
                return Err(refused(
                    "there is no such directory; give the store in which the job was saved".into(),
                ));
            }
            let whole = std::path::absolute(directory);
            location = whole.map_or(location, |it| it.display().to_string());
        }
        let store = found.open()?;
        Ok(SnapshotStore { store, location })
    }

    fn names(&self) -> Result<Vec<SnapshotName>, StoreError> {
        let all = self.store.list_all()?;
        let mut names: Vec<SnapshotName> =
            all.iter().filter_map(SnapshotName::of_manifest).collect();
        names.sort();
        Ok(names)
    }

    /// All snapshots of the store, by place and cut.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn snapshots(&self) -> Result<Vec<ListedSnapshot>, StoreError> {
        let listed = |name: SnapshotName| {
            let mut listed = ListedSnapshot {
                name: name.to_string(),
                program: String::new(),
                job: name.job(),
                cut: name.cut,
                turns: 0,
                bytes: 0,
                objects: 0,
                trouble: None,
            };
            match name.read(&*self.store)? {
                Ok(manifest) => {
                    listed.bytes = manifest.parts.iter().map(|part| part.bytes).sum();
                    listed.objects = manifest.objects.len() as u64;
                    (listed.program, listed.turns) = (manifest.name, manifest.turns);
                }
                Err(why) => listed.trouble = Some(why.to_string()),
            }
            Ok(listed)
        };
        // What goes away meanwhile is not there.
        let is_there = |listed: &Result<ListedSnapshot, StoreError>| {
            !matches!(
                listed,
                Err(StoreError {
                    trouble: StoreTrouble::Absent,
                    ..
                })
            )
        };
        (self.names()?.into_iter().map(listed).filter(is_there)).collect()
    }

    /// The snapshot of a name, as `brambling snapshots` gives it; if it is damaged, the one before it, and `told` hears which and why.
    ///
    /// # Errors
    /// Why there is none that can be used.
    pub fn choose(
        &self,
        name: &str,
        mut told: impl FnMut(String),
    ) -> Result<ChosenSnapshot, RestoreError> {
        let names = self.names()?;
        let asked = self.resolve(name, &names)?;
        let (store, name) = (self.location.clone(), asked.to_string());
        let of_place = names.into_iter().filter(|it| it.place == asked.place);
        let mut before: Vec<SnapshotName> = of_place.filter(|it| it.cut <= asked.cut).collect();
        let mut damage = Vec::new();
        while let Some(next) = before.pop() {
            match self.checked(&next)? {
                Ok(manifest) if manifest.at == Cut::End => {
                    return Err(RestoreError::Ended { name, store });
                }
                Ok(manifest) => {
                    return Ok(ChosenSnapshot {
                        store: self.store.clone(),
                        location: store,
                        name: next,
                        manifest,
                    });
                }
                Err(why) => {
                    if let Some(instead) = before.last() {
                        told(format!(
                            "snapshot {next} is not used: {why}; the one before it, {instead}, is"
                        ));
                    }
                    damage.push(format!("{next}: {why}"));
                }
            }
        }
        let why = damage.join("; ");
        Err(RestoreError::Damaged { name, store, why })
    }

    /// The snapshot of the name that is meant.
    fn resolve(&self, name: &str, names: &[SnapshotName]) -> Result<SnapshotName, RestoreError> {
        let short = |it: &SnapshotName| it.job().map(|job| format!("{job}/{}", it.cut));
        let is_it =
            |it: &&SnapshotName| it.to_string() == name || short(it).as_deref() == Some(name);
        let meant: Vec<SnapshotName> = names.iter().filter(is_it).cloned().collect();
        let (name, store) = (name.to_owned(), self.location.clone());
        match &meant[..] {
            [one] => Ok(one.clone()),
            [] => Err(RestoreError::NoSnapshot {
                name,
                store,
                there: match names {
                    [] => "there is none at all: give the store in which the job was saved".into(),
                    names => format!("there are {}", listed(names)),
                },
            }),
            several => Err(RestoreError::Ambiguous {
                name,
                store,
                there: listed(several),
            }),
        }
    }

    /// What a snapshot consists of, all of it read once; an inner error says what is damaged.
    fn checked(&self, name: &SnapshotName) -> Result<Result<CutManifest, String>, RestoreError> {
        let manifest = match name.read(&*self.store)? {
            Ok(manifest) => manifest,
            Err(why @ (KeptError::Damaged | KeptError::OtherKind(_))) => {
                return Ok(Err(format!("its manifest is damaged: {why}")));
            }
            Err(why) => {
                return Err(RestoreError::OtherForm {
                    name: name.to_string(),
                    store: self.location.clone(),
                    why,
                });
            }
        };
        let objects = name.objects(&self.store)?;
        let whole = each_part(&*objects, &manifest, |_, _| Ok(()))?;
        Ok(whole.map(|()| manifest))
    }
}

fn listed(names: &[SnapshotName]) -> String {
    let first: Vec<String> = (names.iter().take(LISTED_MAX))
        .map(ToString::to_string)
        .collect();
    match names.len().saturating_sub(LISTED_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

impl ChosenSnapshot {
    /// Its whole name.
    pub fn name(&self) -> String {
        self.name.to_string()
    }

    /// Its name as a file's.
    pub fn file_name(&self) -> String {
        match self.name.job() {
            Some(job) => format!("{job}-{}", self.name.cut),
            None => {
                let job = self.name.place.rsplit('/').next().unwrap_or_default();
                format!("{job}-{}", self.name.cut)
            }
        }
    }

    /// Its program's name.
    pub fn program(&self) -> &str {
        &self.manifest.name
    }

    /// Turns of its loop that were done.
    pub fn turns(&self) -> u64 {
        self.manifest.turns
    }

    /// What the program is built of, if that was kept.
    ///
    /// # Errors
    /// Why the program's script is needed.
    pub fn kept_program(&self) -> Result<Vec<u8>, RestoreError> {
        let unusable = |why: String| RestoreError::NoProgram {
            name: self.name(),
            store: self.location.clone(),
            why,
        };
        let bytes = match self.store.read(&self.name.program(), None) {
            Err(StoreError {
                trouble: StoreTrouble::Absent,
                ..
            }) => return Err(unusable("it was not kept".into())),
            read => read?,
        };
        let kept = KeptProgram::decode(&bytes).map_err(|why| unusable(why.to_string()))?;
        let ours = env!("CARGO_PKG_VERSION");
        if kept.version != ours {
            return Err(unusable(format!(
                "brambling {} has kept it, and this is brambling {ours}, which may build another one of it; install that version",
                kept.version
            )));
        }
        if kept.hash != self.manifest.program {
            return Err(unusable(format!(
                "it has hash {:032x}, and the snapshot's program has {:032x}",
                kept.hash, self.manifest.program
            )));
        }
        Ok(kept.bytes)
    }

    /// Something that the program begins with is in its script alone.
    fn lacks(&self, datasets: &[String]) -> RestoreError {
        let names: Vec<String> = datasets.iter().map(|name| format!("`{name}`")).collect();
        RestoreError::NoProgram {
            name: self.name(),
            store: self.location.clone(),
            why: format!(
                "it begins with data of its script, which no snapshot has: {}",
                names.join(", ")
            ),
        }
    }

    /// The data of now have to be those of then, as far as the snapshot tells.
    fn compare_sources(&self, plan: &Plan) -> Result<(), RestoreError> {
        if self.manifest.sources.is_empty() {
            return Ok(());
        }
        let now = crate::store::sources(plan).unwrap_or_default();
        let Some(dataset) = crate::store::changed(&now, &self.manifest.sources) else {
            return Ok(());
        };
        Err(RestoreError::ChangedInput {
            name: self.name(),
            program: self.manifest.name.clone(),
            dataset: plan.program.spec().datasets[dataset.index()].name.clone(),
        })
    }

    /// Where a cluster's controller finds it.
    pub(crate) fn place(&self) -> KeptPlace {
        KeptPlace {
            store: self.location.clone(),
            place: self.name.place.clone(),
            cut: Some(self.name.cut),
        }
    }

    /// What a job of this process begins with.
    pub(crate) fn restored(&self, plan: &Plan) -> Result<Arc<Restored>, RestoreError> {
        let damaged = |why: String| RestoreError::Damaged {
            name: self.name(),
            store: self.location.clone(),
            why,
        };
        let objects = self.name.objects(&self.store)?;
        let values = read_values(&*objects, plan, &self.manifest, |_| true, &NotNear)?;
        let CutManifest {
            at,
            states,
            outcomes,
            ..
        } = self.manifest.clone();
        let restored = Restored::new(
            plan,
            at,
            states,
            outcomes,
            values.map_err(&damaged)?,
            |_| true,
        );
        let restored = restored.ok_or_else(|| damaged("it is not one of this program".into()));
        restored.map(Arc::new)
    }

    /// What a caller is told when a job begins at it.
    pub(crate) fn line(&self) -> String {
        format!(
            "`{}` goes on from snapshot {}: {} turns are done",
            self.manifest.name, self.name, self.manifest.turns
        )
    }
}

/// The next job of the snapshot's program that begins in this process goes on from it, wherever it runs.
pub fn set_restore(snapshot: ChosenSnapshot) {
    *held::lock(&CHOSEN) = Some(Choice {
        snapshot,
        is_taken: false,
        ran: Vec::new(),
    });
}

/// No job goes on from the snapshot any more.
///
/// # Errors
/// When none has.
pub fn end_restore() -> Result<(), RestoreError> {
    let Some(choice) = held::lock(&CHOSEN).take().filter(|it| !it.is_taken) else {
        return Ok(());
    };
    let ran: Vec<String> = (choice.ran.iter())
        .map(|(name, hash)| format!("`{name}` ({hash:032x})"))
        .collect();
    Err(RestoreError::NotRun {
        program: choice.snapshot.manifest.name.clone(),
        name: choice.snapshot.name(),
        then: choice.snapshot.manifest.program,
        ran: match ran.is_empty() {
            true => "none".into(),
            false => ran.join(", "),
        },
    })
}

/// What a program that was kept lacks of its script's data the chosen snapshot has to have.
///
/// # Errors
/// When it has not.
pub fn give_restored(program: &mut Program) -> Result<(), RestoreError> {
    let waits: Vec<DatasetId> = program.to_be_given().collect();
    let chosen = held::lock(&CHOSEN);
    let Some(choice) = chosen.as_ref().filter(|_| !waits.is_empty()) else {
        return Ok(());
    };
    // One that was written by then is there with all its partitions, or is refused as not whole.
    let parts = &choice.snapshot.manifest.parts;
    let (there, lacking): (Vec<DatasetId>, Vec<DatasetId>) =
        (waits.into_iter()).partition(|id| parts.iter().any(|part| part.dataset == *id));
    if !lacking.is_empty() {
        let name = |id: &DatasetId| program.spec().datasets[id.index()].name.clone();
        let names: Vec<String> = lacking.iter().map(name).collect();
        return Err(choice.snapshot.lacks(&names));
    }
    for dataset in there {
        program.give(
            dataset,
            Arc::new(|_, _| unreachable!("the snapshot has all of it")),
        );
    }
    Ok(())
}

/// The snapshot that a job which begins now goes on from.
pub(crate) fn take_restore(plan: &Plan) -> Result<Option<ChosenSnapshot>, RestoreError> {
    let mut chosen = held::lock(&CHOSEN);
    let Some(choice) = chosen.as_mut().filter(|it| !it.is_taken) else {
        return Ok(None);
    };
    let spec = plan.program.spec();
    let (now, then) = (spec.hash(), choice.snapshot.manifest.program);
    if now == then {
        choice.is_taken = true;
        let snapshot = choice.snapshot.clone();
        // Reading all of them takes a while.
        drop(chosen);
        snapshot.compare_sources(plan)?;
        return Ok(Some(snapshot));
    }
    if spec.name == choice.snapshot.manifest.name {
        // Told now, and not once more at the end.
        choice.is_taken = true;
        return Err(RestoreError::Changed {
            program: spec.name.clone(),
            name: choice.snapshot.name(),
            then,
            now,
        });
    }
    choice.ran.push((spec.name.clone(), now));
    Ok(None)
}

/// A snapshot as a controller finds it that is to begin a job at it.
pub(crate) fn found(at: &KeptPlace) -> Result<(Arc<dyn PlacedStore>, CutManifest), String> {
    let unseen = |why: String| {
        format!(
            "the controller cannot read the snapshot: {why}; give a store that its host sees as well"
        )
    };
    let is_directory = matches!(
        StoreLocation::parse(&at.store),
        Ok(StoreLocation::Directory(_))
    );
    if is_directory && !Path::new(&at.store).is_dir() {
        return Err(unseen(format!("its host has no directory {}", at.store)));
    }
    let store = SnapshotStore::open(&at.store).map_err(|error| unseen(error.to_string()))?;
    let name = SnapshotName {
        place: at.place.clone(),
        cut: at.cut.unwrap_or_default(),
    };
    let read = name
        .read(&*store.store)
        .map_err(|error| unseen(error.to_string()))?;
    let manifest = read.map_err(|why| format!("snapshot {name} in {}: {why}", at.store))?;
    let objects = name.objects(&store.store);
    let objects = objects.map_err(|error| unseen(error.to_string()))?;
    Ok((objects, manifest))
}

/// Copies the parts of a snapshot, and compares them with their checksums.
pub(crate) fn copied(
    from: &dyn ObjectStore,
    manifest: &CutManifest,
    mut writer: crate::store::SnapshotWriter,
) -> Result<CutManifest, String> {
    let taken = each_part(from, manifest, |part, bytes| {
        writer.encoded(part.dataset, part.shard, bytes)
    });
    taken.map_err(|error| error.to_string())??;
    let written = writer.finish().map_err(|error| error.to_string())?;
    Ok(CutManifest {
        objects: written.objects,
        parts: written.parts,
        ..manifest.clone()
    })
}
