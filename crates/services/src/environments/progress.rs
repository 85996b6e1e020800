//! How far a build is: the lines of `uv` and `pip` read as numbers, and the line that shows
//! it on a terminal.

use std::io::{self, Write};

use tokio::sync::watch;

use super::{DEFAULT, Environment, State};

/// What the tool that installs packages has said so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Install {
    /// How many packages there will be.
    total: usize,
    /// Downloads begun and ended (uv names the large ones only).
    begun: usize,
    ended: usize,
    /// Packages that pip has looked up and fetched.
    collected: usize,
    installed: usize,
}

impl Install {
    /// Starts from the requirements' text, which tells pip's number of packages.
    pub fn of(requirements: &str) -> Self {
        let lines = requirements.lines().map(str::trim);
        let total = lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '-'])).count();
        Self { total, ..Self::default() }
    }

    /// Reads one line; says how far the installation is (0 to 100) and what it does, where
    /// the line tells.
    pub fn read(&mut self, line: &str) -> Option<(u8, String)> {
        let number = |text: &str| text.split(' ').next().and_then(|word| word.parse::<usize>().ok());
        // uv
        if let Some(total) = line.strip_prefix("Resolved ").and_then(number) {
            self.total = total;
            return Some((5, format!("downloading {total} packages")));
        }
        if line.starts_with("Downloading ") {
            self.begun += 1;
            return None;
        }
        if let Some(name) = line.strip_prefix(" Downloaded ") {
            self.ended += 1;
            let step = format!("downloaded {} of {} large packages: {name}", self.ended, self.begun.max(self.ended));
            return Some((share(5, 80, self.ended, self.begun.max(self.ended)), step));
        }
        if line.starts_with("Prepared ") {
            return Some((85, format!("installing {} packages", self.total)));
        }
        // pip
        if line.starts_with("Ignoring ") {
            self.total = self.total.saturating_sub(1);
            return None;
        }
        if let Some(rest) = line.strip_prefix("Collecting ").or_else(|| line.strip_prefix("Processing ")) {
            self.collected += 1;
            self.total = self.total.max(self.collected);
            let name = rest.split([' ', '=', '<', '>', '!', '~', ';']).next().unwrap_or_default();
            let name = name.rsplit('/').next().unwrap_or(name);
            let step = format!("downloading {} of {} packages: {name}", self.collected, self.total);
            return Some((share(2, 60, self.collected, self.total), step));
        }
        if line.starts_with("Installing collected packages") {
            return Some((65, format!("installing {} packages", self.total)));
        }
        if line.starts_with("Successfully installed") {
            return Some((100, format!("installed {0} of {0} packages", self.total)));
        }
        if let Some(name) = line.strip_prefix(" + ") {
            self.installed += 1;
            let name = name.split('=').next().unwrap_or(name);
            let total = self.total.max(self.installed);
            return Some((
                share(85, 100, self.installed, total),
                format!("installed {} of {total} packages: {name}", self.installed),
            ));
        }
        None
    }
}

/// `part` of `whole` as a place between two percentages.
pub fn share(from: u8, to: u8, part: usize, whole: usize) -> u8 {
    let span = usize::from(to.saturating_sub(from));
    let place = span * part.min(whole) / whole.max(1);
    from + u8::try_from(place).unwrap_or(to - from)
}

