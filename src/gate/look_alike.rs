//! Headers that the shop may take for ours. PHP, CGI and WSGI make one variable of `X-User-Id`, `X_User_Id` and
//! `X.User.Id`, and let the last one win.
//!
//! The middleware takes them out. A proxy that only asks cannot be told to, so that the request is refused instead.

use actix_web::http::header::{HeaderMap, HeaderName};

use super::request::{ENTRY_TOKEN_HEADER, USER_ID_HEADER};
use crate::identity::folded;

/// What the proxy tells the shop begins like this. No buyer sends it.
const TOLD_PREFIX: &str = "x-virtual-queue-";

/// Whether there is a header that a shop may take for the buyer's id, the pass, or what the proxy tells it.
pub(super) fn any(headers: &HeaderMap) -> bool {
    headers.keys().any(is_one)
}

fn is_one(name: &HeaderName) -> bool {
    let text = name.as_str();
    // Cheap for almost every header: folding keeps letters and the length.
    if !text.starts_with('x') || name == USER_ID_HEADER || name == ENTRY_TOKEN_HEADER {
        return false;
    }
    let as_long = |ours: &HeaderName| ours.as_str().len() == text.len();
    if !(as_long(&USER_ID_HEADER) || as_long(&ENTRY_TOKEN_HEADER) || text.len() >= TOLD_PREFIX.len()) {
        return false;
    }
    let folded = folded(name);
    folded == USER_ID_HEADER.as_str() || folded == ENTRY_TOKEN_HEADER.as_str() || folded.starts_with(TOLD_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_folds_to_our_names_is_one_and_our_own_names_are_none() {
        let is_one = |name: &str| is_one(&HeaderName::from_bytes(name.as_bytes()).unwrap());
        for name in [
            "X_User_Id",
            "X-User_Id",
            "x.user.id",
            "X-USER~ID",
            "X_Entry_Token",
            "X-Entry.Token",
            "X-Virtual-Queue-User",
            "X_Virtual_Queue_Target",
            "X.Virtual.Queue.Claim",
            "x-virtual-queue-",
            "X-Virtual-Queue-Anything",
        ] {
            assert!(is_one(name), "{name}");
        }
        for name in [
            "X-User-Id",
            "x-user-id",
            "X-ENTRY-TOKEN",
            "X-User-Ids",
            "X-UserId",
            "X-Virtual-Queue",
            "User-Id",
            "Cookie",
        ] {
            assert!(!is_one(name), "{name}");
        }
    }
}
