//! Files and variables: how they are laid over each other, and how each is read.

use super::*;

#[test]
fn variables_win_over_the_file_and_the_file_over_the_default() {
    let toml = "[queue]\nbatch_size = 7\ncapacity = 9\n[token]\nsingle_use = false\nalso_accepted = ['a-secret-that-has-more-than-32-bytes']";
    let config = load(toml, &[("VQ_QUEUE__BATCH_SIZE", "8"), ("VQ_SERVER__MANAGEMENT_PORT", "9090")]).expect("good");
    assert_eq!((config.queue.batch_size, config.queue.capacity, config.queue.tick_ms), (8, 9, 2000));
    assert!(!config.token.single_use);
    assert_eq!(config.token.also_accepted.len(), 1);
    assert_eq!(config.server.management_port, Some(9090));
    let origin =
        |key: &str| config.settings().iter().find(|seen| seen.key == key).expect("known").origin.clone().expect("set");
    assert_eq!(origin("queue.batch_size"), Origin::Variable("VQ_QUEUE__BATCH_SIZE".to_owned()));
    assert!(matches!(origin("queue.capacity"), Origin::File(_)));
    assert_eq!(origin("queue.tick_ms"), Origin::Default);
    assert_eq!(origin("store.kind"), Origin::Command(Mode::Serve));
}

#[test]
fn a_text_in_a_variable_is_taken_as_it_stands() {
    let config = load("", &[("VQ_ADMIN__TOKEN", "12345678901234567890"), ("VQ_DEMO_SHOP__DATABASE", "1.5")]);
    let config = config.expect("good");
    assert_eq!(config.token.secret.expect("set").expose_secret(), SECRET, "a secret of digits stays a text");
    assert_eq!(config.admin.token.expect("set").expose_secret(), "12345678901234567890");
    assert_eq!(config.demo_shop.database.as_deref(), Some(Path::new("1.5")));
}

#[test]
fn a_number_or_a_switch_in_a_variable_is_read_as_one() {
    let config = load("", &[("VQ_QUEUE__TICK_MS", " 1500 "), ("VQ_TOKEN__COOKIE", "true")]).expect("good");
    assert_eq!((config.queue.tick_ms, config.token.cookie), (1500, true));
    let found = mistakes("", &[("VQ_QUEUE__TICK_MS", "2s"), ("VQ_TOKEN__COOKIE", "yes"), ("VQ_SERVER__PORT", "")]);
    assert_eq!(
        found,
        [
            "server.port: must be a whole number from 0 to 65535, not \"\"",
            "queue.tick_ms: must be a whole number from 0 to 18446744073709551615, not \"2s\"",
            "token.cookie: must be true or false, not \"yes\"",
        ],
        "all of them at once"
    );
}

#[test]
fn a_list_in_a_variable_is_an_array_or_has_commas() {
    let (one, two) = ("1".repeat(32), "2".repeat(33));
    for text in [format!("{one},{two}"), format!(" {one} , {two}, "), format!("[\"{one}\", '{two}']")] {
        let config = load("", &[("VQ_TOKEN__ALSO_ACCEPTED", &text)]).expect("good");
        let read: Vec<&str> = config.token.also_accepted.iter().map(ExposeSecret::expose_secret).collect();
        assert_eq!(read, [&one, &two], "{text}");
    }
    assert!(load("", &[("VQ_TOKEN__ALSO_ACCEPTED", "")]).expect("good").token.also_accepted.is_empty());
    for broken in ["[\"hunter2hunter2", "['hunter2hunter2']\nmore = 1", "[12345]", "['hunter2hunter2', 7]"] {
        let found = mistakes("", &[("VQ_TOKEN__ALSO_ACCEPTED", broken)]);
        assert!(found.len() == 1 && found[0].starts_with("token.also_accepted: must be a list"), "{found:?}");
        assert!(!found[0].contains("hunter2") && !found[0].contains("12345"), "{found:?}");
    }
}

