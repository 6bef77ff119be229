//! `gate.routes`, the one list of tables.

use super::*;
use crate::domain::{GatedRoute, PassRule};

const ONE_ROUTE: &str = "[{ method = 'PUT', path = '/api/v2/sales/{id}/claim', target = 'limited-drop' }]";

#[test]
fn purchase_routes_replace_the_prds_from_a_file_and_from_a_variable() {
    let tables = "[[gate.routes]]\nmethod = 'PUT'\npath = '/api/v2/sales/{id}/claim'\ntarget = 'limited-drop'";
    let from_file = load(tables, &[]).expect("good");
    let from_variable = load("", &[("VQ_GATE__ROUTES", ONE_ROUTE)]).expect("good");
    for config in [&from_file, &from_variable] {
        let routes: Vec<_> =
            config.gate.routes.iter().map(|route| (route.method(), route.pattern(), route.kind().slug())).collect();
        assert_eq!(routes, [("PUT", "/api/v2/sales/{id}/claim", "limited-drop")]);
    }
    let shown =
        |config: &Config| config.settings().iter().find(|seen| seen.key == "gate.routes").unwrap().shown.clone();
    assert_eq!(shown(&from_variable).as_deref(), Some("[PUT /api/v2/sales/{id}/claim limited-drop]"));
    let two = "[[gate.routes]]\nmethod = 'POST'\npath = '/a/{id}'\ntarget = 'limited-drop'\n\
               [[gate.routes]]\nmethod = 'POST'\npath = '/b/{id}'\ntarget = 'ticketing-event'";
    assert_eq!(load(two, &[]).expect("good").gate.routes.len(), 2);
}

#[test]
fn a_purchase_route_says_whether_it_needs_a_pass_and_whether_success_spends_it() {
    let route =
        |rest: &str| format!("{{ method = 'POST', path = '/{}/{{id}}', target = 'limited-drop'{rest} }}", rest.len());
    let routes = ["", ", needs_pass = true, spends = true", ", spends = false", ", needs_pass = false"].map(route);
    let config = load("", &[("VQ_GATE__ROUTES", &format!("[{}]", routes.join(", ")))]).expect("good");
    let rules: Vec<_> = config.gate.routes.iter().map(GatedRoute::rule).collect();
    assert_eq!(rules, [PassRule::NeedsAndSpends, PassRule::NeedsAndSpends, PassRule::Needs, PassRule::Spends]);
    let shown = config.settings().iter().find(|seen| seen.key == "gate.routes").unwrap().shown.clone().unwrap();
    assert!(shown.contains("limited-drop spends=false,") && shown.ends_with("needs_pass=false]"), "{shown}");
}

#[test]
fn a_mistake_in_a_purchase_route_is_named_with_its_place_and_key() {
    let good = "{ method = 'POST', path = '/a/{id}', target = 'limited-drop' }";
    let route = |method: &str, path: &str, target: &str| {
        format!("[{good}, {{ method = {method}, path = {path}, target = {target} }}]")
    };
    let (post, path, drop) = ("'POST'", "'/b/{id}'", "'limited-drop'");
    for (text, expected) in [
        (route("'GET'", path, drop), "gate.routes[1].method: must be POST or PUT or PATCH or DELETE, not \"GET\""),
        (route("'post'", path, drop), "gate.routes[1].method: must be"),
        (route("7", path, drop), "gate.routes[1].method: must be a text"),
        (route(post, path, "'concert'"), "gate.routes[1].target: must be \"limited-drop\" or \"ticketing-event\", not"),
        (route(post, "'/b'", drop), "gate.routes[1].path: a purchase route is written like"),
        (route(post, "'/a/{other}'", drop), "gate.routes[1].path: is the same place as gate.routes[0]"),
        (route(post, "'/a/{id}'", "'ticketing-event'"), "gate.routes[1].path: is the same place as gate.routes[0]"),
        (
            route(post, "'/virtual-queues/{id}/x'", drop),
            "gate.routes[1].path: must not be under /virtual-queues, which is a path of our own",
        ),
        (route(post, "'/gate/{id}'", drop), "gate.routes[1].path: must not be under /gate"),
        (route(post, "'/admin/{id}'", drop), "gate.routes[1].path: must not be under /admin"),
        (route(post, "'/health/{id}'", drop), "gate.routes[1].path: must not be under /health"),
        (route(post, "'/metrics/{id}'", drop), "gate.routes[1].path: must not be under /metrics"),
        (format!("[{good}, {{ method = 'POST', path = '/b/{{id}}' }}]"), "gate.routes[1].target: must be set"),
        (
            format!("[{good}, {{ method = 'POST', path = '/b/{{id}}', target = 'limited-drop', spends = 'no' }}]"),
            "gate.routes[1].spends: must be true or false",
        ),
        (
            format!("[{good}, {{ method = 'POST', path = '/b/{{id}}', target = 'limited-drop', needs_pass = 1 }}]"),
            "gate.routes[1].needs_pass: must be true or false",
        ),
        (
            format!(
                "[{good}, {{ method = 'POST', path = '/b/{{id}}', target = 'limited-drop', needs_pass = false, \
                 spends = false }}]"
            ),
            "gate.routes[1].spends: must not be false where needs_pass is",
        ),
        (
            format!("[{good}, {{ method = 'POST', paths = 1 }}]"),
            "gate.routes[1].paths: is not a setting: the keys of a",
        ),
        (format!("[{good}, 'POST /b']"), "gate.routes[1]: must be a table"),
        ("[]".to_owned(), "gate.routes: must name at least one"),
        ("POST /a/{id}".to_owned(), "gate.routes: must be a list of tables"),
        (format!("[{good}]\nmore = 1"), "gate.routes: must be a list of tables"),
        (String::new(), "gate.routes: must be a list of tables"),
    ] {
        let found = mistakes("", &[("VQ_GATE__ROUTES", &text)]);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{text}: {found:?}");
    }
    let errors = load("", &[("VQ_GATE__ROUTES", &route(post, "'/a/{id}'", drop))]).expect_err("twice the same place");
    assert_eq!(errors.problems()[0].origin, Some(Origin::Variable("VQ_GATE__ROUTES".to_owned())));
}

#[test]
fn two_purchase_routes_that_can_be_one_path_with_two_targets_are_a_mistake() {
    let routes = |second: &str| {
        format!(
            "[{{ method = 'POST', path = '/a/{{id}}/5', target = 'limited-drop' }}, {{ method = 'POST', path = '{second}', \
             target = 'limited-drop' }}]"
        )
    };
    let found = mistakes("", &[("VQ_GATE__ROUTES", &routes("/a/7/{id}"))]);
    assert!(
        found.len() == 1
            && found[0]
                .starts_with("gate.routes[1].path: can be the same path as gate.routes[0], /a/{id}/5, with another"),
        "{found:?}"
    );
    assert!(load("", &[("VQ_GATE__ROUTES", &routes("/a/seven/{id}"))]).is_ok());
}

#[test]
fn with_a_management_port_its_paths_are_the_shops() {
    let route = "[{ method = 'POST', path = '/admin/{id}', target = 'limited-drop' }]";
    assert!(load("", &[("VQ_GATE__ROUTES", route), ("VQ_SERVER__MANAGEMENT_PORT", "9090")]).is_ok());
    let ours = "[{ method = 'POST', path = '/gate/{id}', target = 'limited-drop' }]";
    assert_eq!(mistakes("", &[("VQ_GATE__ROUTES", ours), ("VQ_SERVER__MANAGEMENT_PORT", "9090")]).len(), 1);
}
