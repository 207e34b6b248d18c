//! Makes coflows whose sizes have the tails that the literature tells of.
//!
//! # What is made
//! * Sizes are spread evenly over their logarithm within bands, and the bands are such that the shares of the largest
//!   are as told: [`Tails`].
//! * Three of five coflows have one reducer, as in the public trace of Facebook. The larger a coflow, the more mappers
//!   and reducers it has. Every mapper sends every reducer an equal part.
//! * Coflows arrive as a Poisson process, as many an hour as in that trace for a load of 1.

use super::{Coflow, FlowSpec, Workload};
use brambling_program::{Rng, StageId};

/// Coflows a second of the public trace: 526 in 3,629 s.
const COFLOWS_PER_S: f64 = 526.0 / 3629.0;

/// How sizes are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tails {
    /// Of coflows, 8 % have 10 GB or more and 98 % of the bytes; 15 % have 1 GB or more and 99.6 % (Stream, section II).
    #[default]
    Facebook,
    /// Of flows, 3.6 % have more than 35 MB and 95 % of the bytes, as in web search; each is a coflow of its own.
    Search,
}

/// So many of a thousand are this large: from, to.
type Band = (u32, f64, f64);

const FACEBOOK: [Band; 3] = [(850, 1e6, 500e6), (70, 1e9, 10e9), (80, 10e9, 950e9)];
const SEARCH: [Band; 2] = [(964, 10e3, 35e6), (36, 35e6, 13e9)];

impl Tails {
    fn bands(self) -> &'static [Band] {
        match self {
            Tails::Facebook => &FACEBOOK,
            Tails::Search => &SEARCH,
        }
    }
}

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerateOptions {
    /// How many.
    pub coflows: u32,
    /// Between how many ports.
    pub ports: u32,
    /// How sizes are spread.
    pub tails: Tails,
    /// What chance is derived from.
    pub seed: u64,
}

impl Workload {
    /// Makes coflows. The same options make the same ones.
    ///
    /// # Panics
    /// Without ports.
    ///
    /// # Examples
    /// ```
    /// use brambling_exchange::coflow::workload::{GenerateOptions, Tails, Workload};
    ///
    /// let options = GenerateOptions { coflows: 20, ports: 150, tails: Tails::Facebook, seed: 7 };
    /// let made = Workload::generate(&options);
    /// assert_eq!(made.coflows.len(), 20);
    /// assert_eq!(made, Workload::generate(&options));
    /// ```
    pub fn generate(options: &GenerateOptions) -> Workload {
        assert!(options.ports > 0, "coflows need ports");
        let mut random = Random(Rng::new(options.seed, StageId(u32::MAX), 0, 0));
        let bands = options.tails.bands();
        // As many of each band as its share says, in an order of their own: a few hundred coflows have the same tails.
        let mut of: Vec<Band> = (0..options.coflows)
            .map(|place| band(bands, place, options.coflows))
            .collect();
        random.shuffle(&mut of);
        let mut now = 0.0;
        let coflows = (1..).zip(of).map(|(name, (_, from, to))| {
            now += random.gap(COFLOWS_PER_S);
            let bytes = random.spread(from, to);
            let flows = match options.tails {
                Tails::Facebook => random.shuffled_flows(bytes, options.ports),
                Tails::Search => vec![random.flow(bytes, options.ports)],
            };
            Coflow::of(name, now, flows)
        });
        Workload::of(options.ports, coflows.collect())
    }
}

impl Workload {
    /// Makes coflows of one flow each, all on one link of 1 Gbit/s, that keep it busy for such a share of the time. Their
    /// sizes are spread evenly over the logarithm, from 1 MB to 10 GB, and they come as a Poisson process.
    #[must_use]
    pub fn on_one_link(coflows: u32, load: f64, seed: u64) -> Workload {
        const LINK: f64 = 125e6;
        const SIZES: (f64, f64) = (1e6, 10e9);
        let mut random = Random(Rng::new(seed, StageId(u32::MAX - 1), 0, 0));
        // math: the mean of what is spread so; as in `spread`.
        let mean = (SIZES.1 - SIZES.0) / (SIZES.1 / SIZES.0).ln();
        let mut now = 0.0;
        let coflows = (1..=u64::from(coflows)).map(|name| {
            now += random.gap(load * LINK / mean);
            let flow = FlowSpec {
                source: 0,
                destination: 1,
                bytes: random.spread(SIZES.0, SIZES.1),
            };
            Coflow::of(name, now, vec![flow])
        });
        let coflows = coflows.collect();
        Workload::of(2, coflows)
    }
}

