//! What people queue for (TDD: `QueueTarget`).

use std::fmt;

use super::id::{InvalidId, MAX_ID, parse_canonical_id};

/// The kinds of scarce things (TDD: `QueueTargetType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QueueTargetType {
    /// A limited drop: the gate stands before `POST /limited-drops/{dropId}/orders`.
    LimitedDrop,
    /// A ticketing event: the gate stands before `POST /events/{id}/seats/select`.
    TicketingEvent,
}

impl QueueTargetType {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::LimitedDrop, Self::TicketingEvent];

    /// The name in passes, keys and metric labels: `LIMITED_DROP`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LimitedDrop => "LIMITED_DROP",
            Self::TicketingEvent => "TICKETING_EVENT",
        }
    }

    /// The name in paths and flag rules: `limited-drop`.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::LimitedDrop => "limited-drop",
            Self::TicketingEvent => "ticketing-event",
        }
    }
}

/// One queue: a kind and an id. Nothing else of the shop is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueTarget {
    kind: QueueTargetType,
    id: u64,
}

/// Why a text names no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// The kind is neither of the two.
    #[error("unknown target type: limited-drop and ticketing-event are known")]
    Kind,
    /// The id is not canonical.
    #[error(transparent)]
    Id(#[from] InvalidId),
}

impl QueueTarget {
    /// A target of a kind with an id in 1..=9223372036854775807.
    ///
    /// # Errors
    /// [`InvalidId`] outside that range.
    pub fn new(kind: QueueTargetType, id: u64) -> Result<Self, InvalidId> {
        if (1..=MAX_ID).contains(&id) { Ok(Self { kind, id }) } else { Err(InvalidId) }
    }

    /// From the two segments of a path: (`limited-drop`, `42`).
    ///
    /// # Errors
    /// [`InvalidTarget`] for an unknown kind or an id that is not canonical.
    pub fn from_path(slug: &str, id: &str) -> Result<Self, InvalidTarget> {
        let kind = QueueTargetType::ALL.into_iter().find(|kind| kind.slug() == slug).ok_or(InvalidTarget::Kind)?;
        Ok(Self { kind, id: parse_canonical_id(id)? })
    }

    /// From the form of flag rules and settings: `limited-drop/42`.
    ///
    /// # Errors
    /// [`InvalidTarget`] for anything else.
    pub fn from_rule(text: &str) -> Result<Self, InvalidTarget> {
        let (slug, id) = text.split_once('/').ok_or(InvalidTarget::Kind)?;
        Self::from_path(slug, id)
    }

    /// From the form of keys and labels, [`Self`]'s `Display`: `LIMITED_DROP:42`.
    ///
    /// # Errors
    /// [`InvalidTarget`] for anything else.
    pub fn from_label(text: &str) -> Result<Self, InvalidTarget> {
        let (name, id) = text.split_once(':').ok_or(InvalidTarget::Kind)?;
        let kind = QueueTargetType::ALL.into_iter().find(|kind| kind.name() == name).ok_or(InvalidTarget::Kind)?;
        Ok(Self { kind, id: parse_canonical_id(id)? })
    }

    /// The kind.
    pub fn kind(self) -> QueueTargetType {
        self.kind
    }

    /// The id.
    pub fn id(self) -> u64 {
        self.id
    }

    /// `limited-drop/42`, as rules write it.
    pub fn to_rule(self) -> String {
        format!("{}/{}", self.kind.slug(), self.id)
    }
}

impl fmt::Display for QueueTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_reads_back_as_the_same_target() {
        for kind in QueueTargetType::ALL {
            let target = QueueTarget::new(kind, 42).expect("42 is an id");
            assert_eq!(QueueTarget::from_label(&target.to_string()), Ok(target));
            assert_eq!(QueueTarget::from_rule(&target.to_rule()), Ok(target));
            assert_eq!(QueueTarget::from_path(kind.slug(), "42"), Ok(target));
        }
    }

    #[test]
    fn other_spellings_name_no_target() {
        for bad in ["limited-drop/042", "LIMITED_DROP/42", "limited-drop", "limited-drop/", "/42", "limited-drop/42/1"]
        {
            assert!(QueueTarget::from_rule(bad).is_err(), "{bad}");
        }
        for bad in ["limited-drop:42", "LIMITED_DROP:0", "LIMITED_DROP42", ":42", "LIMITED_DROP:42:1"] {
            assert!(QueueTarget::from_label(bad).is_err(), "{bad}");
        }
    }
}
