//! Dead actors are replaced, and admission continues.

use super::*;

/// A fault for an actor.
#[derive(Debug, Clone, Copy, actix::Message)]
#[rtype(result = "()")]
enum Harm {
    Panic,
    Hang,
}

impl Handler<Harm> for MetricsActor {
    type Result = ();

    fn handle(&mut self, harm: Harm, ctx: &mut Self::Context) {
        match harm {
            Harm::Panic => panic!("as told"),
            Harm::Hang => ctx.wait(std::future::pending::<()>().into_actor(self)),
        }
    }
}

impl Handler<Harm> for Directory {
    type Result = ();

    fn handle(&mut self, _: Harm, _: &mut Self::Context) {
        panic!("as told");
    }
}

impl Handler<Harm> for PumpWatch {
    type Result = ();

    fn handle(&mut self, harm: Harm, _: &mut Self::Context) {
        self.directory().do_send(harm);
    }
}

/// Pumps a crowd and applies `harm`. Then admission continues, the cause is counted, new targets are found, and every
/// target is pumped once, not twice.
async fn goes_on_after(cause: &str, harm: impl AsyncFnOnce(&Pumps)) {
    let (pumps, store) = Pumps::alone();
    crowd(&store, 1000).await;
    assert!(within(TAKEOVER, || async { mark(&store).await >= 10 }).await);
    harm(&pumps).await;
    let before = mark(&store).await;
    // The watch checks twice a second.
    assert!(within(TICK * 8, || async { mark(&store).await >= before + 10 }).await, "soon");
    let series = format!(r#"virtual_queue_pump_restarts_total{{cause="{cause}"}}"#);
    assert!(within(TAKEOVER, || async { pumps.counted(&series) == 1 }).await, "counted");
    let before = mark(&store).await;
    assert!(within(TICK * 6, || async { mark(&store).await >= before + 20 }).await, "and for good");
    let other = QueueTarget::new(QueueTargetType::TicketingEvent, 7).unwrap();
    store.register_active(other, None).await.unwrap();
    store.enter_if_absent(other, UserId::try_from(1).unwrap()).await.unwrap();
    let of_other = || async { store.stats(other).await.unwrap().admitted_through };
    assert!(within(TAKEOVER, || async { of_other().await == 1 }).await, "new targets are found");
    let calls = pumps.store.calls();
    tokio::time::sleep(TICK * 10).await;
    let calls = pumps.store.calls() - calls;
    assert!(calls <= 2 * 11 * 4, "a lock, a sweep, a batch, the gauges a tick and target, and not twice: {calls}");
    assert_eq!(pumps.counted(&series), 1, "once");
}

#[actix_rt::test]
async fn a_directory_that_panics_is_replaced_and_admission_goes_on() {
    goes_on_after("directory", async |pumps| pumps.watch.send(Harm::Panic).await.unwrap()).await;
}

#[actix_rt::test]
async fn a_metrics_actor_that_panics_is_replaced_and_admission_goes_on() {
    goes_on_after("metrics", async |pumps| assert!(pumps.reports.send(Harm::Panic).await.is_err())).await;
}

#[actix_rt::test]
async fn a_metrics_actor_whose_mailbox_is_full_is_replaced_and_admission_goes_on() {
    goes_on_after("metrics", async |pumps| {
        pumps.reports.send(Harm::Hang).await.unwrap();
        while pumps.reports.try_send(metrics::AreYouThere).is_ok() {}
    })
    .await;
}
