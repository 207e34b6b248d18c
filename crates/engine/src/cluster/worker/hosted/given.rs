//! What a client's program makes: a worker asks for the partitions that it holds, a few at a time, and has them before the job begins there.
//!
//! # Rules
//! * A partition is asked for when the one before it has come. So a client sends each value once, to whoever holds it, and no faster than it is taken.
//! * It counts in the job's budget from its first part on, and is made of its parts as they come: it lies here once.
//! * Who has lost the link to the client begins again on the next with what has not come.
//! * What has come is handed over once, when its shard is made: the shard counts it from then on.
//! * The wait ends when all has come, when the job is released, and with the worker.

use super::super::super::wire::framed;
use super::super::WorkerShared;
use super::Hosted;
use brambling_exchange::transports::tcp::LinkId;
use brambling_memory::held::lock;
use brambling_memory::{Budget, Class, Reservation};
use brambling_program::{DatasetId, Decoder, PartitionSource, Plan, Value};
use brambling_protocol::WorkerId;
use brambling_protocol::message::{BadPart, Message, Part, Prepare};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

/// A partition.
type Of = (DatasetId, u32);

/// So many partitions are asked for at once, whatever their size: the client makes one while another is on its way. Small ones are asked for until so many
/// bytes are on their way, as the last one lets expect, so that a round trip is not waited for by each.
const ASKED_MIN: usize = 2;
const ASKED_BYTES: u64 = 1 << 18;
const ASKED_MAX: usize = 256;

/// Parts on their way from the client.
#[derive(Default)]
pub(super) struct Arriving {
    /// How much of which partition has come, and how much it is.
    at: Option<(Of, u64, u64)>,
    come: VecDeque<Come>,
}

/// A part that has come.
struct Come {
    of: Of,
    whole_bytes: u64,
    first_byte: u64,
    bytes: Vec<u8>,
}

impl Arriving {
    /// A part that follows those before it, or begins a partition.
    fn take(&mut self, of: Of, part: &Part<'_>) -> Result<(), BadPart> {
        let Part {
            whole_bytes,
            first_byte,
            bytes,
            ..
        } = *part;
        let (whole, here) = match self.at {
            Some((begun, whole, here)) if first_byte > 0 && begun == of => (whole, here),
            _ => (whole_bytes, 0),
        };
        let end = here.checked_add(bytes.len() as u64).ok_or(BadPart)?;
        let is_next = whole_bytes == whole && first_byte == here && end <= whole;
        if !is_next || (bytes.is_empty() && whole > 0) {
            return Err(BadPart);
        }
        self.at = (end < whole).then_some((of, whole, end));
        self.come.push_back(Come {
            of,
            whole_bytes,
            first_byte,
            bytes: bytes.to_vec(),
        });
        Ok(())
    }
}

/// A partition of which some has come.
struct Coming {
    name: String,
    decoder: Decoder,
    room: Reservation,
    left_bytes: u64,
}

/// Values that have come, until their shards are made.
#[derive(Default)]
pub(super) struct GivenPartitions {
    values: Mutex<BTreeMap<Of, (Value, Reservation)>>,
    datasets: Mutex<BTreeSet<DatasetId>>,
}

impl GivenPartitions {
    /// Hands over what has come of a dataset, which is to be asked for.
    pub(super) fn source(self: &Arc<GivenPartitions>, dataset: DatasetId) -> PartitionSource {
        lock(&self.datasets).insert(dataset);
        let given = self.clone();
        Arc::new(move |index, _| {
            let taken = lock(&given.values).remove(&(dataset, index));
            taken.expect("a job begins when all has come").0
        })
    }
}

impl Hosted {
    /// A part of a partition that was asked for.
    pub(in super::super) fn on_given(
        &self,
        from: LinkId,
        of: (DatasetId, u32),
        part: &Part<'_>,
    ) -> Result<(), BadPart> {
        let mut state = self.state();
        if state.from != Some(from) {
            return Ok(());
        }
        state.given.take(of, part)?;
        drop(state);
        self.news.notify_all();
        Ok(())
    }

