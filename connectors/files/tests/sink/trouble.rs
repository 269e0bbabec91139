//! Disks that are full, permissions that are lost, folders that are away.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use levada_core::template::TwoPhaseCommitSink;
use levada_core::{ErrorChain, ErrorClass};
use levada_files::FileSinkConfig;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{Uid, setfsuid};
use tempfile::TempDir;

use crate::scene::{CTX, Scene, batch, lines, name, opened, pre_committed, visible};

/// A file system in memory of 1 MiB.
struct SmallDisk {
    path: PathBuf,
    _folder: TempDir,
}

impl SmallDisk {
    /// Mounts it, or says loudly that the test is skipped: only root may.
    fn mounted() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::create_dir(&path).unwrap();
        match mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some("size=1m")) {
            Ok(()) => Some(Self { path, _folder: folder }),
            Err(error) => {
                eprintln!("!! SKIPPED: no small disk could be mounted ({error}); run as root !!");
                None
            }
        }
    }

    fn fill(&self) {
        let mut filler = fs::File::create(self.path.join(".filler")).unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.path.join(".filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        umount2(&self.path, MntFlags::MNT_DETACH).ok();
    }
}

/// [TPL-16] a full disk in the middle of a transaction: nothing is visible, nothing lost, nothing twice.
#[tokio::test]
async fn a_full_disk_is_told_and_what_was_not_written_is_written_when_there_is_room() {
    let Some(disk) = SmallDisk::mounted() else { return };
    let mut sink = opened(FileSinkConfig::new(&disk.path, "out").buffer_bytes(10_000)).await.unwrap();
    let mut handle = sink.begin(&name(1, 1, 0)).await.unwrap();
    let items = |from: usize| (from..from + 50).map(|at| format!("{at:0>1000}")).collect::<Vec<_>>();
    sink.write(&mut handle, batch(items(0)), &CTX).await.unwrap();
    disk.fill();
    let error = sink.write(&mut handle, batch(items(50)), &CTX).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Retry);
    let chain = ErrorChain(&error).to_string();
    assert!(
        chain.contains(&handle.pending().display().to_string()) && chain.contains("make room"),
        "{chain}"
    );
    let again = sink.pre_commit(&mut handle).await.unwrap_err();
    assert_eq!(again.class, ErrorClass::Retry);
    assert_eq!(visible(&disk.path).len(), 0);
    disk.free();
    sink.pre_commit(&mut handle).await.unwrap();
    sink.commit(&handle).await.unwrap();
    let expected: String = items(0).into_iter().chain(items(50)).map(|line| line + "\n").collect();
    assert_eq!(fs::read_to_string(handle.target()).unwrap(), expected);
}

/// [TPL-16] a commit needs next to no room; should it lack even that, the transaction waits.
#[tokio::test]
async fn a_transaction_that_is_pre_committed_survives_a_full_disk() {
    let Some(disk) = SmallDisk::mounted() else { return };
    let config = FileSinkConfig::new(&disk.path, "out");
    let mut sink = opened(config.clone()).await.unwrap();
    let handle = pre_committed(&mut sink, name(1, 1, 0), &["a"]).await;
    disk.fill();
    if let Err(error) = sink.commit(&handle).await {
        assert_eq!(error.class, ErrorClass::Retry);
    }
    disk.free();
    opened(config).await.unwrap().commit(&handle).await.unwrap();
    assert_eq!(fs::read_to_string(handle.target()).unwrap(), "a\n");
}

#[tokio::test]
async fn a_disk_that_became_read_only_is_told_and_loses_nothing() {
    let Some(disk) = SmallDisk::mounted() else { return };
    let mut sink = opened(FileSinkConfig::new(&disk.path, "out")).await.unwrap();
    let handle = pre_committed(&mut sink, name(1, 1, 0), &["a"]).await;
    let remount =
        |flags| mount(None::<&str>, &disk.path, None::<&str>, MsFlags::MS_REMOUNT | flags, None::<&str>);
    remount(MsFlags::MS_RDONLY).unwrap();
    let error = sink.commit(&handle).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Retry);
    assert!(error.to_string().contains("mount the disk for writing"), "{error}");
    remount(MsFlags::empty()).unwrap();
    sink.commit(&handle).await.unwrap();
    assert_eq!(fs::read_to_string(handle.target()).unwrap(), "a\n");
}

