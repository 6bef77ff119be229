use proptest::prelude::*;

use super::*;
use crate::domain::QueueTargetType;

const NOW: u64 = 1_790_000_000;

fn secret(fill: &str) -> SecretString {
    fill.repeat(32).into()
}

fn keyring() -> Keyring {
    Keyring::new(&secret("k"), &[]).expect("32 bytes are enough")
}

fn drop_42() -> QueueTarget {
    QueueTarget::new(QueueTargetType::LimitedDrop, 42).expect("an id")
}

fn user(id: u64) -> UserId {
    UserId::try_from(id).expect("an id")
}

#[test]
fn a_pass_has_the_documented_form() {
    let pass = keyring().mint(drop_42(), user(7), NOW);
    let (payload, tag) = pass.raw().split_once('.').expect("two parts");
    assert_eq!(URL_SAFE_NO_PAD.decode(payload).expect("base64url"), b"LIMITED_DROP|42|7|1790000000");
    // printf 'LIMITED_DROP|42|7|1790000000' | openssl dgst -sha256 -hmac "$(printf 'k%.0s' $(seq 32))" -binary | basenc --base64url
    assert_eq!(tag, "NsYqJXfZ1f-oGkQPvrWwVsk8jMO83KTvwJ9F4nUkm0s");
    assert_eq!(format!("{pass:?}").matches(pass.raw()).count(), 0, "Debug shows no pass");
}

#[test]
fn a_pass_is_good_for_its_holder_until_the_second_it_ends() {
    let keys = keyring();
    let pass = keys.mint(drop_42(), user(7), NOW);
    let event = QueueTarget::new(QueueTargetType::TicketingEvent, 42).expect("an id");
    let drop_43 = QueueTarget::new(QueueTargetType::LimitedDrop, 43).expect("an id");
    assert_eq!(
        keys.verify(drop_42(), user(7), pass.raw(), NOW - 1),
        Ok(PassClaims { target: drop_42(), user: user(7), expires_at: NOW })
    );
    assert_eq!(keys.verify(drop_42(), user(7), pass.raw(), NOW), Err(PassRefusal::Expired));
    assert_eq!(keys.verify(drop_42(), user(7), pass.raw(), NOW + 1), Err(PassRefusal::Expired));
    assert_eq!(keys.verify(event, user(7), pass.raw(), NOW - 1), Err(PassRefusal::OtherTarget));
    assert_eq!(keys.verify(drop_43, user(7), pass.raw(), NOW - 1), Err(PassRefusal::OtherTarget));
    assert_eq!(keys.verify(drop_42(), user(8), pass.raw(), NOW - 1), Err(PassRefusal::OtherUser));
}

#[test]
fn rotation_sends_nobody_back() {
    let (old, new) = (secret("o"), secret("n"));
    let before = Keyring::new(&old, &[]).expect("long enough");
    let added = Keyring::new(&old, std::slice::from_ref(&new)).expect("long enough");
    let promoted = Keyring::new(&new, std::slice::from_ref(&old)).expect("long enough");
    let after = Keyring::new(&new, &[]).expect("long enough");
    let ok = |keys: &Keyring, pass: &EntryToken| keys.verify(drop_42(), user(7), pass.raw(), NOW - 1).is_ok();
    let (old_pass, new_pass) = (before.mint(drop_42(), user(7), NOW), promoted.mint(drop_42(), user(7), NOW));
    assert!(ok(&added, &old_pass) && ok(&added, &new_pass), "while some replicas sign with either");
    assert!(ok(&promoted, &old_pass) && ok(&promoted, &new_pass));
    assert!(!ok(&after, &old_pass) && ok(&after, &new_pass));
}

#[test]
fn fingerprints_agree_all_through_a_rotation_and_not_between_strangers() {
    let (old, new) = (secret("o"), secret("n"));
    let prints = |current: &SecretString, also: &[&SecretString]| {
        let also: Vec<SecretString> = also.iter().map(|secret| (*secret).clone()).collect();
        Keyring::new(current, &also).expect("long enough").fingerprints()
    };
    // printf 'virtual-queue fingerprint' | openssl dgst -sha256 -hmac "$(printf 'k%.0s' $(seq 32))"
    assert_eq!(keyring().fingerprints().current.to_string(), "f59888d8");
    let steps = [prints(&old, &[]), prints(&old, &[&new]), prints(&new, &[&old]), prints(&new, &[])];
    for (a, step) in steps.iter().enumerate() {
        for (b, other) in steps.iter().enumerate() {
            assert_eq!(step.agrees_with(other), a.abs_diff(b) <= 1, "steps {a} and {b}");
        }
    }
}

#[test]
fn short_secrets_are_refused() {
    let short: SecretString = "x".repeat(31).into();
    assert_eq!(Keyring::new(&short, &[]).err(), Some(WeakSecret { bytes: 31 }));
    assert_eq!(Keyring::new(&secret("k"), &[short]).err(), Some(WeakSecret { bytes: 31 }));
}

