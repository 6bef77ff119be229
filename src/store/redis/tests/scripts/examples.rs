//! The example in each header is true.

use super::*;

/// Whether the header's example ends in this very reply.
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
    let mut redis = Bare::open().await;
    let reply = redis.run(&scripts::ENTER, 1_000_000, &["7", "8"]).await;
    is_the_example(&scripts::ENTER, &reply);

    let mut redis = Bare::open().await;
    redis.enter(1_000_000, 7..=7).await;
    redis.enter(1_000_000, 1001..=1099).await;
    redis.enter(1_000_000, 8..=8).await;
    redis.pump(1_002_000, 1_002_000).await;
    let reply = redis.run(&scripts::STATUS, 1_002_500, &["7", "8"]).await;
    is_the_example(&scripts::STATUS, &reply);
}

#[tokio::test]
async fn the_examples_of_the_ticks_scripts_are_true() {
    let mut redis = Bare::open().await;
    redis.enter(1_000_000, 1..=250).await;
    let first = redis.run(&scripts::ADMIT, 1_002_003, &[]).await;
    is_the_example(&scripts::ADMIT, &first);
    let again = redis.run(&scripts::ADMIT, 1_002_003, &[]).await;
    is_the_example(&scripts::ADMIT, &again);

    let mut redis = Bare::open().await;
    let unused = redis.run(&scripts::EVICT, 1_000_000, &[]).await;
    is_the_example(&scripts::EVICT, &unused);
    // One gets a pass that ends before 1,000,000; three wait behind a paused pump and never poll.
    redis.enter(600_000, 1..=1).await;
    redis.pump(602_000, 602_000).await;
    redis.run(&scripts::STATUS, 602_000, &["1"]).await;
    redis.ask::<i64>(&["HSET", &redis_key(9), "paused", "1"]).await;
    redis.enter(604_000, 2..=4).await;
    let mut now = 604_000;
    while now < 998_000 {
        redis.run(&scripts::STATUS, now, &["2", "3", "4"]).await;
        redis.run(&scripts::ADMIT, now, &[]).await;
        now += 2000;
        if now > 938_000 {
            break;
        }
    }
    while now < 1_000_000 {
        redis.run(&scripts::ADMIT, now, &[]).await;
        now += 2000;
    }
    let swept = redis.run(&scripts::EVICT, 1_000_000, &[]).await;
    is_the_example(&scripts::EVICT, &swept);
}

#[tokio::test]
async fn the_examples_of_leaving_buying_and_the_books_are_true() {
    let mut redis = Bare::open().await;
    let unused = redis.run(&scripts::STATS, 1_000_000, &[]).await;
    is_the_example(&scripts::STATS, &unused);
    redis.enter(1_000_000, 7..=7).await;
    let left = redis.run(&scripts::LEAVE, 1_000_000, &["7"]).await;
    is_the_example(&scripts::LEAVE, &left);
    let direct = redis.run(&scripts::DIRECT, 1_000_000, &["3"]).await;
    is_the_example(&scripts::DIRECT, &direct);

    let mut redis = Bare::open().await;
    redis.enter(990_000, 8..=8).await;
    redis.run(&scripts::ADMIT, 1_000_000, &[]).await;
    let expiry = redis.run(&scripts::STATUS, 1_000_000, &["8"]).await[8].to_string();
    let bought = ["15000", "7", "1300", "n1", "claim", "8", &expiry, "n2", "spent"];
    is_the_example(&scripts::PURCHASE, &redis.run(&scripts::PURCHASE, 1_000_000, &bought).await);

    // Together, the first that asks for a pass gets it, and each purchase ends by itself.
    let claims = ["15000", "7", "1300", "a", "claim", "7", "1300", "b", "claim", "8", "900", "c", "claim"];
    let mut redis = Bare::open().await;
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &claims).await[1..], [1, 3, 4]);
    let ended = ["15000", "7", "1300", "b", "back", "7", "1300", "a", "spent", "7", "1300", "a", "spent"];
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &ended).await[1..], [5, 5, 5], "no queue, no books");
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &claims).await[1..], [2, 2, 4]);

    // What one call of a batch did, the next sees: given back, taken by another, spent, refused.
    let mut redis = Bare::open().await;
    let turns = [
        ["7", "1300", "a", "claim"],
        ["7", "1300", "a", "back"],
        ["7", "1300", "b", "claim"],
        ["7", "1300", "a", "claim"],
        ["7", "1300", "b", "spent"],
        ["7", "1300", "a", "claim"],
    ];
    let turns: Vec<&str> = std::iter::once("15000").chain(turns.into_iter().flatten()).collect();
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &turns).await[1..], [1, 5, 1, 3, 5, 2]);
    assert_eq!(redis.ask::<i64>(&["EXISTS", &redis_key(6)]).await, 0, "no claim is left");

    // Rubbish in one person's claim is nobody else's trouble, and not that person's.
    redis.ask::<i64>(&["HSET", &redis_key(6), "9", "rubbish"]).await;
    let claims = ["15000", "1", "1300", "a", "claim", "9", "1300", "b", "claim"];
    assert_eq!(redis.run(&scripts::PURCHASE, 1_000_000, &claims).await[1..], [1, 1]);

    let mut redis = Bare::open().await;
    redis.enter(1_000_000, 7..=7).await;
    redis.enter(1_000_000, 9..=9).await;
    redis.run(&scripts::PURCHASE, 980_000, &["15000", "9", "1280", "n", "claim"]).await;
    redis.run(&scripts::PURCHASE, 980_000, &["15000", "9", "1280", "n", "spent"]).await;
    let adopted = redis.run(&scripts::ADOPT, 1_000_000, &["7", "1300", "8", "1300", "9", "1280"]).await;
    is_the_example(&scripts::ADOPT, &adopted);

    let mut register = ::redis::cmd("EVAL");
    register.arg(scripts::REGISTER.source()).arg(1).arg("queue:active");
    let mut ask = async |target: &str, limit: u64| {
        let mut register = register.clone();
        register.arg(target).arg(limit).query_async::<Vec<i64>>(&mut redis.connection).await.unwrap()
    };
    assert_eq!(ask("LIMITED_DROP:1", 1).await, [1]);
    is_the_example(&scripts::REGISTER, &ask("LIMITED_DROP:2", 1).await);
    assert_eq!(ask("LIMITED_DROP:1", 1).await, [1], "who is in stays in");

    let mut restore = ::redis::cmd("EVAL");
    restore.arg(scripts::SETTINGS_RESTORE.source()).arg(1).arg(redis_key(9));
    let mut ask = async |version: &str, fields: &[&str]| {
        let mut restore = restore.clone();
        restore.arg(version).arg(fields).query_async::<Vec<i64>>(&mut redis.connection).await.unwrap()
    };
    let (two, three) = (["version", "2", "batch_size", "9"], ["version", "3", "paused", "1"]);
    assert_eq!(ask("0", &["batch_size", "5"]).await, [1], "none are stored");
    assert_eq!(ask("0", &["batch_size", "6"]).await, [0], "without a version what is stored stays");
    assert_eq!(ask("3", &three).await, [1], "older ones are stored");
    is_the_example(&scripts::SETTINGS_RESTORE, &ask("3", &three).await);
    assert_eq!(ask("2", &two).await, [0], "newer ones are stored");
    let stored: BTreeMap<String, String> = redis.ask(&["HGETALL", &redis_key(9)]).await;
    assert_eq!(stored, [("paused", "1"), ("version", "3")].map(|(field, is)| (field.to_owned(), is.to_owned())).into());
}
