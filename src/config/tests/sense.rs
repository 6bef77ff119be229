//! Settings that can be read and make no sense, alone or together.

use super::*;

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
            "queue.idle_ttl_seconds = 69\ntoken.ttl_seconds = 1",
            "queue.idle_ttl_seconds: must be at least 70, queue.heartbeat_timeout_seconds and \
             queue.heartbeat_slack_seconds, not 69: a target would be forgotten before the people in it",
        ),
        (
            "queue.heartbeat_slack_seconds = 3601\nqueue.idle_ttl_seconds = 4000",
            "queue.heartbeat_slack_seconds: must be from 0 to 3600, not 3601",
        ),
        ("identity.ids = 'uuid'", "identity.ids: must be \"decimal\" or \"any\", not \"uuid\""),
        (
            "identity.mode = 'visitor'\nidentity.ids = 'any'",
            "identity.ids: must be \"decimal\" while identity.mode is \"visitor\": visitors are numbers",
        ),
        (
            "identity.mode = 'visitor'\nidentity.jwt_issuer = 'a'",
            "identity.jwt_issuer: means nothing unless identity.mode is \"jwt\"",
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
        (
            "redis.mode = 'sentinel'\nredis.nodes = ['a:1']\nredis.sentinel_master = 'a'\nredis.url = 'rediss://a'",
            "redis.ca_file: must be set where redis.url is rediss:// and redis.sentinel_url is not",
        ),
        ("redis.sentinel_url = 'redis://a'", "redis.sentinel_url: means something only with redis.mode = \"sentinel\""),
        (
            "redis.ca_file = 'ca.pem'",
            "redis.ca_file: means something only where redis.url or redis.sentinel_url begins with rediss://",
        ),
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
        (
            "log.level = 'info,nonsense='",
            "log.level: must be off, error, warn, info, debug, trace, or a filter such as info,virtual_queue=debug, \
             not \"info,nonsense=\"",
        ),
        ("identity.mode = 'token'", "identity.mode: must be \"header\" or \"jwt\" or \"visitor\", not \"token\""),
        ("identity.jwks_url = 'https://a/b'", "identity.jwks_url: means nothing unless identity.mode is \"jwt\""),
        ("identity.jwt_key_file = 'a'", "identity.jwt_key_file: means nothing unless identity.mode is \"jwt\""),
        ("identity.mode = 'jwt'", "identity.jwt_key_file: must be set with jwt, or identity.jwks_url"),
        (
            "identity.mode = 'jwt'\nidentity.jwt_key_file = 'a'\nidentity.jwks_url = 'https://a/b'",
            "identity.jwks_url: must not be set beside identity.jwt_key_file",
        ),
        (
            "identity.mode = 'jwt'\nidentity.jwks_url = 'http://login.example.com/jwks'",
            "identity.jwks_url: must be https: http is only for addresses and names inside your own network \
             (127.0.0.1, 10.…, names without a dot, .internal, .local, .svc)",
        ),
        (
            "identity.mode = 'jwt'\nidentity.jwks_url = 'https://a/b'\nidentity.jwt_algorithms = ['HS256']",
            "identity.jwks_url: cannot be used with HS256: a secret is not published",
        ),
        (
            "identity.mode = 'jwt'\nidentity.jwt_key_file = 'a'\nidentity.jwt_algorithms = ['HS256', 'RS256']",
            "identity.jwt_algorithms: must not mix HS256 with others: a public key must never be taken for a secret",
        ),
        (
            "identity.mode = 'jwt'\nidentity.jwt_key_file = 'a'\nidentity.jwt_algorithms = []",
            "identity.jwt_algorithms: must name at least one of RS256, ES256, HS256",
        ),
        (
            "identity.mode = 'jwt'\nidentity.jwt_key_file = 'a'\nidentity.jwt_algorithms = ['none']",
            "identity.jwt_algorithms: must be a list, each item \"RS256\" or \"ES256\" or \"HS256\", not of type array",
        ),
        (
            "identity.mode = 'jwt'\nidentity.jwt_key_file = 'a'\nidentity.jwt_claim = ''",
            "identity.jwt_claim: must not be empty",
        ),
        (
            "identity.mode = 'jwt'\nidentity.jwt_key_file = 'a'\nidentity.jwt_audience = ''",
            "identity.jwt_audience: must not be empty",
        ),
        (
            "identity.mode = 'jwt'\nidentity.jwt_key_file = 'a'\nidentity.jwt_leeway_seconds = 301",
            "identity.jwt_leeway_seconds: must be from 0 to 300, not 301",
        ),
        (
            "cors.allowed_origins = ['*']",
            "cors.allowed_origins: must be origins as browsers write them, such as \"https://shop.example.com\": small \
             letters, no path, no \"/\" at the end, no default port, no *; not \"*\"",
        ),
        (
            "cors.allowed_headers = ['traceparent', '*']",
            "cors.allowed_headers: must be names of headers, such as \"traceparent\", and no *: browsers do not take it for \
             any header where calls carry credentials; not \"*\"",
        ),
        (
            "cors.allowed_headers = ['trace parent']",
            "cors.allowed_headers: must be names of headers, such as \"traceparent\", and no *: browsers do not take it for \
             any header where calls carry credentials; not \"trace parent\"",
        ),
        (
            "cors.allowed_headers = ['']",
            "cors.allowed_headers: must be names of headers, such as \"traceparent\", and no *: browsers do not take it for \
             any header where calls carry credentials; not \"\"",
        ),
        (
            "rate_limit.enter_per_second = 1000001",
            "rate_limit.enter_per_second: must be from 0 to 1000000, not 1000001",
        ),
        (
            "rate_limit.enter_per_second = 0\nrate_limit.enter_burst = 5",
            "rate_limit.enter_burst: means nothing without rate_limit.enter_per_second",
        ),
        ("rate_limit.enter_burst = 5", "rate_limit.enter_burst: means nothing without rate_limit.enter_per_second"),
        (
            "rate_limit.trusted_proxies = ['10.0.0.0/33']",
            "rate_limit.trusted_proxies: must be a list, each item a network, \"10.0.0.0/8\", or an address, not of type \
             array",
        ),
        ("gate.settle_token = 'hunter2'", "gate.settle_token: must have at least 16 bytes, this one has 7"),
        (
            "gate.settle_token = 'hunter2 hunter2 hunter2'",
            "gate.settle_token: must be visible ASCII without spaces: it travels in a header",
        ),
        (
            "gate.settle_token = '0123456789abcdef'\ntoken.single_use = false",
            "gate.settle_token: has no use without token.single_use: there would be nothing to settle",
        ),
        ("admin.token = '123456789012345'", "admin.token: must have at least 16 bytes, this one has 15"),
        (
            "admin.token = '12345678 12345678'",
            "admin.token: must be visible ASCII without spaces: it travels in a header",
        ),
    ] {
        assert_eq!(mistakes(toml, &[]), [expected], "{toml}");
    }
}

