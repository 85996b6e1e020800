//! The audit log as administrators see it: over REST, as a page and as a table; and what each
//! event leaves in it, with who, to whom, from where and by which request.

use lyceum::{
    db::{
        admit::{AdmissionMode, NewSession, Verdict},
        audit::Audit,
    },
    model::{Resources, Role, SessionId, session::SessionSpec},
};
use serde_json::{Value, json};

use crate::portal::{Caller, TestPortal, password};

/// A portal behind a proxy, so that requests can tell addresses.
async fn portal() -> TestPortal {
    let portal = TestPortal::start_with(|config| config.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()]).await;
    portal.add_user("alice", Role::User).await;
    portal.add_user("chief", Role::Admin).await;
    portal
}

fn from(caller: Caller, address: &str) -> Caller {
    caller.with("x-forwarded-for", address)
}

/// The last row, which must be of the request that was just answered.
async fn last(portal: &TestPortal, answer: &reqwest::Response) -> Audit {
    assert!(answer.status().is_success() || answer.status().is_redirection(), "{}", answer.status());
    let row = portal.db().list_audit(1).await.unwrap().remove(0);
    assert_eq!(row.request_id, answer.headers()["x-request-id"].to_str().unwrap(), "{row:?}");
    assert_eq!((row.address.as_str(), row.at), ("192.0.2.7", portal.clock.now()), "{row:?}");
    row
}

/// A running session of alice's.
async fn running(portal: &TestPortal) -> SessionId {
    let owner = portal.db().find_user_by_name("alice").await.unwrap().unwrap().user.id;
    let id = SessionId::new();
    let spec = SessionSpec {
        resources: Resources::default(),
        profile: None,
        environment: None,
        working_directory: None,
        duration_seconds: 3600,
        log_directory: None,
        log_directories: std::collections::BTreeMap::new(),
        group: None,
        modules: Vec::new(),
        image: None,
        slurm: lyceum::model::SlurmOptions::default(),
    };
    let (app, name, cluster) = ("terminal".to_owned(), "x".to_owned(), "local".to_owned());
    let new = NewSession {
        id,
        owner,
        charged_group: None,
        app,
        name,
        spec,
        light: true,
        cluster,
        idempotency: None,
        job: None,
    };
    let admit = |_: &_| Verdict::Admit { gpus: Vec::new() };
    portal.db().admit(&crate::db::asking(owner), AdmissionMode::Insert(&new), &portal.clock, admit).await.unwrap();
    let now = portal.clock.now();
    assert!(portal.db().begin_start(id, now).await.unwrap());
    assert!(portal.db().mark_running(id, now, now.plus_seconds(3600)).await.unwrap());
    id
}

