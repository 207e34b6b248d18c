//! Owns the clock of a simulation: what happens next, and what follows from it.

use super::SimulateOptions;
use super::group::FlowGroup;
use super::levels::Levels;
use super::outcome::{Outcome, Took};
use super::serving::GroupKey;
use super::share::Sharer;
use super::units::{NOWHERE, SimulatedUnits};
use crate::coflow::policy::{CoflowEvent, Needs, Policy, Sharing, Sizes, Unit};
use crate::coflow::workload::Workload;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// What happens within so many seconds happens at once, where times are short.
pub(super) const AT_ONCE_S: f64 = 1e-9;
/// Or within so many steps of a time's last bit.
const AT_ONCE_STEPS: f64 = 8.0;

/// How far apart what happens at once may be at a time.
#[inline]
pub(super) fn at_once_s(now: f64) -> f64 {
    AT_ONCE_S.max(now * AT_ONCE_STEPS * f64::EPSILON)
}

/// So many moments pass between two looks at whether to go on: some milliseconds.
const MOMENTS_BETWEEN_LOOKS: u64 = 64;

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

/// When something happens.
#[derive(Clone, Copy, Debug)]
struct NextMoment {
    at: f64,
    /// Whether flows that have ended are looked at.
    is_tick: bool,
}

/// A simulation that runs.
pub(super) struct Engine<'w> {
    workload: &'w Workload,
    pub(super) options: &'w SimulateOptions,
    pub(super) policy: Box<dyn Policy>,
    pub(super) needs: Needs,
    pub(super) sharing: Sharing,
    pub(super) all: SimulatedUnits,
    pub(super) groups: Vec<FlowGroup>,
    pub(super) keys: BTreeMap<GroupKey, u32>,
    pub(super) key_of: Vec<GroupKey>,
    pub(super) unit_of: BTreeMap<Unit, u32>,
    coming: BinaryHeap<Timed>,
    pub(super) now: f64,
    /// Groups from this one on have to be worked out anew.
    pub(super) dirty: Option<GroupKey>,
    /// Slots that no group has.
    pub(super) spare: Vec<u32>,
    pub(super) sharer: Sharer,
    pub(super) free: Vec<f64>,
    /// SimulatedUnits that are served and whose policy waits for bytes.
    pub(super) watched: Vec<u32>,
    pub(super) outcome: Outcome,
    /// Coflows that have come and are not done.
    pub(super) served: BTreeSet<u32>,
    flows_done: usize,
    /// Who is on each link, where links choose for themselves.
    pub(super) levels: Levels,
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
            spare: Vec::new(),
            sharer: Sharer::new(all.capacity),
            free: vec![all.capacity; all.links],
            watched: Vec::new(),
            outcome: Outcome::default(),
            served: BTreeSet::new(),
            flows_done: 0,
            levels: Levels::new(all.links),
            #[cfg(test)]
            carried: super::checks::CarriedBytes::default(),
            all,
        }
    }

    /// Runs until all coflows are done, or until it shall not go on.
    pub(super) fn run(mut self, goes_on: &mut dyn FnMut(f64) -> bool) -> Option<Outcome> {
        let mut moments = 0_u64;
        while let Some(next) = self.next_moment() {
            moments += 1;
            if moments.is_multiple_of(MOMENTS_BETWEEN_LOOKS) && !goes_on(self.share_done()) {
                return None;
            }
            self.now = next.at;
            let at_once = self.now + at_once_s(self.now);
            if next.is_tick {
                let due: Vec<u32> = self.keys.values().copied().collect();
                for slot in due {
                    if self.groups[slot as usize].next <= at_once {
                        self.finish_flows(slot);
                    }
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
        Some(self.finish())
    }

    /// Which share of all flows has ended.
    fn share_done(&self) -> f64 {
        self.flows_done as f64 / self.all.flows.len().max(1) as f64
    }

    fn finish(mut self) -> Outcome {
        // What has ended holds its links until the next tick.
        #[cfg(test)]
        if self.options.resolution_s.is_none() {
            let flows = self.all.flows.iter();
            let carried = flows.filter(|it| !it.path.links().is_empty());
            self.carried.check(carried.map(|it| it.bytes).sum());
        }
        for (place, (of, coflow)) in self
            .workload
            .coflows
            .iter()
            .zip(&self.all.coflows)
            .enumerate()
        {
            debug_assert_eq!(coflow.parts_left, 0, "a coflow was lost");
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

    /// When something happens next. Flows that end between two ticks are looked at together at the second one; whatever
    /// else happens is not held up.
    fn next_moment(&self) -> Option<NextMoment> {
        let ends = self
            .keys
            .values()
            .map(|slot| self.groups[*slot as usize].next);
        let end = ends.fold(f64::INFINITY, f64::min).max(self.now);
        let tick = match self.options.resolution_s {
            None => end,
            Some(tick) => ((end / tick).ceil() * tick).max(end),
        };
        let coming = self.coming.peek().map_or(f64::INFINITY, |timed| timed.at);
        let at = coming.min(tick).max(self.now);
        let is_tick = tick <= at;
        (at < f64::INFINITY).then_some(NextMoment { at, is_tick })
    }

    pub(super) fn at(&mut self, at: f64, what: ComingEvent) {
        self.coming.push(Timed { at, what });
    }

    fn happens(&mut self, what: ComingEvent) {
        match what {
            ComingEvent::Arrival(coflow) => {
                self.served.insert(coflow);
                // One that is done at once lets others begin, which then wait for nothing either: they begin there.
                let mut ready: Vec<u32> = self.all.coflows[coflow as usize].parts.clone().collect();
                ready.retain(|part| self.all.parts[*part as usize].waits_for == 0);
                ready.into_iter().for_each(|part| self.begin_part(part));
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
        let (flows, sub_coflow, node) = (state.flows.clone(), state.sub_coflow, state.node);
        self.all.coflows[state.coflow as usize].news_s = self.now;
        // Waves of the same node are not its children: what they have brought is its own.
        let descendants = self.all.parts[part as usize].descendants.iter();
        let children = descendants.map(|it| &self.all.parts[*it as usize]);
        let children: f64 = children
            .filter(|it| it.node != node)
            .map(|it| it.bytes)
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
        if self.needs.sizes == Sizes::Announced {
            self.count_announcements(part);
        }
        if flows.is_empty() {
            self.part_is_done(part, self.now);
        }
        for flow in flows {
            let unit = self.all.flows[flow as usize].unit;
            let state = &mut self.all.units[unit as usize];
            self.all.families[state.family as usize].active += 1;
            let active = &mut state.active;
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

    /// The flows of a group that are done by now are.
    fn finish_flows(&mut self, slot: u32) {
        let (flows, group) = (&self.all.flows, &mut self.groups[slot as usize]);
        group.advance(self.now);
        group.note_done(|flow, place, target| is_here(flows, slot, flow, place, target));
        let done = std::mem::take(&mut group.done);
        self.work_out_from(self.key_of[slot as usize]);
        for it in done {
            if is_here(&self.all.flows, slot, it.flow, it.place, it.target) {
                self.finish_flow(it.flow, it.at);
            }
        }
    }

    fn finish_flow(&mut self, flow: u32, when: f64) {
        let was_served = self.all.flows[flow as usize].group != NOWHERE;
        self.leave(flow);
        let of = self.all.flows[flow as usize];
        let unit = &mut self.all.units[of.unit as usize];
        unit.active.swap_remove(of.place as usize);
        self.all.families[unit.family as usize].active -= 1;
        if let Some(moved) = unit.active.get(of.place as usize) {
            self.all.flows[*moved as usize].place = of.place;
        }
        unit.done_bytes += of.bytes;
        unit.done_flows += 1;
        self.flows_done += 1;
        unit.flows_left -= 1;
        let (key, is_done) = (unit.key, unit.flows_left == 0);
        if was_served && self.sharing == Sharing::LimitedMultiplexing {
            self.levels.go(key.coflow, of.path.links());
        }
        if is_done {
            self.hear(CoflowEvent::Ended { unit: key });
        }
        let part = &mut self.all.parts[of.part as usize];
        part.left -= 1;
        part.done_s = part.done_s.max(when);
        if part.left == 0 {
            let last_s = part.done_s;
            self.part_is_done(of.part, last_s);
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
                self.sizes_change();
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
}

/// Whether a flow is in that bundle of that group, with that target.
pub(super) fn is_here(
    flows: &[super::units::FlowState],
    slot: u32,
    flow: u32,
    place: u32,
    target: f64,
) -> bool {
    let flow = &flows[flow as usize];
    flow.group == slot && flow.bundle == place && flow.target == target
}
