//! A file to measure with, which nobody else sees and which is gone however emu ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use emu_core::{Error, ErrorKind, Result};
use nix::sys::statfs::{FsType, TMPFS_MAGIC, fstatfs};
use nix::sys::statvfs::statvfs;
use rustix::fs::{Advice, AtFlags, FallocateFlags, OFlags, StatxFlags, fadvise, fallocate, statx};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::process::{Resource, getrlimit};

use super::content::{self, Block, PAGE};

/// Bytes filled by one write.
const CHUNK: usize = 1 << 20;

/// Share of the free space that may be taken: the rest is for others, and for what the file system adds.
const SHARE_MAX: f64 = 0.95;

/// The magic number of ramfs (linux/magic.h).
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// How a file is transferred to and from directly.
#[derive(Debug)]
pub(super) struct Direct {
    /// The file opened with `O_DIRECT`.
    pub(super) file: File,
    /// Offsets and lengths must be multiples of this many bytes.
    pub(super) alignment: u64,
}

/// A file without a name.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Reads and writes go through the page cache.
    pub(super) buffered: File,
    /// The same file past the page cache, or why that cannot be had.
    pub(super) direct: std::result::Result<Direct, String>,
    /// Why nothing can be written back or made durable, where that is so.
    pub(super) volatile: Option<String>,
    /// Start of its content.
    pub(super) seed: u64,
}

impl Scratch {
    /// Makes a file of `bytes`, on the disk and not only in memory. `watch` is called now and then.
    ///
    /// # Errors
    /// The folder cannot be written, or has no room.
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

    /// Fills a file and looks at what can be done with it.
    ///
    /// # Errors
    /// It cannot be written.
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

    /// Looks at what can be done with a file whose content begins with `seed`.
    pub(super) fn of(file: File, seed: u64) -> Self {
        let volatile = is_in_memory(&file)
            .then(|| "the file system is in memory: there is no disk to write to".to_owned());
        let direct = match &volatile {
            Some(_) => Err("the file system is in memory: all transfers are copies".to_owned()),
            None => direct(&file),
        };
        Self { buffered: file, direct, volatile, seed }
    }

    /// Writes everything back that has not been.
    ///
    /// # Errors
    /// The disk refuses.
    pub(super) fn sync(&self) -> Result<()> {
        self.buffered.sync_data().map_err(|cause| Error::io("cannot sync the file", cause))
    }

    /// Brings the file, of so many bytes, into the page cache.
    ///
    /// # Errors
    /// It cannot be read.
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
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn forget(&self) -> Result<()> {
        forget(&self.buffered)
            .map_err(|cause| Error::io("cannot drop the file from the page cache", cause.into()))
    }
}

fn forget(file: &File) -> rustix::io::Result<()> {
    fadvise(file, 0, None, Advice::DontNeed)
}

/// Whether `bytes` can be written in a folder.
///
/// # Errors
/// Unavailable, where there is no room for them; the folder is not there.
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
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < bytes => Err(Error::unavailable(format!(
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

fn is_in_memory(file: &File) -> bool {
    fstatfs(file).is_ok_and(|facts| matches!(facts.filesystem_type(), TMPFS_MAGIC | RAMFS_MAGIC))
}

/// Opens a file once more for direct transfers, or says why not.
fn direct(file: &File) -> std::result::Result<Direct, String> {
    let told = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let told =
        told.filter(|facts| StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::DIOALIGN));
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
        let mut block = Block::new(*alignment as usize, PAGE);
        let read = opened.read_exact_at(block.bytes_mut(), *alignment);
        read.is_ok()
    };
    let alignment = match told {
        Some(facts) => u64::from(facts.stx_dio_offset_align),
        None => [512, 1024, 2048, 4096].into_iter().find(works).ok_or("no direct transfer works")?,
    };
    let direct = Direct { file: opened, alignment };
    if stays_cached(file, &direct) {
        return Err("the file system takes direct transfers by way of the page cache all the same".into());
    }
    Ok(direct)
}

/// Whether what is read directly is in the page cache afterwards, as far as can be told.
fn stays_cached(file: &File, direct: &Direct) -> bool {
    let mut block = Block::new(direct.alignment as usize, PAGE);
    let has_read = forget(file).is_ok() && direct.file.read_exact_at(block.bytes_mut(), 0).is_ok();
    if !has_read || is_cached(file, 0) != Some(true) {
        return false;
    }
    // Where a disk answers at once, as one in memory does, the question alone brings a page into the cache: what nobody
    // has read is asked for as well, and must not be there.
    let middle = file.metadata().map_or(0, |facts| facts.len() / 2);
    forget(file).is_ok() && is_cached(file, middle) == Some(false)
}

/// Whether a byte of a file is in the page cache; `None` where the kernel does not tell.
///
/// `RWF_NOWAIT` (`preadv2(2)`, Linux 4.14) does not wait for what is not there, but lets the kernel begin to read it.
fn is_cached(file: &File, offset: u64) -> Option<bool> {
    let mut byte = [0_u8];
    match preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT) {
        Ok(read) => Some(read > 0),
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

/// Whether a whole block is as the file was made with.
///
/// # Errors
/// It is not.
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
        let disguised = Direct { file: file.try_clone().unwrap(), alignment: PAGE as u64 };
        assert!(stays_cached(&file, &disguised));
    }
}
