//! The systemd units in `contrib/`, read by systemd itself: nothing in them is unknown or
//! misspelt, and they give away no more than was decided. That they work is seen in a guest
//! (`life::systemd`); the reverse proxies' files are tested in `checks::servers`.

use std::{fs, path::Path, process::Command};

use crate::needs;

/// Each with the largest exposure that `systemd-analyze security` may find, in tenths.
const UNITS: [(&str, &str, &str); 5] = [
    ("lyceum.service", include_str!("../../contrib/lyceum.service"), "80"),
    ("lyceum-backup.service", include_str!("../../contrib/lyceum-backup.service"), "25"),
    ("lyceum-backup.timer", include_str!("../../contrib/lyceum-backup.timer"), ""),
    ("run-lyceum.mount", include_str!("../../contrib/run-lyceum.mount"), ""),
    ("lyceum-user.service", include_str!("../../contrib/lyceum-user.service"), ""),
];

#[test]
fn systemd_knows_every_line_of_the_units() {
    if !needs::met("systemd-analyze", Path::new("/usr/bin/systemd-analyze").exists()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<String> = UNITS
        .iter()
        .map(|(name, text, _)| {
            let file = folder.path().join(name);
            // It looks for the programs as well.
            let ours = env!("CARGO_BIN_EXE_lyceum");
            let installed = text.replace("/usr/local/bin/lyceum", ours).replace("%h/.local/bin/lyceum", ours);
            assert!(!name.ends_with("service") || installed != *text, "{name}");
            fs::write(&file, installed).unwrap();
            file.to_str().unwrap().to_owned()
        })
        .collect();
    let said = analyze(&[&["verify"], files.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat());
    assert_eq!(said, (true, String::new()));
    for ((_, _, most), file) in UNITS.iter().zip(&files).filter(|((_, _, most), _)| !most.is_empty()) {
        let (well, said) = analyze(&["security", "--offline=true", "--no-pager", &format!("--threshold={most}"), file]);
        assert!(well, "{said}");
    }
}

fn analyze(words: &[&str]) -> (bool, String) {
    let output = Command::new("/usr/bin/systemd-analyze").args(words).env("LC_ALL", "C.UTF-8").output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}
