//! Why a build failed, in words, and the command that mends it. The tools' messages are
//! read by a pure function; nothing here runs anything.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::ExitStatus,
};

use lyceum_model::line::abridged;

/// A build that did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub cause: Cause,
    /// What happened, as a sentence or two for people.
    pub what: String,
    /// The command that mends it.
    pub command: String,
}

/// The kind of failure: trying again by itself helps against [`Cause::Network`] alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Network,
    Certificate,
    MissingPackage,
    Space,
    Permission,
    Compiler,
    Python,
    Killed,
    Other,
}

/// What a failure is explained with, besides the tool's own words.
#[derive(Clone, Debug)]
pub struct FailureContext {
    /// What was being done: “installing 125 packages”.
    pub doing: String,
    /// Where the environments lie.
    pub folder: PathBuf,
    /// The package index that the administrator named, without any password.
    pub index: Option<String>,
    /// The directory that is installed from instead of an index.
    pub wheels: Option<PathBuf>,
    pub requirements: PathBuf,
    pub log: PathBuf,
    pub system: System,
}

/// Turns a tool's last words into a [`Failure`].
pub fn explain(output: &[String], status: ExitStatus, about: &FailureContext) -> Failure {
    let has = |words: &[&str]| output.iter().find(|line| words.iter().any(|word| line.contains(word)));
    let doing = &about.doing;
    let log = about.log.display();
    // The order matters: pip says “no matching distribution” when it could not ask anybody.
    if has(&SPACE).is_some() || status.signal() == Some(libc_signal::SIGXFSZ) {
        return no_space(&about.folder, doing);
    }
    if has(&CERTIFICATE).is_some() {
        return Failure {
            cause: Cause::Certificate,
            what: format!(
                "{doing}: the certificate of {} is not signed by an authority that this machine trusts; if a proxy \
                 intercepts TLS, set its CA file",
                about.index.as_deref().unwrap_or("the package index")
            ),
            command: "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
                      lyceum serve"
                .to_owned(),
        };
    }
    if let Some(line) = has(&UNTRUSTED) {
        let host = line.split("located at ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or("HOST");
        return Failure {
            cause: Cause::Certificate,
            what: format!("{doing}: {host} uses plain HTTP, which pip only trusts if configured to"),
            command: format!("PIP_TRUSTED_HOST={host} lyceum serve"),
        };
    }
    if let Some(line) = has(&NETWORK) {
        let (index, command) = match &about.index {
            Some(index) => (index.as_str(), "PIP_INDEX_URL=https://pypi.org/simple lyceum serve"),
            None => ("the package index", "HTTPS_PROXY=http://PROXY:PORT lyceum serve"),
        };
        return Failure {
            cause: Cause::Network,
            what: format!(
                "{doing}: {index} cannot be reached ({}). Lyceum retries automatically. Behind a proxy, set \
                 HTTPS_PROXY; to use your own mirror, PIP_INDEX_URL; without a network, `environments.wheels`",
                network_reason(line)
            ),
            command: command.to_owned(),
        };
    }
    if let Some(line) = has(&MISSING) {
        let download =
            |to: &Path| format!("python3 -m pip download -r {} -d {}", about.requirements.display(), to.display());
        return match &about.wheels {
            Some(wheels) => Failure {
                cause: Cause::MissingPackage,
                what: format!(
                    "{doing}: {} lacks a package ({}). To download all packages, run the command on a machine with a \
                     network, the same Python version and the same processor type",
                    wheels.display(),
                    plain(line)
                ),
                command: download(wheels),
            },
            None => Failure {
                cause: Cause::MissingPackage,
                what: format!("{doing}: the package index lacks a package ({})", plain(line)),
                command: "PIP_INDEX_URL=https://pypi.org/simple lyceum serve".to_owned(),
            },
        };
    }
    if let Some(line) = has(&COMPILER) {
        return Failure {
            cause: Cause::Compiler,
            what: format!(
                "{doing}: a package has no build for this Python and processor and could not be compiled ({})",
                plain(line)
            ),
            command: about.system.install_compiler(),
        };
    }
    if let Some(line) = has(&PERMISSION) {
        return not_permitted(&about.folder, doing, &plain(line));
    }
    if let Some(signal) = status.signal().or_else(|| status.code().filter(|code| *code > 128).map(|code| code - 128)) {
        return Failure {
            cause: Cause::Killed,
            what: format!(
                "{doing}: the tool was ended by signal {signal}; if it is signal 9, the machine was most likely out of \
                 memory"
            ),
            command: "free -h".to_owned(),
        };
    }
    let last = output.iter().rfind(|line| line.contains("rror")).or(output.last());
    Failure {
        cause: Cause::Other,
        what: format!(
            "{doing}: {} ({status}); see the complete output in {log}",
            last.map_or_else(|| "no message".to_owned(), |line| plain(line))
        ),
        command: format!("less {log}"),
    }
}

/// The disk is full.
pub fn no_space(folder: &Path, doing: &str) -> Failure {
    Failure {
        cause: Cause::Space,
        what: format!(
            "{doing}: the disk with {} is full; the default environment needs about 2 GiB. Free space, or move the data \
             to another disk",
            folder.display()
        ),
        command: "lyceum serve --data /PATH/ON/A/LARGER/DISK".to_owned(),
    }
}

/// Something may not be written.
pub fn not_permitted(path: &Path, doing: &str, why: &str) -> Failure {
    Failure {
        cause: Cause::Permission,
        what: format!("{doing}: {why}: {} must belong to user {}", path.display(), rustix::process::geteuid().as_raw()),
        command: format!("chown -R {} {}", rustix::process::geteuid().as_raw(), path.display()),
    }
}

/// From an error of ours at a path.
pub fn from_io(error: &std::io::Error, path: &Path, doing: &str) -> Failure {
    use std::io::ErrorKind as Kind;
    match error.kind() {
        Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => no_space(path, doing),
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => not_permitted(path, doing, &error.to_string()),
        _ => Failure {
            cause: Cause::Other,
            what: format!("{doing}: {}: {error}", path.display()),
            command: format!("ls -ld {}", path.display()),
        },
    }
}

/// Words by which the tools say each cause; `os error` is uv, `Errno` is Python.
const SPACE: [&str; 9] = [
    "No space left on device",
    "(os error 28)",
    "[Errno 28]",
    "Disk quota exceeded",
    "(os error 122)",
    "[Errno 122]",
    "File too large",
    "(os error 27)",
    "[Errno 27]",
];
const CERTIFICATE: [&str; 4] =
    ["CERTIFICATE_VERIFY_FAILED", "invalid peer certificate", "UnknownIssuer", "confirming the ssl certificate"];
const UNTRUSTED: [&str; 1] = ["is not a trusted or secure host"];
const NETWORK: [&str; 15] = [
    "error sending request",
    "Failed to fetch",
    "NewConnectionError",
    "ConnectTimeoutError",
    "Max retries exceeded",
    "Connection refused",
    "Connection reset",
    "dns error",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "Read timed out",
    "ConnectionResetError",
    "Connection aborted",
    "RemoteDisconnected",
    "ProxyError",
];
const MISSING: [&str; 4] =
    ["No solution found", "No matching distribution found", "was not found in the", "Failed to read `--find-links`"];
const COMPILER: [&str; 5] = [
    "Failed building wheel",
    "Failed to build",
    "command 'gcc' failed",
    "command 'cc' failed",
    "No such file or directory: 'gcc'",
];
const PERMISSION: [&str; 6] =
    ["Permission denied", "(os error 13)", "[Errno 13]", "Read-only file system", "(os error 30)", "[Errno 30]"];

/// Numbers of signals that `std` has no names for.
mod libc_signal {
    pub const SIGXFSZ: i32 = rustix::process::Signal::XFSZ.as_raw();
}

fn network_reason(line: &str) -> String {
    for (words, reason) in [
        ("refused", "connection refused"),
        ("name resolution", "its name cannot be resolved"),
        ("Name or service not known", "its name cannot be resolved"),
        ("dns error", "its name cannot be resolved"),
        ("unreachable", "network unreachable"),
        ("imed out", "timed out"),
        ("Timeout", "timed out"),
    ] {
        if line.contains(words) {
            return reason.to_owned();
        }
    }
    plain(line)
}

/// One line of a tool as part of a sentence.
fn plain(line: &str) -> String {
    let line = line.trim();
    let line = line.trim_start_matches("ERROR: ").trim_start_matches("error: ").trim_start_matches("cause: ");
    abridged(line.trim_end_matches('.'), 300)
}

/// Replaces user names and passwords in URLs, so that neither log nor page holds them.
pub fn redact(line: &str) -> String {
    let mut rest = line;
    let mut clean = String::with_capacity(line.len());
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        clean.push_str(before);
        let end =
            after.find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'' | '>' | ')')).unwrap_or(after.len());
        rest = match after[..end].rfind('@') {
            Some(sign) => {
                clean.push_str("***");
                &after[sign..]
            }
            None => after,
        };
    }
    clean + rest
}

