//! Waiting until a session runs or a job has ended, with a limit in time. A portal that is restarted meanwhile has
//! ended nothing. A job's end becomes the exit status of the command: the program's own code, or 128 and the signal.

use std::{future::Future, io::Write, time::Duration};

use clap::Args;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    POLL_INTERVAL,
    api::{Api, Error, JOBS, Job, Result, SESSIONS, Session},
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

/// Prints the log of a job until its end.
pub(super) async fn with_log(api: &Api, id: &str, limit: Limit, out: &mut (dyn Write + Send)) -> Result<Waited> {
    let followed = log::print_all(api, JOBS, id, out);
    match limit.timeout {
        Some(seconds) => {
            let time = Duration::from_secs(seconds.unsigned_abs());
            match tokio::time::timeout(time, followed).await {
                Ok(result) => result?,
                Err(_) => return Err(late(seconds)),
            }
        }
        None => followed.await?,
    }
    // The log may end a moment before the job.
    job(api, api.get(&format!("/jobs/{id}"), &[]).await?, limit).await
}

fn late(seconds: i64) -> Error {
    Error::TimedOut(format!("gave up after {}; it goes on", human_duration(seconds)))
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
                let now = serde_json::json!([latest["state"], latest["reasons"], latest["attempt"]]);
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
async fn within<T>(deadline: Option<Instant>, answer: impl Future<Output = Result<T>>) -> Result<T> {
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
