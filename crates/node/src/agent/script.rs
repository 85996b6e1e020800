//! A job's script: written into the run directory, where its user alone may write, and run by
//! the program of its first line. The file itself need not be executable, because run
//! directories often lie on a file system that starts no programs.

use std::{
    fs, io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use lyceum_wire::protocol::files;

/// Without a first line that names another.
const SHELL: &str = "/bin/sh";

/// Writes the script and answers with the argument vector that runs it.
pub(super) fn lay_out(run_directory: &Path, text: &str) -> io::Result<Vec<String>> {
    let path = run_directory.join(files::SCRIPT);
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(&path)?;
    file.set_permissions(fs::Permissions::from_mode(0o700))?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    let mut argv = interpreter(text);
    argv.push(path.to_string_lossy().into_owned());
    Ok(argv)
}

/// As the kernel reads a first line: a program, and the rest of the line as one argument.
fn interpreter(text: &str) -> Vec<String> {
    let line = text.lines().next().and_then(|line| line.strip_prefix("#!")).map(str::trim).unwrap_or_default();
    let (program, argument) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    match (program, argument.trim()) {
        ("", _) => vec![SHELL.to_owned()],
        (program, "") => vec![program.to_owned()],
        (program, argument) => vec![program.to_owned(), argument.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines() {
        for (text, argv) in [
            ("echo", &["/bin/sh"][..]),
            ("", &["/bin/sh"]),
            ("#!\nx", &["/bin/sh"]),
            ("#!/bin/bash\nx", &["/bin/bash"]),
            ("#! /usr/bin/env  python3 -u \nx", &["/usr/bin/env", "python3 -u"]),
        ] {
            assert_eq!(interpreter(text), argv, "{text:?}");
        }
    }

    #[test]
    fn a_script_is_its_users_alone() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["#!/bin/bash\necho a", "echo b"] {
            let argv = lay_out(directory.path(), text).unwrap();
            let path = Path::new(argv.last().unwrap());
            assert_eq!(fs::read_to_string(path).unwrap(), text);
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
        }
    }
}
