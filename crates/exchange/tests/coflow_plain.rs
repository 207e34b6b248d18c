//! A second simulator, as plain as can be, agrees with the first.
//!
//! Time goes in small steps; in each, every flow gets its rate anew, by the simplest rules that do. It shares no code with
//! the first but the workloads. One big switch, sizes in bytes, a link carries 125 MB a second.

use brambling_exchange::coflow::policy::{PolicyChoices, PolicyName};
use brambling_exchange::coflow::simulate::{SimulateOptions, simulate};
use brambling_exchange::coflow::workload::{Coflow, GenerateOptions, Tails, Workload};

const PORTS: usize = 4;
const LINK: f64 = 125e6;

struct Plain {
    coflow: usize,
    from: usize,
    to: usize,
    left: f64,
    rate: f64,
}

/// Gives flows their share, max-min, of what is left of links: all rates grow together, and stop where a link is full.
fn fill(flows: &mut [Plain], which: &[usize], free: &mut [f64]) {
    let mut open: Vec<usize> = which.to_vec();
    while !open.is_empty() {
        let on = |flows: &[Plain], open: &[usize], link: usize| {
            open.iter()
                .filter(|it| flows[**it].from == link || flows[**it].to + PORTS == link)
                .count() as f64
        };
        let shares = (0..2 * PORTS).map(|link| (free[link] / on(flows, &open, link), link));
        let (share, _) = shares
            .filter(|it| it.0.is_finite())
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap();
        for flow in &open {
            flows[*flow].rate += share;
            free[flows[*flow].from] -= share;
            free[flows[*flow].to + PORTS] -= share;
        }
        open.retain(|flow| {
            free[flows[*flow].from] > LINK * 1e-9 && free[flows[*flow].to + PORTS] > LINK * 1e-9
        });
    }
}

fn bottleneck(flows: &[Plain], coflow: usize) -> f64 {
    let load = |link: usize| -> f64 {
        let its = flows
            .iter()
            .filter(|it| it.coflow == coflow && (it.from == link || it.to + PORTS == link));
        its.map(|it| it.left).sum()
    };
    (0..2 * PORTS).map(load).fold(0.0, f64::max)
}

/// In which order coflows are served: those that are alike are served together.
fn order(policy: PolicyName, coflow: usize, sent: f64, left: f64) -> (u64, u64) {
    let queue = [10e6, 100e6, 1e9, 10e9, 100e9, 1e12, 1e13]
        .iter()
        .filter(|end| sent >= **end)
        .count() as u64;
    match policy {
        PolicyName::Fair => (0, 0),
        PolicyName::Fifo => (0, coflow as u64),
        PolicyName::Aalo => (queue, coflow as u64),
        PolicyName::Stream => (queue, 0),
        _ => (left as u64, coflow as u64),
    }
}

fn rates(policy: PolicyName, flows: &mut [Plain], sent: &[f64], ranks: &[f64]) {
    let mut free = vec![LINK; 2 * PORTS];
    flows.iter_mut().for_each(|flow| flow.rate = 0.0);
    let open: Vec<usize> = (0..flows.len())
        .filter(|it| flows[*it].left > 0.0)
        .collect();
    if policy == PolicyName::Baraat {
        let ahead = |flow: &Plain, link: fn(&Plain) -> usize| {
            let mut before: Vec<usize> = open
                .iter()
                .map(|it| &flows[*it])
                .filter(|it| it.coflow < flow.coflow && link(it) == link(flow))
                .map(|it| it.coflow)
                .collect();
            before.dedup();
            before.sort_unstable();
            before.dedup();
            before.into_iter().filter(|it| sent[*it] < 1e9).count()
        };
        let level: Vec<usize> = flows
            .iter()
            .map(|flow| ahead(flow, |it| it.from).max(ahead(flow, |it| it.to)))
            .collect();
        for now in 0..=level.iter().copied().max().unwrap_or(0) {
            let which: Vec<usize> = open
                .iter()
                .copied()
                .filter(|it| level[*it] == now)
                .collect();
            fill(flows, &which, &mut free);
        }
        return;
    }
    let mut orders: Vec<(u64, u64)> = open
        .iter()
        .map(|it| {
            order(
                policy,
                flows[*it].coflow,
                sent[flows[*it].coflow],
                ranks[flows[*it].coflow],
            )
        })
        .collect();
    let all = orders.clone();
    orders.sort_unstable();
    orders.dedup();
    let groups: Vec<Vec<usize>> = orders
        .iter()
        .map(|order| {
            open.iter()
                .zip(&all)
                .filter(|it| it.1 == order)
                .map(|it| *it.0)
                .collect()
        })
        .collect();
    for which in &groups {
        match policy {
            PolicyName::Aalo => {
                // Of those that can have anything.
                let is_open = |it: &&usize| {
                    free[flows[**it].from] > LINK * 1e-9
                        && free[flows[**it].to + PORTS] > LINK * 1e-9
                };
                let which: Vec<usize> = which.iter().filter(is_open).copied().collect();
                let on = |link: usize| {
                    which
                        .iter()
                        .filter(|it| flows[**it].from == link || flows[**it].to + PORTS == link)
                        .count() as f64
                };
                let shares: Vec<f64> = which
                    .iter()
                    .map(|it| {
                        (free[flows[*it].from] / on(flows[*it].from))
                            .min(free[flows[*it].to + PORTS] / on(flows[*it].to + PORTS))
                    })
                    .collect();
                for (flow, share) in which.iter().zip(shares) {
                    flows[*flow].rate = share;
                    free[flows[*flow].from] = (free[flows[*flow].from] - share).max(0.0);
                    free[flows[*flow].to + PORTS] =
                        (free[flows[*flow].to + PORTS] - share).max(0.0);
                }
            }
            PolicyName::Varys => {
                let load = |link: usize| -> f64 {
                    which
                        .iter()
                        .filter(|it| flows[**it].from == link || flows[**it].to + PORTS == link)
                        .map(|it| flows[*it].left)
                        .sum()
                };
                let seconds = (0..2 * PORTS)
                    .filter(|link| load(*link) > 0.0)
                    .map(|link| load(link) / free[link].max(0.0))
                    .fold(0.0, f64::max);
                if seconds.is_finite() && seconds < 1e9 {
                    for flow in which {
                        let rate = flows[*flow].left / seconds;
                        flows[*flow].rate = rate;
                        free[flows[*flow].from] -= rate;
                        free[flows[*flow].to + PORTS] -= rate;
                    }
                }
            }
            _ => fill(flows, which, &mut free),
        }
    }
    if policy == PolicyName::Varys {
        free.iter_mut().for_each(|free| *free = free.max(0.0));
        for which in &groups {
            let which: Vec<usize> = which
                .iter()
                .copied()
                .filter(|it| {
                    free[flows[*it].from] > LINK * 1e-9 && free[flows[*it].to + PORTS] > LINK * 1e-9
                })
                .collect();
            fill(flows, &which, &mut free);
        }
    }
}

