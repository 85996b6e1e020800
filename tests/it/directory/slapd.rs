//! A real OpenLDAP for one test: its own authority and certificate, its own database, on
//! free ports of the loopback. It ends with the value; entries are changed by LDAP itself.

use std::{
    fmt::Write as _,
    fs,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ldap3::{Ldap, LdapConnAsync, Mod, Scope, SearchEntry};
use lyceum::auth::{ldap::Settings, rules::Rules};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;

pub const BASE: &str = "dc=example,dc=org";
pub const SERVICE: &str = "cn=portal,ou=services,dc=example,dc=org";
pub const SERVICE_PASSWORD: &str = "portal-secret";
const ROOT: &str = "cn=root,dc=example,dc=org";

/// What is wrong with the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    Good,
    Expired,
    OfAnotherHost,
    /// Signed by an authority that nobody was told of.
    OfAnotherAuthority,
}

pub struct Slapd {
    child: Child,
    plain_port: u16,
    tls_port: u16,
    directory: TempDir,
}

impl Drop for Slapd {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Slapd {
    pub fn start() -> Self {
        Self::start_with(Certificate::Good)
    }

    pub fn start_with(certificate: Certificate) -> Self {
        let directory = tempfile::tempdir().unwrap();
        write_certificates(directory.path(), certificate, "localhost");
        let base = directory.path().display();
        fs::create_dir(directory.path().join("db")).unwrap();
        fs::write(directory.path().join("slapd.conf"), CONFIGURATION.replace("{base}", &base.to_string())).unwrap();
        fs::write(directory.path().join("data.ldif"), people()).unwrap();
        let loaded = Command::new("/usr/sbin/slapadd")
            .args(["-q", "-f", &format!("{base}/slapd.conf"), "-l", &format!("{base}/data.ldif")])
            .output()
            .expect("slapd is installed (Debian: apt-get install slapd)");
        assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
        let (plain_port, tls_port) = (free_port(), free_port());
        let child = spawn(directory.path(), plain_port, tls_port);
        let mut slapd = Self { child, plain_port, tls_port, directory };
        slapd.wait();
        slapd
    }

    /// Ends the server; the data stay.
    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn start_again(&mut self) {
        self.child = spawn(self.directory.path(), self.plain_port, self.tls_port);
        self.wait();
    }

    pub fn ldap(&self) -> String {
        format!("ldap://localhost:{}", self.plain_port)
    }

    pub fn ldaps(&self) -> String {
        format!("ldaps://localhost:{}", self.tls_port)
    }

