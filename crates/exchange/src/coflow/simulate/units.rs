//! Owns flows, parts and coflows of a simulation: what each has left, and what waits for what.

use super::fabric::{Fabric, Path};
use super::group::FlowGroup;
use super::{PeerRelay, SimulateOptions};
use crate::coflow::policy::{EVERYWHERE, Needs, ServiceOrder, Unit};
use crate::coflow::workload::Workload;
use brambling_program::key;
use std::collections::{BTreeMap, BTreeSet};

/// A flow's group when it has none.
pub(super) const NOWHERE: u32 = u32::MAX;

/// A flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowState {
    pub(super) part: u32,
    pub(super) unit: u32,
    pub(super) source: u32,
    pub(super) destination: u32,
    pub(super) bytes: f64,
    pub(super) path: Path,
    /// Where it is served: a group's slot, a bundle there, and when it is done.
    pub(super) group: u32,
    pub(super) bundle: u32,
    pub(super) target: f64,
    /// Where it stands among those of its unit that are served.
    pub(super) place: u32,
}

/// A part of a coflow.
#[derive(Debug)]
pub(super) struct PartState {
    pub(super) coflow: u32,
    pub(super) sub_coflow: u32,
    /// The first of the parts that are waves of one.
    pub(super) node: u32,
    pub(super) flows: std::ops::Range<u32>,
    /// When the last of its flows was done, so far: those of one tick come in any order.
    pub(super) done_s: f64,
    pub(super) left: u32,
    /// Parts that have to be done before.
    pub(super) waits_for: u32,
    /// Parts that wait for this one.
    pub(super) before: Vec<u32>,
    pub(super) bytes: f64,
    /// All parts that had to be done before this one, near or far.
    pub(super) descendants: Vec<u32>,
}

/// What the policy decides about.
#[derive(Debug)]
pub(super) struct UnitState {
    pub(super) key: Unit,
    pub(super) order: ServiceOrder,
    /// Whether the policy has heard of it.
    pub(super) has_begun: bool,
    /// Its flows that are served.
    pub(super) active: Vec<u32>,
    /// Of flows that are done.
    pub(super) done_bytes: f64,
    pub(super) done_flows: u32,
    /// Flows that have not come or are not done.
    pub(super) flows_left: u32,
    /// Of its descendants.
    pub(super) children_bytes: f64,
    /// Whether its policy waits for bytes of it.
    pub(super) is_watched: bool,
    /// Whether flows have come since it was predicted last.
    pub(super) is_new: bool,
    /// Which prediction of what it wants to be told is the last.
    pub(super) version: u32,
    /// The slot of its own group, where each unit has one.
    pub(super) group: u32,
    /// Those whose bytes count together with its own.
    pub(super) family: u32,
}

/// Units whose bytes count together.
#[derive(Debug)]
pub(super) struct FamilyState {
    pub(super) members: Vec<u32>,
    /// How many of their flows are served.
    pub(super) active: u32,
    /// The most that can come of them, in bytes a second.
    pub(super) rate_most: f64,
    /// What had come of all when somebody looked last.
    pub(super) seen: FamilySeen,
}

/// What had come of a family, and how many bytes a second came.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FamilySeen {
    /// When, and after how many changes of rates.
    pub(super) at: (f64, u64),
    pub(super) bytes: f64,
    pub(super) rate: f64,
}

/// A coflow.
#[derive(Debug)]
pub(super) struct CoflowState {
    pub(super) parts: std::ops::Range<u32>,
    pub(super) units: Vec<u32>,
    pub(super) parts_left: u32,
    pub(super) arrival_s: f64,
    pub(super) done_s: f64,
    /// When the last of its parts has begun, so far.
    pub(super) news_s: f64,
    /// How many times their lengths its flows are announced to have.
    announced: f64,
}

/// Everything of a workload on a fabric.
#[derive(Debug)]
pub(super) struct SimulatedUnits {
    pub(super) flows: Vec<FlowState>,
    pub(super) parts: Vec<PartState>,
    pub(super) units: Vec<UnitState>,
    pub(super) coflows: Vec<CoflowState>,
    pub(super) families: Vec<FamilyState>,
    /// What a link carries, in bytes a second.
    pub(super) capacity: f64,
    pub(super) links: usize,
    /// By link, whether it is that of a host which tells nobody anything.
    silent: Vec<bool>,
}

/// A number that says nothing about the other.
fn mixed(number: u64) -> u64 {
    key::integer(i128::from(number))
}

/// Hosts in an order that the seed gives.
fn permutation(hosts: u32, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..hosts).collect();
    order.sort_by_key(|host| (mixed(seed ^ mixed(u64::from(*host))), *host));
    order
}

/// How many times its length a coflow's flows are announced to have: the same for all, or errors would cancel out.
fn announced(options: &SimulateOptions, coflow: u32) -> f64 {
    let draw = mixed(options.seed ^ mixed(u64::from(coflow) | 1 << 40));
    let between = draw as f64 / u64::MAX as f64;
    1.0 + options.sizes_off * (2.0 * between - 1.0)
}

