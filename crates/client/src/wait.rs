//! Waiting until a session runs, a job or a sweep has ended, or a dataset or a model is ready, with a limit in time. A
//! portal that is restarted meanwhile has ended nothing. A job's end becomes the exit status of the command: the
//! program's own code, or 128 and the signal. What has no program ends with 0 or 1.

use std::{future::Future, io::Write, time::Duration};

use clap::Args;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    POLL_INTERVAL,
    api::{Api, Collection, Error, JOBS, Job, Result, SESSIONS, SWEEPS, Session},
    duration, line, log, print_status, table,
};
use lyceum_model::{Clock, SessionState, time::human_duration};

/// How long waiting goes on while nobody answers.
const RECONNECT_TIMEOUT: Duration = Duration::from_mins(10);

/// `--timeout`
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Limit {
    /// Stop waiting after this time, such as 30s or 2h, with the exit status 124; what was started goes on
    #[arg(long, value_parser = duration)]
    timeout: Option<i64>,
}

/// What `wait` of jobs, datasets and models accepts.
#[derive(Args, Debug)]
pub struct WaitArguments {
    /// The ids, their beginnings or their ends, or names
    #[arg(required = true, value_name = "ID")]
    pub(super) ids: Vec<String>,
    /// Print the log meanwhile
    #[arg(long, conflicts_with_all = ["json", "output"])]
    pub(super) log: bool,
    #[command(flatten)]
    pub(super) limit: Limit,
}

/// What waiting ended with, and the last answer of the portal.
pub(super) struct Waited {
    latest: Value,
    failure: Option<Error>,
}

/// Returns the last answer. For programs it is printed also where waiting failed.
pub(super) fn shown(waited: Result<Waited>, json: bool, out: &mut (dyn Write + Send)) -> Result<Value> {
    let Waited { latest, failure } = waited?;
    let Some(failure) = failure else { return Ok(latest) };
    if json {
        line(out, &latest.to_string())?;
    }
    Err(failure)
}

/// Waits until a session runs; an end before that is a failure. With `ended` its end is waited for.
pub(super) async fn session(api: &Api, latest: Value, ended: bool, limit: Limit) -> Result<Waited> {
    let path = SESSIONS.path();
    let judge = |value: &Value| {
        let session = Session::read(value)?;
        let sentence = || table::sentence(&session, Clock::System.now());
        Ok(match session.state {
            SessionState::Ended if ended => Verdict::Done,
            SessionState::Running if !ended => Verdict::Done,
            SessionState::Ended | SessionState::Stopping if !ended => Verdict::Failed(Error::Ended(sentence())),
            _ => Verdict::Wait(sentence()),
        })
    };
    until(api, path, latest, limit, judge).await
}

/// Waits until a job has ended.
pub(super) async fn job(api: &Api, latest: Value, limit: Limit) -> Result<Waited> {
    let judge = |value: &Value| {
        let job = Job::read(value)?;
        let sentence = table::job(&job, Clock::System.now());
        Ok(match (job.state, job.exit_code, job.signal) {
            (SessionState::Ended, Some(0), None) => Verdict::Done,
            (SessionState::Ended, code, signal) => {
                Verdict::Failed(Error::Program { code: status(code, signal), sentence })
            }
            _ => Verdict::Wait(sentence),
        })
    };
    until(api, JOBS.path(), latest, limit, judge).await
}

/// Waits until a sweep has ended. A task that did not succeed is a failure.
pub(super) async fn sweep(api: &Api, latest: Value, limit: Limit) -> Result<Waited> {
    let judge = |value: &Value| {
        let sentence = table::sweep_progress(value);
        let others = |(state, count): (&String, &Value)| *state != "succeeded" && count.as_u64().unwrap_or(0) > 0;
        let has_failed = value["states"].as_object().is_some_and(|states| states.iter().any(others));
        Ok(match value["state"].as_str() {
            Some("ended") if has_failed => Verdict::Failed(Error::Ended(sentence)),
            Some("ended") => Verdict::Done,
            _ => Verdict::Wait(sentence),
        })
    };
    until(api, SWEEPS.path(), latest, limit, judge).await
}

/// Waits until a dataset or a model has left the state of being made; any but the one that is wanted is a failure.
async fn made(api: &Api, of: Collection, latest: Value, limit: Limit) -> Result<Waited> {
    let judge = |value: &Value| {
        let sentence = table::state_line(value);
        Ok(match value["state"].as_str() {
            Some("building" | "training") => Verdict::Wait(sentence),
            Some("ready" | "trained") => Verdict::Done,
            _ => Verdict::Failed(Error::Ended(sentence)),
        })
    };
    until(api, of.path(), latest, limit, judge).await
}

