//! What the gate costs a request before the shop is called: `cargo bench --bench gate`, half a minute.

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use virtual_queue::{
    clock::{FakeClock, StoreClock},
    config::OnFailure,
    domain::{QueueTarget, QueueTargetType, UserId, UserIdForm},
    flags::{EmbeddedFlagSource, FeatureFlagEvaluator, FeatureFlags, FlagChange},
    gate::GatedRoutes,
    token::{EntryTokenGuard, EntryTokenIssuer, Keyring},
};

const NOW: u64 = 1_790_000_000;

fn drop_42() -> QueueTarget {
    QueueTarget::new(QueueTargetType::LimitedDrop, 42).expect("42 is an id")
}

fn user(id: u64) -> UserId {
    UserId::try_from(id).expect("the benches count from 1")
}

/// The goal for a verification is under 3 µs (PRD NFR; DESIGN 4: no store involved).
fn passes(c: &mut Criterion) {
    let secret = |fill: &str| fill.repeat(48).into();
    let one = Keyring::new(&secret("k"), &[]).expect("48 bytes are enough");
    let rotating = Keyring::new(&secret("n"), &[secret("k")]).expect("48 bytes are enough");
    let (target, user) = (drop_42(), user(9_007_199_254_740_993));
    let pass = one.mint(target, user, NOW + 300);
    let forged = pass.raw().replacen('.', "A.", 1);

    let mut group = c.benchmark_group("pass");
    group.bench_function("mint", |b| b.iter(|| one.mint(black_box(target), black_box(user), NOW + 300)));
    group.bench_function("verify", |b| b.iter(|| one.verify(target, user, black_box(pass.raw()), NOW)));
    group.bench_function("verify/while rotating", |b| {
        b.iter(|| rotating.verify(target, user, black_box(pass.raw()), NOW));
    });
    group.bench_function("verify/forged", |b| b.iter(|| one.verify(target, user, black_box(&forged), NOW)));
    group.finish();
}

fn routes(c: &mut Criterion) {
    let routes = GatedRoutes::default();
    let mut group = c.benchmark_group("classify");
    for (name, method, path) in [
        ("a purchase", "POST", "/limited-drops/42/orders"),
        ("a page", "GET", "/products/blue-shirt"),
        ("a harmless post", "POST", "/cart/items/shirts%2Fblue;v=1"),
        ("an odd purchase", "POST", "//limited-drops/%34%32/./orders;v=1"),
        ("a long harmless path", "POST", &format!("/limited-drops/{}/x", "%252e%252e/".repeat(40))),
    ] {
        group.bench_function(name, |b| b.iter(|| routes.classify(black_box(method), black_box(path))));
    }
    group.finish();
}

fn flags(c: &mut Criterion) {
    let source = Arc::new(EmbeddedFlagSource::new(StoreClock::new(FakeClock::at(NOW * 1000)), 10));
    let flags = FeatureFlags::new(source, false, OnFailure::Open);
    let (target, user) = (drop_42(), user(123_456));
    let mut group = c.benchmark_group("flag");
    group.bench_function("off", |b| b.iter(|| flags.is_enabled(black_box(target), black_box(user))));
    let targets = (1..=1000).map(|id| format!("\"limited-drop/{id}\"")).collect::<Vec<_>>().join(",");
    let rule = format!(r#"{{"enabled":true,"rolloutPercent":50,"targets":[{targets}],"users":[],"reason":"a bench"}}"#);
    let change = FlagChange::parse(rule.as_bytes(), UserIdForm::Decimal).expect("a well-formed rule");
    futures_util::FutureExt::now_or_never(flags.put(&change, "bench"))
        .expect("memory answers at once")
        .expect("memory has room");
    group.bench_function("half of the people, a thousand targets", |b| {
        b.iter(|| flags.is_enabled(black_box(target), black_box(user)));
    });
    group.finish();
}

criterion_group! {
    name = gate;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(50);
    targets = passes, routes, flags
}
criterion_main!(gate);