#[test]
fn other_encodings_of_the_same_pass_are_refused() {
    let keys = keyring();
    let pass = keys.mint(drop_42(), user(7), NOW).raw().to_owned();
    let (payload, tag) = pass.split_once('.').expect("two parts");
    let mut variants = vec![
        pass.replace('-', "+").replace('_', "/"),
        format!("{payload}=.{tag}"),
        format!("{payload}.{tag}="),
        format!("{payload}..{tag}"),
        format!("{pass}."),
        format!("{pass}.{tag}"),
        format!(" {pass}"),
        format!("{pass} "),
        format!("{pass}\n"),
        format!("{payload}\n.{tag}"),
        pass.to_uppercase(),
        format!("{payload}."),
        format!(".{tag}"),
        String::new(),
        ".".to_owned(),
        "x".repeat(100_000),
    ];
    // The last character of each part has bits that decode to nothing: every other spelling of them.
    for part_end in [payload.len() - 1, pass.len() - 1] {
        for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".chars() {
            let mut changed = pass.clone();
            changed.replace_range(part_end..=part_end, &other.to_string());
            if changed != pass {
                variants.push(changed);
            }
        }
    }
    for variant in variants {
        let refused = keys.verify(drop_42(), user(7), &variant, NOW - 1);
        assert!(matches!(refused, Err(PassRefusal::Forged | PassRefusal::Malformed)), "{variant:?}: {refused:?}");
    }
}

#[test]
fn direct_passes_repeat_within_their_minute_and_never_outlive_the_ttl() {
    let keys = keyring();
    for now in [NOW, NOW + 1, NOW + 19] {
        let pass = keys.mint_stateless(drop_42(), user(7), now, 300);
        assert_eq!(pass.expires_at() % 60, 0);
        assert!(pass.expires_at() <= now + 300 && pass.expires_at() > now + 240);
    }
    let start = NOW / 60 * 60;
    assert_eq!(
        keys.mint_stateless(drop_42(), user(7), start, 300),
        keys.mint_stateless(drop_42(), user(7), start + 59, 300)
    );
    for ttl in 1..400 {
        let pass = keys.mint_stateless(drop_42(), user(7), NOW + 13, ttl);
        assert!(pass.expires_at() > NOW + 13 && pass.expires_at() <= NOW + 13 + ttl, "ttl {ttl}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_pass_changed_in_any_one_byte_is_never_accepted(
        at in any::<proptest::sample::Index>(), to in any::<u8>(), target in 1..=i64::MAX as u64,
        holder in 1..=i64::MAX as u64,
    ) {
        let keys = keyring();
        let target = QueueTarget::new(QueueTargetType::TicketingEvent, target).expect("an id");
        let raw = keys.mint(target, user(holder), NOW).raw().to_owned();
        prop_assert!(raw.len() <= MAX_PASS_BYTES);
        prop_assert!(keys.verify(target, user(holder), &raw, NOW - 1).is_ok());
        let mut bytes = raw.clone().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(changed) = String::from_utf8(bytes) && changed != raw {
            let refused = keys.verify(target, user(holder), &changed, NOW - 1);
            prop_assert!(matches!(refused, Err(PassRefusal::Forged | PassRefusal::Malformed)), "{changed}");
        }
    }

    #[test]
    fn a_pass_with_bytes_put_in_or_taken_out_is_never_accepted(
        at in any::<proptest::sample::Index>(), put_in in "[A-Za-z0-9_=. -]{0,4}", take_out in 0usize..4,
    ) {
        let keys = keyring();
        let raw = keys.mint(drop_42(), user(7), NOW).raw().to_owned();
        let at = at.index(raw.len());
        let mut changed = raw.clone();
        changed.replace_range(at..(at + take_out).min(raw.len()), &put_in);
        if changed != raw {
            let refused = keys.verify(drop_42(), user(7), &changed, NOW - 1);
            prop_assert!(matches!(refused, Err(PassRefusal::Forged | PassRefusal::Malformed)), "{changed}");
        }
    }

    #[test]
    fn what_is_not_a_pass_is_never_accepted_and_never_panics(raw in ".{0,300}") {
        prop_assert_eq!(keyring().verify(drop_42(), user(7), &raw, 0), Err(PassRefusal::Malformed));
    }

    #[test]
    fn another_persons_or_targets_pass_is_never_accepted(
        a in 1..=i64::MAX as u64, b in 1..=i64::MAX as u64, past in 0u64..1_000_000,
    ) {
        let keys = keyring();
        let pass = keys.mint(drop_42(), user(a), NOW);
        prop_assert_eq!(keys.verify(drop_42(), user(b), pass.raw(), NOW - 1).is_ok(), a == b);
        prop_assert_eq!(keys.verify(drop_42(), user(a), pass.raw(), NOW + past), Err(PassRefusal::Expired));
    }
}