/// Waits for a job, a dataset or a model. With `log`, the log of its job is printed there until its end.
pub(super) async fn with_log(
    api: &Api,
    of: Collection,
    id: &str,
    log: Option<&mut (dyn Write + Send)>,
    limit: Limit,
) -> Result<Waited> {
    let id = api.id(of, id).await?;
    let path = format!("{}/{id}", of.path());
    let mut latest = api.get(&path, &[]).await?;
    let is_job = of.path() == JOBS.path();
    let job = if is_job { Some(id.as_str()) } else { latest["job"].as_str() };
    if let (Some(out), Some(job)) = (log, job) {
        print_log(api, job, limit, out).await?;
        // The log may end a moment before the job.
        latest = api.get(&path, &[]).await?;
    }
    if is_job { self::job(api, latest, limit).await } else { made(api, of, latest, limit).await }
}

/// Prints the log of a job until its end, within the limit.
async fn print_log(api: &Api, id: &str, limit: Limit, out: &mut (dyn Write + Send)) -> Result<()> {
    let followed = log::print_all(api, JOBS, id, out);
    match limit.timeout {
        Some(seconds) => {
            let time = Duration::from_secs(seconds.unsigned_abs());
            tokio::time::timeout(time, followed).await.map_err(|_elapsed| late(seconds))?
        }
        None => followed.await,
    }
}

fn late(seconds: i64) -> Error {
    Error::TimedOut(format!("stopped waiting after {}; what was started continues", human_duration(seconds)))
}

/// The status of a shell for how a program ended; 1 where no program did.
fn status(code: Option<i64>, signal: Option<i64>) -> u8 {
    let number = match (code, signal) {
        (_, Some(signal)) => 128 + signal,
        (Some(code), None) => code,
        (None, None) => 1,
    };
    u8::try_from(number).ok().filter(|number| *number != 0).unwrap_or(1)
}

enum Verdict {
    Wait(String),
    Done,
    Failed(Error),
}

/// Asks until the judgement is final. A sentence is printed for each new state, on standard error.
async fn until(
    api: &Api,
    path: &str,
    mut latest: Value,
    limit: Limit,
    judge: impl Fn(&Value) -> Result<Verdict>,
) -> Result<Waited> {
    let begin = Instant::now();
    let id = latest["id"].as_str().unwrap_or_default().to_owned();
    let deadline = limit.timeout.map(|seconds| begin + Duration::from_secs(seconds.unsigned_abs()));
    let (mut last, mut silent_since) = (Value::Null, None);
    loop {
        match judge(&latest)? {
            Verdict::Done => return Ok(Waited { latest, failure: None }),
            Verdict::Failed(error) => return Ok(Waited { latest, failure: Some(error) }),
            Verdict::Wait(sentence) => {
                let now = serde_json::json!([latest["state"], latest["reasons"], latest["attempt"], latest["states"]]);
                if now != last {
                    print_status(format_args!("{sentence}"));
                    last = now;
                }
            }
        }
        if deadline.is_some_and(|deadline| Instant::now() + POLL_INTERVAL > deadline) {
            let seconds = limit.timeout.unwrap_or_default();
            return Ok(Waited { latest, failure: Some(late(seconds)) });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        match within(deadline, api.get(&format!("{path}/{id}"), &[])).await {
            Ok(answer) => (latest, silent_since) = (answer, None),
            Err(error) if error.may_pass() => {
                let since = *silent_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= RECONNECT_TIMEOUT {
                    return Err(error);
                }
                print_status(format_args!("no response: {error}"));
            }
            Err(error) => return Err(error),
        }
    }
}

/// An answer before the deadline; later than that nobody answers.
pub(super) async fn within<T>(deadline: Option<Instant>, answer: impl Future<Output = Result<T>>) -> Result<T> {
    let Some(deadline) = deadline else { return answer.await };
    let late = |_| Error::Unreachable { url: "the portal".to_owned(), why: "no response in time".to_owned() };
    tokio::time::timeout_at(deadline, answer).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_that_of_a_shell() {
        assert_eq!(status(Some(7), None), 7);
        assert_eq!(status(None, Some(9)), 137);
        assert_eq!(status(Some(0), Some(15)), 143);
        assert_eq!(status(None, None), 1);
        assert_eq!(status(Some(256), None), 1);
        assert_eq!(status(Some(0), None), 1, "it did not end well, and success must not be said");
    }
}
