//! The objects: where they are, and the few verbs that the store needs.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    GetResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutMode,
    PutPayload,
};
use url::Url;

use super::error::StoreError;
use super::failpoint::is_without_condition;

/// What the objects lie in.
#[derive(Clone)]
pub(crate) struct Backend {
    objects: Arc<dyn ObjectStore>,
    root: Path,
    /// The folder, if it is one.
    folder: Option<PathBuf>,
    place: String,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("place", &self.place).field("objects", &self.objects).finish()
    }
}

/// Gives an error of the object store the request it belongs to.
pub(crate) fn unavailable(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(object_store::Error) -> StoreError {
    move |cause| StoreError::Unavailable { action, name: path.to_string(), cause }
}

impl Backend {
    /// Opens what `url` names, and makes it if it is a directory.
    pub(crate) async fn open(url: &str) -> Result<Self, StoreError> {
        match local_folder(url)? {
            Some(folder) => Self::open_folder(folder).await,
            None => Self::open_existing(url),
        }
    }

    /// Opens a directory, and makes it if it is not there.
    pub(crate) async fn open_folder(folder: PathBuf) -> Result<Self, StoreError> {
        let made = folder.clone();
        // The task does nothing but file operations, which do not panic.
        let done = tokio::task::spawn_blocking(move || make_durably(&made)).await;
        done.unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|cause| folder_error("create the folder", &folder, cause))?;
        Self::directory(folder)
    }

    /// Opens what `url` names, and changes nothing there.
    pub(crate) fn open_existing(url: &str) -> Result<Self, StoreError> {
        if let Some(folder) = local_folder(url)? {
            return Self::directory(folder);
        }
        let parsed = Url::parse(url).map_err(|error| location(url, error.to_string()))?;
        let (scheme, root) =
            ObjectStoreScheme::parse(&parsed).map_err(|error| location(url, error.to_string()))?;
        let objects = connect(scheme, &parsed, url)?;
        Ok(Self { objects, root, folder: None, place: url.to_owned() })
    }

    fn directory(folder: PathBuf) -> Result<Self, StoreError> {
        let place = folder.display().to_string();
        let objects = LocalFileSystem::new_with_prefix(&folder)
            .map_err(unavailable("open", &Path::from(place.as_str())))?
            .with_fsync(true)
            // Every checkpoint has a folder for its parts, which would stay otherwise.
            .with_automatic_cleanup(true);
        Ok(Self { objects: Arc::new(objects), root: Path::default(), folder: Some(folder), place })
    }

    /// Finds out whether objects are created only if they do not exist, by creating one twice.
    pub(crate) async fn probe(&self) -> Result<(), StoreError> {
        let path = self.path(&["probe", &format!("{:032x}", rand::random::<u128>())]);
        self.create(&path, b"once".as_slice().into())
            .await
            .map_err(|cause| self.probe_error(&path, cause))?;
        let again = self.create(&path, b"twice".as_slice().into()).await;
        self.delete(&path).await?;
        match again {
            Err(error) if is_taken(&error) => Ok(()),
            Err(error) => Err(self.probe_error(&path, error)),
            Ok(()) => Err(StoreError::NotConditional { place: self.place.clone() }),
        }
    }

    fn probe_error(&self, path: &Path, cause: object_store::Error) -> StoreError {
        match cause {
            object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. } => {
                StoreError::NotConditional { place: self.place.clone() }
            }
            cause => StoreError::Unavailable { action: "create", name: path.to_string(), cause },
        }
    }

    /// Names the place, as it was given.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Names an object.
    pub(crate) fn path(&self, segments: &[&str]) -> Path {
        segments.iter().fold(self.root.clone(), |path, segment| path.join(*segment))
    }

    /// Creates an object if its name is free.
    pub(crate) async fn create(&self, path: &Path, bytes: PutPayload) -> Result<(), object_store::Error> {
        let mode = if is_without_condition() { PutMode::Overwrite } else { PutMode::Create };
        self.objects.put_opts(path, bytes, mode.into()).await.map(drop)
    }

    /// Creates or replaces an object.
    pub(crate) async fn overwrite(&self, path: &Path, bytes: PutPayload) -> Result<(), object_store::Error> {
        self.objects.put(path, bytes).await.map(drop)
    }

    /// Begins an object that comes in pieces; it does not exist until it is complete.
    pub(crate) async fn begin(&self, path: &Path) -> Result<Box<dyn MultipartUpload>, StoreError> {
        self.objects.put_multipart(path).await.map_err(unavailable("begin", path))
    }

    /// Reads a small object; `None` if it does not exist.
    pub(crate) async fn read(&self, path: &Path) -> Result<Option<Bytes>, StoreError> {
        let Some(found) = self.stream(path).await? else { return Ok(None) };
        found.bytes().await.map(Some).map_err(unavailable("read", path))
    }

    /// Begins to read an object; `None` if it does not exist.
    pub(crate) async fn stream(&self, path: &Path) -> Result<Option<GetResult>, StoreError> {
        match self.objects.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(cause) => Err(unavailable("read", path)(cause)),
        }
    }

    /// Lists all objects below a folder.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        let path = self.path(&[folder]);
        match self.objects.list(Some(&path)).try_collect().await {
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            listed => listed.map_err(unavailable("list", &path)),
        }
    }

    /// Deletes an object; one that does not exist is as good as deleted.
    pub(crate) async fn delete(&self, path: &Path) -> Result<(), StoreError> {
        match self.objects.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(cause) => Err(unavailable("delete", path)(cause)),
        }
    }

    /// Makes the names of a directory durable, when the step that should have done so did not say that it has.
    pub(crate) async fn sync_folder(&self, name: &str) -> Result<(), StoreError> {
        let Some(folder) = self.folder.as_ref().map(|folder| folder.join(name)) else { return Ok(()) };
        let synced = folder.clone();
        let done = tokio::task::spawn_blocking(move || File::open(&synced)?.sync_all()).await;
        done.unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|cause| folder_error("sync the folder", &folder, cause))
    }
}

