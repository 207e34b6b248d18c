//! The links of a net by their names, and what has gone over them: for those who carry frames. Who has not been greeted at the door is not among
//! them.

use super::LinkId;
use super::carried::Carried;
use super::link::Link;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// All of them.
#[derive(Default)]
pub(super) struct OpenLinks(RwLock<Table>);

#[derive(Default)]
struct Table {
    by_id: BTreeMap<LinkId, Arc<Link>>,
    /// The same, for those who poll.
    all: Arc<Vec<Arc<Link>>>,
    /// What has gone over those that are no more.
    ended: Carried,
}

impl Table {
    fn note(&mut self) {
        // The list is made when a link comes or goes, so that whoever polls takes one pointer, and
        // holds no lock while it reads.
        self.all = Arc::new(self.by_id.values().cloned().collect());
    }
}

impl OpenLinks {
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, link: LinkId) -> Option<Arc<Link>> {
        self.read().by_id.get(&link).cloned()
    }

    pub(super) fn all(&self) -> Arc<Vec<Arc<Link>>> {
        self.read().all.clone()
    }

    pub(super) fn insert(&self, link: Arc<Link>) {
        let mut table = self.write();
        table.by_id.insert(link.id(), link);
        table.note();
    }

    pub(super) fn remove(&self, link: LinkId) -> Option<Arc<Link>> {
        let mut table = self.write();
        let link = table.by_id.remove(&link)?;
        // Added in the same step in which the link goes, so that whoever adds up finds its bytes
        // once: among the links or here.
        table.ended += link.carried();
        table.note();
        Some(link)
    }

    /// One has ended that never was among them.
    pub(super) fn add_ended(&self, stranger: &Link) {
        self.write().ended += stranger.carried();
    }

    /// What has gone over all of them until now.
    pub(super) fn carried(&self) -> Carried {
        let table = self.read();
        let mut sum = table.ended;
        table.all.iter().for_each(|link| sum += link.carried());
        sum
    }
}