/// By link, whether it is that of a silent host. Hosts are drawn among all, and at least one is where any shall be.
fn silent(options: &SimulateOptions, ports: u32) -> Vec<bool> {
    let hosts = options.fabric.hosts(ports);
    let mut silent = vec![false; options.fabric.links(ports)];
    let count = (options.silent * f64::from(hosts)).ceil() as usize;
    let drawn = permutation(hosts, options.seed ^ u64::from(u32::MAX));
    for host in drawn.into_iter().take(count) {
        silent[host as usize] = true;
        silent[(hosts + host) as usize] = true;
    }
    silent
}

impl SimulatedUnits {
    pub(super) fn of(
        workload: &Workload,
        options: &SimulateOptions,
        needs: Needs,
    ) -> SimulatedUnits {
        let hosts = options.fabric.hosts(workload.ports);
        let host_of = match options.fabric {
            Fabric::BigSwitch => (0..hosts).collect(),
            Fabric::FatTree(_) => permutation(hosts, options.seed),
        };
        let host_of = |port: u32| host_of[(port % hosts) as usize];
        let by_receiver = needs.by_receiver && options.relay != PeerRelay::Perfect;
        let mut all = SimulatedUnits {
            flows: Vec::with_capacity(workload.flows()),
            parts: Vec::new(),
            units: Vec::new(),
            coflows: Vec::new(),
            families: Vec::new(),
            capacity: options.gbps * 1e9 / 8.0,
            links: options.fabric.links(workload.ports),
            silent: silent(options, workload.ports),
        };
        for (number, coflow) in (0..).zip(&workload.coflows) {
            let (first, first_flow) = (all.parts.len() as u32, all.flows.len());
            let mut keys = BTreeMap::new();
            let mut node = 0;
            for (place, part) in (0..).zip(&coflow.parts) {
                let place: u32 = place;
                node = if part.is_wave { node } else { place };
                let begin = all.flows.len() as u32;
                for flow in &part.flows {
                    let receiver = if by_receiver {
                        flow.destination
                    } else {
                        EVERYWHERE
                    };
                    let key = Unit {
                        coflow: number,
                        part: node,
                        place: receiver,
                    };
                    let unit = *keys.entry(key).or_insert_with(|| all.units.len() as u32);
                    if unit as usize == all.units.len() {
                        all.units.push(UnitState::of(key));
                    }
                    all.units[unit as usize].flows_left += 1;
                    let (source, destination) = (host_of(flow.source), host_of(flow.destination));
                    let choice = mixed(options.seed.rotate_left(32) ^ all.flows.len() as u64);
                    all.flows.push(FlowState {
                        part: first + place,
                        unit,
                        source: flow.source,
                        destination: flow.destination,
                        bytes: flow.bytes,
                        path: options.fabric.path(hosts, source, destination, choice),
                        group: NOWHERE,
                        bundle: 0,
                        target: 0.0,
                        place: 0,
                    });
                }
                all.parts.push(PartState {
                    coflow: number,
                    sub_coflow: part.sub_coflow,
                    node,
                    flows: begin..all.flows.len() as u32,
                    done_s: 0.0,
                    left: part.flows.len() as u32,
                    waits_for: part.after.len() as u32,
                    before: Vec::new(),
                    bytes: part.flows.iter().map(|flow| flow.bytes).sum(),
                    descendants: Vec::new(),
                });
            }
            for (place, part) in (first..).zip(&coflow.parts) {
                for child in &part.after {
                    all.parts[(first + child) as usize].before.push(place);
                }
            }
            let units: Vec<u32> = keys.into_values().collect();
            all.make_families(&units, first_flow, needs);
            let parts = first..all.parts.len() as u32;
            all.find_descendants(
                &coflow
                    .parts
                    .iter()
                    .map(|it| &it.after[..])
                    .collect::<Vec<_>>(),
                first,
            );
            all.coflows.push(CoflowState {
                parts_left: parts.len() as u32,
                parts,
                units,
                arrival_s: coflow.arrival_s,
                done_s: coflow.arrival_s,
                news_s: coflow.arrival_s,
                announced: announced(options, number),
            });
        }
        all
    }

    /// Bytes of a coflow, which was added last, count together where one decides for all, and those of a node where
    /// receivers do.
    fn make_families(&mut self, units: &[u32], first_flow: usize, needs: Needs) {
        let mut families: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for unit in units {
            let node = self.units[*unit as usize].key.part;
            let of = if needs.by_receiver { node } else { 0 };
            families.entry(of).or_default().push(*unit);
        }
        let first = self.families.len();
        for members in families.into_values() {
            for unit in &members {
                self.units[*unit as usize].family = self.families.len() as u32;
            }
            self.families.push(FamilyState {
                active: 0,
                rate_most: 0.0,
                seen: FamilySeen::default(),
                members,
            });
        }
        // The most that can come is what all their sources have, or all their destinations.
        let count = self.families.len() - first;
        let mut ends = vec![(BTreeSet::new(), BTreeSet::new()); count];
        for flow in &self.flows[first_flow..] {
            let family = self.units[flow.unit as usize].family as usize - first;
            ends[family].0.insert(flow.source);
            ends[family].1.insert(flow.destination);
        }
        for (family, (sources, destinations)) in self.families[first..].iter_mut().zip(&ends) {
            let links = sources.len().min(destinations.len());
            family.rate_most = self.capacity * links as f64;
        }
    }

