//! A store in memory that fails as stores do: it is full for a while, and what it has is not always what was written.

use brambling_program::{DatasetId, Plan, Rng, ShardId, Value};
use brambling_protocol::kept::{CutManifest, checksum};
use brambling_worker::executor::Restored;
use std::collections::{BTreeMap, BTreeSet};

/// How a store fails.
#[derive(Clone, Copy, Debug)]
pub struct Failings {
    /// One write in so many finds it full, and so do some after it; 0: none does.
    full: u64,
    /// One write in so many is torn or lost, and nobody hears of it; 0: none is.
    torn: u64,
}

impl Failings {
    /// Most stores are good.
    pub fn of(random: &mut Rng) -> Failings {
        let mut pick = |from: [u64; 4]| from[random.below(4) as usize];
        Failings {
            full: pick([0, 0, 60, 20]),
            torn: pick([0, 0, 0, 16]),
        }
    }
}

/// What has come of a write.
pub enum Put {
    /// As far as the store says it is there.
    Made,
    Refused,
}

/// What was saved: objects, and the manifests that are kept, encoded, with their cuts.
pub struct Store {
    objects: BTreeMap<String, Vec<u8>>,
    manifests: Vec<(u64, Vec<u8>)>,
    failings: Failings,
    /// So many writes find it full.
    full_for: u64,
    /// What it has done to its user.
    pub refused: u64,
    pub damaged: u64,
}

impl Store {
    pub fn new(failings: Failings) -> Store {
        Store {
            objects: BTreeMap::new(),
            manifests: Vec::new(),
            failings,
            full_for: 0,
            refused: 0,
            damaged: 0,
        }
    }

    fn is_full(&mut self, random: &mut Rng) -> bool {
        if self.full_for == 0 && self.failings.full > 0 && random.below(self.failings.full) == 0 {
            self.full_for = 1 + random.below(20);
        }
        let is_full = self.full_for > 0;
        self.full_for = self.full_for.saturating_sub(1);
        self.refused += u64::from(is_full);
        is_full
    }

    /// What is there when it says that this is.
    fn written(&mut self, bytes: Vec<u8>, random: &mut Rng) -> Option<Vec<u8>> {
        if self.failings.torn == 0 || random.below(self.failings.torn) > 0 {
            return Some(bytes);
        }
        self.damaged += 1;
        let mut bytes = bytes;
        let at = random.below(bytes.len().max(1) as u64) as usize;
        match random.below(3) {
            0 => return None,
            1 => bytes.truncate(at),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|it| *it ^= 1),
        }
        Some(bytes)
    }

    /// Makes an object.
    pub fn put(&mut self, key: String, bytes: Vec<u8>, random: &mut Rng) -> Put {
        if self.is_full(random) {
            return Put::Refused;
        }
        if let Some(bytes) = self.written(bytes, random) {
            self.objects.insert(key, bytes);
        }
        Put::Made
    }

    /// There is a snapshot, unless the store is full. The last two are kept, and what none of them names is deleted, unless it is of a later cut.
    pub fn commit(&mut self, manifest: &CutManifest, random: &mut Rng) -> Put {
        if self.is_full(random) {
            return Put::Refused;
        }
        let written = self.written(manifest.encode(), random);
        self.manifests
            .push((manifest.cut, written.unwrap_or_default()));
        let old = self.manifests.len().saturating_sub(2);
        self.manifests.drain(..old);
        let kept = self.manifests.iter();
        let mut kept: Vec<CutManifest> =
            (kept.filter_map(|it| CutManifest::decode(&it.1).ok())).collect();
        // Whoever made it knows what it says.
        kept.push(manifest.clone());
        let named: BTreeSet<&String> = kept.iter().flat_map(|it| &it.objects).collect();
        let cut_of = |key: &String| key.split('-').next().unwrap().parse::<u64>().unwrap();
        self.objects
            .retain(|key, _| cut_of(key) > manifest.cut || named.contains(key));
        Put::Made
    }

    /// The newest snapshot turns out to be of no use: the one before it is used.
    pub fn forget_newest(&mut self) {
        self.manifests.pop();
    }

    /// The newest snapshot that can be read, and the newest cut that there has been.
    pub fn newest(&mut self) -> Option<CutManifest> {
        while let Some((_, newest)) = self.manifests.last() {
            if let Ok(manifest) = CutManifest::decode(newest)
                && manifest.parts.iter().all(|part| {
                    let object = &manifest.objects[part.object as usize];
                    let place = (part.start, part.bytes, part.checksum);
                    self.read(object, place).is_some()
                })
            {
                return Some(manifest);
            }
            self.forget_newest();
        }
        None
    }

    /// The bytes of a part, if they are those that were written.
    fn read(&self, object: &str, (start, bytes, sum): (u64, u64, u64)) -> Option<&[u8]> {
        let object = self.objects.get(object)?;
        let place = start as usize..(start + bytes) as usize;
        object.get(place).filter(|it| checksum(it) == sum)
    }

    /// What a worker's shards begin with.
    pub fn restore(
        &self,
        plan: &Plan,
        manifest: &CutManifest,
        is_here: impl Fn(ShardId) -> bool,
    ) -> Restored {
        let mut values: BTreeMap<(DatasetId, u32), Value> = BTreeMap::new();
        for part in &manifest.parts {
            let group = plan.group_of_dataset[part.dataset.index()];
            let index = part.shard;
            if !is_here(ShardId { group, index }) {
                continue;
            }
            let object = &manifest.objects[part.object as usize];
            let bytes = self.read(object, (part.start, part.bytes, part.checksum));
            let mut bytes = bytes.expect("whoever chose the snapshot has looked");
            let table = plan.program.payload_type(part.dataset);
            let value = Value::decode(table, &mut bytes).expect("as it was encoded");
            values.insert((part.dataset, index), value);
        }
        let (states, outcomes) = (manifest.states.clone(), manifest.outcomes.clone());
        let restored = Restored::new(plan, manifest.at, states, outcomes, values, is_here);
        restored.expect("all was saved")
    }
}