/// How packages of the system are installed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    Debian,
    Fedora,
    Suse,
    Arch,
    Alpine,
    Other,
}

impl System {
    pub fn of_this_machine() -> Self {
        let text = fs::read_to_string("/etc/os-release").or_else(|_| fs::read_to_string("/usr/lib/os-release"));
        Self::from_os_release(&text.unwrap_or_default())
    }

    fn from_os_release(text: &str) -> Self {
        let words: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
            .flat_map(|value| value.trim_matches(['"', '\'']).split_whitespace())
            .collect();
        let is = |names: &[&str]| words.iter().any(|word| names.contains(word));
        if is(&["debian", "ubuntu"]) {
            Self::Debian
        } else if is(&["fedora", "rhel", "centos"]) {
            Self::Fedora
        } else if is(&["suse", "opensuse"]) {
            Self::Suse
        } else if is(&["arch"]) {
            Self::Arch
        } else if is(&["alpine"]) {
            Self::Alpine
        } else {
            Self::Other
        }
    }

    pub fn install_python(self) -> String {
        match self {
            Self::Debian => "apt-get install python3 python3-venv",
            Self::Fedora => "dnf install python3.12",
            Self::Suse => "zypper install python312",
            Self::Arch => "pacman -S python",
            Self::Alpine => "apk add python3",
            Self::Other => "LYCEUM_ENVIRONMENTS__PYTHON=/PATH/TO/python3 lyceum serve",
        }
        .to_owned()
    }