#[test]
fn an_empty_variable_takes_back_an_optional_setting() {
    let toml = "[server]\nmanagement_port = 9090\n[admin]\ntoken = 'sixteen-or-more-bytes'";
    let config = load(toml, &[("VQ_SERVER__MANAGEMENT_PORT", ""), ("VQ_ADMIN__TOKEN", "")]).expect("good");
    assert!(config.server.management_port.is_none() && config.admin.token.is_none());
}

#[test]
fn variables_of_others_are_none_of_ours() {
    assert!(load("", &[("PATH", "/bin"), ("VQX", "1"), ("vq_queue__tick_ms", "1")]).is_ok());
}

/// What Kubernetes sets for a Service of this name with the ports 6379 (`client`) and 53 (UDP, `dns-udp`).
fn service_links(service: &str) -> Vec<(String, String)> {
    let own = [
        ("SERVICE_HOST", "10.96.0.7"),
        ("SERVICE_PORT", "6379"),
        ("SERVICE_PORT_CLIENT", "6379"),
        ("SERVICE_PORT_DNS_UDP", "53"),
        ("PORT", "tcp://10.96.0.7:6379"),
        ("PORT_6379_TCP", "tcp://10.96.0.7:6379"),
        ("PORT_6379_TCP_PROTO", "tcp"),
        ("PORT_6379_TCP_PORT", "6379"),
        ("PORT_6379_TCP_ADDR", "10.96.0.7"),
        ("PORT_53_UDP", "udp://[fd00::7]:53"),
        ("PORT_53_UDP_ADDR", "fd00::7"),
        ("PORT_9_SCTP", "sctp://10.96.0.7:9"),
    ];
    own.iter().map(|(shape, value)| (format!("{service}_{shape}"), (*value).to_owned())).collect()
}

#[test]
fn variables_that_kubernetes_sets_for_a_service_are_none_of_ours() {
    // The last two are named like a section of ours, or as these variables end.
    for service in ["VQ", "VQ_REDIS", "VQ_REDIS_MASTER_0", "VQ_SERVER", "VQ_PORT"] {
        let links = service_links(service);
        let env: Vec<(&str, &str)> = links.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let config = load("", &[&env[..], &[("VQ_QUEUE__BATCH_SIZE", "7")]].concat()).expect(service);
        assert_eq!(config.queue.batch_size, 7);
    }
}

#[test]
fn what_kubernetes_would_not_set_is_a_mistake() {
    for (name, value) in [
        ("VQ_SERVER_PORT", "8080"),
        ("VQ_PORT", "8080"),
        ("VQ__SERVICE_HOST", "10.96.0.7"),
        ("VQ__REDIS_SERVICE_HOST", "10.96.0.7"),
        ("VQ_REDIS__SERVICE_HOST", "10.96.0.7"),
        ("VQ_REDIS__PORT", "tcp://10.96.0.7:6379"),
        ("VQ_REDIS_HOST", "10.96.0.7"),
        ("VQ_REDIS_SERVICE", "10.96.0.7"),
        ("VQ_REDISSERVICE_HOST", "10.96.0.7"),
        ("VQ_redis_SERVICE_HOST", "10.96.0.7"),
        ("VQ_REDIS_SERVICE_PORT_", "6379"),
        ("VQ_REDIS_PORT_", "6379"),
        ("VQ_REDIS_PORT_6379", "6379"),
        ("VQ_REDIS_PORT_X_TCP", "tcp://10.96.0.7:6379"),
        ("VQ_REDIS_PORT_99999_TCP", "tcp://10.96.0.7:99999"),
        ("VQ_REDIS_PORT_6379_HTTP", "tcp://10.96.0.7:6379"),
        ("VQ_REDIS_PORT_6379_TCP_HOST", "10.96.0.7"),
        ("VQ_REDIS_PORT_6379_TCP_ADDR_", "10.96.0.7"),
    ] {
        let found = mistakes("", &[(name, value)]);
        assert!(found.len() == 1 && found[0].contains("is not a setting"), "{name}: {found:?}");
    }
}

