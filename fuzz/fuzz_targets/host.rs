//! The files from which a host is detected: lines `=NAME` begin a file.
#![no_main]

use std::fs;

use emu_core::{Host, Roots};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    for part in text.split("\n=") {
        let (name, content) = part.split_once('\n').unwrap_or((part, ""));
        let name = name.trim_start_matches('=');
        // Names of the kernel's own: a path that leads elsewhere would write there.
        if name.split('/').any(|part| part.is_empty() || part.starts_with('.')) || name.contains('\0') {
            continue;
        }
        let file = folder.path().join(name);
        let _ = fs::create_dir_all(file.parent().expect("a parent"));
        let _ = fs::write(file, content);
    }
    let _ = Host::detect(&Roots::below(folder.path()));
});