    /// `name` is the file name of the Python that lacks `venv`, `minor` its second number.
    pub fn install_venv(self, name: &str, minor: u32) -> String {
        match self {
            Self::Debian if name.starts_with("python3.") => format!("apt-get install python3.{minor}-venv"),
            Self::Debian => "apt-get install python3-venv".to_owned(),
            other => other.install_python(),
        }
    }

    fn install_compiler(self) -> String {
        match self {
            Self::Debian => "apt-get install build-essential python3-dev",
            Self::Fedora => "dnf install gcc gcc-c++ python3-devel",
            Self::Suse => "zypper install gcc gcc-c++ python3-devel",
            Self::Arch => "pacman -S base-devel",
            Self::Alpine => "apk add build-base python3-dev",
            Self::Other => "cc --version",
        }
        .to_owned()
    }

    /// R with the kernel that Jupyter needs.
    pub fn install_r(self) -> &'static str {
        match self {
            Self::Debian => "apt-get install r-base-core r-cran-irkernel",
            _ => "R -e 'install.packages(\"IRkernel\"); IRkernel::installspec(user = FALSE)'",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, status: i32, wheels: bool, cause: Cause, words: &str, command: &str) {
        let about = FailureContext {
            doing: "installing".to_owned(),
            folder: "/data/shared".into(),
            index: None,
            wheels: wheels.then(|| "/wheels".into()),
            requirements: "/data/requirements.txt".into(),
            log: "/data/default.log".into(),
            system: System::Debian,
        };
        let lines: Vec<String> = output.lines().map(str::to_owned).collect();
        let failure = explain(&lines, ExitStatus::from_raw(status), &about);
        assert_eq!(failure.cause, cause, "{failure:?}");
        assert!(failure.what.contains(words), "{failure:?}");
        assert_eq!(failure.command, command, "{failure:?}");
    }

