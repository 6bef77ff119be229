//! What can happen in a case, and how likely it is.

use std::time::Duration;

use proptest::prelude::*;
use virtual_queue::store::{
    Adopted, Claim, Departure, Place, Settled, Settlement, Sweep, Tick, VirtualQueueStore, embedded::Overrides,
};

use super::{TARGETS, USERS};
use crate::store_fixture::{target, user};

/// How a replica's pump ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// With the lock, or not at all.
    WithTheLock,
    /// As if it had the lock: one that lost it without noticing.
    WithoutTheLock,
    /// It dies in the middle.
    DiesAfterTheSweep,
    /// With the lock, but the sweep failed.
    WithoutTheSweep,
}

/// What happens. People are indices into [`USERS`]; passes are "the latest", "the one before", and so on.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Advance(u64),
    ClockGoesBack(u64),
    Override(u64, Overrides),
    Enter(u64, usize),
    Poll(u64, usize),
    Leave(u64, usize),
    Claim(u64, usize, usize, u8),
    Settle(u64, usize, usize, u8, Settlement),
    /// A purchase without a pass, so many ms ago.
    SpendAll(u64, usize, u64),
    Check(u64, usize, usize),
    Direct(u64, u64),
    /// Handed over after an outage, with a direct pass of so many seconds.
    Adopt(u64, usize, u64),
    Tick(u64, u8, How),
    /// So many ticks' time passes with nobody coming, one replica ticking on.
    Lull(u64, u64, How),
    /// A lull during a pause of admission, so that people fall silent before their turn; then it goes on.
    Pause(u64, u64, How),
    /// The last answer was lost: the call is made again.
    Again,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    // Most happens at the first target, so that it fills up.
    let at = || prop_oneof![4 => Just(1), 1 => 1..=TARGETS];
    let who = || 0..USERS.len();
    let which = || prop_oneof![6 => Just(0usize), 1 => 1usize..3, 1 => Just(usize::MAX)];
    let nonce = || 0u8..2;
    let how = prop_oneof![Just(Settlement::Spent), Just(Settlement::GivenBack)];
    let ticks = || {
        prop_oneof![
            4 => Just(How::WithTheLock),
            2 => Just(How::WithoutTheLock),
            1 => Just(How::DiesAfterTheSweep),
            2 => Just(How::WithoutTheSweep),
        ]
    };
    // Who buys does so several times over.
    let buyer = || prop_oneof![3 => 0..2usize, 1 => 0..USERS.len()];
    let time = prop_oneof![
        2 => 1u64..50,
        4 => 400u64..2100,
        3 => Just(2000u64),
        2 => 2000u64..7000,
        1 => Just(12_000u64),
        1 => 10_000u64..180_000,
    ];
    prop_oneof![
        80 => (at(), who()).prop_map(|(at, who)| Step::Enter(at, who)),
        60 => (at(), who()).prop_map(|(at, who)| Step::Poll(at, who)),
        12 => (at(), who()).prop_map(|(at, who)| Step::Leave(at, who)),
        80 => (at(), 0u8..3, ticks()).prop_map(|(at, replica, how)| Step::Tick(at, replica, how)),
        6 => (at(), 1u64..8, ticks()).prop_map(|(at, ticks, how)| Step::Lull(at, ticks, how)),
        80 => time.prop_map(Step::Advance),
        2 => (1u64..100_000).prop_map(Step::ClockGoesBack),
        30 => (at(), buyer(), which(), nonce()).prop_map(|(at, who, which, nonce)| Step::Claim(at, who, which, nonce)),
        30 => (at(), buyer(), which(), nonce(), how)
            .prop_map(|(at, who, which, nonce, how)| Step::Settle(at, who, which, nonce, how)),
        14 => (at(), buyer(), prop_oneof![2 => Just(0u64), 1 => 1u64..30_000])
            .prop_map(|(at, who, ago)| Step::SpendAll(at, who, ago)),
        6 => (at(), buyer(), which()).prop_map(|(at, who, which)| Step::Check(at, who, which)),
        6 => (at(), 4u64..9, ticks()).prop_map(|(at, ticks, how)| Step::Pause(at, ticks, how)),
        10 => Just(Step::Again),
        6 => (at(), overrides()).prop_map(|(at, overrides)| Step::Override(at, overrides)),
        2 => (at(), 1u64..4).prop_map(|(at, passes)| Step::Direct(at, passes)),
        12 => (at(), who(), 0u64..=20).prop_map(|(at, who, seconds)| Step::Adopt(at, who, seconds)),
    ]
}

