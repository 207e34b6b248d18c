//! What a client's program makes: a worker asks for the partitions that it holds, a few at a time, and has them before the job begins there.
//!
//! # Rules
//! * A partition is asked for when there is room for it: the one before it has come and counts in the worker's budget. So a client sends each value once, to
//!   whoever holds it, and no faster than it is taken.
//! * Who has lost the link to the client begins again on the next with what has not come.
//! * What has come is handed over once, when its shard is made: the shard counts it from then on.
//! * The wait ends when all has come, when the job is released, and with the worker.

use super::super::super::wire::framed;
use super::super::Shared;
use super::Hosted;
use brambling_exchange::transports::tcp::LinkId;
use brambling_memory::held::lock;
use brambling_memory::{Class, Reservation};
use brambling_program::{DatasetId, Plan, Source, Value};
use brambling_protocol::WorkerId;
use brambling_protocol::message::{BadPart, Message, Part, Parts, Prepare};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

/// A partition.
type Of = (DatasetId, u32);

/// So many partitions are asked for at once, whatever their size: the client makes one while another is on its way. Small ones are asked for until so many
/// bytes are on their way, as the last one lets expect, so that a round trip is not waited for by each.
const ASKED_MIN: usize = 2;
const ASKED_BYTES: usize = 1 << 18;
const ASKED_MAX: usize = 256;

/// Partitions on their way from the client.
#[derive(Default)]
pub(super) struct Arriving {
    parts: Parts,
    come: VecDeque<(Of, Vec<u8>)>,
}

/// Values that have come, until their shards are made.
#[derive(Default)]
pub(super) struct Given {
    values: Mutex<BTreeMap<Of, (Value, Reservation)>>,
    datasets: Mutex<BTreeSet<DatasetId>>,
}

impl Given {
    /// Hands over what has come of a dataset, which is to be asked for.
    pub(super) fn source(self: &Arc<Given>, dataset: DatasetId) -> Source {
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
        if let Some(whole) = state.given.parts.take(part)? {
            state.given.come.push_back((of, whole));
            drop(state);
            self.news.notify_all();
        }
        Ok(())
    }

    /// Takes what the client's program makes of the partitions that are placed here.
    pub(super) fn take_given(
        &self,
        shared: &Shared,
        me: WorkerId,
        prepare: &Prepare,
        plan: &Plan,
        given: &Given,
    ) -> Result<(), String> {
        let mut lacking = lacking(me, prepare, plan, &lock(&given.datasets));
        let mut asked = (None, 0);
        let mut at_once = ASKED_MIN;
        while !lacking.is_empty() {
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
            if let Some((of, bytes)) = come
                && lacking.front() == Some(&of)
            {
                at_once = (ASKED_BYTES / bytes.len().max(1)).clamp(ASKED_MIN, ASKED_MAX);
                self.keep(shared, plan, given, of, bytes)?;
                lacking.pop_front();
                asked.1 = asked.1.max(1) - 1;
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

    fn keep(
        &self,
        shared: &Shared,
        plan: &Plan,
        given: &Given,
        of: Of,
        bytes: Vec<u8>,
    ) -> Result<(), String> {
        let (dataset, index) = of;
        let name = &plan.program.spec().datasets[dataset.index()].name;
        let mut input = &bytes[..];
        let value = Value::decode(plan.program.payload_type(dataset), &mut input);
        let value = match (value, input) {
            (Ok(value), []) => value,
            (Ok(_), _) => {
                return Err(format!(
                    "dataset `{name}`: the client has sent bytes too many"
                ));
            }
            (Err(error), _) => return Err(format!("dataset `{name}`: {error}")),
        };
        let room = shared.budget.reserve(Class::Resident, value.bytes() as u64);
        let room = room.map_err(|error| {
            format!("there is no room for partition {index} of dataset `{name}`: {error}")
        })?;
        lock(&given.values).insert(of, (value, room));
        Ok(())
    }
}

/// The partitions that are placed here, of datasets that the client's program makes.
fn lacking(
    me: WorkerId,
    prepare: &Prepare,
    plan: &Plan,
    made: &BTreeSet<DatasetId>,
) -> VecDeque<Of> {
    let ours = prepare.map.iter().filter(|range| range.entry.owner == me);
    let partitions = ours.flat_map(|range| {
        let in_group = |dataset: &&DatasetId| plan.group_of_dataset[dataset.index()] == range.group;
        let datasets: Vec<DatasetId> = made.iter().filter(in_group).copied().collect();
        let indices = range.first..range.end;
        indices.flat_map(move |index| datasets.clone().into_iter().map(move |it| (it, index)))
    });
    partitions.collect()
}
