//! Images made for tests: layers as tar archives with whatever entries a test wants, also such that no tool
//! would write, and the documents that describe them.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use flate2::{Compression, write::GzEncoder};
use lyceum_images::Digest;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A layer while it is written.
pub struct Layer(Builder<Vec<u8>>);

impl Layer {
    pub fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    /// Adds an entry with exactly these bytes as names, which may be invalid.
    pub fn entry(mut self, kind: EntryType, name: &[u8], link: &[u8], mode: u32, content: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        assert!(name.len() <= 100 && link.len() <= 100, "write a long name with `file`");
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link);
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(1_700_000_000);
        header.set_uid(4711);
        header.set_gid(4712);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    pub fn file(self, name: &str, content: &[u8]) -> Self {
        self.entry(EntryType::Regular, name.as_bytes(), b"", 0o644, content)
    }

    pub fn directory(self, name: &str) -> Self {
        self.entry(EntryType::Directory, name.as_bytes(), b"", 0o755, b"")
    }

    pub fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, name.as_bytes(), target.as_bytes(), 0o777, b"")
    }

    pub fn link(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Link, name.as_bytes(), target.as_bytes(), 0o644, b"")
    }

    /// Gives the writer, for what the methods above cannot write.
    pub fn with(mut self, write: impl FnOnce(&mut Builder<Vec<u8>>)) -> Self {
        write(&mut self.0);
        self
    }

    pub fn plain(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }

    pub fn gzip(self) -> Vec<u8> {
        gzip(&self.plain())
    }

    pub fn zstd(self) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(self.plain().as_slice(), ruzstd::encoding::CompressionLevel::Fastest)
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An image: the manifest and all blobs.
#[derive(Clone)]
pub struct Built {
    pub manifest: Vec<u8>,
    pub media_type: String,
    pub layers: Vec<Digest>,
    pub blobs: BTreeMap<Digest, Vec<u8>>,
}

impl Built {
    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    /// Writes an OCI layout with the image under `tag`.
    pub fn write_layout(&self, directory: &Path, tag: &str) {
        let blobs = directory.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        for (digest, bytes) in &self.blobs {
            fs::write(blobs.join(digest.hex()), bytes).unwrap();
        }
        fs::write(blobs.join(self.digest().hex()), &self.manifest).unwrap();
        fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        let mut entry = descriptor(OCI_MANIFEST, &self.manifest);
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]});
        fs::write(directory.join("index.json"), index.to_string()).unwrap();
    }
}

pub fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": Digest::of(bytes).to_string(), "size": bytes.len()})
}

/// Makes an image of layers for the platform of this machine, in OCI's form.
pub fn image(layers: &[Vec<u8>]) -> Built {
    image_with(layers, architecture(), &json!({"Entrypoint": ["/entry"], "Env": ["PATH=/bin"]}), &json!({}))
}

pub fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

pub fn image_with(layers: &[Vec<u8>], architecture: &str, config: &Value, annotations: &Value) -> Built {
    let layer_type = |bytes: &[u8]| match bytes {
        [0x1f, 0x8b, ..] => "application/vnd.oci.image.layer.v1.tar+gzip",
        [0x28, 0xb5, ..] => "application/vnd.oci.image.layer.v1.tar+zstd",
        _ => "application/vnd.oci.image.layer.v1.tar",
    };
    let mut found = BTreeMap::new();
    let diff_id = |bytes: &[u8]| {
        let mut plain = Vec::new();
        match bytes {
            [0x1f, 0x8b, ..] => {
                // What is cut off on purpose has some digest, too.
                let _ = std::io::copy(&mut flate2::read::MultiGzDecoder::new(bytes).take_some(), &mut plain);
            }
            _ => plain = bytes.to_vec(),
        }
        Digest::of(&plain).to_string()
    };
    let config = json!({"architecture": architecture, "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|layer| diff_id(layer)).collect::<Vec<_>>()}});
    let config = config.to_string().into_bytes();
    let described: Vec<Value> = layers.iter().map(|layer| descriptor(layer_type(layer), layer)).collect();
    let manifest = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "annotations": annotations,
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config), "layers": described});
    for layer in layers {
        found.insert(Digest::of(layer), layer.clone());
    }
    found.insert(Digest::of(&config), config);
    Built {
        manifest: manifest.to_string().into_bytes(),
        media_type: OCI_MANIFEST.to_owned(),
        layers: layers.iter().map(|layer| Digest::of(layer)).collect(),
        blobs: found,
    }
}

trait TakeSome: std::io::Read + Sized {
    /// Bombs are not decompressed for their digest.
    fn take_some(self) -> std::io::Take<Self> {
        self.take(256 << 20)
    }
}

impl<R: std::io::Read> TakeSome for R {}

/// Bytes that do not compress, the same for the same seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// One line for each name below a directory: type, mode, number of names, time, and content or target.
pub fn listing(root: &Path) -> BTreeMap<String, String> {
    let mut lines = BTreeMap::new();
    for entry in walkdir::WalkDir::new(root).min_depth(1) {
        let entry = entry.unwrap();
        let found = entry.path().symlink_metadata().unwrap();
        let kind = found.file_type();
        let what = if kind.is_symlink() {
            format!("link {}", fs::read_link(entry.path()).unwrap().display())
        } else if kind.is_dir() {
            format!("directory {:o} {}", found.permissions().mode() & 0o7777, found.mtime())
        } else {
            let content = Digest::of(&fs::read(entry.path()).unwrap()).hex();
            let mode = found.permissions().mode() & 0o7777;
            format!("file {mode:o} {} names {} {}", found.nlink(), found.mtime(), &content[..12])
        };
        lines.insert(entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned(), what);
    }
    lines
}
