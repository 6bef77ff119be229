use secrecy::ExposeSecret;

use super::*;

const SECRET: &str = "0123456789012345678901234567890123456789";

fn env(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Loads for `serve` with a good secret, a file with `toml` in it, and `variables`.
fn load(toml: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), toml).expect("a writable file");
    let mut variables = env(variables);
    variables.insert(0, ("VQ_TOKEN__SECRET".to_owned(), SECRET.to_owned()));
    Config::load(Some(file.path()), variables, Mode::Serve)
}

/// The mistakes as `key: what` lines.
fn mistakes(toml: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let errors = load(toml, variables).expect_err("a mistake");
    errors.problems().iter().map(|problem| format!("{}: {}", problem.key, problem.what)).collect()
}

#[test]
fn the_default_file_holds_the_documented_defaults() {
    let config = Config::parse_default();
    assert_eq!(config.validate(), Ok(()));
    assert_eq!((config.server.host.as_str(), config.server.port), ("127.0.0.1", 8080));
    assert_eq!((config.server.workers, config.server.shutdown_grace_seconds), (0, 30));
    assert_eq!((config.server.backlog, config.server.max_connections), (4096, 25_000));
    assert_eq!((config.server.keep_alive_seconds, config.server.client_request_timeout_ms), (20, 5_000));
    assert_eq!(config.server.client_stall_timeout_seconds, 30);
    assert_eq!((config.server.management_port, config.store.kind), (None, None));
    assert_eq!((config.redis.connect_timeout_ms, config.redis.command_timeout_ms), (500, 200));
    assert_eq!((config.redis.mode, config.redis.on_failure), (RedisMode::Standalone, OnFailure::Open));
    assert_eq!((config.redis.replicas, &config.redis.tls), (None, &RedisTls::default()));
    let queue = &config.queue;
    assert_eq!((queue.capacity, queue.batch_size, queue.tick_ms), (100_000, 100, 2000));
    assert_eq!((queue.heartbeat_timeout_seconds, queue.max_evict_per_tick), (60, 1000));
    assert_eq!((queue.idle_ttl_seconds, queue.max_active_targets), (1800, 1000));
    let token = &config.token;
    assert!(token.secret.is_none() && token.also_accepted.is_empty());
    assert_eq!((token.ttl_seconds, token.single_use, token.cookie), (300, true, false));
    let identity = &config.identity;
    assert_eq!(identity.mode, IdentityMode::Header);
    assert_eq!(identity.jwt_algorithms, [JwtAlgorithm::Rs256, JwtAlgorithm::Es256]);
    assert_eq!((&identity.jwt_key_file, &identity.jwks_url), (&None, &None));
    assert_eq!((identity.jwt_claim.as_str(), identity.jwt_leeway_seconds), ("sub", 30));
    assert_eq!((&identity.jwt_audience, &identity.jwt_issuer), (&None, &None));
    assert!(config.cors.allowed_origins.is_empty() && config.rate_limit.trusted_proxies.is_empty());
    assert_eq!((config.rate_limit.enter_per_second, config.rate_limit.enter_burst), (None, None));
    assert!(config.limited_drop.enabled && !config.flags.virtual_queue_enabled);
    assert_eq!(config.gate.routes, crate::domain::GatedRoute::of_the_prd());
    assert!(config.gate.settle_token.is_none());
    assert_eq!((config.upstream.timeout_ms, config.upstream.lease_ms()), (10_000, 15_000));
    assert_eq!((&config.upstream.url, config.upstream.host_header), (&None, HostHeader::Preserve));
    assert_eq!((config.upstream.connect_timeout_ms, config.upstream.first_byte_timeout_ms), (2_000, None));
    assert_eq!((config.demo_shop.enabled, config.demo_shop.stock), (None, 100));
    assert_eq!(config.demo_shop.database, None);
    assert_eq!(config.load_shedding.max_concurrent_requests, 200);
    assert!(config.admin.token.is_none());
    assert_eq!((config.log.format, config.log.level.as_str()), (LogFormat::Text, "info"));
}

