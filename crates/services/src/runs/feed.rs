//! Reading: who is read when, by whom, and what is noted of it. While a workload lives its agent
//! tells what is new, for as long as the connection lasts; at its end, and for directories of nobody's,
//! a files agent looks once. Each says only what lies behind the places that came with the points we
//! have, so that whoever dies meanwhile, nothing is lost and nothing is there twice.

use std::{
    collections::HashMap,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;

use super::{Error, Result, Runs, results::digest::digest};
use lyceum_curves::log::{Decoder, MAX_BATCH_SIZE};
use lyceum_model::{
    Loops, Run, RunId, SessionId, SessionState, Timestamp, UserId,
    loops::Round,
    run::{self, ReadProgress, SkippedData, Source, UnreadAttempt},
    session::Placement,
};

use crate::{
    files::{self, Part, SkippedFiles},
    scheduler::PortalUser,
};

/// How often the loop looks who is to be read.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often it is noted how far a run that is followed has come, and whether its workload lives.
const NOTE: Duration = Duration::from_secs(10);
const ACCESS_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Before somebody who could not be read is tried again.
const REST: Duration = Duration::from_secs(10);

/// A directory of nobody's is looked at again after a tenth of the time for which nothing has come,
/// within these bounds (seconds); and as often as the lower one while somebody looks at its page.
const SOONEST: i64 = 3;
const LATEST: i64 = 3600;
const VIEWED: Duration = Duration::from_mins(1);

/// In every so many rounds it is looked for runs whose jobs are gone.
const ROUNDS_TO_FORGET: u64 = 60;

/// A row may be written so long after its id was made (seconds).
const MAX_ROW_DELAY: i64 = 600;

/// How many directories of nobody's are taken up in one round, and how many runs of one person's that have ended.
const MAX_DUE: i64 = 20;

impl Runs {
    /// Reads for ever.
    pub async fn run(self: Arc<Self>, loops: Loops) {
        match self.db.run_ids().await {
            Ok(ids) => {
                if let Err(error) = self.cache.tidy(&ids) {
                    tracing::warn!(%error, "failed to delete the points of removed runs");
                }
            }
            Err(err) => tracing::warn!(error = &err as &dyn std::error::Error, "failed to list runs"),
        }
        let mut well = true;
        for number in 0_u64.. {
            let round = loops.begin("curves", Some(INTERVAL));
            let outcome = match self.round(&round).await {
                Ok(()) if number.is_multiple_of(ROUNDS_TO_FORGET) => self.forget_with_jobs(&round).await,
                other => other,
            };
            round.end(&outcome);
            match &outcome {
                Err(err) if well => tracing::error!(error = err as &dyn std::error::Error, "failed to read curves"),
                _ => {}
            }
            well = outcome.is_ok();
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// Jobs' attempts that have begun since are read like registered runs.
    async fn take_up_jobs(&self, round: &Round) -> Result<()> {
        let since = *self.attempts.lock();
        let mut next = SessionId::at(self.clock.now().plus_seconds(-MAX_ROW_DELAY));
        for attempt in self.db.unread_attempts(since).await? {
            let taken = self.take_up(&attempt).await;
            // The next round begins with the oldest one whose owner is not known yet.
            if !round.unless_failed(format_args!("job {}", attempt.job), taken).unwrap_or(false) {
                next = next.min(attempt.session.predecessor());
            }
        }
        *self.attempts.lock() = next;
        Ok(())
    }

    /// Has one attempt's curves read from now on; false where nobody knows yet whose they are.
    async fn take_up(&self, attempt: &UnreadAttempt) -> Result<bool> {
        let Some(owner) = self.db.find_user(attempt.owner).await? else { return Ok(true) };
        let person = match self.accounts.person(&PortalUser::from(&owner.user)).await {
            Ok(person) => person,
            Err(err) => {
                tracing::debug!(job.id = %attempt.job, error = &err as &dyn std::error::Error, "user of a job unknown; its run is added later");
                return Ok(false);
            }
        };
        if let Ok(directory) = run::directory(&attempt.directory, &person.home.to_string_lossy()) {
            self.db.read_attempt(attempt, &directory, self.clock.now()).await?;
        }
        Ok(true)
    }

    /// What was of jobs that were deleted goes too.
    async fn forget_with_jobs(&self, round: &Round) -> Result<()> {
        for gone in self.db.remove_runs_without_job().await? {
            let removed = self.cache.remove(gone).await;
            round.unless_failed(format_args!("run {gone}"), removed);
        }
        Ok(())
    }

    async fn round(self: &Arc<Self>, round: &Round) -> Result<()> {
        self.take_up_jobs(round).await?;
        let mut due = self.db.runs_to_read(self.clock.now(), MAX_DUE).await?;
        let viewed: Vec<RunId> = {
            let mut viewed = self.viewed.lock();
            viewed.retain(|_, at| at.elapsed() < VIEWED);
            viewed.keys().copied().collect()
        };
        for id in viewed {
            if !self.is_resting(id)
                && !due.iter().any(|run| run.id == id)
                && let Some(run) = self.db.find_run(id, None).await?
            {
                due.push(run);
            }
        }
        self.resting.lock().retain(|_, until| Instant::now() < *until);
        let mut looks: HashMap<UserId, Vec<Run>> = HashMap::new();
        for run in due {
            let id = run.id;
            // One that waits for its workload has nothing to read yet.
            let waits = matches!(run.source, Source::Session { state: SessionState::Queued, .. });
            if waits || self.is_resting(id) || self.busy.lock().contains(&id) {
                continue;
            }
            if !run.source.is_live() {
                looks.entry(run.owner).or_default().push(run);
                continue;
            }
            self.busy.lock().insert(id);
            let this = Arc::clone(self);
            tokio::spawn(async move {
                this.read(run).await;
                this.busy.lock().remove(&id);
            });
        }
        for (owner, runs) in looks {
            self.look_in_turn(owner, runs);
        }
        Ok(())
    }

    /// Looks at runs of one person one after another, unless earlier ones are still looked at: files agents are few.
    fn look_in_turn(self: &Arc<Self>, owner: UserId, runs: Vec<Run>) {
        if !self.looking.lock().insert(owner) {
            return;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            for run in runs {
                let id = run.id;
                // Of a job that goes on meanwhile an agent tells.
                if this.busy.lock().insert(id) {
                    this.read(run).await;
                    this.busy.lock().remove(&id);
                }
            }
            this.looking.lock().remove(&owner);
        });
    }

    fn is_resting(&self, id: RunId) -> bool {
        self.resting.lock().get(&id).is_some_and(|until| Instant::now() < *until)
    }

    fn rest(&self, id: RunId, time: Duration) {
        self.resting.lock().insert(id, Instant::now() + time);
    }

    /// Reads what there is to read of a run now.
    async fn read(self: &Arc<Self>, run: Run) {
        let (followed, outcome) = match &run.source {
            Source::Session { id, state, placement: Some(placement), .. } if state.is_live() => {
                (true, self.follow_agent(&run, *id, placement).await)
            }
            Source::Session { state, .. } if state.is_live() => return,
            Source::Session { .. } | Source::External => (false, self.look_once(&run).await),
        };
        match outcome {
            Ok(()) if followed => {}
            Ok(()) => self.rest(run.id, Duration::from_secs(SOONEST.unsigned_abs())),
            Err(Error::NotFound) => {}
            // An agent that is only just starting does not answer yet.
            Err(err) if followed => {
                tracing::debug!(run.id = %run.id, error = &err as &dyn std::error::Error, "agent does not report curves");
            }
            Err(err) => {
                self.rest(run.id, REST);
                tracing::info!(run.id = %run.id, error = &err as &dyn std::error::Error, "failed to read a run");
                let reading = ReadProgress { error: Some(sentence(&err)), ..run.reading.clone() };
                self.note(&run, &reading).await;
            }
        }
    }

    /// Takes what the workload's agent tells, until one of them ends.
    async fn follow_agent(self: &Arc<Self>, run: &Run, session: SessionId, placement: &Placement) -> Result<()> {
        let places = self.cache.look(run.id, lyceum_curves::Store::places).await?;
        let mut frames = self.transport.curves(session, placement, &run.directory, places.into()).await?;
        let mut decoder = Decoder::default();
        let mut held = BytesMut::new();
        let mut reading = run.reading.clone();
        let (mut noted, mut is_news) = (Instant::now(), reading.error.take().is_some());
        let mut still = tokio::time::interval(ACCESS_CHECK_INTERVAL);
        loop {
            tokio::select! {
                piece = frames.next() => {
                    let Some(piece) = piece else { break };
                    held.extend_from_slice(&piece);
                    while let Some(batch) = next_frame(&mut held)? {
                        decoder = self.keep(run.id, decoder, batch, &mut reading).await?;
                        is_news = true;
                    }
                }
                // A connection may outlast a workload that nobody can reach any more.
                _ = still.tick() => {
                    let found = self.db.find_run(run.id, None).await?.ok_or(Error::NotFound)?;
                    match found.source {
                        Source::Session { id, state, .. } if id == session && state.is_live() => {}
                        _ => break,
                    }
                }
            }
            if is_news && noted.elapsed() > NOTE {
                (noted, is_news) = (Instant::now(), false);
                reading.read_at = Some(self.clock.now());
                self.note(run, &reading).await;
            }
        }
        if is_news {
            reading.read_at = Some(self.clock.now());
            self.note(run, &reading).await;
        }
        Ok(())
    }

    /// Has a files agent tell what is new, once.
    async fn look_once(self: &Arc<Self>, run: &Run) -> Result<()> {
        let Ok(_permit) = Arc::clone(&self.looks).acquire_owned().await else { return Ok(()) };
        let user = self.db.find_user(run.owner).await?.ok_or(Error::NotFound)?;
        let places = self.cache.look(run.id, lyceum_curves::Store::places).await?;
        let mut reading = run.reading.clone();
        let mut decoder = Decoder::default();
        let mut curves = Some(self.files.read_curves(&user.user, &run.directory, places, MAX_BATCH_SIZE).await?);
        let mut met = SkippedFiles::default();
        while let Some(under_way) = curves.take() {
            let (part, rest) = under_way.next().await?;
            match part {
                Part::Batch(batch) => decoder = self.keep(run.id, decoder, batch, &mut reading).await?,
                Part::End(end) => met = end,
            }
            curves = rest;
        }
        reading.read_at = Some(self.clock.now());
        (reading.error, reading.skipped.unreadable) = unreadable(run, met.unreadable);
        reading.skipped.left_out = met.left_out;
        reading.complete = run.source.is_over();
        self.note(run, &reading).await;
        Ok(())
    }

    async fn keep(&self, id: RunId, decoder: Decoder, batch: Bytes, reading: &mut ReadProgress) -> Result<Decoder> {
        let (decoder, points) = self.cache.add(id, decoder, batch).await?;
        if points != reading.points {
            reading.points = points;
            reading.grown_at = Some(self.clock.now());
        }
        Ok(decoder)
    }

    /// Writes down how far reading has come, if that is news.
    async fn note(&self, run: &Run, reading: &ReadProgress) {
        let unreadable = reading.skipped.clone();
        let counted = self.cache.look(run.id, |store| {
            let mut all = lyceum_curves::reader::Skipped::default();
            store.runs.values().for_each(|run| all.add(run.skipped));
            (all, store.points(), store.curves() as u64, store.length(), digest(store))
        });
        let Ok((all, points, curves, revision, digest)) = counted.await else { return };
        self.keep_digest(run.id, revision, &digest).await;
        let skipped = SkippedData {
            damaged: all.damaged,
            oversized: all.oversized,
            surplus: all.surplus,
            lost: all.lost,
            ..unreadable
        };
        let reading = ReadProgress { points, curves, skipped, ..reading.clone() };
        let look_at = self.next_look(run, &reading);
        match self.db.note_reading(run.id, &reading, look_at).await {
            // Nobody may listen.
            Ok(()) => _ = self.changed.send(run.id),
            Err(err) => {
                self.rest(run.id, REST);
                tracing::warn!(run.id = %run.id, error = &err as &dyn std::error::Error, "failed to store the read position of a run");
            }
        }
    }

    fn next_look(&self, run: &Run, reading: &ReadProgress) -> Timestamp {
        let now = self.clock.now();
        let quiet = (now.0 - reading.grown_at.unwrap_or(run.created_at).0) / 1000;
        let soonest = if reading.error.is_some() { REST.as_secs().cast_signed() } else { SOONEST };
        now.plus_seconds((quiet / 10).clamp(soonest, LATEST))
    }
}

/// The next whole frame of what an agent sends: a length, and so many bytes.
fn next_frame(held: &mut BytesMut) -> Result<Option<Bytes>> {
    let Some(length) = held.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length > MAX_BATCH_SIZE {
        return Err(Error::Agent("batch too large".to_owned()));
    }
    if held.len() < 4 + length {
        return Ok(None);
    }
    held.advance(4);
    Ok(Some(held.split_to(length).freeze()))
}

/// What an owner reads.
fn sentence(err: &Error) -> String {
    match err {
        Error::Files(files::Error::Silent { path }) => {
            format!("The file system of {} does not respond. The portal will retry.", shown(path))
        }
        Error::Files(files::Error::Scheduler(err)) | Error::Scheduler(err) => {
            format!("The run cannot be read at the moment: {err}.")
        }
        Error::Files(files::Error::Busy) => {
            "Too many file operations of its owner are running. The portal will retry.".to_owned()
        }
        _ => "The run could not be read. The portal will retry; see its log for details.".to_owned(),
    }
}

/// What is said of a run of whose directory these paths could not be read, and of which paths besides.
fn unreadable(run: &Run, mut told: Vec<String>) -> (Option<String>, Vec<String>) {
    let root = format!("{}: ", run.directory);
    let missing = io::Error::from(io::ErrorKind::NotFound).to_string();
    let why = told.iter().find_map(|told| told.strip_prefix(&root)).map(str::to_owned);
    let error = match why {
        None => None,
        // An empty directory goes with its job: this one wrote nothing.
        Some(why) if why == missing && run.source.is_over() => {
            told.retain(|told| !told.starts_with(&root));
            None
        }
        Some(why) if why == missing => Some(format!("The directory {} does not exist.", shown(&run.directory))),
        Some(why) => Some(format!("The directory {} cannot be read: {why}.", shown(&run.directory))),
    };
    (error, told.into_iter().take(20).map(|told| shown(&told)).collect())
}

/// Text of a user's process, fit for a page.
fn shown(text: &str) -> String {
    text.chars().take(400).map(|c| if lyceum_model::line::is_misleading(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_out_wherever_they_come() {
        let wire = [&[0, 0, 0, 3][..], b"abc", &[0, 0, 0, 0], &[0, 0, 0, 1], b"x"].concat();
        for cut in 0..wire.len() {
            let mut held = BytesMut::new();
            let mut found = Vec::new();
            for piece in [&wire[..cut], &wire[cut..]] {
                held.extend_from_slice(piece);
                while let Some(frame) = next_frame(&mut held).unwrap() {
                    found.push(frame);
                }
            }
            assert_eq!(found, [&b"abc"[..], b"", b"x"]);
        }
        assert!(next_frame(&mut BytesMut::from(&[255, 255, 255, 255][..])).is_err());
    }
}
