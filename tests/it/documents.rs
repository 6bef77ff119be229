//! What is written for operators is true as far as a machine can see it.

use std::{fs, path::Path};

use crate::redis_server::RedisServer;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_test_that_the_failure_modes_name_is_there() {
    let text = read("docs/operations/failure-modes.md");
    let named: Vec<(&str, &str)> = text
        .split('`')
        .filter_map(|word| word.split_once("::"))
        .filter(|(module, _)| {
            ["away", "many_targets", "outages", "outage_modes", "redis_tls", "replica_faults", "settings"]
                .contains(module)
        })
        .collect();
    assert!(named.len() > 15, "{named:?}");
    for (module, test) in named {
        let source = read(&format!("tests/it/{module}.rs"));
        let found = match test.strip_suffix('…') {
            Some(beginning) => source.contains(&format!("async fn {beginning}")),
            None => source.contains(&format!("async fn {test}(")),
        };
        assert!(found, "there is no test {module}::{test}");
    }
}

#[test]
fn redis_starts_with_our_settings_and_keeps_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("compose/redis.conf");
    let server = RedisServer::start_with(&["--include", path.to_str().unwrap()]);
    let setting = |name: &str| -> String {
        let pair: Vec<String> = redis::cmd("CONFIG").arg("GET").arg(name).query(&mut server.connection()).unwrap();
        pair[1].clone()
    };
    for (name, value) in [
        ("maxmemory-policy", "noeviction"),
        ("maxmemory", "536870912"),
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        ("save", ""),
    ] {
        assert_eq!(setting(name), value, "{name}");
    }
}
