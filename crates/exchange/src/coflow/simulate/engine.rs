//! Owns the clock of a simulation: what happens next, and what follows from it.

use super::SimulateOptions;
use super::group::FlowGroup;
use super::levels::Levels;
use super::outcome::{Outcome, Took};
use super::share::Sharer;
use super::units::{NOWHERE, SimulatedUnits};
use crate::coflow::policy::{
    CoflowEvent, Needs, OrderChange, Policy, ServiceOrder, Sharing, Sizes, Unit,
};
use crate::coflow::workload::Workload;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// What happens within so many seconds happens at once.
pub(super) const AT_ONCE_S: f64 = 1e-9;

/// In which order groups are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupKey {
    order: ServiceOrder,
    unit: u32,
}

/// What will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ComingEvent {
    /// A coflow arrives.
    Arrival(u32),
    /// Receivers have heard what is left of all coflows.
    Heard,
    /// A unit may have as many bytes as its policy waits for, by its prediction of this version.
    Reached(u32, u32),
    /// A unit may have got nothing for too long: it had so many bytes, as bits.
    Starved(u32, u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Timed {
    at: f64,
    what: ComingEvent,
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Timed) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The soonest is the greatest, so that a heap gives it first.
impl Ord for Timed {
    fn cmp(&self, other: &Timed) -> Ordering {
        let by_time = other.at.total_cmp(&self.at);
        by_time.then_with(|| other.what.cmp(&self.what))
    }
}

/// A simulation that runs.
pub(super) struct Engine<'w> {
    workload: &'w Workload,
    pub(super) options: &'w SimulateOptions,
    pub(super) policy: Box<dyn Policy>,
    pub(super) needs: Needs,
    sharing: Sharing,
    pub(super) all: SimulatedUnits,
    pub(super) groups: Vec<FlowGroup>,
    keys: BTreeMap<GroupKey, u32>,
    key_of: Vec<GroupKey>,
    unit_of: BTreeMap<Unit, u32>,
    coming: BinaryHeap<Timed>,
    pub(super) now: f64,
    /// Groups from this one on have to be worked out anew.
    dirty: Option<GroupKey>,
    sharer: Sharer,
    free: Vec<f64>,
    /// SimulatedUnits that are served and whose policy waits for bytes.
    pub(super) watched: Vec<u32>,
    pub(super) outcome: Outcome,
    /// Coflows that have come and are not done.
    pub(super) served: BTreeSet<u32>,
    /// Who is on each link, where links choose for themselves.
    levels: Levels,
    #[cfg(test)]
    pub(super) carried: super::checks::CarriedBytes,
}

