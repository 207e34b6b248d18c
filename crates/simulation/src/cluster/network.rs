//! What is under way between workers.

use super::Deeds;
use crate::random_program::Random;
use brambling_protocol::WorkerId;
use brambling_protocol::frame::{Body, Frame, Header, Kind};
use brambling_worker::piece_data::PieceBytes;

#[derive(Clone)]
pub(super) struct SimulatedPacket {
    pub(super) from: WorkerId,
    pub(super) to: WorkerId,
    pub(super) bytes: PieceBytes,
}

impl SimulatedPacket {
    /// What is to be handed on of it, if anything is. Who gets it does not do so with itself, nor with whom news are from.
    pub(super) fn relays(&self) -> Option<Kind> {
        let header = Header::decode(&self.bytes).expect("a node sends whole frames");
        if !matches!(header.kind(), Kind::Relay | Kind::Data) {
            return None;
        }
        let (frame, _) = Frame::decode(&self.bytes).expect("a node sends whole frames");
        let (from, to) = (self.from, self.to);
        match frame.body {
            Body::Relay(relay) => {
                let goes_round = relay.to.iter().any(|it| it == from || it == to);
                assert!(!goes_round, "{from} tells {to}: {relay:?}");
                Some(Kind::Relay)
            }
            Body::Data(data) => {
                let goes_round = data.routes.iter().any(|it| it.to == to);
                assert!(!goes_round, "{from} sends {to}: {data:?}");
                (!data.routes.is_empty()).then_some(Kind::Data)
            }
            _ => unreachable!("its header says so"),
        }
    }
}

#[derive(Default)]
pub(super) struct SimulatedNetwork {
    packets: Vec<SimulatedPacket>,
}

impl SimulatedNetwork {
    pub(super) fn send(&mut self, from: WorkerId, to: WorkerId, bytes: PieceBytes) {
        self.packets.push(SimulatedPacket { from, to, bytes });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Some packet, in any order; it may stay under way and come again, and what has no number may be lost.
    pub(super) fn pick(
        &mut self,
        random: &mut Random,
        deeds: &mut Deeds,
    ) -> Option<SimulatedPacket> {
        if self.packets.is_empty() {
            return None;
        }
        let place = random.below(self.packets.len() as u64) as usize;
        if random.one_in(5) {
            return Some(self.packets[place].clone());
        }
        let packet = self.packets.swap_remove(place);
        let header = Header::decode(&packet.bytes).expect("a node sends whole frames");
        if header.sequence().is_none() && random.one_in(3) {
            deeds.lost += 1;
            return None;
        }
        Some(packet)
    }

    /// Loses all that is under way between two.
    pub(super) fn cut(&mut self, a: WorkerId, b: WorkerId) {
        self.packets.retain(|packet| {
            let ends = (packet.from, packet.to);
            ends != (a, b) && ends != (b, a)
        });
    }
}
