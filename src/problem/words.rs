//! What buyers read, in each of their languages: the one place that has these texts. What only developers and operators
//! see stands where it arises, in English.

use super::language::Language;

/// A text in each language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    ko: &'static str,
    /// `None`: the Korean text holds for everybody.
    en: Option<&'static str>,
}

impl Words {
    const fn new(ko: &'static str, en: &'static str) -> Self {
        Self { ko, en: Some(en) }
    }

    /// The text in this language, or else in the one there is.
    pub const fn text(self, language: Language) -> (Language, &'static str) {
        match (language, self.en) {
            (Language::English, Some(en)) => (Language::English, en),
            (Language::English | Language::Korean, _) => (Language::Korean, self.ko),
        }
    }
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident = $words:expr;)+) => {
        $($(#[$doc])* pub const $name: Words = $words;)+

        #[cfg(test)]
        const ALL: &[(&str, Words)] = &[$((stringify!($name), $name)),+];
    };
}

words! {
    // QUEUE_BYPASS_DENIED, by its reason.
    /// `no_pass`.
    NO_PASS = Words::new(
        "대기열을 거쳐 입장권을 받은 뒤 구매할 수 있습니다. 대기열에 입장해 주세요.",
        "this purchase needs a pass from the queue: enter the queue",
    );
    /// `malformed` and `forged`.
    BAD_PASS = Words::new(
        "입장권이 올바르지 않습니다. 대기열에 다시 입장해 주세요.",
        "this is no valid pass: enter the queue again",
    );
    /// `expired`.
    EXPIRED = Words::new(
        "입장권의 유효 시간이 지났습니다. 대기열에 다시 입장해 주세요.",
        "the pass has expired: enter the queue again",
    );
    /// `other_user`.
    OTHER_USER = Words::new(
        "다른 계정으로 받은 입장권입니다. 입장권을 받은 계정으로 로그인해 주세요.",
        "the pass was given to another account: log in with that one",
    );
    /// `other_target`.
    OTHER_TARGET = Words::new(
        "다른 상품이나 공연의 입장권입니다. 이 상품의 대기열에 입장해 주세요.",
        "the pass is for another sale: enter the queue of this one",
    );
    /// `spent`.
    SPENT = Words::new(
        "이미 사용했거나 반납한 입장권입니다. 다시 구매하려면 대기열에 다시 입장해 주세요.",
        "the pass has been used or given up: enter the queue again to buy more",
    );
    /// `odd_path`.
    ODD_PATH = Words::new(
        "요청한 주소가 올바르지 않습니다. 페이지를 새로 고친 뒤 다시 시도해 주세요.",
        "the request is not spelled as this purchase is: reload the page and try again",
    );
    /// `no_user`.
    NO_USER = Words::new(
        "로그인이 필요합니다. 로그인한 뒤 다시 시도해 주세요.",
        "it is not known who buys: log in and try again",
    );

    // Others at the gate.
    /// `UNKNOWN_TARGET` of a purchase.
    UNKNOWN_TARGET = Words::new("존재하지 않는 상품이나 공연입니다.", "there is no such drop or event");
    /// `PASS_IN_USE`.
    PASS_IN_USE = Words::new(
        "이 입장권으로 진행 중인 요청이 있습니다. 잠시 후 다시 시도해 주세요.",
        "another purchase with this pass is under way",
    );
    /// `OVERLOADED`.
    OVERLOADED = Words::new(
        "지금 구매 요청이 너무 많습니다. 입장권은 그대로 유효하니 잠시 후 다시 시도해 주세요.",
        "too many purchases are under way; the pass stays valid",
    );
    /// `INVALID_IDENTITY`.
    INVALID_IDENTITY = Words::new(
        "로그인하지 않았거나 로그인이 만료되었습니다. 다시 로그인해 주세요.",
        "a valid token is needed, once, as Authorization: Bearer",
    );
    /// `IDENTITY_UNAVAILABLE`.
    IDENTITY_UNAVAILABLE = Words::new(
        "지금은 로그인 정보를 확인할 수 없습니다. 잠시 후 다시 시도해 주세요.",
        "the keys to check the token with are not there yet",
    );

    // The queue.
    /// `QUEUE_FULL`. TDD: QueueFullResponse, word for word, for everybody.
    QUEUE_FULL = Words { ko: "잠시 후 다시 시도", en: None };
    /// `NOT_IN_QUEUE`.
    NOT_IN_QUEUE = Words::new(
        "대기 중이 아니며 유효한 입장권도 없습니다. 대기열에 입장해 주세요.",
        "there is neither a place nor a live pass: enter the queue",
    );
    /// `RATE_LIMITED`.
    RATE_LIMITED = Words::new(
        "같은 네트워크에서 한꺼번에 너무 많이 접속했습니다. 잠시 후 다시 시도해 주세요. 이미 받은 순번은 그대로 유지됩니다.",
        "too many people enter from this address at once; a place in the queue is kept",
    );
    /// `TOO_MANY_TARGETS`.
    TOO_MANY_TARGETS = Words::new(
        "지금은 이 대기열에 입장할 수 없습니다. 잠시 후 다시 시도해 주세요.",
        "as many targets as allowed have a queue already",
    );
    /// `STORE_UNAVAILABLE`.
    STORE_UNAVAILABLE = Words::new(
        "일시적인 장애로 지금은 처리할 수 없습니다. 잠시 후 다시 시도해 주세요.",
        "the store cannot be reached at present",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_there_in_both_languages() {
        let is_hangul = |c: char| ('가'..='힣').contains(&c);
        for (name, words) in ALL {
            let (ko, en) = (words.text(Language::Korean), words.text(Language::English));
            assert_eq!(ko.0, Language::Korean, "{name}");
            assert!(ko.1.chars().any(is_hangul) && !ko.1.chars().any(|c| c.is_ascii_alphabetic()), "{name}: {}", ko.1);
            if *name == "QUEUE_FULL" {
                assert_eq!(en, (Language::Korean, "잠시 후 다시 시도"), "the TDD's own");
            } else {
                assert!(en.0 == Language::English && en.1.is_ascii() && !en.1.is_empty(), "{name}: {}", en.1);
            }
        }
    }
}
