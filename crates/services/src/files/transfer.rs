//! Content on its way: out as a stream that holds a few chunks at most, in piece by piece to
//! the agent. An upload is told by an id that holds all there is to know about it, so that
//! nothing of it is remembered here and it goes on after any restart; the id gives no right,
//! since everything is done as its user.

use std::{str::FromStr, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use sha2::{Digest, Sha256};
use tokio::{sync::mpsc, time::timeout};

use super::{AgentConnection, Error, Files, Result, RootedPath, agent_connection::ConnectionError, unexpected};
use lyceum_model::{
    FieldError, User,
    files::{Entry, RawPath, is_name},
};
use lyceum_wire::protocol::files_agent::{Fault, FileLocation, FilesAnswer, FilesRequest, Upload};

/// How many chunks wait for a reader that is slow.
const AHEAD: usize = 2;

/// How long a client may take none of what it asked for, or send nothing.
const CLIENT_TIMEOUT: Duration = Duration::from_mins(2);

/// The longest id (characters): a path of 4095 bytes, percent-encoded and in base64.
const MAX_ID_LENGTH: usize = 18_000;

/// The content of a file, or of a folder as an archive.
pub struct Content {
    receiver: mpsc::Receiver<Result<Bytes>>,
}

impl Content {
    /// The chunks; an error in the middle breaks the answer off.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
        tokio_stream::wrappers::ReceiverStream::new(self.receiver)
    }
}

/// What somebody wants to upload.
#[derive(Clone, Debug)]
pub struct NewUpload {
    /// Where the file is to lie, with its name.
    pub path: RawPath,
    pub size_bytes: u64,
    pub replace: bool,
    pub sha256: Option<String>,
    pub executable: bool,
    /// The same key with the same upload is the same upload.
    pub key: Option<String>,
}

/// An upload's id: all that is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadId(Upload);

/// Where an upload stands.
#[derive(Debug)]
pub struct Uploaded {
    pub id: String,
    /// Where it is to lie.
    pub path: RawPath,
    pub size_bytes: u64,
    pub offset_bytes: u64,
}

impl UploadId {
    /// `None` for what was never one.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_ID_LENGTH {
            return None;
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let upload: Upload = serde_json::from_slice(&bytes).ok()?;
        let proper = is_name(&upload.name)
            && upload.nonce.len() == 32
            && upload.nonce.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !upload.folder.path.0.split(|byte| *byte == b'/').any(|part| part == b"..");
        proper.then_some(Self(upload))
    }

    /// As it stands in addresses.
    fn text(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&self.0).expect("plain data"))
    }
}

impl FromStr for UploadId {
    type Err = NoUploadId;

    fn from_str(text: &str) -> Result<Self, NoUploadId> {
        Self::parse(text).ok_or(NoUploadId)
    }
}

/// A text that is no upload's id.
#[derive(Clone, Copy, Debug)]
pub struct NoUploadId;

impl Files {
    /// The content of the file that `entry` is, from there on and so much.
    pub async fn read(
        &self,
        user: &User,
        rooted: &RootedPath,
        entry: &Entry,
        from: u64,
        length: u64,
    ) -> Result<Content> {
        let request = FilesRequest::Read { place: rooted.place.clone(), tag: entry.tag.clone(), from, length };
        self.content(user, rooted, &request).await
    }

    /// A folder with all it holds, as a tar stream.
    pub async fn archive(&self, user: &User, rooted: &RootedPath) -> Result<Content> {
        self.content(user, rooted, &FilesRequest::Archive { place: rooted.place.clone() }).await
    }

