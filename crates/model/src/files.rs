//! Files and folders as the portal speaks of them: names as bytes, what an entry is, the
//! order of a list, and how a path that somebody typed is placed below the folders that are
//! theirs. No file is touched here.

use std::{
    cmp::Ordering,
    ffi::OsStr,
    fmt,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{FieldError, line::is_misleading};

/// A name or a path as the file system has it: any bytes but NUL. In JSON and in addresses
/// it is percent-encoded, because a name need not be text.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawPath(pub Vec<u8>);

/// What stays as it is in an address.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

impl RawPath {
    pub fn encoded(&self) -> String {
        percent_encode(&self.0, ENCODED).to_string()
    }

    pub fn decode(text: &str) -> Self {
        Self(percent_decode_str(text).collect())
    }

    /// For people: text, on one line, in its order. What is no text, what would break the line
    /// and what would turn letters around is shown as `�`.
    pub fn shown(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        text.chars().map(|letter| if is_misleading(letter) { '\u{fffd}' } else { letter }).collect()
    }

    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    #[must_use]
    pub fn join(&self, name: &Self) -> Self {
        let mut whole = self.0.clone();
        if !whole.is_empty() && !whole.ends_with(b"/") {
            whole.push(b'/');
        }
        whole.extend_from_slice(&name.0);
        Self(whole)
    }

    /// What lies before and after the last `/`.
    pub fn split(&self) -> (Self, Self) {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (Self(self.0[..at].to_vec()), Self(self.0[at + 1..].to_vec())),
            None => (Self::default(), self.clone()),
        }
    }
}

impl From<&str> for RawPath {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<&Path> for RawPath {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl fmt::Debug for RawPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl Serialize for RawPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.encoded())
    }
}

impl<'de> Deserialize<'de> for RawPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::decode(&text))
    }
}

/// How full a file system is (bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    pub total_bytes: u64,
    pub used_bytes: u64,
    /// What the user may still write.
    pub free_bytes: u64,
}

/// What a folder holds, with everything below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderSize {
    /// On the disk, which is less than they seem for sparse files, and more for many small ones.
    pub bytes: u64,
    pub files: u64,
    /// Folders that could not be looked into: what they hold is not counted.
    pub unreadable: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub name: RawPath,
    pub kind: Kind,
    /// It is a link; `kind` is what it leads to, if that can be reached.
    pub is_link: bool,
    /// Where a link leads that cannot be followed.
    pub target: Option<RawPath>,
    pub size_bytes: u64,
    /// Milliseconds since 1970.
    pub modified_ms: i64,
    /// Tells one content from another.
    pub tag: String,
    /// How many entries a folder holds, where that was asked (at most 10 000 are counted).
    pub holds: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Folder,
    File,
    /// A link that is broken or points outside the folders that you can reach.
    Link,
    /// A socket, pipe or device.
    Other,
}

/// What of a folder is wanted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListingQuery {
    pub order: Order,
    /// Part of the name, in any case; empty: all.
    pub find: String,
    pub only_folders: bool,
    /// Also those that begin with a dot.
    pub hidden: bool,
    pub after: Option<SortPosition>,
    pub limit: usize,
}

/// What a list is sorted by; folders always come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    pub by: SortKey,
    pub descending: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SortKey {
    #[default]
    Name,
    Size,
    Modified,
}

/// An entry's place in an order: what stands after it comes on the next page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SortPosition {
    pub folder: bool,
    /// The size, or the time of the last change; 0 in the order of names.
    pub value: i64,
    pub name: RawPath,
}

impl Order {
    /// Which of two comes first. Names are compared without regard to case, then exactly.
    pub fn compare(self, a: &SortPosition, b: &SortPosition) -> Ordering {
        let fold = |mark: &SortPosition| String::from_utf8_lossy(&mark.name.0).to_lowercase();
        let inner = a.value.cmp(&b.value).then_with(|| fold(a).cmp(&fold(b))).then_with(|| a.name.cmp(&b.name));
        b.folder.cmp(&a.folder).then(if self.descending { inner.reverse() } else { inner })
    }
}

/// A folder that may be reached, with all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// `Home`, or what the site calls it.
    pub name: String,
    pub path: PathBuf,
}

/// The longest path that is passed on (bytes).
pub const MAX_PATH_LENGTH: usize = 4095;

/// The longest name that a file system takes (bytes).
pub const MAX_NAME_LENGTH: usize = 255;

