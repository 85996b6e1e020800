//! Curves by the million, for `run.py`: writes event files, reads them, and asks for buckets,
//! each in a process of its own. Each verb prints one line of JSON.

#![expect(clippy::print_stdout, reason = "what it prints is its answer")]

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    hint::black_box,
    io::{self, BufWriter},
    path::Path,
    process::ExitCode,
    time::Instant,
};

use lyceum::curves::{Point, Runs, Series, Tail, log::Entry, write::Writer};

const USAGE: &str = "curves write DIRECTORY RUNS TAGS STEPS
curves read DIRECTORY
curves query CURVES POINTS BUCKETS ROUNDS";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["write", directory, counts @ ..] => numbers(counts).and_then(|counts| write(Path::new(directory), counts)),
        ["read", directory] => read(Path::new(directory)),
        ["query", counts @ ..] => numbers(counts).and_then(query),
        _ => Err(io::Error::other(USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("{err}");
            ExitCode::FAILURE
        }
    }
}

fn numbers<const N: usize>(words: &[&str]) -> io::Result<[i64; N]> {
    let numbers: Vec<i64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().map_err(|_wrong| io::Error::other(USAGE))
}

fn write(directory: &Path, [runs, tags, steps]: [i64; 3]) -> io::Result<()> {
    for run in 0..runs {
        let directory = directory.join(format!("run-{run:03}"));
        fs::create_dir_all(&directory)?;
        let mut writer =
            Writer::begin(BufWriter::new(File::create(directory.join("events.out.tfevents.1.host"))?), 0.0)?;
        for step in 0..steps {
            for tag in 0..tags {
                writer.scalar(&format!("metrics/loss-{tag}"), step, 1.7e9, value(step))?;
            }
        }
        writer.flush()?;
    }
    Ok(())
}

/// Something that goes up and down.
#[expect(clippy::cast_precision_loss, reason = "any value will do")]
fn value(step: i64) -> f32 {
    (step * 7919 % 1009) as f32 / 1009.0
}

fn read(directory: &Path) -> io::Result<()> {
    let before = memory()?;
    let begin = Instant::now();
    let mut tail = Tail::new(directory.to_owned(), &BTreeMap::new());
    let mut runs = Runs::default();
    let mut tell = |entry: Entry<'_>| {
        if let Entry::Item { run, item } = entry {
            runs.take(run, item);
        }
    };
    while tail.poll(0.0, &mut tell) {}
    let seconds = begin.elapsed().as_secs_f64();
    let points: usize = runs.values().flat_map(|run| run.curves().map(|(_, series)| series.len())).sum();
    println!("{{\"seconds\": {seconds}, \"points\": {points}, \"bytes\": {}}}", memory()? - before);
    Ok(())
}

fn query([curves, points, buckets, rounds]: [i64; 4]) -> io::Result<()> {
    let mut all = vec![Series::default(); usize::try_from(curves).unwrap_or(0)];
    for series in &mut all {
        for step in 0..points {
            series.push(Point { step, wall_time: 0.0, value: value(step).into(), attempt: 0 });
        }
    }
    let buckets = usize::try_from(buckets).unwrap_or(1);
    let mut seconds: Vec<f64> = Vec::new();
    for _ in 0..rounds {
        let begin = Instant::now();
        for series in &all {
            black_box(series.by_step(i64::MIN..=i64::MAX, buckets));
        }
        seconds.push(begin.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let median = seconds.get(seconds.len() / 2).ok_or_else(|| io::Error::other(USAGE))?;
    println!("{{\"seconds\": {median}, \"bytes\": {}}}", memory()?);
    Ok(())
}

/// What the process holds of memory (bytes).
fn memory() -> io::Result<i64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<i64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("no VmRSS in /proc/self/status"))
}
