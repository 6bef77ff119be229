//! The binary's way with good and bad configurations. A test binary of its own: it sets variables for the process it
//! starts.

use std::process::{Command, Output};

const SECRET: &str = "a-secret-of-more-than-thirty-two-bytes";

/// `virtual-queue ARGUMENTS` with these variables and no others.
fn virtual_queue(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_virtual-queue"))
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .expect("the binary starts")
}

/// `config check` with `toml` as the file.
fn check(toml: &str, variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let file = tempfile::Builder::new().prefix("vq-").suffix(".toml").tempfile().expect("a temporary file");
    std::fs::write(file.path(), toml).expect("a writable file");
    let path = file.path().to_str().expect("a path of text");
    let output = virtual_queue(&["config", "check", "--config", path], variables);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_good_configuration_is_printed_with_its_origins_and_without_secrets() {
    let toml = "[queue]\nbatch_size = 250\n[redis]\nurl = 'redis://app:hunter2@127.0.0.1:1/0'";
    let (code, out, err) = check(toml, &[("VQ_TOKEN__SECRET", SECRET), ("VQ_SERVER__PORT", "9000")]);
    assert_eq!(code, Some(0), "{err}");
    let line = |key: &str| out.lines().find(|line| line.starts_with(&format!("{key} "))).expect("a line a setting");
    assert!(line("queue.batch_size").contains("250") && line("queue.batch_size").ends_with(".toml"), "{out}");
    assert!(line("server.port").contains("9000") && line("server.port").ends_with("variable VQ_SERVER__PORT"), "{out}");
    assert!(line("queue.tick_ms").ends_with("default"), "{out}");
    assert!(line("store.kind").ends_with("default of `serve`"), "{out}");
    assert!(line("token.secret").contains("(secret)") && line("admin.token").contains("(not set)"), "{out}");
    assert!(line("redis.url").contains("redis://127.0.0.1:1/0"), "{out}");
    for secret in [SECRET, "hunter2"] {
        assert!(!out.contains(secret) && !err.contains(secret), "{out}{err}");
    }
}

#[test]
fn a_bad_configuration_is_refused_by_name_and_no_secret_is_shown() {
    let secret = ("VQ_TOKEN__SECRET", SECRET);
    for (toml, variables, named) in [
        ("[queue]\nticks = 1", vec![secret], vec!["queue.ticks", ".toml", "tick_ms"]),
        ("[queues]", vec![secret], vec!["queues", ".toml"]),
        ("", vec![secret, ("VQ_QUEUE__TICKS", "1")], vec!["queue.ticks", "VQ_QUEUE__TICKS"]),
        ("", vec![("VQ_TOKEN__SECRET", "hunter2")], vec!["token.secret", "VQ_TOKEN__SECRET", "32 bytes"]),
        ("token.secret = 'hunter2'", vec![], vec!["token.secret", ".toml", "32 bytes"]),
        ("", vec![secret, ("VQ_TOKEN__ALSO_ACCEPTED", "hunter2")], vec!["token.also_accepted", "32 bytes"]),
        ("", vec![], vec!["token.secret (not set)", "openssl"]),
        ("[queue]\ntick_ms = 100", vec![secret], vec!["queue.tick_ms", ".toml", "500 to 60000, not 100"]),
        ("", vec![secret, ("VQ_QUEUE__TICK_MS", "fast")], vec!["queue.tick_ms", "VQ_QUEUE__TICK_MS", "\"fast\""]),
        (
            "",
            vec![secret, ("VQ_REDIS__URL", "rediss://:hunter2@host#insecure")],
            vec!["redis.url", "VQ_REDIS__URL", "%-encoded"],
        ),
        ("", vec![secret, ("VQ_ADMIN__TOKEN", "hunter2")], vec!["admin.token", "16 bytes"]),
        ("[token]\nsecret = 'hunter2", vec![], vec!["line 2", ".toml"]),
    ] {
        let (code, out, err) = check(toml, &variables);
        assert_eq!(code, Some(1), "{toml} {variables:?}: {out}{err}");
        for name in named {
            assert!(err.contains(name), "{name} is not in: {err}");
        }
        for secret in [SECRET, "hunter2"] {
            assert!(!out.contains(secret) && !err.contains(secret), "{out}{err}");
        }
    }
}

#[test]
fn every_mistake_is_reported_at_once() {
    let (code, _, err) = check("queue.ticks = 1\nqueue.tick_ms = true", &[("VQ_SERVER__PORT", "http"), ("VQ_X", "")]);
    assert_eq!(code, Some(1));
    for key in ["queue.ticks", "queue.tick_ms", "server.port", "VQ_X"] {
        assert!(err.contains(key), "{key} is not in: {err}");
    }
}

#[test]
fn serving_with_a_bad_configuration_is_refused_with_exit_code_2() {
    for command in ["serve", "demo"] {
        let output = virtual_queue(&[command], &[("VQ_QUEUE__TICK_MS", "100")]);
        assert_eq!(output.status.code(), Some(2));
        let err = String::from_utf8(output.stderr).expect("text");
        assert!(
            err.contains("queue.tick_ms (variable VQ_QUEUE__TICK_MS): must be from 500 to 60000, not 100"),
            "{err}"
        );
        assert!(output.stdout.is_empty());
    }
    let output = virtual_queue(&["serve", "--config", "does/not/exist.toml"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).expect("text").contains("does/not/exist.toml: cannot be read"));
}

#[test]
fn wrong_arguments_are_refused_with_exit_code_2_and_help_is_no_mistake() {
    for arguments in [&[][..], &["sell"], &["serve", "--fast"], &["config"]] {
        let output = virtual_queue(arguments, &[]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8(output.stderr).expect("text").contains("Usage: virtual-queue"), "{arguments:?}");
    }
    let output = virtual_queue(&["--help"], &[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).expect("text").contains("Usage: virtual-queue"));
}

#[test]
fn a_file_of_keys_or_certificates_that_is_not_usable_is_a_mistake() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let [rubbish, missing] = ["rubbish.pem", "missing.pem"].map(|name| dir.path().join(name));
    std::fs::write(&rubbish, "hunter2").expect("a writable file");
    let [rubbish, missing] = [rubbish, missing].map(|path| path.to_str().expect("a path of text").to_owned());
    let (jwt, tls) = (("VQ_IDENTITY__MODE", "jwt"), ("VQ_REDIS__URL", "rediss://127.0.0.1:1"));
    for (file, what) in [(&rubbish, ""), (&missing, "cannot be read")] {
        for (kind, key, variables) in [
            (jwt, "identity.jwt_key_file", vec![("VQ_IDENTITY__JWT_KEY_FILE", file)]),
            (tls, "redis.ca_file", vec![("VQ_REDIS__CA_FILE", file)]),
            (tls, "redis.cert_file", vec![("VQ_REDIS__CERT_FILE", file), ("VQ_REDIS__KEY_FILE", file)]),
        ] {
            let mut all = vec![("VQ_TOKEN__SECRET", SECRET), kind];
            all.extend(variables.iter().map(|(name, file)| (*name, file.as_str())));
            let (code, out, err) = check("", &all);
            assert_eq!(code, Some(1), "{key}: {out}");
            assert!(err.contains(key) && err.contains(file.as_str()) && err.contains(what), "{err}");
            assert!(!out.contains("is usable") && !err.contains("hunter2"), "{out}{err}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_text_is_refused_by_name() {
    use std::os::unix::ffi::OsStrExt;
    let output = Command::new(env!("CARGO_BIN_EXE_virtual-queue"))
        .args(["config", "check"])
        .env_clear()
        .env("VQ_TOKEN__SECRET", std::ffi::OsStr::from_bytes(&[0xff; 40]))
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).expect("text").contains("variable VQ_TOKEN__SECRET: is not UTF-8 text"));
}

#[test]
fn the_log_can_be_started_again_and_again() {
    let mut log = virtual_queue::config::Config::parse_default().log;
    virtual_queue::telemetry::init(&log);
    log.format = virtual_queue::config::LogFormat::Json;
    virtual_queue::telemetry::init(&log);
}
