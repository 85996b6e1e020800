//! Pure rules for what a URL may mean: which session a path names, what is cut from a target
//! before an app sees it, and whether an Origin is ours. A path is passed on byte for byte or
//! refused, never cleaned: two readers that clean differently are how one session's path
//! becomes another's.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use lyceum_model::{SessionId, token::holds_token};

/// Why a path leads to no app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// Not `/s/` and a session's id in its one spelling: 404.
    #[error("the path does not name a session")]
    NoSession,
    /// `.` or `..` as a segment, plain or encoded: 400. Browsers resolve those themselves.
    #[error("the path contains the segment `.` or `..`")]
    DotSegment,
}

/// The session that a raw path (no query, nothing decoded) names, and the rest, which is
/// empty or starts with `/`.
pub fn session_path(raw_path: &str) -> Result<(SessionId, &str), PathFault> {
    let after = raw_path.strip_prefix("/s/").ok_or(PathFault::NoSession)?;
    let (id, rest) = after.split_at(after.find('/').unwrap_or(after.len()));
    let id = id.parse().map_err(|_uuid| PathFault::NoSession)?;
    if has_dot_segment(rest) { Err(PathFault::DotSegment) } else { Ok((id, rest)) }
}

/// Whether any reader could take a part of `path` for `.` or `..`: one that decodes `%2e`,
/// that decodes `%2f` and `%5c` first, that takes `\` for `/`, or that cuts a segment at `;`.
fn has_dot_segment(path: &str) -> bool {
    let bytes = path.as_bytes();
    let (mut at, mut dots, mut only_dots) = (0, 0, true);
    while at < bytes.len() {
        let (byte, width) = match bytes[at..] {
            [b'%', high, low, ..] => match (high, low.to_ascii_lowercase()) {
                (b'2', b'e') => (b'.', 3),
                (b'2', b'f') | (b'5', b'c') => (b'/', 3),
                (b'3', b'b') => (b';', 3),
                _ => (b'%', 1),
            },
            [b'\\', ..] => (b'/', 1),
            [byte, ..] => (byte, 1),
            [] => break,
        };
        at += width;
        match byte {
            b'/' | b';' => {
                if only_dots && matches!(dots, 1 | 2) {
                    return true;
                }
                // What follows a `;` belongs to the segment's parameters.
                (dots, only_dots) = (0, byte == b'/');
            }
            b'.' => dots += 1,
            _ => only_dots = false,
        }
    }
    only_dots && matches!(dots, 1 | 2)
}

/// `query` without the parameters that hold a token of ours, all else byte for byte; with
/// `by_name` also without those that are called `token`. `None` where it has none.
pub(super) fn without_tokens(query: &str, by_name: bool) -> Option<String> {
    let leaves = |pair: &&str| (by_name && is_called_token(pair)) || holds_token(&decoded(pair));
    let suspicious = by_name || holds_token(&decoded(query));
    if !suspicious || !query.split('&').any(|pair| leaves(&pair)) {
        return None;
    }
    let kept: Vec<&str> = query.split('&').filter(|pair| !leaves(pair)).collect();
    Some(kept.join("&"))
}

fn is_called_token(pair: &str) -> bool {
    let name = pair.split('=').next().unwrap_or_default();
    decoded(name).eq_ignore_ascii_case(b"token")
}

/// As whoever decodes it most often reads it: an address in an address is encoded twice.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    let mut read = Cow::Borrowed(text.as_bytes());
    for _ in 0..4 {
        if !read.contains(&b'%') {
            break;
        }
        read = Cow::Owned(percent_decode(&read).collect());
    }
    read
}

/// Whether an `Origin` header's value is the origin `ours` (`https://portal.example.org`).
/// A scheme's usual port may be written or left out; `null` and anything odd never match.
pub fn origin_matches(origin: &str, ours: &str) -> bool {
    match (origin_parts(origin), origin_parts(ours)) {
        (Some(theirs), Some(ours)) => theirs == ours,
        _ => false,
    }
}

