//! Examples of every command, which its help and its manual page end with. They stand in one table, so that a test can
//! hold that each command has at least one and that the program accepts it as it is typed.

use clap::Command;

/// The words of each command, and its examples without the name of the program.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("serve", &["serve --listen 127.0.0.1:8000", "serve --config lyceum.toml --data /srv/lyceum"]),
    ("check", &["check", "check --as ada --json"]),
    ("completion", &["completion bash > ~/.local/share/bash-completion/completions/lyceum"]),
    ("man", &["man ~/.local/share/man/man1"]),
    // Administration on the portal's machine.
    (
        "admin user add",
        &[
            "admin user add ada --display-name 'Ada Lovelace'",
            "admin user add boss --admin",
            "admin user add svc-ci --service",
        ],
    ),
    ("admin user list", &["admin user list --json"]),
    ("admin user link", &["admin user link ada"]),
    ("admin user password", &["admin user password ada --password-stdin < password.txt"]),
    ("admin user role", &["admin user role ada operator"]),
    ("admin user disable", &["admin user disable ada"]),
    ("admin user expire", &["admin user expire ada --until 2030-09-30", "admin user expire ada --until never"]),
    ("admin user enable", &["admin user enable ada"]),
    ("admin group add", &["admin group add vision"]),
    ("admin group list", &["admin group list --json"]),
    ("admin group rename", &["admin group rename vision sight"]),
    ("admin group remove", &["admin group remove vision"]),
    ("admin group member add", &["admin group member add vision ada"]),
    ("admin group member remove", &["admin group member remove vision ada"]),
    ("admin group manager add", &["admin group manager add vision ada"]),
    ("admin group manager remove", &["admin group manager remove vision ada"]),
    ("admin token create", &["admin token create --user ada --scopes jobs,files --expires 90d --name ci"]),
    (
        "admin quota set",
        &[
            "admin quota set user ada gpus=4 --until 2030-02-01 --note thesis",
            "admin quota set group vision gpus=2 total.gpus=8 --dry-run",
        ],
    ),
    ("admin quota get", &["admin quota get user ada", "admin quota get default --json"]),
    ("admin announce add", &["admin announce add 'The file server is slow today.' --level warning --until 8h"]),
    ("admin announce list", &["admin announce list --all"]),
    ("admin announce end", &["admin announce end 0190a1b2-0000-7000-8000-000000000001"]),
    ("admin maintenance on", &["admin maintenance on --from 2030-01-31T18:00 --until 2030-01-31T20:00"]),
    ("admin maintenance off", &["admin maintenance off"]),
    ("admin maintenance status", &["admin maintenance status --json"]),
    ("admin audit verify", &["admin audit verify"]),
    ("admin backup", &["admin backup /srv/backup/lyceum.db"]),
    ("admin restore", &["admin restore /srv/backup/lyceum.db"]),
    ("admin migrate", &["admin migrate"]),
    // Sessions.
    (
        "session start",
        &[
            "session start jupyter --gpus 1 --cpus 8 --memory 48GiB --duration 4h --wait",
            "session start tensorboard --log-directory '~/runs'",
            "session start --preset 'two GPUs' --duration 8h",
        ],
    ),
    ("session list", &["session list --all", "session list --columns id,name,state,resources.gpus"]),
    ("session extend", &["session extend 4f09c2e7 2h"]),
    ("session keep", &["session keep 4f09c2e7 4h"]),
    (
        "session stop",
        &[
            "session stop 4f09c2e7",
            "session stop --app jupyter --owner '*' --dry-run",
            "session stop --group vision --dry-run",
        ],
    ),
    ("session log", &["session log 4f09c2e7 --tail 50", "session log 4f09c2e7 --follow"]),
    ("session open", &["session open resnet"]),
    ("session wait", &["session wait 4f09c2e7 --timeout 5m", "session wait 4f09c2e7 --ended"]),
    ("preset list", &["preset list", "preset list --columns id,name,kind,group"]),
    ("preset show", &["preset show nightly"]),
    ("preset delete", &["preset delete nightly"]),
    // Jobs.
    (
        "job submit",
        &[
            "job submit --gpus 1 --time-limit 12h --name resnet -- python train.py --epochs 90",
            "job submit --script train.sh --tag paper --wait --timeout 2h",
            "job submit --preset nightly --env SEED=8",
            "job submit --gpus 1 --code . -- python train.py",
            "job submit --code . --git-revision v1.2 --code-to scratch/jobs -- ./train.sh",
        ],
    ),
    ("job list", &["job list --state ended --tag paper", "job list --columns name,state,exit_code -o csv"]),
    ("job log", &["job log 4f09c2e7 --follow", "job log 4f09c2e7 --attempt 1 --tail 50"]),
    ("job open", &["job open 4f09c2e7"]),
    ("job pause", &["job pause --note 'the data moves to another server'"]),
    ("job unpause", &["job unpause"]),
    ("job cancel", &["job cancel 4f09c2e7 resnet", "job cancel --tag paper --state queued --dry-run"]),
    ("job show", &["job show 4f09c2e7", "job show 4f09c2e7 --json"]),
    ("job resume", &["job resume 4f09c2e7"]),
    ("job clone", &["job clone 4f09c2e7 --env SEED=8 -- python train.py --epochs 120"]),
    ("job artifacts", &["job artifacts 4f09c2e7", "job artifacts 4f09c2e7 --to results"]),
    ("job wait", &["job wait 4f09c2e7 --log --timeout 2h"]),
    ("job change", &["job change 4f09c2e7 --tag paper --star --notes 'warm-up was too *short*'"]),
    ("job delete", &["job delete 4f09c2e7", "job delete --group vision --dry-run"]),
    // Runs.
    ("run list", &["run list --columns id,name,owner"]),
    ("run add", &["run add '~/logs/first' --name first"]),
    ("run show", &["run show 4f09c2e7"]),
    ("run curve", &["run curve 4f09c2e7 val/loss --points 50 --smoothing 0.6"]),
    ("run csv", &["run csv 4f09c2e7 val/loss > loss.csv"]),
    ("run results", &["run results --where 'lr < 0.01 and optimizer = adam' --sort val/loss"]),
    ("run change", &["run change 4f09c2e7 --visibility group --group vision"]),
    ("run forget", &["run forget 4f09c2e7"]),
    // Sweeps.
    (
        "sweep submit",
        &[
            "sweep submit --param lr=0.1,0.01 --metric min:val/loss --wait -- python train.py --lr={lr}",
            "sweep submit --param 'lr=1e-4..1e-1 log' --trials 20 --dry-run -- python train.py --lr={lr}",
        ],
    ),
    ("sweep list", &["sweep list --columns name,state,tasks"]),
    ("sweep show", &["sweep show 4f09c2e7"]),
    ("sweep wait", &["sweep wait 4f09c2e7 --timeout 1d"]),
    ("sweep pause", &["sweep pause 4f09c2e7"]),
    ("sweep resume", &["sweep resume 4f09c2e7"]),
    ("sweep stop", &["sweep stop 4f09c2e7", "sweep stop --owner ada --dry-run"]),
    ("sweep delete", &["sweep delete --state ended"]),
    // Files.
    ("files cp", &["files cp train.py data.csv lyceum:", "files cp -r lyceum:results/resnet ."]),
    ("files ls", &["files ls", "files ls results --columns name,size_bytes"]),
    // Datasets and models.
    ("dataset list", &["dataset list --columns id,name,state,pictures"]),
    ("dataset show", &["dataset show flowers --json"]),
    ("dataset wait", &["dataset wait flowers --log --timeout 1h"]),
    ("dataset cancel", &["dataset cancel flowers"]),
    ("dataset resume", &["dataset resume --state failed"]),
    ("dataset delete", &["dataset delete flowers --files", "dataset delete --state failed --dry-run"]),
    ("dataset build", &["dataset build spec.json --threads 8"]),
    ("dataset standard", &["dataset standard", "dataset standard mnist --output ~/datasets/mnist"]),
    (
        "dataset evaluation",
        &["dataset evaluation ~/street --model ~/runs/cars/checkpoints/epoch-00012.keras --output ~/street-set"],
    ),
    ("dataset inspect", &["dataset inspect ~/pictures --json"]),
    ("model list", &["model list --columns name,state,metric,best"]),
    ("model show", &["model show flowers-resnet --json"]),
    ("model wait", &["model wait flowers-resnet --log"]),
    ("model delete", &["model delete flowers-resnet --files", "model delete --state failed --dry-run"]),
    // Hardware, images and limits.
    ("gpu list", &["gpu list", "gpu list --columns index,model,state,owner"]),
    (
        "storage benchmark",
        &[
            "storage benchmark --directory ~/data --wait",
            "storage benchmark --directory /scratch --dataset flowers --size 4GiB",
        ],
    ),
    ("node list", &["node list", "node list --columns name,state,detail"]),
    ("node drain", &["node drain node17 'new fan on Monday'"]),
    ("node resume", &["node resume node17"]),
    ("gpu diagnose", &["gpu diagnose --level quick --gpus 2 --wait --timeout 30m"]),
    ("image list", &["image list"]),
    ("image show", &["image show pytorch-26.10"]),
    ("image add", &["image add pytorch-26.10 nvcr.io/nvidia/pytorch:26.10 --title 'PyTorch 26.10'"]),
    ("image suggestions", &["image suggestions"]),
    ("image storage", &["image storage"]),
    ("image clean", &["image clean --unused-days 90"]),
    ("image import", &["image import lab-tools /srv/images/tools.sif --wait"]),
    ("image pull", &["image pull pytorch-26.10 --wait"]),
    ("image credentials list", &["image credentials list"]),
    ("image credentials set", &["image credentials set nvcr.io --user '$oauthtoken' < key.txt"]),
    ("image credentials remove", &["image credentials remove nvcr.io"]),
    ("image remove", &["image remove pytorch-26.10"]),
    ("quota", &["quota", "quota --json"]),
    ("usage", &["usage --by day --from 2030-01-01", "usage --by group,user --whose managed -o csv"]),
    ("events", &["events --type job.ended,quota.*", "events --follow -o json | jq -r .type"]),
    ("audit", &["audit", "audit --from 1201 --json > audit.jsonl"]),
    // A site as a file, requests and contexts.
    ("apply", &["apply -f site.yaml", "apply --schema > site.schema.json"]),
    ("diff", &["diff -f site.yaml --prune --exit-code"]),
    ("export", &["export > site.yaml"]),
    ("offboard", &["offboard ada --dry-run", "offboard ada --to bo --moved /home/ada=/home/bo/ada"]),
    ("api", &["api GET '/jobs?state=running' -o csv", "api PATCH /quotas/users/ada --body '{\"gpus\": 4}'"]),
    ("login", &["login https://portal.example.org --name lab < token.txt"]),
    ("token list", &["token list", "token list --columns name,expires_at", "token list --user svc-ci"]),
    (
        "token create",
        &["token create ci --scope jobs --scope token:rotate --expires 90d", "token create nightly --user svc-ci"],
    ),
    ("token rotate", &["token rotate", "token rotate ci", "token rotate nightly --user svc-ci"]),
    ("token revoke", &["token revoke ci"]),
    ("context list", &["context list"]),
    ("context use", &["context use lab"]),
    ("context remove", &["context remove lab"]),
];

