//! A container of Docker, Podman, containerd, CRI-O or LXC by its cgroup, which has the container's ID or name in its own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{groups, listed, name_of};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::nearest::nearest_hint;
use crate::sys::spawn::heed_children;
use crate::sys::time::sleep;

/// Digits of an ID.
const ID_LENGTH: usize = 64;

/// Fewer digits than this are taken for a name.
const ID_SHORTEST: usize = 6;

/// What stands before an ID in the name of a cgroup: by Docker, Podman, containerd and CRI-O.
const PREFIXES: [&str; 6] = ["", "docker-", "libpod-", "cri-containerd-", "nerdctl-", "crio-"];

/// What stands before the name of a container in that of its cgroup: by LXC and systemd-nspawn.
const NAME_PREFIXES: [&str; 2] = ["lxc.payload.", "machine-"];

/// How long a command may take that is asked for a name.
const PATIENCE: Duration = Duration::from_secs(5);

/// The cgroup of a container that runs, by its name, its ID, or the first digits of that.
///
/// # Errors
/// Usage: none is of this name, or several are.
pub fn container(host: &Host, name: &str) -> Result<PathBuf> {
    if name.is_empty() || name.contains('/') {
        return Err(Error::usage(format!("bad container `{name}`")).hint("give its name, or its ID"));
    }
    let all = groups(host);
    let ids = ids(&all);
    let of_id = |id: &str| {
        let like = ids.iter().filter(|(known, _)| known.starts_with(id));
        outermost(&like.map(|(_, group)| *group).collect::<Vec<_>>())
    };
    let mut found = outermost(&all.iter().filter(|group| is_named(group, name)).collect::<Vec<_>>());
    if found.is_empty() && name.len() >= ID_SHORTEST && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        found = of_id(name);
    }
    let names = names();
    if found.is_empty() {
        found = running(&names, name, &ids);
    }
    if found.is_empty() {
        found = ask(name).map(|id| of_id(&id)).unwrap_or_default();
    }
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let error = Error::usage(format!("no container `{name}` runs here"));
            let running: Vec<_> =
                names.into_iter().filter(|known| known.is_among(&ids)).map(|known| known.name).collect();
            let otherwise = "give the name or the ID that `docker ps` or `podman ps` shows";
            Err(error.hint(nearest_hint(name, running.iter().map(String::as_str), otherwise)))
        }
        several => Err(Error::usage(format!("several containers are called `{name}`: {}", listed(several)))
            .hint("give more digits of the ID, or name the cgroup that is meant")),
    }
}

/// The names of the containers that run here, as far as files tell.
pub fn running_containers(host: &Host) -> Vec<String> {
    let all = groups(host);
    let ids = ids(&all);
    names().into_iter().filter(|known| known.is_among(&ids)).map(|known| known.name).collect()
}

/// The groups that are containers by their ID.
fn ids(groups: &[PathBuf]) -> Vec<(String, &PathBuf)> {
    groups.iter().filter_map(|group| Some((id_of(&name_of(group))?, group))).collect()
}

/// The ID in the name of a cgroup, if it is that of a container.
fn id_of(group: &str) -> Option<String> {
    let name = group.strip_suffix(".scope").unwrap_or(group);
    let is_id = |text: &&str| text.len() == ID_LENGTH && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    PREFIXES.iter().filter_map(|prefix| name.strip_prefix(prefix)).find(is_id).map(str::to_owned)
}

/// Whether a cgroup is that of a container whose name it has.
fn is_named(group: &Path, name: &str) -> bool {
    let own = name_of(group);
    let own = own.strip_suffix(".scope").unwrap_or(&own);
    let within_lxc =
        || group.parent().is_some_and(|parent| parent.ends_with("lxc") || parent.ends_with("lxc.payload"));
    NAME_PREFIXES.iter().any(|prefix| own.strip_prefix(prefix) == Some(name)) || (own == name && within_lxc())
}

/// The groups of the containers of this name that run: several engines may have one, or have one that is stopped.
fn running<'a>(names: &[Named], name: &str, ids: &[(String, &'a PathBuf)]) -> Vec<&'a PathBuf> {
    let is_it = |id: &String| names.iter().any(|known| known.name == name && known.id == *id);
    outermost(&ids.iter().filter(|(id, _)| is_it(id)).map(|(_, group)| *group).collect::<Vec<_>>())
}

/// Without those that lie within others.
fn outermost<'a>(groups: &[&'a PathBuf]) -> Vec<&'a PathBuf> {
    let within = |group: &PathBuf| groups.iter().any(|other| *other != group && group.starts_with(other));
    groups.iter().copied().filter(|group| !within(group)).collect()
}

struct Named {
    name: String,
    id: String,
}

impl Named {
    fn is_among(&self, ids: &[(String, &PathBuf)]) -> bool {
        ids.iter().any(|(known, _)| *known == self.id)
    }
}

/// The names in the state files of Docker, Podman and nerdctl, as far as the caller may read them.
fn names() -> Vec<Named> {
    let mut stores: Vec<PathBuf> = vec!["/var/lib/containers/storage".into()];
    let home = env::var_os("HOME").map(PathBuf::from);
    let data = env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    stores.extend(
        data.or(home.map(|home| home.join(".local/share"))).map(|data| data.join("containers/storage")),
    );
    let podmans = stores.iter().flat_map(|store| podmans(store));
    podmans
        .chain(dockers(Path::new("/var/lib/docker/containers")))
        .chain(nerdctls(Path::new("/var/lib/nerdctl")))
        .collect()
}