/// The band of the coflow at a place of so many.
fn band(bands: &[Band], place: u32, count: u32) -> Band {
    let share = (u64::from(place) * 1000 + 500) / u64::from(count.max(1));
    let mut end = 0;
    for band in bands {
        end += u64::from(band.0);
        if share < end {
            return *band;
        }
    }
    bands[bands.len() - 1]
}

struct Random(Rng);

impl Random {
    /// Even over the logarithm.
    fn spread(&mut self, from: f64, to: f64) -> f64 {
        let share = self.0.next_f64();
        // math: what is simulated, and not a job's result; the last bit of a size decides nothing.
        (from.ln() + share * (to / from).ln()).exp()
    }

    /// Between two events of a Poisson process.
    fn gap(&mut self, per_s: f64) -> f64 {
        let share = self.0.next_f64();
        // math: as in `spread`.
        -(1.0 - share).ln() / per_s
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for place in (1..all.len()).rev() {
            all.swap(place, self.0.below(place as u64 + 1) as usize);
        }
    }

    /// So many different ports.
    fn ports(&mut self, count: u32, ports: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (0..ports).collect();
        self.shuffle(&mut all);
        all.truncate(count as usize);
        all
    }

    fn count(&mut self, from: f64, to: f64, ports: u32) -> u32 {
        (self.spread(from, to + 1.0) as u32).clamp(1, ports)
    }

    fn flow(&mut self, bytes: f64, ports: u32) -> FlowSpec {
        FlowSpec {
            source: self.0.below(u64::from(ports)) as u32,
            destination: self.0.below(u64::from(ports)) as u32,
            bytes,
        }
    }

    fn shuffled_flows(&mut self, bytes: f64, ports: u32) -> Vec<FlowSpec> {
        let is_large = bytes >= 1e9;
        let has_one = self.0.next_f64() < if is_large { 0.2 } else { 0.7 };
        let mappers = match is_large {
            true => self.count(20.0, 150.0, ports),
            false => self.count(1.0, 20.0, ports),
        };
        let reducers = match (has_one, is_large) {
            (true, _) => 1,
            (false, true) => self.count(5.0, 150.0, ports),
            (false, false) => self.count(2.0, 10.0, ports),
        };
        let mappers = self.ports(mappers, ports);
        let reducers = self.ports(reducers, ports);
        let each = bytes / (mappers.len() * reducers.len()) as f64;
        let to = |destination: &u32| {
            let destination = *destination;
            mappers.iter().map(move |source| FlowSpec {
                source: *source,
                destination,
                bytes: each,
            })
        };
        reducers.iter().flat_map(to).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(sizes: &[f64], least: f64) -> (f64, f64) {
        let large: Vec<f64> = sizes.iter().copied().filter(|it| *it >= least).collect();
        let bytes = large.iter().sum::<f64>() / sizes.iter().sum::<f64>();
        (large.len() as f64 / sizes.len() as f64, bytes)
    }

    #[test]
    fn tails_are_as_figure_1_has_them() {
        let options = GenerateOptions {
            coflows: 20_000,
            ports: 150,
            tails: Tails::Facebook,
            seed: 3,
        };
        let sizes: Vec<f64> = Workload::generate(&options)
            .coflows
            .iter()
            .map(Coflow::bytes)
            .collect();
        let (count, bytes) = share(&sizes, 10e9);
        assert!(
            (count - 0.08).abs() < 1e-3 && (bytes - 0.98).abs() < 0.01,
            "{count} {bytes}"
        );
        let (count, bytes) = share(&sizes, 1e9);
        assert!(
            (count - 0.15).abs() < 1e-3 && (bytes - 0.996).abs() < 0.003,
            "{count} {bytes}"
        );
        let options = GenerateOptions {
            tails: Tails::Search,
            ..options
        };
        let made = Workload::generate(&options);
        let sizes: Vec<f64> = made.coflows.iter().map(Coflow::bytes).collect();
        let (count, bytes) = share(&sizes, 35e6);
        assert!(
            (count - 0.036).abs() < 1e-3 && (bytes - 0.95).abs() < 0.01,
            "{count} {bytes}"
        );
        let last = made.coflows.last().unwrap().arrival_s;
        assert!((last * COFLOWS_PER_S / 20_000.0 - 1.0).abs() < 0.03);
    }
}
