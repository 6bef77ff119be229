//! Fuzzes the reading of passes. Its own binary: `cargo test --test fuzz_pass` alone, or in release and with ten million
//! cases `cargo test --release --test fuzz_pass -- --ignored --nocapture`.
//!
//! One rule is held against every case, whoever made it: what is accepted is byte for byte the pass we would make for
//! exactly this person, this target and this expiry, and is not over.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and tells what it measured")]

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use sha2::Sha256;
use virtual_queue::{
    domain::{MAX_ID, QueueTarget, QueueTargetType, UserId},
    token::{EntryTokenGuard, EntryTokenIssuer, Keyring, PassRefusal},
};

const SECRET: &str = "a secret of the fuzzer, and of nobody else: 0123456789";
const NOW: u64 = 1_790_000_000;
/// What a pass is made of, and what is near to it.
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=.| \n\r\t\0%~";

/// Makes cases. The same seed makes the same ones.
struct Fuzzer {
    rng: SmallRng,
    keyring: Keyring,
}

/// Who asks, and for what.
#[derive(Debug, Clone, Copy)]
struct Asked {
    target: QueueTarget,
    user: UserId,
}

impl Fuzzer {
    fn new(seed: u64) -> Self {
        Self { rng: SmallRng::seed_from_u64(seed), keyring: Keyring::new(&SECRET.into(), &[]).unwrap() }
    }

    fn id(&mut self) -> u64 {
        match self.rng.random_range(0..3) {
            0 => self.rng.random_range(1..100),
            1 => MAX_ID - self.rng.random_range(0..3),
            _ => self.rng.random_range(1..=MAX_ID),
        }
    }

    fn asked(&mut self) -> Asked {
        let kind = QueueTargetType::ALL[self.rng.random_range(0..2)];
        let (target, user) = (self.id(), self.id());
        Asked { target: QueueTarget::new(kind, target).unwrap(), user: UserId::try_from(user).unwrap() }
    }

    fn pass(&mut self, of: Asked) -> String {
        let expires_at = NOW + self.rng.random_range(1..300);
        self.keyring.mint(of.target, of.user, expires_at).raw().to_owned()
    }

    fn place(&mut self, text: &[u8]) -> usize {
        self.rng.random_range(0..=text.len())
    }

    /// One change, of the kinds an attacker or a broken client makes.
    fn change(&mut self, text: &mut Vec<u8>) {
        let at = self.place(text);
        match self.rng.random_range(0..9) {
            // A bit.
            0 if at < text.len() => text[at] ^= 1 << self.rng.random_range(0..8),
            // A letter for another.
            1 if at < text.len() => text[at] = LETTERS[self.rng.random_range(0..LETTERS.len())],
            // One in between.
            2 => text.insert(at, LETTERS[self.rng.random_range(0..LETTERS.len())]),
            // A piece left out.
            3 => {
                let end = (at + self.rng.random_range(1..8)).min(text.len());
                text.drain(at..end);
            }
            // A piece twice.
            4 => {
                let piece = text[at..(at + self.rng.random_range(1..8)).min(text.len())].to_vec();
                text.splice(at..at, piece);
            }
            // The end cut off.
            5 => text.truncate(at),
            // Two letters change places.
            6 if at + 1 < text.len() => text.swap(at, at + 1),
            // The case of one.
            7 if at < text.len() => text[at] ^= 0x20,
            // Something behind.
            _ => text.push(LETTERS[self.rng.random_range(0..LETTERS.len())]),
        }
    }

    fn changed(&mut self, text: &[u8]) -> Vec<u8> {
        let mut text = text.to_vec();
        for _ in 0..self.rng.random_range(1..4) {
            self.change(&mut text);
        }
        text
    }

    /// A genuine pass, changed; or two, joined. Never one that was made: changes may undo each other, and two that are
    /// joined may be all of the one and nothing of the other.
    fn mutated_pass(&mut self, asked: Asked) -> String {
        let pass = self.pass(asked);
        loop {
            let (mutated, other) = self.mutate(&pass);
            if mutated != pass && other.is_none_or(|other| mutated != other) {
                return mutated;
            }
        }
    }

