//! The arguments of Apptainer, as a pure function of a [`Plan`]. Apptainer is tested here as data
//! only: no test runs it. It reads folders, `.sif` and `.sqsh` itself, and variables for the inside
//! reach it by `APPTAINERENV_` names, so that no secret is on a command line.

use std::collections::BTreeMap;

use lyceum_wire::protocol::container::{Container, Writable};

use super::{
    environment::Command,
    plan::{Access, Plan},
};

/// Returns the arguments behind the name of the program.
pub fn arguments(container: &Container, plan: &Plan, has_gpus: bool, command: &Command) -> Vec<String> {
    let mut words: Vec<String> =
        ["exec", "--no-mount", "home,cwd,tmp,hostfs,bind-paths", "--no-privs", "--no-umask"].map(str::to_owned).into();
    if has_gpus {
        words.push("--nv".to_owned());
    }
    match &container.writable {
        Writable::Discard => words.push("--writable-tmpfs".to_owned()),
        Writable::Keep(folder) => words.extend(["--overlay".to_owned(), folder.to_string_lossy().into_owned()]),
    }
    for mount in plan.mounts.iter().filter(|mount| mount.access != Access::Device) {
        let option = if mount.access == Access::ReadOnly { "ro" } else { "rw" };
        words.extend([
            "--mount".to_owned(),
            mount_option(&mount.from.to_string_lossy(), &mount.to.to_string_lossy(), option),
        ]);
    }
    words.extend(["--pwd".to_owned(), command.directory.to_string_lossy().into_owned()]);
    words.push(container.root.to_string_lossy().into_owned());
    words.extend(command.argv.iter().cloned());
    words
}

/// Unlike `--bind`, this one allows any character in a path.
fn mount_option(from: &str, to: &str, access: &str) -> String {
    let quoted =
        |text: String| if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text };
    format!("type=bind,{},{},{access}", quoted(format!("source={from}")), quoted(format!("destination={to}")))
}

/// Returns the environment of Apptainer itself: the search path of the host, and everything that is
/// meant for the inside under a name that it passes on.
pub fn environment(inside: BTreeMap<String, String>, temporary: &str) -> BTreeMap<String, String> {
    let mut environment: BTreeMap<String, String> =
        inside.into_iter().map(|(name, value)| (format!("APPTAINERENV_{name}"), value)).collect();
    for name in ["HOME", "USER", "LYCEUM_SESSION"] {
        if let Some(value) = environment.get(&format!("APPTAINERENV_{name}")).cloned() {
            environment.insert(name.to_owned(), value);
        }
    }
    environment.insert("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
    for name in ["APPTAINER_TMPDIR", "APPTAINER_CACHEDIR"] {
        environment.insert(name.to_owned(), temporary.to_owned());
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::plan::Mount;

    #[test]
    fn arguments_as_data() {
        let value = serde_json::json!({
            "name": "x", "digest": format!("sha256:{}", "ab".repeat(32)), "root": "/images/x.sif",
        });
        let mut container: Container = serde_json::from_value(value).unwrap();
        let mount = |from: &str, access| Mount { from: from.into(), to: from.into(), access, is_folder: true };
        let plan = Plan {
            mounts: vec![
                mount("/home/ada", Access::ReadWrite),
                mount("/data/a,b", Access::ReadOnly),
                mount("/dev/nvidia0", Access::Device),
            ],
            ..Plan::default()
        };
        let command = Command { argv: vec!["python".to_owned(), "-V".to_owned()], directory: "/home/ada".into() };
        let words = arguments(&container, &plan, true, &command).join(" ");
        assert_eq!(
            words,
            "exec --no-mount home,cwd,tmp,hostfs,bind-paths --no-privs --no-umask --nv --writable-tmpfs \
             --mount type=bind,source=/home/ada,destination=/home/ada,rw \
             --mount type=bind,\"source=/data/a,b\",\"destination=/data/a,b\",ro --pwd /home/ada /images/x.sif python -V"
        );
        container.writable = Writable::Keep("/home/ada/layer".into());
        let words = arguments(&container, &plan, false, &command).join(" ");
        assert!(words.contains("--no-umask --overlay /home/ada/layer --mount"), "{words}");
    }

    #[test]
    fn variables_reach_the_inside_alone() {
        let inside =
            [("PATH", "/opt/bin"), ("LD_LIBRARY_PATH", "/opt/lib"), ("HOME", "/home/ada"), ("JUPYTER_TOKEN", "t")];
        let inside = inside.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let environment = environment(inside, "/tmp/lyceum-7");
        assert_eq!(environment["APPTAINERENV_PATH"], "/opt/bin");
        assert_eq!(environment["APPTAINERENV_JUPYTER_TOKEN"], "t");
        assert!(!environment.contains_key("LD_LIBRARY_PATH") && environment["PATH"].starts_with("/usr/local/sbin:"));
        assert_eq!((&*environment["HOME"], &*environment["APPTAINER_TMPDIR"]), ("/home/ada", "/tmp/lyceum-7"));
    }
}
