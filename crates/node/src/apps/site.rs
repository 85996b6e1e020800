//! Apps that a site adds by configuration: the `[[apps]]` table, its checks, and the few
//! placeholders that a command may hold. The values end up in argument vectors, paths and
//! pages, so their characters are limited here and nowhere else.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;

use lyceum_wire::protocol::files;

use super::{Idle, context::Context, launch::text};

/// One `[[apps]]` table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteApp {
    pub name: String,
    /// Empty: the name.
    #[serde(default)]
    pub title: String,
    /// An argument vector; no shell sees it.
    pub command: Vec<String>,
    /// Who may start it; empty: everybody.
    #[serde(default)]
    pub groups: Vec<String>,
    #[serde(default)]
    pub listen: Listen,
    /// Below the base URL.
    #[serde(default = "root")]
    pub ready_path: String,
    /// The answers there that mean ready; empty: any under 500.
    #[serde(default)]
    pub ready_status: Vec<u16>,
    /// True: the app sees `/` instead of its base URL.
    #[serde(default)]
    pub strip_prefix: bool,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    #[serde(default)]
    pub idle: Idle,
}

/// Where the app listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Listen {
    #[default]
    Socket,
    /// 127.0.0.1, where everybody on that node can reach it.
    Port,
}

fn root() -> String {
    "/".to_owned()
}

/// What is wrong with one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub field: String,
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Every fault of the site's apps, not the first alone.
pub fn validate(apps: &[SiteApp], allow_port_apps: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, app) in apps.iter().enumerate() {
        let mut fault = |field: &str, message: String| {
            faults.push(Fault { field: format!("apps[{index}].{field}"), message });
        };
        check(app, &mut fault);
        if app.name == super::JOB || super::built_in().iter().any(|ours| ours.name == app.name) {
            fault("name", format!("`{}` is a built-in app: choose another name", app.name));
        }
        if apps[..index].iter().any(|earlier| earlier.name == app.name) {
            fault("name", format!("`{}` is already the name of another app", app.name));
        }
        if app.listen == Listen::Port && !allow_port_apps {
            let message = "all users of the node can reach a port: listen on a socket, or set allow_port_apps = true";
            fault("listen", message.to_owned());
        }
    }
    faults
}

