//! Secrets: which must be set, and that none is ever shown.

use super::*;

#[test]
fn the_redis_store_needs_a_secret_and_the_embedded_one_makes_its_own() {
    let errors = Config::load(None, [], Mode::Serve).expect_err("no secret");
    assert!(errors.to_string().contains("token.secret (not set): must be set with the Redis store"), "{errors}");
    assert!(Config::load(None, env(&[("VQ_TOKEN__SECRET", "")]), Mode::Serve).is_err());
    assert!(Config::load(None, [], Mode::Demo).is_ok());
    assert!(Config::load(None, env(&[("VQ_STORE__KIND", "embedded")]), Mode::Serve).is_ok());
    assert!(Config::load(None, env(&[("VQ_STORE__KIND", "redis")]), Mode::Demo).is_err());
}

#[test]
fn no_mistake_and_no_debug_output_shows_a_secret() {
    let short = "hunter2";
    for (toml, key) in [
        ("token.secret = 'hunter2'", "token.secret"),
        ("token.secret = ['hunter2']", "token.secret"),
        ("token.also_accepted = ['hunter2']", "token.also_accepted"),
        ("token.also_accepted = 'hunter2'", "token.also_accepted"),
        ("admin.token = 'hunter2'", "admin.token"),
        ("redis.url = 'http://app:hunter2@host'", "redis.url"),
        ("redis.url = 'rediss://app:hunter2@host#insecure'", "redis.url"),
        ("token.secret = 'hunter2", ""),
        ("token.secret = hunter2", ""),
        ("[token]\nsecret = 'a'\nsecret = 'hunter2'", ""),
        ("token.secrets = 'hunter2'", "token.secrets"),
    ] {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), toml).expect("a writable file");
        let errors = Config::load(Some(file.path()), [], Mode::Demo).expect_err(toml);
        assert_eq!(errors.problems()[0].key, key, "{errors}");
        assert_eq!(errors.problems()[0].origin, Some(Origin::File(file.path().to_owned())), "{errors}");
        assert!(!errors.to_string().contains(short) && !format!("{errors:?}").contains(short), "{errors}");
    }
    let toml = "[redis]\nurl = 'redis://app:hunter2@host'\n[admin]\ntoken = 'hunter2hunter2hunter2'\n[token]\nalso_accepted = ['hunter2hunter2hunter2hunter2hunter2']";
    let config = load(toml, &[("VQ_TOKEN__SECRET", "hunter2hunter2hunter2hunter2hunter2")]).expect("good");
    assert!(!format!("{config:?}").contains(short) && !config.redis.address().contains(short));
}

#[test]
fn the_settle_token_is_long_and_there_for_something() {
    let token = |token: &str| [("VQ_GATE__SETTLE_TOKEN", token.to_owned())];
    let try_one = |value: &str, toml: &str| {
        let variables = token(value);
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        load(toml, &variables)
    };
    assert!(try_one("0123456789abcdef", "").is_ok());
    for (value, toml) in
        [("hunter2", ""), ("hunter2 hunter2 hunter2", ""), ("0123456789abcdef", "token.single_use = false")]
    {
        let error = try_one(value, toml).expect_err("a mistake").to_string();
        assert!(error.contains("gate.settle_token") && !error.contains("hunter2"), "{error}");
    }
}
