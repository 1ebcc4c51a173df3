use super::super::tests::playground;
use super::*;

#[test]
fn a_released_lock_is_free_even_if_a_child_has_a_copy() {
    let (_dir, roots) = playground();
    let dir = StateDir::open(&roots).unwrap();
    let lock = dir.lock().unwrap();
    let copy = lock.0.try_clone().unwrap();
    drop(lock);
    let started = Instant::now();
    drop(dir.lock().unwrap());
    assert!(started.elapsed() < PATIENCE);
    drop(copy);
}

#[test]
fn a_session_file_is_never_an_existing_one() {
    let (_dir, roots) = playground();
    let dir = StateDir::open(&roots).unwrap();
    let task = Task { pid: 7, starttime: 8 };
    let names: Vec<_> = (0..3).map(|_| dir.create(task).unwrap().0).collect();
    assert_eq!(names, [c"7-8.journal", c"7-8-1.journal", c"7-8-2.journal"].map(CStr::to_owned));
    let mode = dir.file(&names[0]).metadata().unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(roots.state.metadata().unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_lock_that_is_no_file_is_refused_with_advice() {
    let (_dir, roots) = playground();
    let dir = StateDir::open(&roots).unwrap();
    let path = dir.path.join(LOCK);
    std::fs::create_dir(&path).unwrap();
    let refused = || dir.lock().unwrap_err().hint_text().is_some_and(|hint| hint.contains("remove it"));
    assert!(refused());
    std::fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink("elsewhere", &path).unwrap();
    assert!(refused());
}
