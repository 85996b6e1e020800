//! Sign-in by a directory, against a real OpenLDAP: who gets in, who does not and what the
//! log says of it, which groups and roles follow, and what happens when people, passwords or
//! the directory itself go away.

mod active;
mod by_proxy;
mod leaving;
mod peers;
mod refresh;
mod slapd;

use std::sync::Arc;

use lyceum::{
    auth::{
        Authenticator, Error, Ldap,
        attempts::Attempts,
        ldap::{Settings, probe},
        name::SignInName,
        rules::Rules,
    },
    db::{Config, Db},
    model::{Clock, Role, User, UserId},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::portal::{Caller, START, TestPortal};
use slapd::{BASE, Certificate, Slapd, password, person_dn};

/// A directory's authenticator with a database of its own.
struct House {
    ldap: Ldap,
    db: Db,
    _directory: TempDir,
}

impl House {
    async fn new(settings: Settings) -> Self {
        assert_eq!(settings.validate(), Vec::<String>::new());
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(&Config::default(), directory.path()).await.unwrap();
        let ldap = Ldap::new(db.clone(), Clock::manual(START), settings).await.unwrap();
        Self { ldap, db, _directory: directory }
    }

    async fn enter(&self, name: &str) -> Result<User, Error> {
        self.enter_with(name, &password(&name.to_lowercase())).await
    }

    async fn enter_with(&self, name: &str, password: &str) -> Result<User, Error> {
        let id = self.ask(name, password).await?;
        Ok(self.db.find_user(id).await.unwrap().unwrap().user)
    }

    /// As a portal asks that has never been asked before.
    async fn ask(&self, name: &str, password: &str) -> Result<UserId, Error> {
        let name = SignInName::parse(name)?;
        self.ldap.accepts(&name)?;
        let attempts = Attempts::new(Clock::manual(START), None);
        let attempt = attempts.begin(&name.canonical, [192, 0, 2, 1].into()).await?;
        self.ldap.authenticate(&name, password, &attempt).await
    }

    /// Why somebody was refused.
    async fn refused(&self, name: &str, password: &str) -> String {
        match self.ask(name, password).await {
            Err(Error::BadCredentials { because }) => because.into_owned(),
            other => panic!("{name:?} was not refused: {other:?}"),
        }
    }
}

#[tokio::test]
async fn people_sign_in_over_every_kind_of_tls() {
    let slapd = Slapd::start();
    let direct = Settings {
        user_dn: format!("uid={{username}},ou=people,{BASE}"),
        bind_dn: String::new(),
        bind_password: String::new(),
        group_base: String::new(),
        ..slapd.settings()
    };
    for settings in [
        slapd.settings(),
        Settings { urls: vec![slapd.ldaps()], ..slapd.settings() },
        Settings { starttls: false, insecure: true, ..slapd.settings() },
        direct,
    ] {
        let house = House::new(settings).await;
        let alice = house.enter("alice").await.unwrap();
        assert_eq!((alice.name.as_str(), alice.display_name.as_str()), ("alice", "Alice Åström"));
        assert_eq!((alice.source.as_str(), alice.uid_number, alice.role), ("ldap", Some(20001), Role::User));
        assert_eq!(house.enter("alice").await.unwrap().id, alice.id, "the second time she is the same");
        for typed in ["Alice", " ALICE ", "ａｌｉｃｅ"] {
            let again = house.enter_with(typed, &password("alice")).await.unwrap();
            assert_eq!(again.id, alice.id, "{typed:?} is the same name");
        }
        assert!(house.refused("alice", "wrong").await.contains("rejected the password"));
    }
}

#[tokio::test]
async fn groups_of_every_kind_and_roles() {
    let slapd = Slapd::start();
    let house = House::new(banning(&slapd)).await;
    let alice = house.enter("alice").await.unwrap();
    assert_eq!(alice.groups, ["faculty", "lab", "research", "unique", "university"]);
    assert_eq!(house.enter("bob").await.unwrap().groups, ["loop", "pool", "primary"], "a loop of groups ends");
    let carol = house.enter("carol").await.unwrap();
    assert_eq!((carol.role, carol.groups), (Role::Admin, vec!["admins".to_owned()]));
    assert!(house.refused("dan", &password("dan")).await.contains("deny_groups"));

    let university = vec![format!("CN=University, OU=Groups,{BASE}")];
    let few = ruled(&slapd, |rules| rules.allow_groups = university);
    let house = House::new(few).await;
    assert!(house.enter("alice").await.is_ok(), "by a group's group's group");
    assert!(house.refused("bob", &password("bob")).await.contains("allow_groups"));

    let flat = Settings { nested: toml_nested("off"), ..slapd.settings() };
    assert_eq!(House::new(flat).await.enter("alice").await.unwrap().groups, ["lab", "research", "unique"]);

    // Where groups are not searched, the entry's own `memberOf` counts.
    slapd.replace(&format!("cn=lab,ou=groups,{BASE}"), "member", &person_dn("bob")).await;
    let listed = Settings { group_base: String::new(), ..slapd.settings() };
    assert_eq!(House::new(listed).await.enter("bob").await.unwrap().groups, ["lab"]);
}

fn toml_nested(word: &str) -> lyceum::auth::ldap::Nested {
    toml::from_str::<Settings>(&format!("nested = {word:?}")).unwrap().nested
}

/// `ldap_empty_password`: an empty password is an anonymous bind, which succeeds.
#[tokio::test]
async fn ldap_empty_password() {
    let slapd = Slapd::start();
    let house = House::new(slapd.settings()).await;
    for password in ["", "\0", "alice-secret\0", &"x".repeat(2000)] {
        assert!(house.refused("alice", password).await.contains("password"));
    }
}

/// `ldap_injection_corpus`: what is typed is a name and nothing else.
#[tokio::test]
async fn ldap_injection_corpus() {
    let slapd = Slapd::start();
    let direct = Settings { user_dn: format!("uid={{username}},ou=people,{BASE}"), ..slapd.settings() };
    for settings in [slapd.settings(), direct] {
        let house = House::new(settings).await;
        let long = "x".repeat(1_000_000);
        for name in [
            "*",
            "*)(uid=*",
            "alice)(|(uid=*",
            "a*",
            "\\2a",
            "alice\\00",
            "alice\0",
            "",
            " ",
            "ali ce",
            "alice,ou=people",
            "alice+uid=bob",
            "#alice",
            "\"alice\"",
            "аlice",
            "alice\u{200b}",
            "alice\n",
            "uid=alice",
            &long,
        ] {
            house.refused(name, &password("alice")).await;
        }
        for nobody in ["root", "-rf", "a/b", "zero", "system", "nouid"] {
            house.refused(nobody, &password(nobody)).await;
        }
        assert_eq!(house.db.count_users().await.unwrap(), 0, "nobody was made");
    }
    let house = House::new(slapd.settings()).await;
    let twins = house.refused("twin", &password("twin")).await;
    assert!(twins.contains("2 matching entries"), "{twins}");
    assert!(house.refused("nouid", &password("nouid")).await.contains("uidNumber"));
    assert!(house.refused("zero", &password("zero")).await.contains("not the uid of a user"));
}

/// `ldap_bad_cert_refused`: a server that cannot prove who it is hears no password.
#[tokio::test]
async fn ldap_bad_cert_refused() {
    for kind in [Certificate::Expired, Certificate::OfAnotherHost, Certificate::OfAnotherAuthority] {
        let slapd = Slapd::start_with(kind);
        for url in [slapd.ldap(), slapd.ldaps()] {
            let house = House::new(Settings { urls: vec![url], ..slapd.settings() }).await;
            let refused = house.enter("alice").await.unwrap_err();
            assert!(matches!(refused, Error::Directory(_)), "{kind:?}: {refused:?}");
        }
    }
}

/// A renamed person keeps everything; a name that is used again inherits nothing.
#[tokio::test]
async fn people_are_known_by_the_directorys_id() {
    let slapd = Slapd::start();
    let house = House::new(slapd.settings()).await;
    let (alice, bob) = (house.enter("alice").await.unwrap(), house.enter("bob").await.unwrap());
    slapd.rename(&person_dn("alice"), "uid=alison").await;
    slapd.replace(&person_dn("alison"), "userPassword", &password("alison")).await;
    let alison = house.enter("alison").await.unwrap();
    assert_eq!((alison.id, alison.name.as_str()), (alice.id, "alison"));

    slapd.delete(&person_dn("bob")).await;
    slapd.rename(&person_dn("carol"), "uid=bob").await;
    slapd.replace(&person_dn("bob"), "userPassword", &password("bob")).await;
    assert!(house.refused("bob", &password("bob")).await.contains("belongs to another user"));
    assert!(house.db.link_user(&bob.name, "ldap", crate::db::BY).await.unwrap());
    assert_eq!(house.enter("bob").await.unwrap().id, bob.id, "an administrator gave it to them");
    assert_eq!(house.enter("bob").await.unwrap().id, bob.id, "for good");
}

/// `group_removed_loses_admin`, and everything else that another look finds.
#[tokio::test]
async fn group_removed_loses_admin() {
    let slapd = Slapd::start();
    let (portal, ldap) = portal(slapd.settings()).await;
    let (alice, carol) = (sign_in(&portal, "alice").await, sign_in(&portal, "carol").await);
    let token = portal.token(&alice, &[]).await;
    assert_eq!(role(&carol).await, "admin");
    slapd.replace(&format!("cn=admins,ou=groups,{BASE}"), "member", &person_dn("bob")).await;
    ldap.refresh().await.unwrap();
    portal.portal.access.poll().await.unwrap();
    assert_eq!(role(&carol).await, "user", "without the group no administrator");

    slapd.replace(&person_dn("alice"), "pwdAccountLockedTime", "000001010000Z").await;
    ldap.refresh().await.unwrap();
    portal.portal.access.poll().await.unwrap();
    assert_eq!(alice.get("/api/v1/me").await.status(), 401, "her login has ended");
    assert_eq!(token.get("/api/v1/me").await.status(), 401, "her token rests");
    assert_eq!(carol.get("/api/v1/me").await.status(), 200);
    let audit = portal.db().list_audit(1).await.unwrap();
    assert_eq!((audit[0].action.as_str(), audit[0].subject.as_str()), ("access.lost", "alice"));

    slapd.replace(&person_dn("alice"), "userPassword", &password("alice")).await;
    ldap.refresh().await.unwrap();
    portal.portal.access.poll().await.unwrap();
    assert_eq!(token.get("/api/v1/me").await.status(), 200, "a new password unlocked her, and the token wakes");
    slapd.delete(&person_dn("alice")).await;
    ldap.refresh().await.unwrap();
    portal.portal.access.poll().await.unwrap();
    assert_eq!(token.get("/api/v1/me").await.status(), 401);
}

/// A directory that suddenly knows nobody is believed to be broken.
#[tokio::test]
async fn a_directory_that_forgot_everybody_changes_nothing() {
    let slapd = Slapd::start();
    let (portal, ldap) = portal(slapd.settings()).await;
    let mut people = Vec::new();
    for name in ["alice", "bob", "carol"] {
        people.push(sign_in(&portal, name).await);
        slapd.delete(&person_dn(name)).await;
    }
    assert!(ldap.refresh().await.unwrap_err().to_string().contains("none of the 3 users"));
    portal.portal.access.poll().await.unwrap();
    for person in people {
        assert_eq!(person.get("/api/v1/me").await.status(), 200);
    }
}

/// `ldap_down`: sign-in says so with 503; people who are in go on.
#[tokio::test]
async fn ldap_down() {
    let mut slapd = Slapd::start();
    let (portal, ldap) = portal(slapd.settings()).await;
    portal.add_user("keeper", Role::Admin).await;
    let alice = sign_in(&portal, "alice").await;
    slapd.stop();
    let answer = portal.try_sign_in("bob", &password("bob")).await;
    assert_eq!((answer.status().as_u16(), answer.headers()["retry-after"].to_str().unwrap()), (503, "30"));
    let text = answer.text().await.unwrap();
    assert!(text.contains("directory") && !text.contains("localhost"), "the cause stays inside: {text}");
    assert!(ldap.refresh().await.is_err());
    assert_eq!(alice.get("/api/v1/me").await.status(), 200);
    let keeper = portal.sign_in("keeper").await;
    assert_eq!(role(&keeper).await, "admin", "an account of our own is the way in meanwhile");
    slapd.start_again();
    sign_in(&portal, "bob").await;
}

/// What the directory counts stays below what makes it lock an account.
#[tokio::test]
async fn wrong_passwords_do_not_lock_the_account_there() {
    let slapd = Slapd::start();
    let (portal, _ldap) = portal(slapd.settings()).await;
    let mut statuses = Vec::new();
    for _ in 0..12 {
        statuses.push(portal.try_sign_in("alice", "wrong").await.status().as_u16());
    }
    assert!(statuses.starts_with(&[401, 401, 401, 429]), "{statuses:?}");
    let house = House::new(slapd.settings()).await;
    assert!(house.enter("alice").await.is_ok(), "the directory has not locked her");
}

/// However a name is spelled, and by whatever attribute, it is one person's for whom failures count.
#[tokio::test]
async fn no_spelling_locks_the_account_there() {
    let slapd = Slapd::start();
    let by_mail = Settings { sign_in_attributes: vec!["mail".to_owned()], ..slapd.settings() };
    let user_dn = format!("uid={{username}},ou=people,{BASE}");
    let direct = Settings { user_dn: user_dn.clone(), ..slapd.settings() };
    let direct_by_mail = Settings { user_dn, ..by_mail.clone() };
    for (settings, name) in [(slapd.settings(), "alice"), (by_mail, "bob"), (direct, "carol"), (direct_by_mail, "twin")]
    {
        let (portal, _ldap) = portal(settings).await;
        let big = name.to_uppercase();
        let wide: String = name.chars().filter_map(|c| char::from_u32(u32::from(c) + 0xfee0)).collect();
        let spellings = [
            name.to_owned(),
            big.clone(),
            format!(" {name}"),
            format!("{name}@example.org"),
            format!("\u{a0}{name}\u{3000}"),
            wide.clone(),
            format!("{wide}@example.org"),
            format!("  {big}@EXAMPLE.org\t"),
            format!("{name}\u{200b}"),
            format!("{name}@example.org\u{ad}"),
            format!("\u{feff}{name}"),
            person_dn(name),
            format!("uid={name}"),
            format!("{name}*"),
        ];
        for typed in &spellings {
            let status = portal.try_sign_in(typed, "wrong").await.status();
            assert!(matches!(status.as_u16(), 401 | 429), "{typed:?}: {status}");
        }
        let again = spellings[..8].iter().map(|typed| portal.try_sign_in(typed, "wrong"));
        for answer in futures_util::future::join_all(again).await {
            assert_ne!(answer.status(), 200);
        }
        assert_eq!(portal.try_sign_in(&big, &password(name)).await.status(), 429, "strangers wait");
        assert!(slapd.failures(name).await <= 3, "{name}: the directory has heard too many");
    }
}

/// Attempts at once are counted one by one, and those of an account of our own alike.
#[tokio::test]
async fn many_attempts_at_once_lock_nobody() {
    let slapd = Slapd::start();
    let (portal, _ldap) = portal(slapd.settings()).await;
    portal.add_user("root-admin", Role::Admin).await;
    for name in ["dan", "root-admin"] {
        let typed = |n: usize| format!("{}{name}", " ".repeat(n));
        let names: Vec<String> = (0..20).map(typed).collect();
        let answers =
            futures_util::future::join_all(names.iter().map(|typed| portal.try_sign_in(typed, "wrong"))).await;
        let looked_at = answers.iter().filter(|answer| answer.status() == 401).count();
        assert_eq!(looked_at, 3, "of 20 attempts at {name}");
    }
    assert_eq!(slapd.failures("dan").await, 3);
    let row = portal.db().list_audit(1).await.unwrap().remove(0);
    assert_eq!((row.action.as_str(), row.subject.as_str()), ("sign_in.failed", "root-admin"), "by its one name");
}

/// Whatever is typed, whoever is refused hears the same sentence, nobody is made, and the audit
/// table has the reason; a name that is nobody's is not kept there, for it may be a password.
#[tokio::test]
async fn every_refusal_is_one_sentence() {
    let slapd = Slapd::start();
    let settings = banning(&slapd);
    let (portal, _ldap) = portal(settings).await;
    sign_in(&portal, "alice").await;
    slapd.replace(&person_dn("carol"), "pwdAccountLockedTime", "000001010000Z").await;
    let never = "a name must have 1 to 32 characters";
    let long = "x".repeat(1_000_000);
    let mut answers = std::collections::BTreeSet::new();
    for (name, typed, because) in [
        ("alice", "wrong", "rejected the password of uid=alice"),
        ("alice", "", "cannot be a password"),
        ("alice", "alice-secret\0", "cannot be a password"),
        ("nobody-such", "x", "no matching user"),
        ("", "x", "cannot be a name"),
        ("*", "x", never),
        ("*)(uid=*", "x", never),
        ("alice)(|(uid=*", "alice-secret", never),
        ("alice\\00", "alice-secret", never),
        ("alice\0", "alice-secret", "cannot be a name"),
        ("\\61lice", "alice-secret", never),
        ("alice,ou=people", "alice-secret", never),
        ("alice+uid=bob", "alice-secret", never),
        ("#alice", "alice-secret", never),
        ("\"alice\"", "alice-secret", never),
        ("аlice", "alice-secret", never),
        ("alice\u{200b}", "alice-secret", "cannot be a name"),
        (&long, "x", "cannot be a name"),
        ("twin", "twin-secret", "2 matching entries"),
        ("nouid", "nouid-secret", "has no uidNumber"),
        ("zero", "zero-secret", "not the uid of a user"),
        ("system", "system-secret", "not the uid of a user"),
        ("root", "root-secret", "name of a system account"),
        ("-rf", "-rf-secret", "a name must have 1 to 32 characters"),
        ("a/b", "a/b-secret", "a name must have 1 to 32 characters"),
        ("dan", "dan-secret", "deny_groups"),
        ("carol", "carol-secret", "is locked in the directory"),
    ] {
        let answer = portal.try_sign_in(name, typed).await;
        assert_eq!(answer.status(), 401, "{because}");
        let mut body: Value = answer.json().await.unwrap();
        body.as_object_mut().unwrap().remove("instance");
        answers.insert(body.to_string());
        let row = portal.db().list_audit(1).await.unwrap().remove(0);
        let kept = if name == "alice" { "alice" } else { "(unknown name)" };
        assert_eq!((row.action.as_str(), row.actor.as_str(), row.subject.as_str()), ("sign_in.failed", kept, kept));
        // Directories differ in what they take for one name; the portal refuses what is spelled otherwise.
        let fits = because.split('|').any(|because| row.detail.contains(because));
        assert!(fits, "{because}: {}", row.detail);
        assert!(row.detail.len() < 500, "{} bytes are kept of a name", row.detail.len());
        portal.clock.advance(3600);
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(portal.db().count_users().await.unwrap(), 1, "nobody but alice was made");
    let bob = sign_in(&portal, "bob").await;
    assert_eq!(bob.get("/api/v1/me").await.status(), 200, "groups that contain each other hold nobody up");
}

/// `lyceum check` names the step that fails and the setting that mends it.
#[tokio::test]
async fn check_names_the_step_that_fails() {
    let slapd = Slapd::start();
    let other = Slapd::start_with(Certificate::OfAnotherAuthority);
    let told = async |settings: Settings| {
        let steps = probe::steps(&settings, START).await;
        let line = |step: &probe::Step| match &step.outcome {
            Ok(what) => format!("ok {}: {what}", step.about),
            Err(trouble) => format!("fault {}: {} -> {}", step.about, trouble.what, trouble.fix),
        };
        steps.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    let good = told(slapd.settings()).await;
    assert!(!good.contains("fault") && good.contains("StartTLS") && good.contains("admins: is a group"), "{good}");
    for (settings, words) in [
        (Settings { urls: vec!["ldap://no-such-host.invalid".to_owned()], ..slapd.settings() }, "is not found"),
        (Settings { urls: vec!["ldap://127.0.0.1:1".to_owned()], ..slapd.settings() }, "firewall"),
        (Settings { ca_file: slapd.authority(), ..other.settings() }, "auth.ldap.ca_file"),
        (Settings { ca_file: "/nonexistent".into(), ..slapd.settings() }, "auth.ldap.ca_file"),
        (Settings { bind_password: "wrong".to_owned(), ..slapd.settings() }, "auth.ldap.bind_password_file"),
        (Settings { user_base: format!("ou=nowhere,{BASE}"), ..slapd.settings() }, "auth.ldap.user_base"),
        (Settings { username_attribute: "sAMAccountName".to_owned(), ..slapd.settings() }, "username_attribute"),
        (ruled(&slapd, |rules| rules.admin_groups = vec!["no-such".to_owned()]), "auth.ldap.admin_groups"),
    ] {
        let text = told(settings).await;
        assert!(text.contains("fault") && text.contains(words), "{words}: {text}");
    }
}

/// A directory's settings with other rules.
fn ruled(slapd: &Slapd, change: impl FnOnce(&mut Rules)) -> Settings {
    let mut settings = slapd.settings();
    change(&mut settings.rules);
    settings
}

/// Where those of one group may not sign in.
fn banning(slapd: &Slapd) -> Settings {
    ruled(slapd, |rules| rules.deny_groups = vec!["banned".to_owned()])
}

/// A portal whose people are the directory's.
async fn portal(settings: Settings) -> (TestPortal, Arc<Ldap>) {
    let mut made = None;
    let portal = TestPortal::start_as(async |db, clock| {
        let ldap = Arc::new(Ldap::new(db, clock, settings).await.unwrap());
        made = Some(ldap.clone());
        ldap as Arc<dyn Authenticator>
    })
    .await;
    (portal, made.unwrap())
}

async fn sign_in(portal: &TestPortal, name: &str) -> Caller {
    sign_in_as(portal, name, &password(name)).await
}

async fn sign_in_as(portal: &TestPortal, name: &str, password: &str) -> Caller {
    portal.sign_in_with(name, password).await
}

async fn role(caller: &Caller) -> String {
    let me: Value = caller.get("/api/v1/me").await.json().await.unwrap();
    me["role"].as_str().unwrap_or_default().to_owned()
}

/// A group that is removed from the directory while it has limits: they rest, and hold again when it is back.
#[tokio::test]
async fn a_group_goes_and_its_limits_rest() {
    let slapd = Slapd::start();
    let (portal, ldap) = portal(slapd.settings()).await;
    portal.add_user("keeper", Role::Admin).await;
    let keeper = portal.sign_in("keeper").await;
    let alice = sign_in(&portal, "alice").await;
    let _bob = sign_in(&portal, "bob").await;
    let set = json!({ "each": { "sessions": 9 }, "total": { "cpus": 64 }, "chargeable": true });
    let quota = async |caller: &Caller, name: &str| -> Value {
        caller.get(&format!("/api/v1/quotas/groups/{name}")).await.json().await.unwrap()
    };
    let sessions = async || {
        let standing: Value = keeper.get("/api/v1/quotas/users/alice").await.json().await.unwrap();
        standing["effective"]["sessions"]["source"].as_str().unwrap().to_owned()
    };
    for group in ["lab", "loop"] {
        let changed =
            keeper.request("PATCH", &format!("/api/v1/quotas/groups/{group}")).json(&set).send().await.unwrap();
        assert_eq!(changed.status(), 200);
    }
    ldap.refresh().await.unwrap();
    assert_eq!((sessions().await, quota(&keeper, "lab").await.get("absent_since")), ("group lab".to_owned(), None));

    slapd.delete(&format!("cn=lab,ou=groups,{BASE}")).await;
    ldap.refresh().await.unwrap();
    portal.portal.access.poll().await.unwrap();
    let gone = quota(&keeper, "lab").await;
    assert!(gone["absent_since"].is_string() && gone["each"]["sessions"]["value"] == 9, "it is told: {gone}");
    assert_ne!(sessions().await, "group lab", "and binds nobody");
    assert_eq!(quota(&keeper, "loop").await.get("absent_since"), None, "the others are there");
    let health: Value = keeper.get("/api/v1/health").await.json().await.unwrap();
    let found = health["findings"].as_array().unwrap().iter().find(|one| one["name"] == "groups").unwrap().clone();
    assert!(found["what"].as_str().unwrap().contains("no longer exist in the directory: lab"), "{found}");
    let page = crate::pages::markup::one_line(&keeper.visit("/admin/quotas/groups").await.text().await.unwrap());
    assert_eq!(page.matches("gone from the directory").count(), 1, "{page}");
    let id = portal.db().find_quota_group("lab").await.unwrap().unwrap().id;
    let page =
        crate::pages::markup::one_line(&keeper.visit(&format!("/admin/groups/{id}")).await.text().await.unwrap());
    assert!(page.contains("The directory has had no such group since"), "{page}");
    assert!(page.contains(&format!("/admin/groups/{id}/remove")), "it can be removed: {page}");
    assert_eq!(alice.get("/api/v1/me").await.status(), 200);

    slapd.add_group("lab", "alice").await;
    ldap.refresh().await.unwrap();
    assert_eq!((sessions().await, quota(&keeper, "lab").await.get("absent_since")), ("group lab".to_owned(), None));

    slapd.delete(&format!("cn=lab,ou=groups,{BASE}")).await;
    ldap.refresh().await.unwrap();
    assert_eq!(keeper.request("DELETE", "/api/v1/groups/loop").send().await.unwrap().status(), 409);
    assert_eq!(keeper.request("DELETE", &format!("/api/v1/groups/{id}")).send().await.unwrap().status(), 204);
    assert!(portal.db().find_quota_group("lab").await.unwrap().is_none());
}
