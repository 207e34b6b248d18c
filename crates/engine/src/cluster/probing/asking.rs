//! Orders flows between hosts: each pair by itself, then all at once, and the disks of all.

use super::greeting::{Unmet, dial};
use super::messages::{ProbeOrder, ProbeReply, hear, say};
use super::{ANSWER_TIME, ProbeError};
use crate::cluster::VERSION;
use brambling_machine::probes::settled::{Noise, ROUNDS};
use brambling_machine::profile::{HostDisk, NetworkRates, PairRate};
use brambling_protocol::greeting::Token;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

/// All is over after this time.
const TIME_MOST: Duration = Duration::from_secs(110);
/// Nothing is repeated after this one.
const REPEATS_TIME: Duration = Duration::from_secs(80);
/// What the pairs may take, repetitions aside.
const PAIRS_TIME: Duration = Duration::from_secs(50);
/// A flow takes so long, at most and at least.
const FLOW: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(800));
/// The disks write so long, and read so long.
const DISKS: Duration = Duration::from_millis(1_000);
/// Above so many flows pairs have their turns together, so that no host sends two flows or receives two.
const ALONE_MOST: usize = 30;
/// A network that others use, too, is not as steady as memory is.
const TOLERANCE: f64 = 0.15;
const DISK_TOLERANCE: f64 = 0.25;

/// A listener that takes orders.
struct Asked {
    host: String,
    stream: TcpStream,
    dirs: Vec<String>,
}

/// How long samples take.
#[derive(Clone, Copy)]
struct SampleTimes {
    /// A flow, at least and at most.
    flow: (Duration, Duration),
    disks: Duration,
    /// No repetition begins after this time.
    repeats: Duration,
}

/// Flows at once: who sends to whom.
type AtOnce = Vec<(usize, usize)>;

/// Measures the network between hosts on which a [`ProbeListener`](super::ProbeListener) listens, at these addresses, and the disks with which
/// those were started, all at once. `watch` is told what is measured next and the share that is done, before each sample; if it says no, that
/// was the last one.
///
/// # Errors
/// Names the host that is not there, has another token, or does not reach another one.
pub fn probe_hosts(
    hosts: &[String],
    token: &Token,
    watch: &mut dyn FnMut(&str, f64) -> bool,
) -> Result<NetworkRates, ProbeError> {
    let times = SampleTimes {
        flow: FLOW,
        disks: DISKS,
        repeats: REPEATS_TIME,
    };
    probe_for(times, hosts, token, watch)
}

fn probe_for(
    times: SampleTimes,
    hosts: &[String],
    token: &Token,
    watch: &mut dyn FnMut(&str, f64) -> bool,
) -> Result<NetworkRates, ProbeError> {
    let addresses = addresses(hosts)?;
    let mut asked = Vec::new();
    for (host, at) in hosts.iter().zip(addresses) {
        asked.push(Asked::dial(host, at, token)?);
    }
    let mut talk = Talk {
        congestion: vec![String::new(); asked.len()],
        asked,
        begin: Instant::now(),
        times,
        watch,
    };
    let steps = steps(hosts.len());
    let with_disks = talk.asked.iter().any(|it| !it.dirs.is_empty());
    let all = (steps.len() + 1 + usize::from(with_disks)) as f64;
    let per_step = PAIRS_TIME / (steps.len() * ROUNDS) as u32;
    let flow = per_step.clamp(times.flow.0, times.flow.1);
    let mut pairs = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let (from, to) = step[0];
        let what = match step.len() {
            1 => format!("{} to {}", hosts[from], hosts[to]),
            count => format!("{count} pairs"),
        };
        pairs.extend(talk.flows(&what, at as f64 / all, step, flow)?);
    }
    pairs.sort_by_key(|it| (it.from, it.to));
    let everyone: AtOnce = each_to_each(hosts.len()).collect();
    let all_to_all = talk.flows(
        "all to all",
        steps.len() as f64 / all,
        &everyone,
        times.flow.1,
    )?;
    let disks_at_once = match with_disks {
        true => talk.disks((steps.len() + 1) as f64 / all)?,
        false => Vec::new(),
    };
    Ok(NetworkRates {
        congestion: talk.congestion,
        hosts: hosts.to_vec(),
        pairs,
        all_to_all,
        disks_at_once,
    })
}

