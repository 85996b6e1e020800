//! Sentences that a program writes for its owner into the file that `LYCEUM_NOTES` names, a line each: that it runs
//! without the GPUs that it holds, for example. The pages show them. The file is the program's and may be anything.

use std::{fs::File, io::Read, path::Path};

use rustix::fs::{Mode, OFlags};

use lyceum_wire::protocol::files;

/// How much of the file is read (bytes), how many lines are kept, and how long each may be (characters).
const MAX_FILE: u64 = 8 * 1024;
const MAX_NOTES: usize = 8;
const MAX_NOTE: usize = 300;

/// Returns the first sentences of the file; empty where there is none, or not a file.
pub(super) fn read(run_directory: &Path) -> Vec<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(opened) = rustix::fs::open(run_directory.join(files::NOTES), flags, Mode::empty()) else {
        return Vec::new();
    };
    let file = File::from(opened);
    let mut text = Vec::new();
    if !file.metadata().is_ok_and(|about| about.is_file()) || file.take(MAX_FILE).read_to_end(&mut text).is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&text);
    // A line without its end is still being written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let plain = |line: &str| line.chars().filter(|c| !c.is_control()).take(MAX_NOTE).collect::<String>();
    whole.lines().map(plain).filter(|line| !line.trim().is_empty()).take(MAX_NOTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_of_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let (path, read) = (directory.path().join(files::NOTES), || read(directory.path()));
        assert_eq!(read(), Vec::<String>::new());
        std::fs::write(&path, "first\n\n\u{1b}[31msecond\nunfini").unwrap();
        assert_eq!(read(), ["first", "[31msecond"]);
        std::fs::write(&path, "x\n".repeat(100_000)).unwrap();
        assert_eq!(read().len(), MAX_NOTES);
        std::fs::write(&path, format!("{}\n", "é".repeat(1000))).unwrap();
        assert_eq!(read()[0].chars().count(), MAX_NOTE);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert_eq!(read(), Vec::<String>::new(), "it leads elsewhere");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(read(), Vec::<String>::new());
    }
}