impl<'w> Engine<'w> {
    pub(super) fn new(
        workload: &'w Workload,
        policy: Box<dyn Policy>,
        options: &'w SimulateOptions,
    ) -> Engine<'w> {
        let needs = policy.needs();
        let all = SimulatedUnits::of(workload, options, needs);
        let unit_of = (0..).zip(&all.units).map(|(place, unit)| (unit.key, place));
        let arrivals = (0..).zip(&all.coflows).map(|(place, coflow)| Timed {
            at: coflow.arrival_s,
            what: ComingEvent::Arrival(place),
        });
        Engine {
            workload,
            options,
            needs,
            sharing: policy.sharing(),
            policy,
            groups: Vec::new(),
            keys: BTreeMap::new(),
            key_of: Vec::new(),
            unit_of: unit_of.collect(),
            coming: arrivals.collect(),
            now: 0.0,
            dirty: None,
            sharer: Sharer::default(),
            free: vec![all.capacity; all.links],
            watched: Vec::new(),
            outcome: Outcome::default(),
            served: BTreeSet::new(),
            levels: Levels::new(all.links),
            #[cfg(test)]
            carried: super::checks::CarriedBytes::default(),
            all,
        }
    }

    /// Runs until all coflows are done.
    pub(super) fn run(mut self) -> Outcome {
        let mut done = Vec::new();
        while let Some(next) = self.next_moment() {
            self.now = next;
            let at_once = self.now + AT_ONCE_S;
            let due: Vec<u32> = self.keys.values().copied().collect();
            for slot in due {
                if self.groups[slot as usize].next <= at_once {
                    self.finish_flows(slot, &mut done);
                }
            }
            while let Some(timed) = self.coming.peek().copied()
                && timed.at <= at_once
            {
                self.coming.pop();
                self.happens(timed.what);
            }
            if self.levels.take_changed() {
                self.level_anew();
            }
            if self.dirty.is_some() {
                self.work_out();
            }
        }
        self.finish()
    }

    fn finish(mut self) -> Outcome {
        #[cfg(test)]
        self.carried.check(self.workload.bytes());
        for (place, (of, coflow)) in self
            .workload
            .coflows
            .iter()
            .zip(&self.all.coflows)
            .enumerate()
        {
            self.outcome.coflows.push(Took {
                name: of.name,
                arrival_s: coflow.arrival_s,
                cct_s: coflow.done_s - coflow.arrival_s,
                isolated_s: self.all.isolated_s(place),
                bytes: of.bytes(),
                flows: of.flows().count() as u32,
                longest_bytes: of.flows().map(|flow| flow.bytes).fold(0.0, f64::max),
            });
        }
        self.outcome
    }

    /// When something happens next.
    fn next_moment(&self) -> Option<f64> {
        let done = self
            .keys
            .values()
            .map(|slot| self.groups[*slot as usize].next);
        let coming = self.coming.peek().map_or(f64::INFINITY, |timed| timed.at);
        let next = done.fold(coming, f64::min).max(self.now);
        if next == f64::INFINITY {
            return None;
        }
        Some(match self.options.resolution_s {
            None => next,
            Some(tick) => (next / tick - 1e-9).ceil() * tick,
        })
    }

    pub(super) fn at(&mut self, at: f64, what: ComingEvent) {
        self.coming.push(Timed { at, what });
    }

    fn happens(&mut self, what: ComingEvent) {
        match what {
            ComingEvent::Arrival(coflow) => {
                self.served.insert(coflow);
                let parts = self.all.coflows[coflow as usize].parts.clone();
                for part in parts {
                    if self.all.parts[part as usize].waits_for == 0 {
                        self.begin_part(part);
                    }
                }
                self.sizes_change();
            }
            ComingEvent::Heard => self.tell_what_is_left(),
            ComingEvent::Reached(unit, version) => self.may_have_reached(unit, version),
            ComingEvent::Starved(unit, bits) => self.may_starve(unit, f64::from_bits(bits)),
        }
    }

    /// A part's flows begin to be served.
    fn begin_part(&mut self, part: u32) {
        let state = &self.all.parts[part as usize];
        let (flows, sub_coflow) = (state.flows.clone(), state.sub_coflow);
        let descendants = state.descendants.iter();
        let children: f64 = descendants
            .map(|it| self.all.parts[*it as usize].bytes)
            .sum();
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for flow in flows.clone() {
            *counts
                .entry(self.all.flows[flow as usize].unit)
                .or_insert(0) += 1;
        }
        for (unit, flows) in counts {
            self.begin_unit(unit, flows, sub_coflow, children);
        }
        if flows.is_empty() {
            self.part_is_done(part, self.now);
        }
        for flow in flows {
            let unit = self.all.flows[flow as usize].unit;
            let active = &mut self.all.units[unit as usize].active;
            self.all.flows[flow as usize].place = active.len() as u32;
            active.push(flow);
            let state = &self.all.flows[flow as usize];
            if state.bytes <= 0.0 || state.path.links().is_empty() {
                self.finish_flow(flow, self.now);
                continue;
            }
            self.serve(flow, state.bytes);
        }
        let units: Vec<u32> = self.all.coflows[self.all.parts[part as usize].coflow as usize]
            .units
            .clone();
        units.into_iter().for_each(|unit| self.watch(unit));
    }

    fn begin_unit(&mut self, unit: u32, flows: u32, sub_coflow: u32, children: f64) {
        let state = &mut self.all.units[unit as usize];
        let key = state.key;
        state.children_bytes = children;
        state.is_new = true;
        if std::mem::replace(&mut state.has_begun, true) {
            self.hear(CoflowEvent::Grown { unit: key, flows });
            return;
        }
        self.hear(CoflowEvent::Begun {
            unit: key,
            sub_coflow,
            flows,
            bottleneck: None,
        });
        if self.needs.sizes == Sizes::Announced {
            self.outcome.messages += 2 * u64::from(flows);
        }
        if children > 0.0 {
            self.tell_progress(unit);
        }
        self.await_starving(unit);
    }

    /// The policy hears something, and its orders are followed.
    pub(super) fn hear(&mut self, event: CoflowEvent) {
        let mut changes = Vec::new();
        self.policy.hear(&event, &mut changes);
        for change in changes {
            self.follow(change);
        }
    }

    fn follow(&mut self, change: OrderChange) {
        let Some(unit) = self.unit_of.get(&change.unit).copied() else {
            return;
        };
        let state = &mut self.all.units[unit as usize];
        let before = std::mem::replace(&mut state.order, change.order);
        if before == change.order {
            return;
        }
        let active = state.active.clone();
        self.count_messages(&active);
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

    /// Each sender of flows that are served is told.
    fn count_messages(&mut self, flows: &[u32]) {
        let mut senders: Vec<u32> = flows
            .iter()
            .map(|it| self.all.flows[*it as usize].source)
            .collect();
        senders.sort_unstable();
        senders.dedup();
        self.outcome.messages += senders.len() as u64;
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

    fn work_out_from(&mut self, key: GroupKey) {
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
                self.groups.push(FlowGroup::new(self.now));
                self.key_of.push(key);
                let slot = self.groups.len() as u32 - 1;
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
    fn serve(&mut self, flow: u32, left: f64) {
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
        (of.group, of.bundle, of.target, of.apart) = (slot, bundle, target, apart);
    }

    /// A flow is not served any more where it was.
    fn leave(&mut self, flow: u32) {
        let of = &mut self.all.flows[flow as usize];
        let slot = std::mem::replace(&mut of.group, NOWHERE);
        if slot == NOWHERE {
            return;
        }
        let (bundle, apart) = (of.bundle, of.apart);
        let group = &mut self.groups[slot as usize];
        group.advance(self.now);
        group.remove(bundle, apart);
        let key = self.key_of[slot as usize];
        if group.flows == 0 {
            self.groups[slot as usize] = FlowGroup::new(self.now);
        }
        self.work_out_from(key);
    }

    fn serve_elsewhere(&mut self, flow: u32) {
        let left = self.all.left(&self.groups, flow, self.now);
        self.leave(flow);
        self.put(flow, left);
    }

    /// Links look anew whom they serve: flows go to the group of their level.
    fn level_anew(&mut self) {
        let served = self.served.iter();
        let units = served.flat_map(|coflow| &self.all.coflows[*coflow as usize].units);
        let flows = units.flat_map(|unit| &self.all.units[*unit as usize].active);
        for flow in flows.copied().collect::<Vec<u32>>() {
            let slot = self.all.flows[flow as usize].group;
            if slot != NOWHERE && self.where_to(flow).0 != self.key_of[slot as usize] {
                self.serve_elsewhere(flow);
            }
        }
    }

    /// The flows of a group that are done by now are.
    fn finish_flows(&mut self, slot: u32, done: &mut Vec<(u32, f64)>) {
        let flows = &self.all.flows;
        let group = &mut self.groups[slot as usize];
        group.advance(self.now);
        done.clear();
        group.done(
            |flow, place, target| is_here(flows, slot, flow, place, target),
            done,
        );
        self.work_out_from(self.key_of[slot as usize]);
        for (flow, when) in done.drain(..) {
            self.finish_flow(flow, when);
        }
    }

    fn finish_flow(&mut self, flow: u32, when: f64) {
        self.leave(flow);
        let of = self.all.flows[flow as usize];
        let unit = &mut self.all.units[of.unit as usize];
        unit.active.swap_remove(of.place as usize);
        if let Some(moved) = unit.active.get(of.place as usize) {
            self.all.flows[*moved as usize].place = of.place;
        }
        unit.done_bytes += of.bytes;
        unit.done_flows += 1;
        unit.flows_left -= 1;
        let (key, is_done) = (unit.key, unit.flows_left == 0);
        if self.sharing == Sharing::LimitedMultiplexing {
            self.levels.go(key.coflow, of.path.links());
        }
        if is_done {
            self.hear(CoflowEvent::Ended { unit: key });
        }
        let part = &mut self.all.parts[of.part as usize];
        part.left -= 1;
        if part.left == 0 {
            self.part_is_done(of.part, when);
        }
    }

    fn part_is_done(&mut self, part: u32, when: f64) {
        let state = &self.all.parts[part as usize];
        let (number, before) = (state.coflow, state.before.clone());
        for parent in before {
            let waits_for = &mut self.all.parts[parent as usize].waits_for;
            *waits_for -= 1;
            if *waits_for == 0 {
                self.begin_part(parent);
            }
        }
        let coflow = &mut self.all.coflows[number as usize];
        coflow.parts_left -= 1;
        coflow.done_s = coflow.done_s.max(when);
        if coflow.parts_left == 0 {
            self.served.remove(&number);
            self.sizes_change();
        }
    }

    /// Works out the rates of groups that may have others now.
    fn work_out(&mut self) {
        let Some(dirty) = self.dirty.take() else {
            return;
        };
        self.outcome.rounds += 1;
        self.free.fill(self.all.capacity);
        let ends_together = self.sharing == Sharing::EndTogether;
        let slots: Vec<(GroupKey, u32)> =
            self.keys.iter().map(|(key, slot)| (*key, *slot)).collect();
        for (key, slot) in &slots {
            let group = &mut self.groups[*slot as usize];
            if *key < dirty && !ends_together {
                for link in &group.links {
                    let free = &mut self.free[link.link as usize];
                    *free = (*free - link.used).max(0.0);
                }
                continue;
            }
            group.advance(self.now);
            match self.sharing {
                Sharing::OnePass => self.sharer.one_pass(group, &mut self.free),
                Sharing::EndTogether => {
                    let left = |group: &FlowGroup, place| group.first_left(place);
                    self.sharer.end_together(group, &mut self.free, left);
                }
                _ => self.sharer.max_min(group, &mut self.free, false),
            }
        }
        if ends_together {
            for (_, slot) in &slots {
                self.sharer
                    .max_min(&mut self.groups[*slot as usize], &mut self.free, true);
            }
        }
        for (key, slot) in slots {
            if key < dirty && !ends_together {
                continue;
            }
            let (flows, group) = (&self.all.flows, &mut self.groups[slot as usize]);
            if group.flows == 0 {
                self.keys.remove(&key);
                self.retired(key, slot);
                continue;
            }
            group.look_ahead(|flow, place, target| is_here(flows, slot, flow, place, target));
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

    fn retired(&mut self, key: GroupKey, slot: u32) {
        self.groups[slot as usize] = FlowGroup::new(self.now);
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

fn is_here(
    flows: &[super::units::FlowState],
    slot: u32,
    flow: u32,
    place: u32,
    target: f64,
) -> bool {
    let flow = &flows[flow as usize];
    flow.group == slot && flow.bundle == place && flow.target == target
}
