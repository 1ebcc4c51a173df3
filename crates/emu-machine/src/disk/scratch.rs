//! A file to measure with, which nobody else sees and which is gone however emu ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use emu_core::{Error, ErrorKind, Result};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statfs::{FsType, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, fstatfs, statfs};
use nix::sys::statvfs::statvfs;
use rustix::fs::{Advice, AtFlags, FallocateFlags, OFlags, StatxFlags, fadvise, fallocate, statx};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::content::{self, Block, PAGE};

const CHUNK: usize = 1 << 20;

/// Share of the free space that may be taken: the rest is for others, and for what the file system adds.
const SHARE_MAX: f64 = 0.95;

/// The magic number of ramfs (linux/magic.h).
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

const UNKNOWN_STORAGE: &str = "Cannot tell what the files lie on, disk or memory: it cannot be seen here.";
const UNKNOWN_WAY: &str =
    "Cannot tell whether direct transfers go past the page cache: what is in it cannot be seen here.";

#[derive(Debug)]
pub(super) struct Direct {
    pub(super) file: File,
    /// Offsets and lengths must be multiples of this many bytes.
    pub(super) alignment: u64,
    /// Why direct writes are refused, where that is known.
    pub(super) read_only: Option<String>,
}

#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) buffered: File,
    pub(super) direct: std::result::Result<Direct, String>,
    /// Why nothing can be written back or made durable, where that is so.
    pub(super) volatile: Option<String>,
    pub(super) doubts: Vec<String>,
    pub(super) seed: u64,
}

impl Scratch {
    /// Makes a file of `bytes`, on the disk and not only in memory. `watch` is called now and then.
    pub(super) fn make(
        folder: &Path,
        bytes: u64,
        seed: u64,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        // Never linked into the folder, or unlinked at once where the file system cannot do that: the kernel
        // removes it when its last descriptor is closed, whatever emu dies of.
        let file = tempfile::tempfile_in(folder)
            .map_err(|cause| Error::file("make a file in", folder, cause).hint(hint_of_folder(folder)))?;
        Self::fill(file, bytes, seed, watch)
    }

    pub(super) fn fill(
        file: File,
        bytes: u64,
        seed: u64,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        let failed = |cause: io::Error| Error::io(format!("cannot fill a file of {bytes} bytes"), cause);
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // It is filled all the same; room may run out on the way.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(cause) => return Err(failed(cause.into())),
        }
        let mut block = Block::new(CHUNK, PAGE);
        let mut offset = 0;
        while offset < bytes {
            let length = (bytes - offset).min(CHUNK as u64);
            block.fill(seed, offset);
            let part = block.bytes().get(..length as usize).unwrap_or_default();
            file.write_all_at(part, offset).map_err(failed)?;
            offset += length;
            if offset.is_multiple_of(64 * CHUNK as u64) {
                file.sync_data().map_err(failed)?;
                watch()?;
            }
        }
        file.sync_all().map_err(failed)?;
        Ok(Self::of(file, seed))
    }

    pub(super) fn of(file: File, seed: u64) -> Self {
        let storage = Storage::of(&file);
        let volatile = (storage == Storage::Memory)
            .then(|| "the file system is in memory: there is no disk to write to".to_owned());
        let mut doubts = Vec::new();
        if storage == Storage::Unknown {
            doubts.push(UNKNOWN_STORAGE.to_owned());
        }
        let direct = match &volatile {
            Some(_) => Err("the file system is in memory: all transfers are copies".to_owned()),
            None => direct(&file).and_then(|direct| {
                let why = "the file system takes direct transfers by way of the page cache all the same";
                match stays_cached(&file, &direct) {
                    Some(true) => return Err(why.to_owned()),
                    Some(false) => {}
                    None => doubts.push(UNKNOWN_WAY.to_owned()),
                }
                // Last, as what is written may be in the page cache where what is read is not.
                let read_only = refuses_writes(&direct.file, direct.alignment);
                Ok(Direct { read_only, ..direct })
            }),
        };
        Self { buffered: file, direct, volatile, doubts, seed }
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.buffered.sync_data().map_err(|cause| Error::io("cannot sync the file", cause))
    }

    pub(super) fn read_all(&self, bytes: u64) -> Result<()> {
        let mut block = Block::new(CHUNK, PAGE);
        let mut offset = 0;
        while offset < bytes {
            match self.buffered.read_at(block.bytes_mut(), offset) {
                Ok(0) => break,
                Ok(read) => offset += read as u64,
                Err(cause) => return Err(Error::io("cannot read the file", cause)),
            }
        }
        Ok(())
    }

    /// Lets the page cache forget what is not dirty of the file.
    pub(super) fn forget(&self) -> Result<()> {
        forget(&self.buffered)
            .map_err(|cause| Error::io("cannot drop the file from the page cache", cause.into()))
    }
}

fn forget(file: &File) -> rustix::io::Result<()> {
    fadvise(file, 0, None, Advice::DontNeed)
}