    async fn content(&self, user: &User, rooted: &RootedPath, request: &FilesRequest) -> Result<Content> {
        let pool = self.pool(user).await?;
        let mut line = self.line(&pool).await?;
        match line.ask(request).await.map_err(|err| err.about(rooted))? {
            FilesAnswer::Content => {}
            other => return Err(unexpected(&other)),
        }
        let (sender, receiver) = mpsc::channel(AHEAD);
        let rooted = rooted.clone();
        tokio::spawn(async move {
            if let Err(err) = pass_on(line, &sender).await {
                let err = err.about(&rooted);
                tracing::warn!(error = %err, "download interrupted");
                let _ = sender.send(Err(err)).await;
            }
        });
        Ok(Content { receiver })
    }

    /// Begins an upload, or finds it begun.
    pub async fn begin_upload(&self, user: &User, new: NewUpload) -> Result<Uploaded> {
        if self.config.max_upload_bytes < new.size_bytes {
            return Err(Error::TooLarge { size_bytes: new.size_bytes, limit_bytes: self.config.max_upload_bytes });
        }
        let fault = |field: &str, code: &str, message: &str| Error::Invalid(FieldError::new(field, code, message));
        let digits = |text: &String| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if new.sha256.as_ref().is_some_and(|hash| !digits(hash)) {
            return Err(fault("sha256", "malformed", "Must be 64 hexadecimal digits."));
        }
        let pool = self.pool(user).await?;
        let rooted = pool.rooted(&new.path)?;
        let (folder, name) = rooted.below.split();
        if !is_name(&name) {
            return Err(fault("path", "no_name", "Must end with the name of the file."));
        }
        let nonce = match &new.key {
            None => uuid::Uuid::new_v4().simple().to_string(),
            Some(key) => {
                let told = format!("{} {key} {} {}", user.id, rooted.path.encoded(), new.size_bytes);
                Sha256::digest(told)[..16].iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
            }
        };
        let folder = FileLocation { root: rooted.place.root, path: folder };
        let NewUpload { size_bytes, replace, sha256, executable, .. } = new;
        let upload = UploadId(Upload { folder, name, nonce, size_bytes, replace, sha256, executable });
        let offset = self.offset_of(&pool, &rooted, &FilesRequest::Begin { upload: upload.0.clone() }).await?;
        Ok(uploaded(&upload, &rooted, offset))
    }

    /// How much of an upload is there.
    pub async fn upload(&self, user: &User, id: &UploadId) -> Result<Uploaded> {
        let (pool, rooted) = self.of_upload(user, id).await?;
        let offset = self.offset_of(&pool, &rooted, &FilesRequest::Offset { upload: id.0.clone() }).await?;
        Ok(uploaded(id, &rooted, offset))
    }

