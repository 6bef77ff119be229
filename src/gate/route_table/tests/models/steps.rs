//! What servers do to a path. Each step is written separately and simply, without the gate's own code.

/// Characters of a path. A decoded byte becomes the character with the same number: only ASCII matters here.
pub(super) type Path = Vec<char>;

pub(super) fn chars(text: &str) -> Path {
    text.chars().collect()
}

pub(super) fn decode(path: &[char]) -> Path {
    let mut out = Vec::new();
    let mut at = 0;
    while at < path.len() {
        let escape =
            (path[at] == '%' && at + 2 < path.len()).then(|| (path[at + 1].to_digit(16), path[at + 2].to_digit(16)));
        if let Some((Some(high), Some(low))) = escape {
            out.push(char::from((high * 16 + low) as u8));
            at += 3;
        } else {
            out.push(path[at]);
            at += 1;
        }
    }
    out
}

pub(super) fn segments(path: &[char]) -> Vec<Path> {
    path.split(|c| *c == '/').map(<[char]>::to_vec).collect()
}

pub(super) fn join(segments: &[Path]) -> Path {
    segments.join(&'/')
}

/// Like Node's `path.normalize` and Go's `path.Clean`: merges slashes, resolves dots.
pub(super) fn clean(path: &[char]) -> Path {
    let mut kept: Vec<Path> = Vec::new();
    for segment in segments(path) {
        match segment.iter().collect::<String>().as_str() {
            "" | "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    [vec!['/'], join(&kept)].concat()
}

/// RFC 3986, 5.2.4: `..` removes an empty segment, too.
pub(super) fn remove_dot_segments(path: &[char], is_dot: impl Fn(&str) -> usize) -> Path {
    let mut kept: Vec<Path> = Vec::new();
    for segment in segments(path).into_iter().skip(1) {
        match is_dot(&segment.iter().collect::<String>()) {
            1 => {}
            2 => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    [vec!['/'], join(&kept)].concat()
}

pub(super) fn rfc_dots(path: &[char]) -> Path {
    remove_dot_segments(path, |segment| {
        if segment == "." {
            1
        } else if segment == ".." {
            2
        } else {
            0
        }
    })
}

/// `new URL(path, "http://h").pathname`.
pub(super) fn whatwg(path: &[char]) -> Path {
    let path: Path = path.iter().copied().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect();
    let path: Path = path
        .split(|c| matches!(c, '?' | '#'))
        .next()
        .unwrap()
        .iter()
        .map(|c| if *c == '\\' { '/' } else { *c })
        .collect();
    let slashes = path.iter().take_while(|c| **c == '/').count();
    let path = if slashes >= 2 {
        let host = &path[slashes..];
        host.iter().position(|c| *c == '/').map_or(vec!['/'], |at| host[at..].to_vec())
    } else {
        path
    };
    remove_dot_segments(&path, |segment| match segment.to_ascii_lowercase().as_str() {
        "." | "%2e" => 1,
        ".." | ".%2e" | "%2e." | "%2e%2e" => 2,
        _ => 0,
    })
}

/// Python's `urlsplit(path).path`, PHP's `parse_url`, `java.net.URI`.
pub(super) fn reference(path: &[char]) -> Path {
    let path = path.split(|c| matches!(c, '?' | '#')).next().unwrap();
    match path {
        ['/', '/', host @ ..] => host.iter().position(|c| *c == '/').map_or(Vec::new(), |at| host[at..].to_vec()),
        path => path.to_vec(),
    }
}

pub(super) fn merge(path: &[char]) -> Path {
    let mut path = path.to_vec();
    path.dedup_by(|c, before| *c == '/' && *before == '/');
    path
}

pub(super) fn cut_parameters(path: &[char]) -> Path {
    join(&segments(path).iter().map(|s| s.split(|c| *c == ';').next().unwrap().to_vec()).collect::<Vec<_>>())
}

pub(super) fn cut_at(path: &[char], ends: &[char]) -> Path {
    path.split(|c| ends.contains(c)).next().unwrap().to_vec()
}

pub(super) fn backslashes(path: &[char]) -> Path {
    path.iter().map(|c| if *c == '\\' { '/' } else { *c }).collect()
}

/// Windows drops dots and spaces at the end of names.
pub(super) fn windows_names(path: &[char]) -> Path {
    let name = |segment: &Path| match segment.iter().collect::<String>().as_str() {
        name @ ("." | "..") => chars(name),
        name => chars(name.trim_end_matches(['.', ' '])),
    };
    join(&segments(path).iter().map(name).collect::<Vec<_>>())
}

/// Decodes each segment separately: an escaped slash stays escaped.
pub(super) fn decode_segments(path: &[char]) -> Path {
    let decoded = |segment: &Path| chars(&decode(segment).iter().collect::<String>().replace('/', "%2F"));
    join(&segments(path).iter().map(decoded).collect::<Vec<_>>())
}

/// What PHP gives a front controller as `PATH_INFO`.
pub(super) fn path_info(path: &[char]) -> Path {
    let text: String = path.iter().collect();
    match text.to_ascii_lowercase().find(".php/") {
        Some(at) => chars(&text[at + 4..]),
        None => path.to_vec(),
    }
}

/// An unfinished escape is dropped, invalid digits make a NUL, `%%` is `%`.
pub(super) fn uwsgi(path: &[char]) -> Path {
    let mut out = Vec::new();
    let mut rest = path;
    loop {
        rest = match rest {
            ['%', '%', rest @ ..] => {
                out.push('%');
                rest
            }
            ['%', high, low, rest @ ..] => {
                let code = high.to_digit(16).zip(low.to_digit(16)).map_or(0, |(high, low)| high * 16 + low);
                out.push(char::from(code as u8));
                rest
            }
            [] | ['%'] | ['%', _] => return out.into_iter().filter(|c| *c != '\0').collect(),
            [c, rest @ ..] => {
                out.push(*c);
                rest
            }
        };
    }
}

/// Like CherryPy, which names handler methods so.
pub(super) fn punctuation_to_underscores(path: &[char]) -> Path {
    path.iter().map(|c| if c.is_ascii_punctuation() && *c != '/' { '_' } else { *c }).collect()
}

/// Like a careful front controller.
pub(super) fn sanitise(path: &[char]) -> Path {
    path.iter().copied().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_')).collect()
}

pub(super) type Step = fn(&[char]) -> Path;

/// Steps of servers, in no particular order.
pub(super) const STEPS: [(&str, Step); 19] = [
    ("decode", decode),
    ("decode segments", decode_segments),
    ("clean", clean),
    ("rfc dots", rfc_dots),
    ("whatwg", whatwg),
    ("reference", reference),
    ("merge", merge),
    ("parameters", cut_parameters),
    ("cut ;", |path| cut_at(path, &[';'])),
    ("cut ?", |path| cut_at(path, &['?'])),
    ("cut #", |path| cut_at(path, &['#'])),
    ("cut NUL", |path| cut_at(path, &['\0'])),
    ("cut line", |path| cut_at(path, &['\r', '\n'])),
    ("backslashes", backslashes),
    ("windows", windows_names),
    ("path info", path_info),
    ("uwsgi", uwsgi),
    ("underscores", punctuation_to_underscores),
    ("sanitise", sanitise),
];