#[test]
fn the_bounds_themselves_are_allowed() {
    for toml in [
        "queue.batch_size = 1\nqueue.tick_ms = 500\nqueue.heartbeat_timeout_seconds = 3",
        "queue.batch_size = 10000\nqueue.tick_ms = 60000\nqueue.heartbeat_timeout_seconds = 360",
        "queue.idle_ttl_seconds = 315",
        "queue.idle_ttl_seconds = 70\ntoken.ttl_seconds = 1",
        "queue.idle_ttl_seconds = 60\ntoken.ttl_seconds = 1\nqueue.heartbeat_slack_seconds = 0",
        "queue.idle_ttl_seconds = 3660\nqueue.heartbeat_slack_seconds = 3600",
        "token.ttl_seconds = 1",
        "token.ttl_seconds = 86400\nqueue.idle_ttl_seconds = 86415",
        "server.port = 0\nserver.management_port = 0",
        "log.level = 'info,virtual_queue=debug'",
        "log.level = 'off'",
        "admin.token = '1234567890123456'",
        "gate.settle_token = '0123456789abcdef'",
        "redis.mode = 'sentinel'\nredis.nodes = ['a:1']\nredis.sentinel_master = 'a'\nredis.url = 'rediss://a'\n\
         redis.sentinel_url = 'rediss://a'",
        "redis.mode = 'sentinel'\nredis.nodes = ['a:1']\nredis.sentinel_master = 'a'\nredis.ca_file = 'ca.pem'\n\
         redis.sentinel_url = 'rediss://a'",
    ] {
        assert!(load(toml, &[]).is_ok(), "{toml}: {:?}", load(toml, &[]));
    }
}

#[test]
fn settings_changed_in_code_are_judged_the_same_way() {
    let mut config = Config::parse_default();
    config.queue.tick_ms = 1;
    config.queue.heartbeat_timeout_seconds = u64::MAX;
    config.queue.heartbeat_slack_seconds = u64::MAX;
    config.upstream.timeout_ms = u64::MAX;
    let errors = config.validate().expect_err("mistakes, and no sum that overflows");
    let keys: Vec<&str> = errors.problems().iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "queue.tick_ms",
            "queue.heartbeat_timeout_seconds",
            "queue.heartbeat_slack_seconds",
            "queue.idle_ttl_seconds",
            "upstream.timeout_ms",
            "queue.idle_ttl_seconds"
        ]
    );
}
