//! Pulls one image into a folder and shows what it took, for a look at a registry and for comparisons:
//! `cargo run --release -p lyceum-images --example pull -- 127.0.0.1:5000/some/image:1 /tmp/store`.

use std::{
    io::{Write, stderr},
    time::Instant,
};

use lyceum_images::{PullRequest, Settings, State, Store};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [reference, folder] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_words| "usage: pull REFERENCE FOLDER")?;
    let store = Store::open(folder, Settings::default())?;
    let began = Instant::now();
    let pull = store.pull(PullRequest::new(reference.parse()?));
    let mut progress = pull.progress();
    let is_unpacking = |state: &State| !matches!(state, State::Missing | State::Pulling);
    progress.wait_for(|progress| is_unpacking(&progress.state)).await?;
    let downloaded = began.elapsed();
    let image = pull.wait().await?;
    let (all, bytes) = (began.elapsed(), image.download_bytes);
    writeln!(
        stderr(),
        "{} at {}: {bytes} bytes downloaded in {:.2} s, unpacked to {} bytes in {:.2} s",
        image.digest,
        image.root().display(),
        downloaded.as_secs_f64(),
        image.bytes,
        all.saturating_sub(downloaded).as_secs_f64()
    )?;
    Ok(())
}
