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

/// What is signed for a fingerprint: neither a pass nor a visitor has this payload.
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

    /// The current secret's signature.
    pub(super) fn sign(&self, payload: &[u8]) -> [u8; 32] {
        self.current.clone().chain_update(payload).finalize().into_bytes().into()
    }

    pub(super) fn is_genuine(&self, payload: &[u8], tag: &[u8; 32]) -> bool {
        let mut genuine = Choice::from(0);
        for key in std::iter::once(&self.current).chain(&self.also_accepted) {
            genuine |= key.clone().chain_update(payload).finalize().into_bytes()[..].ct_eq(tag);
        }
        genuine.into()
    }

    /// Reads a pass: its one canonical encoding, signed by one of the secrets. The form is public, so that whoever sends
    /// something else learns nothing from hearing that it is malformed; the signature is compared in constant time.
    fn open(&self, raw: &str) -> Result<PassClaims, PassRefusal> {
        let (claims, payload, tag) = well_formed(raw).ok_or(PassRefusal::Malformed)?;
        if self.is_genuine(&payload, &tag) { Ok(claims) } else { Err(PassRefusal::Forged) }
    }
}

impl EntryTokenIssuer for Keyring {
    fn mint(&self, target: QueueTarget, user: UserId, expires_at: u64) -> EntryToken {
        let payload = payload::write(&PassClaims { target, user, expires_at });
        let tag = self.sign(payload.as_bytes());
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
        let claims = self.open(raw)?;
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

/// What a pass says, its payload and its signature, if it has the one form that passes have.
fn well_formed(raw: &str) -> Option<(PassClaims, Vec<u8>, [u8; 32])> {
    if raw.len() > MAX_PASS_BYTES {
        return None;
    }
    let (payload, tag) = raw.split_once('.')?;
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let tag: [u8; 32] = URL_SAFE_NO_PAD.decode(tag).ok()?.try_into().ok()?;
    let claims = payload::read(&payload)?;
    (encode(&payload, &tag) == raw).then_some((claims, payload, tag))
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
mod tests;