/// Scheme, host and port.
fn origin_parts(origin: &str) -> Option<(String, String, u16)> {
    let (scheme, authority) = origin.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let usual = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let (host, port) = match authority.rsplit_once(':') {
        // The last colon of `[::1]` is no port's.
        Some((host, port)) if !port.ends_with(']') => {
            let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
            (host, port.parse().ok().filter(|_| digits)?)
        }
        _ => (authority, usual),
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':' | b'[' | b']');
    (!host.is_empty() && host.bytes().all(plain)).then(|| (scheme, host.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use percent_encoding::percent_decode_str;
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0190a5f0-7b1c-7def-8a2b-3c4d5e6f7a8b";

    #[test]
    fn proxy_paths() {
        for (path, rest) in [
            (format!("/s/{ID}"), ""),
            (format!("/s/{ID}/"), "/"),
            (format!("/s/{ID}/files/a%2Fb.ipynb"), "/files/a%2Fb.ipynb"),
            (format!("/s/{ID}/a%252e%252e/b"), "/a%252e%252e/b"),
            (format!("/s/{ID}//x/...;/.hidden/..rc/a./b.."), "//x/...;/.hidden/..rc/a./b.."),
            (format!("/s/{ID}/@a,b;v=../caf%C3%A9"), "/@a,b;v=../caf%C3%A9"),
        ] {
            assert_eq!(session_path(&path), Ok((ID.parse().unwrap(), rest)), "{path}");
        }
        let upper = ID.to_uppercase();
        let simple = ID.replace('-', "");
        for path in [
            "/".to_owned(),
            "/s".to_owned(),
            "/s/".to_owned(),
            format!("/S/{ID}/"),
            format!("//s/{ID}/"),
            format!("/s//{ID}/"),
            format!("/s/{upper}/"),
            format!("/s/{simple}/"),
            format!("/s/{{{ID}}}/"),
            format!("/s/urn:uuid:{ID}/"),
            format!("/s/{ID}%2f"),
            format!("/s/{ID}%2Fx"),
            format!("/s/{ID};a=b/"),
            format!("/s/{ID}\\x"),
            format!("/s/{ID}."),
            format!("/s/{ID}%00/"),
            format!("/s%2f{ID}/"),
            format!("/%73/{ID}/"),
            format!("/s/../s/{ID}/"),
            format!("/s/./{ID}/"),
            format!("/s/%2e%2e/{ID}/"),
            format!("/s/%30{}/", &ID[1..]),
            format!("/s/%2530{}/", &ID[1..]),
            format!("/x/../s/{ID}/"),
            format!("http://a/s/{ID}/"),
        ] {
            assert_eq!(session_path(&path), Err(PathFault::NoSession), "{path}");
        }
        for rest in [
            "/..",
            "/../",
            "/.",
            "/./x",
            "/a/../b",
            "/%2e%2e/",
            "/%2E./x",
            "/.%2e",
            "/a/%2e",
            "/..;/x",
            "/..;a=b",
            "/..%3bx",
            "/..%2fx",
            "/a%2f..%2fb",
            "/a%5c..%5cb",
            "/a\\..\\b",
            "/%%2f.",
            "/..\\",
        ] {
            assert_eq!(session_path(&format!("/s/{ID}{rest}")), Err(PathFault::DotSegment), "{rest}");
        }
    }

    proptest! {
        /// Whatever passes has no dot segment, however often and in whatever order it is read.
        #[test]
        fn what_passes_is_plain(rest in "(/|\\.|%2[eEfF]|%5[cC]|\\\\|;|a|%){0,12}") {
            let path = format!("/s/{ID}/{rest}");
            if session_path(&path).is_ok() {
                let decoded = percent_decode_str(&rest).decode_utf8_lossy().replace('\\', "/");
                let plain = decoded.split('/').map(|part| part.split(';').next().unwrap_or_default());
                prop_assert!(plain.clone().all(|part| part != "." && part != ".."), "{path}");
            }
        }
    }

    proptest! {
        /// Where a path passes, the reader of browsers finds the same session in it.
        #[test]
        fn browsers_read_the_same_session(
            head in "(/s/|/S/|//s/|/s//|/%73/|/s%2f|s/)",
            rest in "(/|\\.|%2[eEfF]|%25|%5[cC]|\\\\|;|\\?|#|@|:|\u{e9}|[ -~]){0,12}",
        ) {
            let path = format!("{head}{ID}{rest}");
            let raw = path.split(['?', '#']).next().unwrap_or_default();
            if let Ok((id, after)) = session_path(raw) {
                prop_assert_eq!(id.to_string(), ID);
                prop_assert!(after.is_empty() || after.starts_with('/'));
                let read = url::Url::parse("http://us.example/").unwrap().join(raw).unwrap();
                let inside = read.path() == format!("/s/{ID}") || read.path().starts_with(&format!("/s/{ID}/"));
                prop_assert!(inside && read.host_str() == Some("us.example"), "{path:?} {read}");
            }
        }
    }

    #[test]
    fn tokens_leave_the_query() {
        for (query, expected) in [
            ("a=1&b=%2F&&c", None),
            ("mytoken=1&token2=2", None),
            ("token=x", Some("")),
            ("a=1&token=x&b=%2f+", Some("a=1&b=%2f+")),
            ("%74oken=x&a", Some("a")),
            ("Token=x&token&token=y&z", Some("z")),
        ] {
            assert_eq!(without_tokens(query, true).as_deref(), expected, "{query}");
        }
        let ours = format!("lyc_{}", "Aa0_-".repeat(9));
        let twice = ours.replace('_', "%255f");
        for (query, expected) in [
            ("token=x&a".to_owned(), None),
            ("token=lyc_short&a".to_owned(), None),
            (format!("token={ours}&a"), Some("a")),
            (format!("a&access_token={ours}&token=x"), Some("a&token=x")),
            (format!("next=%2Fx%3Ftoken%3D{ours}&b"), Some("b")),
            (format!("next=%252Fx%253Ftoken%253D{twice}&b"), Some("b")),
            (ours.clone(), Some("")),
        ] {
            assert_eq!(without_tokens(&query, false).as_deref(), expected, "{query}");
        }
    }

    #[test]
    fn origins() {
        let ours = "https://portal.example.org";
        for origin in ["https://portal.example.org", "HTTPS://Portal.Example.org:443"] {
            assert!(origin_matches(origin, ours), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://portal.example.org",
            "https://portal.example.org:8443",
            "https://portal.example.org.evil.example",
            "https://portal.example.org/",
            "https://a@portal.example.org",
            "https://portal.example.org:",
            "https://portal.example.org:+443",
            "https://evil.example https://portal.example.org",
        ] {
            assert!(!origin_matches(origin, ours), "{origin}");
        }
        assert!(origin_matches("http://[::1]:8000", "http://[::1]:8000"));
        assert!(origin_matches("http://[::1]", "http://[::1]:80"));
        assert!(!origin_matches("null", "null"));
    }
}
