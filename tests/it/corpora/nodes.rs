//! Words of users on their way to programs, and what programs are given besides: the real
//! portal as root, with its helper, agents and accounts. Left out where we are not root.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
};

use serde_json::{Value, json};

use crate::life::{House, processes};

/// What a shell, a scheduler or a C program would take for something else than a word. `MARK`
/// stands for a file that nothing may ever make.
const WORDS: [&str; 16] = [
    "; touch MARK #",
    "$(touch MARK)",
    "`touch MARK`",
    "| touch MARK",
    "& touch MARK &",
    "a' ; touch MARK ; '",
    "a\" ; touch MARK ; \"",
    "-rf",
    "--help",
    "--config=/etc/passwd",
    "{socket} {home} {session} {port}",
    "${HOME} $HOME ~ * ?",
    "%n%s%x %{env}",
    "#SBATCH --uid=0",
    "a\\nb",
    "\u{fc}\u{1f525}",
];

#[tokio::test]
async fn injection_corpus() {
    let Some(house) = House::open(&[]).await else { return };
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "sessions": -1, "light": -1 })).await;
    let id = person.run(&house, "web").await;
    let facts = person.visit(&house, id, "/facts").await.1;
    let home = facts["environment"]["HOME"].as_str().unwrap().to_owned();
    let uid = u32::try_from(facts["uid"].as_u64().unwrap()).unwrap();
    let gid = u32::try_from(facts["gid"].as_u64().unwrap()).unwrap();
    person.end(&house, id).await;
    let mark = Path::new(&home).join("mark");
    let before: BTreeSet<_> = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect();

    for word in WORDS {
        let word = word.replace("MARK", mark.to_str().unwrap());
        // A directory of that name, since one cannot be asked for that is not there.
        let directory = Path::new(&home).join("words").join(word.replace('/', "_"));
        fs::create_dir_all(&directory).unwrap();
        for path in [directory.parent().unwrap(), &directory] {
            chown(path, Some(uid), Some(gid)).unwrap();
        }
        let name: String = word.chars().take(64).collect();
        let request = json!({ "app": "web", "name": name, "working_directory": directory });
        let id = person.start(&house, request).await;
        assert_eq!(person.state(&house, id, "running").await["name"], name.trim(), "as it was said");
        let facts = person.visit(&house, id, "/facts").await.1;
        assert_eq!(facts["cwd"], directory.to_str().unwrap());
        assert_eq!((facts["uid"].as_u64(), &facts["environment"]["HOME"]), (Some(u64::from(uid)), &json!(home)));
        let record = house.record(id).unwrap();
        for pid in processes(&record) {
            let argv = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let argv: Vec<_> = argv.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            assert!(!argv.iter().any(|word| word == "-c"), "a shell stands between: {argv:?}");
        }
        person.end(&house, id).await;
        house.nothing_left(&record).await;
    }
    fs::remove_dir_all(Path::new(&home).join("words")).unwrap();
    // `starts-ID` is the app's own.
    let after = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name());
    let new: Vec<_> =
        after.filter(|name| !before.contains(name) && !name.to_string_lossy().starts_with("starts-")).collect();
    assert_eq!(new, Vec::<std::ffi::OsString>::new(), "something was made");

    // What cannot be a word at all is refused, with its field, and nothing is started.
    for (field, words) in [
        ("name", &["a\nb", "a\0b", "a\u{1b}[31m", "a\u{202e}b", "#SBATCH\r\n--uid=0"][..]),
        ("app", &["web; id", "../web", "WEB", "web\0", "-web", "", "web\n"]),
        ("profile", &["; id", "../../etc/passwd", "\0"]),
        ("working_directory", &["../..", "~/../..", "/root\0", "a\nb", "~root", "/proc/self/fd/3", "$(id)"]),
        ("options.log_directory", &["../..", "a\0b"]),
        ("resources.gpu_model", &["", "a\0b", "\n#SBATCH --uid=0"]),
        ("modules", &["x"]),
        ("no_such_field", &["x"]),
    ] {
        for word in words {
            let mut request = json!({ "app": "web" });
            match field.split_once('.') {
                Some((outer, inner)) => request[outer] = json!({ inner: word }),
                None if field == "modules" => request[field] = json!([word]),
                None => request[field] = json!(word),
            }
            let (status, answer) = person.ask(&house, "POST", "/sessions", &request).await;
            assert_eq!(status, 422, "{request}: {answer}");
            let named = answer["errors"].as_array().unwrap().iter().any(|error| error["field"] == field);
            assert!(named, "{request}: {answer}");
        }
    }
    let live = person.get(&house, "/sessions?limit=500").await;
    assert!(live["items"].as_array().unwrap().iter().all(|session| session["state"] == "ended"), "{live}");
}

/// The environment that the portal was started with, a descriptor that somebody forgot to
/// close before, and the portal's own files: none of it reaches what users start.
#[tokio::test]
async fn child_env_clean() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let left_open = directory.path().join("left-open");
    let leak = fs::File::create(&left_open).unwrap();
    let leak = rustix::io::fcntl_dupfd_cloexec(&leak, 88).unwrap();
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
    let given = [
        ("AWS_SECRET_ACCESS_KEY", "of-the-portal-1"),
        ("PGPASSWORD", "of-the-portal-2"),
        ("LD_LIBRARY_PATH", "/of-the-portal-3"),
        ("PYTHONPATH", "/of-the-portal-4"),
        ("BASH_ENV", "/of-the-portal-5"),
        ("SSH_AUTH_SOCK", "/of-the-portal-6"),
        ("http_proxy", "http://of-the-portal-7"),
    ];
    let Some(house) = House::open(&given).await else { return };
    let person = house.person();
    for app in ["web", "terminal"] {
        let id = person.run(&house, app).await;
        let record = house.record(id).unwrap();
        let pids = processes(&record);
        assert!(!pids.is_empty());
        for pid in pids {
            let of = |what: &str| format!("/proc/{pid}/{what}");
            let environment = String::from_utf8_lossy(&fs::read(of("environ")).unwrap()).into_owned();
            assert!(!environment.contains("of-the-portal"), "{app}: {environment}");
            let named = |variable: &str| variable.starts_with("LYCEUM_LOG") || variable.starts_with("LYCEUM_SERVER");
            assert!(!environment.split('\0').any(named), "{app}: {environment}");
            for entry in fs::read_dir(of("fd")).unwrap() {
                let link = fs::read_link(entry.unwrap().path()).unwrap_or_default();
                assert_ne!(link, left_open, "{app} holds what was left open");
                assert!(!link.starts_with(house.data().join("private")), "{app} holds {}", link.display());
            }
        }
        if app == "web" {
            let facts: Value = person.visit(&house, id, "/facts").await.1;
            let names: BTreeSet<&str> = facts["environment"].as_object().unwrap().keys().map(String::as_str).collect();
            let known = |name: &str| {
                ["HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_CTYPE", "TERM", "TMPDIR", "TZ"].contains(&name)
                    || [
                        "LYCEUM_",
                        "XDG_",
                        "JUPYTERHUB_",
                        "CPU_LIMIT",
                        "MEM_LIMIT",
                        "CUDA_",
                        "NVIDIA_",
                        "OMP_",
                        "MKL_",
                        "OPENBLAS_",
                        "NUMEXPR_",
                    ]
                    .iter()
                    .any(|own| name.starts_with(own))
            };
            let unknown: Vec<_> = names.iter().filter(|name| !known(name)).collect();
            assert!(unknown.is_empty(), "{unknown:?}");
        }
        person.end(&house, id).await;
        house.nothing_left(&record).await;
    }
    drop(leak);
}
