//! Ids that are texts.

use super::*;

const UUID: &str = "b6f0c1de-9d4c-4f0e-8a51-0c2b8a9f6f37";

fn number(text: &str) -> UserId {
    UserIdForm::Any.parse(text).unwrap()
}

#[test]
fn a_header_may_hold_any_visible_text_and_the_shop_gets_it_as_it_came() {
    let identify = Identify::by_header().ids(UserIdForm::Any);
    for id in [UUID, "7", "007", "auth0|42", "a;b"] {
        let mut map = headers(&[("x-user-id", id)]);
        assert_eq!(identify.user(&map), Ok(number(id)));
        assert_eq!(identify.name_for_shop(&map, number(id)), id);
        identify.tell_shop(&mut map);
        assert_eq!(map.get("x-user-id").unwrap(), id);
    }
    for bad in [
        &[][..],
        &[("x-user-id", "")],
        &[("x-user-id", "a b")],
        &[("x-user-id", "a,b")],
        &[("x-user-id", "a, b")],
        &[("x-user-id", "김")],
        &[("x-user-id", UUID), ("x-user-id", UUID)],
    ] {
        assert_eq!(identify.user(&headers(bad)), Err(Unidentified::NoUserId(UserIdForm::Any)), "{bad:?}");
    }
    let map = headers(&[("x-user-id", "7")]);
    assert_eq!(Identify::by_header().name_for_shop(&map, UserId::try_from(7).unwrap()), "7");
}

#[test]
fn a_token_may_hold_any_visible_text_and_a_number_is_its_digits() {
    let config = IdentityConfig { ids: UserIdForm::Any, ..config() };
    let identify = identify(KeySet::from_secret(SECRET).unwrap(), &config);
    let asked = |sub: Value| {
        let token = sign_with_secret(Algorithm::HS256, SECRET, &json!({ "sub": sub, "exp": NOW + 60 }));
        headers(&[("authorization", &format!("Bearer {token}")), ("x-user-id", "99")])
    };
    for (sub, text) in [(json!(UUID), UUID), (json!("auth0|42"), "auth0|42"), (json!("042"), "042"), (json!(7), "7")] {
        let mut map = asked(sub);
        assert_eq!(identify.user(&map), Ok(number(text)));
        assert_eq!(identify.name_for_shop(&map, number(text)), text);
        identify.tell_shop(&mut map);
        let told: Vec<_> = map.get_all("x-user-id").collect();
        assert_eq!(told, [text]);
    }
    for bad in [json!(""), json!("a b"), json!("é"), json!(-1), json!(1.5), json!(null), json!(["a"])] {
        assert_eq!(identify.user(&asked(bad.clone())), Err(Unidentified::NoToken), "{bad}");
    }
}
