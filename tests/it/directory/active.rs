//! Active Directory as Samba speaks it: a domain controller of the test's own, provisioned in a
//! temporary directory, with the LDAP service alone, on an address of the loopback that nobody
//! else has (its ports cannot be chosen). Only root may listen there.

use std::{
    collections::HashSet,
    fmt::Write as _,
    fs,
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use ldap3::{Ldap, LdapConnAsync, LdapConnSettings, Mod};
use lyceum::{
    auth::{ldap::Settings, rules::Rules},
    model::Role,
};
use tempfile::TempDir;

use super::{Certificate, House, role, sign_in_as, slapd::write_certificates};
use crate::{needs, wait::until};

const SAMBA: &str = "/usr/sbin/samba";
const LDBADD: &str = "/usr/bin/ldbadd";
const SCHEMA: &str = "/usr/share/samba/setup/ad-schema";
const BASE: &str = "DC=ad,DC=example,DC=org";
const ADMINISTRATOR: &str = "Admin-secret-1";
const SERVICE_PASSWORD: &str = "Portal-secret-1";
/// More than a domain controller answers with at once.
const CROWD: usize = 1050;

struct Controller {
    child: Child,
    address: String,
    directory: TempDir,
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Controller {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().display().to_string();
        let [a, b, c] = rand::random::<[u8; 3]>().map(|byte| byte.clamp(2, 250));
        let address = format!("127.{a}.{b}.{c}");
        write_certificates(directory.path(), Certificate::Good, &address);
        fs::set_permissions(directory.path().join("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
        finished(Command::new("/usr/bin/samba-tool").args(["domain", "provision", "--quiet"]).args([
            &format!("--targetdir={base}"),
            "--realm=AD.EXAMPLE.ORG",
            "--domain=ADX",
            "--server-role=dc",
            "--dns-backend=NONE",
            &format!("--adminpass={ADMINISTRATOR}"),
            "--host-name=dc1",
            "--host-ip=127.0.0.1",
            "--use-rfc2307",
            // Extended attributes of files may be none of this machine's.
            &format!("--option=posix:eadb={base}/private/eadb.tdb"),
        ]));
        let configuration = format!("{base}/own.conf");
        let folders: String =
            ["private", "state", "cache"].map(|name| format!("{name} dir = {base}/{name}\n")).concat();
        let text = format!(
            "[global]\nnetbios name = DC1\nrealm = AD.EXAMPLE.ORG\nworkgroup = ADX\n\
             server role = active directory domain controller\nserver services = ldap\n\
             interfaces = {address}/8\nbind interfaces only = yes\n{}\
             lock dir = {base}\npid directory = {base}\nncalrpc dir = {base}/ncalrpc\n\
             winbindd socket directory = {base}/winbindd\nntp signd socket directory = {base}/ntp\n\
             log file = {base}/log\ntls keyfile = {base}/server.key\ntls certfile = {base}/server.pem\n\
             tls cafile = {base}/ca.pem\nposix:eadb = {base}/private/eadb.tdb\n\
             [sysvol]\npath = {base}/state/sysvol\n[netlogon]\npath = {base}/state/sysvol/ad.example.org/scripts\n",
            folders.replace("state dir", "state directory").replace("cache dir", "cache directory"),
        );
        fs::write(&configuration, text).unwrap();
        let mut crowd = format!("dn: OU=Crowd,{BASE}\nobjectClass: organizationalUnit\n\n");
        for number in 0..CROWD {
            let _ =
                write!(crowd, "dn: CN=c{number},OU=Crowd,{BASE}\nobjectClass: contact\nmail: crowd@example.org\n\n");
        }
        fs::write(directory.path().join("crowd.ldif"), crowd).unwrap();
        let database = format!("{base}/private/sam.ldb");
        finished(
            Command::new(LDBADD)
                .args(["-H", &database, "--configfile", &configuration])
                .arg(format!("{base}/crowd.ldif")),
        );
        let child = Command::new(SAMBA)
            .args(["-s", &configuration, "--interactive", "--model=single"])
            .env("TDB_NO_FSYNC", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.path().join("said")).unwrap())
            .spawn()
            .unwrap();
        let mut controller = Self { child, address, directory };
        let said = controller.directory.path().join("said");
        until("the domain controller listens", || {
            assert!(controller.child.try_wait().unwrap().is_none(), "{}", fs::read_to_string(&said).unwrap());
            TcpStream::connect((controller.address.as_str(), 636)).is_ok()
        });
        controller
    }

    fn settings(&self) -> Settings {
        Settings {
            urls: vec![format!("ldaps://{}", self.address)],
            ca_file: self.directory.path().join("ca.pem"),
            bind_dn: format!("CN=portal,CN=Users,{BASE}"),
            bind_password: SERVICE_PASSWORD.to_owned(),
            rules: Rules {
                allow_groups: vec!["GPU Users".to_owned()],
                admin_groups: vec!["Portal Admins".to_owned()],
                ..Rules::default()
            },
            // As docs/directory.md has them.
            ..toml::from_str(
                "user_base = 'DC=ad,DC=example,DC=org'\ngroup_base = 'DC=ad,DC=example,DC=org'\nnested = 'in-chain'
                 user_filter = '(&(objectCategory=person)(objectClass=user))'\nuid_number_attribute = ''
                 username_attribute = 'sAMAccountName'\nsign_in_attributes = ['userPrincipalName']",
            )
            .unwrap()
        }
    }

    async fn administrator(&self) -> Ldap {
        // The certificate is looked at by those whom this test is about.
        let options = LdapConnSettings::new().set_no_tls_verify(true);
        let (driver, mut ldap) =
            LdapConnAsync::with_settings(options, &format!("ldaps://{}", self.address)).await.unwrap();
        ldap3::drive!(driver);
        ldap.simple_bind(&format!("CN=Administrator,CN=Users,{BASE}"), ADMINISTRATOR).await.unwrap().success().unwrap();
        ldap
    }
}

fn finished(command: &mut Command) {
    // What the test made of itself need not outlast a loss of power.
    let output = command.env("TDB_NO_FSYNC", "1").stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn one(value: impl AsRef<[u8]>) -> HashSet<Vec<u8>> {
    HashSet::from([value.as_ref().to_vec()])
}

fn secret(name: &str) -> String {
    format!("{name}-Secret-1")
}

fn staff(name: &str) -> String {
    format!("CN={name} Doe,OU=Staff,{BASE}")
}

async fn add_person(ldap: &mut Ldap, dn: &str, name: &str, password: &str, more: &[(&str, &str)]) {
    // A password is written as UTF-16 between quotes.
    let quoted: Vec<u8> = format!("\"{password}\"").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut attributes = vec![
        (b"objectClass".to_vec(), one("user")),
        (b"sAMAccountName".to_vec(), one(name)),
        (b"userPrincipalName".to_vec(), one(format!("{}.doe@ad.example.org", name.to_lowercase()))),
        (b"displayName".to_vec(), one(format!("{name} Döe"))),
        (b"unicodePwd".to_vec(), one(quoted)),
    ];
    if !more.iter().any(|(name, _)| *name == "userAccountControl") {
        attributes.push((b"userAccountControl".to_vec(), one("512")));
    }
    attributes.extend(more.iter().map(|(name, value)| (name.as_bytes().to_vec(), one(value))));
    ldap.add(dn, attributes).await.unwrap().success().unwrap();
}

async fn add_group(ldap: &mut Ldap, name: &str, member: &str) {
    let attributes = vec![("objectClass", HashSet::from(["group"])), ("member", HashSet::from([member]))];
    ldap.add(&format!("CN={name},OU=Staff,{BASE}"), attributes).await.unwrap().success().unwrap();
}

async fn replace(ldap: &mut Ldap, dn: &str, attribute: &str, value: &str) {
    ldap.modify(dn, vec![Mod::Replace(attribute, HashSet::from([value]))]).await.unwrap().success().unwrap();
}

#[tokio::test]
async fn active_directory() {
    let there = [SAMBA, LDBADD, SCHEMA].iter().all(|path| Path::new(path).exists());
    if !needs::root() || !needs::met("Samba's domain controller and ldb-tools", there) {
        return;
    }
    let controller = tokio::task::spawn_blocking(Controller::start).await.unwrap();
    let mut admin = controller.administrator().await;
    add_person(&mut admin, &format!("CN=portal,CN=Users,{BASE}"), "portal", SERVICE_PASSWORD, &[]).await;
    let unit = vec![("objectClass", HashSet::from(["organizationalUnit"]))];
    admin.add(&format!("OU=Staff,{BASE}"), unit).await.unwrap().success().unwrap();
    for (name, more) in [
        ("Alice", &[] as &[_]),
        ("Carol", &[]),
        ("Disabled", &[("userAccountControl", "514")]),
        ("Expired", &[("accountExpires", "132223104000000000")]),
        ("Changes", &[("pwdLastSet", "0")]),
        ("Locked", &[]),
        ("Outside", &[]),
    ] {
        add_person(&mut admin, &staff(name), name, &secret(name), more).await;
    }
    let group = |name: &str| format!("CN={name},OU=Staff,{BASE}");
    add_group(&mut admin, "Team", &staff("Alice")).await;
    add_group(&mut admin, "Lab (R&D)", &group("Team")).await;
    add_group(&mut admin, "GPU Users", &group("Lab (R&D)")).await;
    add_group(&mut admin, "Portal Admins", &staff("Carol")).await;
    let more: HashSet<_> =
        [staff("Carol"), staff("Disabled"), staff("Expired"), staff("Changes"), staff("Locked")].into();
    admin.modify(&group("GPU Users"), vec![Mod::Add("member".to_owned(), more)]).await.unwrap().success().unwrap();

    // By either name, in any case; groups by the directory's own rule.
    let house = House::new(controller.settings()).await;
    let enter = async |typed: &str, name: &str| house.enter_with(typed, &secret(name)).await;
    let alice = enter("alice", "Alice").await.unwrap();
    assert_eq!((alice.name.as_str(), alice.display_name.as_str(), alice.role), ("alice", "Alice Döe", Role::User));
    assert_eq!(alice.groups, ["GPU Users", "Lab (R&D)", "Team"]);
    assert_eq!(alice.uid_number, None);
    for typed in ["ALICE", "alice.doe@ad.example.org", "Alice.Doe@AD.example.org"] {
        assert_eq!(enter(typed, "Alice").await.unwrap().id, alice.id, "{typed}");
    }
    assert_eq!(enter("carol", "Carol").await.unwrap().role, Role::Admin);
    for nested in ["walk", "off"] {
        let house = House::new(Settings { nested: super::toml_nested(nested), ..controller.settings() }).await;
        let entered = house.enter_with("alice", &secret("Alice")).await;
        assert_eq!(entered.is_ok(), nested == "walk", "{nested}");
    }

    // Who may not be in, and why.
    replace(&mut admin, BASE, "lockoutThreshold", "3").await;
    for _ in 0..3 {
        assert!(house.refused("locked", "wrong").await.contains("rejected the password"));
    }
    for (name, because) in [
        ("disabled", "is disabled in the directory"),
        ("expired", "is expired in the directory"),
        ("changes", "rejected the password"),
        ("locked", "rejected the password"),
        ("outside", "allow_groups"),
        ("administrator", "allow_groups"),
        ("nobody-such", "no matching user"),
        ("ADX\\alice", "no matching user"),
    ] {
        let password = match name {
            "administrator" => ADMINISTRATOR.to_owned(),
            name => secret(&(name[..1].to_uppercase() + &name[1..])),
        };
        let told = house.refused(name, &password).await;
        assert!(told.contains(because), "{name}: {told}");
    }

    // objectGUID stays when somebody marries and moves.
    admin
        .modifydn(&staff("Alice"), "CN=Alison Roe", true, Some(&format!("CN=Users,{BASE}")))
        .await
        .unwrap()
        .success()
        .unwrap();
    let moved = format!("CN=Alison Roe,CN=Users,{BASE}");
    replace(&mut admin, &moved, "sAMAccountName", "Alison").await;
    let alison = enter("alison", "Alice").await.unwrap();
    assert_eq!((alison.id, alison.name.as_str()), (alice.id, "alison"));
    assert_eq!(alison.groups, ["GPU Users", "Lab (R&D)", "Team"], "groups follow the move");

    // Pages: a controller gives a thousand entries at once.
    let crowd = Settings {
        user_filter: "(objectClass=contact)".to_owned(),
        username_attribute: "mail".to_owned(),
        ..controller.settings()
    };
    let told = House::new(crowd).await.refused("crowd@example.org", "x").await;
    assert!(told.contains(&format!("{CROWD} matching entries")), "{told}");

    // Another look at those who are in.
    let (portal, ldap) = super::portal(controller.settings()).await;
    let (alison, carol) =
        (sign_in_as(&portal, "alison", &secret("Alice")).await, sign_in_as(&portal, "carol", &secret("Carol")).await);
    assert_eq!(role(&carol).await, "admin");
    admin
        .modify(&group("Portal Admins"), vec![Mod::Delete("member", HashSet::new())])
        .await
        .unwrap()
        .success()
        .unwrap();
    replace(&mut admin, &moved, "userAccountControl", "514").await;
    ldap.refresh().await.unwrap();
    portal.portal.access.poll().await.unwrap();
    assert_eq!(role(&carol).await, "user");
    assert_eq!(alison.get("/api/v1/me").await.status(), 401);
    replace(&mut admin, &moved, "userAccountControl", "512").await;
    sign_in_as(&portal, "alison", &secret("Alice")).await;
}
