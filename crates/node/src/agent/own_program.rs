//! Our own program in the environment of what an agent starts: `lyceum` is found behind everything
//! else on `PATH`, on this machine and on nodes alike, since the agent is that very program.

use std::{collections::BTreeMap, path::Path};

/// What `bashrc` puts behind a `PATH` that profile files have set anew.
const VARIABLE: &str = "LYCEUM_BIN";

/// Lets programs of this environment find ours, whose path this is; one of another name stays unknown to them.
pub(super) fn make_known(environment: &mut BTreeMap<String, String>, program: &Path) {
    let ours = program.file_name().is_some_and(|name| name == "lyceum");
    let Some(folder) = program.parent().and_then(Path::to_str).filter(|folder| ours && !folder.contains(':')) else {
        return;
    };
    // Where nothing is said, programs are looked for in the system's usual folders; ours alone would hide them.
    let Some(path) = environment.get_mut("PATH").filter(|path| !path.is_empty()) else { return };
    if path.split(':').any(|known| known == folder) {
        return;
    }
    path.push(':');
    path.push_str(folder);
    environment.insert(VARIABLE.to_owned(), folder.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_program_comes_last() {
        for (before, program, path, told) in [
            ("/env/bin:/usr/bin", "/data/bin/1-ab/lyceum", "/env/bin:/usr/bin:/data/bin/1-ab", Some("/data/bin/1-ab")),
            ("/usr/bin", "/usr/bin/lyceum", "/usr/bin", None),
            ("/usr/bin", "/target/deps/it-123", "/usr/bin", None),
            ("/usr/bin", "/odd:place/lyceum", "/usr/bin", None),
            ("", "/data/lyceum", "", None),
        ] {
            let mut environment = BTreeMap::from([("PATH".to_owned(), before.to_owned())]);
            make_known(&mut environment, Path::new(program));
            assert_eq!((environment["PATH"].as_str(), environment.get(VARIABLE).map(String::as_str)), (path, told));
        }
        let mut environment = BTreeMap::new();
        make_known(&mut environment, Path::new("/data/lyceum"));
        assert!(environment.is_empty(), "{environment:?}");
    }
}
