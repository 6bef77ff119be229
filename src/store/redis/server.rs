//! What the servers are set to.

use ::redis::cmd;

use crate::redis::{Call, Masters};

/// Less memory than this is little for a sale (DESIGN 5).
const LITTLE_MEMORY: u64 = 512 * 1024 * 1024;

/// What about the servers' settings may hurt during a sale.
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
    // The same of many masters is said once.
    let mut all: Vec<String> = Vec::new();
    for warning in told.into_iter().flat_map(|pairs| warnings_of(Some(pairs.concat()), masters.have_slots())) {
        if !all.contains(&warning) {
            all.push(warning);
        }
    }
    all
}

/// What is to be said of these settings, names and values in turn.
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
