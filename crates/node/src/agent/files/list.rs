//! Looking: one entry, or a part of a folder in some order. A folder is read whole up to a
//! bound, because no file system knows an order; only what is told is looked at closely.

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{Access, AtFlags, Dir, FileType, OFlags, Stat, accessat, fstat, fstatvfs, readlinkat, statat},
};

use super::{PortalChannel, Result, beneath, fault};
use lyceum_model::files::{Entry, Kind, ListingQuery, RawPath, SortKey, SortPosition, Space};
use lyceum_wire::protocol::files_agent::{Fault, Page};

/// How many entries of one folder are looked at.
const MAX_ENTRIES: usize = 100_000;

/// How far the entries of a folder are counted.
const MAX_COUNTED: usize = 10_000;

/// The most on one page.
const MAX_PAGE_SIZE: usize = 500;

/// A part of the folder at `path`.
pub fn page(talk: &mut PortalChannel, root: &OwnedFd, path: &RawPath, wanted: &ListingQuery) -> Result<Page> {
    let folder = beneath::open_at(root, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut page = Page::default();
    let mut marks = Vec::new();
    let find = wanted.find.to_lowercase();
    let mut seen = 0;
    for found in Dir::read_from(&folder)? {
        let found = found?;
        let name = found.file_name().to_bytes();
        if matches!(name, b"." | b"..") || (!wanted.hidden && name.starts_with(b".")) {
            continue;
        }
        seen += 1;
        if seen > MAX_ENTRIES {
            page.truncated = true;
            break;
        }
        if !find.is_empty() && !String::from_utf8_lossy(name).to_lowercase().contains(&find) {
            continue;
        }
        talk.beat()?;
        let name = RawPath(name.to_vec());
        if let Some(mark) = mark(root, path, &folder, name, found.file_type(), wanted) {
            marks.push(mark);
        }
    }
    page.total = marks.len() as u64;
    if let Some(after) = &wanted.after {
        marks.retain(|mark| wanted.order.compare(after, mark).is_lt());
    }
    let limit = wanted.limit.clamp(1, MAX_PAGE_SIZE);
    // Only the first ones need be in order.
    if limit < marks.len() {
        marks.select_nth_unstable_by(limit, |a, b| wanted.order.compare(a, b));
        marks.truncate(limit);
        page.next = marks.iter().max_by(|a, b| wanted.order.compare(a, b)).cloned();
    }
    marks.sort_by(|a, b| wanted.order.compare(a, b));
    for mark in marks {
        talk.beat()?;
        // What is gone by now is not told.
        page.entries.extend(entry(root, path, &folder, mark.name));
    }
    let space = space_of(&folder)?;
    (page.free_bytes, page.total_bytes, page.used_bytes) = (space.free_bytes, space.total_bytes, space.used_bytes);
    page.writable = accessat(&folder, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok();
    Ok(page)
}

/// How full the file system of a folder is, which may be a place alone.
pub fn space_of(folder: &OwnedFd) -> Result<Space> {
    let facts = fstatvfs(folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    Ok(Space {
        total_bytes: bytes(facts.f_blocks),
        used_bytes: bytes(facts.f_blocks.saturating_sub(facts.f_bfree)),
        free_bytes: bytes(facts.f_bavail),
    })
}

/// An entry's place in the order; `None` for what is not wanted or is gone.
fn mark(
    root: &OwnedFd,
    path: &RawPath,
    folder: &OwnedFd,
    name: RawPath,
    file_type: FileType,
    wanted: &ListingQuery,
) -> Option<SortPosition> {
    let by_name = wanted.order.by == SortKey::Name;
    let certain = !matches!(file_type, FileType::Symlink | FileType::Unknown);
    let (is_folder, value) = if by_name && certain {
        (file_type == FileType::Directory, 0)
    } else {
        let entry = entry(root, path, folder, name.clone())?;
        let value = match wanted.order.by {
            SortKey::Name => 0,
            SortKey::Size => i64::try_from(entry.size_bytes).unwrap_or(i64::MAX),
            SortKey::Modified => entry.modified_ms,
        };
        (entry.kind == Kind::Folder, value)
    };
    (is_folder || !wanted.only_folders).then_some(SortPosition { folder: is_folder, value, name })
}

/// The entry `name` of the folder at `path`, if it is there.
fn entry(root: &OwnedFd, path: &RawPath, folder: &OwnedFd, name: RawPath) -> Option<Entry> {
    let facts = statat(folder, name.as_path(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::Symlink {
        return Some(to_entry(name, &facts));
    }
    let led = beneath::reach(root, &path.join(&name), OFlags::empty()).and_then(fstat);
    if let Ok(target) = led {
        return Some(Entry { is_link: true, ..to_entry(name, &target) });
    }
    let target = readlinkat(folder, name.as_path(), Vec::new()).ok().map(|target| RawPath(target.into_bytes()));
    Some(Entry { is_link: true, target, ..to_entry(name, &facts) })
}

/// What `path` leads to; a folder with how much it holds.
pub fn look(root: &OwnedFd, path: &RawPath) -> Result<Entry> {
    if path.0.is_empty() {
        let folder = beneath::reach(root, path, OFlags::DIRECTORY)?;
        return Ok(to_entry(RawPath::default(), &fstat(&folder)?));
    }
    let (parent, name) = beneath::parent(root, path)?;
    // Why it is not there is asked of the system once more.
    statat(&parent, name.as_path(), AtFlags::SYMLINK_NOFOLLOW)?;
    let mut found = entry(root, &path.split().0, &parent, name).ok_or(Fault::NotFound)?;
    if found.kind == Kind::Folder && !found.is_link {
        let folder = beneath::open_at(root, path, OFlags::RDONLY | OFlags::DIRECTORY);
        found.holds = folder.and_then(|folder| count(&folder)).ok();
    }
    Ok(found)
}

fn count(folder: &OwnedFd) -> rustix::io::Result<u64> {
    let mut count = 0;
    for found in Dir::read_from(folder)?.take(MAX_COUNTED + 2) {
        count += u64::from(!matches!(found?.file_name().to_bytes(), b"." | b".."));
    }
    Ok(count.min(MAX_COUNTED as u64))
}

/// The entry of an open file or folder, under the name that it has.
pub fn of_open(name: RawPath, file: impl AsFd) -> Result<Entry> {
    Ok(to_entry(name, &fstat(file).map_err(fault)?))
}

fn to_entry(name: RawPath, facts: &Stat) -> Entry {
    let kind = match FileType::from_raw_mode(facts.st_mode) {
        FileType::Directory => Kind::Folder,
        FileType::RegularFile => Kind::File,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    };
    let nanoseconds = i64::try_from(facts.st_mtime_nsec).unwrap_or(0);
    Entry {
        name,
        kind,
        is_link: false,
        target: None,
        size_bytes: if kind == Kind::Folder { 0 } else { u64::try_from(facts.st_size).unwrap_or(0) },
        modified_ms: facts.st_mtime.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000),
        tag: format!("{:x}-{:x}-{:x}.{nanoseconds:x}", facts.st_ino, facts.st_size, facts.st_mtime),
        holds: None,
    }
}