/// Shows the default environment's way on `out` until it is ready, or failed without another
/// try to come. On a terminal (`columns` wide) one line is written over and over; elsewhere
/// each step is a line.
pub async fn show(
    mut watched: watch::Receiver<Vec<Environment>>,
    mut out: impl Write,
    columns: Option<usize>,
) -> io::Result<()> {
    let mut last_step = String::new();
    loop {
        let environment = watched.borrow_and_update().iter().find(|environment| environment.name == DEFAULT).cloned();
        let Some(environment) = environment else { return Ok(()) };
        let line = line(&environment.state);
        let over = match &environment.state {
            State::Building { .. } => false,
            State::Failed { retry_at, .. } => retry_at.is_none(),
            State::Ready { .. } | State::Missing => true,
        };
        match columns {
            Some(columns) if !over => {
                let line: String = line.chars().take(columns.saturating_sub(1)).collect();
                write!(out, "\r\x1b[2K{line}")?;
            }
            Some(_) => writeln!(out, "\r\x1b[2K{line}")?,
            None => {
                // Numbers and names change too often for a log: a step is told once.
                let step: String = match &environment.state {
                    State::Building { step, .. } => {
                        step.chars().take_while(|c| *c != ':').filter(|c| !c.is_ascii_digit()).collect()
                    }
                    _ => line.clone(),
                };
                if step != last_step {
                    writeln!(out, "{line}")?;
                }
                last_step = step;
            }
        }
        out.flush()?;
        if over || watched.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// A state in one line (a failure has a second one with the command).
pub fn line(state: &State) -> String {
    match state {
        State::Building { percent, step, .. } => {
            let filled = usize::from(*percent).min(100) / 5;
            format!("environment {percent:>3} % {}{} : {step}", "█".repeat(filled), "░".repeat(20 - filled))
        }
        State::Ready { python, .. } => format!("environment ready : {}", python.display()),
        State::Failed { what, command, .. } => format!("environment failed : {what}\n  to fix it: {command}"),
        State::Missing => "environment missing : it is not built on this machine".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Origin, *};
    use lyceum_model::Timestamp;

    fn steps(requirements: &str, output: &str) -> Vec<(u8, String)> {
        let mut install = Install::of(requirements);
        output.lines().filter_map(|line| install.read(line)).collect()
    }

    #[test]
    fn reads_uv() {
        let output = "Using Python 3.11.2 environment at: e\nResolved 3 packages in 1ms\nDownloading numpy \
                      (16.1MiB)\nDownloading jax (3.1MiB)\n Downloaded jax\n Downloaded numpy\nPrepared 3 packages in \
                      2.71s\nInstalled 3 packages in 181ms\n + jax==1\n + numpy==2\n + six==3";
        let steps = steps("", output);
        assert!(steps.is_sorted_by_key(|(percent, _)| *percent), "{steps:?}");
        assert_eq!(steps[1], (42, "downloaded 1 of 2 large packages: jax".to_owned()));
        assert_eq!(steps.last(), Some(&(100, "installed 3 of 3 packages: six".to_owned())));
    }

    #[test]
    fn reads_pip() {
        let requirements = "# made by\nappnope==1 ; sys_platform == 'darwin'\njax==1\nsix==3\n\n--index-url x";
        let output = "Looking in links: /w\nIgnoring appnope: markers 'x' don't match your environment\nCollecting \
                      jax==1 (from -r r.txt (line 3))\n  Downloading jax-1-py3-none-any.whl (16.9 MB)\nProcessing \
                      /w/six-3-py3-none-any.whl (from -r r.txt)\nInstalling collected packages: six, \
                      jax\nSuccessfully installed jax-1 six-3";
        let steps = steps(requirements, output);
        assert!(steps.is_sorted_by_key(|(percent, _)| *percent), "{steps:?}");
        assert_eq!(steps[0], (31, "downloading 1 of 2 packages: jax".to_owned()));
        assert_eq!(steps.last(), Some(&(100, "installed 2 of 2 packages".to_owned())));
    }

    #[tokio::test]
    async fn shows() {
        let state = |state| {
            let (name, title, frameworks) = (DEFAULT.to_owned(), String::new(), Vec::new());
            vec![Environment {
                name,
                title,
                python_version: None,
                frameworks,
                note: None,
                groups: Vec::new(),
                position: 0,
                origin: Origin::Shipped,
                state,
            }]
        };
        let building = |percent, step: &str| {
            state(State::Building { percent, step: step.to_owned(), since: Timestamp::default() })
        };
        let failed = State::Failed { what: "no".into(), command: "do".into(), log: None, retry_at: None };
        let render = async |columns| {
            let (sender, receiver) = watch::channel(building(0, "looking"));
            let mut out = Vec::new();
            let writer = async {
                for (percent, step) in [(10, "fetching 1 of 2"), (20, "fetching 2 of 2"), (30, "compiling")] {
                    sender.send_replace(building(percent, step));
                    for _ in 0..5 {
                        tokio::task::yield_now().await; // the reader's turn
                    }
                }
                sender.send_replace(state(failed.clone()));
            };
            let (shown, ()) = tokio::join!(show(receiver, &mut out, columns), writer);
            shown.unwrap();
            String::from_utf8(out).unwrap()
        };
        let plain = render(None).await;
        assert_eq!(plain.lines().count(), 5, "{plain}");
        assert!(plain.ends_with("environment failed : no\n  to fix it: do\n"), "{plain}");
        let terminal = render(Some(40)).await;
        assert_eq!(terminal.matches('\n').count(), 2, "{terminal}");
        assert!(terminal.split("\r\x1b[2K").all(|line| line.chars().count() < 60), "{terminal}");
    }
}
