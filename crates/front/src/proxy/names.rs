//! Which headers pass between browser and app, judged by their names alone: what speaks about one
//! connection, what a client may not tell an app, and what an app may not tell a browser. What is
//! done with those that do not pass is the caller's business.

/// Headers that speak about one connection, not about the message.
pub(super) fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
    )
}

/// What a client may not tell an app: what speaks about one connection, and what is ours to say.
/// Servers that hand headers on as variables (WSGI, CGI, PHP) take every sign that is neither a
/// letter nor a digit for the same one, so names are compared as they would be.
pub(super) fn is_not_from_clients(name: &str) -> bool {
    const MAX_LENGTH: usize = 40;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if name.bytes().all(is_plain) {
        return is_hop_by_hop(name) || is_ours_to_say(name);
    }
    let mut folded = [0; MAX_LENGTH];
    // Beginnings are enough for longer ones.
    let length = name.len().min(MAX_LENGTH);
    for (to, byte) in folded.iter_mut().zip(name.bytes()) {
        *to = if is_plain(byte) { byte } else { b'-' };
    }
    let folded = str::from_utf8(&folded[..length]).unwrap_or_default();
    // A second length or kind of the body would be another than the one that was framed.
    is_hop_by_hop(folded) || is_ours_to_say(folded) || matches!(folded, "content-length" | "content-type")
}

/// What proxies tell apps of who asks, from where, and for what; some apps believe it. `Expect` is
/// answered by us.
fn is_ours_to_say(name: &str) -> bool {
    const BEGINNINGS: [&str; 13] = [
        "x-forwarded-",
        "x-remote-",
        "x-original-",
        "x-accel-",
        "x-auth-request-",
        "x-authenticated-",
        "x-proxy-",
        "x-rewrite-",
        "x-ssl-",
        "x-webauth-",
        "cf-connecting-",
        "remote-",
        "ssl-client-",
    ];
    matches!(
        name,
        "expect"
            | "forwarded"
            | "x-forwarded"
            | "x-real-ip"
            | "client-ip"
            | "true-client-ip"
            | "fastly-client-ip"
            | "x-client-ip"
            | "x-client-cert"
            | "x-client-dn"
            | "x-client-verify"
            | "x-cluster-client-ip"
            | "x-envoy-external-address"
            | "x-sendfile-type"
            | "x-azure-clientip"
            | "proxy"
            | "auth-user"
            | "auth-type"
            | "x-auth-user"
            | "x-script-name"
            | "script-name"
            | "x-scheme"
            | "x-url-scheme"
            | "front-end-https"
    ) || (matches!(name.as_bytes().first(), Some(b'x' | b'c' | b'r' | b's'))
        && BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)))
}

pub(super) fn is_cookie(name: &str) -> bool {
    name == "cookie"
}

/// What an app may not tell a browser, because it would hold for the whole origin, nor a proxy in
/// front of us, which would serve files of its own for it.
pub(super) fn is_not_for_browsers(name: &str) -> bool {
    matches!(
        name,
        "service-worker-allowed"
            | "clear-site-data"
            | "strict-transport-security"
            | "public-key-pins"
            | "public-key-pins-report-only"
            | "alt-svc"
            | "nel"
            | "report-to"
            | "set-cookie2"
            | "x-sendfile"
            | "x-lighttpd-send-file"
            | "x-reproxy-url"
    ) || name.starts_with("access-control-")
        || (name.starts_with("x-accel-") && name != "x-accel-buffering")
}