/// Ends the help of each command with its examples.
pub fn add_to(program: Command) -> Command {
    EXAMPLES.iter().fold(program, |program, (command, examples)| {
        let lines: Vec<String> = examples.iter().map(|example| format!("  lyceum {example}")).collect();
        let text = format!("EXAMPLES\n{}", lines.join("\n"));
        below(program, &command.split(' ').collect::<Vec<_>>(), &text)
    })
}

fn below(command: Command, words: &[&str], text: &str) -> Command {
    match words {
        [] => command.after_help(text.to_owned()),
        [word, rest @ ..] => command.mut_subcommand(word, |command| below(command, rest, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a line as a shell would pass them on, without what it does itself.
    fn words(line: &str) -> Vec<String> {
        let line = [" | ", " > ", " < "].iter().fold(line, |line, end| line.split(end).next().unwrap());
        let (mut words, mut quote) = (vec![String::new()], None);
        for letter in line.trim().chars() {
            match (letter, quote) {
                ('\'' | '"', None) => quote = Some(letter),
                (end, Some(begin)) if end == begin => quote = None,
                (' ', None) => words.push(String::new()),
                _ => words.last_mut().unwrap().push(letter),
            }
        }
        words
    }

    /// Each command that has no commands below it, with its words.
    fn leaves(command: &Command, path: &str, found: &mut Vec<(String, String)>) {
        for below in command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help") {
            let path = format!("{path} {}", below.get_name());
            if below.has_subcommands() {
                leaves(below, &path, found);
            } else {
                found.push((path, below.get_after_help().map(ToString::to_string).unwrap_or_default()));
            }
        }
    }

    #[test]
    fn every_command_has_examples_that_it_accepts() {
        use clap::CommandFactory;
        let program = add_to(crate::Command::command());
        let mut found = Vec::new();
        leaves(&program, "lyceum", &mut found);
        for (path, help) in &found {
            let examples: Vec<&str> = help.lines().filter(|line| line.trim_start().starts_with("lyceum ")).collect();
            assert!(!examples.is_empty(), "`{path}` has no example: add one to src/examples.rs");
            for example in examples {
                let words = words(example);
                assert!(words.join(" ").starts_with(path.as_str()), "{example} is an example of {path}");
                if let Err(error) = program.clone().try_get_matches_from(words) {
                    panic!("{example}\n{error}");
                }
            }
        }
        assert!(EXAMPLES.len() < found.len() + 1, "each has one line in the table");
    }
}
