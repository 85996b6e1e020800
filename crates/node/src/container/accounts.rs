//! The files `passwd` and `group` of a container: the user and the user's groups under the numbers
//! that they have on the host, and behind them what the image knows. All of it is pure.

use std::path::Path;

/// Describes the account that a container runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// Names and numbers of the groups, the primary one first.
    pub groups: Vec<(String, u32)>,
}

/// Returns the text of `passwd`.
pub fn passwd(account: &Account, home: &Path, shell: &str, image: &str) -> String {
    let Account { name, uid, gid, .. } = account;
    let own = format!("{name}:x:{uid}:{gid}::{}:{shell}\n", home.display());
    let others = lines(image, 7).filter(|fields| fields[0] != name && fields[2] != uid.to_string());
    let mut text = own + &others.map(|fields| fields.join(":") + "\n").collect::<String>();
    for (known, line) in [("0", "root:x:0:0:root:/root:/bin/sh"), ("65534", "nobody:x:65534:65534::/:/bin/false")] {
        if !lines(&text, 7).any(|fields| fields[2] == known) {
            text += line;
            text.push('\n');
        }
    }
    text
}

/// Returns the text of `group`.
pub fn group(account: &Account, image: &str) -> String {
    let own = account.groups.iter().map(|(name, gid)| format!("{name}:x:{gid}:{}\n", account.name));
    let is_own =
        |fields: &[&str]| account.groups.iter().any(|(name, gid)| fields[0] == name || fields[2] == gid.to_string());
    let others = lines(image, 4).filter(|fields| !is_own(fields)).map(|fields| fields.join(":") + "\n");
    let mut text: String = own.chain(others).collect();
    for (known, line) in [("0", "root:x:0:"), ("65534", "nogroup:x:65534:")] {
        if !lines(&text, 4).any(|fields| fields[2] == known) {
            text += line;
            text.push('\n');
        }
    }
    text
}

/// The lines that have this many fields.
fn lines(text: &str, fields: usize) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter(move |line| line.len() == fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ada() -> Account {
        let groups = vec![("ada".to_owned(), 1000), ("vision".to_owned(), 7000)];
        Account { name: "ada".to_owned(), uid: 1000, gid: 1000, groups }
    }

    #[test]
    fn the_user_comes_first_and_hides_the_images_own() {
        let image = "root:x:0:0:root:/root:/bin/bash\nubuntu:x:1000:1000::/home/ubuntu:/bin/bash\nada:x:5:5::/:/bin/sh\nwww-data:x:33:33::/var/www:/bin/false\nbroken\n";
        assert_eq!(
            passwd(&ada(), Path::new("/home/ada"), "/bin/bash", image),
            "ada:x:1000:1000::/home/ada:/bin/bash\nroot:x:0:0:root:/root:/bin/bash\nwww-data:x:33:33::/var/www:/bin/false\nnobody:x:65534:65534::/:/bin/false\n"
        );
        let image = "root:x:0:\nubuntu:x:1000:\nvision:x:44:\nvideo:x:45:ubuntu\nnogroup:x:65534:\n";
        assert_eq!(
            group(&ada(), image),
            "ada:x:1000:ada\nvision:x:7000:ada\nroot:x:0:\nvideo:x:45:ubuntu\nnogroup:x:65534:\n"
        );
    }

    #[test]
    fn an_empty_image_has_root_and_nobody() {
        let text = passwd(&ada(), Path::new("/home/ada"), "/bin/sh", "");
        assert_eq!(text.lines().count(), 3);
        assert!(text.contains("root:x:0:0:") && text.contains("nobody:x:65534:"), "{text}");
        assert!(group(&ada(), "").ends_with("root:x:0:\nnogroup:x:65534:\n"));
    }
}
