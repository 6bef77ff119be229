//! What single scripts do to the queue that is not seen from outside.

use super::*;

#[tokio::test]
async fn the_mark_stops_at_a_silent_person_whom_this_tick_may_not_evict_any_more() {
    let mut redis = Bare::open().await;
    redis.ask::<i64>(&["HSET", &redis_key(9), "paused", "1"]).await;
    redis.enter(1_000_000, 1..=1005).await;
    for now in (1_000_000..1_070_000).step_by(2000) {
        redis.run(&scripts::STATUS, now, &["1005"]).await;
        redis.run(&scripts::ADMIT, now, &[]).await;
    }
    redis.ask::<i64>(&["DEL", &redis_key(9)]).await;
    // 1004 are silent and may be evicted 1000 a tick, so only the tick after that reaches the one who polls.
    let first = redis.run(&scripts::ADMIT, 1_070_000, &[]).await;
    assert_eq!(first[..4], [1_070_000, 2, 0, 1000]);
    assert_eq!(redis.ask::<i64>(&["GET", &redis_key(2)]).await, 1000);
    let second = redis.run(&scripts::ADMIT, 1_072_000, &[]).await;
    assert_eq!(second[..4], [1_072_000, 2, 1, 4]);
    assert_eq!(redis.ask::<i64>(&["GET", &redis_key(2)]).await, 1005);
}
