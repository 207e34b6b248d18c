//! A link's greeting: whose turn it is, and what each message leads to.

use super::Link;
use super::reader::FrameReader;
use crate::transports::tcp::{Lost, Owner};
use brambling_protocol::greeting::{
    Answer, Challenge, Dialer, Listener, Nonce, Opening, Token, Verdict,
};
use bytes::Bytes;

/// Whose turn it is.
pub(super) enum Greeting {
    /// The opening is to be sent as soon as there is a connection; then a challenge comes.
    Dialing(Box<(Dialer, Opening)>, bool),
    /// An answer was sent: a verdict comes.
    Answered(Box<Dialer>),
    /// An opening comes.
    Listening(Box<(Token, Nonce)>),
    /// A challenge was sent: an answer comes.
    Challenged(Box<Listener>),
    /// A verdict was sent: what the two sides agree on comes, where their channels do.
    Agreeing,
    Over,
}

impl Link {
    /// Takes the next message of the greeting; false when it is not all there.
    pub(super) fn greet(&self, reader: &mut FrameReader, owner: &dyn Owner) -> Result<bool, Lost> {
        let next = match reader.greeting {
            Greeting::Dialing(..) => self.on_challenge(reader)?,
            Greeting::Answered(_) => self.on_verdict(reader)?,
            Greeting::Listening(_) => self.on_opening(reader)?,
            Greeting::Challenged(_) => self.on_answer(reader)?,
            Greeting::Agreeing => self.on_offer(reader)?,
            Greeting::Over => return Ok(true),
        };
        let Some(next) = next else {
            return Ok(false);
        };
        reader.greeting = next;
        if matches!(reader.greeting, Greeting::Over) {
            self.open()?;
            owner.opened(self.id, self.origin);
        }
        Ok(true)
    }

    // ---- what each message leads to; none while it is not all there. Where it is refused the greeting stays as it is: nothing that
    // comes after it is taken for frames.

    fn on_challenge(&self, reader: &mut FrameReader) -> Result<Option<Greeting>, Lost> {
        let (Greeting::Dialing(dialing, _), Some(challenge)) = (
            &reader.greeting,
            reader.message::<{ size_of::<Challenge>() }>(),
        ) else {
            return Ok(None);
        };
        let answer = dialing.0.on_challenge(&challenge)?;
        self.send([Bytes::copy_from_slice(&answer)]);
        let Greeting::Dialing(dialing, _) = reader.take(challenge.len()) else {
            unreachable!("just seen")
        };
        Ok(Some(Greeting::Answered(Box::new(dialing.0))))
    }

    fn on_verdict(&self, reader: &mut FrameReader) -> Result<Option<Greeting>, Lost> {
        let (Greeting::Answered(dialer), Some(verdict)) = (
            &reader.greeting,
            reader.message::<{ size_of::<Verdict>() }>(),
        ) else {
            return Ok(None);
        };
        dialer.on_verdict(&verdict)?;
        if self.wire.agrees() {
            self.wire.offer()?;
            self.sent.add_bytes(1);
        }
        reader.take(verdict.len());
        Ok(Some(Greeting::Over))
    }

    fn on_opening(&self, reader: &mut FrameReader) -> Result<Option<Greeting>, Lost> {
        let (Greeting::Listening(listening), Some(opening)) = (
            &reader.greeting,
            reader.message::<{ size_of::<Opening>() }>(),
        ) else {
            return Ok(None);
        };
        let (token, nonce) = &**listening;
        let listener = match Listener::on_opening(token.clone(), &opening, *nonce) {
            Ok((listener, challenge)) => {
                self.send([Bytes::copy_from_slice(&challenge)]);
                listener
            }
            Err((error, refusal)) => {
                if let Some(refusal) = refusal {
                    self.send([Bytes::copy_from_slice(&refusal)]);
                    self.wire.drain();
                }
                return Err(error.into());
            }
        };
        reader.take(opening.len());
        Ok(Some(Greeting::Challenged(Box::new(listener))))
    }

    fn on_answer(&self, reader: &mut FrameReader) -> Result<Option<Greeting>, Lost> {
        let (Greeting::Challenged(listener), Some(answer)) = (
            &reader.greeting,
            reader.message::<{ size_of::<Answer>() }>(),
        ) else {
            return Ok(None);
        };
        let (verdict, is_in) = listener.on_answer(&answer);
        self.send([Bytes::copy_from_slice(&verdict)]);
        is_in?;
        reader.take(answer.len());
        Ok(Some(match self.wire.agrees() {
            true => Greeting::Agreeing,
            false => Greeting::Over,
        }))
    }

    fn on_offer(&self, reader: &mut FrameReader) -> Result<Option<Greeting>, Lost> {
        let Some([byte]) = reader.message() else {
            return Ok(None);
        };
        self.wire.accept(byte)?;
        reader.take(1);
        Ok(Some(Greeting::Over))
    }
}
