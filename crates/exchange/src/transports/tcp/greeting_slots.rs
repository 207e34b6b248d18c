//! Places for those who have proved nothing yet, so many for each [`GreetingStep`] of a greeting.
//!
//! # Rules
//! * Who comes gets a place. If there is none, one of those who have one goes: of the address that has most of them the one that
//!   has been there for the longest.
//! * So whoever comes from an address of its own is not put out by what another address does, and from the same one it has as
//!   long for a step as so many others take to come: many times what an honest process needs, however many come in all.
//! * A step that is taken gives a new place: who has said what is expected does not wait with those who say nothing.
//! * Processes of the same user, as the system says who they are, wait among themselves.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// How many may be at each step of a greeting at once.
pub const GREETED_AT_ONCE: usize = 128;

/// How far somebody is who has proved nothing yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum GreetingStep {
    /// Nothing whole was said.
    Silent,
    /// An opening was answered.
    Challenged,
    /// Of a process of the same user, whatever it has said.
    OfOurUser,
}

/// Whose places are counted together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Home(IpAddr);

impl Home {
    fn of(from: SocketAddr) -> Home {
        match from.ip().to_canonical() {
            // Whoever has one address of a /64 network has all of them.
            IpAddr::V6(ip) => Home(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into()),
            ip => Home(ip),
        }
    }
}

/// Who is at each step, those first who came first.
pub(super) struct GreetingSlots<T>(BTreeMap<GreetingStep, VecDeque<(T, Home)>>);

impl<T: Copy + PartialEq> GreetingSlots<T> {
    pub(super) fn new() -> GreetingSlots<T> {
        GreetingSlots(BTreeMap::new())
    }

    /// Somebody comes to a step; who has to go for that.
    pub(super) fn come(&mut self, who: T, step: GreetingStep, from: SocketAddr) -> Option<T> {
        let places = self.0.entry(step).or_default();
        places.push_back((who, Home::of(from)));
        (places.len() > GREETED_AT_ONCE).then(|| crowded_out(places))
    }

    /// Somebody is no stranger any more, or has gone.
    pub(super) fn go(&mut self, who: T) {
        for places in self.0.values_mut() {
            places.retain(|(it, _)| *it != who);
        }
    }

    /// Who has to go where there is no room for more than there are; none where nobody is.
    pub(super) fn make_room(&mut self) -> Option<T> {
        // Dialers that have said nothing go first.
        let places = self.0.values_mut().find(|places| !places.is_empty())?;
        Some(crowded_out(places))
    }
}

/// Takes out the one that came first of the address that has most.
fn crowded_out<T>(places: &mut VecDeque<(T, Home)>) -> T {
    let mut counts = BTreeMap::<Home, usize>::new();
    for (_, home) in &*places {
        *counts.entry(*home).or_default() += 1;
    }
    let most = counts.values().max().copied();
    let oldest = places
        .iter()
        .position(|(_, home)| counts.get(home).copied() == most);
    let gone = oldest.and_then(|oldest| places.remove(oldest));
    gone.expect("somebody has most").0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn of_one_address_the_oldest_goes_first() {
        let mut slots = GreetingSlots::new();
        let here = from("127.0.0.1:1");
        for who in 0..GREETED_AT_ONCE {
            assert_eq!(slots.come(who, GreetingStep::Silent, here), None);
        }
        for who in 0..1_000 {
            let comes = GREETED_AT_ONCE + who;
            assert_eq!(slots.come(comes, GreetingStep::Silent, here), Some(who));
        }
    }

    /// By however many ports, and as many addresses of one network as they like.
    #[test]
    fn the_address_with_most_loses_first() {
        for (flood, lone) in [
            ("10.0.0.1:{}", "10.0.0.2:1"),
            ("[2001:db8::{}]:1", "[2001:db8:0:1::1]:1"),
            // As a listener for both kinds of addresses sees them.
            ("[::ffff:10.0.0.1]:{}", "[::ffff:10.0.0.2]:1"),
        ] {
            let mut slots = GreetingSlots::new();
            assert_eq!(slots.come(0, GreetingStep::Silent, from(lone)), None);
            for who in 1..1_000 {
                let stranger = from(&flood.replace("{}", &who.to_string()));
                let gone = slots.come(who, GreetingStep::Silent, stranger);
                assert_ne!(gone, Some(0), "{lone}");
            }
            // Another one of many does not put it out either.
            let gone = slots.come(1_000, GreetingStep::Silent, from("10.0.0.3:1"));
            assert!(gone.is_some_and(|gone| gone != 0 && gone != 1_000));
        }
    }

    #[test]
    fn steps_have_places_of_their_own() {
        let mut slots = GreetingSlots::new();
        let here = from("127.0.0.1:1");
        assert_eq!(slots.come(0, GreetingStep::OfOurUser, here), None);
        assert_eq!(slots.come(1, GreetingStep::Challenged, here), None);
        for who in 2..1_000 {
            let gone = slots.come(who, GreetingStep::Silent, here);
            assert!(gone.is_none_or(|gone| gone > 1), "{gone:?}");
        }
        // Those who have said something go when nobody else is there.
        let mut silent = 0;
        while slots.make_room().is_some_and(|gone| gone > 1) {
            silent += 1;
        }
        assert_eq!(silent, GREETED_AT_ONCE);
        slots.go(0);
        assert_eq!(slots.make_room(), None);
    }
}
