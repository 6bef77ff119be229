//! How many files and connections the system lets this process have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Room for fewer connections than this is little for a crowd.
const LITTLE: u64 = 10_000;

/// Raises the limit as far as the system allows without asking; what it is then. Every connection takes one descriptor,
/// and many systems give 1,024 to who does not ask for more.
pub(super) fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return u64::MAX };
    if limit.maximum == Some(current) {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(error) => {
            tracing::warn!(%error, current, "the limit of open files cannot be raised");
            current
        }
    }
}

/// How many connections each of `workers` may have: what is configured, but never more than three quarters of all
/// descriptors together. The rest is for the shop, Redis and files: a purchase must not fail for want of one.
pub(super) fn connections_a_worker(configured: usize, workers: usize, open_files: u64) -> usize {
    let room = open_files / 4 * 3;
    if room < LITTLE {
        tracing::warn!(
            open_files,
            connections = room,
            "the open file limit is low: further connections wait; raise `ulimit -n`"
        );
    }
    let each = usize::try_from(room).unwrap_or(usize::MAX) / workers.max(1);
    configured.min(each.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_a_quarter_of_all_descriptors() {
        assert_eq!(connections_a_worker(25_000, 2, 1_000_000), 25_000);
        assert_eq!(connections_a_worker(25_000, 2, u64::MAX), 25_000);
        assert_eq!(connections_a_worker(25_000, 2, 20_000), 7_500);
        assert_eq!(connections_a_worker(25_000, 64, 1_024), 12);
        assert_eq!(connections_a_worker(25_000, 512, 256), 1, "some, whatever happens");
    }

    #[test]
    fn the_limit_is_raised_to_what_is_allowed() {
        let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert_eq!(raise(), allowed);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), allowed);
    }
}
