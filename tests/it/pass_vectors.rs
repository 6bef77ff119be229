//! `docs/pass-vectors.json` says what a verifier must say: ours, and the samples in `docs/pass-format.md` as they stand
//! there.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;
use virtual_queue::{
    domain::{QueueTarget, UserId},
    token::{EntryTokenGuard, Keyring},
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Vectors {
    secret: String,
    also_accepted: Vec<String>,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Vector {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    target_id: String,
    user_id: String,
    now: u64,
    pass: String,
    verdict: String,
}

fn docs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(file)
}

fn vectors() -> Vectors {
    serde_json::from_slice(&std::fs::read(docs("pass-vectors.json")).unwrap()).unwrap()
}

#[test]
fn ours_says_what_the_vectors_say() {
    let all = vectors();
    let older: Vec<_> = all.also_accepted.into_iter().map(Into::into).collect();
    let keyring = Keyring::new(&all.secret.into(), &older).unwrap();
    for vector in &all.vectors {
        let target = QueueTarget::from_label(&format!("{}:{}", vector.kind, vector.target_id));
        let verdict = match (target, UserId::parse(&vector.user_id)) {
            (Ok(target), Ok(user)) => match keyring.verify(target, user, &vector.pass, vector.now) {
                Ok(_) => "ok",
                Err(refusal) => refusal.label(),
            },
            _ => "not_canonical",
        };
        assert_eq!(verdict, vector.verdict, "{}", vector.name);
    }
    for verdict in ["ok", "malformed", "forged", "expired", "other_target", "other_user", "not_canonical"] {
        assert!(all.vectors.iter().any(|vector| vector.verdict == verdict), "no vector is {verdict}");
    }
}

/// The one code block of this language in `docs/pass-format.md`.
fn sample(language: &str) -> String {
    let page = std::fs::read_to_string(docs("pass-format.md")).unwrap();
    let fence = format!("```{language}\n");
    let blocks: Vec<&str> = page.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 1, "one sample in {language}");
    blocks[0].to_owned()
}

/// Runs a sample, followed by code that prints `true` or `false` for each vector. Clocks tell fractions of seconds, which
/// make no difference: a pass is over when its last second begins.
fn assert_sample_says_the_same(program: &str, flag: &str, language: &str, then: &str) {
    let run = Command::new(program)
        .args([flag, &format!("{}{then}", sample(language))])
        .arg(docs("pass-vectors.json"))
        .output()
        .unwrap_or_else(|error| panic!("install {program}, which runs the sample in {language}: {error}"));
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let said = String::from_utf8(run.stdout).unwrap();
    let said: Vec<&str> = said.lines().collect();
    let all = vectors().vectors;
    assert_eq!(said.len(), all.len(), "one answer a vector");
    for (vector, said) in all.iter().zip(said) {
        assert_eq!(said, (vector.verdict == "ok").to_string(), "{}", vector.name);
    }
}

#[test]
fn the_sample_in_python_says_the_same() {
    let then = r#"
import json, sys
of = json.load(open(sys.argv[1]))
for v in of["vectors"]:
    good = verify([of["secret"], *of["alsoAccepted"]], v["type"], v["targetId"], v["userId"], v["pass"], v["now"] + 0.75)
    print("true" if good else "false")
"#;
    assert_sample_says_the_same("python3", "-c", "python", then);
}

#[test]
fn the_sample_in_javascript_says_the_same() {
    let then = r#"
const of = JSON.parse(require("node:fs").readFileSync(process.argv[1], "utf8"));
for (const v of of.vectors)
  console.log(verify([of.secret, ...of.alsoAccepted], v.type, v.targetId, v.userId, v.pass, v.now + 0.75));
"#;
    assert_sample_says_the_same("node", "-e", "js", then);
}
