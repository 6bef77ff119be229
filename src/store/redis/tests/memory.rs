//! Memory in Redis for one waiting person: 226 bytes on Redis 7.0 when this was written.

use super::*;

async fn used(redis: &mut ::redis::aio::MultiplexedConnection) -> u64 {
    let info: String = ::redis::cmd("INFO").arg("memory").query_async(redis).await.unwrap();
    info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn a_waiting_visitor_with_an_id_of_13_digits_costs_under_240_bytes() {
    const PEOPLE: u64 = 100_000;
    let fixture = RedisStoreFixture::with(QueueRules { capacity: 2 * PEOPLE, ..rules() }).await;
    let mut redis = fixture.redis().await;
    fixture.enter(1).await;
    let before = used(&mut redis).await;
    for group in 0..PEOPLE / 1000 {
        let crowd =
            (0..1000).map(|at| fixture.store.enter_if_absent(target(), user(1_700_000_000_000 + group * 1000 + at)));
        let places = futures_util::future::join_all(crowd).await;
        assert!(places.iter().all(|place| matches!(place, Ok(Some(_)))));
        // 5,000 people a second: one entry time for every 2,500 of them.
        fixture.pass(200);
    }
    let entered = fixture.store.stats(target()).await.unwrap().entered;
    let each = (used(&mut redis).await - before) as f64 / entered as f64;
    assert_eq!(entered, PEOPLE + 1);
    assert!(each < 240.0, "{each:.1} bytes a visitor");
}
