//! Cookies between browser and app. The portal's own cookies never reach an app, an app can
//! neither set one of our names nor a cookie that other sessions would be sent; every other
//! cookie passes byte for byte. Pure.

/// A `Cookie` header's value without our cookies; `None` where it holds none of them.
pub(super) fn without_ours(value: &[u8]) -> Option<Vec<u8>> {
    // Nearly every request to the apps' own origin comes without: one quick look.
    if !value.windows(7).any(|seven| seven.eq_ignore_ascii_case(b"lyceum_")) {
        return None;
    }
    let kept: Vec<&[u8]> = value.split(|byte| *byte == b';').filter(|pair| !is_ours(name(pair))).collect();
    (kept.len() < value.split(|byte| *byte == b';').count()).then(|| kept.join(&b';').trim_ascii().to_vec())
}

/// What becomes of an app's `Set-Cookie`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SetCookie {
    Keep,
    Drop,
    Replace(Vec<u8>),
}

/// Binds an app's cookie to its session: `base` is `/s/{id}/`.
///
/// `Domain` goes, since a cookie is for one host. A `Path` outside the session is rewritten
/// to `base` rather than the cookie dropped: `Path=/` is the habit of most frameworks, and
/// an app that lost its cookie would only seem broken. With `strip_prefix` the app takes
/// itself for the whole site, so its paths are put below `base`.
pub(super) fn set_cookie(value: &[u8], base: &str, strip_prefix: bool) -> SetCookie {
    let mut parts = value.split(|byte| *byte == b';');
    let pair = parts.next().unwrap_or_default();
    // A cookie without a name is sent back as its bare value, which may look like any name;
    // a `__Host-` cookie must have the path `/`, which no app may use here.
    if name(pair).is_empty() || !pair.contains(&b'=') || is_ours(name(pair)) || has_host_prefix(name(pair)) {
        return SetCookie::Drop;
    }
    let mut kept = vec![pair];
    let (mut path, mut changed) = (None, false);
    for part in parts {
        let attribute = name(part);
        if attribute.eq_ignore_ascii_case(b"domain") {
            changed = true;
        } else if attribute.eq_ignore_ascii_case(b"path") {
            // The last one counts, as in a browser.
            changed |= path.is_some();
            let value = part.splitn(2, |byte| *byte == b'=').nth(1).unwrap_or_default().trim_ascii();
            // Browsers take quotes for a part of it, other clients do not: here they go.
            let unquoted = value.strip_prefix(b"\"").unwrap_or(value);
            let unquoted = unquoted.strip_suffix(b"\"").unwrap_or(unquoted).trim_ascii();
            changed |= unquoted.len() != value.len();
            path = Some(unquoted);
        } else {
            kept.push(part);
        }
    }
    // Without an absolute path the browser takes the directory of the request: inside.
    let path = path.filter(|path| path.starts_with(b"/"));
    let inside =
        path.is_none_or(|path| path.starts_with(base.as_bytes()) || path == base.trim_end_matches('/').as_bytes());
    if !changed && inside {
        return SetCookie::Keep;
    }
    let mut new = kept.join(&b';');
    if let Some(path) = path {
        new.extend_from_slice(b"; Path=");
        match (inside, strip_prefix) {
            (true, _) => new.extend_from_slice(path),
            (false, true) => new.extend_from_slice(&[base.trim_end_matches('/').as_bytes(), path].concat()),
            (false, false) => new.extend_from_slice(base.as_bytes()),
        }
    }
    SetCookie::Replace(new)
}

fn name(pair: &[u8]) -> &[u8] {
    pair.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii()
}

/// Every name of this beginning is ours, those to come included.
fn is_ours(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let bare = [&b"__host-"[..], b"__secure-"].iter().find_map(|prefix| name.strip_prefix(*prefix)).unwrap_or(&name);
    bare.starts_with(b"lyceum_")
}

