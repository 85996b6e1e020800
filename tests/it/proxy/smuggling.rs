//! Requests that two servers could read differently. Each is refused, or at the least is one
//! request with one meaning, after which the connection closes.

use super::{app::App, front::Setup};

/// A second request hidden behind the first; nothing may ever answer it.
const HIDDEN: &str = "GET {s}/hidden HTTP/1.1\r\nHost: a\r\n\r\n";

/// Requests to change something at `change`, or to read `read`, with these header lines too.
pub fn ambiguous(change: &str, read: &str, lines: &str) -> Vec<(&'static str, String)> {
    let post = format!("POST {change} HTTP/1.1\r\nHost: a\r\n{lines}");
    let get = format!("GET {read} HTTP/1.1\r\n{lines}");
    vec![
        ("length, then coding", format!("{post}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        ("coding, then length", format!("{post}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n")),
        ("two lengths", format!("{post}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd")),
        ("one length twice", format!("{post}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc")),
        ("list of lengths", format!("{post}Content-Length: 3, 3\r\n\r\nabc")),
        ("signed length", format!("{post}Content-Length: +3\r\n\r\nabc")),
        ("negative length", format!("{post}Content-Length: -3\r\n\r\nabc")),
        ("hexadecimal length", format!("{post}Content-Length: 0x3\r\n\r\nabc")),
        ("enormous length", format!("{post}Content-Length: 99999999999999999999999\r\n\r\nabc")),
        ("empty length", format!("{post}Content-Length: \r\n\r\n")),
        ("unknown coding", format!("{post}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n")),
        ("two codings", format!("{post}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")),
        ("coding twice", format!("{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        (
            "coding, then identity",
            format!("{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
        ),
        ("blank before the colon", format!("{post}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n")),
        ("folded line", format!("{post}X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        ("vertical tab in the coding", format!("{post}Transfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n")),
        ("NUL in a header", format!("{post}X: a\0b\r\n\r\n")),
        ("bare CR", format!("{post}X: a\rContent-Length: 3\r\n\r\nabc")),
        ("bare LF", format!("GET {read} HTTP/1.1\nHost: a\n{lines}\n").replace("\r\n", "\n")),
        (
            "coding in HTTP/1.0",
            format!("POST {change} HTTP/1.0\r\nHost: a\r\n{lines}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
        ("no host", format!("{get}\r\n")),
        ("two hosts", format!("{get}Host: a\r\nHost: b\r\n\r\n")),
        ("list of hosts", format!("{get}Host: a,b\r\n\r\n")),
        ("host with a path", format!("{get}Host: a/b\r\n\r\n")),
        ("user in the host", format!("{get}Host: a@b\r\n\r\n")),
        ("blank in the target", format!("GET {read} b HTTP/1.1\r\nHost: a\r\n\r\n")),
        ("no version", format!("GET {read}\r\nHost: a\r\n\r\n")),
        ("HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
        ("TRACE", format!("TRACE {read} HTTP/1.1\r\nHost: a\r\n\r\n")),
        ("CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".to_owned()),
        ("TLS to a plain port", "\u{16}\u{3}\u{1}\u{2}".to_owned()),
    ]
}

/// That an ambiguous request had at most one answer, and that a refusal.
pub fn assert_refused(what: &str, answer: &str) {
    let refused = ["HTTP/1.1 400 ", "HTTP/1.1 405 ", "HTTP/1.0 400 "].iter().any(|status| answer.starts_with(status));
    assert!(refused || answer.is_empty(), "{what}: {answer}");
    assert_eq!(answer.matches("HTTP/1.").count(), usize::from(!answer.is_empty()), "{what}: {answer}");
}

#[tokio::test]
async fn smuggling() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    for (what, request) in ambiguous("{s}/up", "{s}/a", "") {
        let answer = front.say(&format!("{request}{HIDDEN}")).await;
        assert_refused(what, &answer);
        assert_eq!(app.requests(), 0, "{what} reached the app");
    }
}

#[tokio::test]
async fn nothing_behind_a_chunked_body_is_a_request() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    let chunked = "POST {s}/up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = front.say(&format!("{chunked}3\r\nabc\r\n0\r\n\r\n{HIDDEN}")).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n3"), "{answer}");
    assert_eq!(app.requests(), 1);

    for (what, body) in [
        ("size that is no number", "zz\r\nabc\r\n0\r\n\r\n"),
        ("bare LF after the size", "3\nabc\r\n0\r\n\r\n"),
        ("size that overflows", "fffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
        ("size smaller than the data", "1\r\nabc\r\n0\r\n\r\n"),
        ("signed size", "+3\r\nabc\r\n0\r\n\r\n"),
    ] {
        let answer = front.say(&format!("{chunked}{body}{HIDDEN}")).await;
        assert!(!answer.starts_with("HTTP/1.1 2"), "{what}: {answer}");
        assert!(answer.matches("HTTP/1.").count() <= 1, "{what}: {answer}");
    }
}

/// Whole requests one behind the other are fine, as long as each ends where it says.
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    let answer = front
        .say(
            "POST {s}/up HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET {s}/down?0 HTTP/1.1\r\nHost: a\r\n\r\n\
             GET {s}/nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        )
        .await;
    let answers: Vec<_> = answer.match_indices("HTTP/1.1 ").map(|(at, _)| &answer[at + 9..at + 12]).collect();
    assert_eq!(answers, ["200", "200", "204"]);
}
