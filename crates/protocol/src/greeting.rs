//! How two processes make sure that both know the cluster's token, before either reads anything else.
//!
//! Four messages of fixed sizes, and no state of the cluster is touched by them:
//!
//! | | from | what |
//! |---|---|---|
//! | [`Opening`] | dialer | a magic word, the newest version it speaks, a nonce |
//! | [`Challenge`] | listener | the version, a nonce, and a proof that it knows the token; or why it refuses |
//! | [`Answer`] | dialer | a proof that it knows the token |
//! | [`Verdict`] | listener | that it is let in, or why not |
//!
//! A proof is HMAC-SHA-256 over the version, both nonces and the name of the side, keyed by the token. The token itself
//! never travels. Nonces are fresh on each side, so what was said on one connection is of no use on another, and a side's
//! name keeps a proof from being sent back to whom it came from. Nothing after the verdict is protected by this: against
//! who can change what is on its way there is TLS, inside of which the same four messages go.
//!
//! A listener that uses TLS, and is dialed without, says so with a challenge, and so does one that does not use it and is dialed with
//! it ([`refusal`], [`Listener::on_opening`]). Nobody believes more of it than that the connection is of no use.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;

/// The version of what is said after the greeting; 0 is none.
pub const VERSION: u16 = 2;

const MAGIC: [u8; 8] = *b"BRMBLING";
const NONCE_BYTES: usize = 32;
const PROOF_BYTES: usize = 32;

/// What a dialer says first.
pub type Opening = [u8; 48];
/// What a listener replies.
pub type Challenge = [u8; 80];
/// What the dialer says then.
pub type Answer = [u8; PROOF_BYTES];
/// The listener's last word.
pub type Verdict = [u8; 8];
/// Random bytes that were never used before.
pub type Nonce = [u8; NONCE_BYTES];

type Proof = [u8; PROOF_BYTES];

/// What every process of a cluster knows, and nobody else. Shown only by [`Token::to_hex`].
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 32]);

/// A text that is no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a token is 64 hexadecimal digits; this has {found}")]
pub struct BadToken {
    found: BadTokenReason,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BadTokenReason {
    Length(usize),
    Other,
}

impl fmt::Display for BadTokenReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadTokenReason::Length(length) => write!(f, "{length} characters"),
            BadTokenReason::Other => f.write_str("other characters"),
        }
    }
}

impl Token {
    /// A token of 32 random bytes.
    pub fn new(random: [u8; 32]) -> Token {
        Token(random)
    }

    /// Reads what [`Token::to_hex`] gave; white space around it is ignored.
    ///
    /// # Errors
    /// When the text is no token. The error does not repeat the text.
    pub fn from_hex(text: &str) -> Result<Token, BadToken> {
        let text = text.trim();
        let bad = |found| BadToken { found };
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad(BadTokenReason::Other));
        }
        if text.len() != 64 {
            return Err(bad(BadTokenReason::Length(text.len())));
        }
        let mut token = [0; 32];
        for (byte, digits) in token.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digit = |at: usize| (digits[at] as char).to_digit(16).expect("just checked") as u8;
            *byte = digit(0) << 4 | digit(1);
        }
        Ok(Token(token))
    }

    /// The token as 64 hexadecimal digits, for a file that only its owner may read.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn mac(&self, side: Side, nonces: &Nonces) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length is a key");
        mac.update(match side {
            Side::Dialer => b"brambling dialer  ",
            Side::Listener => b"brambling listener",
        });
        mac.update(&VERSION.to_le_bytes());
        mac.update(&nonces.dialer);
        mac.update(&nonces.listener);
        mac
    }

    fn prove(&self, side: Side, nonces: &Nonces) -> Proof {
        self.mac(side, nonces).finalize().into_bytes().into()
    }

    /// In a time that does not depend on where the proof is wrong.
    fn check(&self, side: Side, nonces: &Nonces, proof: &[u8]) -> bool {
        self.mac(side, nonces).verify_slice(proof).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Dialer,
    Listener,
}

#[derive(Clone, Copy)]
struct Nonces {
    dialer: Nonce,
    listener: Nonce,
}

/// Why two processes do not talk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GreetingError {
    /// Something else listens, or dials, there.
    #[error("what is there does not speak as brambling does")]
    NotBrambling,
    /// The other side is of another version.
    #[error(
        "it speaks version {theirs} of brambling's protocol and this process version {VERSION}; install the same \
         brambling on both"
    )]
    Version {
        /// What the other side speaks.
        theirs: u16,
    },
    /// The other side does not know the token.
    #[error("it has another token; give the one that the controller wrote when it started")]
    Token,
    /// The listener greets as many others as it can.
    #[error("it is greeting too many others; try again")]
    Busy,
    /// The listener uses TLS, and the dialer does not.
    #[error(
        "the cluster uses TLS; give the folder with its certificates, as --tls DIR or in BRAMBLING_TLS"
    )]
    TlsNeeded,
    /// The dialer uses TLS, and the listener does not.
    #[error(
        "the cluster does not use TLS; leave --tls out and unset BRAMBLING_TLS, or start all of its processes with --tls"
    )]
    NoTls,
}

const WELCOME: u8 = 0;
const OTHER_VERSION: u8 = 1;
const OTHER_TOKEN: u8 = 2;
const BUSY: u8 = 3;
const TLS_NEEDED: u8 = 4;
const NO_TLS: u8 = 5;

/// How a TLS connection begins: a handshake, and the first byte of its version.
const TLS_BEGINS: [u8; 2] = [0x16, 3];

/// Whether a connection that begins with these bytes is one of TLS, as far as they tell.
pub fn begins_tls(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .zip(TLS_BEGINS)
        .all(|(byte, begins)| *byte == begins)
}

