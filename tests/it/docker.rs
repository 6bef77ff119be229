//! Redis in containers, where a Docker engine answers. Its calls run on a runtime of their own, since tests have theirs.

use std::{
    sync::{LazyLock, mpsc},
    time::Duration,
};

use testcontainers::{
    ContainerAsync, GenericImage, ImageExt,
    core::{IntoContainerPort, WaitFor, client::docker_client_instance},
    runners::AsyncRunner,
};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime for the calls to Docker")
});

/// Whether an engine answers.
static ENGINE: LazyLock<bool> = LazyLock::new(|| {
    apart(async {
        let asked = async { docker_client_instance().await.ok()?.ping().await.ok() };
        matches!(timeout(Duration::from_secs(2), asked).await, Ok(Some(_)))
    })
});

/// A Redis in a container that listens on `port` of this machine. `None`: no engine answers.
pub(crate) fn redis(port: u16, arguments: &[&str]) -> Option<ContainerAsync<GenericImage>> {
    if !*ENGINE {
        return None;
    }
    let command = ["redis-server", "--save", ""].into_iter().chain(arguments.iter().copied());
    let image = GenericImage::new("redis", "7")
        .with_wait_for(WaitFor::message_on_stdout("Ready to accept connections"))
        .with_mapped_port(port, 6379.tcp())
        .with_cmd(command);
    Some(apart(image.start()).expect("a Docker engine answers, and so must redis:7 start in it"))
}

/// Waits for a call to the engine, whatever runtime the caller is on.
pub(crate) fn apart<T: Send>(call: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let (done, result) = mpsc::channel();
        scope.spawn(move || done.send(RUNTIME.block_on(call)));
        result.recv().expect("the call ends")
    })
}
