//! Who comes along the authorisation matrix, and the things of the user's that paths speak of: each
//! is made freshly for its row, so that no row depends on another.

use lyceum::{
    db::{
        admit::{AdmissionOutcome, NewSession, Verdict},
        audit::Entry,
        sessions::{Ending, Filter},
        tokens::Token,
    },
    model::{
        EndReason, GroupName, Resources, Role, SessionId, TokenId,
        announcement::{Draft, Level},
        session::SessionSpec,
    },
};
use serde_json::{Value, json};

use crate::portal::{Caller, TestPortal};

/// What a dataset was asked for with.
const SPEC: &str = r#"{"kind": "classification", "source": {"kind": "generated", "count": 9}, "output": "/x"}"#;

/// The people, and something of the user's.
pub struct Scene {
    pub portal: TestPortal,
    user: Caller,
}

impl Scene {
    pub async fn set() -> Self {
        let portal = TestPortal::start().await;
        for name in ["user", "other", "gone", "third"] {
            portal.add_user(name, Role::User).await;
        }
        portal.add_user("chief", Role::Admin).await;
        let third = portal.db().find_user_by_name("third").await.unwrap().unwrap().user;
        portal.new_login(third.id).await;
        let browser = portal.sign_in("user").await;
        let user = portal.token(&browser, &[]).await;
        Self { portal, user }
    }

    /// Somebody who comes freshly, since the request before may have ended their login.
    pub async fn caller(&self, person: &str) -> Caller {
        let portal = &self.portal;
        let anybody = portal.anybody().with("origin", &portal.url);
        let id = async |name: &str| portal.db().find_user_by_name(name).await.unwrap().unwrap().user.id;
        let browser = async |name: &str| {
            let secret = portal.new_login(id(name).await).await;
            portal.anybody().with("origin", &portal.url).with("cookie", &format!("lyceum_login={secret}"))
        };
        match person {
            "anonymous" => anybody,
            "user" => browser("user").await,
            "other" => browser("other").await,
            "admin" => browser("chief").await,
            "read-only token" => portal.token(&browser("user").await, &["read"]).await.with("origin", &portal.url),
            "expired token" => {
                let token = portal.short_token(&browser("user").await).await;
                portal.clock.advance(2);
                token
            }
            "disabled user" => {
                let gone = browser("gone").await;
                assert_eq!(gone.get("/api/v1/me").await.status(), 200);
                portal.db().set_disabled(id("gone").await, true, portal.by()).await.unwrap();
                portal.portal.access.poll().await.unwrap();
                portal.db().set_disabled(id("gone").await, false, portal.by()).await.unwrap();
                portal.portal.access.poll().await.unwrap();
                gone
            }
            _ => unreachable!("{person} is not in the table"),
        }
    }

    /// The path with something of the user's in it.
    pub async fn path(&self, template: &str) -> String {
        let id = if template.contains("{id}") || template.contains("{*rest}") {
            self.thing(template).await
        } else {
            String::new()
        };
        let group = if template.contains("{group}") { self.group().await } else { String::new() };
        let (invited, left) = (template.contains("/invitations/{group}"), template.contains("/settings/groups/"));
        if let Ok(group) = group.parse() {
            let user = self.portal.db().find_user_by_name("user").await.unwrap().unwrap().user.id;
            if invited {
                self.portal.db().invite(group, "user", true, self.portal.by()).await.unwrap();
            } else if left {
                self.portal.db().set_member(group, user, true, self.portal.by()).await.unwrap();
            }
        }
        let of_people =
            ["/admin/", "/api/v1/users/", "/api/v1/groups/"].iter().any(|start| template.starts_with(start));
        template
            .replace("{id}", &id)
            .replace("{group}", &group)
            .replace("{*rest}", &format!("{id}/"))
            .replace("{name}", if of_people { "third" } else { "user" })
            .replace("{registry}", "nvcr.io")
            .replace("{row}", "0")
            .replace("{test}", &SessionId::new().to_string())
            .replace("{drawing}", "seen")
            .replace("{kind}", "not-found")
            .replace("{tag}", "loss")
            .replace("{*path}", "app.css")
    }