fn overrides() -> impl Strategy<Value = Overrides> {
    let numbers = (
        prop::option::of(prop_oneof![9 => 0u64..5, 1 => Just(10_001)]),
        prop::option::of(prop::sample::select(vec![500u64, 1000, 4000, 499])),
        prop::option::of(0u64..12),
        prop::option::of(0u64..7),
    );
    let some = (numbers, prop::bool::weighted(0.2)).prop_map(|((batch, tick_ms, capacity, max_active), paused)| {
        Overrides { batch, tick_ms, capacity, max_active, paused }
    });
    prop_oneof![2 => some, 1 => Just(Overrides::default())]
}

/// A call to a store, with everything it needs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Enter(u64, u64),
    Poll(u64, u64),
    Leave(u64, u64),
    Claim(u64, u64, u64, u8),
    Settle(u64, u64, u64, u8, Settlement),
    SpendAll(u64, u64, u64),
    Check(u64, u64, u64),
    Direct(u64, u64),
    Adopt(u64, u64, u64),
    /// Where, and how many this tick has evicted already.
    Sweep(u64, u64),
    Admit(u64, u64),
}

/// What a store answers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    Place(Option<Place>),
    Departure(Departure),
    Claim(Claim),
    Settled(Settled),
    Adopted(Adopted),
    Sweep(Sweep),
    Tick(Tick),
    Done,
}

impl Call {
    pub(super) fn target(self) -> u64 {
        match self {
            Self::Enter(at, _)
            | Self::Poll(at, _)
            | Self::Leave(at, _)
            | Self::Claim(at, ..)
            | Self::Settle(at, ..)
            | Self::SpendAll(at, ..)
            | Self::Check(at, ..)
            | Self::Direct(at, _)
            | Self::Adopt(at, ..)
            | Self::Sweep(at, _)
            | Self::Admit(at, _) => at,
        }
    }

    pub(super) async fn ask(self, store: &dyn VirtualQueueStore) -> Answer {
        match self {
            Self::Enter(at, who) => Answer::Place(store.enter_if_absent(target(at), user(who)).await.unwrap()),
            Self::Poll(at, who) => Answer::Place(store.status(target(at), user(who)).await.unwrap()),
            Self::Leave(at, who) => Answer::Departure(store.leave(target(at), user(who)).await.unwrap()),
            Self::Claim(at, who, expires_at, nonce) => {
                Answer::Claim(store.claim(target(at), user(who), expires_at, &format!("n{nonce}")).await.unwrap())
            }
            Self::Settle(at, who, expires_at, nonce, how) => Answer::Settled(
                store.settle(target(at), user(who), expires_at, &format!("n{nonce}"), how).await.unwrap(),
            ),
            Self::SpendAll(at, who, ago) => {
                Answer::Settled(store.spend_all(target(at), user(who), Duration::from_millis(ago)).await.unwrap())
            }
            Self::Check(at, who, expires_at) => {
                Answer::Claim(store.check(target(at), user(who), expires_at).await.unwrap())
            }
            Self::Direct(at, passes) => {
                store.count_direct(target(at), passes).await.unwrap();
                Answer::Done
            }
            Self::Adopt(at, who, expires_at) => {
                Answer::Adopted(store.adopt(target(at), &[(user(who), expires_at)]).await.unwrap())
            }
            Self::Sweep(at, evicted) => Answer::Sweep(store.sweep_stale(target(at), evicted).await.unwrap()),
            Self::Admit(at, evicted) => Answer::Tick(store.advance_admission(target(at), evicted).await.unwrap()),
        }
    }
}