/// How long each coflow takes.
fn plain(workload: &Workload, policy: PolicyName) -> Vec<f64> {
    let coflows = &workload.coflows;
    let mut done = vec![f64::NAN; coflows.len()];
    let mut flows: Vec<Plain> = Vec::new();
    let (mut sent, mut ranks) = (vec![0.0; coflows.len()], vec![0.0; coflows.len()]);
    let (mut now, mut come, mut news) = (0.0, 0, true);
    while done.iter().any(|it| it.is_nan()) {
        while come < coflows.len() && coflows[come].arrival_s <= now {
            flows.extend(coflows[come].flows().map(|flow| Plain {
                coflow: come,
                from: flow.source as usize,
                to: flow.destination as usize,
                left: flow.bytes,
                rate: 0.0,
            }));
            (come, news) = (come + 1, true);
        }
        if news {
            // Those that know sizes look at them when a coflow comes or ends.
            (0..coflows.len())
                .for_each(|coflow| ranks[coflow] = bottleneck(&flows, coflow).round());
            news = false;
        }
        rates(policy, &mut flows, &sent, &ranks);
        // A step is a small part of whatever ends, arrives, or passes a threshold next.
        let next_end = flows
            .iter()
            .filter(|it| it.rate > 0.0)
            .map(|it| it.left / it.rate)
            .fold(f64::INFINITY, f64::min);
        let next_come = coflows
            .get(come)
            .map_or(f64::INFINITY, |it| it.arrival_s - now);
        let step = next_end.min(next_come).clamp(1e-7, 2e-4);
        for flow in &mut flows {
            let bytes = (flow.rate * step).min(flow.left);
            flow.left -= bytes;
            if flow.left < 1.0 {
                flow.left = 0.0;
            }
            sent[flow.coflow] += bytes;
        }
        now += step;
        for coflow in 0..come {
            if done[coflow].is_nan() && flows.iter().all(|it| it.coflow != coflow || it.left == 0.0)
            {
                (done[coflow], news) = (now - coflows[coflow].arrival_s, true);
            }
        }
        flows.retain(|it| it.left > 0.0);
    }
    done
}

#[test]
fn a_plain_simulator_agrees_on_generated_traces() {
    for seed in 0..50 {
        let made = GenerateOptions {
            coflows: 8,
            ports: PORTS as u32,
            tails: Tails::Facebook,
            seed,
        };
        let mut workload = Workload::generate(&made).loaded(8.0);
        // Steps are small: what is as large as the largest is done in no time.
        for flow in workload
            .coflows
            .iter_mut()
            .flat_map(|it: &mut Coflow| &mut it.parts[0].flows)
        {
            flow.bytes = flow.bytes.min(2e9 / 16.0);
        }
        for policy in PolicyName::ALL {
            // Orders are kept a round trip later: so soon that it does not matter.
            let options = SimulateOptions {
                rtt_s: 1e-6,
                ..SimulateOptions::default()
            };
            let found = simulate(&workload, policy, &PolicyChoices::default(), &options);
            let expected = plain(&workload, policy);
            for (found, expected) in found.coflows.iter().zip(expected) {
                let off = (found.cct_s / expected - 1.0).abs();
                assert!(
                    off < 0.01,
                    "seed {seed}, {policy}: {} s, not {expected}",
                    found.cct_s
                );
            }
        }
    }
}
