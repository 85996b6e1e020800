//! Errands: what `lyceum check` has done by a child of its own, because it has to be done as
//! somebody else. `lyceum rehearse` reads an [`Errand`] from standard input, becomes whom it
//! must, and answers with findings. Here is the way there and back; `look`, `rehearsal` and
//! `certificate` have the errands.

use std::{
    io::{self, Write},
    process::{ExitCode, Stdio},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

use super::{Finding, Level, certificate::ReadTrial, home::HomeCheck, load, trial::Trial};

#[derive(Debug, Serialize, Deserialize)]
pub enum Errand {
    /// Look at the person's things, as the person.
    Look(HomeCheck),
    /// Read the certificate's files as the portal will.
    Read(ReadTrial),
    /// Start something as the portal would.
    Rehearse(Trial),
}

/// Sends a child on an errand; `subject` is what to say it was about when nothing comes back.
pub async fn send(errand: &Errand, subject: &'static str, patience: Duration) -> Vec<Finding> {
    let fault = |what: String| vec![Finding::new(subject, Level::Fault, what)];
    match tokio::time::timeout(patience, exchange(errand)).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(err)) => fault(format!("it could not be run: {err}")),
        Err(_) => fault(format!("no response for {} s: a file server or the name service hangs", patience.as_secs())),
    }
}

async fn exchange(errand: &Errand) -> io::Result<Vec<Finding>> {
    let mut child = tokio::process::Command::new("/proc/self/exe")
        .arg("rehearse")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = child.stdin.take().expect("it was asked for");
    input.write_all(&serde_json::to_vec(errand)?).await?;
    drop(input);
    let output = child.wait_with_output().await?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The child. It has one thread until it is who it has to be.
pub fn run(word: Option<&str>) -> ExitCode {
    if word == Some("strain") {
        return load::run();
    }
    let errand: Errand = match serde_json::from_reader(io::stdin().lock()) {
        Ok(errand) => errand,
        Err(err) => {
            eprintln!("lyceum rehearse: {err}: this is an internal command of `lyceum check`");
            return ExitCode::from(2);
        }
    };
    let findings = match errand {
        Errand::Look(look) => look.perform(),
        Errand::Read(reading) => reading.perform(),
        Errand::Rehearse(rehearsal) => rehearsal.perform(),
    };
    let answer = serde_json::to_vec(&findings).expect("findings are plain data");
    match io::stdout().write_all(&answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
