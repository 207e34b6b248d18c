//! A greeting lets in who knows the token, and nobody else: not who repeats what others said, nor who sends a proof back.

use brambling_protocol::greeting::{
    Challenge, Dialer, GreetingError, Listener, Opening, Token, VERSION, begins_greeting,
    begins_tls, refusal,
};

fn token(byte: u8) -> Token {
    Token::new([byte; 32])
}

/// Each side with its token and nonce; what each of them found.
fn greet(dialer: (u8, u8), listener: (u8, u8)) -> (Result<(), GreetingError>, bool) {
    let (dialing, opening) = Dialer::new(token(dialer.0), [dialer.1; 32]);
    let listening = Listener::on_opening(token(listener.0), &opening, [listener.1; 32]);
    let (listening, challenge) = listening.unwrap();
    let answer = match dialing.on_challenge(&challenge) {
        Ok(answer) => answer,
        Err(error) => return (Err(error), false),
    };
    let (verdict, is_in) = listening.on_answer(&answer);
    (dialing.on_verdict(&verdict), is_in.is_ok())
}

#[test]
fn who_knows_the_token_is_let_in() {
    assert_eq!(greet((1, 10), (1, 11)), (Ok(()), true));
}

#[test]
fn another_token_is_noticed_by_the_dialer_first() {
    assert_eq!(greet((1, 10), (2, 11)), (Err(GreetingError::Token), false));
}

/// A dialer that does not care what the listener proves must prove something itself.
#[test]
fn a_dialer_without_the_token_is_not_let_in() {
    let (_, opening) = Dialer::new(token(9), [3; 32]);
    let (listening, challenge) = Listener::on_opening(token(1), &opening, [4; 32]).unwrap();
    // What it could send: nothing, the listener's own proof, or a proof by another token.
    let mut back = [0; 32];
    back.copy_from_slice(&challenge[48..]);
    for answer in [[0; 32], back] {
        let (verdict, is_in) = listening.on_answer(&answer);
        assert_eq!(is_in, Err(GreetingError::Token));
        let (dialing, _) = Dialer::new(token(9), [3; 32]);
        assert_eq!(dialing.on_verdict(&verdict), Err(GreetingError::Token));
    }
}

/// What was overheard on one connection opens no other, in either role.
#[test]
fn what_was_said_before_is_of_no_use() {
    let (dialing, opening) = Dialer::new(token(1), [5; 32]);
    let (listening, challenge) = Listener::on_opening(token(1), &opening, [6; 32]).unwrap();
    let answer = dialing.on_challenge(&challenge).unwrap();
    assert_eq!(listening.on_answer(&answer).1, Ok(()));
    // The same opening again, and the answer that was right then.
    let (again, _) = Listener::on_opening(token(1), &opening, [7; 32]).unwrap();
    assert_eq!(again.on_answer(&answer).1, Err(GreetingError::Token));
    // The challenge that was right then, from somebody who has no token.
    let (later, _) = Dialer::new(token(1), [8; 32]);
    assert_eq!(later.on_challenge(&challenge), Err(GreetingError::Token));
}

#[test]
fn others_versions_and_strangers_are_told_apart() {
    let (dialing, mut opening) = Dialer::new(token(1), [5; 32]);
    opening[8..10].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let (error, refusal) = Listener::on_opening(token(1), &opening, [6; 32]).unwrap_err();
    let theirs = VERSION + 1;
    assert_eq!(error, GreetingError::Version { theirs });
    // The dialer hears which version the listener speaks.
    let theirs = VERSION;
    let heard = dialing.on_challenge(&refusal.unwrap());
    assert_eq!(heard, Err(GreetingError::Version { theirs }));

    let web: Opening = *b"GET / HTTP/1.1\r\nHost: controller:7077\r\nAccept: *";
    let (error, refusal) = Listener::on_opening(token(1), &web, [6; 32]).unwrap_err();
    assert_eq!((error, refusal), (GreetingError::NotBrambling, None));
    let silent: Challenge = [0; 80];
    let heard = dialing.on_challenge(&silent);
    assert_eq!(heard, Err(GreetingError::NotBrambling));
    let heard = dialing.on_challenge(&Listener::busy());
    assert_eq!(heard, Err(GreetingError::Busy));
}

#[test]
fn who_uses_tls_and_who_does_not_hear_what_keeps_them_apart() {
    let (dialing, opening) = Dialer::new(token(1), [5; 32]);
    // Without TLS at a listener that uses it.
    assert!(begins_greeting(&opening) && !begins_tls(&opening));
    let heard = dialing.on_challenge(&Listener::tls_needed());
    assert_eq!(heard, Err(GreetingError::TlsNeeded));
    // With TLS at a listener that does not.
    let mut handshake: Opening = [0; 48];
    handshake[..5].copy_from_slice(&[0x16, 3, 1, 0, 200]);
    assert!(begins_tls(&handshake) && !begins_greeting(&handshake));
    let (error, told) = Listener::on_opening(token(1), &handshake, [6; 32]).unwrap_err();
    assert_eq!(error, GreetingError::NoTls);
    assert_eq!(refusal(&told.unwrap()), GreetingError::NoTls);
}

/// Whatever a listener says instead of TLS, nobody goes on without.
#[test]
fn what_is_said_instead_of_tls_is_always_a_refusal() {
    let (_, opening) = Dialer::new(token(1), [5; 32]);
    let (_, welcome) = Listener::on_opening(token(1), &opening, [6; 32]).unwrap();
    assert_eq!(refusal(&welcome), GreetingError::NotBrambling);
    assert_eq!(refusal(&[0; 80]), GreetingError::NotBrambling);
    assert_eq!(refusal(&Listener::busy()), GreetingError::Busy);
}

/// Every bit of a challenge and of an answer counts, except those that say nothing yet.
#[test]
fn no_bit_of_a_proof_can_change() {
    let (dialing, opening) = Dialer::new(token(1), [5; 32]);
    let (listening, challenge) = Listener::on_opening(token(1), &opening, [6; 32]).unwrap();
    let answer = dialing.on_challenge(&challenge).unwrap();
    for bit in 0..8 * challenge.len() {
        let mut changed = challenge;
        changed[bit / 8] ^= 1 << (bit % 8);
        let unused = (11..16).contains(&(bit / 8));
        assert_eq!(dialing.on_challenge(&changed).is_ok(), unused, "bit {bit}");
    }
    for bit in 0..8 * answer.len() {
        let mut changed = answer;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(listening.on_answer(&changed).1.is_err(), "bit {bit}");
    }
}

#[test]
fn tokens_survive_a_file_and_are_not_shown_otherwise() {
    let token = Token::new(std::array::from_fn(|byte| byte as u8 * 7));
    assert_eq!(
        Token::from_hex(&format!(" {}\n", token.to_hex())),
        Ok(token.clone())
    );
    assert_eq!(format!("{token:?}"), "Token(…)");
    let error = |text: &str| Token::from_hex(text).unwrap_err().to_string();
    assert_eq!(
        error("12ab"),
        "a token is 64 hexadecimal digits; this has 4 characters"
    );
    assert_eq!(
        error(&"é".repeat(32)),
        "a token is 64 hexadecimal digits; this has other characters"
    );
}
