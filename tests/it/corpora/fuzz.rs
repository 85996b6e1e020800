//! Requests of any bytes against the running portal: the corpora's heads and bodies, cut,
//! doubled and mixed at random. `PROPTEST_CASES` says how many (docs/security.md says how the
//! long run went); whatever comes, no answer is a fault of ours and the portal goes on.

use lyceum::model::Role;
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};

use super::{say_and_leave, statuses};
use crate::gateway::world::World;

/// Pieces of requests, whole lines and parts of lines.
const PIECES: &[&str] = &[
    "GET ",
    "POST ",
    "PATCH ",
    "DELETE ",
    "OPTIONS ",
    "HEAD ",
    "/",
    "//",
    "/api/v1/me",
    "/api/v1/tokens",
    "/api/v1/sessions?limit=",
    "/api/v1/audit?from=",
    "/api/v1/quotas/users/",
    "/s/",
    "/login?next=",
    "/files?path=",
    "/static/app.css",
    "%2e%2e/",
    "%00",
    "%ff",
    "%",
    "?",
    "#",
    "&",
    "=",
    ";",
    " HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    " HTTP/2\r\n",
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    "Host: 127.0.0.1\r\n",
    "Host: evil.example\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 999999999999999999999\r\n",
    "Content-Length: -1\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Connection: upgrade\r\nUpgrade: websocket\r\n",
    "Connection: close\r\n",
    "Expect: 100-continue\r\n",
    "Accept: text/html\r\n",
    "Accept: text/csv\r\n",
    "Range: bytes=0-,5-\r\n",
    "If-None-Match: \"x\"\r\n",
    "Cookie: lyceum_login=x\r\n",
    "Cookie: lyceum_login=",
    "Authorization: Bearer ",
    "Content-Type: application/json\r\n",
    "Content-Type: application/x-www-form-urlencoded\r\n",
    "Content-Type: multipart/form-data; boundary=x\r\n",
    "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--\r\n",
    "Sec-Fetch-Site: same-origin\r\n",
    "X-Forwarded-For: 1.2.3.4\r\n",
    "Idempotency-Key: a\r\n",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "ffffffffffffffff\r\n",
    "{\"name\": ",
    "\"x\"}",
    "{",
    "[",
    "null",
    "1e999",
    "\u{0}",
    "\u{fc}",
    "\u{1f525}",
];

fn request() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => proptest::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..12),
    ];
    let usual = prop_oneof![
        3 => Just(&b"GET /api/v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\n"[..]),
        3 => Just(&b"POST /api/v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\n"[..]),
        2 => Just(&b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\n"[..]),
        2 => Just(&b""[..]),
    ];
    (usual, any::<bool>(), proptest::collection::vec(piece, 0..14)).prop_map(|(usual, known, pieces)| {
        // Half of them come from somebody: their secret is put in place of the word.
        let who = if known { &b"Authorization: Bearer SECRET\r\n"[..] } else { b"" };
        let who = if usual.is_empty() { b"" } else { who };
        [usual, who, &pieces.concat()].concat()
    })
}

#[tokio::test]
async fn requests_of_any_bytes() {
    let world = World::new().await;
    world.portal.add_user("alice", Role::Admin).await;
    let alice = world.portal.sign_in("alice").await;
    let secret = super::secret(&alice).await;
    // A request costs a connection: fewer than of the pure ones, unless more are asked for.
    let cases = crate::needs::variable("PROPTEST_CASES").map_or(120, |text| text.parse().unwrap());
    let mut runner = TestRunner::new(Config::default());
    for _ in 0..cases {
        let bytes = request().new_tree(&mut runner).unwrap().current();
        let bytes = replace(&bytes, b"SECRET", secret.as_bytes());
        for listener in [&world.portal.url, &world.apps] {
            let answer = say_and_leave(listener, &bytes).await;
            let said = String::from_utf8_lossy(&bytes);
            // There is no helper behind this portal: 503 is the truth where files are asked for.
            let faults: Vec<u16> =
                statuses(head(&answer)).into_iter().filter(|status| *status >= 500 && *status != 503).collect();
            assert!(faults.is_empty(), "{said:?}\n{answer:.600}");
        }
    }
    assert_eq!(world.portal.anybody().get("/healthz").await.status(), 200);
    assert!(world.portal.db().list_users().await.unwrap().len() == 1, "nobody was made");
}

/// The answer's first line and headers: a page may hold words that look like another answer.
fn head(answer: &str) -> &str {
    answer.split("\r\n\r\n").next().unwrap_or_default()
}

fn replace(bytes: &[u8], word: &[u8], with: &[u8]) -> Vec<u8> {
    match bytes.windows(word.len()).position(|window| window == word) {
        Some(at) => [&bytes[..at], with, &bytes[at + word.len()..]].concat(),
        None => bytes.to_vec(),
    }
}
