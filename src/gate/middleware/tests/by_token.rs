//! If buyers are identified by a token, the user id header is ignored.

use super::*;
use crate::config::{Config, IdentityConfig, IdentityMode, JwtAlgorithm};

/// A fixture in which a token identifies buyers, and the token of user 7.
fn doors_by_token(flags: Arc<dyn FeatureFlagEvaluator>) -> (GateFixture, String) {
    const SECRET: &[u8] = b"a secret of 32 bytes or more, of the tests alone";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), SECRET).unwrap();
    let config = IdentityConfig {
        mode: IdentityMode::Jwt,
        jwt_algorithms: vec![JwtAlgorithm::Hs256],
        jwt_key_file: Some(file.path().to_owned()),
        ..Config::parse_default().identity
    };
    let clock = StoreClock::new(FakeClock::at(NOW * 1000));
    let mut fixture = GateFixture::with_flags(flags);
    fixture.gate = fixture.gate.identity(Identify::from_config(&config, clock, Arc::new(Keyring::random())).unwrap());
    let claims = serde_json::json!({ "sub": 7, "exp": NOW + 60 });
    let key = jsonwebtoken::EncodingKey::from_secret(SECRET).unwrap();
    let token = jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap();
    (fixture, format!("Bearer {token}"))
}

/// The user ids that the shop saw in the last request, under any name that servers fold to the header's.
fn ids_seen(fixture: &GateFixture) -> Vec<String> {
    let saw = fixture.shop.saw.borrow();
    let lines = &saw.last().unwrap().0;
    lines.iter().filter(|(name, _)| name.replace('_', "-") == "x-user-id").map(|(_, id)| id.clone()).collect()
}

#[actix_web::test]
async fn by_token_a_header_buys_nothing_and_the_shop_sees_the_tokens_user() {
    let (fixture, bearer) = doors_by_token(Arc::new(AlwaysOn));
    let (mine, others) = (fixture.pass(7), fixture.pass(8));
    let claim = [("X-User-Id", "8"), ("X_User_Id", "8")];
    for lines in [
        vec![("X-Entry-Token", &*others)],
        vec![("X-Entry-Token", &*others), ("Authorization", "Bearer nonsense")],
        vec![("X-Entry-Token", &*mine), ("Authorization", &*bearer), ("Authorization", &*bearer)],
    ] {
        let answer = fixture.send(ORDERS, &[&claim[..], &lines].concat()).await;
        assert_eq!((answer.status, answer.code.as_deref()), (401, Some("INVALID_IDENTITY")), "{lines:?}");
    }
    assert!(fixture.counted(r#"virtual_queue_bypass_attempts_total{reason="no_user"} 3"#));
    let with = |pass| [&claim[..], &[("X-Entry-Token", pass), ("Authorization", &*bearer)]].concat();
    assert_denied(&fixture.send(ORDERS, &with(&others)).await);
    assert_eq!(fixture.shop.visits(), 0);
    assert_eq!(fixture.send(ORDERS, &with(&mine)).await.status, 201);
    assert_eq!(ids_seen(&fixture), ["7"]);
}

#[actix_web::test]
async fn by_token_nobody_is_refused_where_the_flag_is_off_and_no_claimed_id_reaches_the_shop() {
    let (fixture, bearer) = doors_by_token(Arc::new(OnFor(HashSet::new())));
    for path in [ORDERS, "/events/5/tickets", "/anything"] {
        for (lines, seen) in [
            (vec![("X-User-Id", "8")], &[][..]),
            (vec![("X-User-Id", "8"), ("X_User_Id", "9"), ("Authorization", "Bearer nonsense")], &[]),
            (vec![("X-User-Id", "8"), ("Authorization", &*bearer)], &["7"]),
            (vec![("Authorization", &*bearer)], &["7"]),
        ] {
            assert_eq!(fixture.send(path, &lines).await.status, 201, "{path} {lines:?}");
            assert_eq!(ids_seen(&fixture), seen, "{path} {lines:?}");
        }
    }
}