pub(super) fn check_room(folder: &Path, bytes: u64) -> Result<()> {
    let hint = "name a folder on the disk to measure with --dir";
    let facts = fs::metadata(folder)
        .map_err(|cause| Error::file("look at", folder, cause).with_kind(ErrorKind::Usage).hint(hint))?;
    if !facts.is_dir() {
        return Err(Error::usage(format!("{} is not a folder", folder.display())).hint(hint));
    }
    let space = statvfs(folder).map_err(|cause| Error::file("look at the disk of", folder, cause.into()))?;
    let free = space.blocks_available() as f64 * space.fragment_size() as f64;
    if bytes as f64 > free * SHARE_MAX {
        return Err(Error::unavailable(format!(
            "no room in {}: {} MiB are needed and {:.0} MiB are free",
            folder.display(),
            bytes >> 20,
            (free / f64::from(1 << 20)).floor()
        ))
        .hint("take smaller files with --size, or another disk with --dir"));
    }
    // Beyond this limit a write does not fail, it kills.
    match getrlimit(Resource::RLIMIT_FSIZE) {
        Ok((limit, _)) if limit < bytes => Err(Error::unavailable(format!(
            "files of this process may have {} MiB only, and {} MiB are needed",
            limit >> 20,
            bytes >> 20
        ))
        .hint("raise the limit (ulimit -f), or take smaller files with --size")),
        _ => Ok(()),
    }
}

fn hint_of_folder(folder: &Path) -> String {
    format!("name a folder that you may write to with --dir; {} is not one", folder.display())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Storage {
    Disk,
    Memory,
    Unknown,
}

impl Storage {
    /// By the file system; of an overlay by the one that it writes to (Documentation/filesystems/overlayfs.rst).
    fn of(file: &File) -> Self {
        match fstatfs(file).map(|facts| Self::of_type(facts.filesystem_type())) {
            Ok(Self::Unknown) => upper_folder(file)
                .and_then(|folder| statfs(&folder).ok())
                .map_or(Self::Unknown, |facts| Self::of_type(facts.filesystem_type())),
            Ok(known) => known,
            Err(_) => Self::Unknown,
        }
    }

    fn of_type(file_system: FsType) -> Self {
        match file_system {
            TMPFS_MAGIC | RAMFS_MAGIC => Self::Memory,
            OVERLAYFS_SUPER_MAGIC => Self::Unknown,
            _ => Self::Disk,
        }
    }
}

/// The folder that the overlay of a file writes to; `None` where there is none that can be named.
fn upper_folder(file: &File) -> Option<PathBuf> {
    let facts = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mount = facts.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    upper_of(&fs::read_to_string("/proc/self/mountinfo").ok()?, mount)
}

/// `mounts` has the lines of `proc_pid_mountinfo(5)`, `id` is that of the mount.
fn upper_of(mounts: &str, id: &str) -> Option<PathBuf> {
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(id))?;
    let (_, of_file_system) = line.split_once(" - ")?;
    let options = of_file_system.split(' ').nth(2)?;
    let folder = options.split(',').find_map(|option| option.strip_prefix("upperdir="))?;
    // A name that was escaped, or begins in the folder of whoever has mounted, would be another one here.
    (folder.starts_with('/') && !folder.contains('\\')).then(|| folder.into())
}

/// Whether the kernel refuses a transfer of this kind, other than that it fails.
pub(super) fn is_refusal(cause: &io::Error) -> bool {
    matches!(Errno::from_io_error(cause), Some(Errno::INVAL | Errno::OPNOTSUPP))
}

/// Opens a file once more for direct transfers, or says why not. Whether it can be written so is not looked at yet.
fn direct(file: &File) -> std::result::Result<Direct, String> {
    let told = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .ok()
        .filter(|facts| StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::DIOALIGN));
    if told.is_some_and(|facts| facts.stx_dio_offset_align == 0) {
        return Err("the file system has no direct transfers for this file".into());
    }
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .map_err(|cause| format!("the file system refuses O_DIRECT: {cause}"))?;
    // Linux before 6.1, and some file systems, do not tell: what works is tried.
    let works = |alignment: &u64| {
        opened.read_exact_at(Block::new(*alignment as usize, PAGE).bytes_mut(), *alignment).is_ok()
    };
    let alignment = match told {
        Some(facts) => u64::from(facts.stx_dio_offset_align),
        None => [512, 1024, 2048, 4096].into_iter().find(works).ok_or("no direct transfer works")?,
    };
    Ok(Direct { file: opened, alignment, read_only: None })
}

/// `None` also where that cannot be told. What was read is written again: the content stays as it is.
fn refuses_writes(file: &File, alignment: u64) -> Option<String> {
    // As long as every device takes, which may want more for writes than for reads.
    let mut block = Block::new(alignment.max(PAGE as u64) as usize, PAGE);
    file.read_exact_at(block.bytes_mut(), 0).ok()?;
    let cause = file.write_all_at(block.bytes(), 0).err().filter(is_refusal)?;
    Some(format!("the file system refuses direct writes: {cause}"))
}

