//! Secrets: which must be set, and that none is ever shown.

use super::*;

#[test]
fn the_redis_store_needs_a_secret_and_the_embedded_one_needs_none() {
    for (mode, variables, missing) in [
        (Mode::Serve, &[][..], true),
        (Mode::Serve, &[("VQ_TOKEN__SECRET", "")], true),
        (Mode::Demo, &[("VQ_STORE__KIND", "redis")], true),
        (Mode::Demo, &[], false),
        (Mode::Serve, &[("VQ_STORE__KIND", "embedded")], false),
    ] {
        let errors = Config::load(None, env(variables), mode).err();
        let said: Vec<&str> = errors.iter().flat_map(ConfigErrors::problems).map(|it| it.what.as_str()).collect();
        assert_eq!(said.len(), usize::from(missing), "{variables:?}: {said:?}");
        assert!(
            said.iter().all(|what| what.starts_with("must be set with the Redis store")),
            "{variables:?}: {said:?}"
        );
    }
    let errors = Config::load(None, [], Mode::Serve).expect_err("no secret");
    assert!(errors.to_string().contains("token.secret (not set): must be set with the Redis store"), "{errors}");
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
        ("gate.settle_token = 'hunter2'", "gate.settle_token"),
        ("redis.url = 'http://app:hunter2@host'", "redis.url"),
        ("redis.url = 'rediss://app:hunter2@host#insecure'", "redis.url"),
        ("redis.mode = 'sentinel'\nredis.sentinel_url = 'rediss://app:hunter2@a/hunter2'", "redis.sentinel_url"),
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
    let toml = "[redis]\nurl = 'redis://app:hunter2@host'\nmode = 'sentinel'\nnodes = ['a:1']\nsentinel_master = 'a'\nsentinel_url = 'redis://app:hunter2@a'\n[admin]\ntoken = 'hunter2hunter2hunter2'\n[token]\nalso_accepted = ['hunter2hunter2hunter2hunter2hunter2']";
    let config = load(toml, &[("VQ_TOKEN__SECRET", "hunter2hunter2hunter2hunter2hunter2")]).expect("good");
    assert!(!format!("{config:?}").contains(short) && !config.redis.address().contains(short));
}
