//! How a change reaches the other replicas.

use super::*;

const NEVER: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_change_is_in_force_here_at_once_and_elsewhere_by_polling_alone() {
    let server = TestServer::start();
    // As managed Redis services treat a new user: it may use no channel.
    server.command::<()>(&["ACL", "SETUSER", "default", "resetchannels"]).await;
    let here = replica(&server).await;
    let elsewhere = Running::start(replica(&server).await);
    let deaf = server.source(3).await.listen(&Notify::new()).await;
    assert!(deaf.is_err(), "this test wants the channel closed");

    let rule = here.put(&change(true, "opens"), "kim").await.unwrap();
    assert_eq!(here.current(), rule);
    elsewhere.sees(&rule).await;
    let rule = here.put(&change(false, "stop"), "kim").await.unwrap();
    elsewhere.sees(&rule).await;
    assert!(!elsewhere.0.current().change().enabled);
}

#[tokio::test]
async fn a_change_is_announced_and_listening_comes_back_by_itself() {
    let server = TestServer::start();
    let here = replica(&server).await;
    let listening = async || {
        let counts: (String, u64) = server.command(&["PUBSUB", "NUMSUB", "flags:changed"]).await;
        counts.1 == 1
    };
    let elsewhere = Running::start(replica(&server).await.polling_every(NEVER));
    until("it listens", listening).await;
    let rule = here.put(&change(true, "opens"), "kim").await.unwrap();
    elsewhere.sees(&rule).await;

    assert_eq!(server.command::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await, 1);
    // The replica may miss the announcement: when it listens again, it reads first.
    let rule = here.put(&change(false, "stop"), "kim").await.unwrap();
    elsewhere.sees(&rule).await;
    until("it listens again", listening).await;
    let rule = here.put(&change(true, "on"), "kim").await.unwrap();
    elsewhere.sees(&rule).await;
}

#[tokio::test]
async fn listening_to_a_peer_that_fell_silent_ends() {
    let server = TestServer::start();
    let source = server.source(3).await;
    let listens = Notify::new();
    let ended = tokio::join!(timeout(BOUND, source.listen(&listens)), async {
        listens.notified().await;
        server.freeze();
    });
    assert_eq!(ended.0, Ok(Ok(())), "cut off, not still waiting");
}
