//! What is written for operators is true as far as a machine can see it.

use std::{fs, path::Path};

use crate::redis_server::RedisServer;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every source file below this directory, one after the other.
fn sources(directory: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text.push_str(&sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
    text
}

#[test]
fn every_test_that_the_pages_name_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let units = sources(&root.join("src"));
    let mut found = 0;
    for page in
        ["docs/operations/failure-modes.md", "docs/operations/runbook.md", "docs/design.md", "docs/requirements.md"]
    {
        let text = read(page);
        // `life::sigterm_…`, `life.rs::sigterm_…`, or the path of a unit test: `proxy::head::tests::a_head_…`.
        for (module, test) in text.split('`').filter_map(|word| word.split_once("::")) {
            let (module, name) = (module.trim_end_matches(".rs"), test.rsplit("::").next().unwrap());
            let file = root.join(format!("tests/it/{module}.rs"));
            let source = if file.exists() {
                let parts = file.with_extension("");
                fs::read_to_string(&file).unwrap() + &if parts.is_dir() { sources(&parts) } else { String::new() }
            } else if root.join(format!("src/{module}")).is_dir() && test.contains("tests::") {
                units.clone()
            } else {
                // A name of the code.
                continue;
            };
            let is_there = match name.strip_suffix('…').or(name.strip_suffix("...")) {
                Some(beginning) => source.contains(&format!("fn {beginning}")),
                None => source.contains(&format!("fn {name}(")),
            };
            assert!(is_there, "{page}: there is no test {module}::{test}");
            found += 1;
        }
    }
    assert!(found > 150, "{found}");
}

#[test]
fn every_log_line_in_the_runbook_is_in_the_code() {
    let code = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    // A string may go on in the next line.
    let code = code.split("\\\n").map(str::trim_start).collect::<String>();
    let text = read("docs/operations/runbook.md");
    let lines = text.lines().filter_map(|line| Some(line.strip_prefix("### `")?.trim_matches([' ', '`'])));
    let (mut of_log, mut of_metrics) = (0, 0);
    for line in lines {
        assert!(code.contains(line), "no code writes: {line}");
        *if line.starts_with("virtual_queue_") { &mut of_metrics } else { &mut of_log } += 1;
    }
    assert!(of_log > 20 && of_metrics > 5, "{of_log} log lines, {of_metrics} metrics");
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