/// Tells whether a conditional put failed because of its condition.
pub(crate) fn is_taken(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. })
}

fn location(url: &str, reason: impl Into<String>) -> StoreError {
    StoreError::Location { url: url.to_owned(), reason: reason.into() }
}

fn folder_error(action: &'static str, folder: &FilePath, cause: io::Error) -> StoreError {
    StoreError::Folder { action, name: folder.display().to_string(), cause }
}

/// Returns the folder that a path or a `file:` URL names.
fn local_folder(url: &str) -> Result<Option<PathBuf>, StoreError> {
    match Url::parse(url) {
        Ok(parsed) if parsed.scheme() == "file" => {
            let folder = parsed.to_file_path().map_err(|()| location(url, "it names no absolute path"))?;
            Ok(Some(folder))
        }
        Ok(_) => Ok(None),
        Err(_) if url.is_empty() => Err(location(url, "it is empty")),
        Err(_) => Ok(Some(PathBuf::from(url))),
    }
}

/// Creates a folder and those above it, each durably in the one above.
fn make_durably(folder: &FilePath) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(FilePath::new("."));
    make_durably(above)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(above)?.sync_all()
}

/// Connects to what is no directory.
fn connect(scheme: ObjectStoreScheme, parsed: &Url, url: &str) -> Result<Arc<dyn ObjectStore>, StoreError> {
    #[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
    let failed = |cause| StoreError::Unavailable { action: "connect to", name: parsed.to_string(), cause };
    #[cfg(not(any(feature = "s3", feature = "gcs", feature = "azure")))]
    let _ = parsed;
    match scheme {
        ObjectStoreScheme::Memory => Ok(Arc::new(InMemory::new())),
        #[cfg(feature = "s3")]
        ObjectStoreScheme::AmazonS3 => {
            let builder = object_store::aws::AmazonS3Builder::from_env().with_url(parsed.as_str());
            Ok(Arc::new(builder.build().map_err(failed)?))
        }
        #[cfg(feature = "gcs")]
        ObjectStoreScheme::GoogleCloudStorage => {
            let builder = object_store::gcp::GoogleCloudStorageBuilder::from_env().with_url(parsed.as_str());
            Ok(Arc::new(builder.build().map_err(failed)?))
        }
        #[cfg(feature = "azure")]
        ObjectStoreScheme::MicrosoftAzure => {
            let builder = object_store::azure::MicrosoftAzureBuilder::from_env().with_url(parsed.as_str());
            Ok(Arc::new(builder.build().map_err(failed)?))
        }
        #[cfg(not(feature = "s3"))]
        ObjectStoreScheme::AmazonS3 => Err(location(url, "this build has no feature \"s3\"")),
        #[cfg(not(feature = "gcs"))]
        ObjectStoreScheme::GoogleCloudStorage => Err(location(url, "this build has no feature \"gcs\"")),
        #[cfg(not(feature = "azure"))]
        ObjectStoreScheme::MicrosoftAzure => Err(location(url, "this build has no feature \"azure\"")),
        _ => Err(location(url, "checkpoints go to memory, a directory, S3, GCS or Azure")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Backend, make_durably};

    /// [CHK-03] The directory is written with `fsync` of file and folder; `object_store` does neither unless told.
    #[tokio::test]
    async fn a_directory_is_written_durably() {
        let folder = tempfile::tempdir().unwrap();
        let nested = folder.path().join("a/b");
        make_durably(&nested).unwrap();
        let backend = Backend::open(nested.to_str().unwrap()).await.unwrap();
        assert!(format!("{backend:?}").contains("fsync: true"), "{backend:?}");
    }

    /// Places that are none are named with the reason.
    #[tokio::test]
    async fn foreign_places_are_refused() {
        for (url, reason) in
            [("", "empty"), ("ftp://host/x", "recognise"), ("https://host/x", "checkpoints go to")]
        {
            let error = Backend::open(url).await.unwrap_err();
            assert!(error.to_string().contains(reason), "{url}: {error}");
        }
    }
}
