//! Sets of a few images, published by a server of this test: downloaded, interrupted, resumed,
//! refused, and found on the machine.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
};

use flate2::{Compression, write::GzEncoder};

use super::*;
use crate::{
    catalogue::{Pictures, Split},
    readers::numbered,
};

/// What a server answers to a path and the first byte that is asked for.
type Answers = Box<dyn Fn(&str, usize) -> Answer + Send>;

enum Answer {
    /// The file from the byte on, cut after so many bytes.
    File(Vec<u8>, usize),
    Status(&'static str),
    Page,
}

/// A web server of one thread. Returns its address and the requests as it sees them.
fn serve(answers: Answers) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(first)) = lines.next() else { continue };
            let path = first.split(' ').nth(1).unwrap().to_owned();
            let mut from = 0;
            for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
                if let Some(range) = line.to_lowercase().strip_prefix("range: bytes=") {
                    from = range.trim_end_matches('-').parse().unwrap();
                }
            }
            log.lock().unwrap().push(format!("{path} {from}"));
            let (head, body) = match answers(&path, from) {
                Answer::Status(status) => (format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n"), Vec::new()),
                Answer::Page => {
                    ("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n".to_owned(), b"<p/>".to_vec())
                }
                Answer::File(file, cut) => {
                    let (rest, whole) = (file[from..].to_vec(), file.len());
                    let status = if from > 0 {
                        format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{whole}", whole - 1)
                    } else {
                        "200 OK".to_owned()
                    };
                    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", rest.len());
                    (head, rest[..cut.min(rest.len())].to_vec())
                }
            };
            // A client that has seen enough may have gone.
            let _ = stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes());
            let _ = stream.write_all(&body);
        }
    });
    (address, seen)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Images of 2 × 2 pixels whose first byte is their number, and their labels.
fn idx_pair(count: u8, first: u8) -> [Vec<u8>; 2] {
    let head = |kind: u8, sizes: &[u32]| {
        let mut head = vec![0, 0, 8, kind];
        head.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
        head
    };
    let mut images = head(3, &[count.into(), 2, 2]);
    images.extend((first..first + count).flat_map(|number| [number, 1, 2, 3]));
    let mut labels = head(1, &[count.into()]);
    labels.extend((0..count).map(|number| number % 2));
    [images, labels]
}

/// The four files of a set, unpacked.
fn contents() -> Vec<Vec<u8>> {
    [idx_pair(6, 10), idx_pair(4, 50)].concat()
}

/// A set of these files. `sums` has the checksums of the packed and of the unpacked ones.
fn published<'a>(sums: &'a [(String, String)]) -> Publication<'a> {
    let names = StandardSet::Mnist.publication().files.into_iter().map(|file| file.name);
    let file = |(name, (sha256, unpacked)): (&'static str, &'a (String, String))| File {
        name,
        bytes: 100,
        sha256,
        unpacked: Some(unpacked),
    };
    Publication {
        name: "tiny",
        title: "Tiny",
        side: 2,
        training: 6,
        test: 4,
        classes: vec![("even", 5), ("odd", 5)],
        files: names.zip(sums).map(file).collect(),
        addresses: Vec::new(),
        ..StandardSet::Mnist.publication()
    }
}

fn sums(files: &[Vec<u8>]) -> Vec<(String, String)> {
    files.iter().map(|file| (sha256(&gzip(file)), sha256(file))).collect()
}

fn obtain(
    set: &Publication<'_>,
    directory: Option<&Path>,
    mirror: &str,
    work: &Path,
) -> (Result<Vec<PathBuf>, Error>, Vec<Progress>) {
    let (stop, mut told) = (AtomicBool::new(false), Vec::new());
    let found = Places::new(set, directory, Some(mirror), Some(work))
        .obtain(&stop, &mut |progress| told.push(progress.clone()));
    (found, told)
}