    /// Takes what the client's program makes of the partitions that are placed here.
    pub(super) fn take_given(
        &self,
        budget: &Budget,
        shared: &WorkerShared,
        lacking: Vec<Of>,
        plan: &Plan,
        given: &GivenPartitions,
    ) -> Result<(), String> {
        let mut lacking = VecDeque::from(lacking);
        let mut asked = (None, 0);
        let mut at_once = ASKED_MIN;
        let mut coming: Option<Coming> = None;
        while let Some(&next) = lacking.front() {
            let news = self.await_news(|state| {
                let is_other = state.from.is_some() && state.from != asked.0;
                match state.given.come.pop_front() {
                    Some(come) => Some((state.from, Some(come))),
                    None => (is_other || asked.1 == 0).then_some((state.from, None)),
                }
            });
            let Some((link, come)) = news else {
                return Err("the job was released before its data had come".into());
            };
            if link != asked.0 {
                asked = (link, 0);
            }
            if let Some(come) = come.filter(|come| come.of == next) {
                if come.first_byte == 0 {
                    coming = Some(Coming::new(budget, plan, &come)?);
                }
                // Without its beginning it came for who was asked before.
                if let Some(begun) = &mut coming
                    && begun.feed(&come.bytes)?
                    && let Some(whole) = coming.take()
                {
                    at_once = at_once_of(come.whole_bytes);
                    lock(&given.values).insert(next, whole.finish()?);
                    lacking.pop_front();
                    asked.1 = asked.1.max(1) - 1;
                }
            }
            let link = link.expect("who has sent the program has a link");
            while let Some(&(dataset, index)) = lacking.get(asked.1).filter(|_| asked.1 < at_once) {
                let key = self.key;
                let want = Message::Want {
                    key,
                    dataset,
                    index,
                };
                shared.board().say(link, [framed(want)]);
                asked.1 += 1;
            }
        }
        Ok(())
    }
}

/// How many partitions of about so many bytes are asked for at once.
fn at_once_of(bytes: u64) -> usize {
    let fit = ASKED_BYTES / bytes.max(1);
    usize::try_from(fit).map_or(ASKED_MAX, |fit| fit.clamp(ASKED_MIN, ASKED_MAX))
}

impl Coming {
    /// Room for all of a partition, once its first part has come.
    fn new(budget: &Budget, plan: &Plan, come: &Come) -> Result<Coming, String> {
        let (dataset, index) = come.of;
        let name = &plan.program.spec().datasets[dataset.index()].name;
        let room = budget.reserve(Class::Resident, come.whole_bytes);
        let room = room.map_err(|error| {
            format!("there is no room for partition {index} of dataset `{name}`: {error}")
        })?;
        let value = Value::default_of(plan.program.payload_type(dataset));
        Ok(Coming {
            name: name.clone(),
            decoder: Decoder::new(value).expecting(come.whole_bytes),
            room,
            left_bytes: come.whole_bytes,
        })
    }

    /// Takes the next part: whether it was the last.
    fn feed(&mut self, bytes: &[u8]) -> Result<bool, String> {
        self.left_bytes -= bytes.len() as u64;
        let fed = self.decoder.feed(bytes);
        fed.map_err(|error| format!("dataset `{}`: {error}", self.name))?;
        Ok(self.left_bytes == 0)
    }

    /// The value, with its room.
    fn finish(self) -> Result<(Value, Reservation), String> {
        let Coming {
            name,
            decoder,
            mut room,
            ..
        } = self;
        let value = decoder.finish();
        let value = value.map_err(|error| format!("dataset `{name}`: {error}"))?;
        let bytes = value.bytes() as u64;
        match bytes.checked_sub(room.bytes()) {
            None => room.shrink(room.bytes() - bytes),
            Some(more) => {
                let grown = room.grow(more);
                grown.map_err(|error| format!("there is no room for dataset `{name}`: {error}"))?;
            }
        }
        Ok((value, room))
    }
}

