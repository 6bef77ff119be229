//! Anonymous visitors, known by a cookie of ours.

use super::*;

const OLD: &str = "the old secret, 32 bytes or more of it";
const NEW: &str = "the new secret, 32 bytes or more of it";

fn visitors(current: &str, also: &[&str]) -> Identify {
    let also: Vec<_> = also.iter().map(|secret| (*secret).into()).collect();
    let config = IdentityConfig { mode: IdentityMode::Visitor, ..Config::parse_default().identity };
    let keyring = Arc::new(Keyring::new(&current.into(), &also).unwrap());
    Identify::from_config(&config, StoreClock::new(FakeClock::at(NOW * 1000)), keyring).unwrap()
}

/// Somebody new: who, and `name=value` of the cookie.
fn newcomer(identify: &Identify) -> (UserId, String) {
    let asker = identify.entering(&headers(&[])).unwrap();
    let cookie = asker.cookie.expect("a cookie").to_str().unwrap().to_owned();
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(attributes, "HttpOnly; Secure; SameSite=Lax; Path=/; Max-Age=604800");
    assert!(pair.starts_with("vq_visitor="));
    (asker.user, pair.to_owned())
}

#[test]
fn a_newcomer_is_known_again_by_the_cookie_and_by_nothing_else() {
    let identify = visitors(OLD, &[]);
    let ((one, cookie), (two, _)) = (newcomer(&identify), newcomer(&identify));
    assert_ne!(one, two);
    let map = headers(&[("cookie", &format!("a=b; {cookie};c=d")), ("x-user-id", "7")]);
    assert_eq!(identify.user(&map), Ok(one));
    assert_eq!(identify.polling(&map), Ok(Asker::from(one)), "nothing to set again");
    let again = identify.entering(&map).unwrap();
    assert_eq!(again.user, one);
    assert!(again.cookie.unwrap().to_str().unwrap().starts_with(&cookie), "its time begins anew");

    let forged = format!("vq_visitor=7.{}", cookie.split_once('.').unwrap().1);
    let other_name = cookie.replacen("vq_visitor", "VQ_visitor", 1);
    for none in ["", "vq_visitor=", "vq_visitor=7", &forged, &other_name, &cookie[..cookie.len() - 1]] {
        let map = headers(&[("cookie", none), ("x-user-id", "7")]);
        assert_eq!(identify.user(&map), Err(Unidentified::NoVisitor), "{none}");
        assert_eq!(identify.polling(&map), Err(Unidentified::NoVisitor), "{none}");
        let asker = identify.entering(&map).unwrap();
        assert!(asker.user.get() != 7 && asker.user != one && asker.cookie.is_some(), "somebody new");
    }
}

#[test]
fn of_several_cookies_the_first_that_holds_counts() {
    let identify = visitors(OLD, &[]);
    let ((one, first), (_, second)) = (newcomer(&identify), newcomer(&identify));
    let (_, stale) = newcomer(&visitors(NEW, &[]));
    for lines in [
        vec![format!("{stale}; {first}; {second}")],
        vec![format!("{first}; {stale}")],
        vec![stale.clone(), first.clone()],
        vec![format!("vq_visitor=; vq_visitor=x; {first}")],
    ] {
        let lines: Vec<_> = lines.iter().map(|line| ("cookie", line.as_str())).collect();
        assert_eq!(identify.user(&headers(&lines)), Ok(one), "{lines:?}");
    }
    let many = format!("{}{first}", "vq_visitor=x; ".repeat(1000));
    assert_eq!(identify.user(&headers(&[("cookie", &many)])), Err(Unidentified::NoVisitor), "and not of hundreds");
}

#[test]
fn a_cookie_of_a_secret_that_may_go_is_made_anew_on_polling() {
    let (user, old) = newcomer(&visitors(OLD, &[NEW]));
    let changed = visitors(NEW, &[OLD]);
    let asker = changed.polling(&headers(&[("cookie", &old)])).unwrap();
    assert_eq!(asker.user, user);
    let cookie = asker.cookie.expect("a cookie under the new secret").to_str().unwrap().to_owned();
    let new = cookie.split_once(';').unwrap().0;
    let (gone, map) = (visitors(NEW, &[]), headers(&[("cookie", new)]));
    assert_eq!(gone.polling(&map), Ok(Asker::from(user)), "nobody loses the place when the old one goes");
    assert_eq!(gone.user(&headers(&[("cookie", &old)])), Err(Unidentified::NoVisitor));
}

#[test]
fn a_page_of_another_site_makes_nobody_somebody_else() {
    let identify = visitors(OLD, &[]);
    let (user, cookie) = newcomer(&identify);
    let from = |site: &str, cookie: &str| {
        identify.entering(&headers(&[("sec-fetch-site", site), ("cookie", cookie)])).map(|asker| asker.user)
    };
    assert_eq!(from("cross-site", ""), Err(Unidentified::OtherSite));
    assert_eq!(from("cross-site", &cookie), Ok(user), "an app or a browser that sends it is known");
    for site in ["same-origin", "same-site", "none"] {
        assert!(from(site, "").is_ok(), "{site}");
    }
}

#[test]
fn the_shop_gets_the_number_and_neither_the_cookie_nor_what_a_buyer_claims() {
    let identify = visitors(OLD, &[]);
    let (user, cookie) = newcomer(&identify);
    let claims = [("x-user-id", "7"), ("x_user_id", "8"), ("accept", "*/*")];
    let mut map =
        headers(&[&claims[..], &[("cookie", &*format!("a=\"1 ;2\";{cookie}; b=3")), ("cookie", &cookie)]].concat());
    identify.tell_shop(&mut map);
    let told: Vec<_> = map.get_all("x-user-id").map(|id| id.to_str().unwrap().to_owned()).collect();
    assert_eq!(told, [user.to_string()]);
    let cookies: Vec<_> = map.get_all("cookie").collect();
    assert_eq!(cookies, ["a=\"1 ;2\"; b=3"]);
    assert!(!map.contains_key("x_user_id") && map.contains_key("accept"));

    let mut map = headers(&[&claims[..], &[("cookie", "vq_visitor=forged; vq_visitors=stays")]].concat());
    identify.tell_shop(&mut map);
    assert!(!map.contains_key("x-user-id"));
    assert_eq!(map.get("cookie").unwrap(), "vq_visitors=stays");
}
