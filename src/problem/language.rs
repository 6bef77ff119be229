//! Which language somebody reads, by `Accept-Language` (RFC 9110, 12.5.4).

use actix_web::http::header::{ACCEPT_LANGUAGE, HeaderMap};

/// The languages of what buyers read. Korean comes first: it is what they get who name none, or both alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    /// `ko`.
    #[default]
    Korean,
    /// `en`.
    English,
}

/// How welcome a language is: refused (`q=0`), not named, or by its quality in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Welcome {
    Refused,
    Unnamed,
    Named(u16),
}

impl Language {
    /// As `Content-Language` and `Accept-Language` name it.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Korean => "ko",
            Self::English => "en",
        }
    }

    /// The one that these headers ask for: English where it is more welcome than Korean, else Korean.
    pub fn asked_for(headers: &HeaderMap) -> Self {
        let lines = || headers.get_all(ACCEPT_LANGUAGE).filter_map(|line| line.to_str().ok());
        let ranges = || lines().flat_map(|line| line.split(',')).filter_map(range);
        let best = |wanted: &str| {
            let of_it = ranges().filter(|(name, _)| primary(name).eq_ignore_ascii_case(wanted));
            of_it.map(|(_, welcome)| welcome).max()
        };
        let any = best("*").unwrap_or(Welcome::Unnamed);
        let welcome = |language: Self| best(language.tag()).unwrap_or(any);
        if welcome(Self::English) > welcome(Self::Korean) { Self::English } else { Self::Korean }
    }
}

/// `en-GB;q=0.8`, taken apart; `None`: malformed, and as if it were not there.
fn range(element: &str) -> Option<(&str, Welcome)> {
    let (name, welcome) = match element.split_once(';') {
        None => (element, Welcome::Named(1000)),
        Some((name, weight)) => {
            let (q, value) = weight.split_once('=')?;
            if !q.trim().eq_ignore_ascii_case("q") {
                return None;
            }
            (
                name,
                match thousandths(value.trim())? {
                    0 => Welcome::Refused,
                    quality => Welcome::Named(quality),
                },
            )
        }
    };
    let name = name.trim();
    (!name.is_empty()).then_some((name, welcome))
}

/// A quality, `0.5`, in thousandths.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let fraction: u16 = format!("{fraction:0<3}").parse().ok()?;
    match (whole, fraction) {
        ("0", part) => Some(part),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

/// `en` of `en-GB`.
fn primary(name: &str) -> &str {
    name.split('-').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(lines: &[&str]) -> &'static str {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT_LANGUAGE, line.parse().unwrap());
        }
        Language::asked_for(&headers).tag()
    }

    #[test]
    fn korean_unless_english_is_more_welcome() {
        for (line, language) in [
            ("", "ko"),
            ("*", "ko"),
            ("ko", "ko"),
            ("ko-KR,ko;q=0.9,en-US;q=0.8,en;q=0.7", "ko"),
            ("en-US,en;q=0.9,ko;q=0.8", "en"),
            ("en", "en"),
            ("EN-gb", "en"),
            ("en;q=0.5,ko;q=0.5", "ko"),
            ("ko;q=0.4, en ; Q=0.401", "en"),
            ("fr, de;q=0.8", "ko"),
            ("fr, en;q=0.1", "en"),
            ("ja, *;q=0.5", "ko"),
            ("*;q=0.5, ko;q=0.1", "en"),
            ("*;q=0.1, en;q=0.5", "en"),
            ("en;q=0, *", "ko"),
            ("ko;q=0", "en"),
            ("ko;q=0, *;q=0.3", "en"),
            ("ko;q=0.000,en;q=0.001", "en"),
            ("en;q=0", "ko"),
            ("en-GB;q=0, en;q=0.5", "en"),
            ("english, kor", "ko"),
            ("e, en-", "en"),
        ] {
            assert_eq!(asked(&[line]), language, "{line:?}");
        }
        assert_eq!(asked(&[]), "ko");
        assert_eq!(asked(&["fr", "en;q=0.2"]), "en", "two lines are one list");
    }

    #[test]
    fn what_is_malformed_is_as_if_it_were_not_there() {
        for line in [
            "en;q=2",
            "en;q=1.5",
            "en;q=0.1234",
            "en;q=-1",
            "en;q=",
            "en;q",
            "en;level=1",
            "en;q=1;x=y",
            ";q=1",
            ",,;",
            "en;q=.5",
            "en;q=0.a",
            "en;q=1.001",
        ] {
            assert_eq!(asked(&[line]), "ko", "{line:?}");
            assert_eq!(asked(&[&format!("{line}, en")]), "en", "{line:?}");
        }
        assert_eq!(asked(&["en;q=1.000, ko;q=0.999"]), "en");
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT_LANGUAGE, actix_web::http::header::HeaderValue::from_bytes(b"en\xff").unwrap());
        assert_eq!(Language::asked_for(&headers), Language::Korean);
    }
}
