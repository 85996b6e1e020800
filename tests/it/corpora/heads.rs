//! Request lines, targets and headers that no browser sends.

use lyceum::{listen, model::Role};

use super::{say, secret, statuses};
use crate::gateway::world::World;

/// Whatever the head, there is at most one answer, it is none of ours that went wrong, and
/// the next one who asks is served.
#[tokio::test]
async fn heads_that_no_browser_sends() {
    let world = World::new().await;
    world.portal.add_user("alice", Role::Admin).await;
    let alice = world.portal.sign_in("alice").await;
    let bearer = format!("Authorization: Bearer {}\r\n", secret(&alice).await);
    let close = format!("Host: 127.0.0.1\r\n{bearer}Connection: close\r\n");
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\n{close}\r\n").into_bytes();
    let with = |lines: &str| format!("GET /api/v1/me HTTP/1.1\r\n{close}{lines}\r\n").into_bytes();
    let raw = |target: &[u8]| [b"GET ", target, b" HTTP/1.1\r\n", close.as_bytes(), b"\r\n"].concat();
    let long = "x".repeat(2 * listen::MAX_HEAD);
    let not_text = b"/api/v1/quotas/users/\xff\xfe".as_slice();
    for (what, request, expected) in [
        ("letters that are no UTF-8 in the path", raw(not_text), &[400, 404][..]),
        ("the same, encoded", get("/api/v1/quotas/users/%ff%fe"), &[400, 404]),
        ("encoded NUL in a name", get("/api/v1/quotas/users/a%00b"), &[404]),
        ("encoded NUL in a query", get("/api/v1/sessions?owner=%00"), &[404, 422]),
        ("encoded NUL in an id", get("/api/v1/sessions/%00"), &[404]),
        ("encoded line end in a name", get("/api/v1/quotas/users/a%0d%0aX:%20y"), &[404]),
        ("no UTF-8 in a query", get("/api/v1/sessions?owner=%ff"), &[404, 422]),
        ("no UTF-8 in a cursor", get("/api/v1/sessions?cursor=%ff%00"), &[422]),
        ("a broken escape", get("/api/v1/quotas/users/%zz"), &[404]),
        ("an escape without end", get("/api/v1/quotas/users/%f"), &[404]),
        ("NUL in the path", raw(b"/api/v1/me\0"), &[400]),
        ("a control character in the path", raw(b"/api/v1/\x01me"), &[400]),
        ("DEL in the path", raw(b"/api/v1/\x7fme"), &[400]),
        ("a tab for a blank", b"GET\t/api/v1/me\tHTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), &[400]),
        ("a path without a slash", get("api/v1/me"), &[400]),
        ("a star", get("*"), &[400, 404]),
        ("another host's address", get("http://evil.example/api/v1/me"), &[400]),
        ("our own address", get("http://127.0.0.1/api/v1/me"), &[200]),
        ("an address with a user", get("http://a@127.0.0.1/api/v1/me"), &[400]),
        ("an address that is no http", get("ftp://127.0.0.1/api/v1/me"), &[400]),
        ("dots", get("/api/v1/x/../me"), &[404]),
        ("encoded dots", get("/api/v1/x/%2e%2e/me"), &[404]),
        ("two slashes", get("//api/v1/me"), &[404]),
        ("capitals", get("/API/v1/me"), &[404]),
        ("a fragment", get("/api/v1/me#x"), &[200, 400, 404]),
        ("a long target", get(&format!("/{long}")), &[414, 431]),
        ("a large header", with(&format!("X: {long}\r\n")), &[431]),
        ("many headers", with(&"X: y\r\n".repeat(500)), &[431]),
        ("a folded header", with("X: a\r\n b\r\n"), &[400]),
        ("a header without a colon", with("nonsense\r\n"), &[400]),
        ("a header without a name", with(": x\r\n"), &[400]),
        ("a blank in a header's name", with("X y: z\r\n"), &[400]),
        ("NUL in a header", with("X: a\0b\r\n"), &[400]),
        ("a second Host", with("Host: evil.example\r\n"), &[400]),
        ("a second token", with(&bearer), &[401]),
        ("letters of any kind in a header", with("X: \u{fc}\u{1f525}\r\n"), &[200]),
        ("a method that nobody knows", b"BREW / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec(), &[405]),
        ("a method in small letters", b"get / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec(), &[405]),
        ("a very long method", [long.as_bytes(), b" / HTTP/1.1\r\nHost: a\r\n\r\n"].concat(), &[400, 405, 414, 431]),
        ("a version of the future", b"GET / HTTP/3.7\r\nHost: a\r\n\r\n".to_vec(), &[400]),
        ("no version", b"GET /\r\n\r\n".to_vec(), &[400]),
        ("nothing but zeros", vec![0; 4096], &[400]),
        ("HTTP/1.0 without a host", b"GET /healthz HTTP/1.0\r\n\r\n".to_vec(), &[200]),
    ] {
        for listener in [&world.portal.url, &world.apps] {
            let answer = say(listener, &request).await;
            let found = statuses(&answer);
            assert!(found.len() <= 1, "{what}: {answer}");
            let shown: String = answer.chars().take(400).collect();
            if *listener == world.portal.url {
                // Too much is sometimes only hung up on.
                let hung_up = found.is_empty() && expected.iter().any(|status| matches!(status, 400 | 431));
                assert!(hung_up || found.iter().all(|status| expected.contains(status)), "{what}: {shown}");
                assert!(hung_up || !found.is_empty(), "{what}: no answer");
            } else {
                // The apps' listener has none of these routes.
                assert!(found.iter().all(|status| (400..500).contains(status)), "{what}: {shown}");
            }
            assert!(!shown.contains("\r\nX: y"), "a line of ours that they wrote: {shown}");
        }
        assert_eq!(alice.get("/api/v1/me").await.status(), 200, "after {what}");
    }
}