/// The partitions that are placed here, of datasets that the client's program makes.
pub(super) fn lacking(
    me: WorkerId,
    prepare: &Prepare,
    plan: &Plan,
    given: &GivenPartitions,
) -> Vec<Of> {
    let made = lock(&given.datasets);
    let ours = prepare.map.iter().filter(|range| range.entry.owner == me);
    let partitions = ours.flat_map(|range| {
        let in_group = |dataset: &&DatasetId| plan.group_of_dataset[dataset.index()] == range.group;
        let datasets: Vec<DatasetId> = made.iter().filter(in_group).copied().collect();
        let indices = range.first..range.end;
        indices.flat_map(move |index| datasets.clone().into_iter().map(move |it| (it, index)))
    });
    partitions.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_protocol::{Generation, JobId, JobKey};

    const OF: Of = (DatasetId(2), 3);

    fn part(first_byte: u64, bytes: &[u8], whole_bytes: u64) -> Part<'_> {
        let (job, generation) = (JobId(1), Generation(0));
        let key = JobKey { job, generation };
        Part {
            key,
            whole_bytes,
            first_byte,
            bytes,
        }
    }

    #[test]
    fn parts_follow_each_other_and_a_first_one_begins_anew() {
        let mut arriving = Arriving::default();
        arriving.take(OF, &part(0, b"ab", 5)).unwrap();
        arriving.take(OF, &part(2, b"cd", 5)).unwrap();
        // Of another partition, out of order, empty, too long, or of another length.
        let other = (DatasetId(2), 4);
        assert!(arriving.take(other, &part(4, b"e", 5)).is_err());
        for wrong in [
            part(3, b"e", 5),
            part(4, b"", 5),
            part(4, b"ef", 5),
            part(4, b"e", 6),
        ] {
            assert!(arriving.take(OF, &wrong).is_err(), "{wrong:?}");
        }
        // On another link all of it is sent again.
        arriving.take(OF, &part(0, b"abcde", 5)).unwrap();
        assert!(arriving.take(OF, &part(5, b"f", 5)).is_err());
        let come: Vec<_> = arriving.come.iter().map(|it| it.bytes.len()).collect();
        assert_eq!(come, [2, 2, 5]);
    }

    #[test]
    fn a_partition_counts_from_its_first_part_on_and_is_made_of_its_parts() {
        let mut p = brambling_program::Program::new("numbers");
        p.load(
            "numbers",
            1,
            brambling_program::Partitioner::Opaque,
            |_, _| vec![0u64],
        );
        let plan = Plan::compile(Arc::new(p), &Default::default()).unwrap();
        let mut bytes = Vec::new();
        brambling_program::Payload::encode(&vec![7u64; 100], &mut bytes);
        let come = |first: usize, end: usize| Come {
            of: (DatasetId(0), 0),
            whole_bytes: bytes.len() as u64,
            first_byte: first as u64,
            bytes: bytes[first..end].to_vec(),
        };
        let budget = Budget::new(1_000, Default::default());
        let first = come(0, 300);
        let mut coming = Coming::new(&budget, &plan, &first).unwrap();
        assert_eq!(budget.in_use_bytes(), bytes.len() as u64);
        assert!(!coming.feed(&first.bytes).unwrap());
        assert!(coming.feed(&come(300, bytes.len()).bytes).unwrap());
        let (value, room) = coming.finish().unwrap();
        assert_eq!(value.get::<Vec<u64>>(), Some(&vec![7; 100]));
        assert_eq!(room.bytes(), value.bytes() as u64);
        let told = Coming::new(&budget, &plan, &first).err().unwrap();
        assert!(
            told.contains("no room for partition 0 of dataset `numbers`"),
            "{told}"
        );
    }
}
