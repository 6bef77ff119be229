//! Waiting for something that can be seen, instead of for some time.

use std::time::Duration;

use redis::Connection;
use tokio::time::{Instant, sleep};

/// Waits until it is so, at most `limit`.
pub(crate) async fn until(what: &str, limit: Duration, mut is_so: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !is_so().await {
        assert!(since.elapsed() < limit, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until so many more sweeps of this target have gone: each begins with writing when it was.
pub(crate) async fn sweeps(connection: &mut Connection, label: &str, more: usize) {
    let mut pulse = || -> Option<u64> {
        redis::cmd("HGET").arg(format!("queue:{{{label}}}:stats")).arg("pulse").query(connection).expect("an answer")
    };
    let mut last = pulse();
    for _ in 0..more {
        until("another sweep", Duration::from_secs(20), async || pulse() != last).await;
        last = pulse();
    }
}

/// Waits until the mark of this target has moved so many more times, however far.
pub(crate) async fn batches(connection: &mut Connection, label: &str, more: usize) {
    let mut mark = || -> Option<u64> {
        redis::cmd("GET").arg(format!("queue:{{{label}}}:admitted_count")).query(connection).expect("an answer")
    };
    let mut last = mark();
    for _ in 0..more {
        until("another batch", Duration::from_secs(20), async || mark() != last).await;
        last = mark();
    }
}
