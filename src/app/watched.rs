//! Whether the thread that takes connections still looks at its sockets.
//!
//! actix-server's `pause` returns when the pause has been ordered, and not when it has been carried out. A socket that is
//! shut down in between is an error to that thread. The system knows: it lists what each epoll instance watches.

use std::{fs, os::fd::RawFd, time::Duration};

use tokio::time::sleep;

/// From one look to the next.
const PAUSE: Duration = Duration::from_millis(1);

/// Looks. The order has been given, so all that is waited for is that a thread runs.
const LOOKS: usize = 1000;

/// Where the system does not tell.
const UNKNOWN: Duration = Duration::from_millis(100);

/// Waits until no epoll instance of this process watches any of these sockets, and no longer: whoever connects from then on
/// is cut off by the shutdown instead of refused.
pub(super) async fn until_unwatched(sockets: &[RawFd]) {
    let polls = epoll_instances();
    if polls.is_empty() {
        sleep(UNKNOWN).await;
        return;
    }
    for _ in 0..LOOKS {
        if !polls.iter().any(|poll| watched_by(*poll).any(|socket| sockets.contains(&socket))) {
            break;
        }
        sleep(PAUSE).await;
    }
}

fn epoll_instances() -> Vec<RawFd> {
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let is_epoll =
        |file: &fs::DirEntry| fs::read_link(file.path()).is_ok_and(|what| what.as_os_str() == "anon_inode:[eventpoll]");
    open.flatten().filter(is_epoll).filter_map(|file| file.file_name().to_str()?.parse().ok()).collect()
}

fn watched_by(poll: RawFd) -> impl Iterator<Item = RawFd> {
    let lines = fs::read_to_string(format!("/proc/self/fdinfo/{poll}")).unwrap_or_default();
    let watched = |line: &str| line.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok();
    lines.lines().filter_map(watched).collect::<Vec<_>>().into_iter()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::fd::AsRawFd;

    use tokio::{net::TcpListener, time::timeout};

    use super::*;

    #[tokio::test]
    async fn a_socket_is_seen_to_be_watched_until_it_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = listener.as_raw_fd();
        let is_watched = || epoll_instances().into_iter().any(|poll| watched_by(poll).any(|other| other == socket));
        assert!(is_watched());
        assert!(timeout(PAUSE * 20, until_unwatched(&[socket])).await.is_err(), "it is watched still");
        let kept = listener.into_std().unwrap();
        assert!(!is_watched());
        timeout(Duration::from_secs(5), until_unwatched(&[socket])).await.expect("nobody watches it");
        drop(kept);
    }
}