    /// The id of a fresh thing of the user's, of the kind that the route is about.
    async fn thing(&self, template: &str) -> String {
        if template.contains("/presets/") {
            let owner = self.portal.db().find_user_by_name("user").await.unwrap().unwrap().user;
            let new = crate::db::presets::preset(owner.id, &SessionId::new().to_string());
            let noted = Entry { at: new.created_at, actor: "test", action: "test", subject: "test", detail: "" };
            self.portal.db().add_preset(&new, 1000, &noted).await.unwrap();
            return new.id.to_string();
        }
        if template.contains("/sessions/") || template.starts_with("/s/") {
            return self.session().await;
        }
        if template.contains("/jobs/") {
            return self.job().await;
        }
        if template.contains("/diagnostics/") {
            let owner = self.portal.db().find_user_by_name("user").await.unwrap().unwrap().user;
            let new = crate::db::diagnostics::run(owner.id, "user", self.portal.clock.now());
            let noted = Entry { at: new.created_at, actor: "test", action: "test", subject: "test", detail: "" };
            self.portal.db().add_diagnostics(&new, &noted).await.unwrap();
            return new.id.to_string();
        }
        if template.contains("/datasets/") {
            let owner = self.portal.db().find_user_by_name("user").await.unwrap().unwrap().user;
            let at = self.portal.clock.now();
            let new = crate::db::datasets::dataset(owner.id, "user", "thing");
            let new = lyceum::model::Dataset { created_at: at, changed_at: at, ..new };
            let noted = Entry { at, actor: "test", action: "test", subject: "test", detail: "" };
            self.portal.db().add_dataset(&new, SPEC, None, &noted).await.unwrap();
            return new.id.to_string();
        }
        if template.contains("/sweeps/") {
            let owner = self.portal.db().find_user_by_name("user").await.unwrap().unwrap().user;
            return crate::db::sweeps::added(self.portal.db(), owner.id, "thing").await.to_string();
        }
        if template.contains("/models/") {
            let owner = self.portal.db().find_user_by_name("user").await.unwrap().unwrap().user;
            let at = self.portal.clock.now();
            let new = crate::db::models::model(owner.id, "user", "thing");
            let new = lyceum::model::Model { created_at: at, changed_at: at, ..new };
            let noted = Entry { at, actor: "test", action: "test", subject: "test", detail: "" };
            self.portal.db().add_model(&new, "{}", None, &noted).await.unwrap();
            return new.id.to_string();
        }
        if template.contains("/webhooks/") {
            // At a host that the portal does not call.
            let url = "https://elsewhere.example.org/".to_owned();
            let new = lyceum::db::webhooks::Webhook { url, ..crate::db::events::webhook("thing") };
            let noted = Entry { at: new.created_at, actor: "test", action: "test", subject: "test", detail: "" };
            assert!(self.portal.db().add_webhook(&new, 999, &noted).await.unwrap());
            return new.id.to_string();
        }
        if template.contains("/announcements/") {
            let draft = Draft {
                level: Level::Info,
                text: "thing".to_owned(),
                from: None,
                to: None,
                on_login: false,
                groups: Vec::new(),
            };
            return self.portal.portal.announcements.make("test", draft, None).await.unwrap().id.to_string();
        }
        if template.contains("/runs/") {
            let owner = self.portal.db().find_user_by_name("user").await.unwrap().unwrap().user;
            return crate::runs::external(&self.portal, owner.id, "thing").await.to_string();
        }
        if template.contains("/queue/") {
            return "12_3".to_owned();
        }
        if template.contains("/uploads/") {
            return crate::files::upload_id("", "thing", 1);
        }
        if template.contains("/users/") {
            let user = self.portal.db().find_user_by_name("third").await.unwrap().unwrap().user.id;
            let now = self.portal.clock.now();
            let (id, name) = (TokenId::new(), "thing".to_owned());
            let noted = Entry { at: now, actor: "test", action: "test", subject: "test", detail: "" };
            let token =
                Token { id, user, name, scopes: Vec::new(), created_at: now, expires_at: now, last_used_at: None };
            self.portal.db().add_token(&token, &id.to_string(), None, &noted).await.unwrap();
            return id.to_string();
        }
        assert!(template.contains("/tokens/"), "say here what `{{id}}` is in {template}");
        let made: Value = self.user.post("/api/v1/tokens", &json!({ "name": "thing" })).await.json().await.unwrap();
        made["id"].as_str().unwrap().to_owned()
    }

    /// The id of a fresh group.
    async fn group(&self) -> String {
        let name = format!("g{}", SessionId::new().short());
        let name = GroupName::parse(&name).unwrap();
        self.portal.db().add_group(&name, None, self.portal.by()).await.unwrap().to_string()
    }

    /// A job of the user's that waits.
    async fn job(&self) -> String {
        self.make_room().await;
        let body = json!({ "command": ["true"] });
        let made: Value = self.user.post("/api/v1/jobs", &body).await.json().await.unwrap();
        made["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }

    /// A session of the user's that waits. Those of the rows before have ended.
    async fn session(&self) -> String {
        self.make_room().await;
        let sessions = &self.portal.portal.sessions;
        let owner = self.portal.db().find_user_by_name("user").await.unwrap().unwrap().user;
        let id = SessionId::new();
        let new = NewSession {
            id,
            owner: owner.id,
            charged_group: None,
            app: "terminal".to_owned(),
            name: "thing".to_owned(),
            spec: SessionSpec {
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
            },
            light: true,
            cluster: "local".to_owned(),
            idempotency: None,
            job: None,
        };
        assert!(matches!(
            sessions.admission.insert(&new).await.unwrap(),
            AdmissionOutcome::Judged(Verdict::Admit { .. })
        ));
        id.to_string()
    }

    /// Ends what lives of the user's and of those who copied it.
    async fn make_room(&self) {
        let sessions = &self.portal.portal.sessions;
        let live = Filter { live_only: true, limit: 500, ..Filter::default() };
        for session in sessions.list(live).await.unwrap() {
            let ending = Ending {
                reason: EndReason::StoppedByOwner,
                exit_code: None,
                signal: None,
                at: self.portal.clock.now(),
                detail: String::new(),
            };
            assert!(self.portal.db().end_session(session.id, &ending).await.unwrap());
        }
    }
}

impl TestPortal {
    /// A token that lives for a second.
    async fn short_token(&self, browser: &Caller) -> Caller {
        let body = json!({ "name": "short", "expires_in_seconds": 1 });
        let made: Value = browser.post("/api/v1/tokens", &body).await.json().await.unwrap();
        self.bearer(made["secret"].as_str().unwrap())
    }
}
