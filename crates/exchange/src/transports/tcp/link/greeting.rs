//! A link's greeting: whose turn it is, and what each message leads to.

use super::Link;
use super::reader::Reader;
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
    /// A verdict was sent: what both share comes, where that is possible.
    Sharing,
    Over,
}

impl Link {
    /// Takes the next message of the greeting; false when it is not all there.
    pub(super) fn greet(&self, reader: &mut Reader, owner: &dyn Owner) -> Result<bool, Lost> {
        let next = match &reader.greeting {
            Greeting::Dialing(dialing, _) => {
                let Some(challenge) = reader.message::<{ size_of::<Challenge>() }>() else {
                    return Ok(false);
                };
                let answer = dialing.0.on_challenge(&challenge)?;
                self.send([Bytes::copy_from_slice(&answer)]);
                let Greeting::Dialing(dialing, _) = reader.take(challenge.len()) else {
                    unreachable!("just seen")
                };
                Greeting::Answered(Box::new(dialing.0))
            }
            Greeting::Answered(dialer) => {
                let Some(verdict) = reader.message::<{ size_of::<Verdict>() }>() else {
                    return Ok(false);
                };
                dialer.on_verdict(&verdict)?;
                reader.take(verdict.len());
                if self.wire.may_share() {
                    self.wire.share()?;
                    self.sent.add_bytes(1);
                }
                Greeting::Over
            }
            Greeting::Listening(listening) => {
                let Some(opening) = reader.message::<{ size_of::<Opening>() }>() else {
                    return Ok(false);
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
                Greeting::Challenged(Box::new(listener))
            }
            Greeting::Challenged(listener) => {
                let Some(answer) = reader.message::<{ size_of::<Answer>() }>() else {
                    return Ok(false);
                };
                let (verdict, is_in) = listener.on_answer(&answer);
                self.send([Bytes::copy_from_slice(&verdict)]);
                is_in?;
                reader.take(answer.len());
                match self.wire.may_share() {
                    true => Greeting::Sharing,
                    false => Greeting::Over,
                }
            }
            Greeting::Sharing => {
                let Some([byte]) = reader.message() else {
                    return Ok(false);
                };
                reader.take(1);
                self.wire.open_shared(byte)?;
                Greeting::Over
            }
            Greeting::Over => return Ok(true),
        };
        reader.greeting = next;
        if matches!(reader.greeting, Greeting::Over) {
            self.open()?;
            owner.opened(self.id, self.origin);
        }
        Ok(true)
    }
}
