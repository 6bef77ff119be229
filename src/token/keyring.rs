//! The secrets: one signs, that one and the also accepted ones verify, so that a secret can be changed without
//! sending anybody back (add everywhere, promote, remove).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};

use super::{EntryTokenGuard, EntryTokenIssuer, Fingerprint, KeyFingerprints, PassRefusal, payload};
use crate::domain::{EntryToken, PassClaims, QueueTarget, UserId};

type HmacSha256 = Hmac<Sha256>;

/// The fewest bytes a secret may have: the size of the hash.
pub(super) const MIN_SECRET_BYTES: usize = 32;

/// No pass is longer: two ids and an expiry of 19 digits each, the longest kind, and the signature.
const MAX_PASS_BYTES: usize = 160;

/// What is signed for a fingerprint: no pass has this payload.
const FINGERPRINTED: &[u8] = b"virtual-queue fingerprint";

/// A secret that could be guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret needs at least 32 bytes, this one has {bytes}: make one with `openssl rand -base64 48`")]
pub struct WeakSecret {
    /// How many it has.
    pub bytes: usize,
}

/// Signs with the current secret; accepts that and the older or coming ones.
pub struct Keyring {
    current: HmacSha256,
    also_accepted: Vec<HmacSha256>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring").field("also_accepted", &self.also_accepted.len()).finish_non_exhaustive()
    }
}

impl Keyring {
    /// A keyring.
    ///
    /// # Errors
    /// [`WeakSecret`] if any secret has under 32 bytes.
    pub fn new(current: &SecretString, also_accepted: &[SecretString]) -> Result<Self, WeakSecret> {
        Ok(Self { current: keyed(current)?, also_accepted: also_accepted.iter().map(keyed).collect::<Result<_, _>>()? })
    }

    /// A keyring with a secret of its own that nobody knows and that ends with the process.
    pub fn random() -> Self {
        let secret: [u8; MIN_SECRET_BYTES] = rand::random();
        Self { current: key(&secret), also_accepted: Vec::new() }
    }

    /// What tells these secrets from others, and may be shown.
    pub fn fingerprints(&self) -> KeyFingerprints {
        KeyFingerprints {
            current: fingerprint(&self.current),
            also_accepted: self.also_accepted.iter().map(fingerprint).collect(),
        }
    }

    fn is_genuine(&self, payload: &[u8], tag: &[u8; 32]) -> bool {
        let mut genuine = Choice::from(0);
        for key in std::iter::once(&self.current).chain(&self.also_accepted) {
            genuine |= key.clone().chain_update(payload).finalize().into_bytes()[..].ct_eq(tag);
        }
        genuine.into()
    }

    /// Reads a pass: its one canonical encoding, signed by one of the secrets.
    fn open(&self, raw: &str) -> Option<PassClaims> {
        if raw.len() > MAX_PASS_BYTES {
            return None;
        }
        let (payload, tag) = raw.split_once('.')?;
        let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
        let tag: [u8; 32] = URL_SAFE_NO_PAD.decode(tag).ok()?.try_into().ok()?;
        if !self.is_genuine(&payload, &tag) {
            return None;
        }
        let claims = payload::read(&payload)?;
        let canonical = encode(&payload, &tag) == raw;
        canonical.then_some(claims)
    }
}

impl EntryTokenIssuer for Keyring {
    fn mint(&self, target: QueueTarget, user: UserId, expires_at: u64) -> EntryToken {
        let payload = payload::write(&PassClaims { target, user, expires_at });
        let tag = self.current.clone().chain_update(payload.as_bytes()).finalize().into_bytes();
        EntryToken::new(encode(payload.as_bytes(), &tag), expires_at)
    }
}

impl EntryTokenGuard for Keyring {
    fn verify(
        &self,
        target: QueueTarget,
        user: UserId,
        raw: &str,
        now_seconds: u64,
    ) -> Result<PassClaims, PassRefusal> {
        let claims = self.open(raw).ok_or(PassRefusal::Forged)?;
        if claims.target != target {
            return Err(PassRefusal::OtherTarget);
        }
        if claims.user != user {
            return Err(PassRefusal::OtherUser);
        }
        if claims.expires_at <= now_seconds {
            return Err(PassRefusal::Expired);
        }
        Ok(claims)
    }
}

fn encode(payload: &[u8], tag: &[u8]) -> String {
    let mut raw = String::with_capacity(MAX_PASS_BYTES);
    URL_SAFE_NO_PAD.encode_string(payload, &mut raw);
    raw.push('.');
    URL_SAFE_NO_PAD.encode_string(tag, &mut raw);
    raw
}

fn fingerprint(key: &HmacSha256) -> Fingerprint {
    let tag = key.clone().chain_update(FINGERPRINTED).finalize().into_bytes();
    Fingerprint::new(u32::from_be_bytes([tag[0], tag[1], tag[2], tag[3]]))
}

