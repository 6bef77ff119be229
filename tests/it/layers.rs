//! The sources import one way only (the map in `src/lib.rs`; `docs/design.md`).

use std::{
    fs,
    path::{Path, PathBuf},
};

/// From the ground up: a module may import what stands before it.
const ORDER: [&str; 19] = [
    "domain",
    "clock",
    "token",
    "config",
    "metrics",
    "problem",
    "telemetry",
    "identity",
    "redis",
    "store",
    "flags",
    "demo_shop",
    "service",
    "actors",
    "gate",
    "proxy",
    "http",
    "app",
    "cli",
];

/// Crates that only these places may name.
const CRATES: [(&str, &[&str]); 3] = [
    ("redis", &["redis/", "store/redis", "flags/redis", "flags/tests", "demo_shop/"]),
    ("bb8_redis", &["redis/", "store/redis", "flags/redis", "flags/tests", "demo_shop/"]),
    ("actix", &["actors/", "app.rs"]),
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
}

/// The text without comments, documentation included: links in it import nothing.
fn code(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The modules named after `crate::`, one by one or in a group.
fn imported(code: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if rest.starts_with('{') {
            let mut depth = 0;
            let mut name = String::new();
            for letter in rest.chars() {
                match letter {
                    '{' => depth += 1,
                    '}' if depth == 1 => break,
                    '}' => depth -= 1,
                    ',' if depth == 1 => modules.push(std::mem::take(&mut name)),
                    _ if depth == 1 => name.push(letter),
                    _ => {}
                }
            }
            modules.push(name);
        } else {
            modules.push(rest.to_owned());
        }
    }
    let first_word =
        |text: String| text.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
    modules.into_iter().filter_map(first_word).filter(|word| !word.is_empty()).collect()
}

/// Whether the code names a crate: a path that begins with it. Inside `use crate::{…}` every path is one of ours.
fn names_crate(code: &str, name: &str) -> bool {
    let path = format!("{name}::");
    let others: Vec<&str> = code
        .split("use crate::{")
        .enumerate()
        .map(|(i, part)| if i == 0 { part } else { part.split_once("};").map_or("", |(_, after)| after) })
        .collect();
    let code = others.concat();
    code.match_indices(&path).any(|(at, _)| {
        let before = &code[..at];
        let whole_word = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let from_the_root =
            before.ends_with("::") && !before[..before.len() - 2].ends_with(|c: char| c.is_alphanumeric());
        whole_word && (!before.ends_with(':') || from_the_root)
    })
}

#[test]
fn imports_go_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut faults = Vec::new();
    let mut seen = 0;
    for file in &files {
        let place = file.strip_prefix(&root).expect("below src").to_str().expect("a name");
        let code = code(&fs::read_to_string(file).expect("a source"));
        let module = place.split(['/', '.']).next().expect("a name");
        if let Some(rank) = ORDER.iter().position(|name| *name == module) {
            for import in imported(&code) {
                match ORDER.iter().position(|name| *name == import) {
                    Some(other) if other <= rank => seen += 1,
                    Some(_) => faults.push(format!("{place} imports {import}, which stands above it")),
                    None => faults.push(format!("{place} imports {import}, which is not in the order")),
                }
            }
        } else if !["lib", "main"].contains(&module) {
            faults.push(format!("{place} is in no module of the order"));
        }
        for (name, places) in CRATES {
            if names_crate(&code, name) && !places.iter().any(|allowed| place.starts_with(allowed)) {
                faults.push(format!("{place} names the crate {name}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen > 50, "the test reads imports at all: {seen}");
}

#[test]
fn an_import_against_the_order_would_be_noticed() {
    assert_eq!(imported("use crate::{a::{b, c}, d::e, f};\nlet x = crate::g::h();"), ["a", "d", "f", "g"]);
    assert!(names_crate("use redis::Client;", "redis") && names_crate("x: ::redis::Value", "redis"));
    assert!(!names_crate("use crate::redis::keys;", "redis") && !names_crate("bb8_redis::Pool", "redis"));
    assert!(!names_crate("use crate::{a, store::{b, redis::C}};\nlet x = 1;", "redis"));
    assert!(names_crate("use crate::{a, b};\nuse redis::Client;", "redis"));
    assert!(!names_crate("use actix_web::web;", "actix") && names_crate("use actix::Actor;", "actix"));
}
