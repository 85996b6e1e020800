//! The names of a layer's entries, and of what they link to: relative, without `..`, of a bounded length and
//! depth. A name that is not so is the work of an attacker or of a broken tool, and is rejected with a reason.

use std::ffi::CString;

/// Longer than any path that the kernel accepts.
const MAX_BYTES: usize = 4000;
const MAX_PART: usize = 255;
/// Deeper than any image, and few enough to keep a directory of each level open.
const MAX_DEPTH: usize = 250;

/// A path below the root, without `.`, `..` and empty parts; empty for the root itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name(Vec<u8>);

impl Name {
    /// Checks a name as the archive has it. A `./` in front and a `/` at the end are usual.
    pub fn parse(raw: &[u8]) -> Result<Self, &'static str> {
        if raw.starts_with(b"/") {
            return Err("its name is absolute");
        }
        if raw.len() > MAX_BYTES {
            return Err("its name is too long");
        }
        if raw.contains(&0) {
            return Err("its name contains a zero byte");
        }
        let mut name = Vec::with_capacity(raw.len());
        let mut depth = 0;
        for part in raw.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")) {
            if part == b".." {
                return Err("its name contains “..”");
            }
            if part.len() > MAX_PART {
                return Err("a part of its name is too long");
            }
            depth += 1;
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend_from_slice(part);
        }
        if depth > MAX_DEPTH {
            return Err("its directories are nested too deeply");
        }
        Ok(Self(name))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the part behind the last `/`; nothing for the root.
    pub fn last(&self) -> Option<CString> {
        CString::new(self.last_bytes()?).ok()
    }

    pub fn last_bytes(&self) -> Option<&[u8]> {
        self.0.rsplit(|byte| *byte == b'/').next().filter(|part| !part.is_empty())
    }

    /// Returns what is in front of the last `/`; nothing where there is none.
    pub fn parent(&self) -> &[u8] {
        let end = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        &self.0[..end]
    }

    pub fn parent_name(&self) -> Self {
        Self(self.parent().to_owned())
    }

    pub fn join(&self, part: &[u8]) -> Self {
        let mut name = self.0.clone();
        if !name.is_empty() {
            name.push(b'/');
        }
        name.extend_from_slice(part);
        Self(name)
    }
}

/// Returns where a link in `directory` leads within the root, by its text alone.
pub(crate) fn within(directory: &[u8], target: &[u8]) -> Vec<u8> {
    let start: &[u8] = if target.starts_with(b"/") { b"" } else { directory };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in start.split(|byte| *byte == b'/').chain(target.split(|byte| *byte == b'/')) {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_and_bounded() {
        let name = Name::parse(b"./usr//lib/./x/").unwrap();
        assert_eq!((name.as_bytes(), name.parent()), (&b"usr/lib/x"[..], &b"usr/lib"[..]));
        assert_eq!(name.last_bytes(), Some(&b"x"[..]));
        assert_eq!(Name::parse(b"./").unwrap().last(), None);
        let deep = "a/".repeat(300);
        let long = "a".repeat(256);
        for bad in [b"/etc/passwd".as_slice(), b"..", b"a/../b", b"a\0b", deep.as_bytes(), long.as_bytes()] {
            assert!(Name::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(within(b"a/b", b"../c"), b"a/c");
        assert_eq!(within(b"a", b"../../../etc"), b"etc");
        assert_eq!(within(b"a", b"/x/./y"), b"x/y");
    }
}
