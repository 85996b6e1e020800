//! How a script is started: signals and checkpoints before the end, arrays, what a site's prolog
//! adds, the environment of a login, files of its own for what it prints, arguments, a node that
//! is taken away, and how programs find out that Slurm runs them.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};

use super::{Both, normal, variables};
use crate::{
    life::jobs::{ended, job, log, state, submit},
    wait::eventually,
};

impl Both {
    /// The number of the only job that Slurm has.
    async fn number(&self) -> i32 {
        eventually("Slurm has the job", async || {
            self.cluster.ask("squeue", &["--noheader", "--states=RUNNING", "--format=%A"]).trim().parse().ok()
        })
        .await
    }

    async fn log_of(&self, id: &str) -> String {
        log(&self.house, &self.person, &format!("{id}/log")).await
    }
}

/// As the trap of a tutorial for checkpoints: the program hears each signal, and goes on.
#[tokio::test]
async fn signals_reach_the_program() {
    let Some(both) = Both::open("").await else { return };
    let script = "#!/bin/bash\nfor s in USR1 USR2 HUP CONT INT ALRM; do trap \"echo heard $s\" $s; done\n\
                  trap 'echo heard TERM; exit 9' TERM\necho ready\nuntil [ -e go ]; do sleep 0.1; done\nexit 5\n";
    let id = both.job(script).await;
    state(&both.house, &both.person, &id, "running").await;
    eventually("it is ready", async || both.log_of(&id).await.contains("ready").then_some(())).await;
    let number = both.number().await.to_string();
    for name in ["USR1", "USR2", "HUP", "CONT", "INT", "ALRM", "USR1"] {
        let told = both.log_of(&id).await;
        both.cluster.as_user(both.identity.uid, "scancel", &["--batch", &format!("--signal={name}"), &number]);
        eventually(&format!("{name} is heard"), async || {
            let more = both.log_of(&id).await;
            (more.len() > told.len() && more.trim_end().ends_with(&format!("heard {name}"))).then_some(())
        })
        .await;
    }
    fs::write(both.folder.join("go"), "").unwrap();
    let job = ended(&both.house, &both.person, &id, "exited").await;
    assert_eq!(job["exit_code"], json!(5), "{job}");
    // Asked to end, it still ends.
    fs::remove_file(both.folder.join("go")).unwrap();
    let id = both.job(script).await;
    eventually("it is ready", async || both.log_of(&id).await.contains("ready").then_some(())).await;
    both.person.ask(&both.house, "POST", &format!("/jobs/{id}/cancel"), &Value::Null).await;
    ended(&both.house, &both.person, &id, "stopped_by_owner").await;
    assert!(both.log_of(&id).await.contains("heard TERM"));
}

/// Slurm sends it before the portal's own end, and not before Slurm's, which is later.
#[tokio::test]
async fn a_checkpoint_before_the_limit() {
    let Some(both) = Both::open("").await else { return };
    let mut ids = Vec::new();
    for signal in ["USR1", "TERM"] {
        let script = format!(
            "#!/bin/bash\n#SBATCH --time=2 --signal=B:{signal}@60\ntrap 'echo saved; exit 0' {signal}\nSECONDS=0\n\
             while [ $SECONDS -lt 115 ]; do sleep 0.2; done\nexit 4\n"
        );
        ids.push(both.job(&script).await);
    }
    for id in ids {
        let job = ended(&both.house, &both.person, &id, "exited").await;
        assert_eq!(job["exit_code"], json!(0), "{job}");
        assert_eq!(both.log_of(&id).await, "saved\n");
    }
}