/// Whether what begins with these bytes may be an opening, or a challenge.
pub fn begins_greeting(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .zip(MAGIC)
        .all(|(byte, begins)| *byte == begins)
}

/// Why a listener did not begin TLS, by what it said instead.
pub fn refusal(challenge: &Challenge) -> GreetingError {
    let theirs = u16::from_le_bytes([challenge[8], challenge[9]]);
    if challenge[..8] != MAGIC {
        return GreetingError::NotBrambling;
    }
    // A welcome without TLS is none.
    refused(challenge[10], theirs)
        .err()
        .unwrap_or(GreetingError::NotBrambling)
}

/// The side that dials.
#[derive(Debug)]
pub struct Dialer {
    token: Token,
    nonce: Nonce,
}

impl Dialer {
    /// A greeting, and what to send first. `nonce` is fresh.
    pub fn new(token: Token, nonce: Nonce) -> (Dialer, Opening) {
        let mut opening = [0; size_of::<Opening>()];
        opening[..8].copy_from_slice(&MAGIC);
        opening[8..10].copy_from_slice(&VERSION.to_le_bytes());
        opening[16..].copy_from_slice(&nonce);
        (Dialer { token, nonce }, opening)
    }

    /// The listener's challenge has come: what to answer.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub fn on_challenge(&self, challenge: &Challenge) -> Result<Answer, GreetingError> {
        let theirs = u16::from_le_bytes([challenge[8], challenge[9]]);
        if challenge[..8] != MAGIC {
            return Err(GreetingError::NotBrambling);
        }
        refused(challenge[10], theirs)?;
        if theirs != VERSION {
            return Err(GreetingError::Version { theirs });
        }
        let mut listener = [0; NONCE_BYTES];
        listener.copy_from_slice(&challenge[16..48]);
        let nonces = Nonces {
            dialer: self.nonce,
            listener,
        };
        if !self.token.check(Side::Listener, &nonces, &challenge[48..]) {
            return Err(GreetingError::Token);
        }
        Ok(self.token.prove(Side::Dialer, &nonces))
    }

    /// The listener's last word has come.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub fn on_verdict(&self, verdict: &Verdict) -> Result<(), GreetingError> {
        refused(verdict[0], VERSION)
    }
}

fn refused(code: u8, theirs: u16) -> Result<(), GreetingError> {
    match code {
        WELCOME => Ok(()),
        OTHER_VERSION => Err(GreetingError::Version { theirs }),
        OTHER_TOKEN => Err(GreetingError::Token),
        BUSY => Err(GreetingError::Busy),
        TLS_NEEDED => Err(GreetingError::TlsNeeded),
        NO_TLS => Err(GreetingError::NoTls),
        _ => Err(GreetingError::NotBrambling),
    }
}

/// The side that was dialed.
#[derive(Debug)]
pub struct Listener {
    token: Token,
    nonces: Nonces,
}

impl fmt::Debug for Nonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonces")
    }
}

impl Listener {
    /// A dialer's opening has come: what to reply. `nonce` is fresh.
    ///
    /// # Errors
    /// Why the connection is to be closed, and what to send before that; nothing to whom does not speak as we do.
    pub fn on_opening(
        token: Token,
        opening: &Opening,
        nonce: Nonce,
    ) -> Result<(Listener, Challenge), (GreetingError, Option<Challenge>)> {
        let theirs = u16::from_le_bytes([opening[8], opening[9]]);
        if begins_tls(opening) {
            let refusal = challenge(NO_TLS, &[0; NONCE_BYTES], &[0; PROOF_BYTES]);
            return Err((GreetingError::NoTls, Some(refusal)));
        }
        if opening[..8] != MAGIC {
            return Err((GreetingError::NotBrambling, None));
        }
        if theirs != VERSION {
            let refusal = challenge(OTHER_VERSION, &[0; NONCE_BYTES], &[0; PROOF_BYTES]);
            return Err((GreetingError::Version { theirs }, Some(refusal)));
        }
        let mut dialer = [0; NONCE_BYTES];
        dialer.copy_from_slice(&opening[16..]);
        let nonces = Nonces {
            dialer,
            listener: nonce,
        };
        let proof = token.prove(Side::Listener, &nonces);
        Ok((
            Listener { token, nonces },
            challenge(WELCOME, &nonce, &proof),
        ))
    }

    /// What to send to whom there is no room for.
    pub fn busy() -> Challenge {
        challenge(BUSY, &[0; NONCE_BYTES], &[0; PROOF_BYTES])
    }

    /// What to send to whom speaks without TLS where it is used.
    pub fn tls_needed() -> Challenge {
        challenge(TLS_NEEDED, &[0; NONCE_BYTES], &[0; PROOF_BYTES])
    }

    /// The dialer's answer has come: what to send, and whether it is let in.
    pub fn on_answer(&self, answer: &Answer) -> (Verdict, Result<(), GreetingError>) {
        let knows = self.token.check(Side::Dialer, &self.nonces, answer);
        let mut verdict = [0; size_of::<Verdict>()];
        match knows {
            true => (verdict, Ok(())),
            false => {
                verdict[0] = OTHER_TOKEN;
                (verdict, Err(GreetingError::Token))
            }
        }
    }
}

fn challenge(code: u8, nonce: &Nonce, proof: &Proof) -> Challenge {
    let mut challenge = [0; size_of::<Challenge>()];
    challenge[..8].copy_from_slice(&MAGIC);
    challenge[8..10].copy_from_slice(&VERSION.to_le_bytes());
    challenge[10] = code;
    challenge[16..48].copy_from_slice(nonce);
    challenge[48..].copy_from_slice(proof);
    challenge
}