    pub fn authority(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// What a site with this directory would configure.
    pub fn settings(&self) -> Settings {
        Settings {
            urls: vec![self.ldap()],
            ca_file: self.authority(),
            bind_dn: SERVICE.to_owned(),
            bind_password: SERVICE_PASSWORD.to_owned(),
            user_base: format!("ou=people,{BASE}"),
            group_base: BASE.to_owned(),
            rules: Rules {
                allow_groups: vec!["*".to_owned()],
                admin_groups: vec!["admins".to_owned()],
                ..Rules::default()
            },
            ..Settings::default()
        }
    }

    /// A connection that may change everything.
    pub async fn root(&self) -> Ldap {
        let (driver, mut ldap) = LdapConnAsync::new(&self.ldap()).await.unwrap();
        ldap3::drive!(driver);
        ldap.simple_bind(ROOT, "root-secret").await.unwrap().success().unwrap();
        ldap
    }

    /// Somebody with the uid of an account of this machine.
    pub async fn add_person(&self, name: &str, uid: u32) {
        let one = |value: String| std::collections::HashSet::from([value]);
        let attributes = vec![
            ("objectClass".to_owned(), ["inetOrgPerson", "posixAccount"].map(str::to_owned).into()),
            ("uid".to_owned(), one(name.to_owned())),
            ("cn".to_owned(), one(name.to_owned())),
            ("sn".to_owned(), one("X".to_owned())),
            ("uidNumber".to_owned(), one(uid.to_string())),
            ("gidNumber".to_owned(), one(uid.to_string())),
            ("homeDirectory".to_owned(), one(format!("/home/{name}"))),
            ("userPassword".to_owned(), one(password(name))),
        ];
        self.root().await.add(&person_dn(name), attributes).await.unwrap().success().unwrap();
    }

    pub async fn add_group(&self, name: &str, member: &str) {
        let one = |value: String| std::collections::HashSet::from([value]);
        let attributes = vec![
            ("objectClass".to_owned(), one("groupOfNames".to_owned())),
            ("cn".to_owned(), one(name.to_owned())),
            ("member".to_owned(), one(person_dn(member))),
        ];
        let dn = format!("cn={name},ou=groups,{BASE}");
        self.root().await.add(&dn, attributes).await.unwrap().success().unwrap();
    }

    /// The lines of a whole portal's configuration; the authority is copied to where its user
    /// can read it.
    pub fn configuration(&self, authority: &std::path::Path, more: &str) -> String {
        fs::copy(self.authority(), authority).unwrap();
        let known = self.settings();
        format!(
            "[auth]\nkind = 'ldap'\n[auth.ldap]\nurls = '{}'\nca_file = '{}'\nbind_dn = '{}'\nbind_password = '{}'\n\
             user_base = '{}'\ngroup_base = '{}'\nallow_groups = ['*']\nadmin_groups = ['admins']\n{more}\n",
            self.ldap(),
            authority.display(),
            known.bind_dn,
            known.bind_password,
            known.user_base,
            known.group_base,
        )
    }

    /// How many wrong passwords of somebody's the directory counts.
    pub async fn failures(&self, name: &str) -> usize {
        let (dn, wanted) = (person_dn(name), vec!["pwdFailureTime"]);
        let found = self.root().await.search(&dn, Scope::Base, "(objectClass=*)", wanted).await.unwrap();
        let entry = SearchEntry::construct(found.success().unwrap().0.remove(0));
        entry.attrs.get("pwdFailureTime").map_or(0, Vec::len)
    }

    pub async fn add_value(&self, dn: &str, attribute: &str, value: &str) {
        let values = std::collections::HashSet::from([value]);
        self.root().await.modify(dn, vec![Mod::Add(attribute, values)]).await.unwrap().success().unwrap();
    }

    pub async fn delete(&self, dn: &str) {
        self.root().await.delete(dn).await.unwrap().success().unwrap();
    }

    pub async fn replace(&self, dn: &str, attribute: &str, value: &str) {
        let values = std::collections::HashSet::from([value]);
        self.root().await.modify(dn, vec![Mod::Replace(attribute, values)]).await.unwrap().success().unwrap();
    }

    pub async fn rename(&self, dn: &str, rdn: &str) {
        self.root().await.modifydn(dn, rdn, true, None).await.unwrap().success().unwrap();
    }

    fn wait(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        for port in [self.plain_port, self.tls_port] {
            // No notification tells that a foreign process listens.
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                assert!(self.child.try_wait().unwrap().is_none(), "slapd ended");
                assert!(Instant::now() < deadline, "slapd does not listen");
                std::thread::yield_now();
            }
        }
    }
}

pub fn person_dn(uid: &str) -> String {
    format!("uid={uid},ou=people,{BASE}")
}

pub fn password(uid: &str) -> String {
    format!("{uid}-secret")
}

fn spawn(base: &std::path::Path, ldap: u16, ldaps: u16) -> Child {
    Command::new("/usr/sbin/slapd")
        .arg("-f")
        .arg(base.join("slapd.conf"))
        .args(["-h", &format!("ldap://127.0.0.1:{ldap} ldaps://127.0.0.1:{ldaps}"), "-d", "0"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// An authority and the certificate of a host, as `ca.pem`, `server.pem` and `server.key`.
pub fn write_certificates(directory: &std::path::Path, kind: Certificate, host: &str) {
    let authority = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap(), Issuer::new(params, key))
    };
    let (told, issuer) = authority();
    let issuer = if kind == Certificate::OfAnotherAuthority { authority().1 } else { issuer };
    let host = if kind == Certificate::OfAnotherHost { "ldap.example.org" } else { host };
    let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    if kind == Certificate::Expired {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    fs::write(directory.join("ca.pem"), told.pem()).unwrap();
    fs::write(directory.join("server.pem"), certificate.pem()).unwrap();
    fs::write(directory.join("server.key"), key.serialize_pem()).unwrap();
}

const CONFIGURATION: &str = "
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
moduleload ppolicy
TLSCACertificateFile {base}/ca.pem
TLSCertificateFile {base}/server.pem
TLSCertificateKeyFile {base}/server.key
disallow bind_anon
require authc
sizelimit 500
database mdb
suffix dc=example,dc=org
rootdn cn=root,dc=example,dc=org
rootpw root-secret
directory {base}/db
maxsize 67108864
dbnosync
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact=cn=portal,ou=services,dc=example,dc=org read by self read by anonymous auth by * none
overlay memberof
overlay ppolicy
ppolicy_default cn=default,ou=services,dc=example,dc=org
ppolicy_use_lockout
";

/// The entries: plain people, people that nobody should become, and groups of every kind.
fn people() -> String {
    let mut ldif = format!("dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n");
    for unit in ["people", "more,ou=people", "groups", "services"] {
        let name = unit.split(',').next().unwrap();
        let _ = write!(ldif, "dn: ou={unit},{BASE}\nobjectClass: organizationalUnit\nou: {name}\n\n");
    }
    let _ = write!(
        ldif,
        "dn: {SERVICE}\nobjectClass: applicationProcess\nobjectClass: simpleSecurityObject\ncn: portal\n\
         userPassword: {SERVICE_PASSWORD}\n\n\
         dn: cn=default,ou=services,{BASE}\nobjectClass: person\nobjectClass: pwdPolicy\ncn: default\nsn: default\n\
         pwdAttribute: userPassword\npwdLockout: TRUE\npwdMaxFailure: 5\npwdFailureCountInterval: 1800\n\n"
    );
    for (uid, number, name) in [
        ("alice", "20001", "Alice Åström"),
        ("bob", "20002", "Bob Builder"),
        ("carol", "20003", "Carol Doe (R&D)"),
        ("dan", "20004", "Dan <script>alert(1)</script>"),
        ("zero", "0", "Uid Zero"),
        ("system", "500", "Uid Low"),
        ("root", "20005", "Named root"),
        ("-rf", "20006", "Named like an option"),
        ("a/b", "20007", "Named like a path"),
        ("twin", "20008", "One of two"),
    ] {
        let _ = write!(ldif, "{}", posix_person(&person_dn(uid), uid, number, name));
    }
    let twin = format!("uid=twin,ou=more,ou=people,{BASE}");
    let _ = write!(ldif, "{}", posix_person(&twin, "twin", "20009", "The other"));
    let _ = write!(
        ldif,
        "dn: {}\nobjectClass: inetOrgPerson\nuid: nouid\ncn: Without a uid number\nsn: X\nuserPassword: {}\n\n",
        person_dn("nouid"),
        password("nouid")
    );
    for (name, kind, member) in [
        ("admins", "groupOfNames", format!("member: {}", person_dn("carol"))),
        ("unique", "groupOfUniqueNames", format!("uniqueMember: {}", person_dn("alice"))),
        ("lab", "groupOfNames", format!("member: {}", person_dn("alice"))),
        ("faculty", "groupOfNames", format!("member: cn=lab,ou=groups,{BASE}")),
        ("university", "groupOfNames", format!("member: cn=faculty,ou=groups,{BASE}")),
        ("loop", "groupOfNames", format!("member: cn=pool,ou=groups,{BASE}\nmember: {}", person_dn("bob"))),
        ("pool", "groupOfNames", format!("member: cn=loop,ou=groups,{BASE}")),
        ("banned", "groupOfNames", format!("member: {}", person_dn("dan"))),
    ] {
        let _ = write!(ldif, "dn: cn={name},ou=groups,{BASE}\nobjectClass: {kind}\ncn: {name}\n{member}\n\n");
    }
    for (name, number, member) in [("research", 5000, "memberUid: alice\n"), ("primary", 20002, "")] {
        let _ = write!(
            ldif,
            "dn: cn={name},ou=groups,{BASE}\nobjectClass: posixGroup\ncn: {name}\ngidNumber: {number}\n{member}\n"
        );
    }
    ldif
}

fn posix_person(dn: &str, uid: &str, number: &str, name: &str) -> String {
    use base64::Engine as _;
    let name = base64::engine::general_purpose::STANDARD.encode(name);
    format!(
        "dn: {dn}\nobjectClass: inetOrgPerson\nobjectClass: posixAccount\nuid: {uid}\ncn:: {name}\nsn: X\n\
         mail: {}@example.org\nuidNumber: {number}\ngidNumber: {number}\nhomeDirectory: /home/x\n\
         userPassword: {}\n\n",
        uid.trim_start_matches('-').replace('/', "."),
        password(uid)
    )
}