#[test]
fn an_unknown_variable_is_a_mistake() {
    for (name, key) in [
        ("VQ_QUEUE__TICKS", "queue.ticks"),
        ("VQ_QUEUE_TICK_MS", "queue_tick_ms"),
        ("VQ_QUEUE__TICK__MS", "queue.tick__ms"),
        ("VQ_queue__tick_ms", "queue.tick_ms"),
        ("VQ_QUEUE", "queue"),
        ("VQ_TICK_MS", "tick_ms"),
        ("VQ_REDIS__HOSTS", "redis.hosts"),
        ("VQ_UPSTREAM__URI", "upstream.uri"),
        ("VQ_", ""),
    ] {
        let errors = load("", &[(name, "2000")]).expect_err(name);
        assert_eq!(errors.problems().len(), 1, "{errors}");
        let problem = &errors.problems()[0];
        assert_eq!((problem.key.as_str(), &problem.origin), (key, &Some(Origin::Variable(name.to_owned()))));
        assert!(problem.what.starts_with("is not a setting"), "{problem}");
    }
}

#[test]
fn an_unknown_key_in_a_file_is_a_mistake() {
    for (toml, key) in [
        ("queue.ticks = 1", "queue.ticks"),
        ("tick_ms = 1", "tick_ms"),
        ("queue = 1", "queue"),
        ("[queues]", "queues"),
        ("[queues]\ntick_ms = 1", "queues.tick_ms"),
        ("[queue.tick_ms2]\na = 1", "queue.tick_ms2"),
        ("[redis]\nmaster = 'a'", "redis.master"),
    ] {
        let found = mistakes(toml, &[]);
        assert!(found.len() == 1 && found[0].starts_with(&format!("{key}: is not a setting")), "{toml}: {found:?}");
    }
    assert!(load("[queue]\n[token]", &[]).is_ok(), "an empty section says nothing");
}

#[test]
fn a_file_that_cannot_be_read_is_a_mistake() {
    let errors = Config::load(Some(Path::new("does/not/exist.toml")), [], Mode::Demo).expect_err("no such file");
    assert!(errors.to_string().contains("does/not/exist.toml: cannot be read"), "{errors}");
    let errors = load("[queue]\n\ntick_ms = \n", &[]).expect_err("not TOML");
    assert!(errors.to_string().contains(": line 3 is not TOML"), "{errors}");
}

#[test]
fn a_proxy_is_trusted_by_its_network_or_its_address() {
    let config = load("[rate_limit]\ntrusted_proxies = ['10.0.0.0/8', '::1']", &[]).expect("good");
    let shown: Vec<String> = config.rate_limit.trusted_proxies.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.0/8", "::1/128"]);
}

#[test]
fn visitors_are_limited_by_address_unless_somebody_says_otherwise() {
    let limits = |more: &str, env: &[(&str, &str)]| {
        let config = load(&format!("[identity]\nmode = 'visitor'\n{more}"), env).expect("good");
        let setting = config.settings().iter().find(|setting| setting.key == "rate_limit.enter_per_second").unwrap();
        let origin = setting.origin.as_ref().map(ToString::to_string);
        let limit = &config.rate_limit;
        (limit.enter_per_second, limit.enter_burst, origin.unwrap_or_default(), config.warnings().len())
    };
    let by_mode = || "default of identity.mode = \"visitor\"".to_owned();
    assert_eq!(limits("", &[]), (Some(20), Some(200), by_mode(), 1));
    assert_eq!(limits("[rate_limit]\ntrusted_proxies = ['10.0.0.0/8']", &[]), (Some(20), Some(200), by_mode(), 0));
    assert_eq!(limits("[rate_limit]\nenter_burst = 7", &[]), (Some(20), Some(7), by_mode(), 1));
    let (rate, burst, ..) = limits("[rate_limit]\nenter_per_second = 5", &[]);
    assert_eq!((rate, burst), (Some(5), None), "the burst is the rate's own");
    assert_eq!(limits("[rate_limit]\nenter_per_second = 0", &[]).0, Some(0));
    let unset = limits("", &[("VQ_RATE_LIMIT__ENTER_PER_SECOND", "")]);
    assert_eq!((unset.0, unset.1, unset.3), (None, None, 1), "an empty variable takes it back, and that is warned of");
    let config = load("", &[]).expect("good");
    assert_eq!((config.rate_limit.enter_per_second, config.warnings().len()), (None, 0));
}
