//! Servers that are no help: silent, slow, cut off in the middle, not there. Each is a port
//! of the loopback with a few lines behind it; nobody hangs, and the next server is tried.

use std::time::{Duration, Instant};

use lyceum::auth::{Error, ldap::Settings};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

use super::{Certificate, House, Slapd};

/// What a server does with a connection.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// Accepts and says nothing.
    Silent,
    /// Closes at once.
    Closes,
    /// Answers the first bytes with half an answer, and closes.
    HalfAnswer,
    /// Answers with what is no LDAP.
    Nonsense,
}

struct Peer {
    url: String,
    task: JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn peer(manner: Manner) -> Peer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ldap://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut bytes = [0; 512];
            match manner {
                Manner::Silent => kept.push(connection),
                Manner::Closes => drop(connection),
                Manner::HalfAnswer => {
                    let _ = connection.read(&mut bytes).await;
                    // The beginning of a bind response of 12 bytes.
                    let _ = connection.write_all(&[0x30, 0x0c, 0x02, 0x01]).await;
                }
                Manner::Nonsense => {
                    let _ = connection.read(&mut bytes).await;
                    let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
                }
            }
        }
    });
    Peer { url, task }
}

fn quick(settings: Settings) -> Settings {
    Settings { connect_timeout: 1, timeout: 1, ..settings }
}

/// `ldap_slow`: a server that says nothing holds nobody up for longer than was configured.
#[tokio::test]
async fn ldap_slow() {
    let slapd = Slapd::start();
    for manner in [Manner::Silent, Manner::Closes, Manner::HalfAnswer, Manner::Nonsense] {
        let peer = peer(manner).await;
        for starttls in [true, false] {
            let settings =
                Settings { starttls, insecure: true, urls: vec![peer.url.clone()], ..quick(slapd.settings()) };
            let house = House::new(settings).await;
            let begin = Instant::now();
            let refused = house.enter("alice").await.unwrap_err();
            assert!(matches!(refused, Error::Directory(_)), "{manner:?}: {refused:?}");
            assert!(begin.elapsed() < Duration::from_secs(20), "{manner:?} took {:?}", begin.elapsed());
        }
    }
}

/// However a directory is no help, the sign-in says that it is away, soon, and in one sentence;
/// nobody else waits, and the audit table knows what it was.
#[tokio::test]
async fn a_directory_that_is_no_help_is_away() {
    let slapd = Slapd::start();
    let mut answers = std::collections::BTreeSet::new();
    let mut sides = Vec::new();
    for (manner, because) in [
        (Manner::Silent, "the directory is unavailable"),
        (Manner::Closes, "the directory is unavailable"),
        (Manner::HalfAnswer, "the directory is unavailable"),
        (Manner::Nonsense, "the directory is unavailable"),
    ] {
        let peer = peer(manner).await;
        sides.push((Settings { urls: vec![peer.url.clone()], ..quick(slapd.settings()) }, because, Some(peer), None));
    }
    for (kind, because) in [
        (Certificate::Expired, "expired"),
        (Certificate::OfAnotherHost, "not valid for name"),
        (Certificate::OfAnotherAuthority, "invalid peer certificate"),
    ] {
        let other = Slapd::start_with(kind);
        let settings = Settings { urls: vec![other.ldap()], ca_file: other.authority(), ..quick(slapd.settings()) };
        sides.push((settings, because, None, Some(other)));
    }
    for (settings, because, _peer, _slapd) in sides {
        let (portal, _ldap) = super::portal(settings).await;
        portal.add_user("keeper", lyceum::model::Role::User).await;
        let keeper = portal.sign_in("keeper").await;
        let begin = Instant::now();
        let (answer, beside) = tokio::join!(portal.try_sign_in("alice", "alice-secret"), async {
            let answer = keeper.get("/api/v1/me").await;
            (answer.status(), begin.elapsed())
        });
        assert!(begin.elapsed() < Duration::from_secs(30), "{because} took {:?}", begin.elapsed());
        assert!(beside.0 == 200 && beside.1 < Duration::from_secs(10), "{because}: {beside:?}");
        assert_eq!(answer.status(), 503, "{because}");
        let mut body: serde_json::Value = answer.json().await.unwrap();
        body.as_object_mut().unwrap().remove("instance");
        answers.insert(body.to_string());
        let row = portal.db().list_audit(1).await.unwrap().remove(0);
        assert_eq!((row.action.as_str(), row.actor.as_str()), ("sign_in.failed", "(unknown name)"));
        assert!(row.detail.contains("the directory is unavailable") && row.detail.contains(because), "{}", row.detail);
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
}

#[tokio::test]
async fn servers_are_tried_in_turn() {
    let slapd = Slapd::start();
    let (silent, closes) = (peer(Manner::Silent).await, peer(Manner::Closes).await);
    let urls = vec!["ldap://127.0.0.1:1".to_owned(), closes.url.clone(), silent.url.clone(), slapd.ldap()];
    let house = House::new(Settings { urls, timeout: 4, ..slapd.settings() }).await;
    house.enter("alice").await.unwrap();
    let begin = Instant::now();
    house.enter("bob").await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(4), "the one that answered is asked first from now on");
}

#[tokio::test]
async fn a_service_account_without_the_right_password_is_nobodys_wrong_password() {
    let slapd = Slapd::start();
    let house = House::new(Settings { bind_password: "wrong".to_owned(), ..slapd.settings() }).await;
    let refused = house.enter("alice").await.unwrap_err();
    assert!(matches!(refused, Error::Directory(_)), "{refused:?}");
}
