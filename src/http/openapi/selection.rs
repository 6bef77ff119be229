//! Selects the described routes that a configuration has.
//!
//! Programs generate clients and tests from a description. So it names no route that answers 404, and only the way in
//! which this process identifies buyers.

use serde_json::{Map, Value, json};

use crate::{
    config::IdentityMode,
    domain::{QueueTargetType, UserIdForm},
    http::served::Served,
    identity::VISITOR_COOKIE,
};

/// An id if `identity.ids` is `any`.
const TEXT_ID: &str = "^[!-+\\--~]{1,128}$";

impl Served {
    /// Of the description of all routes, what is served.
    pub(super) fn select_from(&self, mut api: Value) -> Value {
        if let Some(kinds) = api.pointer_mut("/components/schemas/TargetType/enum").and_then(Value::as_array_mut) {
            kinds.retain(|kind| self.limited_drops || kind != QueueTargetType::LimitedDrop.slug());
        }
        if let Some(paths) = api["paths"].as_object_mut() {
            if let Some(purchases) = &self.purchases {
                describe_purchases(paths, purchases);
            }
            for operations in paths.values_mut().filter_map(Value::as_object_mut) {
                operations.retain(|_, operation| self.has(operation));
                operations.values_mut().for_each(|operation| self.describe_buyer(operation));
            }
            paths.retain(|_, operations| operations.as_object().is_some_and(|operations| !operations.is_empty()));
        }
        if self.ids == UserIdForm::Any {
            let schemas = &mut api["components"]["schemas"];
            schemas["FlagChange"]["properties"]["users"]["items"]["pattern"] = TEXT_ID.into();
            schemas["Settlement"]["properties"]["userId"]["pattern"] = TEXT_ID.into();
        }
        let (name, scheme) = match self.identity {
            IdentityMode::Header => return api,
            IdentityMode::Jwt => ("buyerToken", json!({ "type": "http", "scheme": "bearer", "bearerFormat": "JWT" })),
            IdentityMode::Visitor => ("visitor", json!({ "type": "apiKey", "in": "cookie", "name": VISITOR_COOKIE })),
        };
        api["components"]["securitySchemes"][name] = scheme;
        api
    }

    fn has(&self, operation: &Value) -> bool {
        let is_of_drops = |operation: &Value| {
            operation["operationId"] == "order" || operation["x-target"] == QueueTargetType::LimitedDrop.slug()
        };
        match operation["tags"][0].as_str() {
            Some("admin") => self.admin && self.management,
            Some("management") => self.management,
            Some("purchase") => self.limited_drops || !is_of_drops(operation),
            _ => self.settle || operation["operationId"] != "settle",
        }
    }

    /// Describes the one way in which this process identifies callers.
    fn describe_buyer(&self, operation: &mut Value) {
        let is_queue = operation["tags"][0] == "queue";
        let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) else { return };
        let Some(at) = parameters.iter().position(|parameter| parameter["name"] == "X-User-Id") else { return };
        match self.identity {
            IdentityMode::Header => {
                // A purchase needs it only while the queue is on for the target.
                parameters[at]["required"] = Value::from(is_queue);
                if self.ids == UserIdForm::Any {
                    parameters[at]["schema"]["pattern"] = TEXT_ID.into();
                }
            }
            IdentityMode::Jwt => {
                parameters.remove(at);
                operation["security"] = json!([{ "buyerToken": [] }]);
            }
            IdentityMode::Visitor => {
                parameters.remove(at);
                // A visitor without a cookie gets one by entering; other calls do not know the visitor.
                operation["security"] = json!([{ "visitor": [] }, {}]);
            }
        }
    }
}

/// Describes the configured purchase routes instead of those of the built-in shop.
fn describe_purchases(paths: &mut Map<String, Value>, purchases: &[(String, String, QueueTargetType)]) {
    let mut described: Vec<(String, String, Value)> = Vec::new();
    paths.retain(|path, operations| {
        let Some((method, operation)) = operations.as_object().and_then(|all| all.iter().next()) else { return true };
        if operation["tags"][0] != "purchase" {
            return true;
        }
        described.push((method.clone(), path.clone(), operation.clone()));
        false
    });
    for (number, (method, pattern, kind)) in purchases.iter().enumerate() {
        let known = described.iter().find(|(_, path, _)| path == pattern);
        let mut operation = known.or(described.first()).map(|(_, _, operation)| operation.clone()).unwrap_or_default();
        if known.is_none() {
            operation["operationId"] = format!("purchase{}", number + 1).into();
            operation["summary"] = "Buy. Needs the pass while the queue is on for this person.".into();
            let name =
                pattern.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("id", |(name, _)| name);
            operation["parameters"][0]["name"] = name.into();
            operation["parameters"][0]["description"] = "The drop or the event.".into();
        }
        operation["x-target"] = kind.slug().into();
        paths.entry(pattern.clone()).or_insert_with(|| json!({}))[method] = operation;
    }
}
