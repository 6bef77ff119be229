//! `{TYPE}|{targetId}|{userId}|{expiresAtEpochSec}`: `LIMITED_DROP|42|7|1790000000`.

use crate::domain::{PassClaims, QueueTarget, QueueTargetType, UserId, parse_canonical_id};

/// The signed text.
pub(super) fn write(claims: &PassClaims) -> String {
    format!("{}|{}|{}|{}", claims.target.kind().name(), claims.target.id(), claims.user, claims.expires_at)
}

/// Reads what [`write`] wrote, and nothing else.
pub(super) fn read(text: &[u8]) -> Option<PassClaims> {
    let mut fields = std::str::from_utf8(text).ok()?.split('|');
    let (kind, id, user, expires_at) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    if fields.next().is_some() {
        return None;
    }
    let kind = QueueTargetType::ALL.into_iter().find(|known| known.name() == kind)?;
    Some(PassClaims {
        target: QueueTarget::new(kind, parse_canonical_id(id).ok()?).ok()?,
        user: UserId::parse(user).ok()?,
        expires_at: parse_canonical_id(expires_at).ok()?,
    })
}
