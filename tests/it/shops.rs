//! Real frameworks behind the gateway (`tests/shops`): what each of them takes for an order is sold to people with a
//! pass alone, and what is no order comes and goes as it would without us.

mod harmless;
mod hostile;
mod same;
mod start;
mod wire;

use std::{collections::BTreeSet, sync::Mutex, thread};

use self::{
    hostile::Numbers,
    same::DIFFERENCES,
    start::{Framework, Shop},
    wire::{Client, Request},
};
use crate::{
    gateway::{gateway, pass_for},
    server::Server,
};

/// Sends each request, with its number; what was sold, and to which of them.
fn sold(shop: &Shop, client: &mut Client, requests: &[(usize, &Request)], pass: Option<&str>) -> Vec<(usize, String)> {
    for (number, request) in requests {
        let mut request = (*request).clone().with("X-User-Id", "7").with("X-Case", &number.to_string());
        if let Some(pass) = pass {
            request = request.with("X-Entry-Token", pass);
        }
        client.ask(&request);
    }
    shop.sales().into_iter().map(|(case, drop)| (case.parse().expect("a number"), drop)).collect()
}

/// The gateway before a shop. A pass may be used again, so that one does for all.
fn before(shop: &Shop) -> Server {
    gateway(shop.url(), &[("VQ_TOKEN__SINGLE_USE", "false"), ("VQ_LOG__LEVEL", "warn")])
}

/// Does the same with each framework, all at the same time, and fails with what went wrong with any.
fn with_each(check: impl Fn(Framework) -> Vec<String> + Sync) {
    let check = &check;
    let faults: Vec<String> = thread::scope(|scope| {
        let running = Framework::ALL.map(|framework| scope.spawn(move || check(framework)));
        running.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn shown(request: &Request) -> String {
    format!("{:?}", String::from_utf8_lossy(&request.bytes()).chars().take(400).collect::<String>())
}

/// What one framework sells through the gateway to these requests, which it must not; and too few that it sells directly.
fn sells_wrongly(framework: Framework, requests: &[Request]) -> Vec<String> {
    let shop = Shop::open(framework);
    let server = before(&shop);
    let all: Vec<(usize, &Request)> = requests.iter().enumerate().collect();
    let mut faults = Vec::new();

    let directly = sold(&shop, &mut Client::of_one_request_each(shop.url()), &all, None);
    println!("{framework:?} sells directly to {} of {} requests", directly.len(), requests.len());
    let bought: BTreeSet<usize> = directly.into_iter().map(|(number, _)| number).collect();
    for (name, request) in framework.honours() {
        let number = requests.iter().position(|known| *known == request).expect("one of the requests");
        if !bought.contains(&number) {
            faults.push(format!("{framework:?} does not honour {name} any more: {}", shown(&request)));
        }
    }

    let mut client = Client::new(server.url());
    for (number, drop) in sold(&shop, &mut client, &all, None) {
        faults.push(format!("{framework:?} sold {drop} without a pass: {}", shown(&requests[number])));
    }
    let (other, theirs) = (pass_for(43, 7), all.iter().copied().filter(|(number, _)| bought.contains(number)));
    for (number, drop) in sold(&shop, &mut client, &theirs.collect::<Vec<_>>(), Some(&other)) {
        if drop != "43" {
            faults.push(format!("{framework:?} sold {drop} with a pass for 43: {}", shown(&requests[number])));
        }
    }
    let order = Request::new("POST", "/limited-drops/42/orders").body("application/json", "{}");
    let right = order.with("X-User-Id", "7").with("X-Entry-Token", &pass_for(42, 7)).ask(server.url());
    let sales = shop.sales();
    if sales != [("-".to_owned(), "42".to_owned())] {
        faults.push(format!("{framework:?} sold {sales:?} with the right pass: {right:?}"));
    }
    faults
}

#[test]
fn no_framework_sells_without_a_pass_whatever_it_takes_for_an_order() {
    let requests = hostile::requests(1_200, &mut Numbers(8));
    with_each(|framework| sells_wrongly(framework, &requests));
}

#[test]
#[ignore = "takes minutes"]
fn no_framework_sells_without_a_pass_to_many_more_requests() {
    let seed = rand::random();
    println!("seed {seed}");
    let requests = hostile::requests(15_000, &mut Numbers(seed));
    with_each(|framework| sells_wrongly(framework, &requests));
}

#[test]
fn what_is_no_order_reaches_each_framework_and_comes_back_as_it_would_directly() {
    let kinds = harmless::kinds();
    assert!(kinds.len() >= 100, "{}", kinds.len());
    let noted = Mutex::new(BTreeSet::new());
    with_each(|framework| {
        let shop = Shop::open(framework);
        let server = before(&shop);
        let (mut all, mut faults) = (Vec::new(), Vec::new());
        for kind in &kinds {
            faults.extend(same::differences(framework, kind, [shop.url(), server.url()], &mut all));
        }
        noted.lock().unwrap().extend(all);
        faults
    });
    let noted = noted.into_inner().unwrap();
    let page = include_str!("../../docs/integrations/gateway.md");
    for (place, name, reason) in DIFFERENCES {
        let row = format!("| {} | `{name}` | {reason} |\n", place.name());
        assert!(page.contains(&row), "the page on the gateway does not have {row}");
        assert!(noted.contains(&(*place, *name)), "{place:?} {name} does not differ any more ({reason})");
    }
}
