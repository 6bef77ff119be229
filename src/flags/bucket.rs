//! Which of 100 buckets a person is in: the same in every process, release and language.
//!
//! A change here moves people in and out of every partial rollout under way, so the test has fixed values.

use sha2::{Digest, Sha256};

use crate::domain::UserId;

/// The bucket of a person under a flag, 0..=99: the first 8 bytes of `SHA-256("{key}/{user}")` as a big-endian number,
/// modulo 100. With `bucket < percent`, a larger percentage only adds people.
pub(super) fn bucket(key: &str, user: UserId) -> u8 {
    let digest = Sha256::new().chain_update(key).chain_update("/").chain_update(user.to_string()).finalize();
    let head = digest.iter().take(8).fold(0_u64, |head, byte| head << 8 | u64::from(*byte));
    (head % 100) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::VIRTUAL_QUEUE_ENABLED;

    fn bucket_of(id: u64) -> u8 {
        bucket(VIRTUAL_QUEUE_ENABLED, UserId::try_from(id).unwrap())
    }

    #[test]
    fn a_persons_bucket_never_changes() {
        // Computed with another implementation (Python's hashlib).
        for (id, expected) in [(1, 39), (2, 79), (7, 72), (42, 67), (1000, 99), (9_223_372_036_854_775_807, 17)] {
            assert_eq!(bucket_of(id), expected, "user {id}");
        }
    }

    #[test]
    fn people_are_spread_evenly() {
        let mut people = [0_u32; 100];
        for id in 1..=100_000 {
            people[usize::from(bucket_of(id))] += 1;
        }
        let (least, most) = (people.iter().min().unwrap(), people.iter().max().unwrap());
        assert!(*least > 850 && *most < 1150, "1000 expected in each: {least}..{most}");
    }

    #[test]
    fn another_flag_draws_other_people() {
        let same = (1..=10_000)
            .filter_map(|id| UserId::try_from(id).ok())
            .filter(|user| bucket(VIRTUAL_QUEUE_ENABLED, *user) == bucket("another", *user))
            .count();
        assert!(same < 200, "100 expected by chance: {same}");
    }
}