fn addresses(hosts: &[String]) -> Result<Vec<SocketAddr>, ProbeError> {
    if hosts.len() < 2 {
        return Err(ProbeError::TooFew);
    }
    let mut found: Vec<SocketAddr> = Vec::new();
    for host in hosts {
        let at = host.to_socket_addrs().ok().and_then(|mut it| it.next());
        let at = at.ok_or_else(|| ProbeError::Address { text: host.clone() })?;
        if found.contains(&at) {
            return Err(ProbeError::Twice { host: host.clone() });
        }
        found.push(at);
    }
    Ok(found)
}

fn each_to_each(hosts: usize) -> impl Iterator<Item = (usize, usize)> {
    let to_each = move |from| (0..hosts).map(move |to| (from, to));
    (0..hosts).flat_map(to_each).filter(|(from, to)| from != to)
}

/// Each flow by itself, or as many as there are hosts, where each host sends one and receives one.
fn steps(hosts: usize) -> Vec<AtOnce> {
    if hosts * (hosts - 1) <= ALONE_MOST {
        return each_to_each(hosts).map(|it| vec![it]).collect();
    }
    let shifted = |by| (0..hosts).map(|from| (from, (from + by) % hosts)).collect();
    (1..hosts).map(shifted).collect()
}

impl Asked {
    fn dial(host: &str, at: SocketAddr, token: &Token) -> Result<Asked, ProbeError> {
        let stream = dial(at, token).map_err(|unmet| {
            let host = host.to_owned();
            match unmet {
                Unmet::Io(why) => ProbeError::Unreachable { host, why },
                Unmet::Greeting(why) => ProbeError::Unwelcome { host, why },
            }
        })?;
        let mut asked = Asked {
            host: host.to_owned(),
            stream,
            dirs: Vec::new(),
        };
        match asked.order(&ProbeOrder::Hello, Duration::ZERO)? {
            ProbeReply::Hello { version, dirs } if version == VERSION => asked.dirs = dirs,
            ProbeReply::Hello { version, .. } => {
                return Err(ProbeError::Version {
                    host: asked.host,
                    theirs: version,
                });
            }
            other => return Err(asked.strange(&other)),
        }
        Ok(asked)
    }

    /// Orders something that takes some time; the answer.
    fn order(&mut self, order: &ProbeOrder, takes: Duration) -> Result<ProbeReply, ProbeError> {
        let mut talk = || {
            self.stream.set_read_timeout(Some(takes + ANSWER_TIME))?;
            self.stream.set_write_timeout(Some(ANSWER_TIME))?;
            say(&mut self.stream, order)?;
            hear(&mut self.stream)
        };
        let answered: std::io::Result<Option<ProbeReply>> = talk();
        let why = match answered {
            Ok(Some(reply)) => return Ok(reply),
            Ok(None) => "it has ended the connection".to_owned(),
            Err(error) => error.to_string(),
        };
        let host = self.host.clone();
        Err(ProbeError::Gone { host, why })
    }

    fn strange(&self, reply: &ProbeReply) -> ProbeError {
        let why = match reply {
            ProbeReply::Failed { why } => why.clone(),
            other => format!("it answers what was not asked: {other:?}"),
        };
        let host = self.host.clone();
        ProbeError::Gone { host, why }
    }
}

struct Talk<'w> {
    asked: Vec<Asked>,
    congestion: Vec<String>,
    begin: Instant,
    times: SampleTimes,
    watch: &'w mut dyn FnMut(&str, f64) -> bool,
}