/// Places a path below one of the roots, of which the first is the home: absolute, `~/x`, or
/// from the home on. Answers which root and the path below it, without `.` and empty parts.
pub fn place(path: &RawPath, roots: &[Root]) -> Result<(usize, RawPath), FieldError> {
    let fault = |code: &str, message: &str| Err(FieldError::new("path", code, message));
    let bytes = path.0.as_slice();
    if bytes.len() > MAX_PATH_LENGTH {
        return fault("too_long", "The path is longer than 4095 bytes.");
    }
    if bytes.contains(&0) {
        return fault("characters", "A path must not contain NUL characters.");
    }
    let parts: Vec<&[u8]> =
        bytes.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.contains(&b"..".as_slice()) {
        return fault("dot_dot", "The path must not contain `..`. Give the full path.");
    }
    if parts.iter().any(|part| part.len() > MAX_NAME_LENGTH) {
        return fault("too_long", "A name in the path is longer than 255 bytes.");
    }
    if !bytes.starts_with(b"/") {
        let below = if parts.first() == Some(&b"~".as_slice()) { &parts[1..] } else { &parts[..] };
        return Ok((0, RawPath(below.join(&b'/'))));
    }
    // Of two roots, one inside the other, the inner one.
    let depth = |root: &Root| root.path.components().count();
    let whole = PathBuf::from(OsStr::from_bytes(&[b"/", parts.join(&b'/').as_slice()].concat()));
    let found =
        roots.iter().enumerate().filter(|(_, root)| whole.starts_with(&root.path)).max_by_key(|(_, r)| depth(r));
    let Some((index, root)) = found else {
        let known: Vec<String> = roots.iter().map(|root| root.path.display().to_string()).collect();
        return fault(
            "out_of_reach",
            &format!("The path is outside the folders that you can reach: {}.", known.join(", ")),
        );
    };
    let below = whole.strip_prefix(&root.path).unwrap_or(Path::new(""));
    Ok((index, below.into()))
}

/// Whether something can be called so: one name, not a path.
pub fn is_name(name: &RawPath) -> bool {
    !matches!(name.0.as_slice(), b"" | b"." | b"..")
        && name.0.len() <= MAX_NAME_LENGTH
        && !name.0.contains(&b'/')
        && !name.0.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots() -> Vec<Root> {
        [("Home", "/home/ada"), ("isilon", "/mnt/isilon"), ("inner", "/mnt/isilon/inner")]
            .map(|(name, path)| Root { name: name.to_owned(), path: path.into() })
            .to_vec()
    }

    #[test]
    fn paths_are_placed() {
        for (path, root, below) in [
            ("", 0, ""),
            ("~", 0, ""),
            ("~/", 0, ""),
            ("~/a/b", 0, "a/b"),
            ("a//./b/", 0, "a/b"),
            ("a/~", 0, "a/~"),
            ("/home/ada", 0, ""),
            ("/home/ada/x y", 0, "x y"),
            ("/mnt/isilon/x", 1, "x"),
            ("/mnt/isilon/inner/x", 2, "x"),
            ("/mnt/isilon/innermost", 1, "innermost"),
            ("a\nb", 0, "a\nb"),
        ] {
            assert_eq!(place(&path.into(), &roots()).unwrap(), (root, below.into()), "{path:?}");
        }
        for (path, code) in [
            ("/", "out_of_reach"),
            ("/etc/passwd", "out_of_reach"),
            ("/home/adam", "out_of_reach"),
            ("../x", "dot_dot"),
            ("~/a/../../b", "dot_dot"),
            ("/home/ada/../bob", "dot_dot"),
            ("a\0b", "characters"),
            (&"x".repeat(256), "too_long"),
            (&"x/".repeat(2500), "too_long"),
        ] {
            assert_eq!(place(&path.into(), &roots()).unwrap_err().code, code, "{path:.40}");
        }
    }

    #[test]
    fn names_need_not_be_text() {
        let name = RawPath(b"a\xff%\n/\xc3\xa9 .txt".to_vec());
        assert_eq!(RawPath::decode(&name.encoded()), name);
        assert_eq!(name.encoded(), "a%FF%25%0A/%C3%A9%20.txt");
        let json = serde_json::to_string(&name).unwrap();
        assert_eq!(serde_json::from_str::<RawPath>(&json).unwrap(), name);
        assert_eq!(name.shown(), "a\u{fffd}%\u{fffd}/é .txt");
        assert_eq!(RawPath::from("\u{202e}gnp.exe").shown(), "\u{fffd}gnp.exe");
        assert_eq!(RawPath::from("a/b").split(), ("a".into(), "b".into()));
        assert_eq!(RawPath::from("b").split(), ("".into(), "b".into()));
        assert_eq!(RawPath::from("").join(&"b".into()), "b".into());
    }

    #[test]
    fn what_is_a_name() {
        for good in ["a", ".a", "a b", "...", "-rf", "a\nb", "é", &"x".repeat(255)] {
            assert!(is_name(&good.into()), "{good:?}");
        }
        for bad in ["", ".", "..", "a/b", "/", "a\0", &"x".repeat(256)] {
            assert!(!is_name(&bad.into()), "{bad:?}");
        }
    }

    #[test]
    fn folders_first_then_the_order() {
        let mark = |folder, value, name: &str| SortPosition { folder, value, name: name.into() };
        let by = |order: Order| {
            let mut all = [mark(false, 3, "a"), mark(false, 1, "C"), mark(true, 9, "z"), mark(false, 1, "b")];
            all.sort_by(|a, b| order.compare(a, b));
            all.iter().map(|mark| mark.name.shown()).collect::<Vec<_>>().concat()
        };
        assert_eq!(by(Order { by: SortKey::Size, descending: false }), "zbCa");
        assert_eq!(by(Order { by: SortKey::Size, descending: true }), "zaCb");
    }
}