#[test]
fn a_set_is_downloaded_over_lost_connections_and_becomes_a_catalogue() {
    let work = tempfile::tempdir().unwrap();
    let files = contents();
    let (sums, packed) = (sums(&files), files.iter().map(|file| gzip(file)).collect::<Vec<_>>());
    let names: Vec<&str> = published(&sums).files.iter().map(|file| file.name).collect();
    let by_name: Vec<(String, Vec<u8>)> = names.iter().map(ToString::to_string).zip(packed.clone()).collect();
    let (address, seen) = serve(Box::new(move |path, from| {
        let content = &by_name.iter().find(|(name, _)| path == format!("/sets/tiny/{name}")).unwrap().1;
        // Each answer to the first half ends early.
        Answer::File(content.clone(), if from == 0 { content.len() / 2 } else { usize::MAX })
    }));
    let set = published(&sums);
    let (paths, told) = obtain(&set, None, &format!("{address}/sets/"), work.path());
    let paths = paths.unwrap();
    assert!(paths.iter().all(|path| path.starts_with(work.path().join("downloads"))));
    let seen = seen.lock().unwrap().clone();
    let half = packed[0].len() / 2;
    assert_eq!(seen[..2], [format!("/sets/tiny/{} 0", names[0]), format!("/sets/tiny/{} {half}", names[0])]);
    assert_eq!(seen.len(), 8, "{seen:?}");
    assert!(told[0].to_string().starts_with("downloaded 0 of 1 MB"), "{}", told[0]);
    assert_eq!(fs::read_dir(work.path().join("downloads")).unwrap().count(), 4, "no partial file stays");

    let catalogue = numbered::published(&set, &paths, Some(work.path())).unwrap();
    assert_eq!(catalogue.classes, ["even", "odd"]);
    let test: Vec<_> = catalogue.items.iter().filter(|item| item.split == Some(Split::Test)).collect();
    assert_eq!((catalogue.items.len(), test.len()), (10, 4));
    assert_eq!((test[1].label, catalogue.items.iter().filter(|item| item.split.is_none()).count()), (Some(1), 6));
    let Pictures::Idx(idx) = &catalogue.pictures else { panic!("numbered") };
    assert_eq!(idx.read(test[1].number).unwrap().data, [51, 1, 2, 3]);
}

#[test]
fn a_download_goes_on_where_an_earlier_process_ended() {
    let work = tempfile::tempdir().unwrap();
    let files = contents();
    let (sums, packed) = (sums(&files), files.iter().map(|file| gzip(file)).collect::<Vec<_>>());
    let downloads = work.path().join("downloads");
    fs::create_dir(&downloads).unwrap();
    let set = published(&sums);
    // The second was written by somebody else: it is begun again.
    fs::write(downloads.join(format!("{}.part", set.files[0].name)), &packed[0][..20]).unwrap();
    fs::write(downloads.join(format!("{}.part", set.files[1].name)), [7; 20]).unwrap();
    let served = packed.clone();
    let names: Vec<String> = set.files.iter().map(|file| file.name.to_owned()).collect();
    let (address, seen) = serve(Box::new(move |path, _| {
        let at = names.iter().position(|name| path.ends_with(name)).unwrap();
        Answer::File(served[at].clone(), usize::MAX)
    }));
    let (paths, _) = obtain(&set, None, &address, work.path());
    for (path, content) in paths.unwrap().iter().zip(&packed) {
        assert_eq!(&fs::read(path).unwrap(), content);
    }
    let first: Vec<String> =
        seen.lock().unwrap().iter().take(3).map(|line| line.rsplit('/').next().unwrap().to_owned()).collect();
    let [images, labels] = [set.files[0].name, set.files[1].name];
    assert_eq!(first, [format!("{images} 20"), format!("{labels} 20"), format!("{labels} 0")]);
}

#[test]
fn what_is_not_the_published_file_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let files = contents();
    let packed = gzip(&files[0]);
    let wrong = vec![("0".repeat(64), "1".repeat(64)); 4];
    let set = published(&wrong);
    let served = packed.clone();
    let (address, _) = serve(Box::new(move |_, _| Answer::File(served.clone(), usize::MAX)));
    let said = obtain(&set, None, &address, work.path()).0.unwrap_err().to_string();
    let expected = format!("its SHA-256 is {}, but that of the published file is {}", sha256(&packed), "0".repeat(64));
    assert!(said.contains(&expected), "{said}");
    assert!(said.contains(&format!("{address}/tiny/train-images-idx3-ubyte.gz")), "{said}");
    assert!(said.contains("datasets.mirror") && said.contains("`directory`"), "it says what to do: {said}");
    assert!(Places::new(&set, None, None, Some(work.path())).paths().is_none(), "and nothing of it is used");

    for (answer, words) in [("404 Not Found", "the server answers 404"), ("page", "a web page instead")] {
        let (address, _) =
            serve(Box::new(move |_, _| if answer == "page" { Answer::Page } else { Answer::Status(answer) }));
        let said = obtain(&set, None, &address, work.path()).0.unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
    let closed = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap().local_addr().unwrap();
    let said = obtain(&set, None, &format!("http://{closed}"), work.path()).0.unwrap_err().to_string();
    assert!(said.contains("refused") && said.contains("cannot be downloaded"), "{said}");
}

