//! What a client's program makes, as workers ask for it: each partition goes to the worker that holds it, and to nobody else.

use super::Talk;
use crate::Error;
use crate::cluster::ClusterError;
use crate::cluster::wire::framed;
use brambling_exchange::transports::tcp::LinkId;
use brambling_program::DatasetId;
use brambling_protocol::JobKey;
use brambling_protocol::message::{Message, parts};
use brambling_worker::executor::initial;

impl Talk<'_> {
    /// Makes what a partition begins with, and sends it. Nothing of it stays here: who asks again is sent it again.
    pub(super) fn give(
        &mut self,
        link: LinkId,
        key: JobKey,
        (dataset, index): (DatasetId, u32),
    ) -> Result<(), Error> {
        let program = &self.plan.program;
        let count = |dataset: DatasetId| {
            let group = self.plan.group_of_dataset[dataset.index()];
            self.plan.counts[group.index()]
        };
        let is_ours =
            dataset.index() < program.spec().datasets.len() && program.is_made_here(dataset);
        if !is_ours || index >= count(dataset) {
            let worker = &self.worker(link).member.worker;
            return Err(ClusterError::Broken {
                who: format!("worker {worker}"),
                why: format!(
                    "it asks for partition {index} of {dataset}, which the program does not make"
                ),
            }
            .into());
        }
        let mut bytes = Vec::new();
        initial(program, dataset, index, count(dataset))?.encode(&mut bytes);
        let frames = parts(key, &bytes).map(|part| {
            framed(Message::Partition {
                dataset,
                index,
                part,
            })
        });
        self.cluster.board.say(link, frames);
        self.sent_bytes += bytes.len() as u64;
        Ok(())
    }
}