    #[test]
    fn explains_what_the_tools_say() {
        let serve = "HTTPS_PROXY=http://PROXY:PORT lyceum serve";
        let uv = "error: Request failed after 3 retries in 7.2s\n  cause: Failed to fetch: http://x/simple/six/\n  \
                  cause: tcp connect error\n  cause: Connection refused (os error 111)";
        check(uv, 512, false, Cause::Network, "Failed to fetch", serve);
        let pip = "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(': Failed to \
                   establish a new connection: [Errno 111] Connection refused')': /simple/six/\nERROR: No matching \
                   distribution found for six==1.17.0";
        check(pip, 256, false, Cause::Network, "(connection refused)", serve);
        let missing = "ERROR: No matching distribution found for six";
        check(
            missing,
            256,
            true,
            Cause::MissingPackage,
            "/wheels lacks a package",
            "python3 -m pip download -r /data/requirements.txt -d /wheels",
        );
        check(
            missing,
            256,
            false,
            Cause::MissingPackage,
            "for six)",
            "PIP_INDEX_URL=https://pypi.org/simple lyceum serve",
        );
        let plain = "WARNING: The repository located at mirror.example is not a trusted or secure host and is being \
                     ignored. If\nERROR: No matching distribution found for six";
        check(
            plain,
            256,
            false,
            Cause::Certificate,
            "mirror.example uses plain HTTP",
            "PIP_TRUSTED_HOST=mirror.example lyceum serve",
        );
        let full =
            "error: Failed to install: numpy\n  cause: failed to copy file: No space left on device (os error 28)";
        check(full, 512, false, Cause::Space, "/data/shared is full", "lyceum serve --data /PATH/ON/A/LARGER/DISK");
        check("", 25, false, Cause::Space, "is full", "lyceum serve --data /PATH/ON/A/LARGER/DISK");
        let gcc = "error: command 'gcc' failed: No such file or directory\nERROR: Failed building wheel for h5py";
        check(
            gcc,
            256,
            false,
            Cause::Compiler,
            "no build for this Python",
            "apt-get install build-essential python3-dev",
        );
        let uid = rustix::process::geteuid().as_raw();
        check(
            "PermissionError: [Errno 13] Permission denied: '/data/x'",
            256,
            false,
            Cause::Permission,
            "Permission denied",
            &format!("chown -R {uid} /data/shared"),
        );
        check("Collecting jaxlib", 9, false, Cause::Killed, "out of memory", "free -h");
        check(
            "x\nError: odd\ny",
            256,
            false,
            Cause::Other,
            "installing: Error: odd (exit status: 1)",
            "less /data/default.log",
        );
        check("", 256, false, Cause::Other, "no message", "less /data/default.log");
    }

    #[test]
    fn passwords_never_reach_the_log() {
        for (line, clean) in [
            ("at https://ada:s3cret@mirror/simple/ and", "at https://***@mirror/simple/ and"),
            ("https://token@a/x http://b/y@z", "https://***@a/x http://b/y@z"),
            ("'http://u:p@ss@h'", "'http://***@h'"),
            ("no address, a@b", "no address, a@b"),
            ("ends https://", "ends https://"),
        ] {
            assert_eq!(redact(line), clean);
        }
    }

    #[test]
    fn systems() {
        for (text, system) in [
            ("ID=debian\n", System::Debian),
            ("NAME=x\nID=ubuntu\nID_LIKE=debian", System::Debian),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"", System::Fedora),
            ("ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"", System::Suse),
            ("", System::Other),
        ] {
            assert_eq!(System::from_os_release(text), system, "{text}");
        }
        assert_eq!(System::Debian.install_venv("python3", 11), "apt-get install python3-venv");
        assert_eq!(System::Debian.install_venv("python3.12", 12), "apt-get install python3.12-venv");
    }
}
