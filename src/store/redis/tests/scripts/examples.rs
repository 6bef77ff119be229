//! Checks that the example in each header is true.

use super::*;

/// Checks that the header's example ends with exactly this reply.
fn is_the_example(script: &Script, reply: &[i64]) {
    let title = format!("-- {}.lua: ", script.name());
    let own = &script.source()[script.source().find(&title).unwrap()..];
    let header: Vec<&str> = own.lines().take_while(|line| line.starts_with("--")).collect();
    let text = header.join(" ").replace("--", " ");
    let example = text.split("Example").nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = reply.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
    let stands = example.ends_with(&format!(": {shown}")) || example.contains(&format!(": {shown};"));
    assert!(stands, "{} answers {shown}, and its header says {example}", script.name());
}

#[tokio::test]
async fn the_examples_of_enter_and_status_are_true() {
    let mut redis = ScriptFixture::open().await;
    let reply = redis.run(&scripts::ENTER, 1_000_000, &["7", "8"]).await;
    is_the_example(&scripts::ENTER, &reply);

    let mut redis = ScriptFixture::open().await;
    redis.enter(1_000_000, 7..=7).await;
    redis.enter(1_000_000, 1001..=1099).await;
    redis.enter(1_000_000, 8..=8).await;
    redis.pump(1_002_000, 1_002_000).await;
    let reply = redis.run(&scripts::STATUS, 1_002_500, &["7", "8"]).await;
    is_the_example(&scripts::STATUS, &reply);
}

#[tokio::test]
async fn the_examples_of_the_ticks_scripts_are_true() {
    let mut redis = ScriptFixture::open().await;
    redis.enter(1_000_000, 1..=250).await;
    let first = redis.run(&scripts::ADMIT, 1_002_003, &[]).await;
    is_the_example(&scripts::ADMIT, &first);
    let again = redis.run(&scripts::ADMIT, 1_002_003, &[]).await;
    is_the_example(&scripts::ADMIT, &again);

    let mut redis = ScriptFixture::open().await;
    let unused = redis.run(&scripts::EVICT, 1_000_000, &[]).await;
    is_the_example(&scripts::EVICT, &unused);
    // One person gets a pass that ends before 1,000,000. Three wait while admission is paused, and do not poll in the
    // last minute.
    redis.enter(600_000, 1..=1).await;
    redis.pump(602_000, 602_000).await;
    redis.run(&scripts::STATUS, 602_000, &["1"]).await;
    redis.ask::<i64>(&["HSET", &redis_key(9), "paused", "1"]).await;
    redis.enter(604_000, 2..=4).await;
    for now in (604_000..1_000_000).step_by(2000) {
        if now < 940_000 {
            redis.run(&scripts::STATUS, now, &["2", "3", "4"]).await;
        }
        redis.run(&scripts::ADMIT, now, &[]).await;
    }
    let swept = redis.run(&scripts::EVICT, 1_000_000, &[]).await;
    is_the_example(&scripts::EVICT, &swept);
}

#[tokio::test]
async fn the_examples_of_leaving_buying_and_the_books_are_true() {
    let mut redis = ScriptFixture::open().await;
    let unused = redis.run(&scripts::STATS, 1_000_000, &[]).await;
    is_the_example(&scripts::STATS, &unused);
    redis.enter(1_000_000, 7..=7).await;
    let left = redis.run(&scripts::LEAVE, 1_000_000, &["7"]).await;
    is_the_example(&scripts::LEAVE, &left);
    let direct = redis.run(&scripts::DIRECT, 1_000_000, &["3"]).await;
    is_the_example(&scripts::DIRECT, &direct);

    let mut redis = ScriptFixture::open().await;
    redis.enter(990_000, 8..=8).await;
    redis.enter(990_000, 10..=10).await;
    redis.run(&scripts::ADMIT, 1_000_000, &[]).await;
    let expiry = redis.run(&scripts::STATUS, 1_000_000, &["8", "10"]).await[8].to_string();
    let mut bought = vec!["15000", "7", "1300", "n1", "claim", "8", &expiry, "n2", "spent"];
    bought.extend(["9", "1300", "", "check", "10", "0", "", "all"]);
    is_the_example(&scripts::PURCHASE, &redis.run(&scripts::PURCHASE, 1_000_000, &bought).await);

    let mut redis = ScriptFixture::open().await;
    redis.enter(1_000_000, 7..=7).await;
    redis.enter(1_000_000, 9..=9).await;
    redis.run(&scripts::PURCHASE, 980_000, &["15000", "9", "1280", "n", "claim"]).await;
    redis.run(&scripts::PURCHASE, 980_000, &["15000", "9", "1280", "n", "spent"]).await;
    let adopted = redis.run(&scripts::ADOPT, 1_000_000, &["7", "1300", "8", "1300", "9", "1280"]).await;
    is_the_example(&scripts::ADOPT, &adopted);

    redis.register("LIMITED_DROP:1", 1).await;
    is_the_example(&scripts::REGISTER, &redis.register("LIMITED_DROP:2", 1).await);

    redis.restore_settings("3", &["version", "3", "paused", "1"]).await;
    is_the_example(&scripts::SETTINGS_RESTORE, &redis.restore_settings("3", &["version", "3", "paused", "1"]).await);
}
