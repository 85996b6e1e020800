//! Whose socket the proxy speaks to, and for how long.

use std::{
    os::unix::{fs::symlink, net::UnixListener, process::CommandExt},
    process::{Child, Command, Stdio},
};

use lyceum::proxy::Endpoint;

use super::{
    app::App,
    front::{Setup, until},
};
use crate::needs;

fn someone_else() -> u32 {
    rustix::process::getuid().as_raw() + 1
}

#[tokio::test]
async fn socket_symlink() {
    let (app, other) = (App::start(), App::start());
    let refuses = async |path: std::path::PathBuf, why: &str| {
        let mut setup = Setup::of(&app);
        setup.endpoint = Endpoint::Socket(path.as_path().into());
        let answer = setup.start().await.get("/a", "").await;
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains(why), "{}: {answer}", path.display());
    };
    let directory = app.socket_directory();
    symlink(other.socket(), directory.join("link.sock")).unwrap();
    refuses(directory.join("link.sock"), "NotASocket").await;
    symlink(other.socket_directory(), directory.join("linked")).unwrap();
    refuses(directory.join("linked/app.sock"), "NotASocket").await;
    std::fs::write(directory.join("file.sock"), "").unwrap();
    refuses(directory.join("file.sock"), "NotASocket").await;
    refuses(directory.join("absent.sock"), "NotFound").await;
    drop(UnixListener::bind(directory.join("dead.sock")).unwrap());
    refuses(directory.join("dead.sock"), "ConnectionRefused").await;
    assert_eq!(app.connections() + other.connections(), 0);
}

#[tokio::test]
async fn only_the_sessions_user_may_answer() {
    let app = App::start();
    let mut setup = Setup::of(&app);
    setup.uid = someone_else();
    let front = setup.start().await;
    let answer = front.get("/a", "").await;
    assert!(answer.contains("WrongPeer"), "{answer}");
    assert_eq!(app.requests(), 0);

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut setup = Setup::of(&app);
    (setup.endpoint, setup.uid) = (Endpoint::Port(port), someone_else());
    let answer = setup.start().await.get("/a", "").await;
    assert!(answer.contains("WrongPeer"), "{answer}");
}

const NOBODY: u32 = 65534;

/// A process that ends with its test.
struct Reaped(Child);
impl Drop for Reaped {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A real process of another user, on a port that the session had before.
#[tokio::test]
async fn a_port_that_another_user_took_over() {
    if !needs::root() {
        return;
    }
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let mut server = Command::new("/usr/bin/python3");
    server.args(["-m", "http.server", "--bind", "127.0.0.1", &free.to_string()]).current_dir("/");
    server.stdout(Stdio::null()).stderr(Stdio::null()).uid(NOBODY).gid(NOBODY);
    let _server = Reaped(server.spawn().expect("Python serves this test's files"));
    until("the other user's server listens", || std::net::TcpStream::connect(("127.0.0.1", free)).is_ok()).await;

    let app = App::start();
    let mut setup = Setup::of(&app);
    setup.endpoint = Endpoint::Port(free);
    let answer = setup.clone().start().await.get("/", "").await;
    assert!(answer.contains("WrongPeer { expected: 0, found: 65534 }"), "{answer}");
    setup.uid = NOBODY;
    setup.strip_prefix = true;
    let answer = setup.start().await.get("/proc/self/comm", "").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn stale_endpoint() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    front.get("/a", "").await;
    front.get("/a", "").await;
    assert_eq!((app.connections(), app.closed()), (1, 0));

    front.proxy.drop_session(front.session);
    until("the idle connection is closed", || app.closed() == 1).await;
    assert_eq!(front.proxy.open_connections(front.session), 0);

    // A request that is under way when the session ends is cut, and leaves no connection behind.
    let held = async {
        let answer = front.get("/hold", "").await;
        assert!(answer.ends_with("Cut"), "{answer}");
    };
    let end = async {
        app.seen.holding.notified().await;
        front.proxy.drop_session(front.session);
        app.seen.release.notify_one();
    };
    tokio::join!(held, end);
    until("the connection in use is closed with it", || app.closed() == 2).await;
    assert_eq!((app.connections(), front.proxy.open_connections(front.session)), (2, 0));
}

#[tokio::test]
async fn an_app_that_was_restarted_is_found_again() {
    let app = App::start();
    let front = Setup::of(&app).start().await;
    front.get("/a", "").await;
    let path = app.socket();
    // The old app's connection dies with it; its directory stays.
    let moved = app.socket_directory().join("old.sock");
    std::fs::rename(&path, moved).unwrap();
    let new = App::start();
    std::fs::rename(new.socket(), &path).unwrap();
    front.proxy.sweep();
    assert_eq!(front.proxy.open_connections(front.session), 1, "a fresh connection is not swept");
    front.proxy.drop_session(front.session);
    assert!(front.get("/a", "").await.starts_with("HTTP/1.1 200 "));
    assert_eq!((app.requests(), new.requests()), (1, 1));
}
