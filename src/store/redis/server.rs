//! Checks the servers' settings.

use ::redis::cmd;

use crate::redis::{Call, Masters};

/// Less memory than this is too little for a sale (`docs/operations/running.md`).
const LITTLE_MEMORY: u64 = 512 * 1024 * 1024;

/// Server settings that may harm a sale, as warnings.
pub(super) async fn warnings(masters: &Masters) -> Vec<String> {
    let setting = |name| {
        let mut get = cmd("CONFIG");
        get.arg("GET").arg(name);
        get
    };
    let names = [setting("maxmemory-policy"), setting("maxmemory"), setting("cluster-require-full-coverage")];
    let told: Vec<Vec<Vec<String>>> = masters.ask_all(Call::commands(names.into())).await;
    if told.is_empty() {
        return warnings_of(None, masters.have_slots());
    }
    // Many masters may give the same warning; it is reported once.
    let mut all: Vec<String> = Vec::new();
    for warning in told.into_iter().flat_map(|pairs| warnings_of(Some(pairs.concat()), masters.have_slots())) {
        if !all.contains(&warning) {
            all.push(warning);
        }
    }
    all
}

/// The warnings about these settings, given as names and values in turn.
fn warnings_of(settings: Option<Vec<String>>, in_a_cluster: bool) -> Vec<String> {
    let setting = |name: &str| {
        let settings = settings.as_ref()?;
        settings.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].as_str())
    };
    let mut warnings = Vec::new();
    match setting("maxmemory-policy") {
        Some("noeviction") => {}
        Some(policy) => warnings.push(format!(
            "redis has maxmemory-policy {policy}: when it is full, people lose their places; set noeviction"
        )),
        None => warnings.push("redis does not tell its maxmemory-policy; it should be noeviction".to_owned()),
    }
    match setting("maxmemory").map(str::parse::<u64>) {
        Some(Ok(0)) => {}
        Some(Ok(bytes)) if bytes < LITTLE_MEMORY => {
            warnings.push(format!("redis has maxmemory {} MB: give it 512 MB or more", bytes / (1024 * 1024)))
        }
        Some(Ok(_)) => {}
        Some(Err(_)) | None => {
            warnings.push("redis does not tell its maxmemory; it should be 512 MB or more, or 0".to_owned());
        }
    }
    if in_a_cluster && setting("cluster-require-full-coverage") == Some("yes") {
        let what = "redis has cluster-require-full-coverage yes: one master away makes all others refuse; set no";
        warnings.push(what.to_owned());
    }
    warnings
}
