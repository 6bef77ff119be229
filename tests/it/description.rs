//! The OpenAPI description against the running server: schemathesis makes requests of it, valid and invalid, and holds
//! every answer to it.

use std::{path::PathBuf, process::Command};

use crate::server::{ADMIN, Server};

const SETTLE_TOKEN: &str = "the-shops-own-token";

/// Cases for each operation in the usual run, and in a long one.
const FEW: u32 = 12;
const MANY: u32 = 300;

/// Runs schemathesis against what `server` serves, and fails with what it found.
fn assert_is_as_described(server: &Server, token: &str, cases: u32, seed: u32, more: &[&str]) {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/tools/venv/bin/schemathesis");
    let output = Command::new(&program)
        .args(["run", &format!("{}/openapi.json", server.url()), "--checks", "all", "--continue-on-failure"])
        .args(["--phases", "coverage,fuzzing,stateful", "--no-shrink", "--warnings", "off"])
        .args(["--max-examples", &cases.to_string(), "--seed", &seed.to_string()])
        // What to type after a failure must be complete; the tokens are of this test alone.
        .args(["--output-sanitize", "false", "--header", &format!("Authorization: Bearer {token}")])
        .args(more)
        .env("NO_COLOR", "1")
        .current_dir(std::env::temp_dir())
        .output()
        .unwrap_or_else(|error| {
            panic!("{}: {error}; ./test.sh installs schemathesis there", program.display());
        });
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("No issues found"), "{said}");
    println!("{}", said.lines().rev().find(|line| line.contains("generated")).unwrap_or_default().trim());
}

fn everything_is_as_described(cases: u32, seed: u32) {
    let server = Server::demo(&[("VQ_GATE__SETTLE_TOKEN", SETTLE_TOKEN), ("VQ_LOG__LEVEL", "info")]);
    // Each of the two tokens opens its own calls.
    assert_is_as_described(&server, ADMIN, cases, seed, &["--exclude-path", "/gate/settle"]);
    assert_is_as_described(&server, SETTLE_TOKEN, cases, seed, &["--include-path", "/gate/settle"]);
}

#[test]
fn every_answer_is_as_described() {
    everything_is_as_described(FEW, 1);
}

#[test]
fn what_is_switched_off_is_not_described() {
    let off = [("VQ_ADMIN__TOKEN", ""), ("VQ_LIMITED_DROP__ENABLED", "false"), ("VQ_LOG__LEVEL", "info")];
    assert_is_as_described(&Server::demo(&off), "nobody-asks-for-it", FEW, 2, &[]);
}

#[test]
#[ignore = "long: a minute or two"]
fn every_answer_is_as_described_in_many_cases() {
    let seed = rand::random();
    println!("the seed is {seed}");
    everything_is_as_described(MANY, seed);
}
