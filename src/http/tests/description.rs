//! The OpenAPI description against the routes.

use std::collections::BTreeSet;

use super::*;
use crate::config::GateConfig;

fn description() -> Value {
    serde_json::from_str(&openapi_json()).unwrap()
}

/// (method, path) of everything described.
fn described() -> BTreeSet<(String, String)> {
    let description = description();
    let paths = description["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, methods)| {
        methods.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone()))
    });
    operations.collect()
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let registered: BTreeSet<_> = routes::ALL
        .iter()
        .flat_map(|template| template.allow.split(", ").map(|method| (method.to_owned(), template.path.to_owned())))
        // `HEAD` stands where `GET` does, by the rules of HTTP.
        .filter(|(method, _)| method != "HEAD")
        .collect();
    assert_eq!(described(), registered);
}

#[test]
fn no_purchase_route_can_be_configured_where_a_route_of_ours_is() {
    let ours: Vec<&str> = GateConfig::OURS.into_iter().chain(GateConfig::MANAGED).collect();
    let of_the_shop = ["limited-drops", "events"];
    for template in routes::ALL {
        let first = template.path.split('/').nth(1).unwrap();
        let is_known = ours.contains(&first) || of_the_shop.contains(&first) || first == "openapi.json";
        assert!(is_known, "{}: GateConfig::OURS or MANAGED lacks it", template.path);
    }
}

#[test]
fn every_reason_that_is_described_is_on_the_page_for_developers() {
    let description = description();
    let reasons = description["components"]["schemas"]["RefusalReason"]["enum"].as_array().unwrap();
    let reasons: BTreeSet<&str> = reasons.iter().map(|reason| reason.as_str().unwrap()).collect();
    let page = include_str!("../../../docs/integrations/routes.md");
    let table = page.split("| `reason` |").nth(1).unwrap().split("\n\n").next().unwrap();
    let on_page: BTreeSet<&str> = table.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(reasons, on_page);
    assert!(reasons.iter().all(|reason| include_str!("../../../README.md").contains(&format!("`{reason}`"))));
    let problem = &description["components"]["schemas"]["Problem"];
    assert!(problem["properties"]["reason"].is_object() && !problem["required"].to_string().contains("reason"));
}

#[actix_web::test]
async fn every_described_call_reaches_a_handler() {
    for (method, path) in described() {
        let path = path.replace("{type}", "limited-drop").replace("{targetId}", "42");
        let request = TestRequest::default().method(method.parse().unwrap()).uri(&path);
        let got = send(with_admin(), request).await;
        assert!(!got.text.contains("NOT_FOUND") && got.status != 405, "{method} {path}: {got:?}");
    }
}

#[actix_web::test]
async fn it_is_served_as_it_is() {
    let got = send(plain(), TestRequest::get().uri("/openapi.json")).await;
    assert_eq!(got.header("content-type"), Some("application/json"));
    assert_eq!(got.text, openapi_json());
}

#[test]
fn every_error_is_described_as_a_problem_with_retry_after_where_it_is_sent() {
    let description = description();
    let mut seen = 0;
    for methods in description["paths"].as_object().unwrap().values() {
        for operation in methods.as_object().unwrap().values() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                if status.as_str() < "400" || status == "default" {
                    continue;
                }
                seen += 1;
                let schema = &response["content"]["application/problem+json"]["schema"]["$ref"];
                assert_eq!(schema, "#/components/schemas/Problem", "{operation}");
                let retries = response["headers"]["Retry-After"].is_object();
                assert_eq!(retries, matches!(status.as_str(), "429" | "503"), "{operation}");
            }
        }
    }
    assert!(seen > 10);
}

#[test]
fn an_entry_is_described_with_all_its_fields_required() {
    let description = description();
    let entry = &description["components"]["schemas"]["QueueEntry"];
    let required: BTreeSet<_> =
        entry["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let described: BTreeSet<_> = entry["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    let fields = BTreeSet::from([
        "status",
        "position",
        "aheadCount",
        "etaSeconds",
        "entryToken",
        "tokenExpiresAt",
        "pollAfterSeconds",
        "paused",
    ]);
    assert_eq!((required, described), (fields.clone(), fields), "{entry}");
}
