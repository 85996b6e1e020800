//! `lyceum demo-train`: a training program that trains nothing. It writes plausible curves as
//! event files or lines of JSON at a given rate, and does on request what real ones do by
//! accident: crash, stall, diverge, begin anew. For trying Lyceum out, and for its tests; what the
//! curves look like is `measures`'s.

mod measures;

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use self::measures::Plan;
use lyceum_model::Clock;

use crate::write::Writer;

/// Simulate a training: write curves of loss, accuracy and learning rate as TensorBoard
/// event files below the log directory. Does not need Python or a portal.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
EXAMPLES
  lyceum demo-train --log-directory logs/first
  lyceum demo-train --log-directory logs/broken --nan-at 300 --crash-at 400
  lyceum demo-train --log-directory logs/broken --resume

EXIT STATUS
  0 at the end of the training; 1 after --crash-at with --crash-by exit, or if the log directory is not writable;
  SIGABRT or SIGKILL after --crash-by abort or kill.")]
pub struct Arguments {
    /// Directory for the curves and the checkpoint; created if it does not exist. Default:
    /// $LYCEUM_LOG_DIRECTORY, which is set in jobs, otherwise ./logs.
    #[arg(long, value_name = "DIR")]
    log_directory: Option<PathBuf>,
    /// Number of steps; 0: run until it is stopped.
    #[arg(long, default_value_t = 1000)]
    steps: u64,
    /// Steps per second; 0: as fast as possible.
    #[arg(long, default_value_t = 20.0, value_parser = parse_rate)]
    rate: f64,
    /// Number of steps between validations. Each validation also writes a checkpoint.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    steps_per_epoch: u64,
    /// Initial learning rate. Above 0.5 the training is unstable.
    #[arg(long, default_value_t = 0.1)]
    learning_rate: f64,
    /// Learning rate schedule.
    #[arg(long, value_enum, default_value_t = Schedule::Cosine)]
    schedule: Schedule,
    /// Seed of the noise. The same seed gives the same values.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One file with tags train/… and val/…, or directories train and validation like Keras.
    #[arg(long, value_enum, default_value_t = Layout::Tags)]
    layout: Layout,
    /// Event files, or metrics.jsonl with one JSON object on each line.
    #[arg(long, value_enum, default_value_t = Format::Events)]
    format: Format,
    /// Number of additional curves, with one value for each step.
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    extra_tags: u32,
    /// Write NaN as the loss from this step on.
    #[arg(long, value_name = "STEP")]
    nan_at: Option<u64>,
    /// Multiply the loss of this one step by 1000.
    #[arg(long, value_name = "STEP")]
    spike_at: Option<u64>,
    /// Crash before this step.
    #[arg(long, value_name = "STEP")]
    crash_at: Option<u64>,
    /// Kind of crash: exit status 1 with a message on standard error, SIGABRT, or SIGKILL.
    #[arg(long, value_enum, default_value_t = Crash::Exit)]
    crash_by: Crash,
    /// Stop writing at this step, but keep running.
    #[arg(long, value_name = "STEP")]
    stall_at: Option<u64>,
    /// Before this step, go back to the last checkpoint once and continue from there.
    #[arg(long, value_name = "STEP")]
    restart_at: Option<u64>,
    /// Resume from the checkpoint in the log directory, or start from the beginning if there is none.
    #[arg(long)]
    resume: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Schedule {
    Constant,
    Cosine,
    /// Divide by ten after each third of the training.
    Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Layout {
    Tags,
    Directories,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Events,
    Lines,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Crash {
    Exit,
    Abort,
    Kill,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_err| "not a number".to_owned())?;
    if (0.0..=1e9).contains(&rate) { Ok(rate) } else { Err("must be between 0 and 1000000000".to_owned()) }
}

/// Why a training that trains nothing did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the log directory {} cannot be written", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("RuntimeError: the training crashed at step {0}, as requested by --crash-at")]
    Crashed(u64),
    /// Whoever reads the progress has gone.
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// Runs to the end; progress goes to `out`, a line an epoch. `usual` is where it writes where nobody says.
pub fn run(arguments: &Arguments, usual: Option<String>, out: &mut impl Write) -> Result<(), Error> {
    let directory = arguments.log_directory.clone().or(usual.map(PathBuf::from)).unwrap_or_else(|| "logs".into());
    train(arguments, &directory, out).map_err(|failed| match failed {
        Failed::Write(source) => Error::Write { path: directory.clone(), source },
        Failed::Told(source) => Error::Output(source),
        Failed::Crashed(step) => Error::Crashed(step),
    })
}

enum Failed {
    Write(io::Error),
    Told(io::Error),
    Crashed(u64),
}

impl From<io::Error> for Failed {
    fn from(err: io::Error) -> Self {
        Self::Write(err)
    }
}

fn train(arguments: &Arguments, directory: &Path, out: &mut impl Write) -> Result<(), Failed> {
    fs::create_dir_all(directory)?;
    let mut step = if arguments.resume { checkpoint(directory).map_or(0, |found| found.step) } else { 0 };
    let mut log = Log::begin(arguments, directory, arguments.resume.then_some(step))?;
    let plan = plan(arguments);
    let pace = Pace { begun: Instant::now(), rate: arguments.rate };
    let mut written = 0;
    let mut may_restart = true;
    while arguments.steps == 0 || step < arguments.steps {
        if arguments.crash_at == Some(step) {
            log.flush()?;
            crash(arguments.crash_by);
            return Err(Failed::Crashed(step));
        }
        if arguments.stall_at == Some(step) {
            log.flush()?;
            writeln!(out, "stalled at step {step}").and_then(|()| out.flush()).map_err(Failed::Told)?;
            loop {
                std::thread::park();
            }
        }
        if arguments.restart_at == Some(step) && std::mem::take(&mut may_restart) {
            log.flush()?;
            step = checkpoint(directory).map_or(0, |found| found.step);
            log = Log::begin(arguments, directory, Some(step))?;
            writeln!(out, "restarted at step {step}").map_err(Failed::Told)?;
        }
        let values = plan.at(step);
        log.train(step, &[("loss", values.loss), ("accuracy", values.accuracy), ("lr", values.learning_rate)])?;
        for number in 0..arguments.extra_tags {
            log.train(step, &[(&format!("extra/{number:06}"), values.loss + f64::from(number))])?;
        }
        step += 1;
        written += 1;
        if step.is_multiple_of(arguments.steps_per_epoch) {
            let values = plan.validated(step);
            log.validation(step, &[("loss", values.loss), ("accuracy", values.accuracy)])?;
            log.flush()?;
            save(directory, Checkpoint { step })?;
            let epoch = step / arguments.steps_per_epoch;
            let (loss, accuracy) = (values.loss, values.accuracy);
            writeln!(out, "epoch {epoch} step {step} val_loss {loss:.4} val_accuracy {accuracy:.4}")
                .and_then(|()| out.flush())
                .map_err(Failed::Told)?;
        }
        if pace.wait(written) {
            log.flush()?;
        }
    }
    log.flush()?;
    save(directory, Checkpoint { step })?;
    writeln!(out, "done after {step} steps").map_err(Failed::Told)
}

fn plan(arguments: &Arguments) -> Plan {
    Plan {
        steps: arguments.steps,
        learning_rate: arguments.learning_rate,
        schedule: arguments.schedule,
        seed: arguments.seed,
        nan_at: arguments.nan_at,
        spike_at: arguments.spike_at,
    }
}

/// Comes back only where the end is to be an ordinary one.
fn crash(by: Crash) {
    match by {
        Crash::Exit => {}
        Crash::Abort => std::process::abort(),
        Crash::Kill => {
            // Whoever cannot be killed ends as if by `exit`.
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}

/// So many steps a second, however long each took.
struct Pace {
    begun: Instant,
    rate: f64,
}

impl Pace {
    /// Waits until the next step is due; whether there was time.
    fn wait(&self, written: u64) -> bool {
        if self.rate == 0.0 {
            return false;
        }
        #[expect(clippy::cast_precision_loss, reason = "nobody counts to 2⁵³ at any rate")]
        let due = self.begun + Duration::from_secs_f64(written as f64 / self.rate);
        let mut was_early = false;
        while let Some(rest) = due.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
            was_early = true;
            std::thread::park_timeout(rest);
        }
        was_early
    }
}

/// What a run goes on from.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Checkpoint {
    step: u64,
}

const CHECKPOINT: &str = "checkpoint.json";

fn checkpoint(directory: &Path) -> Option<Checkpoint> {
    serde_json::from_slice(&fs::read(directory.join(CHECKPOINT)).ok()?).ok()
}

/// Whole or as it was, whatever kills us meanwhile.
fn save(directory: &Path, checkpoint: Checkpoint) -> io::Result<()> {
    let part = directory.join(format!("{CHECKPOINT}.part"));
    fs::write(&part, serde_json::to_vec(&checkpoint)?)?;
    fs::rename(part, directory.join(CHECKPOINT))
}

/// Where values are written.
enum Log {
    Lines(BufWriter<File>),
    /// One file for both.
    Tags(Writer<BufWriter<File>>),
    /// `train` and `validation`.
    Directories(Writer<BufWriter<File>>, Writer<BufWriter<File>>),
}

impl Log {
    /// A file of its own for each beginning. Who goes on says from which step: what others wrote
    /// from there on is past.
    fn begin(arguments: &Arguments, directory: &Path, from: Option<u64>) -> io::Result<Self> {
        Ok(match (arguments.format, arguments.layout) {
            (Format::Lines, _) => {
                let file = File::options().append(true).create(true).open(directory.join("metrics.jsonl"))?;
                Self::Lines(BufWriter::new(file))
            }
            (Format::Events, Layout::Tags) => Self::Tags(events(directory, from)?),
            (Format::Events, Layout::Directories) => {
                let (train, validation) = (directory.join("train"), directory.join("validation"));
                Self::Directories(events(&train, from)?, events(&validation, from)?)
            }
        })
    }

    fn train(&mut self, step: u64, values: &[(&str, f64)]) -> io::Result<()> {
        match self {
            Self::Lines(file) => line(file, step, "train", values),
            Self::Tags(writer) => scalars(writer, step, "train/", values),
            Self::Directories(train, _) => scalars(train, step, "", values),
        }
    }

    fn validation(&mut self, step: u64, values: &[(&str, f64)]) -> io::Result<()> {
        match self {
            Self::Lines(file) => line(file, step, "val", values),
            Self::Tags(writer) => scalars(writer, step, "val/", values),
            Self::Directories(_, validation) => scalars(validation, step, "", values),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Lines(file) => file.flush(),
            Self::Tags(writer) => writer.flush(),
            Self::Directories(train, validation) => train.flush().and_then(|()| validation.flush()),
        }
    }
}

/// An event file as TensorFlow names them, new in its directory.
fn events(directory: &Path, from: Option<u64>) -> io::Result<Writer<BufWriter<File>>> {
    fs::create_dir_all(directory)?;
    let (now, process) = (now(), std::process::id());
    let names = (0..).map(|number| format!("events.out.tfevents.{now:.0}.demo.{process}.{number}"));
    for name in names {
        match File::create_new(directory.join(name)) {
            Ok(file) => {
                let mut writer = Writer::begin(BufWriter::new(file), now)?;
                if let Some(step) = from {
                    writer.start(signed(step), now)?;
                }
                return Ok(writer);
            }
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            Err(err) => return Err(err),
        }
    }
    unreachable!("the numbers do not end")
}

fn scalars<W: Write>(writer: &mut Writer<W>, step: u64, prefix: &str, values: &[(&str, f64)]) -> io::Result<()> {
    let now = now();
    for (tag, value) in values {
        #[expect(clippy::cast_possible_truncation, reason = "event files have 32 bits")]
        writer.scalar(&format!("{prefix}{tag}"), signed(step), now, *value as f32)?;
    }
    Ok(())
}

/// `{"step": …, "time": …, "train": {…}}`, with NaN as Python writes it.
fn line(out: &mut impl Write, step: u64, part: &str, values: &[(&str, f64)]) -> io::Result<()> {
    let values: Vec<String> = values
        .iter()
        .map(|(tag, value)| {
            let value = if value.is_nan() { "NaN".to_owned() } else { format!("{value}") };
            format!("\"{tag}\": {value}")
        })
        .collect();
    writeln!(out, "{{\"step\": {step}, \"time\": {:.3}, \"{part}\": {{{}}}}}", now(), values.join(", "))
}

fn signed(step: u64) -> i64 {
    i64::try_from(step).unwrap_or(i64::MAX)
}

/// Seconds since 1970.
fn now() -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of these centuries fit")]
    let now = Clock::System.now().0 as f64;
    now / 1000.0
}
