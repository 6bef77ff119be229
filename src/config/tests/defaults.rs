//! What is set where nobody sets anything.

use super::*;

#[test]
fn the_default_file_holds_the_documented_defaults() {
    let config = Config::parse_default();
    assert_eq!(config.validate(), Ok(()));
    assert_eq!((config.server.host.as_str(), config.server.port), ("127.0.0.1", 8080));
    assert_eq!((config.server.workers, config.server.shutdown_grace_seconds), (0, 30));
    assert_eq!((config.server.backlog, config.server.max_connections), (4096, 25_000));
    assert_eq!((config.server.keep_alive_seconds, config.server.client_request_timeout_ms), (20, 5_000));
    assert!(config.server.keep_alive_seconds > config.queue.heartbeat_timeout_seconds / 4, "longer than between polls");
    assert_eq!(config.server.client_stall_timeout_seconds, 30);
    assert_eq!((config.server.management_port, config.store.kind), (None, None));
    assert_eq!((config.redis.connect_timeout_ms, config.redis.command_timeout_ms), (500, 200));
    assert_eq!((config.redis.mode, config.redis.on_failure), (RedisMode::Standalone, OnFailure::Open));
    assert_eq!((config.redis.replicas, &config.redis.tls), (None, &RedisTls::default()));
    let queue = &config.queue;
    assert_eq!((queue.capacity, queue.batch_size, queue.tick_ms), (100_000, 100, 2000));
    assert_eq!((queue.heartbeat_timeout_seconds, queue.heartbeat_slack_seconds), (60, 10));
    assert_eq!((queue.silent_after_seconds(), queue.max_evict_per_tick), (70, 1000));
    assert_eq!((queue.idle_ttl_seconds, queue.max_active_targets), (1800, 1000));
    let token = &config.token;
    assert!(token.secret.is_none() && token.also_accepted.is_empty());
    assert_eq!((token.ttl_seconds, token.single_use, token.cookie), (300, true, false));
    let identity = &config.identity;
    assert_eq!((identity.mode, identity.ids), (IdentityMode::Header, crate::domain::UserIdForm::Decimal));
    assert_eq!(identity.jwt_algorithms, [JwtAlgorithm::Rs256, JwtAlgorithm::Es256]);
    assert_eq!((&identity.jwt_key_file, &identity.jwks_url), (&None, &None));
    assert_eq!((identity.jwt_claim.as_str(), identity.jwt_leeway_seconds), ("sub", 30));
    assert_eq!((&identity.jwt_audience, &identity.jwt_issuer), (&None, &None));
    assert_eq!(config.cors.allowed_headers, ["traceparent", "tracestate", "baggage"]);
    assert!(config.cors.allowed_origins.is_empty() && config.rate_limit.trusted_proxies.is_empty());
    assert_eq!((config.rate_limit.enter_per_second, config.rate_limit.enter_burst), (None, None));
    assert!(config.limited_drop.enabled && !config.flags.virtual_queue_enabled);
    assert_eq!(config.gate.routes, crate::domain::GatedRoute::of_the_prd());
    assert!(config.gate.settle_token.is_none());
    assert_eq!((config.upstream.timeout_ms, config.upstream.lease_ms()), (10_000, 15_000));
    assert_eq!((&config.upstream.url, config.upstream.host_header), (&None, HostHeader::Preserve));
    assert!(config.upstream.keep_headers.is_empty());
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
fn what_a_client_sends_wrong_is_no_line_of_the_log_unless_asked_for() {
    let filter = |level: &str| LogConfig { format: LogFormat::Text, level: level.to_owned() }.filter().unwrap();
    assert_eq!(filter("info").to_string(), "actix_http=off,info");
    assert_eq!(filter("info,actix_http=debug").to_string(), "actix_http=debug,info");
}