    fn find_descendants(&mut self, after: &[&[u32]], first: u32) {
        for place in 0..after.len() {
            let mut found = vec![false; after.len()];
            let mut open = after[place].to_vec();
            while let Some(child) = open.pop() {
                if !std::mem::replace(&mut found[child as usize], true) {
                    open.extend(after[child as usize]);
                }
            }
            let found = (first..).zip(found).filter(|it| it.1).map(|it| it.0);
            self.parts[first as usize + place].descendants = found.collect();
        }
    }

    /// What a flow that is served has left.
    pub(super) fn left(&self, groups: &[FlowGroup], flow: u32, now: f64) -> f64 {
        let flow = &self.flows[flow as usize];
        match flow.group {
            NOWHERE => flow.bytes,
            group => groups[group as usize]
                .left(flow.bundle, flow.target, now)
                .clamp(0.0, flow.bytes),
        }
    }

    /// What has come of a unit, and how many bytes a second come.
    pub(super) fn received(&self, groups: &[FlowGroup], unit: u32, now: f64) -> (f64, f64) {
        let unit = &self.units[unit as usize];
        let mut received = (unit.done_bytes, 0.0);
        for place in &unit.active {
            let flow = &self.flows[*place as usize];
            received.0 += flow.bytes - self.left(groups, *place, now);
            received.1 += groups[flow.group as usize].bundles[flow.bundle as usize].rate;
        }
        received
    }

    /// What the busiest link still has to carry of a coflow's parts that have begun, in bytes.
    pub(super) fn bottleneck(&self, groups: &[FlowGroup], units: &[u32], now: f64) -> f64 {
        let mut load: BTreeMap<u32, f64> = BTreeMap::new();
        for unit in units {
            for place in &self.units[*unit as usize].active {
                let left = self.left(groups, *place, now);
                for link in self.flows[*place as usize].path.links() {
                    *load.entry(*link).or_insert(0.0) += left;
                }
            }
        }
        load.into_values().fold(0.0, f64::max)
    }

    /// What receivers believe that the busiest link still has to carry, in bytes, from what senders have announced and
    /// receivers have relayed; none: nobody has told anything.
    pub(super) fn believed_bottleneck(
        &self,
        groups: &[FlowGroup],
        coflow: u32,
        now: f64,
    ) -> Option<f64> {
        let state = &self.coflows[coflow as usize];
        let mut load: BTreeMap<u32, f64> = BTreeMap::new();
        for unit in &state.units {
            for place in &self.units[*unit as usize].active {
                let flow = &self.flows[*place as usize];
                let links = flow.path.links();
                if self.silent[links[0] as usize] {
                    continue;
                }
                let came = flow.bytes - self.left(groups, *place, now);
                let believed = (flow.bytes * state.announced - came).max(0.0);
                for link in links.iter().filter(|it| !self.silent[**it as usize]) {
                    *load.entry(*link).or_insert(0.0) += believed;
                }
            }
        }
        load.into_values().reduce(f64::max)
    }

    /// How long a coflow would take alone: the longest chain of its parts, each as long as its busiest link.
    pub(super) fn isolated_s(&self, coflow: usize) -> f64 {
        let parts = self.coflows[coflow].parts.clone();
        let first = parts.start;
        let alone: Vec<f64> = parts
            .clone()
            .map(|part| {
                let mut load: BTreeMap<u32, f64> = BTreeMap::new();
                for flow in self.parts[part as usize].flows.clone() {
                    let flow = &self.flows[flow as usize];
                    for link in flow.path.links() {
                        *load.entry(*link).or_insert(0.0) += flow.bytes;
                    }
                }
                load.into_values().fold(0.0, f64::max) / self.capacity
            })
            .collect();
        // A part begins when the last of those it waits for is done: they are its descendants, fewest first.
        let mut order: Vec<u32> = parts.collect();
        order.sort_by_key(|part| self.parts[*part as usize].descendants.len());
        let mut done = vec![0.0; alone.len()];
        for part in order {
            let before = self.parts[part as usize].descendants.iter();
            let begins = before
                .map(|it| done[(it - first) as usize])
                .fold(0.0, f64::max);
            done[(part - first) as usize] = begins + alone[(part - first) as usize];
        }
        done.into_iter().fold(0.0, f64::max)
    }
}

impl UnitState {
    fn of(key: Unit) -> UnitState {
        UnitState {
            key,
            order: ServiceOrder::default(),
            has_begun: false,
            active: Vec::new(),
            done_bytes: 0.0,
            done_flows: 0,
            flows_left: 0,
            children_bytes: 0.0,
            is_watched: false,
            is_new: false,
            version: 0,
            group: NOWHERE,
            family: 0,
        }
    }
}
