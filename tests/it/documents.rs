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

/// The Markdown files of this repository that people read.
fn pages(directory: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !name.starts_with('.') && !["target", "node_modules"].contains(&name) {
            pages(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// As a page's headings are linked to.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
}

#[test]
fn every_link_from_page_to_page_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut links) = (Vec::new(), 0);
    pages(root, &mut found);
    for page in found {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(to.exists(), "{}: {link}", page.display());
            links += 1;
            if !heading.is_empty() {
                let there = fs::read_to_string(&to).unwrap();
                let mut headings = there.lines().filter(|line| line.starts_with('#'));
                let leads = headings.any(|line| anchor(line.trim_start_matches('#').trim()) == heading);
                assert!(leads, "{}: {link}", page.display());
            }
        }
    }
    assert!(links > 50, "{links}");
}
