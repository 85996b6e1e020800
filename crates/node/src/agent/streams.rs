//! Files of the user's for a job's standard streams, as `#SBATCH --output`, `--error` and `--input`
//! name them: patterns become names as Slurm makes them, and what the program writes goes into the
//! files whole, besides the job's bounded log. A file server that is slow holds up the program, as
//! it would without us, and not the agent.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{fs::File, io::AsyncWriteExt, time::timeout};

use lyceum_wire::protocol::AppLaunch;

/// How long opening them may take.
const OPEN_TIMEOUT: Duration = Duration::from_mins(2);

/// What Slurm shows for the number of a task that is of no array.
const NO_TASK: &str = "4294967294";

/// The widest that a number is padded to.
const MAX_PADDING: usize = 10;

/// A file that everything is written to.
pub(super) struct Sink {
    file: File,
    path: PathBuf,
}

/// Standard streams that are opened.
#[derive(Default)]
pub(super) struct Files {
    pub input: Option<fs::File>,
    pub output: Option<Sink>,
    /// `None`: where the output goes.
    pub error: Option<Sink>,
    /// Errors have a file of their own.
    pub is_split: bool,
}

impl Sink {
    /// Writes all of it.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes).await?;
        // A failed write is only reported by the next operation.
        self.file.flush().await
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens the files that a launch names; the error is a sentence for the user.
pub(super) async fn open(app: &AppLaunch) -> Result<Files, String> {
    let streams = app.start.streams.clone();
    if streams.output.is_none() && streams.error.is_none() && streams.input.is_none() {
        return Ok(Files::default());
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let facts = Facts { variables: &app.environment, host: host.split('.').next().unwrap_or_default() };
    let path =
        |pattern: &Option<String>| pattern.as_ref().map(|pattern| app.working_directory.join(facts.file_name(pattern)));
    let (input, output, error) = (path(&streams.input), path(&streams.output), path(&streams.error));
    let is_split = error.is_some() && error != output;
    let error = error.filter(|_| is_split);
    let append = streams.append;
    let opened = tokio::task::spawn_blocking(move || {
        let input = input.map(|path| with(&path, "--input", fs::File::open(&path))).transpose()?;
        let write = |path: PathBuf, option: &str| {
            let file = fs::OpenOptions::new().write(true).create(true).append(append).truncate(!append).open(&path);
            let file = File::from_std(with(&path, option, file)?);
            Ok::<_, String>(Sink { file, path })
        };
        let output = output.map(|path| write(path, "--output")).transpose()?;
        let error = error.map(|path| write(path, "--error")).transpose()?;
        Ok(Files { input, output, error, is_split })
    });
    match timeout(OPEN_TIMEOUT, opened).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(_panicked)) => Err("the job's files could not be opened (internal error)".to_owned()),
        Err(_late) => {
            Err("the job's files could not be opened: the file server does not respond, try again later".into())
        }
    }
}

fn with(path: &Path, option: &str, opened: io::Result<fs::File>) -> Result<fs::File, String> {
    opened.map_err(|error| {
        format!("the file {} could not be opened: {error}: choose another one with {option}", path.display())
    })
}

/// What patterns are filled in with.
struct Facts<'a> {
    variables: &'a BTreeMap<String, String>,
    host: &'a str,
}

impl Facts<'_> {
    fn variable(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    /// The name that a pattern stands for, as Slurm makes it for a batch script.
    fn file_name(&self, pattern: &str) -> String {
        if pattern.eq_ignore_ascii_case("none") {
            return "/dev/null".to_owned();
        }
        if pattern.contains('\\') {
            return pattern.replace('\\', "");
        }
        let (mut name, mut rest) = (String::new(), pattern);
        while let Some((before, behind)) = rest.split_once('%') {
            name.push_str(before);
            let letter = behind.trim_start_matches(|c: char| c.is_ascii_digit());
            let width = &behind[..behind.len() - letter.len()];
            let Some(what) = letter.chars().next() else {
                name.push('%');
                rest = behind;
                continue;
            };
            match self.value(what) {
                Some((value, is_number)) if is_number => {
                    let width = width
                        .parse()
                        .map_or(if width.is_empty() { 0 } else { MAX_PADDING }, |width: usize| width.min(MAX_PADDING));
                    // A `String` takes everything.
                    let _ = write!(name, "{value:0>width$}");
                }
                Some((value, _)) => name.push_str(value),
                None => {
                    name.push('%');
                    name.push_str(width);
                    name.push(what);
                }
            }
            rest = &letter[what.len_utf8()..];
        }
        name + rest
    }

    /// What a letter stands for, and whether it is a number.
    fn value(&self, letter: char) -> Option<(&str, bool)> {
        let job = self.variable("SLURM_JOB_ID");
        let or = |value, other| if str::is_empty(value) { other } else { value };
        Some(match letter {
            'j' | 'J' => (job, true),
            'A' => (or(self.variable("SLURM_ARRAY_JOB_ID"), job), true),
            'a' => (or(self.variable("SLURM_ARRAY_TASK_ID"), NO_TASK), true),
            'n' | 't' => ("0", true),
            's' => ("batch", false),
            'x' => (self.variable("SLURM_JOB_NAME"), false),
            'u' => (self.variable("USER"), false),
            'N' => (self.host, false),
            '%' => ("%", false),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Slurm 22.05 named them for job 44, and for task 3 of array 46.
    #[test]
    fn patterns_of_slurms() {
        let variables = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let plain = variables(&[("SLURM_JOB_ID", "44"), ("SLURM_JOB_NAME", "wrap"), ("USER", "nobody")]);
        let plain = Facts { variables: &plain, host: "vm" };
        let task = variables(&[("SLURM_JOB_ID", "46"), ("SLURM_ARRAY_JOB_ID", "46"), ("SLURM_ARRAY_TASK_ID", "3")]);
        let task = Facts { variables: &task, host: "vm" };
        for (facts, pattern, wanted) in [
            (
                &plain,
                "o-%j-%4j-%A-%a-%x-%u-%N-%n-%t-%s-%J-%%-%12j-%b",
                "o-44-0044-44-4294967294-wrap-nobody-vm-0-0-batch-44-%-0000000044-%b",
            ),
            (&plain, "e-%4a\\%j", "e-%4a%j"),
            (&plain, "none", "/dev/null"),
            (&plain, "100%", "100%"),
            (&plain, "ü%jü", "ü44ü"),
            (&task, "arr-%j-%A-%3a-%J-%s-%b-%04a", "arr-46-46-003-46-batch-%b-0003"),
        ] {
            assert_eq!(facts.file_name(pattern), wanted, "{pattern}");
        }
    }
}