#[test]
fn the_default_file_documents_every_key_and_no_other() {
    let mut section = String::new();
    let mut documented = Vec::new();
    for line in DEFAULT_TOML.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((key, _)) = line.trim_start_matches("# ").split_once(" = ")
            && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        {
            documented.push(format!("{section}.{key}"));
        }
    }
    documented.sort_unstable();
    let mut known: Vec<String> = Config::parse_default().settings().iter().map(|seen| seen.key.clone()).collect();
    known.sort_unstable();
    assert_eq!(documented, known);
}

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
fn each_command_has_its_defaults_and_explicit_settings_win_over_them() {
    let of = |mode, variables: &[(&str, &str)]| {
        let mut variables = env(variables);
        variables.push(("VQ_TOKEN__SECRET".to_owned(), SECRET.to_owned()));
        let config = Config::load(None, variables, mode).expect("good");
        (config.store.kind, config.demo_shop.enabled, config.flags.virtual_queue_enabled)
    };
    assert_eq!(of(Mode::Serve, &[]), (Some(StoreKind::Redis), Some(false), false));
    assert_eq!(of(Mode::Demo, &[]), (Some(StoreKind::Embedded), Some(true), true));
    let opposite =
        |kind, on| [("VQ_STORE__KIND", kind), ("VQ_DEMO_SHOP__ENABLED", on), ("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", on)];
    assert_eq!(of(Mode::Serve, &opposite("embedded", "true")), (Some(StoreKind::Embedded), Some(true), true));
    assert_eq!(of(Mode::Demo, &opposite("redis", "false")), (Some(StoreKind::Redis), Some(false), false));
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
fn a_setting_that_makes_no_sense_is_named_with_what_is_allowed() {
    for (toml, expected) in [
        ("queue.batch_size = 0", "queue.batch_size: must be from 1 to 10000, not 0"),
        ("queue.batch_size = 10001", "queue.batch_size: must be from 1 to 10000, not 10001"),
        ("queue.batch_size = -1", "queue.batch_size: must be a whole number from 0 to 18446744073709551615, not -1"),
        ("queue.batch_size = 1.5", "queue.batch_size: must be a whole number from 0 to 18446744073709551615, not 1.5"),
        (
            "queue.batch_size = '1'",
            "queue.batch_size: must be a whole number from 0 to 18446744073709551615, not \"1\"",
        ),
        ("queue.tick_ms = 499", "queue.tick_ms: must be from 500 to 60000, not 499"),
        (
            "queue.tick_ms = 10001",
            "queue.tick_ms: must be at most 10000, a sixth of queue.heartbeat_timeout_seconds (60), not 10001",
        ),
        ("queue.capacity = 0", "queue.capacity: must be from 1 to 1000000000, not 0"),
        ("queue.max_evict_per_tick = 0", "queue.max_evict_per_tick: must be from 1 to 1000000, not 0"),
        ("queue.max_active_targets = 0", "queue.max_active_targets: must be from 1 to 1000000, not 0"),
        (
            "queue.idle_ttl_seconds = 314",
            "queue.idle_ttl_seconds: must be at least 315, not 314: token.ttl_seconds and the longest purchase \
             (upstream.timeout_ms and 5 s); a target forgotten earlier would forget which passes were used",
        ),
        (
            "queue.idle_ttl_seconds = 59\ntoken.ttl_seconds = 1",
            "queue.idle_ttl_seconds: must be at least 60, queue.heartbeat_timeout_seconds, not 59: a target would be \
             forgotten before the people in it",
        ),
        ("token.ttl_seconds = 0", "token.ttl_seconds: must be from 1 to 86400, not 0"),
        ("token.single_use = 1", "token.single_use: must be true or false, not 1"),
        ("redis.pool_size = 0", "redis.pool_size: must be from 1 to 1000, not 0"),
        ("redis.command_timeout_ms = 0", "redis.command_timeout_ms: must be from 1 to 60000, not 0"),
        ("redis.mode = 'many'", "redis.mode: must be \"standalone\" or \"sentinel\" or \"cluster\", not \"many\""),
        ("redis.mode = 'cluster'", "redis.nodes: must name some nodes with redis.mode = \"cluster\""),
        (
            "redis.mode = 'cluster'\nredis.nodes = ['a:1']\nredis.url = 'redis://host/1'",
            "redis.url: must name no database but 0 with redis.mode = \"cluster\"",
        ),
        (
            "redis.mode = 'cluster'\nredis.nodes = ['a:1']\nredis.sentinel_master = 'a'",
            "redis.sentinel_master: means something only with redis.mode = \"sentinel\"",
        ),
        (
            "redis.mode = 'sentinel'\nredis.sentinel_master = 'a'",
            "redis.nodes: must name the sentinels with redis.mode = \"sentinel\"",
        ),
        (
            "redis.mode = 'sentinel'\nredis.nodes = ['a:1']",
            "redis.sentinel_master: must be set with redis.mode = \"sentinel\"",
        ),
        ("redis.nodes = ['a:1']", "redis.nodes: means something only with redis.mode = \"sentinel\" or \"cluster\""),
        ("redis.nodes = ['a']", "redis.nodes: must be a list, each item \"host:port\", not of type array"),
        ("redis.on_failure = 'shut'", "redis.on_failure: must be \"open\" or \"throttle\" or \"closed\", not \"shut\""),
        (
            "redis.on_failure = 'throttle'",
            "redis.replicas: must be set with redis.on_failure = \"throttle\": each takes its share",
        ),
        ("redis.on_failure = 'throttle'\nredis.replicas = 0", "redis.replicas: must be from 1 to 10000, not 0"),
        (
            "redis.on_failure = 'throttle'\nredis.replicas = 101",
            "redis.replicas: must be at most 100, queue.batch_size, not 101: each replica's share of a batch is at least \
             one person",
        ),
        ("redis.replicas = 3", "redis.replicas: means something only with redis.on_failure = \"throttle\""),
        ("redis.ca_file = 'ca.pem'", "redis.ca_file: means something only with a redis.url that begins with rediss://"),
        (
            "redis.url = 'rediss://a'\nredis.cert_file = 'a.pem'",
            "redis.key_file: must be set with redis.cert_file: its private key",
        ),
        (
            "redis.url = 'rediss://a'\nredis.key_file = 'a.key'",
            "redis.cert_file: must be set with redis.key_file: its certificate",
        ),
        ("store.kind = 'mysql'", "store.kind: must be \"redis\" or \"embedded\", not \"mysql\""),
        ("server.port = 65536", "server.port: must be a whole number from 0 to 65535, not 65536"),
        ("server.host = ''", "server.host: must be an address or a host name, not \"\""),
        ("server.workers = 513", "server.workers: must be from 0 to 512, not 513"),
        ("server.backlog = 0", "server.backlog: must be from 1 to 65535, not 0"),
        ("server.max_connections = 0", "server.max_connections: must be from 1 to 1000000, not 0"),
        ("server.keep_alive_seconds = 0", "server.keep_alive_seconds: must be from 1 to 3600, not 0"),
        (
            "server.client_request_timeout_ms = 999",
            "server.client_request_timeout_ms: must be from 1000 to 600000, not 999",
        ),
        (
            "server.client_stall_timeout_seconds = 0",
            "server.client_stall_timeout_seconds: must be from 1 to 3600, not 0",
        ),
        (
            "server.management_port = 8080",
            "server.management_port: must differ from server.port (8080); leave it out to have one port for both",
        ),
        (
            "upstream.url = 'https://shop'",
            "upstream.url: must be http://…: https upstreams are not in this version, not \"https://shop\"",
        ),
        (
            "upstream.url = 'http://shop/base'",
            "upstream.url: must be an address like http://host:port, without a path, a query or a user, not \
             \"http://shop/base\"",
        ),
        (
            "upstream.url = 'http://shop'\ndemo_shop.enabled = true",
            "upstream.url: must not be set while demo_shop.enabled is true: set that to false",
        ),
        ("upstream.host_header = 'keep'", "upstream.host_header: must be \"preserve\" or \"upstream\", not \"keep\""),
        ("upstream.timeout_ms = 0", "upstream.timeout_ms: must be from 1 to 600000, not 0"),
        ("upstream.connect_timeout_ms = 0", "upstream.connect_timeout_ms: must be from 1 to 600000, not 0"),
        (
            "upstream.first_byte_timeout_ms = 10001",
            "upstream.first_byte_timeout_ms: must be from 1 to 10000, not 10001",
        ),
        ("demo_shop.stock = 0", "demo_shop.stock: must be from 1 to 1000000000, not 0"),
        (
            "load_shedding.max_concurrent_requests = 0",
            "load_shedding.max_concurrent_requests: must be from 1 to 1000000, not 0",
        ),
        ("log.format = 'xml'", "log.format: must be \"text\" or \"json\", not \"xml\""),
        ("log.level = 3", "log.level: must be a text, in quotes, not 3"),
        (
            "log.level = 'inof'",
            "log.level: must be off, error, warn, info, debug, trace, or a filter such as info,virtual_queue=debug, \
             not \"inof\"",
        ),
    ] {
        assert_eq!(mistakes(toml, &[]), [expected], "{toml}");
    }
}

#[test]
fn what_a_client_sends_wrong_is_no_line_of_the_log_unless_asked_for() {
    let filter = |level: &str| LogConfig { format: LogFormat::Text, level: level.to_owned() }.filter().unwrap();
    assert_eq!(filter("info").to_string(), "actix_http=off,info");
    assert_eq!(filter("info,actix_http=debug").to_string(), "actix_http=debug,info");
}

#[test]
fn the_bounds_themselves_are_allowed() {
    for toml in [
        "queue.batch_size = 1\nqueue.tick_ms = 500\nqueue.heartbeat_timeout_seconds = 3",
        "queue.batch_size = 10000\nqueue.tick_ms = 60000\nqueue.heartbeat_timeout_seconds = 360",
        "queue.idle_ttl_seconds = 315",
        "token.ttl_seconds = 1",
        "token.ttl_seconds = 86400\nqueue.idle_ttl_seconds = 86415",
        "server.port = 0\nserver.management_port = 0",
        "log.level = 'info,virtual_queue=debug'",
        "log.level = 'off'",
        "admin.token = '1234567890123456'",
    ] {
        assert!(load(toml, &[]).is_ok(), "{toml}: {:?}", load(toml, &[]));
    }
}

#[test]
fn a_number_or_a_switch_in_a_variable_is_read_as_one() {
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
fn a_file_that_cannot_be_read_is_a_mistake() {
    let errors = Config::load(Some(Path::new("does/not/exist.toml")), [], Mode::Demo).expect_err("no such file");
    assert!(errors.to_string().contains("does/not/exist.toml: cannot be read"), "{errors}");
    let errors = load("[queue]\n\ntick_ms = \n", &[]).expect_err("not TOML");
    assert!(errors.to_string().contains(": line 3 is not TOML"), "{errors}");
}

#[test]
fn settings_changed_in_code_are_judged_the_same_way() {
    let mut config = Config::parse_default();
    config.queue.tick_ms = 1;
    config.queue.heartbeat_timeout_seconds = u64::MAX;
    config.upstream.timeout_ms = u64::MAX;
    let errors = config.validate().expect_err("three mistakes");
    let keys: Vec<&str> = errors.problems().iter().map(|problem| problem.key.as_str()).collect();
    assert!(
        ["queue.tick_ms", "queue.heartbeat_timeout_seconds", "upstream.timeout_ms"]
            .iter()
            .all(|key| keys.contains(key))
    );
}

const ONE_ROUTE: &str = "[{ method = 'PUT', path = '/api/v2/sales/{id}/claim', target = 'limited-drop' }]";

#[test]
fn purchase_routes_replace_the_prds_two_from_a_file_and_from_a_variable() {
    let tables = "[[gate.routes]]\nmethod = 'PUT'\npath = '/api/v2/sales/{id}/claim'\ntarget = 'limited-drop'";
    let from_file = load(tables, &[]).expect("good");
    let from_variable = load("", &[("VQ_GATE__ROUTES", ONE_ROUTE)]).expect("good");
    for config in [&from_file, &from_variable] {
        let routes: Vec<_> =
            config.gate.routes.iter().map(|route| (route.method(), route.pattern(), route.kind().slug())).collect();
        assert_eq!(routes, [("PUT", "/api/v2/sales/{id}/claim", "limited-drop")]);
    }
    let shown =
        |config: &Config| config.settings().iter().find(|seen| seen.key == "gate.routes").unwrap().shown.clone();
    assert_eq!(shown(&from_variable).as_deref(), Some("[PUT /api/v2/sales/{id}/claim limited-drop]"));
    let two = "[[gate.routes]]\nmethod = 'POST'\npath = '/a/{id}'\ntarget = 'limited-drop'\n\
               [[gate.routes]]\nmethod = 'POST'\npath = '/b/{id}'\ntarget = 'ticketing-event'";
    assert_eq!(load(two, &[]).expect("good").gate.routes.len(), 2);
}

#[test]
fn a_mistake_in_a_purchase_route_is_named_with_its_place_and_key() {
    let good = "{ method = 'POST', path = '/a/{id}', target = 'limited-drop' }";
    let route = |method: &str, path: &str, target: &str| {
        format!("[{good}, {{ method = {method}, path = {path}, target = {target} }}]")
    };
    let (post, path, drop) = ("'POST'", "'/b/{id}'", "'limited-drop'");
    for (text, expected) in [
        (route("'GET'", path, drop), "gate.routes[1].method: must be POST or PUT or PATCH or DELETE, not \"GET\""),
        (route("'post'", path, drop), "gate.routes[1].method: must be"),
        (route("7", path, drop), "gate.routes[1].method: must be a text"),
        (route(post, path, "'concert'"), "gate.routes[1].target: must be \"limited-drop\" or \"ticketing-event\", not"),
        (route(post, "'/b'", drop), "gate.routes[1].path: a purchase route is written like"),
        (route(post, "'/b/{id}/{id2}'", drop), "gate.routes[1].path: "),
        (route(post, "'/{id}'", drop), "gate.routes[1].path: "),
        (route(post, "'b/{id}'", drop), "gate.routes[1].path: "),
        (route(post, "'/b/{id}/'", drop), "gate.routes[1].path: "),
        (route(post, "'/B/{id}'", drop), "gate.routes[1].path: "),
        (route(post, "'/b/{id}/*'", drop), "gate.routes[1].path: "),
        (route(post, "'/b/x{id}'", drop), "gate.routes[1].path: "),
        (route(post, "'/b%2F/{id}'", drop), "gate.routes[1].path: "),
        (route(post, "'/a/{other}'", drop), "gate.routes[1].path: is the same place as gate.routes[0]"),
        (format!("[{good}, {{ method = 'POST', path = '/b/{{id}}' }}]"), "gate.routes[1].target: must be set"),
        (
            format!("[{good}, {{ method = 'POST', paths = 1 }}]"),
            "gate.routes[1].paths: is not a setting: the keys of a",
        ),
        (format!("[{good}, 'POST /b']"), "gate.routes[1]: must be a table"),
        ("[]".to_owned(), "gate.routes: must name at least one"),
        ("POST /a/{id}".to_owned(), "gate.routes: must be a list of tables"),
        (format!("[{good}]\nmore = 1"), "gate.routes: must be a list of tables"),
        (String::new(), "gate.routes: must be a list of tables"),
    ] {
        let found = mistakes("", &[("VQ_GATE__ROUTES", &text)]);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{text}: {found:?}");
    }
    let errors = load("", &[("VQ_GATE__ROUTES", &route(post, "'/a/{id}'", drop))]).expect_err("twice the same place");
    assert_eq!(errors.problems()[0].origin, Some(Origin::Variable("VQ_GATE__ROUTES".to_owned())));
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

#[test]
fn identity_pages_and_limits_that_make_no_sense_are_named() {
    let jwt = "[identity]\nmode = 'jwt'\n";
    for (toml, key) in [
        (jwt.to_owned(), "identity.jwt_key_file"),
        (format!("{jwt}jwt_key_file = 'a'\njwks_url = 'https://a/b'"), "identity.jwks_url"),
        (format!("{jwt}jwks_url = 'http://login.example.com/jwks'"), "identity.jwks_url"),
        (format!("{jwt}jwks_url = 'https://a/b'\njwt_algorithms = ['HS256']"), "identity.jwks_url"),
        (format!("{jwt}jwt_key_file = 'a'\njwt_algorithms = ['HS256', 'RS256']"), "identity.jwt_algorithms"),
        (format!("{jwt}jwt_key_file = 'a'\njwt_algorithms = []"), "identity.jwt_algorithms"),
        (format!("{jwt}jwt_key_file = 'a'\njwt_algorithms = ['none']"), "identity.jwt_algorithms"),
        (format!("{jwt}jwt_key_file = 'a'\njwt_claim = ''"), "identity.jwt_claim"),
        (format!("{jwt}jwt_key_file = 'a'\njwt_audience = ''"), "identity.jwt_audience"),
        (format!("{jwt}jwt_key_file = 'a'\njwt_leeway_seconds = 301"), "identity.jwt_leeway_seconds"),
        ("[identity]\nmode = 'token'".to_owned(), "identity.mode"),
        ("[identity]\njwks_url = 'https://a/b'".to_owned(), "identity.jwks_url"),
        ("[identity]\njwt_key_file = 'a'".to_owned(), "identity.jwt_key_file"),
        ("[cors]\nallowed_origins = ['*']".to_owned(), "cors.allowed_origins"),
        ("[cors]\nallowed_origins = ['https://a/']".to_owned(), "cors.allowed_origins"),
        ("[rate_limit]\nenter_per_second = 0".to_owned(), "rate_limit.enter_per_second"),
        ("[rate_limit]\nenter_burst = 5".to_owned(), "rate_limit.enter_burst"),
        ("[rate_limit]\ntrusted_proxies = ['10.0.0.0/33']".to_owned(), "rate_limit.trusted_proxies"),
    ] {
        let found = mistakes(&toml, &[]);
        assert!(found.len() == 1 && found[0].starts_with(&format!("{key}: ")), "{toml}: {found:?}");
    }
    let config = load("[rate_limit]\ntrusted_proxies = ['10.0.0.0/8', '::1']", &[]).expect("good");
    let shown: Vec<String> = config.rate_limit.trusted_proxies.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.0/8", "::1/128"]);
}
