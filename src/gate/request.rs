//! What the gate reads from a purchase request, and what it removes before the shop.

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

use super::refusal::Refusal;
pub use crate::identity::USER_ID_HEADER;
use crate::{
    domain::{PathHeader, QueueTarget, QueueTargetType, UserId},
    identity::{Identify, Unidentified, cookies, folded},
    token::PassRefusal,
};

/// The header with the pass (TDD: FE/외부 계약).
pub const ENTRY_TOKEN_HEADER: HeaderName = HeaderName::from_static("x-entry-token");

/// The cookie with the pass for a target: `vq_limited-drop_42`.
pub fn pass_cookie_name(target: QueueTarget) -> String {
    format!("{}{}", pass_cookie_prefix(target.kind()), target.id())
}

fn pass_cookie_prefix(kind: QueueTargetType) -> String {
    format!("vq_{}_", kind.slug())
}

/// Who buys.
pub(super) fn user_id(identity: &Identify, headers: &HeaderMap) -> Result<UserId, Refusal> {
    identity.user(headers).map_err(|unidentified| match unidentified {
        Unidentified::NoUserId(_) | Unidentified::NoVisitor | Unidentified::OtherSite => Refusal::NoUser,
        Unidentified::NoToken => Refusal::NoToken,
        Unidentified::NoKeys => Refusal::NoKeys,
    })
}

/// At most this many cookies of one name are checked: a browser sends one for each path and domain.
const MOST_COOKIES: usize = 4;

/// The candidates for the pass, at least one: the header (two headers are refused), else the target's cookies, if
/// cookies are allowed.
pub(super) fn passes(headers: &HeaderMap, target: QueueTarget, from_cookie: bool) -> Result<Vec<&str>, Refusal> {
    const AMBIGUOUS: Refusal = Refusal::BadPass(PassRefusal::Malformed);
    if let Some(pass) = only(headers.get_all(ENTRY_TOKEN_HEADER)).map_err(|_| AMBIGUOUS)? {
        return pass.to_str().map(|pass| vec![pass]).map_err(|_| AMBIGUOUS);
    }
    if !from_cookie {
        return Err(Refusal::NoPass);
    }
    let name = pass_cookie_name(target);
    let passes: Vec<&str> =
        cookies::of(headers).filter(|(cookie, _)| *cookie == name).map(|(_, pass)| pass).take(MOST_COOKIES).collect();
    if passes.is_empty() { Err(Refusal::NoPass) } else { Ok(passes) }
}

/// There were two values where only one is allowed.
#[derive(Debug)]
struct Doubled;

fn only<T>(mut all: impl Iterator<Item = T>) -> Result<Option<T>, Doubled> {
    let first = all.next();
    if all.next().is_some() { Err(Doubled) } else { Ok(first) }
}

/// Removes what the shop must not see: passes, and headers that servers behind us may confuse with ours (`X_User_Id`
/// and `X-User-Id` are one variable in CGI, WSGI and PHP).
pub(super) fn strip(headers: &mut HeaderMap, cookie: bool) {
    let confusable =
        |name: &&HeaderName| is_pass_header(name) || (**name != USER_ID_HEADER && folds_to(name, &USER_ID_HEADER));
    let unwanted: Vec<HeaderName> = headers.keys().filter(confusable).cloned().collect();
    for name in unwanted {
        headers.remove(name);
    }
    if cookie {
        cookies::remove(headers, is_pass_cookie());
    }
}

/// Removes headers that move a request to another path than the one that was checked. Headers in `kept` stay, in
/// exactly that spelling.
pub(super) fn strip_path_headers(headers: &mut HeaderMap, kept: &[PathHeader]) {
    let is_kept = |name: &str| kept.iter().any(|kept| kept.name().eq_ignore_ascii_case(name));
    let moves = |name: &&HeaderName| PathHeader::is_like_one(name.as_str()) && !is_kept(name.as_str());
    let unwanted: Vec<HeaderName> = headers.keys().filter(moves).cloned().collect();
    for name in unwanted {
        headers.remove(name);
    }
}

/// Whether a header carries the pass, or may be taken for the header that does.
pub(crate) fn is_pass_header(name: &HeaderName) -> bool {
    folds_to(name, &ENTRY_TOKEN_HEADER)
}

/// Compares lengths first: folding keeps the length, and most names have another.
fn folds_to(name: &HeaderName, ours: &HeaderName) -> bool {
    name.as_str().len() == ours.as_str().len() && folded(name) == ours.as_str()
}

/// A `Cookie` header without our passes; `None` if nothing else is in it. Other cookies stay byte for byte.
pub(crate) fn without_passes(line: &HeaderValue) -> Option<HeaderValue> {
    cookies::without(line, is_pass_cookie())
}

