//! Sign-in by a header of a reverse proxy: by a real nginx that asks for a password of its own,
//! in front of the real program with a directory beside it, and by requests that lie about
//! being such a proxy.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use lyceum::{
    auth::{header::Settings, rules::Rules},
    model::Role,
    web::AppsOrigin,
};
use serde_json::{Value, json};

use super::{Slapd, person_dn, slapd::BASE};
use crate::{
    checks::proxies::{NGINX, Nginx, free_ports},
    gateway::world::{Browser, World},
    life::{House, eventually},
    needs,
    portal::{Caller, TestPortal, cookie},
    proxy::app::App,
};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn settings() -> Settings {
    let settings = Settings {
        user: "X-Remote-User".to_owned(),
        groups: "X-Remote-Groups".to_owned(),
        display_name: "X-Remote-Name".to_owned(),
        proxies: vec!["127.0.0.1".to_owned()],
        secret_header: "X-Lyceum-Proxy".to_owned(),
        secret: SECRET.to_owned(),
        sign_out_url: "https://sso.example.org/logout".to_owned(),
        rules: Rules {
            allow_groups: vec!["lab".to_owned(), "admins".to_owned()],
            admin_groups: vec!["admins".to_owned()],
            ..Rules::default()
        },
        ..Settings::default()
    };
    assert_eq!(settings.validate(None), Vec::<String>::new());
    settings
}

