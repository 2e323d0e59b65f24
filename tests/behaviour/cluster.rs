//! The private cluster: shared, recovered, and never left running.
//!
//! These start a cluster of their own, and so need the programs; `DATABASE_URL` does not help them.

use std::os::unix::net::UnixStream;
use std::path::Path;

use tests::block_until;

use crate::processes::Staying;

/// A process that uses a temporary cluster; those with the same name share it.
struct User {
    process: Staying,
    sockets: String,
    data: String,
}

impl User {
    fn join(name: &str) -> Self {
        let me = std::process::id().to_string();
        let process = Staying::spawn(&["cluster", name, &me]);
        let (sockets, data) = process.said.split_once(' ').unwrap();
        Self {
            sockets: sockets.to_owned(),
            data: data.to_owned(),
            process,
        }
    }
}

fn answers(sockets: &str) -> bool {
    UnixStream::connect(Path::new(sockets).join(".s.PGSQL.5432")).is_ok()
}

fn wait_until_it_has_stopped(sockets: &str) {
    block_until(|| !answers(sockets));
}

#[test]
fn processes_that_ask_at_once_share_a_server_and_the_last_one_stops_it() {
    let users: Vec<_> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| User::join("shared")))
            .collect();
        asking
            .into_iter()
            .map(|user| user.join().unwrap())
            .collect()
    });
    let (sockets, data) = (users[0].sockets.clone(), users[0].data.clone());
    assert!(
        users.iter().all(|user| user.sockets == sockets),
        "one server for all"
    );
    for user in users {
        assert!(answers(&sockets), "somebody still uses it");
        user.process.finish();
    }
    // Not "after a while": the last one stops it before it ends, and takes everything with it.
    assert!(!answers(&sockets));
    assert!(!Path::new(&sockets).exists());
    assert!(!Path::new(&data).exists());
}

#[test]
fn a_server_whose_users_were_all_killed_is_stopped_by_its_watcher() {
    let user = User::join("killed");
    let sockets = user.sockets.clone();
    assert!(answers(&sockets));
    user.process.kill();
    wait_until_it_has_stopped(&sockets);

    // And the data it left serves the next one.
    let next = User::join("killed");
    assert!(answers(&next.sockets));
    next.process.finish();
}

#[test]
fn a_server_that_was_killed_itself_is_recovered_with_its_data_by_the_next_user() {
    let user = User::join("crashed");
    let file = std::fs::read_to_string(Path::new(&user.data).join("postmaster.pid")).unwrap();
    let postmaster = file.lines().next().unwrap().parse().unwrap();
    let postmaster = rustix::process::Pid::from_raw(postmaster).unwrap();
    rustix::process::kill_process(postmaster, rustix::process::Signal::KILL).unwrap();
    while answers(&user.sockets) {}

    let next = User::join("crashed");
    assert!(answers(&next.sockets));
    assert!(next.sockets != user.sockets);
    let aside = Path::new(&next.data).with_file_name("data.unusable");
    assert!(
        !aside.exists(),
        "the data was good, and must not be put aside"
    );
    user.process.finish();
    assert!(answers(&next.sockets), "the next one still uses it");
    next.process.finish();
}

#[test]
fn scratch_data_that_no_server_can_open_is_put_aside() {
    let user = User::join("spoiled");
    let data = user.data.clone();
    // Spoiled while it is stopped: by a killed user, because the last to leave would remove it.
    user.process.kill();
    wait_until_it_has_stopped(&user.sockets);
    std::fs::write(Path::new(&data).join("PG_VERSION"), "?").unwrap();

    let next = User::join("spoiled");
    assert!(answers(&next.sockets));
    assert!(Path::new(&data).with_file_name("data.unusable").exists());
    next.process.finish();
}