fn check(app: &SiteApp, fault: &mut impl FnMut(&str, String)) {
    if !is_name(&app.name) {
        fault("name", "must have 1 to 32 characters of a-z, 0-9 and `-`, starting with a letter".to_owned());
    }
    if app.title.chars().count() > 60 || app.title.chars().any(|c| c.is_control() || "<>&\"".contains(c)) {
        fault("title", "must have at most 60 characters, without < > & \" and control characters".to_owned());
    }
    check_command(app, fault);
    for group in &app.groups {
        if group.is_empty() || group.len() > 64 || !group.chars().all(|c| c.is_alphanumeric() || "_.- ".contains(c)) {
            fault("groups", format!("{group:?} is not the name of a group"));
        }
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._~-%?=&".contains(c);
    if !app.ready_path.starts_with('/') || app.ready_path.len() > 200 || !app.ready_path.chars().all(plain) {
        fault(
            "ready_path",
            "must be a path that starts with `/`, with at most 200 characters of a-z A-Z 0-9 and / . _ ~ - % ? = &"
                .to_owned(),
        );
    }
    if app.ready_status.len() > 20 || app.ready_status.iter().any(|status| !(200..=599).contains(status)) {
        fault("ready_status", "must have at most 20 numbers from 200 to 599, as in [200, 204]".to_owned());
    }
    for (key, value) in &app.environment {
        let field = format!("environment.{}", key.escape_debug());
        if !is_variable(key) {
            fault(
                &field,
                "the name of a variable must have 1 to 64 characters of A-Z, a-z, 0-9 and `_`, not starting with a \
                 digit"
                    .to_owned(),
            );
        } else if is_reserved(key) {
            fault(&field, "this variable is set by the portal".to_owned());
        }
        check_text(&field, value, fault);
    }
}

fn check_command(app: &SiteApp, fault: &mut impl FnMut(&str, String)) {
    let Some(program) = app.command.first() else {
        return fault("command", "must not be empty".to_owned());
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._+-{}".contains(c);
    if program.is_empty() || program.starts_with('-') || !program.chars().all(plain) {
        fault(
            "command",
            "the program must be a path or a name of a-z A-Z 0-9 and / . _ + -, not starting with `-`".to_owned(),
        );
    }
    if app.command.len() > 100 {
        fault("command", "must have at most 100 arguments".to_owned());
    }
    for word in &app.command {
        check_text("command", word, fault);
    }
    let names = |placeholder| app.command.iter().chain(app.environment.values()).any(|text| text.contains(placeholder));
    if app.listen == Listen::Socket && names("{port}") && !names("{socket}") {
        fault("command", "contains {port} but not {socket}: listen = \"port\" is missing".to_owned());
    }
    if app.listen == Listen::Port && names("{socket}") && !names("{port}") {
        fault("command", "contains {socket} but not {port}, although the app listens on a port".to_owned());
    }
}

fn check_text(field: &str, text: &str, fault: &mut impl FnMut(&str, String)) {
    if text.len() > 4096 || text.chars().any(char::is_control) {
        fault(field, "each value must have at most 4096 bytes and no control characters".to_owned());
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= 32
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Whether an environment variable may be called so.
pub fn is_variable(key: &str) -> bool {
    key.len() <= 64
        && key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Variables that say who and where the workload is, or choose code for programs to load.
fn is_reserved(key: &str) -> bool {
    const NAMES: [&str; 7] = ["HOME", "USER", "LOGNAME", "SHELL", "PATH", "XDG_RUNTIME_DIR", "CUDA_VISIBLE_DEVICES"];
    NAMES.contains(&key) || key.starts_with("LYCEUM_") || key.starts_with("LD_")
}

/// Puts the values in place of `{name}`, in one pass: what a value holds is not looked at
/// again, and braces around anything else stay.
pub(super) fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        let (before, from) = rest.split_at(open);
        filled.push_str(before);
        let known = values.iter().find(|(name, _)| {
            from.get(1..).and_then(|text| text.strip_prefix(name)).is_some_and(|text| text.starts_with('}'))
        });
        if let Some((name, value)) = known {
            filled.push_str(value);
            rest = &from[name.len() + 2..];
        } else {
            filled.push('{');
            rest = &from[1..];
        }
    }
    filled.push_str(rest);
    filled
}

/// Returns what a command may name; an app on a socket has an empty port.
pub(super) fn placeholders(port: Option<u16>, context: &Context<'_>) -> [(&'static str, String); 6] {
    [
        ("socket", text(&context.run_directory.join(files::APP_SOCKET))),
        ("port", port.map(|port| port.to_string()).unwrap_or_default()),
        ("base_url", context.base_url.to_owned()),
        ("home", text(&context.person.home)),
        ("user", context.person.unix_name.clone()),
        ("session", context.session.to_string()),
    ]
}

/// Returns the path on which the app is asked whether it is ready.
pub(super) fn ready_path(site: &SiteApp, context: &Context<'_>) -> String {
    if site.strip_prefix {
        site.ready_path.clone()
    } else {
        format!("{}{}", context.base_url.trim_end_matches('/'), site.ready_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(text: &str) -> SiteApp {
        toml::from_str(text).expect("a table of an app")
    }

    #[test]
    fn defaults_and_unknown_fields() {
        let app = app("name = \"echo\"\ncommand = [\"/usr/sbin/nginx\", \"-c\", \"{home}/echo.conf\"]");
        assert_eq!((app.listen, app.idle, app.ready_path.as_str()), (Listen::Socket, Idle::Http, "/"));
        assert_eq!(validate(&[app], false), []);
        assert!(toml::from_str::<SiteApp>("name = \"x\"\ncommand = [\"y\"]\ncomand = 1").is_err());
        assert!(toml::from_str::<SiteApp>("name = \"x\"\ncommand = [\"y\"]\nidle = \"kernels\"").is_err());
    }

    #[test]
    fn every_fault_is_listed() {
        let bad = app(r#"
            name = "Echo"
            title = "<b>"
            command = ["-x", "a\nb", "{port}"]
            groups = ["a;b"]
            ready_path = "x"
            environment = { "1A" = "x", PATH = "y", LD_PRELOAD = "z", OK = "a\u0000" }
        "#);
        let twice = app("name = \"terminal\"\ncommand = []\nlisten = \"port\"");
        let faults = validate(&[bad, twice.clone(), twice], false);
        let fields: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "apps[0].name",
                "apps[0].title",
                "apps[0].command",
                "apps[0].command",
                "apps[0].command",
                "apps[0].groups",
                "apps[0].ready_path",
                "apps[0].environment.1A",
                "apps[0].environment.LD_PRELOAD",
                "apps[0].environment.OK",
                "apps[0].environment.PATH",
                "apps[1].command",
                "apps[1].name",
                "apps[1].listen",
                "apps[2].command",
                "apps[2].name",
                "apps[2].name",
                "apps[2].listen",
            ]
        );
    }

    #[test]
    fn only_known_names_are_filled_and_only_once() {
        let values = [("home", "/home/{user}".to_owned()), ("user", "ada".to_owned())];
        for (template, filled) in [
            ("{home}/x", "/home/{user}/x"),
            ("{user}{user}", "adaada"),
            ("{{user}}", "{ada}"),
            ("{\"a\": {}}", "{\"a\": {}}"),
            ("{users} {User} {user", "{users} {User} {user"),
            ("é{", "é{"),
        ] {
            assert_eq!(fill(template, &values), filled, "{template}");
        }
    }
}