#[tokio::test]
async fn the_variables_of_an_array() {
    let Some(both) = Both::open("").await else { return };
    let to = both.identity.home.join("told");
    let text = |name: &str| {
        let to = to.display();
        format!(
            "#!/bin/bash\n#SBATCH --array=3-9:3%2 -J many -o a-%a-%3a.txt\n[ $SLURM_ARRAY_TASK_ID = 9 ] && env -0 > {to}/{name}\n\
             echo $SLURM_ARRAY_JOB_ID $(pwd) $SLURM_SUBMIT_DIR\n"
        )
    };
    both.sbatch(&text("plain"), &[]).unwrap();
    let read = async |name: &str| {
        let path = to.join(name);
        eventually(name, async || fs::read(&path).ok().map(|bytes| variables(&bytes)).filter(|found| !found.is_empty()))
            .await
    };
    let plain = read("plain").await;
    both.told(&both.folder.join("a-9-009.txt")).await;
    for number in [3, 6, 9] {
        let _ = fs::remove_file(both.folder.join(format!("a-{number}-{number:03}.txt")));
    }
    both.job(&text("ours")).await;
    let ours = read("ours").await;
    let array = |found: &super::Variables| -> Vec<(String, String)> {
        let of_array = |name: &str| name.starts_with("SLURM_ARRAY_") && name != "SLURM_ARRAY_JOB_ID";
        found.iter().filter(|(name, _)| of_array(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    assert_eq!(array(&ours), array(&plain));
    assert_eq!(array(&ours).len(), 5);
    assert_eq!(normal(ours, false)["SLURM_SUBMIT_DIR"], normal(plain, false)["SLURM_SUBMIT_DIR"]);
    let mut numbers = Vec::new();
    for number in [3, 6, 9] {
        let told = both.told(&both.folder.join(format!("a-{number}-{number:03}.txt"))).await;
        let words: Vec<&str> = told.split_whitespace().collect();
        assert_eq!(words[1..], [both.folder.to_str().unwrap(); 2], "{told}");
        numbers.push(words[0].parse::<u64>().unwrap());
    }
    assert!(numbers.iter().all(|number| *number == numbers[0] && *number > 67_108_863), "one for all: {numbers:?}");
}

/// A prolog of the site's, as it puts scratch space and tools before every task.
#[tokio::test]
async fn what_a_prolog_adds_reaches_scripts_and_commands() {
    let prolog = tempfile::Builder::new().prefix("ly-prolog-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(prolog.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = prolog.path().join("prolog");
    fs::write(&file, "#!/bin/sh\necho export SITE_SCRATCH=/scratch/$SLURM_JOB_ID\necho export PATH=/site/bin:$PATH\n")
        .unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let Some(both) = Both::open(&format!("TaskProlog={}", file.display())).await else { return };
    let line = "echo scratch $SITE_SCRATCH; echo path $PATH; echo end";
    let script = format!("#!/bin/sh\n{line}\n");
    let by_sbatch = both.sbatch(&format!("#!/bin/sh\n#SBATCH -o plain.txt\n{line}\n"), &[]).unwrap();
    let plain = both.told(&both.folder.join("plain.txt")).await;
    assert!(plain.contains(&format!("scratch /scratch/{by_sbatch}\n")), "{plain}");
    for request in [Both::request(&script), json!({ "command": ["/bin/sh", "-c", line] })] {
        let id = submit(&both.house, &both.person, request).await;
        ended(&both.house, &both.person, &id, "exited").await;
        let said = both.log_of(&id).await;
        assert!(said.contains("scratch /scratch/") && said.contains("path /site/bin:"), "{said}");
    }
}

/// A profile that knows functions and programs, and a script that is started in it.
#[tokio::test]
async fn as_in_a_login_shell() {
    let Some(both) = Both::open("").await else { return };
    let home = &both.identity.home;
    fs::write(home.join(".profile"), "export PATH=$HOME/tools:$PATH\nexport SITE=here\necho hello from the profile\n")
        .unwrap();
    let script = "#!/bin/bash\necho \"$PATH $SITE $1 $2 $HOME\"\n";
    let mut request = Both::request(script);
    request["arguments"] = json!(["one", "two words"]);
    let id = submit(&both.house, &both.person, request.clone()).await;
    let plain = job(&both.house, &both.person, &id).await;
    ended(&both.house, &both.person, &id, "exited").await;
    assert_eq!(plain["arguments"], json!(["one", "two words"]), "{plain}");
    let said = both.log_of(&id).await;
    assert!(said.contains(" one two words /") && !said.contains("tools"), "{said}");
    request["login_shell"] = json!(true);
    let id = submit(&both.house, &both.person, request.clone()).await;
    let ended_job = ended(&both.house, &both.person, &id, "exited").await;
    assert_eq!(ended_job["login_shell"], json!(true), "{ended_job}");
    let said = both.log_of(&id).await;
    assert!(said.contains(&format!("{}/tools:", home.display())) && said.contains(" here one two words"), "{said}");
    // One of Slurm's headers says the same, and `--export` decides what of the request comes along.
    for (header, seed, site) in [
        ("--get-user-env", "7", "here"),
        ("--export=NONE", "", "here"),
        ("--export=ALL", "7", ""),
        ("--export=ALL,B=2", "7", ""),
        ("--export=SEED,B=2", "7", "here"),
        ("--export=B=2", "", "here"),
    ] {
        let script = format!("#!/bin/bash\n#SBATCH {header}\necho \"seed=$SEED site=$SITE b=$B\"\n");
        let is_kept_out = seed.is_empty();
        let mut request = Both::request(&script);
        request["variables"] = json!({ "SEED": "7" });
        if is_kept_out {
            let (status, said) = both.person.ask(&both.house, "POST", "/jobs", &request).await;
            assert!(status == 422 && said.to_string().contains("is excluded by"), "{header}: {status} {said}");
            request["variables"] = json!({});
        }
        let id = submit(&both.house, &both.person, request).await;
        ended(&both.house, &both.person, &id, "exited").await;
        let b = if header.contains("B=2") { "2" } else { "" };
        let said = both.log_of(&id).await;
        assert!(said.contains(&format!("seed={seed} site={site} b={b}\n")), "{header}: {said}");
    }
    // A profile that starts something else is named as what holds it up.
    fs::write(home.join(".profile"), "exit 7\n").unwrap();
    request["login_shell"] = json!(true);
    let id = submit(&both.house, &both.person, request).await;
    let failed = ended(&both.house, &both.person, &id, "launch_failed").await;
    assert!(failed["detail"].as_str().unwrap().contains("a profile file may end it"), "{failed}");
}

/// All of what a program prints is in the file, also where the job's log keeps its end alone.
#[tokio::test]
async fn output_goes_to_the_files_that_are_named() {
    let Some(both) = Both::open("").await else { return };
    let script = |name: &str, mode: &str| {
        format!(
            "#!/bin/bash\n#SBATCH -J out -o {name}-%x-%u-%4j-%%.txt --error={name}-err.txt --input=in.txt --open-mode={mode}\n\
             cat\nhead -c 12000000 /dev/zero | tr '\\0' x | fold -w 99\necho; echo last; echo wrong >&2\n"
        )
    };
    fs::write(both.folder.join("in.txt"), "of the input\n").unwrap();
    let user = &both.identity.name;
    let plain = both.sbatch(&script("plain", "truncate"), &[]).unwrap();
    eventually("it has ended", async || (both.cluster.field(plain, "state") == "COMPLETED").then_some(())).await;
    let plain_file = both.folder.join(format!("plain-out-{user}-{plain:04}-%.txt"));
    for mode in ["truncate", "append"] {
        let id = both.job(&script("ours", mode)).await;
        ended(&both.house, &both.person, &id, "exited").await;
    }
    let names = fs::read_dir(&both.folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut ours: Vec<String> = names.filter(|name| name.starts_with("ours-out-")).collect();
    ours.sort();
    assert_eq!(ours.len(), 2, "one for each job: {ours:?}");
    let read = |name: &str| fs::read(both.folder.join(name)).unwrap();
    for name in &ours {
        assert!(name.starts_with(&format!("ours-out-{user}-0")) && name.ends_with("-%.txt"), "{name}");
        assert!(read(name) == fs::read(&plain_file).unwrap(), "every byte of it: {name}");
    }
    assert_eq!(String::from_utf8(read("ours-err.txt")).unwrap(), "wrong\nwrong\n", "the second one was appended");
    // One that cannot be opened is named.
    let id = both.job("#!/bin/sh\n#SBATCH -o /nowhere/x.txt\ntrue\n").await;
    let failed = ended(&both.house, &both.person, &id, "launch_failed").await;
    assert!(failed["detail"].as_str().unwrap().contains("/nowhere/x.txt could not be opened"), "{failed}");
}

/// A node that is taken away puts it back; a failure of its own does not.
#[tokio::test]
async fn requeue_is_for_nodes_that_are_taken_away() {
    let Some(both) = Both::open("").await else { return };
    let script = "#!/bin/bash\n#SBATCH --requeue\necho restarts ${SLURM_RESTART_COUNT-none}\n\
                  [ -n \"$SLURM_RESTART_COUNT\" ] && exit 3\nsleep 600\n";
    let id = both.job(script).await;
    state(&both.house, &both.person, &id, "running").await;
    eventually("it runs", async || both.log_of(&id).await.contains("restarts none").then_some(())).await;
    let number = both.number().await;
    let node = both.cluster.field(number, "batchhost");
    both.cluster.set_node(node.trim_start_matches("node").parse().unwrap(), "down");
    let again = eventually("it ran again and failed", async || {
        let job = job(&both.house, &both.person, &id).await;
        (job["attempt"] == json!(2) && job["state"] == "ended" && job["retries_left"] == json!(0)).then_some(job)
    })
    .await;
    assert_eq!((&again["end_reason"], &again["exit_code"]), (&json!("exited"), &json!(3)), "{again}");
    assert!(both.log_of(&id).await.contains("restarts 1"));
}

/// As a tutorial writes it: an array whose tasks start steps and write into folders of their own.
#[tokio::test]
async fn a_tutorials_script_both_ways() {
    let Some(both) = Both::open("").await else { return };
    let text = "#!/bin/bash\n#SBATCH --job-name=demo\n#SBATCH --array=1-2\n#SBATCH --nodes=1\n#SBATCH --ntasks=2\n\
                #SBATCH --cpus-per-task=1\n#SBATCH --mem-per-cpu=100M\n#SBATCH --time=00:05:00\n\
                #SBATCH --output=%x-%a.out\n#SBATCH --error=%x-%a.err\nset -eu\ncd \"$SLURM_SUBMIT_DIR\"\n\
                mkdir -p \"results_$SLURM_ARRAY_TASK_ID\"\n\
                srun bash -c 'echo \"task $SLURM_PROCID of $SLURM_NTASKS with $SLURM_CPUS_PER_TASK\"' | sort\n\
                echo \"in $(pwd), $SLURM_JOB_NUM_NODES node, $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT\"\n\
                echo careful >&2\ntest -d \"results_$SLURM_ARRAY_TASK_ID\"\n";
    let files = ["demo-1.out", "demo-2.out", "demo-1.err", "demo-2.err"];
    let read = async || {
        let mut found = Vec::new();
        for name in files {
            let path = both.folder.join(name);
            let is_output = |text: &String| text.contains(" of 2\n") || text == "careful\n";
            found.push(eventually(name, async || fs::read_to_string(&path).ok().filter(is_output)).await);
            fs::remove_file(path).unwrap();
        }
        found
    };
    both.sbatch(text, &[]).unwrap();
    let plain = read().await;
    eventually("it is over", async || both.cluster.ask("squeue", &["--noheader"]).is_empty().then_some(())).await;
    both.job(text).await;
    assert_eq!(read().await, plain);
    assert!(plain[0].starts_with("task 0 of 2 with 1\ntask 1 of 2 with 1\nin "), "{plain:?}");
}

/// A site with environment modules: `module` is known in a script of bash's, as in a terminal.
#[tokio::test]
async fn modules_are_known_in_scripts() {
    let site = tempfile::Builder::new().prefix("ly-modules-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let init = site.path().join("modules.sh");
    fs::write(&init, "module() { [ \"$1\" = load ] && export LOADED=\"$2\"; }\n").unwrap();
    fs::set_permissions(&init, fs::Permissions::from_mode(0o644)).unwrap();
    let more = [("LYCEUM_ENVIRONMENTS__MODULES", init.to_str().unwrap())];
    let Some(both) = Both::with("", &more).await else { return };
    let id = both.job("#!/bin/bash\nmodule load gcc/12 && echo \"has $LOADED\"\n").await;
    ended(&both.house, &both.person, &id, "exited").await;
    assert_eq!(both.log_of(&id).await, "has gcc/12\n");
}

/// A folder that the script names begins where the script is submitted, also in a copy.
#[tokio::test]
async fn a_folder_of_the_scripts() {
    let Some(both) = Both::open("").await else { return };
    both.directory("work/below");
    let id = both.job("#!/bin/bash\n#SBATCH -D below\npwd\n").await;
    ended(&both.house, &both.person, &id, "exited").await;
    let below = format!("{}\n", both.folder.join("below").display());
    assert_eq!(both.log_of(&id).await, below);
    let (status, copy) = both.person.ask(&both.house, "POST", &format!("/jobs/{id}/clone"), &json!({})).await;
    assert_eq!(status, 202, "{copy}");
    let id = copy["id"].as_str().unwrap();
    ended(&both.house, &both.person, id, "exited").await;
    assert_eq!(both.log_of(id).await, below);
}

/// What Slurm tells others of a job: where it runs, and what.
#[tokio::test]
async fn scontrol_shows_folder_and_command() {
    let Some(both) = Both::open("").await else { return };
    let id = both.job("#!/bin/sh\nexec sleep 600\n").await;
    let number = both.number().await.to_string();
    let told = both.cluster.ask("scontrol", &["show", "job", &number]);
    assert!(told.contains(&format!("WorkDir={}\n", both.folder.display())), "{told}");
    assert!(told.contains("Command=/") && told.contains("/script\n"), "{told}");
    both.person.ask(&both.house, "POST", &format!("/jobs/{id}/cancel"), &Value::Null).await;
    ended(&both.house, &both.person, &id, "stopped_by_owner").await;
}

/// The rules by which programs tell that Slurm runs them, and as what. `PyTorch` Lightning: `SLURM_NTASKS` is set and
/// the job is not called `bash` or `interactive`; the world is `SLURM_NTASKS` then. submitit: a job's id is the array's
/// with the task's number, else the job's; ranks are `SLURM_PROCID` and `SLURM_NTASKS`, nodes `SLURM_JOB_NUM_NODES`.
const RULES: &str = r#"
interactive=no; case "$SLURM_JOB_NAME" in bash|interactive) interactive=yes;; esac
lightning=no; [ -n "${SLURM_NTASKS+x}" ] && [ $interactive = no ] && lightning=yes
echo "lightning=$lightning world=${SLURM_NTASKS-1} rank=${SLURM_PROCID-0} local=${SLURM_LOCALID-0} node=${SLURM_NODEID-0}"
submitit=no; [ -n "${SLURM_JOB_ID+x}" ] && submitit=yes
array=no; [ -n "${SLURM_ARRAY_JOB_ID+x}" ] && array="task ${SLURM_ARRAY_TASK_ID}"
echo "submitit=$submitit array=$array tasks=${SLURM_NTASKS-1} nodes=${SLURM_JOB_NUM_NODES-1} each=${SLURM_NTASKS_PER_NODE-unset}"
"#;

#[tokio::test]
async fn programs_detect_slurm_as_by_sbatch() {
    let Some(both) = Both::open("").await else { return };
    let mut ids = Vec::new();
    for (index, header) in
        ["", "-N1 --gpus=2", "-N1 -n 2", "-N 2 --ntasks-per-node=2", "--ntasks=1", "-J bash", "-J interactive -n1"]
            .into_iter()
            .enumerate()
    {
        let text = format!("#!/bin/bash\n#SBATCH {header}\n{RULES}");
        let number =
            both.sbatch(&text.replacen("\n#SBATCH", &format!("\n#SBATCH -o plain-{index}.txt\n#SBATCH"), 1), &[]);
        let number = number.unwrap_or_else(|said| panic!("{header}: {said}"));
        ids.push((header, index, number, both.job(&text).await));
    }
    for (header, index, number, id) in ids {
        eventually("sbatch ran it", async || (both.cluster.field(number, "state") == "COMPLETED").then_some(())).await;
        let plain = fs::read_to_string(both.folder.join(format!("plain-{index}.txt"))).unwrap();
        ended(&both.house, &both.person, &id, "exited").await;
        assert_eq!(both.log_of(&id).await, plain, "{header}");
        assert!(plain.contains("submitit=yes"), "{plain}");
    }
}
