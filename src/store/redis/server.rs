//! What the server is set to.

use std::sync::Arc;

use crate::redis::connection::Master;

/// Less memory than this is little for a sale (DESIGN 5).
const LITTLE_MEMORY: u64 = 512 * 1024 * 1024;

/// What about the server's settings may hurt during a sale.
pub(super) async fn warnings(master: &Arc<Master>) -> Vec<String> {
    let asked = master.pooled(|mut connection| async move {
        let mut config = ::redis::pipe();
        config.cmd("CONFIG").arg("GET").arg("maxmemory-policy").cmd("CONFIG").arg("GET").arg("maxmemory");
        // A server that keeps its settings to itself is not away.
        Ok(config.query_async::<Vec<Vec<String>>>(&mut connection).await.ok())
    });
    let settings = asked.await.ok().flatten().map(|pairs| pairs.concat());
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
    warnings
}