/// Of containers/storage: `DRIVER-containers/containers.json`.
fn podmans(store: &Path) -> Vec<Named> {
    #[derive(Deserialize)]
    struct Stored {
        id: String,
        #[serde(default)]
        names: Vec<String>,
    }
    let drivers = inside(store).filter(|path| name_of(path).ends_with("-containers"));
    let stored = drivers.filter_map(|driver| json::<Vec<Stored>>(&driver.join("containers.json"))).flatten();
    stored
        .flat_map(|Stored { id, names }| names.into_iter().map(move |name| Named { name, id: id.clone() }))
        .collect()
}

/// Of Docker: `ID/config.v2.json`.
fn dockers(store: &Path) -> Vec<Named> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Config {
        #[serde(rename = "ID")]
        id: String,
        name: String,
    }
    let configs = inside(store).filter_map(|folder| json::<Config>(&folder.join("config.v2.json")));
    configs.map(|Config { id, name }| Named { name: name.trim_start_matches('/').to_owned(), id }).collect()
}

/// Of nerdctl: `ADDRESS/names/NAMESPACE/NAME` has the ID in it.
fn nerdctls(store: &Path) -> Vec<Named> {
    let spaces = inside(store).flat_map(|address| inside(&address.join("names")));
    let files = spaces.flat_map(|space| inside(&space));
    files
        .filter_map(|file| {
            Some(Named { name: name_of(&file), id: fs::read_to_string(&file).ok()?.trim().to_owned() })
        })
        .collect()
}

fn inside(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// The ID by Docker's daemon, whose files may be anywhere. Podman's command is not asked: where it does not see its own
/// `/run` it takes the machine for restarted, and forgets which containers run.
fn ask(name: &str) -> Option<String> {
    heed_children();
    let mut asked = Command::new("docker");
    asked.args(["container", "inspect", "-f", "{{.Id}}", "--", name]);
    let mut asked = asked.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match asked.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < deadline => sleep(Duration::from_millis(10)),
            _ => {
                let _ = asked.kill();
                let _ = asked.wait();
                return None;
            }
        }
    }
    let told = asked.wait_with_output().ok()?;
    let id = String::from_utf8(told.stdout).ok()?.trim().to_owned();
    (told.status.success() && id_of(&id).is_some()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn cgroups_of_containers_are_known_by_their_names() {
        for name in
            ["", "docker-", "libpod-", "cri-containerd-", "crio-"].map(|prefix| format!("{prefix}{ID}"))
        {
            assert_eq!(id_of(&name).as_deref(), Some(ID), "{name}");
            assert_eq!(id_of(&format!("{name}.scope")).as_deref(), Some(ID), "{name}");
        }
        for name in [&format!("libpod-conmon-{ID}.scope"), &ID[1..], "user.slice", ""] {
            assert_eq!(id_of(name), None, "{name}");
        }
        for group in ["/lxc.payload.web", "/lxc/web", "/machine.slice/machine-web.scope"] {
            assert!(is_named(Path::new(group), "web"), "{group}");
        }
        assert!(!is_named(Path::new("/system.slice/web"), "web"));
    }

    #[test]
    fn names_are_read_from_state_files() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "podman/overlay-containers/containers.json",
            r#"[{"id":"ab","names":["web","w"],"x":1},{"id":"cd"}]"#,
        );
        write("podman/vfs-containers/containers.json", "not JSON");
        write("docker/ef/config.v2.json", r#"{"ID":"ef","Name":"/db","Config":{}}"#);
        write("nerdctl/1935db59/names/default/cache", "0a\n");
        let at = |path: &str| dir.path().join(path);
        let all =
            [podmans(&at("podman")), dockers(&at("docker")), nerdctls(&at("nerdctl")), podmans(&at("none"))];
        let pairs: Vec<_> = all.iter().flatten().map(|one| format!("{}={}", one.name, one.id)).collect();
        assert_eq!(pairs, ["web=ab", "w=ab", "db=ef", "cache=0a"]);
    }

    #[test]
    fn a_stopped_container_hides_none_that_runs() {
        let id = |digit: &str| digit.repeat(ID_LENGTH);
        let of = |name: &str, digit: &str| Named { name: name.into(), id: id(digit) };
        let names = [of("web", "a"), of("web", "b"), of("web", "c"), of("db", "d")];
        let groups = ["c", "b", "d"].map(|digit| PathBuf::from(format!("/x/docker-{}.scope", id(digit))));
        assert_eq!(running(&names, "web", &ids(&groups[1..])), [&groups[1]]);
        assert_eq!(running(&names, "web", &ids(&groups)), [&groups[0], &groups[1]]);
        assert!(running(&names, "web", &ids(&groups[2..])).is_empty());
    }

    #[test]
    fn groups_within_the_containers_are_no_others() {
        let groups = ["/a", "/a/b", "/ab"].map(PathBuf::from);
        assert_eq!(outermost(&groups.iter().collect::<Vec<_>>()), [&groups[0], &groups[2]]);
    }
}
