//! Which variables of a batch job reach the app: the batch system's own, and those that the site's prologs
//! have added. The environment that the job was submitted with is known: what differs from it is new. All of it is pure.

use std::{collections::BTreeMap, ffi::OsString};

use lyceum_wire::protocol::{AgentLaunch, SubmitEnvironment};

/// What every shell sets on the way.
const SHELLS: [&str; 4] = ["_", "PWD", "OLDPWD", "SHLVL"];

/// What the portal knows better: who and where a workload is, and which array it belongs to.
const RESERVED: [&str; 5] =
    ["SLURM_SUBMIT_DIR", "SLURM_EXPORT_ENV", "SLURM_GET_USER_ENV", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"];

/// Hands on to the app what is new in the agent's own variables.
pub(super) fn hand_on(launch: &mut AgentLaunch, variables: impl IntoIterator<Item = (OsString, OsString)>) {
    let texts =
        variables.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    if let Some(surrounded) = &launch.surroundings {
        add(&mut launch.app.environment, surrounded, texts);
        return;
    }
    // A portal of the version before names them, and its launch goes before.
    let is_meant = |name: &str| {
        launch.inherits.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == pattern,
        })
    };
    for (name, value) in texts.filter(|(name, _)| is_meant(name)).collect::<Vec<_>>() {
        launch.app.environment.entry(name).or_insert(value);
    }
}

fn add(
    environment: &mut BTreeMap<String, String>,
    surrounded: &SubmitEnvironment,
    texts: impl Iterator<Item = (String, String)>,
) {
    for (name, value) in texts {
        let is_ours =
            RESERVED.contains(&name.as_str()) || ["LYCEUM_", "JUPYTER"].iter().any(|prefix| name.starts_with(prefix));
        let is_known = surrounded.given.get(&name) == Some(&value);
        if is_known || is_ours || SHELLS.contains(&name.as_str()) || surrounded.hidden.contains(&name) {
            continue;
        }
        let value = match surrounded.given.get("PATH").filter(|_| name == "PATH") {
            Some(given) => path(given, &value, environment.get("PATH").map(String::as_str)),
            None => value,
        };
        environment.insert(name, value);
    }
}

/// A search path that a prolog has added to: what it has added, around the one that we have.
fn path(given: &str, changed: &str, ours: Option<&str>) -> String {
    match ours {
        Some(ours) if changed.contains(given) => changed.replacen(given, ours, 1),
        Some(ours) => format!("{changed}:{ours}"),
        None => changed.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_goes_to_the_app() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let surrounded = SubmitEnvironment {
            given: map(&[("PATH", "/usr/bin:/bin"), ("LC_ALL", "C")]),
            hidden: vec!["SLURM_MEM_PER_NODE".to_owned()],
        };
        let mut environment = map(&[
            ("PATH", "/env/bin:/usr/bin"),
            ("CUDA_VISIBLE_DEVICES", ""),
            ("SLURM_SUBMIT_DIR", "/home/ada"),
            ("SEED", "7"),
        ]);
        let told = map(&[
            ("PATH", "/site/bin:/usr/bin:/bin"),
            ("LC_ALL", "C"),
            ("SCRATCH", "/scratch/7"),
            ("CUDA_VISIBLE_DEVICES", "1"),
            ("SLURM_SUBMIT_DIR", "/"),
            ("SLURM_MEM_PER_NODE", "512"),
            ("SLURM_JOB_ID", "7"),
            ("SHLVL", "1"),
            ("LYCEUM_SESSION", "another"),
        ]);
        add(&mut environment, &surrounded, told.into_iter());
        let wanted = map(&[
            ("PATH", "/site/bin:/env/bin:/usr/bin"),
            ("CUDA_VISIBLE_DEVICES", "1"),
            ("SLURM_SUBMIT_DIR", "/home/ada"),
            ("SEED", "7"),
            ("SCRATCH", "/scratch/7"),
            ("SLURM_JOB_ID", "7"),
        ]);
        assert_eq!(environment, wanted);
        assert_eq!(path("/bin", "/other", Some("/env")), "/other:/env");
    }
}