#[tokio::test]
async fn each_event_says_who_what_whence_and_by_which_request() {
    let portal = portal().await;
    let told = |row: &Audit| (row.actor.clone(), row.action.clone(), row.subject.clone());
    let is = |actor: &str, action: &str, subject: &str| (actor.to_owned(), action.to_owned(), subject.to_owned());
    let door = from(portal.anybody().with("origin", &portal.url), "192.0.2.7");

    for (name, known) in [("alice", "alice"), ("hunter2-typed-in-the-wrong-field", "(unknown name)")] {
        let answer = door.post("/api/v1/login", &json!({ "username": name, "password": "wrong" })).await;
        assert_eq!(answer.status(), 401);
        let row = portal.db().list_audit(1).await.unwrap().remove(0);
        assert_eq!(told(&row), is(known, "sign_in.failed", known));
        assert_eq!(row.address, "192.0.2.7");
        portal.clock.advance(60);
    }
    let answer = door.post("/api/v1/login", &json!({ "username": "alice", "password": password("alice") })).await;
    assert_eq!(told(&last(&portal, &answer).await), is("alice", "sign_in", "alice"));

    let alice = from(portal.sign_in("alice").await, "192.0.2.7");
    let answer = alice.post("/api/v1/tokens", &json!({ "name": "nightly", "scopes": ["read"] })).await;
    let row = last(&portal, &answer).await;
    let token: Value = answer.json().await.unwrap();
    let id = token["id"].as_str().unwrap();
    assert_eq!(told(&row), is("alice", "token.make", id));
    assert!(row.detail.contains("nightly (read)") && !row.detail.contains(token["secret"].as_str().unwrap()));
    let answer = alice.delete(&format!("/api/v1/tokens/{id}")).await;
    assert_eq!(told(&last(&portal, &answer).await), is("alice", "token.revoke", id));

    let answer = alice.post("/api/v1/sessions", &json!({ "app": "terminal" })).await;
    let row = last(&portal, &answer).await;
    let session: Value = answer.json().await.unwrap();
    let id = session["id"].as_str().unwrap();
    assert_eq!((told(&row), row.detail.as_str()), (is("alice", "session.start", id), "terminal"));
    let answer = alice.delete(&format!("/api/v1/sessions/{id}")).await;
    assert_eq!(told(&last(&portal, &answer).await), is("alice", "session.stop", id));
    let id = running(&portal).await.to_string();
    let answer = alice.post(&format!("/api/v1/sessions/{id}/extend"), &json!({ "seconds": 60 })).await;
    assert_eq!(told(&last(&portal, &answer).await), is("alice", "session.extend", &id));
    let chief = from(portal.sign_in("chief").await, "192.0.2.7");
    let answer = chief.delete(&format!("/api/v1/sessions/{id}")).await;
    let row = last(&portal, &answer).await;
    assert_eq!((told(&row), row.detail.as_str()), (is("chief", "session.admin_stop", &id), "alice"));

    let patch = chief.request("PATCH", "/api/v1/quotas/users/alice").json(&json!({ "gpus": 2, "note": "thesis" }));
    let row = last(&portal, &patch.send().await.unwrap()).await;
    assert_eq!(
        (told(&row), row.detail.as_str()),
        (is("chief", "quota.change", "alice"), "gpus=2 (thesis), was inherit")
    );
    let patch = chief.request("PATCH", "/api/v1/quotas/users/alice").json(&json!({ "gpus": null, "cpus": 4 }));
    let row = last(&portal, &patch.send().await.unwrap()).await;
    assert_eq!(row.detail, "cpus=4, was inherit; gpus=inherit, was 2 (thesis)");
    let patch = chief.request("PATCH", "/api/v1/quotas/default").json(&json!({ "cpus": null, "gpus": -1 }));
    let row = last(&portal, &patch.send().await.unwrap()).await;
    assert_eq!(
        (told(&row), row.detail.as_str()),
        (is("chief", "quota.change", "default"), "gpus=unlimited, was inherit")
    );

    let new = json!({ "current_password": password("alice"), "new_password": "another-password" });
    let answer = alice.post("/api/v1/me/password", &new).await;
    let row = last(&portal, &answer).await;
    assert_eq!(told(&row), is("alice", "password.change", "alice"));
    let answer = alice.post("/api/v1/logout", &json!({})).await;
    assert_eq!(told(&last(&portal, &answer).await), is("alice", "sign_out", "alice"));
    let answer = chief.post_form("/settings/sign-out-everywhere", &[("a", "b")]).await;
    assert_eq!(told(&last(&portal, &answer).await), is("chief", "sign_out.everywhere", "chief"));

    let rows = portal.db().audit_after(0, 500).await.unwrap();
    let text = format!("{rows:?}");
    assert!(!text.contains("hunter2") && !text.contains("another-password") && !text.contains(&password("alice")));
    crate::db::whole::assert_consistent(portal.db()).await;
}

