//! Compares the OpenAPI description with the routes.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::{
    config::{GateConfig, IdentityMode, Mode, UpstreamUrl},
    domain::{GatedRoute, QueueTargetType, UserIdForm},
};

fn description() -> Value {
    serde_json::from_str(&openapi_json()).unwrap()
}

/// (method, path) of every described operation.
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
    let registered: BTreeSet<_> = paths::ALL
        .iter()
        .flat_map(|template| template.allow.split(", ").map(|method| (method.to_owned(), template.path.to_owned())))
        // HTTP allows `HEAD` on every `GET` route.
        .filter(|(method, _)| method != "HEAD")
        .collect();
    assert_eq!(described(), registered);
}

#[test]
fn no_purchase_route_can_be_configured_where_a_route_of_ours_is() {
    let ours: Vec<&str> = GateConfig::OURS.into_iter().chain(GateConfig::MANAGED).collect();
    let of_the_shop = ["limited-drops", "events"];
    for template in paths::ALL {
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
    assert!(reasons.iter().all(|reason| include_str!("../../../docs/http-api.md").contains(&format!("`{reason}`"))));
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

/// (method, path) of each operation that a process with this configuration describes, and the whole description.
async fn described_by(change: impl FnOnce(&mut Config)) -> (BTreeSet<String>, Value) {
    let got = send(HttpOptions { served: served(change), ..plain() }, TestRequest::get().uri("/openapi.json")).await;
    assert_eq!(got.header("content-type"), Some("application/json"));
    let description = got.json();
    (operations(&description), description)
}

/// `POST /path` of every described operation.
fn operations(description: &Value) -> BTreeSet<String> {
    let paths = description["paths"].as_object().unwrap();
    let operations =
        paths.iter().flat_map(|(path, all)| all.as_object().unwrap().keys().map(move |m| format!("{m} {path}")));
    operations.collect()
}

/// Entries of `all` that `fewer` lacks.
fn missing<'a>(all: &'a BTreeSet<String>, fewer: &'a BTreeSet<String>) -> Vec<&'a str> {
    all.difference(fewer).map(String::as_str).collect()
}

const ORDERS: &str = "post /limited-drops/{dropId}/orders";

#[actix_web::test]
async fn what_the_configuration_switches_off_is_not_described() {
    let everything = |config: &mut Config| {
        config.admin.token = Some(ADMIN_TOKEN.into());
        config.gate.settle_token = Some(ADMIN_TOKEN.into());
    };
    let (all, description) = described_by(everything).await;
    assert_eq!(all, operations(&serde_json::from_str(&openapi_json()).unwrap()));
    assert_eq!(description["components"]["schemas"]["TargetType"]["enum"], json!(["limited-drop", "ticketing-event"]));

    let (fewer, _) = described_by(|config| config.gate.settle_token = Some(ADMIN_TOKEN.into())).await;
    let [get, audit, put] = [
        "get /admin/flags/virtual-queue.enabled",
        "get /admin/flags/virtual-queue.enabled/audit",
        "put /admin/flags/virtual-queue.enabled",
    ];
    assert_eq!(missing(&all, &fewer), [get, audit, put]);

    let (fewer, _) = described_by(|config| config.admin.token = Some(ADMIN_TOKEN.into())).await;
    assert_eq!(missing(&all, &fewer), ["post /gate/settle"]);

    let (fewer, _) = described_by(|config| {
        everything(config);
        config.server.management_port = Some(9000);
    })
    .await;
    let elsewhere = [get, audit, "get /health/live", "get /health/ready", "get /metrics", put];
    assert_eq!(missing(&all, &fewer), elsewhere);

    let (fewer, description) = described_by(|config| {
        everything(config);
        config.limited_drop.enabled = false;
    })
    .await;
    assert_eq!(missing(&all, &fewer), [ORDERS]);
    assert_eq!(description["components"]["schemas"]["TargetType"]["enum"], json!(["ticketing-event"]));
}

fn upstream() -> Option<UpstreamUrl> {
    let settings = [("VQ_UPSTREAM__URL", "http://127.0.0.1:3000"), ("VQ_DEMO_SHOP__ENABLED", "false")];
    let env = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Config::load(None, env, Mode::Demo).unwrap().upstream.url
}

#[actix_web::test]
async fn before_a_shop_of_ones_own_its_purchase_routes_are_described() {
    let at_a_shop = |routes: Vec<GatedRoute>| {
        |config: &mut Config| {
            config.upstream.url = upstream();
            config.gate.routes = routes;
        }
    };
    let route = |method, pattern, kind| GatedRoute::new(method, pattern, kind).unwrap();
    let (found, description) = described_by(at_a_shop(vec![
        route("PUT", "/shows/{show}/buy", QueueTargetType::TicketingEvent),
        route("POST", "/limited-drops/{dropId}/orders", QueueTargetType::LimitedDrop),
    ]))
    .await;
    let purchases: Vec<_> = found
        .iter()
        .filter(|operation| {
            ["virtual-queues", "gate", "metrics", "health", "openapi"].iter().all(|ours| !operation.contains(ours))
        })
        .collect();
    assert_eq!(purchases, [ORDERS, "put /shows/{show}/buy"]);
    let described = &description["paths"]["/shows/{show}/buy"]["put"];
    assert_eq!(described["parameters"][0]["name"], "show");
    assert_ne!(described["operationId"], description["paths"]["/limited-drops/{dropId}/orders"]["post"]["operationId"]);
}

#[actix_web::test]
async fn buyers_are_described_as_they_are_known() {
    let parameters = |description: &Value, path: &str, method: &str| -> Vec<(String, bool)> {
        let parameters = description["paths"][path][method]["parameters"].as_array().unwrap().iter();
        parameters.map(|one| (one["name"].as_str().unwrap().to_owned(), one["required"] == true)).collect()
    };
    let enter = "/virtual-queues/{type}/{targetId}/entries";
    let (_, by_header) = described_by(|_| ()).await;
    assert!(parameters(&by_header, enter, "post").contains(&("X-User-Id".to_owned(), true)));
    assert!(parameters(&by_header, "/gate/verify", "get").contains(&("X-User-Id".to_owned(), false)));
    let (_, by_token) = described_by(|config| config.identity.mode = IdentityMode::Jwt).await;
    assert!(parameters(&by_token, enter, "post").iter().all(|(name, _)| name != "X-User-Id"));
    assert_eq!(by_token["paths"][enter]["post"]["security"], json!([{ "buyerToken": [] }]));
    assert_eq!(by_token["components"]["securitySchemes"]["buyerToken"]["scheme"], "bearer");
    let (_, by_cookie) = described_by(|config| config.identity.mode = IdentityMode::Visitor).await;
    assert!(parameters(&by_cookie, enter, "post").iter().all(|(name, _)| name != "X-User-Id"));
    assert_eq!(by_cookie["components"]["securitySchemes"]["visitor"]["in"], "cookie");
    let (_, texts) = described_by(|config| config.identity.ids = UserIdForm::Any).await;
    let pattern = &texts["components"]["schemas"]["Settlement"]["properties"]["userId"]["pattern"];
    assert_eq!(pattern, "^[!-+\\--~]{1,128}$", "visible ASCII but the comma");
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
