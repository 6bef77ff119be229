//! Who an anonymous visitor is, as their browser says it: `{id}.{base64url(HMAC-SHA256(secret, payload))}`.
//!
//! The payload is `virtual-queue visitor|{id}`: no pass and no fingerprint has it, so none of the three is good for
//! another.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use super::Keyring;
use crate::domain::UserId;

/// An id of 19 digits, a dot, and the signature.
const MAX_BYTES: usize = 19 + 1 + 43;

/// A visitor whose signature holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visitor {
    /// Who it is.
    pub id: UserId,
    /// Signed with the current secret. False: with one that is only accepted as well, and may go.
    pub is_current: bool,
}

impl Keyring {
    /// The text that proves later who a visitor is. The same id gives the same bytes under one current secret.
    pub fn sign_visitor(&self, id: UserId) -> String {
        format!("{id}.{}", URL_SAFE_NO_PAD.encode(self.sign(payload(id).as_bytes())))
    }

    /// The visitor whom a text proves: in its one canonical spelling, signed with one of the secrets.
    pub fn visitor(&self, raw: &str) -> Option<Visitor> {
        if raw.len() > MAX_BYTES {
            return None;
        }
        let (id, encoded) = raw.split_once('.')?;
        let id = UserId::parse(id).ok()?;
        let tag: [u8; 32] = URL_SAFE_NO_PAD.decode(encoded).ok()?.try_into().ok()?;
        let is_genuine = self.is_genuine(payload(id).as_bytes(), &tag) && URL_SAFE_NO_PAD.encode(tag) == encoded;
        is_genuine.then(|| Visitor { id, is_current: self.sign(payload(id).as_bytes()) == tag })
    }
}

fn payload(id: UserId) -> String {
    format!("virtual-queue visitor|{id}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::{QueueTarget, QueueTargetType},
        token::{EntryTokenGuard, EntryTokenIssuer, PassRefusal},
    };

    const OLD: &str = "the old secret, 32 bytes or more of it";
    const NEW: &str = "the new secret, 32 bytes or more of it";

    fn keyring(current: &str, also: &[&str]) -> Keyring {
        let also: Vec<_> = also.iter().map(|secret| (*secret).into()).collect();
        Keyring::new(&current.into(), &also).unwrap()
    }

    fn seven() -> UserId {
        UserId::try_from(7).unwrap()
    }

    #[test]
    fn a_visitor_is_known_again_also_while_the_secret_changes() {
        let old = keyring(OLD, &[]).sign_visitor(seven());
        assert_eq!(keyring(OLD, &[NEW]).visitor(&old), Some(Visitor { id: seven(), is_current: true }));
        assert_eq!(keyring(NEW, &[OLD]).visitor(&old), Some(Visitor { id: seven(), is_current: false }));
        assert_eq!(keyring(NEW, &[]).visitor(&old), None);
    }

    #[test]
    fn what_was_changed_in_any_place_proves_nothing() {
        let keys = keyring(OLD, &[NEW]);
        let good = keys.sign_visitor(seven());
        for at in 0..good.len() {
            for other in ["0", "9", "A", "b", "_", ".", "=", ""] {
                let changed = format!("{}{other}{}", &good[..at], &good[at + 1..]);
                assert!(changed == good || keys.visitor(&changed).is_none(), "{changed}");
            }
        }
        let signature = good.split_once('.').unwrap().1;
        for bad in [
            String::new(),
            "7".to_owned(),
            "7.".to_owned(),
            format!(".{signature}"),
            format!("07.{signature}"),
            format!("8.{signature}"),
            format!("{good}="),
            format!("{good} "),
            format!("{good}.{signature}"),
        ] {
            assert_eq!(keys.visitor(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_pass_proves_no_visitor_and_a_visitor_is_no_pass() {
        let keys = keyring(OLD, &[]);
        let target = QueueTarget::new(QueueTargetType::LimitedDrop, 42).unwrap();
        let pass = keys.mint(target, seven(), 2_000_000_000);
        let signature = pass.raw().split_once('.').unwrap().1;
        assert_eq!(keys.visitor(&format!("7.{signature}")), None);
        assert_eq!(keys.visitor(pass.raw()), None);
        let visitor = keys.sign_visitor(seven());
        let signature = visitor.split_once('.').unwrap().1;
        let of_the_visitor = format!("{}.{signature}", pass.raw().split_once('.').unwrap().0);
        assert_eq!(keys.verify(target, seven(), &of_the_visitor, 1), Err(PassRefusal::Forged));
        let payload = URL_SAFE_NO_PAD.encode(payload(seven()));
        for no_pass in [visitor.clone(), format!("{payload}.{signature}")] {
            assert_eq!(keys.verify(target, seven(), &no_pass, 1), Err(PassRefusal::Malformed));
        }
    }
}
