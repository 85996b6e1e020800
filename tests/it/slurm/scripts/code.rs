//! A Slurm script together with the code of the machine where somebody types: its folder is the one that the script is
//! submitted from, so that a relative `--chdir` begins there.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use super::Both;

#[tokio::test]
async fn a_script_is_submitted_from_the_folder_of_its_code() {
    let Some(both) = Both::open("").await else { return };
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    fs::create_dir(folder.join("part")).unwrap();
    fs::write(folder.join("part/value"), "found\n").unwrap();
    fs::write(folder.join("train.sh"), "#!/bin/sh\n#SBATCH --chdir=part --ntasks=1\npwd\ncat value\n").unwrap();
    let mut command = Command::new(&both.house.program);
    let token = both.person.authorization().replacen("Bearer ", "", 1);
    command.env("LYCEUM_URL", &both.house.url).env("LYCEUM_TOKEN", token).current_dir(folder);
    command.args(["job", "submit", "--code", ".", "--name", "train", "--sbatch", "--script", "train.sh"]);
    let output = command.args(["--wait", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let job: Value = serde_json::from_slice(&output.stdout).unwrap();
    let here = job["working_directory"].as_str().unwrap();
    let path = format!("/api/v1/jobs/{}/log", job["id"].as_str().unwrap());
    let log = both.person.request(&both.house, "GET", &path).send().await.unwrap().text().await.unwrap();
    assert_eq!(log, format!("{here}\nfound\n"));
    let submitted = Path::new(here).parent().unwrap();
    assert_eq!(submitted.parent(), Some(&*both.identity.home.join("jobs")));
    assert!(here.ends_with("/part") && submitted.join("train.sh").is_file(), "{here}");
}