/// What a proxy says of somebody.
fn said(name: &str, groups: &str) -> Vec<(String, String)> {
    [("x-remote-user", name), ("x-remote-groups", groups), ("x-lyceum-proxy", SECRET)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
}

fn browser(name: &str, groups: &str) -> Browser {
    Browser::sending(said(name, groups))
}

async fn me(browser: &mut Browser, url: &str) -> Value {
    let answer = browser.get(&format!("{url}/api/v1/me")).await;
    assert_eq!(answer.status(), 200);
    answer.json().await.unwrap()
}

#[tokio::test]
async fn a_proxy_names_people() {
    let world = World::around(async |port| {
        TestPortal::start_behind_proxy(settings(), |config| config.apps = AppsOrigin::Port(port)).await
    })
    .await;
    let url = world.portal.url.clone();
    let mut alice = browser("Alice", "lab; research,lab");
    alice.headers.push(("x-remote-name".to_owned(), "Alice Åström".to_owned()));
    let home = alice.visit(&format!("{url}/settings")).await;
    assert_eq!((home.status, home.url.as_str()), (200, format!("{url}/settings").as_str()), "{:?}", home.hops);
    let she = me(&mut alice, &url).await;
    assert_eq!(
        (&she["name"], &she["display_name"], &she["role"]),
        (&json!("alice"), &json!("Alice Åström"), &json!("user"))
    );
    assert_eq!(she["groups"], json!(["lab", "research"]));
    let audit = world.portal.db().list_audit(1).await.unwrap();
    assert_eq!((audit[0].action.as_str(), audit[0].detail.as_str()), ("sign_in", "by header"));
    assert_eq!(me_role(&world, "carol", "admins").await, "admin");

    // Her app sees nothing of all this.
    let app = App::start();
    let user = world.portal.db().find_user_by_name("alice").await.unwrap().unwrap().user.id;
    let id = world.session(user, &app).await;
    let seen = alice.visit(&format!("{}/s/{id}/x", world.apps)).await;
    assert_eq!(seen.status, 200, "{}", seen.text);
    for word in ["x-remote", "x-lyceum", SECRET, "Åström"] {
        assert!(!seen.text.to_lowercase().contains(&word.to_lowercase()), "{word} in {}", seen.text);
    }

    // The browser changes hands: her cookies open nothing for him, neither here nor at her app.
    let login = alice.cookie("lyceum_login").unwrap();
    alice.headers = said("bob", "lab");
    assert_eq!(alice.get(&format!("{url}/api/v1/me")).await.status(), 401);
    let shut = alice.get(&format!("{}/s/{id}/x", world.apps)).await;
    assert!(shut.headers()["location"].to_str().unwrap().starts_with(&format!("{url}/login?")), "{shut:?}");
    assert_eq!(alice.visit(&format!("{url}/")).await.status, 200);
    assert_eq!(me(&mut alice, &url).await["name"], "bob");
    let leftover = world.portal.anybody().with("cookie", &login);
    assert_eq!(leftover.get("/api/v1/me").await.status(), 401, "her login has ended");

    // Signing out leads to the proxy's own, by a page that does not sign in again.
    let bob = alice;
    let caller =
        said("bob", "lab").iter().fold(world.portal.anybody(), |caller, (name, value)| caller.with(name, value));
    let caller = caller.with("cookie", &bob.cookie("lyceum_login").unwrap()).with("origin", &url);
    let out = caller.post_form("/logout", &[]).await;
    assert_eq!((out.status().as_u16(), &out.headers()["location"]), (303, &"/login?signed_out=proxy".parse().unwrap()));
    let page = caller.clone().without("cookie").visit("/login?signed_out=proxy").await;
    assert_eq!(page.headers()["refresh"], "0; url=https://sso.example.org/logout");
    assert!(cookie(&page, "lyceum_login").is_none());
    let text = page.text().await.unwrap();
    assert!(text.contains("Continue as bob") && !text.contains("type=\"password\""), "{text}");
    let back = caller.clone().without("cookie").visit("/login?signed_out=1").await;
    assert!(
        !back.headers().contains_key("refresh") && cookie(&back, "lyceum_login").is_none(),
        "nobody goes in circles"
    );

    // Who comes by the proxy is whom it names: a password of another is not asked for.
    world.portal.add_user("keeper", Role::Admin).await;
    let body = json!({ "username": "keeper", "password": crate::portal::password("keeper") });
    assert_eq!(caller.clone().without("cookie").post("/api/v1/login", &body).await.status(), 409);
    world.portal.sign_in("keeper").await;
}

async fn me_role(world: &World, name: &str, groups: &str) -> String {
    let mut browser = browser(name, groups);
    assert_eq!(browser.visit(&format!("{}/", world.portal.url)).await.status, 200);
    me(&mut browser, &world.portal.url).await["role"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn whom_the_proxy_names_may_still_be_refused() {
    let portal = TestPortal::start_behind_proxy(settings(), |_| {}).await;
    portal.add_user("keeper", Role::Admin).await;
    let visit = async |name: &str, groups: &str| {
        let answer = portal.anybody();
        let answer = said(name, groups).iter().fold(answer, |caller, (name, value)| caller.with(name, value));
        let answer = answer.visit("/login").await;
        assert!(cookie(&answer, "lyceum_login").is_none());
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    for (name, groups, because) in [
        ("dan", "", "allow_groups"),
        ("dan", "banned", "allow_groups"),
        ("keeper", "admins", "belongs to another user"),
    ] {
        let (status, text) = visit(name, groups).await;
        assert!(
            status == 403 && text.contains("not allowed to use this portal") && !text.contains("allow_groups"),
            "{text}"
        );
        let audit = portal.db().list_audit(1).await.unwrap();
        assert_eq!((audit[0].action.as_str(), audit[0].subject.as_str()), ("sign_in.failed", name));
        assert!(audit[0].detail.contains(because), "{}", audit[0].detail);
    }
    let mut alice = browser("alice", "lab");
    assert_eq!(alice.visit(&format!("{}/", portal.url)).await.status, 200);
    let id = portal.db().find_user_by_name("alice").await.unwrap().unwrap().user.id;
    portal.db().set_disabled(id, true, portal.by()).await.unwrap();
    portal.portal.access.poll().await.unwrap();
    let (status, text) = visit("alice", "lab").await;
    assert!(status == 403 && text.contains("not allowed to use this portal"), "{status} {text}");
}

/// Headers that lie, or that cannot be: nobody gets in, and no login goes on beside them.
#[tokio::test]
async fn header_spoofing() {
    let portal = TestPortal::start_behind_proxy(settings(), |_| {}).await;
    let mut alice = browser("alice", "lab");
    assert_eq!(alice.visit(&format!("{}/", portal.url)).await.status, 200);
    let login = alice.cookie("lyceum_login").unwrap();
    let count = portal.db().count_users().await.unwrap();
    let with = |pairs: &[(&str, &str)]| -> Caller {
        pairs.iter().fold(portal.anybody(), |caller, (name, value)| caller.with(name, value))
    };
    let (user, secret) = (("x-remote-user", "admin"), ("x-lyceum-proxy", SECRET));

    // From somebody who is no proxy they say nothing: the form is shown, and a cookie is a cookie.
    for lie in [
        vec![user],
        vec![user, ("x-lyceum-proxy", "")],
        vec![user, ("x-lyceum-proxy", "0123456789abcdef0123456789abcdeF")],
        vec![user, ("x-remote-groups", "admins")],
    ] {
        assert_eq!(with(&lie).get("/api/v1/me").await.status(), 401, "{lie:?}");
        let page = with(&lie).visit("/login").await;
        assert!(page.status() == 200 && cookie(&page, "lyceum_login").is_none(), "{lie:?}");
        assert!(page.text().await.unwrap().contains("type=\"password\""), "{lie:?}");
        let me: Value = with(&lie).with("cookie", &login).get("/api/v1/me").await.json().await.unwrap();
        assert_eq!((&me["name"], &me["role"]), (&json!("alice"), &json!("user")), "{lie:?}");
    }

    // From a proxy that is not clear nobody gets in, whatever cookie comes along.
    let long = "x".repeat(8000);
    for odd in [
        vec![("x-remote-user", "alice"), ("x-remote-user", "alice"), secret],
        vec![("x-remote-user", "alice"), ("x-remote-user", "bob"), secret],
        vec![("x-remote-user", "alice"), ("x_remote_user", "bob"), secret],
        vec![("x_remote_user", "alice"), secret],
        vec![("x-remote-user", "alice"), ("x-remote_user", "alice"), secret],
        vec![("x-remote-user", "alice"), ("x-remote-groups", "lab"), ("x_remote_groups", "admins"), secret],
        vec![("x-remote-user", "alice"), secret, secret],
        vec![("x-remote-user", ""), secret],
        vec![("x-remote-user", "root"), secret],
        vec![("x-remote-user", "-rf"), secret],
        vec![("x-remote-user", "a/b"), secret],
        vec![("x-remote-user", "alice, bob"), secret],
        vec![("x-remote-user", "alice@evil.example"), secret],
        vec![("x-remote-user", "*)(uid=*"), secret],
        vec![("x-remote-user", "аlice"), secret],
        vec![("x-remote-user", &long), secret],
    ] {
        let page = with(&odd).visit("/login").await;
        assert!(page.status() == 403 && cookie(&page, "lyceum_login").is_none(), "{odd:?}: {}", page.status());
        let text = page.text().await.unwrap();
        assert!(text.contains("identify you clearly") && !text.contains("type=\"password\""), "{odd:?}: {text}");
        assert_eq!(with(&odd).with("cookie", &login).get("/api/v1/me").await.status(), 401, "{odd:?}");
    }
    assert_eq!(portal.db().count_users().await.unwrap(), count, "nobody was made");

    // The proxy's address is another one: the secret alone is not enough.
    let elsewhere = Settings { proxies: vec!["192.0.2.1".to_owned()], ..settings() };
    let portal = TestPortal::start_behind_proxy(elsewhere, |_| {}).await;
    let stranger = portal.anybody().with("x-remote-user", "alice").with("x-remote-groups", "lab");
    let page = stranger.with("x-lyceum-proxy", SECRET).visit("/login").await;
    assert!(page.status() == 200 && cookie(&page, "lyceum_login").is_none());
}

/// The whole of it: nginx with passwords of its own, the real program, a directory.
#[tokio::test]
async fn single_sign_on_before_a_directory() {
    if !needs::root() || !needs::met(NGINX, Path::new(NGINX).exists()) {
        return;
    }
    let mut slapd = Slapd::start();
    let [public, listen, ..] = free_ports();
    let mut house = House::new(&[("LYCEUM_LOG", "info")]);
    house.listen_on(listen);
    fs::write(house.file("proxy-secret"), format!("{SECRET}\n")).unwrap();
    let header = format!(
        "[auth.header]\nuser = 'X-Remote-User'\nproxies = ['127.0.0.1']\nsecret_file = '{}'\n\
         sign_out_url = '/sso/sign_out'",
        house.file("proxy-secret").display()
    );
    house.configure(&slapd.configuration(&house.file("ca.pem"), &header));
    let (good, said) = house.run(&["check"]);
    assert!(!good && said.contains("auth.header.secret_file: every user of this machine can read"), "{said}");
    fs::set_permissions(house.file("proxy-secret"), fs::Permissions::from_mode(0o600)).unwrap();
    house.start().await;
    let people = ["alice", "carol", "zero", "nobody-such"].map(|name| format!("{name}:{{PLAIN}}{name}-at-the-proxy\n"));
    fs::write(house.file("htpasswd"), people.concat()).unwrap();
    let location = format!(
        "auth_basic portal; auth_basic_user_file {}; proxy_set_header Host $http_host;\n\
         proxy_set_header X-Forwarded-For $remote_addr;\n\
         proxy_set_header X-Remote-User $remote_user; proxy_set_header X-Lyceum-Proxy {SECRET};",
        house.file("htpasswd").display()
    );
    let _nginx = Nginx::start(&[(public, house.url.clone())], &location).await;
    let url = format!("http://127.0.0.1:{public}");
    let person = |name: &str| {
        use base64::{Engine, prelude::BASE64_STANDARD};
        let proof = BASE64_STANDARD.encode(format!("{name}:{name}-at-the-proxy"));
        Browser::sending(vec![("authorization".to_owned(), format!("Basic {proof}"))])
    };

    assert_eq!(Browser::default().visit(&format!("{url}/")).await.status, 401, "nginx itself asks");
    let mut alice = person("alice");
    assert_eq!(alice.visit(&format!("{url}/")).await.status, 200);
    let she = me(&mut alice, &url).await;
    assert_eq!((&she["name"], &she["display_name"]), (&json!("alice"), &json!("Alice Åström")), "by the directory");
    let mut carol = person("carol");
    // What a browser adds of its own, nginx replaces.
    carol.headers.push(("x-remote-user".to_owned(), "alice".to_owned()));
    assert_eq!(carol.visit(&format!("{url}/")).await.status, 200);
    let she = me(&mut carol, &url).await;
    assert_eq!((&she["name"], &she["role"]), (&json!("carol"), &json!("admin")), "{she}");
    for (name, because) in [("zero", "not the uid of a user"), ("nobody-such", "no matching user")] {
        assert_eq!(person(name).visit(&format!("{url}/")).await.status, 403, "{name}");
        let db = house.db().await;
        let row = &db.list_audit(1).await.unwrap()[0];
        assert!(row.actor == name && row.detail.contains(because), "{row:?}");
    }

    // Past nginx the headers are a lie, and the log says whose.
    let mut liar = Browser::sending(vec![("x-remote-user".to_owned(), "carol".to_owned())]);
    let page = liar.visit(&format!("{}/", house.url)).await;
    assert!(
        page.status == 200 && page.url.contains("/login") && page.text.contains("type=\"password\""),
        "{}",
        page.url
    );
    eventually("the log tells of the lie", async || {
        let log = house.log();
        let line = log.lines().find(|line| line.contains("not a trusted proxy"))?;
        (line.contains("127.0.0.1") && line.contains("the secret is missing")).then_some(())
    })
    .await;
    assert!(!house.log().contains(SECRET));

    // Locked in the directory, and then no directory at all.
    slapd.replace(&person_dn("carol"), "pwdAccountLockedTime", "000001010000Z").await;
    carol.forget("lyceum_");
    assert_eq!(carol.visit(&format!("{url}/")).await.status, 403);
    slapd.stop();
    carol.forget("lyceum_");
    let away = carol.visit(&format!("{url}/")).await;
    assert!(away.status == 503 && away.text.contains("directory") && !away.text.contains(BASE), "{}", away.text);
    assert_eq!(me(&mut alice, &url).await["name"], "alice", "who is in goes on");
}