/// The hidden folder is a mount of its own: files could not be moved out of it in one step.
#[tokio::test]
async fn a_hidden_folder_on_another_file_system_is_refused_when_opening() {
    let Some(disk) = SmallDisk::mounted() else { return };
    let scene = Scene::new();
    std::os::unix::fs::symlink(&disk.path, scene.folder().join(".pending")).unwrap();
    let error = opened(scene.config()).await.unwrap_err();
    assert!(error.to_string().contains("another file system"), "{error}");
}

fn set_mode(scene: &Scene, mode: u32) {
    for path in [scene.folder(), &scene.folder().join(".pending")] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Root may do everything, so its file I/O is done as nobody.
fn unprivileged() -> tokio::runtime::Runtime {
    let drop_privileges = || {
        if Uid::effective().is_root() {
            setfsuid(Uid::from_raw(65534));
        }
    };
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .on_thread_start(drop_privileges)
        .build()
        .unwrap()
}

/// [TPL-16] the permission is lost between pre-commit and commit.
#[test]
fn a_lost_permission_is_told_and_the_transaction_is_committed_once_it_is_back() {
    let scene = Scene::new();
    fs::create_dir(scene.folder().join(".pending")).unwrap();
    set_mode(&scene, 0o777);
    unprivileged().block_on(async {
        let mut sink = scene.sink().await;
        let handle = pre_committed(&mut sink, name(1, 1, 0), &["a"]).await;
        set_mode(&scene, 0o555);
        let error = sink.commit(&handle).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Retry, "the transaction is not lost");
        let message = error.to_string();
        assert!(message.contains("permission") && message.contains("job.out."), "{message}");
        assert_eq!(scene.visible().len(), 0);
        let error = sink.begin(&name(1, 2, 0)).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Fatal);
        assert!(error.to_string().contains("permission"), "{error}");
        set_mode(&scene, 0o777);
        sink.commit(&handle).await.unwrap();
    });
    assert_eq!(scene.text(), "a\n");
}

#[tokio::test]
async fn a_folder_that_is_missing_is_named_and_not_made() {
    let scene = Scene::new();
    let missing = scene.folder().join("mount");
    let error = opened(FileSinkConfig::new(&missing, "out")).await.unwrap_err();
    assert!(error.to_string().contains(&missing.display().to_string()), "{error}");
    assert!(!missing.exists());
    let file = scene.folder().join("file");
    fs::write(&file, "").unwrap();
    let error = opened(FileSinkConfig::new(&file, "out")).await.unwrap_err();
    assert!(error.to_string().contains("is not a folder"), "{error}");
}

/// [TPL-13] a folder that is away (a disk not mounted) is no loss.
#[tokio::test]
async fn a_folder_that_is_away_is_waited_for() {
    let scene = Scene::new();
    let folder = scene.folder().join("here");
    fs::create_dir(&folder).unwrap();
    let mut sink = opened(FileSinkConfig::new(&folder, "out")).await.unwrap();
    let handle = pre_committed(&mut sink, name(1, 1, 0), &["a"]).await;
    let away = scene.folder().join("away");
    rename(&folder, &away);
    let error = sink.commit(&handle).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Retry);
    assert!(error.to_string().contains("mounted"), "{error}");
    rename(&away, &folder);
    sink.commit(&handle).await.unwrap();
    assert_eq!(fs::read_to_string(handle.target()).unwrap(), "a\n");
}

fn rename(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}

/// What a dropped future has written is unknown, so its transaction goes no further.
#[tokio::test]
async fn a_write_that_was_given_up_ends_its_transaction() {
    let scene = Scene::new();
    let mut sink = opened(scene.config().buffer_bytes(0)).await.unwrap();
    let mut handle = sink.begin(&name(1, 1, 0)).await.unwrap();
    {
        let mut write = std::pin::pin!(sink.write(&mut handle, lines(&["a"]), &CTX));
        std::future::poll_fn(|cx| {
            let _ = write.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
    }
    // The one poll may have been enough, if the blocking thread was quick.
    if let Err(error) = sink.pre_commit(&mut handle).await {
        assert!(error.to_string().contains("given up"), "{error}");
        assert!(sink.commit(&handle).await.is_err());
    }
    sink.abort(&handle).await.unwrap();
    assert_eq!((scene.visible().len(), scene.waiting().len()), (0, 0));
}