impl Talk<'_> {
    fn noise(&self, tolerance: f64) -> Noise {
        Noise {
            tolerance,
            repeats_until: self.begin + self.times.repeats,
            ends: self.begin + TIME_MOST,
        }
    }

    fn go_on(&mut self, what: &str, done: f64) -> Result<(), ProbeError> {
        match (self.watch)(what, done) {
            true => Ok(()),
            false => Err(ProbeError::Interrupted),
        }
    }

    fn flows(
        &mut self,
        what: &str,
        done: f64,
        step: &AtOnce,
        time: Duration,
    ) -> Result<Vec<PairRate>, ProbeError> {
        let noise = self.noise(TOLERANCE);
        let settled = noise.settle_all(|| {
            self.go_on(what, done)?;
            self.sample(step, time)
        })?;
        let pairs = step.iter().zip(settled);
        Ok(pairs
            .map(|(&(from, to), bytes_per_s)| PairRate {
                from,
                to,
                bytes_per_s,
            })
            .collect())
    }

    /// What each flow of a step carries, all at once.
    fn sample(&mut self, step: &AtOnce, time: Duration) -> Result<Vec<f64>, ProbeError> {
        let hosts: Vec<String> = self.asked.iter().map(|it| it.host.clone()).collect();
        let order = |from: usize| {
            let to = step
                .iter()
                .filter(|it| it.0 == from)
                .map(|it| hosts[it.1].clone());
            let to: Vec<String> = to.collect();
            let millis = time.as_millis() as u64;
            (!to.is_empty()).then_some(ProbeOrder::Send { to, millis })
        };
        let mut rates = vec![0.0; step.len()];
        for (from, reply) in self.at_once(order, time)? {
            let ProbeReply::Sent { flows, congestion } = reply else {
                return Err(self.asked[from].strange(&reply));
            };
            self.congestion[from] = congestion;
            let places = step.iter().enumerate().filter(|(_, it)| it.0 == from);
            for ((at, &(_, to)), flow) in places.zip(flows) {
                let cut_off = |why| ProbeError::CutOff {
                    from: hosts[from].clone(),
                    to: hosts[to].clone(),
                    why,
                };
                rates[at] = flow.map_err(cut_off)?;
            }
        }
        Ok(rates)
    }

    fn disks(&mut self, done: f64) -> Result<Vec<HostDisk>, ProbeError> {
        let noise = self.noise(DISK_TOLERANCE);
        let millis = self.times.disks.as_millis() as u64;
        let settled = noise.settle_all(|| {
            self.go_on("disks of all hosts", done)?;
            let mut rates = self.disk_rates(|| ProbeOrder::WriteDisks { millis })?;
            rates.extend(self.disk_rates(|| ProbeOrder::ReadDisks { millis })?);
            Ok(rates)
        })?;
        let (writes, reads) = settled.split_at(settled.len() / 2);
        let of = |(host, asked): (usize, &Asked)| {
            asked
                .dirs
                .iter()
                .map(move |dir| (host, dir.clone()))
                .collect::<Vec<_>>()
        };
        let dirs = self.asked.iter().enumerate().flat_map(of);
        let rates = writes.iter().zip(reads);
        Ok(dirs
            .zip(rates)
            .map(|((host, dir), (write, read))| HostDisk {
                host,
                dir,
                write_bytes_per_s: *write,
                read_bytes_per_s: *read,
            })
            .collect())
    }

    /// Of all directories of all hosts, in their order.
    fn disk_rates(&mut self, order: impl Fn() -> ProbeOrder) -> Result<Vec<f64>, ProbeError> {
        let with_dirs: Vec<bool> = self.asked.iter().map(|it| !it.dirs.is_empty()).collect();
        let mut rates = Vec::new();
        let time = self.times.disks;
        for (host, reply) in self.at_once(|at| with_dirs[at].then(&order), time)? {
            match reply {
                ProbeReply::Disks { bytes_per_s } => rates.extend(bytes_per_s),
                ProbeReply::Failed { why } => {
                    let host = self.asked[host].host.clone();
                    return Err(ProbeError::Disk { host, why });
                }
                other => return Err(self.asked[host].strange(&other)),
            }
        }
        Ok(rates)
    }

    /// Gives each host its order, all at once; the answers of those that got one.
    fn at_once(
        &mut self,
        order: impl Fn(usize) -> Option<ProbeOrder>,
        takes: Duration,
    ) -> Result<Vec<(usize, ProbeReply)>, ProbeError> {
        thread::scope(|scope| {
            let asked = self.asked.iter_mut().enumerate();
            let ordered = asked.filter_map(|(at, asked)| Some((at, asked, order(at)?)));
            let threads: Vec<_> = ordered
                .map(|(at, asked, order)| {
                    scope.spawn(move || Ok((at, asked.order(&order, takes)?)))
                })
                .collect();
            let joined = threads.into_iter().map(|it| it.join());
            joined
                .map(|it| it.expect("asking does not panic"))
                .collect()
        })
    }
}

#[cfg(test)]
mod tests;