/// Whether a cookie with this name carries a pass.
fn is_pass_cookie() -> impl Fn(&[u8]) -> bool {
    let prefixes = QueueTargetType::ALL.map(pass_cookie_prefix);
    move |name| prefixes.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::tests::headers;

    fn drop_42() -> QueueTarget {
        QueueTarget::new(QueueTargetType::LimitedDrop, 42).unwrap()
    }

    #[test]
    fn a_user_id_is_one_canonical_number() {
        let user_id = |lines: &[(&'static str, &str)]| user_id(&Identify::by_header(), &headers(lines));
        assert_eq!(user_id(&[("x-user-id", "7")]).unwrap().get(), 7);
        for bad in [
            &[][..],
            &[("x-user-id", "")],
            &[("x-user-id", "007")],
            &[("x-user-id", "7, 8")],
            &[("x-user-id", "７")],
            &[("x-user-id", "7"), ("x-user-id", "7")],
            &[("x-user-id", "7"), ("x-user-id", "8")],
            &[("x_user_id", "7")],
        ] {
            assert_eq!(user_id(bad), Err(Refusal::NoUser), "{bad:?}");
        }
    }

    #[test]
    fn a_pass_comes_from_the_header_or_else_from_the_targets_cookie() {
        let cookie = ("cookie", "a=김; vq_limited-drop_42=from-cookie;c=d");
        let read = |lines: &[(&'static str, &str)], from_cookie| {
            passes(&headers(lines), drop_42(), from_cookie).map(|passes| passes.join(" "))
        };
        assert_eq!(read(&[("x-entry-token", "from-header")], false), Ok("from-header".to_owned()));
        assert_eq!(read(&[("x-entry-token", "from-header"), cookie], true), Ok("from-header".to_owned()));
        assert_eq!(read(&[cookie], true), Ok("from-cookie".to_owned()));
        assert_eq!(read(&[cookie], false), Err(Refusal::NoPass));
        assert_eq!(read(&[("cookie", "vq_limited-drop_43=x; vq_ticketing-event_42=y")], true), Err(Refusal::NoPass));
        assert_eq!(read(&[], true), Err(Refusal::NoPass));
        let malformed = Err(Refusal::BadPass(PassRefusal::Malformed));
        assert_eq!(read(&[("x-entry-token", "a"), ("x-entry-token", "a")], true), malformed);
        let many = "vq_limited-drop_42=a; vq_limited-drop_43=x; vq_limited-drop_42=b";
        assert_eq!(read(&[("cookie", many), ("cookie", "vq_limited-drop_42=c")], true), Ok("a b c".to_owned()));
        assert_eq!(read(&[("cookie", many), ("cookie", many), ("cookie", many)], true), Ok("a b a b".to_owned()));
    }

    #[test]
    fn passes_and_look_alikes_do_not_reach_the_shop_and_all_else_does() {
        let mut map = headers(&[
            ("x-user-id", "7"),
            ("x_user_id", "8"),
            ("x-user_id", "8"),
            ("x.user.id", "8"),
            ("x-entry-token", "secret"),
            ("x_entry_token", "secret"),
            ("x-user-idx", "stays"),
            ("accept", "*/*"),
            ("cookie", "session=1; vq_limited-drop_42=secret; theme=\"dark; ish\""),
            ("cookie", "vq_ticketing-event_9=secret"),
        ]);
        strip(&mut map, true);
        let mut left: Vec<(&str, &str)> =
            map.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        left.sort_unstable();
        let kept = "session=1; theme=\"dark; ish\"";
        assert_eq!(left, [("accept", "*/*"), ("cookie", kept), ("x-user-id", "7"), ("x-user-idx", "stays")]);
    }

    #[test]
    fn headers_that_move_the_path_do_not_reach_the_shop_but_for_those_to_keep() {
        let mut map = headers(&[
            ("script_name", "/x"),
            ("script-name", "/x"),
            ("x-original-url", "/x"),
            ("x-forwarded-prefix", "/shop"),
            ("x-forwarded-prefix", "/two"),
            ("x_forwarded_prefix", "/x"),
            ("x-forwarded-for", "203.0.113.9"),
            ("accept", "*/*"),
        ]);
        strip_path_headers(&mut map, &[PathHeader::named("X-Forwarded-Prefix").unwrap()]);
        let mut left: Vec<&str> = map.iter().map(|(name, _)| name.as_str()).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "x-forwarded-for", "x-forwarded-prefix", "x-forwarded-prefix"]);
        strip_path_headers(&mut map, &[]);
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn cookies_stay_where_passes_do_not_travel_in_them() {
        let mut map = headers(&[("cookie", "vq_limited-drop_42=somebody-elses")]);
        strip(&mut map, false);
        assert_eq!(map.len(), 1);
    }
}
