//! Plain paths: `/` and segments of letters, digits, `_` and `-`. Every server reads them alike.

/// A path of plain segments only, with at most one slash at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct Plain<'a> {
    segments: &'a str,
    /// Whether it ends with a slash.
    pub(in crate::gate) ends_with_slash: bool,
}

impl<'a> Plain<'a> {
    /// `None`: the path is not plain.
    pub(in crate::gate) fn new(raw: &'a str) -> Option<Self> {
        let path = raw.strip_prefix('/')?;
        let segments = path.strip_suffix('/').unwrap_or(path);
        let mut in_segment = false;
        for byte in segments.bytes() {
            match byte {
                b'/' if in_segment => in_segment = false,
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => in_segment = true,
                _ => return None,
            }
        }
        (in_segment || path.is_empty()).then_some(Self { segments, ends_with_slash: path.ends_with('/') })
    }

    /// Its segments.
    pub(in crate::gate) fn segments(self) -> impl Iterator<Item = &'a str> {
        self.segments.split('/')
    }
}

/// The letters and digits of a name, in lower case. Some dispatchers treat all punctuation alike (CherryPy), some drop
/// it (`limited-drops` becomes the class `LimitedDrops`).
pub(in crate::gate) fn folded(text: &str) -> impl Iterator<Item = u8> {
    text.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_has_plain_segments_and_no_empty_one() {
        for plain in ["/", "/a", "/a/", "/a/b", "/A-b_9/_/-/", "/limited-drops/42/orders"] {
            assert!(Plain::new(plain).is_some(), "{plain}");
        }
        for other in
            ["", "a", "*", "//", "//a", "/a//b", "/a//", "/a.b", "/.", "/a%62", "/a;b", "/a+b", "/a~", "/é", "/a\\b"]
        {
            assert_eq!(Plain::new(other), None, "{other}");
        }
    }

    #[test]
    fn the_slash_at_the_end_is_no_segment() {
        let path = Plain::new("/a/b/").unwrap();
        assert!(path.ends_with_slash);
        assert_eq!(path.segments().collect::<Vec<_>>(), ["a", "b"]);
        assert!(!Plain::new("/a/b").unwrap().ends_with_slash);
    }
}