    /// Adds what comes, from `offset` on. When the client breaks off, what came before stays.
    pub async fn write<E>(
        &self,
        user: &User,
        id: &UploadId,
        offset: u64,
        content: impl Stream<Item = Result<Bytes, E>> + Send,
    ) -> Result<Uploaded> {
        let (pool, rooted) = self.of_upload(user, id).await?;
        let mut line = self.line(&pool).await?;
        let request = FilesRequest::Write { upload: id.0.clone(), offset };
        match line.ask(&request).await.map_err(|err| err.about(&rooted))? {
            FilesAnswer::Content => {}
            other => return Err(unexpected(&other)),
        }
        let mut content = std::pin::pin!(content);
        loop {
            match timeout(CLIENT_TIMEOUT, content.next()).await {
                Ok(Some(Ok(piece))) if piece.is_empty() => {}
                Ok(Some(Ok(piece))) => line.send(piece).await.map_err(|err| err.about(&rooted))?,
                Ok(Some(Err(_))) | Err(_) => return Err(Error::BrokenOff),
                Ok(None) => break,
            }
        }
        line.send(Bytes::new()).await.map_err(|err| err.about(&rooted))?;
        match line.answer().await.map_err(|err| err.about(&rooted))? {
            FilesAnswer::Offset { offset } => {
                line.hang_up_well();
                Ok(uploaded(id, &rooted, offset))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Gives a complete upload its name.
    pub async fn finish_upload(&self, user: &User, id: &UploadId) -> Result<(RootedPath, Entry)> {
        let (pool, rooted) = self.of_upload(user, id).await?;
        let entry = self.entry(&pool, &rooted, FilesRequest::Finish { upload: id.0.clone() }).await?;
        Ok((rooted, entry))
    }

    /// Removes what there is of an upload.
    pub async fn cancel_upload(&self, user: &User, id: &UploadId) -> Result<()> {
        let (pool, rooted) = self.of_upload(user, id).await?;
        match self.once(&pool, &rooted, &FilesRequest::Cancel { upload: id.0.clone() }).await? {
            FilesAnswer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Where an upload is to lie. An id is what a client sends: it is placed anew.
    async fn of_upload(&self, user: &User, id: &UploadId) -> Result<(Arc<super::AgentPool>, RootedPath)> {
        let pool = self.pool(user).await?;
        // An id may have been made up: the limit holds for all of them.
        if self.config.max_upload_bytes < id.0.size_bytes {
            return Err(Error::TooLarge { size_bytes: id.0.size_bytes, limit_bytes: self.config.max_upload_bytes });
        }
        let gone = || Error::Fault { path: id.0.name.shown(), fault: Fault::NoUpload };
        let root = pool.roots.get(id.0.folder.root).ok_or_else(gone)?;
        let path = RawPath::from(root.path.as_path()).join(&id.0.folder.path).join(&id.0.name);
        let rooted = pool.rooted(&path)?;
        Ok((pool, rooted))
    }

    async fn offset_of(
        &self,
        pool: &Arc<super::AgentPool>,
        rooted: &RootedPath,
        request: &FilesRequest,
    ) -> Result<u64> {
        match self.once(pool, rooted, request).await? {
            FilesAnswer::Offset { offset } => Ok(offset),
            other => Err(unexpected(&other)),
        }
    }
}

fn uploaded(id: &UploadId, rooted: &RootedPath, offset_bytes: u64) -> Uploaded {
    Uploaded { id: id.text(), path: rooted.path.clone(), size_bytes: id.0.size_bytes, offset_bytes }
}

/// Passes chunks on as fast as they are taken.
async fn pass_on(mut line: AgentConnection, sender: &mpsc::Sender<Result<Bytes>>) -> Result<(), ConnectionError> {
    while let Some(chunk) = line.chunk().await? {
        match timeout(CLIENT_TIMEOUT, sender.send(Ok(chunk))).await {
            Ok(Ok(())) => {}
            // Nobody reads any more: the agent goes with the line.
            Ok(Err(_)) | Err(_) => return Ok(()),
        }
    }
    // The agent's word that it was all.
    line.answer().await?;
    line.hang_up_well();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload() -> Upload {
        Upload {
            folder: FileLocation { root: 0, path: "a/b".into() },
            name: RawPath(b"x\xff".to_vec()),
            nonce: "0123456789abcdef0123456789abcdef".to_owned(),
            size_bytes: 7,
            replace: false,
            sha256: None,
            executable: false,
        }
    }

    #[test]
    fn an_id_holds_everything() {
        let id = UploadId(upload());
        assert_eq!(UploadId::parse(&id.text()), Some(id));
    }

    #[test]
    fn what_is_no_id() {
        for text in ["", "x", "!!", "e30", &"A".repeat(20_000)] {
            assert_eq!(UploadId::parse(text), None, "{text:.20}");
        }
        let place = |path: &str| FileLocation { root: 0, path: path.into() };
        for bad in [
            Upload { name: "..".into(), ..upload() },
            Upload { name: "a/b".into(), ..upload() },
            Upload { name: "".into(), ..upload() },
            Upload { nonce: "../../../../../../../etc/passwdx".to_owned(), ..upload() },
            Upload { folder: place("../x"), ..upload() },
            Upload { folder: place("a/.."), ..upload() },
        ] {
            assert_eq!(UploadId::parse(&UploadId(bad.clone()).text()), None, "{bad:?}");
        }
    }
}