fn has_host_prefix(name: &[u8]) -> bool {
    name.get(..7).is_some_and(|start| start.eq_ignore_ascii_case(b"__host-"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ours_go_and_foreign_ones_stay_byte_for_byte() {
        let strip = |value: &str| without_ours(value.as_bytes()).map(|kept| String::from_utf8(kept).unwrap());
        assert_eq!(strip("a=1; _xsrf=2|x|\"; b = \u{e9}"), None);
        assert_eq!(strip("x=lyceum_login"), None);
        assert_eq!(strip("lyceum_login=s"), Some(String::new()));
        assert_eq!(strip("a=1; lyceum_login=s; b=\"2\" "), Some("a=1; b=\"2\"".to_owned()));
        assert_eq!(strip("__Host-lyceum_login=s; a=1;lyceum_app_0190=t;b=2"), Some("a=1;b=2".to_owned()));
        assert_eq!(strip("a=\"x; lyceum_login=s; y\""), Some("a=\"x; y\"".to_owned()));
        assert_eq!(strip("lyceum_login=a; lyceum_login=b"), Some(String::new()));
        assert_eq!(strip(" \tLYCEUM_login =s; a"), Some("a".to_owned()));
    }

    #[test]
    fn set_cookies_stay_in_their_session() {
        let base = "/s/0190/";
        for keep in [
            "a=1",
            "a=1; Path=/s/0190/",
            "a=1; path=/s/0190/x; Secure",
            "a=; Path=/s/0190",
            "a=1; Path=x",
            "a=1; HttpOnly",
        ] {
            assert_eq!(set_cookie(keep.as_bytes(), base, false), SetCookie::Keep, "{keep}");
        }
        for (value, new) in [
            ("a=1; Path=/", "a=1; Path=/s/0190/"),
            ("a=1; Path=/; HttpOnly; Max-Age=1", "a=1; HttpOnly; Max-Age=1; Path=/s/0190/"),
            ("a=1; Path=/s/0191/", "a=1; Path=/s/0190/"),
            ("a=1; Path=/s/01901", "a=1; Path=/s/0190/"),
            ("a=1; Domain=example.org", "a=1"),
            ("a=1; DOMAIN = .example.org; Path=/s/0190/y", "a=1; Path=/s/0190/y"),
            ("a=1; Path=/s/0190/; Path=/", "a=1; Path=/s/0190/"),
            ("a=b;Path=\"/\"", "a=b; Path=/s/0190/"),
            ("a=b; path = \"/s/0190/x\"; Secure", "a=b; Secure; Path=/s/0190/x"),
            ("a=b; Path=\"/", "a=b; Path=/s/0190/"),
            ("a=b; Path=/\"", "a=b; Path=/s/0190/"),
            ("a=b; Path=\" /s/0191 \"", "a=b; Path=/s/0190/"),
            ("a=b; Path=\"\"", "a=b"),
        ] {
            assert_eq!(set_cookie(value.as_bytes(), base, false), SetCookie::Replace(new.into()), "{value}");
        }
        assert_eq!(set_cookie(b"a=1; Path=/", base, true), SetCookie::Replace(b"a=1; Path=/s/0190/".to_vec()));
        assert_eq!(set_cookie(b"a=1; Path=/x", base, true), SetCookie::Replace(b"a=1; Path=/s/0190/x".to_vec()));
        assert_eq!(set_cookie(b"a=1; Path=\"/x\"", base, true), SetCookie::Replace(b"a=1; Path=/s/0190/x".to_vec()));
        for ours in [
            "lyceum_login=x",
            "__Host-lyceum_login=x; Path=/; Secure",
            "lyceum_app_1=x",
            "lyceum_hand=x",
            "lyceum_form=x; Path=/login",
            " Lyceum_Login =x",
            "=lyceum_login=x",
            "lyceum_login",
            "__host-other=x; Path=/; Secure",
            "",
        ] {
            assert_eq!(set_cookie(ours.as_bytes(), base, false), SetCookie::Drop, "{ours}");
        }
    }

    /// Texts that look like cookies, ours and others.
    fn cookies() -> impl Strategy<Value = String> {
        "(lyceum_login|LYCEUM_app|__Host-lyceum_login|__Secure-Lyceum_x|__host-a|a|Path|Domain|=|;|; |,|/|/s/0190/|/s/0191|\"|[ \t]|\u{e9}|[!-~]){0,14}"
    }

    /// The names that another reader, the one that the portal's frameworks use, finds.
    fn names(text: &str) -> Vec<String> {
        text.split(';')
            .filter_map(|pair| cookie::Cookie::parse(pair.trim().to_owned()).ok())
            .map(|c| c.name().to_ascii_lowercase())
            .collect()
    }

    proptest! {
        #[test]
        fn no_cookie_of_ours_is_left(text in cookies()) {
            let kept = without_ours(text.as_bytes()).map_or(text.clone(), |kept| String::from_utf8(kept).unwrap());
            prop_assert!(!names(&kept).iter().any(|name| is_ours(name.as_bytes())), "{text:?} {kept:?}");
            prop_assert_eq!(without_ours(kept.as_bytes()), None, "once is enough");
        }

        #[test]
        fn no_cookie_leaves_its_session(text in cookies(), strip_prefix: bool) {
            let base = "/s/0190/";
            let passed = match set_cookie(text.as_bytes(), base, strip_prefix) {
                SetCookie::Drop => return Ok(()),
                SetCookie::Keep => text.clone(),
                SetCookie::Replace(new) => String::from_utf8(new).unwrap(),
            };
            let Ok(read) = cookie::Cookie::parse(passed.clone()) else { return Ok(()) };
            prop_assert!(!is_ours(read.name().as_bytes()), "{text:?} {passed:?}");
            prop_assert!(read.domain().is_none(), "{text:?} {passed:?}");
            if let Some(path) = read.path().filter(|path| path.starts_with('/')) {
                prop_assert!(path == "/s/0190" || path.starts_with(base), "{text:?} {passed:?}");
            }
        }
    }
}
