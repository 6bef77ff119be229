//! Buyers known by tokens, behind nginx.

use super::{Nginx, ORDERS, PAGE, closed, replaced};
use crate::{
    forward_shop::Shop,
    identity::{self, Issuer, Publisher},
    wire::header,
};

/// With the line that the page adds where buyers are known by tokens.
fn by_token() -> String {
    let line = "    proxy_set_header X-Virtual-Queue-User $vq_user;\n";
    let added = "    proxy_set_header X-User-Id $vq_user;\n";
    assert!(PAGE.contains(&format!("add to `server`, beside the others,\n\n{added}")), "the page says so");
    replaced(&closed(), line, &format!("{line}{added}"))
}

#[tokio::test]
async fn behind_nginx_the_token_tells_who_buys_and_no_claimed_id_reaches_the_shop() {
    let (issuer, shop) = (Issuer::new("first"), Shop::open());
    let publisher = Publisher::start(Some(issuer.jwks()));
    let on = [("VQ_FLAGS__VIRTUAL_QUEUE_ENABLED", "true")];
    let server = identity::by_token(&publisher.url, &on);
    let nginx = Nginx::start(&by_token(), &server, &shop);
    let bearer = format!("Bearer {}", issuer.token(7));
    let mine = identity::pass(&server, &issuer.token(7)).await;

    let nobody = nginx.buy(ORDERS, "7", &mine);
    assert_eq!(nobody.refusal(), (401, "INVALID_IDENTITY".to_owned()));
    assert_eq!(nobody.head.to_ascii_lowercase().matches("\r\nwww-authenticate: bearer").count(), 1, "{nobody:?}");
    let liar = [("X-User-Id", "99"), ("X-Entry-Token", mine.as_str()), ("Authorization", bearer.as_str())];
    assert_eq!(nginx.request("POST", "/anything", &liar, "").status, 201);
    assert_eq!(nginx.request("POST", ORDERS, &liar, "").status, 201);
    let saw = shop.saw();
    assert_eq!((header(&saw[0], "x-user-id"), header(&saw[1], "x-user-id")), (None, Some("7")), "{saw:?}");
    assert!(saw.iter().all(|head| header(head, "authorization") == Some(&*bearer)), "{saw:?}");

    let keyless = Publisher::start(None);
    let server = identity::by_token(&keyless.url, &on);
    let nginx = Nginx::start(&by_token(), &server, &shop);
    let answer = nginx.request("POST", ORDERS, &liar, "");
    assert_eq!(answer.refusal(), (503, "IDENTITY_UNAVAILABLE".to_owned()));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(shop.lines(), [] as [&str; 0]);
}