#[test]
fn files_on_the_machine_go_before_a_download_and_are_compared_too() {
    let (work, site) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = contents();
    let sums = sums(&files);
    let set = published(&sums);
    let folder = site.path().join("tiny");
    fs::create_dir(&folder).unwrap();
    // Unpacked, packed in another way, and in the folder itself.
    fs::write(folder.join("train-images-idx3-ubyte"), &files[0]).unwrap();
    let mut other = GzEncoder::new(Vec::new(), Compression::best());
    other.write_all(&files[1]).unwrap();
    fs::write(folder.join(set.files[1].name), other.finish().unwrap()).unwrap();
    fs::write(site.path().join(set.files[2].name), gzip(&files[2])).unwrap();
    fs::write(site.path().join(set.files[3].name), gzip(&files[3])).unwrap();
    let places = Places::new(&set, Some(site.path()), None, None);
    assert_eq!(places.sentence(), format!("found in {}", folder.display()));
    let paths = obtain(&set, Some(site.path()), "http://127.0.0.1:9", work.path()).0.unwrap();
    assert_eq!(numbered::published(&set, &paths, Some(work.path())).unwrap().items.len(), 10);

    fs::write(folder.join("train-images-idx3-ubyte"), b"something else").unwrap();
    let said = obtain(&set, Some(site.path()), "http://127.0.0.1:9", work.path()).0.unwrap_err().to_string();
    assert!(said.contains("train-images-idx3-ubyte: its SHA-256 is") && said.contains("Replace the file"), "{said}");
}

#[test]
fn the_planes_of_cifar_become_pixels() {
    let work = tempfile::tempdir().unwrap();
    let record = |label: u8, tone: u8| {
        let plane = |add: u8| (0..1024_u32).map(move |at| tone.wrapping_add(add).wrapping_add((at % 7) as u8));
        [label].into_iter().chain(plane(0)).chain(plane(100)).chain(plane(200)).collect::<Vec<u8>>()
    };
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    // In an order of its own, as the published archive.
    for (name, content) in [
        ("test_batch.bin", record(9, 1)),
        ("batches.meta.txt", b"airplane\n".to_vec()),
        ("data_batch_2.bin", record(3, 2)),
        ("data_batch_1.bin", [record(0, 3), record(1, 4)].concat()),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("cifar-10-batches-bin/{name}"), content.as_slice()).unwrap();
    }
    let archive = tar.into_inner().unwrap().finish().unwrap();
    let sum = sha256(&archive);
    let name = "cifar-10-binary.tar.gz";
    let set = Publication {
        name: "tiny",
        files: vec![File { name, bytes: archive.len() as u64, sha256: &sum, unpacked: None }],
        ..StandardSet::Cifar10.publication()
    };
    let (address, _) = serve(Box::new(move |_, _| Answer::File(archive.clone(), usize::MAX)));
    let paths = obtain(&set, None, &address, work.path()).0.unwrap();
    let catalogue = numbered::published(&set, &paths, Some(work.path())).unwrap();
    let found: Vec<_> =
        catalogue.items.iter().map(|item| (item.path.as_str(), item.label.unwrap(), item.split)).collect();
    let expected = [
        ("data_batch_1-00000", 0, None),
        ("data_batch_1-00001", 1, None),
        ("data_batch_2-00000", 3, None),
        ("test_batch-00000", 9, Some(Split::Test)),
    ];
    assert_eq!(found, expected);
    assert_eq!(catalogue.classes[9], "truck");
    let Pictures::Idx(idx) = &catalogue.pictures else { panic!("numbered") };
    let picture = idx.read(catalogue.items[1].number).unwrap();
    assert_eq!((picture.width, picture.height, picture.channels), (32, 32, 3));
    assert_eq!(picture.data[..6], [4, 104, 204, 5, 105, 205], "red, green and blue of each pixel");
}

#[test]
fn a_specification_of_a_set_needs_nothing_but_its_name() {
    let read = |text: &str| {
        let mut spec: Map<String, Value> = serde_json::from_str(text).unwrap();
        complete(&mut spec);
        spec
    };
    let spec = read(r#"{"source":{"kind":"standard","set":"cifar-10"},"output":"/o","width":64}"#);
    let spec: Spec = serde_json::from_value(Value::Object(spec)).unwrap();
    assert_eq!(spec.faults(), Vec::<String>::new());
    assert_eq!((spec.width, spec.height, spec.channels, spec.validation_percent), (64, 32, 3, 10));
    let other = read(r#"{"source":{"kind":"folder","path":"/p"}}"#);
    assert_eq!(other.len(), 1, "other sources have no such usual values");
    let spec =
        read(r#"{"source":{"kind":"standard","set":"mnist","mirror":"ftp://x"},"output":"/o","test_percent":5}"#);
    let spec: Spec = serde_json::from_value(Value::Object(spec)).unwrap();
    let fields: Vec<String> = spec.faults().iter().map(|fault| fault.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(fields, ["test_percent", "source.mirror"]);
    for set in StandardSet::ALL {
        let published = set.publication();
        let images: u64 = published.classes.iter().map(|(_, count)| count).sum();
        assert_eq!(images, published.training + published.test);
        assert!(published.files.iter().all(|file| file.sha256.len() == 64));
        assert_eq!(published.name.parse(), Ok(set));
    }
}