/// Whether what is read directly is in the page cache afterwards; `None` where that cannot be told.
fn stays_cached(file: &File, direct: &Direct) -> Option<bool> {
    // A page that another CPU has just had in hand, or that is being read, may not be dropped the first time.
    const TRIES: usize = 5;
    const PAUSE: Duration = Duration::from_millis(5);
    let mut block = Block::new(direct.alignment as usize, PAGE);
    for _ in 0..TRIES {
        forget(file).ok()?;
        direct.file.read_exact_at(block.bytes_mut(), 0).ok()?;
        if !is_cached(file, 0)? {
            return Some(false);
        }
        thread::sleep(PAUSE);
    }
    // Some pages cannot be dropped, and where a disk answers at once, as one in memory does, the question alone brings
    // a page into the cache: what nobody has read is asked for as well, and tells only where it is not there.
    let middle = file.metadata().ok()?.len() / 2;
    for _ in 0..TRIES {
        forget(file).ok()?;
        if !is_cached(file, middle)? {
            return Some(true);
        }
        thread::sleep(PAUSE);
    }
    None
}

/// `RWF_NOWAIT` (`preadv2(2)`, Linux 4.14) does not wait for what is not there, but lets the kernel begin to read it.
fn is_cached(file: &File, offset: u64) -> Option<bool> {
    let mut byte = [0_u8];
    match preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT) {
        Ok(read) => Some(read > 0),
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

pub(super) fn check_original(block: &Block, seed: u64, offset: u64) -> Result<()> {
    let length = block.bytes().len();
    if length < size_of::<u64>() {
        let same = block.head() == content::original_head(seed, offset, length);
        return content::check(same, offset, "read");
    }
    let mut must = Block::new(length, 1);
    must.fill(seed, offset);
    content::check(block.bytes() == must.bytes(), offset, "read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direct_read_that_goes_by_the_page_cache_is_found_out() {
        // Where the build is, as `/tmp` may be in memory.
        let this = std::env::current_exe().unwrap();
        let file = tempfile::tempfile_in(this.parent().unwrap()).unwrap();
        file.write_all_at(Block::new(8 << 20, PAGE).bytes(), 0).unwrap();
        assert_ne!(is_cached(&file, 0), Some(false), "it has just been written");
        file.sync_all().unwrap();
        forget(&file).unwrap();
        if is_cached(&file, 0) != Some(false) {
            eprintln!("left out: nobody can tell what is in the page cache here");
            return;
        }
        // As a file system that takes `O_DIRECT` and does as it always does.
        let disguised = Direct { file: file.try_clone().unwrap(), alignment: PAGE as u64, read_only: None };
        assert_eq!(stays_cached(&file, &disguised), Some(true));
    }

    #[test]
    fn where_pages_cannot_be_dropped_their_use_is_unknown() {
        // Pages of a file in memory are the file.
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
            assert!(std::env::var_os("EMU_NO_SKIP").is_none(), "no /dev/shm");
            eprintln!("left out: no /dev/shm");
            return;
        };
        file.write_all_at(Block::new(1 << 20, PAGE).bytes(), 0).unwrap();
        let same = Direct { file: file.try_clone().unwrap(), alignment: PAGE as u64, read_only: None };
        assert_eq!(stays_cached(&file, &same), None);
    }

    #[test]
    fn an_overlay_lies_on_what_it_writes_to() {
        let mounts = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
                      31 22 0:40 / /o rw - overlay overlay rw,lowerdir=/l:/m,upperdir=/u,workdir=/w\n\
                      32 22 0:41 / /p rw shared:7 - overlay none rw,lowerdir=/l,upperdir=u,workdir=w\n\
                      33 22 0:42 / /q rw - overlay none rw,lowerdir=/l,upperdir=/a\\040b,workdir=/w\n\
                      34 22 0:43 / /r ro - overlay none ro,lowerdir=/l:/m\n";
        assert_eq!(upper_of(mounts, "31"), Some("/u".into()));
        for id in ["22", "32", "33", "34", "35", "3", ""] {
            assert_eq!(upper_of(mounts, id), None, "{id}");
        }
        assert_eq!(Storage::of_type(OVERLAYFS_SUPER_MAGIC), Storage::Unknown);
        assert_eq!(Storage::of_type(RAMFS_MAGIC), Storage::Memory);
    }

    #[test]
    fn the_probe_of_writes_keeps_content_and_tells_failures_apart() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = || Ok(());
        let file = Scratch::make(dir.path(), 1 << 20, 5, &mut watch).unwrap().buffered;
        assert_eq!(refuses_writes(&file, 512), None);
        let mut block = Block::new(PAGE, PAGE);
        file.read_exact_at(block.bytes_mut(), 0).unwrap();
        check_original(&block, 5, 0).unwrap();
        // A descriptor that may not be written by is no refusal of such writes.
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert_eq!(refuses_writes(&File::open(again).unwrap(), 512), None);
        assert!(is_refusal(&io::Error::from(Errno::INVAL)) && is_refusal(&io::Error::from(Errno::OPNOTSUPP)));
        assert!(!is_refusal(&io::Error::from(Errno::IO)) && !is_refusal(&io::Error::other("short")));
    }
}