fn keyed(secret: &SecretString) -> Result<HmacSha256, WeakSecret> {
    let bytes = secret.expose_secret().as_bytes();
    if bytes.len() < MIN_SECRET_BYTES { Err(WeakSecret { bytes: bytes.len() }) } else { Ok(key(bytes)) }
}

fn key(secret: &[u8]) -> HmacSha256 {
    HmacSha256::new_from_slice(secret).expect("HMAC takes a key of any length")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::QueueTargetType;

    const NOW: u64 = 1_790_000_000;

    fn secret(fill: &str) -> SecretString {
        fill.repeat(32).into()
    }

    fn keyring() -> Keyring {
        Keyring::new(&secret("k"), &[]).expect("32 bytes are enough")
    }

    fn drop_42() -> QueueTarget {
        QueueTarget::new(QueueTargetType::LimitedDrop, 42).expect("an id")
    }

    fn user(id: u64) -> UserId {
        UserId::try_from(id).expect("an id")
    }

    #[test]
    fn a_pass_has_the_documented_form() {
        let pass = keyring().mint(drop_42(), user(7), NOW);
        let (payload, tag) = pass.raw().split_once('.').expect("two parts");
        assert_eq!(URL_SAFE_NO_PAD.decode(payload).expect("base64url"), b"LIMITED_DROP|42|7|1790000000");
        // printf 'LIMITED_DROP|42|7|1790000000' | openssl dgst -sha256 -hmac "$(printf 'k%.0s' $(seq 32))" -binary | basenc --base64url
        assert_eq!(tag, "NsYqJXfZ1f-oGkQPvrWwVsk8jMO83KTvwJ9F4nUkm0s");
        assert_eq!(format!("{pass:?}").matches(pass.raw()).count(), 0, "Debug shows no pass");
    }

    #[test]
    fn a_pass_is_good_for_its_holder_until_the_second_it_ends() {
        let keys = keyring();
        let pass = keys.mint(drop_42(), user(7), NOW);
        let event = QueueTarget::new(QueueTargetType::TicketingEvent, 42).expect("an id");
        let drop_43 = QueueTarget::new(QueueTargetType::LimitedDrop, 43).expect("an id");
        assert_eq!(
            keys.verify(drop_42(), user(7), pass.raw(), NOW - 1),
            Ok(PassClaims { target: drop_42(), user: user(7), expires_at: NOW })
        );
        assert_eq!(keys.verify(drop_42(), user(7), pass.raw(), NOW), Err(PassRefusal::Expired));
        assert_eq!(keys.verify(drop_42(), user(7), pass.raw(), NOW + 1), Err(PassRefusal::Expired));
        assert_eq!(keys.verify(event, user(7), pass.raw(), NOW - 1), Err(PassRefusal::OtherTarget));
        assert_eq!(keys.verify(drop_43, user(7), pass.raw(), NOW - 1), Err(PassRefusal::OtherTarget));
        assert_eq!(keys.verify(drop_42(), user(8), pass.raw(), NOW - 1), Err(PassRefusal::OtherUser));
    }

    #[test]
    fn rotation_sends_nobody_back() {
        let (old, new) = (secret("o"), secret("n"));
        let before = Keyring::new(&old, &[]).expect("long enough");
        let added = Keyring::new(&old, std::slice::from_ref(&new)).expect("long enough");
        let promoted = Keyring::new(&new, std::slice::from_ref(&old)).expect("long enough");
        let after = Keyring::new(&new, &[]).expect("long enough");
        let ok = |keys: &Keyring, pass: &EntryToken| keys.verify(drop_42(), user(7), pass.raw(), NOW - 1).is_ok();
        let (old_pass, new_pass) = (before.mint(drop_42(), user(7), NOW), promoted.mint(drop_42(), user(7), NOW));
        assert!(ok(&added, &old_pass) && ok(&added, &new_pass), "while some replicas sign with either");
        assert!(ok(&promoted, &old_pass) && ok(&promoted, &new_pass));
        assert!(!ok(&after, &old_pass) && ok(&after, &new_pass));
    }

    #[test]
    fn fingerprints_agree_all_through_a_rotation_and_not_between_strangers() {
        let (old, new) = (secret("o"), secret("n"));
        let prints = |current: &SecretString, also: &[&SecretString]| {
            let also: Vec<SecretString> = also.iter().map(|secret| (*secret).clone()).collect();
            Keyring::new(current, &also).expect("long enough").fingerprints()
        };
        // printf 'virtual-queue fingerprint' | openssl dgst -sha256 -hmac "$(printf 'k%.0s' $(seq 32))"
        assert_eq!(keyring().fingerprints().current.to_string(), "f59888d8");
        let steps = [prints(&old, &[]), prints(&old, &[&new]), prints(&new, &[&old]), prints(&new, &[])];
        for (a, step) in steps.iter().enumerate() {
            for (b, other) in steps.iter().enumerate() {
                assert_eq!(step.agrees_with(other), a.abs_diff(b) <= 1, "steps {a} and {b}");
            }
        }
    }

    #[test]
    fn short_secrets_are_refused() {
        let short: SecretString = "x".repeat(31).into();
        assert_eq!(Keyring::new(&short, &[]).err(), Some(WeakSecret { bytes: 31 }));
        assert_eq!(Keyring::new(&secret("k"), &[short]).err(), Some(WeakSecret { bytes: 31 }));
    }

    #[test]
    fn other_encodings_of_the_same_pass_are_refused() {
        let keys = keyring();
        let pass = keys.mint(drop_42(), user(7), NOW).raw().to_owned();
        let (payload, tag) = pass.split_once('.').expect("two parts");
        let standard = pass.replace('-', "+").replace('_', "/");
        let mut variants = vec![
            format!("{payload}=.{tag}"),
            format!("{payload}.{tag}="),
            format!("{payload}..{tag}"),
            format!("{pass}."),
            format!("{pass}.{tag}"),
            format!(" {pass}"),
            format!("{pass} "),
            format!("{pass}\n"),
            format!("{payload}\n.{tag}"),
            pass.to_uppercase(),
            format!("{payload}."),
            format!(".{tag}"),
            String::new(),
            ".".to_owned(),
            "x".repeat(100_000),
        ];
        if standard != pass {
            variants.push(standard);
        }
        // The last character of each part has bits that decode to nothing: every other spelling of them.
        for part_end in [payload.len() - 1, pass.len() - 1] {
            for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".chars() {
                let mut changed = pass.clone();
                changed.replace_range(part_end..=part_end, &other.to_string());
                if changed != pass {
                    variants.push(changed);
                }
            }
        }
        for variant in variants {
            assert_eq!(keys.verify(drop_42(), user(7), &variant, NOW - 1), Err(PassRefusal::Forged), "{variant:?}");
        }
    }

    #[test]
    fn direct_passes_repeat_within_their_minute_and_never_outlive_the_ttl() {
        let keys = keyring();
        for now in [NOW, NOW + 1, NOW + 19] {
            let pass = keys.mint_stateless(drop_42(), user(7), now, 300);
            assert_eq!(pass.expires_at() % 60, 0);
            assert!(pass.expires_at() <= now + 300 && pass.expires_at() > now + 240);
        }
        let start = NOW / 60 * 60;
        assert_eq!(
            keys.mint_stateless(drop_42(), user(7), start, 300),
            keys.mint_stateless(drop_42(), user(7), start + 59, 300)
        );
        for ttl in 1..400 {
            let pass = keys.mint_stateless(drop_42(), user(7), NOW + 13, ttl);
            assert!(pass.expires_at() > NOW + 13 && pass.expires_at() <= NOW + 13 + ttl, "ttl {ttl}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_pass_changed_in_any_one_byte_is_never_accepted(
            at in any::<proptest::sample::Index>(), to in any::<u8>(), target in 1..=i64::MAX as u64,
            holder in 1..=i64::MAX as u64,
        ) {
            let keys = keyring();
            let target = QueueTarget::new(QueueTargetType::TicketingEvent, target).expect("an id");
            let raw = keys.mint(target, user(holder), NOW).raw().to_owned();
            prop_assert!(raw.len() <= MAX_PASS_BYTES);
            prop_assert!(keys.verify(target, user(holder), &raw, NOW - 1).is_ok());
            let mut bytes = raw.clone().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = to;
            if let Ok(changed) = String::from_utf8(bytes) && changed != raw {
                prop_assert_eq!(keys.verify(target, user(holder), &changed, NOW - 1), Err(PassRefusal::Forged));
            }
        }

        #[test]
        fn a_pass_with_bytes_put_in_or_taken_out_is_never_accepted(
            at in any::<proptest::sample::Index>(), put_in in "[A-Za-z0-9_=. -]{0,4}", take_out in 0usize..4,
        ) {
            let keys = keyring();
            let raw = keys.mint(drop_42(), user(7), NOW).raw().to_owned();
            let at = at.index(raw.len());
            let mut changed = raw.clone();
            changed.replace_range(at..(at + take_out).min(raw.len()), &put_in);
            if changed != raw {
                prop_assert_eq!(keys.verify(drop_42(), user(7), &changed, NOW - 1), Err(PassRefusal::Forged));
            }
        }

        #[test]
        fn what_is_not_a_pass_is_never_accepted_and_never_panics(raw in ".{0,300}") {
            prop_assert_eq!(keyring().verify(drop_42(), user(7), &raw, 0), Err(PassRefusal::Forged));
        }

        #[test]
        fn another_persons_or_targets_pass_is_never_accepted(
            a in 1..=i64::MAX as u64, b in 1..=i64::MAX as u64, past in 0u64..1_000_000,
        ) {
            let keys = keyring();
            let pass = keys.mint(drop_42(), user(a), NOW);
            prop_assert_eq!(keys.verify(drop_42(), user(b), pass.raw(), NOW - 1).is_ok(), a == b);
            prop_assert_eq!(keys.verify(drop_42(), user(a), pass.raw(), NOW + past), Err(PassRefusal::Expired));
        }
    }
}
