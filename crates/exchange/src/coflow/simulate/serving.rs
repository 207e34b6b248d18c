//! Owns which group serves a flow, and when groups get their rates anew. How rates are found is in
//! [`super::share`]; when something happens is in [`super::engine`].

use super::engine::{Engine, is_here};
use super::group::{DONE_BYTES, FlowGroup};
use super::units::NOWHERE;
use crate::coflow::policy::{OrderChange, ServiceOrder, Sharing};

/// In which order groups are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupKey {
    order: ServiceOrder,
    unit: u32,
}

impl Engine<'_> {
    /// A policy's order is followed.
    pub(super) fn follow(&mut self, change: OrderChange) {
        let Some(unit) = self.unit_of.get(&change.unit).copied() else {
            return;
        };
        let state = &mut self.all.units[unit as usize];
        let before = std::mem::replace(&mut state.order, change.order);
        if before == change.order {
            return;
        }
        let active = state.active.clone();
        self.count_orders(unit);
        match self.sharing {
            Sharing::Ranked | Sharing::OnePass | Sharing::EndTogether => self.rank_anew(unit),
            Sharing::Classes | Sharing::Weighted(_) => {
                for flow in active {
                    self.serve_elsewhere(flow);
                }
            }
            Sharing::LimitedMultiplexing => {
                if change.order.class > 0 {
                    self.levels.become_heavy(change.unit.coflow);
                }
            }
        }
    }

    /// The group of a unit, which has it alone, is served in another order.
    fn rank_anew(&mut self, unit: u32) {
        let state = &self.all.units[unit as usize];
        let (slot, order) = (state.group, state.order);
        if slot == NOWHERE {
            return;
        }
        let before = self.key_of[slot as usize];
        let after = GroupKey { order, unit };
        self.keys.remove(&before);
        self.keys.insert(after, slot);
        self.key_of[slot as usize] = after;
        self.work_out_from(before.min(after));
    }

    pub(super) fn work_out_from(&mut self, key: GroupKey) {
        self.dirty = Some(self.dirty.map_or(key, |dirty| dirty.min(key)));
    }

    /// In which group a flow is served, apart from whom there, and with which weight.
    fn where_to(&self, flow: u32) -> (GroupKey, u64, f64) {
        let of = &self.all.flows[flow as usize];
        let unit = of.unit;
        let order = self.all.units[unit as usize].order;
        match &self.sharing {
            Sharing::Classes => {
                let order = ServiceOrder { rank: 0, ..order };
                (GroupKey { order, unit: 0 }, 0, 1.0)
            }
            Sharing::Weighted(weights) => {
                let class = usize::from(order.class).min(weights.len() - 1);
                (GroupKey::default(), class as u64, weights[class])
            }
            Sharing::Ranked | Sharing::OnePass => (GroupKey { order, unit }, 0, 1.0),
            Sharing::EndTogether => (GroupKey { order, unit }, u64::from(flow), 1.0),
            Sharing::LimitedMultiplexing => {
                let coflow = self.all.units[unit as usize].key.coflow;
                let rank = self.levels.level(coflow, of.path.links());
                let order = ServiceOrder { class: 0, rank };
                (GroupKey { order, unit: 0 }, 0, 1.0)
            }
        }
    }

    /// The slot of a group, made if there is none, with its flows as of now.
    fn group(&mut self, key: GroupKey) -> u32 {
        let slot = match self.keys.get(&key) {
            Some(slot) => *slot,
            None => {
                let slot = self.spare.pop().unwrap_or_else(|| {
                    self.groups.push(FlowGroup::default());
                    self.key_of.push(key);
                    self.groups.len() as u32 - 1
                });
                self.groups[slot as usize] = FlowGroup::new(self.now);
                self.key_of[slot as usize] = key;
                self.keys.insert(key, slot);
                if self.serves_units() {
                    self.all.units[key.unit as usize].group = slot;
                }
                slot
            }
        };
        self.groups[slot as usize].advance(self.now);
        self.work_out_from(key);
        slot
    }

    /// A flow is served that was not, and has so many bytes left.
    pub(super) fn serve(&mut self, flow: u32, left: f64) {
        if self.sharing == Sharing::LimitedMultiplexing {
            let of = &self.all.flows[flow as usize];
            let coflow = self.all.units[of.unit as usize].key.coflow;
            self.levels.come(coflow, of.path.links());
        }
        self.put(flow, left);
    }

    /// A flow goes to the group that serves it, and has so many bytes left.
    fn put(&mut self, flow: u32, left: f64) {
        let (key, apart, weight) = self.where_to(flow);
        let slot = self.group(key);
        let path = self.all.flows[flow as usize].path;
        let (bundle, target) = self.groups[slot as usize].add(flow, path, apart, weight, left);
        let of = &mut self.all.flows[flow as usize];
        (of.group, of.bundle, of.target) = (slot, bundle, target);
    }

    /// A flow is not served any more where it was.
    pub(super) fn leave(&mut self, flow: u32) {
        let of = &mut self.all.flows[flow as usize];
        let slot = std::mem::replace(&mut of.group, NOWHERE);
        if slot == NOWHERE {
            return;
        }
        let (bundle, target) = (of.bundle, of.target);
        let (flows, group) = (&self.all.flows, &mut self.groups[slot as usize]);
        group.advance(self.now);
        group.remove(bundle, target, |flow, place, target| {
            is_here(flows, slot, flow, place, target)
        });
        let key = self.key_of[slot as usize];
        if group.flows == 0 {
            self.groups[slot as usize] = FlowGroup::new(self.now);
        }
        self.work_out_from(key);
    }

    fn serve_elsewhere(&mut self, flow: u32) {
        let left = self.all.left(&self.groups, flow, self.now);
        if left <= DONE_BYTES {
            // It is done where it is, or else it would wait elsewhere for its last bytes.
            return;
        }
        self.leave(flow);
        self.put(flow, left);
    }

    /// Links look anew whom they serve: flows go to the group of their level.
    pub(super) fn level_anew(&mut self) {
        let served = self.served.iter();
        let units = served.flat_map(|coflow| &self.all.coflows[*coflow as usize].units);
        let flows = units.flat_map(|unit| &self.all.units[*unit as usize].active);
        let levels = &self.levels;
        let may_differ = |flow: &u32| {
            let flow = &self.all.flows[*flow as usize];
            flow.group != NOWHERE && levels.may_differ(flow.path.links())
        };
        for flow in flows.copied().filter(may_differ).collect::<Vec<u32>>() {
            let slot = self.all.flows[flow as usize].group;
            if self.where_to(flow).0 != self.key_of[slot as usize] {
                self.serve_elsewhere(flow);
            }
        }
        self.levels.settle();
    }

    /// Works out the rates of groups that may have others now.
    pub(super) fn work_out(&mut self) {
        let Some(dirty) = self.dirty.take() else {
            return;
        };
        self.outcome.rounds += 1;
        self.free.fill(self.all.capacity);
        let ends_together = self.sharing == Sharing::EndTogether;
        let slots: Vec<(GroupKey, u32)> =
            self.keys.iter().map(|(key, slot)| (*key, *slot)).collect();
        let stays = |key: &GroupKey| *key < dirty && !ends_together;
        for (key, slot) in &slots {
            let group = &mut self.groups[*slot as usize];
            if stays(key) {
                for link in &group.links {
                    let free = &mut self.free[link.link as usize];
                    *free = (*free - link.used).max(0.0);
                }
                continue;
            }
            group.advance(self.now);
            let flows = &self.all.flows;
            group.note_done(|flow, place, target| is_here(flows, *slot, flow, place, target));
            match self.sharing {
                Sharing::OnePass => self.sharer.one_pass(group, &mut self.free),
                Sharing::EndTogether => self.sharer.end_together(group, &mut self.free),
                _ => self.sharer.max_min(group, &mut self.free, false),
            }
        }
        if ends_together {
            for (_, slot) in &slots {
                self.sharer
                    .max_min(&mut self.groups[*slot as usize], &mut self.free, true);
            }
        }
        for (key, slot) in slots.into_iter().filter(|(key, _)| !stays(key)) {
            let group = &mut self.groups[slot as usize];
            match group.flows {
                0 => self.retire(key, slot),
                _ => group.look_ahead(),
            }
        }
        #[cfg(test)]
        self.check_rates();
        self.predict_again(dirty);
    }

    #[cfg(test)]
    pub(super) fn slots_in_order(&self) -> Vec<u32> {
        self.keys.values().copied().collect()
    }

    #[cfg(test)]
    pub(super) fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    fn retire(&mut self, key: GroupKey, slot: u32) {
        self.keys.remove(&key);
        self.groups[slot as usize] = FlowGroup::new(self.now);
        self.spare.push(slot);
        if self.serves_units() {
            self.all.units[key.unit as usize].group = NOWHERE;
        }
    }

    /// Whether the rates of a unit's flows may have been worked out anew, from that group on.
    pub(super) fn was_worked_out(&self, unit: u32, dirty: GroupKey) -> bool {
        let active = &self.all.units[unit as usize].active;
        active.iter().any(|flow| {
            let slot = self.all.flows[*flow as usize].group;
            slot != NOWHERE && self.key_of[slot as usize] >= dirty
        })
    }

    /// Whether each unit has a group of its own.
    fn serves_units(&self) -> bool {
        matches!(
            self.sharing,
            Sharing::Ranked | Sharing::OnePass | Sharing::EndTogether
        )
    }
}