    /// A pass changed; or joined with another, and that one.
    fn mutate(&mut self, pass: &str) -> (String, Option<String>) {
        if self.rng.random_range(0..8) > 0 {
            return (String::from_utf8_lossy(&self.changed(pass.as_bytes())).into_owned(), None);
        }
        let other = self.asked();
        let other = self.pass(other);
        let (at, from) = (self.place(pass.as_bytes()), self.place(other.as_bytes()));
        (format!("{}{}", &pass[..at], &other[from..]), Some(other))
    }

    /// Anything at all.
    fn noise(&mut self) -> String {
        let length = self.rng.random_range(0..200);
        let letters: Vec<u8> = if self.rng.random() {
            (0..length).map(|_| LETTERS[self.rng.random_range(0..LETTERS.len())]).collect()
        } else {
            (0..length).map(|_| self.rng.random()).collect()
        };
        String::from_utf8_lossy(&letters).into_owned()
    }

    /// A payload changed, and then signed with the real secret: gets past the signature, to whoever reads the payload.
    fn signed_nonsense(&mut self, asked: Asked) -> String {
        let expires_at = NOW + self.rng.random_range(0..3);
        let payload = format!("{}|{}|{}|{expires_at}", asked.target.kind().name(), asked.target.id(), asked.user);
        let payload = self.changed(payload.as_bytes());
        let tag = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap().chain_update(&payload).finalize();
        format!("{}.{}", URL_SAFE_NO_PAD.encode(&payload), URL_SAFE_NO_PAD.encode(tag.into_bytes()))
    }

    /// Asks; what is accepted must be what we would have made. Gives whether it was.
    fn verdict(&self, asked: Asked, raw: &str) -> bool {
        match self.keyring.verify(asked.target, asked.user, raw, NOW) {
            Ok(claims) => {
                assert_eq!((claims.target, claims.user), (asked.target, asked.user), "{raw:?}");
                assert!(claims.expires_at > NOW, "{raw:?}");
                assert_eq!(self.keyring.mint(claims.target, claims.user, claims.expires_at).raw(), raw);
                true
            }
            Err(
                PassRefusal::Malformed
                | PassRefusal::Forged
                | PassRefusal::Expired
                | PassRefusal::OtherTarget
                | PassRefusal::OtherUser,
            ) => false,
        }
    }
}

/// So many mutated passes, none of which may be accepted.
fn assert_none_accepted(cases: u32, seed: u64) {
    let mut fuzzer = Fuzzer::new(seed);
    for _ in 0..cases {
        let asked = fuzzer.asked();
        let raw = fuzzer.mutated_pass(asked);
        assert!(!fuzzer.verdict(asked, &raw), "{raw:?}");
    }
}

// The three that follow are a million cases.

#[test]
fn no_mutated_pass_is_accepted() {
    assert_none_accepted(60_000, 1);
}

#[test]
fn noise_is_never_accepted() {
    let mut fuzzer = Fuzzer::new(2);
    let asked = fuzzer.asked();
    for _ in 0..900_000 {
        let raw = fuzzer.noise();
        assert!(!fuzzer.verdict(asked, &raw), "{raw:?}");
    }
}

#[test]
fn signed_nonsense_is_accepted_only_where_it_makes_sense() {
    let mut fuzzer = Fuzzer::new(3);
    let mut accepted = 0;
    for _ in 0..40_000 {
        let asked = fuzzer.asked();
        let raw = fuzzer.signed_nonsense(asked);
        accepted += u32::from(fuzzer.verdict(asked, &raw));
    }
    println!("{accepted} of 40,000 were another expiry, well formed");
    assert!(accepted > 0, "the payload is read at all");
}

#[test]
#[ignore = "ten million cases in a release build, half a million in a debug build"]
fn ten_million_mutated_passes_are_refused() {
    let each = if cfg!(debug_assertions) { 250_000 } else { 5_000_000 };
    std::thread::scope(|scope| {
        for seed in 10..12 {
            scope.spawn(move || assert_none_accepted(each, seed));
        }
    });
    println!("{} mutated passes, none accepted", 2 * each);
}