#[tokio::test]
async fn filters_pages_and_cursors() {
    let portal = portal().await;
    for number in 0..7 {
        let (actor, action) = (["a", "b"][number % 2], ["x", "y", "z"][number % 3]);
        portal.db().add_audit(portal.clock.now(), actor, action, &number.to_string(), "=1+1").await.unwrap();
        portal.clock.advance(60);
    }
    let browser = portal.sign_in("chief").await;
    let chief = portal.token(&browser, &["admin:audit"]).await;
    let subjects = async |query: &str| -> Vec<String> {
        let answer = chief.get(&format!("/api/v1/audit?{query}")).await;
        assert_eq!(answer.status(), 200, "{query}");
        let list: Value = answer.json().await.unwrap();
        list["items"].as_array().unwrap().iter().map(|row| row["subject"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(subjects("actor=a").await, ["6", "4", "2", "0"]);
    assert_eq!(subjects("actor=a&action=x").await, ["6", "0"]);
    assert_eq!(subjects("subject=3").await, ["3"]);
    assert_eq!(subjects("subject=%00").await, [""; 0]);
    assert_eq!(subjects("subject=CHI&action=sign").await, ["chief"], "by how it begins, in any case");
    assert_eq!(subjects("address=127.0.0.1&subject=chief").await, ["chief"]);
    let at = |minutes: i64| crate::portal::START.plus_seconds(minutes * 60).to_string();
    assert_eq!(subjects(&format!("from={}&to={}", at(2), at(4))).await, ["3", "2"]);

    let (mut cursor, mut found) = (String::new(), Vec::new());
    loop {
        let list: Value = chief.get(&format!("/api/v1/audit?limit=2&to={}{cursor}", at(9))).await.json().await.unwrap();
        found.extend(list["items"].as_array().unwrap().iter().map(|row| row["number"].as_i64().unwrap()));
        let Some(next) = list["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert!(found.windows(2).all(|two| two[1] < two[0]) && found.len() >= 8, "{found:?}");

    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("cursor=x", "cursor"),
        ("from=yesterday", "from"),
        ("nonsense=1", "nonsense"),
        ("after=-1", "after"),
        ("after=1&actor=a", "actor"),
    ] {
        let answer = chief.get(&format!("/api/v1/audit?{query}")).await;
        assert_eq!(answer.status(), 422, "{query}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
    }

    let document: Value = portal.anybody().get("/api/v1/openapi.json").await.json().await.unwrap();
    let told = document["paths"]["/api/v1/audit"]["get"]["parameters"].as_array().unwrap().iter();
    let told: Vec<&str> = told.map(|parameter| parameter["name"].as_str().unwrap()).collect();
    assert_eq!(told, ["limit", "cursor", "actor", "action", "subject", "address", "from", "to", "after"]);

    let page = browser.visit("/admin/audit?actor=a&action=x").await.text().await.unwrap();
    assert!(page.contains("<bdi>6</bdi>") && page.contains("<bdi>0</bdi>") && !page.contains("<bdi>3</bdi>"), "{page}");
    assert!(page.contains("href=\"/admin/audit/table?actor=a&#38;action=x\""), "{page}");
    assert!(
        browser
            .visit("/admin/audit?from=2027-01-15&to=2027-01-15")
            .await
            .text()
            .await
            .unwrap()
            .contains("<bdi>6</bdi>")
    );
    assert!(!browser.visit("/admin/audit?from=2027-01-16").await.text().await.unwrap().contains("<bdi>6</bdi>"));
    let wrong = browser.visit("/admin/audit?from=yesterday&actor=a").await;
    assert_eq!(wrong.status(), 422);
    let wrong = wrong.text().await.unwrap();
    assert!(wrong.contains("Enter a date, as in 2030-01-31.") && wrong.contains("value=\"yesterday\""), "{wrong}");
}

/// What a spreadsheet would take for a formula is text, and however many rows there are, they
/// come in one answer.
#[tokio::test]
async fn tables_are_whole_and_inert() {
    let portal = portal().await;
    for number in 0..1100 {
        portal
            .db()
            .add_audit(portal.clock.now(), "=cmd|' /C calc'!A0", "x", &format!("+{number}"), "@\"a\",b")
            .await
            .unwrap();
    }
    let chief = portal.sign_in("chief").await;
    let by_page = chief.get("/admin/audit/table?action=x").await;
    assert_eq!(by_page.headers()["content-type"], "text/csv; charset=utf-8");
    assert!(by_page.headers()["content-disposition"].to_str().unwrap().contains("audit.csv"));
    let text = by_page.text().await.unwrap();
    let lines: Vec<&str> = text.split_terminator("\r\n").collect();
    assert_eq!(lines.len(), 1101);
    assert!(lines[0].starts_with("\"number\",\"at\",\"actor\""), "{}", lines[0]);
    assert!(lines[1].contains(r#""'=cmd|' /C calc'!A0","x","'+1099","'@""a"",b""#), "{}", lines[1]);
    assert!(lines[1100].contains("\"'+0\""), "{}", lines[1100]);
    let by_api =
        chief.request("GET", "/api/v1/audit?action=x&limit=5").header("accept", "text/csv").send().await.unwrap();
    assert_eq!(by_api.text().await.unwrap(), text, "a table is whole, whatever the limit of pages");
    assert_eq!(chief.get("/admin/audit/table?from=never").await.status(), 422);

    // Forwards, for a collector that knows the last number it has: all of it as lines, or page by page.
    let lines = async |after: i64| -> Vec<Value> {
        let path = format!("/api/v1/audit?after={after}");
        let answer = chief.request("GET", &path).header("accept", "application/x-ndjson").send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/x-ndjson");
        answer.text().await.unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = lines(0).await;
    let numbers: Vec<i64> = all.iter().map(|row| row["number"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (1..=i64::try_from(all.len()).unwrap()).collect::<Vec<_>>());
    assert!(all.len() > 1100, "{}", all.len());
    assert_eq!(lines(1099).await, all[1099..]);
    assert!(lines(1_000_000).await.is_empty());
    let page =
        async |query: &str| -> Value { chief.get(&format!("/api/v1/audit?{query}")).await.json().await.unwrap() };
    let first = page("after=7&limit=2").await;
    assert_eq!(first["items"].as_array().unwrap(), &all[7..9]);
    let second = page(&format!("after=7&limit=2&cursor={}", first["next_cursor"].as_str().unwrap())).await;
    assert_eq!(second["items"].as_array().unwrap(), &all[9..11]);
}
