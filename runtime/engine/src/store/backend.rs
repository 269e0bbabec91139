//! The objects: where they are, and the few verbs that the store needs.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    GetResult, GetResultPayload, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, ObjectStoreScheme,
    PutMode, PutPayload,
};
use tokio::task::spawn_blocking;
use url::Url;

use super::error::StoreError;
use super::failpoint::is_without_condition;

/// Bytes of a file that are read at once.
const FILE_PIECE: usize = 1 << 20;

/// How many create the same object at the same moment when a store is opened, and how often. Servers were seen that look
/// whether an object exists and then write it: two that come together both succeed.
const PROBED_AT_ONCE: usize = 8;
const PROBES: usize = 4;

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
            None => Self::open_existing(url, Patience::Job),
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
    pub(crate) fn open_existing(url: &str, patience: Patience) -> Result<Self, StoreError> {
        if let Some(folder) = local_folder(url)? {
            must_be_folder(url, &folder)?;
            return Self::directory(folder);
        }
        let parsed = Url::parse(url).map_err(|error| location(url, error.to_string()))?;
        let (scheme, root) =
            ObjectStoreScheme::parse(&parsed).map_err(|error| location(url, error.to_string()))?;
        let objects = connect(scheme, &parsed, url, patience)?;
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

    /// Finds out whether objects are created only if they do not exist: one after the other, and at the same moment.
    pub(crate) async fn probe(&self) -> Result<(), StoreError> {
        self.probe_once(&[1, 1]).await?;
        for _ in 0..PROBES {
            self.probe_once(&[PROBED_AT_ONCE]).await?;
        }
        Ok(())
    }

    /// Creates one object several times, so many at once in each step; all but one must be refused.
    async fn probe_once(&self, steps: &[usize]) -> Result<(), StoreError> {
        let path = self.path(&["probe", &format!("{:032x}", rand::random::<u128>())]);
        let mut created = 0;
        for at_once in steps {
            let more = self.create_at_once(&path, *at_once).await;
            created += more.map_err(|cause| self.probe_error(&path, cause))?;
        }
        let deleted = self.delete(&path).await;
        // None created: the answer to the first may have been lost, and the client repeated it.
        if created > 1 {
            return Err(StoreError::NotConditional { place: self.place.clone() });
        }
        deleted
    }

    /// Tells how many of those succeeded that created an object at the same moment.
    async fn create_at_once(&self, path: &Path, tries: usize) -> Result<usize, object_store::Error> {
        let answers = join_all((0..tries).map(|_| self.create(path, b"probe".as_slice().into()))).await;
        let mut created = 0;
        for answer in answers {
            match answer {
                Ok(()) => created += 1,
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(created)
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

    /// Streams the bytes of an object whose reading has begun.
    pub(crate) fn chunks(found: GetResult) -> BoxStream<'static, object_store::Result<Bytes>> {
        match found.payload {
            GetResultPayload::File(file, _) => file_chunks(file).boxed(),
            payload => GetResult { payload, ..found }.into_stream(),
        }
    }

    /// Lists all objects below a folder.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        let path = self.path(&[folder]);
        // No error is taken for "nothing there": of an empty log a job would start from nothing.
        self.objects.list(Some(&path)).try_collect().await.map_err(unavailable("list", &path))
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

/// Looks whether there is a folder to read from.
fn must_be_folder(url: &str, folder: &FilePath) -> Result<(), StoreError> {
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(location(url, "it is a file, and a store is a folder")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(location(url, "there is no such folder"))
        }
        Err(error) => Err(folder_error("look at the folder", folder, error)),
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

/// How long a cloud that does not answer is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as its client thinks right, some minutes: a job can wait.
    Job,
    /// Some seconds: a person waits for the answer.
    Person,
}

#[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
impl Patience {
    fn retries(self) -> object_store::RetryConfig {
        let usual = object_store::RetryConfig::default();
        match self {
            Patience::Job => usual,
            Patience::Person => object_store::RetryConfig {
                max_retries: 3,
                retry_timeout: std::time::Duration::from_secs(10),
                ..usual
            },
        }
    }
}

/// Connects to what is no directory.
fn connect(
    scheme: ObjectStoreScheme,
    parsed: &Url,
    url: &str,
    patience: Patience,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    #[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
    let failed = |cause| StoreError::Unavailable { action: "connect to", name: parsed.to_string(), cause };
    #[cfg(not(any(feature = "s3", feature = "gcs", feature = "azure")))]
    let _ = (parsed, patience);
    match scheme {
        ObjectStoreScheme::Memory => Ok(Arc::new(InMemory::new())),
        #[cfg(feature = "s3")]
        ObjectStoreScheme::AmazonS3 => {
            let builder = object_store::aws::AmazonS3Builder::from_env().with_url(parsed.as_str());
            Ok(Arc::new(builder.with_retry(patience.retries()).build().map_err(failed)?))
        }
        #[cfg(feature = "gcs")]
        ObjectStoreScheme::GoogleCloudStorage => {
            let builder = object_store::gcp::GoogleCloudStorageBuilder::from_env().with_url(parsed.as_str());
            Ok(Arc::new(builder.with_retry(patience.retries()).build().map_err(failed)?))
        }
        #[cfg(feature = "azure")]
        ObjectStoreScheme::MicrosoftAzure => {
            let builder = object_store::azure::MicrosoftAzureBuilder::from_env().with_url(parsed.as_str());
            Ok(Arc::new(builder.with_retry(patience.retries()).build().map_err(failed)?))
        }
        #[cfg(not(feature = "s3"))]
        ObjectStoreScheme::AmazonS3 => Err(not_compiled_in(url, "s3")),
        #[cfg(not(feature = "gcs"))]
        ObjectStoreScheme::GoogleCloudStorage => Err(not_compiled_in(url, "gcs")),
        #[cfg(not(feature = "azure"))]
        ObjectStoreScheme::MicrosoftAzure => Err(not_compiled_in(url, "azure")),
        _ => Err(location(url, "checkpoints go to memory, a directory, S3, GCS or Azure")),
    }
}

/// Reads a file in large pieces: `object_store` reads 8 KiB at a time, each on another thread, which makes a restore of a
/// large state several times slower.
fn file_chunks(file: File) -> impl Stream<Item = object_store::Result<Bytes>> + Send {
    let failed = |cause: io::Error| object_store::Error::Generic { store: "directory", source: cause.into() };
    stream::try_unfold(file, move |mut file| async move {
        let read = spawn_blocking(move || {
            let mut piece = Vec::with_capacity(FILE_PIECE);
            let length = (&mut file).take(FILE_PIECE as u64).read_to_end(&mut piece)?;
            Ok((length > 0).then(|| (Bytes::from(piece), file)))
        });
        read.await.map_err(io::Error::from).flatten().map_err(failed)
    })
}

#[cfg(not(all(feature = "s3", feature = "gcs", feature = "azure")))]
fn not_compiled_in(url: &str, feature: &str) -> StoreError {
    location(url, format!("this build of levada-engine has no feature {feature:?}"))
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

    /// A place that this build knows no way to is refused with the feature that it lacks.
    #[tokio::test]
    async fn a_cloud_that_is_not_compiled_in_names_its_feature() {
        let clouds = [
            ("s3://bucket/path", "s3", cfg!(feature = "s3")),
            ("gs://bucket/path", "gcs", cfg!(feature = "gcs")),
            ("az://container/path", "azure", cfg!(feature = "azure")),
        ];
        for (url, feature, _) in clouds.into_iter().filter(|(_, _, is_compiled_in)| !is_compiled_in) {
            let error = Backend::open(url).await.unwrap_err().to_string();
            assert!(error.contains(url) && error.contains(&format!("no feature {feature:?}")), "{error}");
        }
    }
}
