//! Every page is drawn with realistic and with hostile words: the markup must be well-formed
//! and inert, and hold nothing that the content policy forbids. The pages are also written
//! below the build directory (`gallery/`), for a browser to look at them.

mod announcements;
mod audit;
mod cluster;
mod datasets;
mod diagnostics;
mod environments;
mod files;
mod gallery;
mod images;
mod jobs;
mod machines;
pub mod markup;
mod model_answers;
mod models;
mod offboard;
mod people;
mod profiles;
mod queue;
mod quotas;
mod runs;
mod session_form;
mod session_list;
mod sessions;
mod sweeps;
mod told;
mod usage;
mod webhooks;

use std::{cell::Cell, fs, path::Path};

use lyceum::web::views::{ColumnLabel, ListFrame, ShownColumns, SortChoice, SortHead, SortHeads};

/// What stands around the rows of a list: sorted by the first of its columns, all of which are shown.
pub fn frame(list: &'static str, sorted: &[&'static str], columns: &[(&'static str, &'static str)]) -> ListFrame {
    let heads = sorted.iter().enumerate().map(|(at, name)| SortHead {
        name,
        href: format!("/{list}?sort={name}"),
        way: (at == 0).then_some("ascending"),
    });
    let columns = columns.iter().map(|(name, label)| ColumnLabel { name, label, is_shown: true });
    ListFrame {
        heads: SortHeads(heads.collect()),
        orders: vec![SortChoice { value: "name".to_owned(), words: "Name, A to Z".to_owned(), is_chosen: true }],
        columns: ShownColumns { list, columns: columns.collect() },
        here: format!("/{list}"),
        first_href: None,
        next_href: Some(format!("/{list}?cursor=x")),
        notice: None,
        is_without_choice: false,
        error: None,
    }
}

/// Words that try to become markup, to break a layout or to mislead a reader.
pub const HOSTILE: [&str; 9] = [
    "<img src=x onerror=alert(1)>",
    "\"><script>alert(1)</script>",
    "' onmouseover='alert(1)' x='",
    "</title></textarea></style></script><svg onload=alert(1)>",
    "{{7*7}}${7*7}<%= 7*7 %>",
    "\u{202e}gnp.exe\u{2066} عنوان طويل باللغة العربية",
    "👩‍🔬🔥 𝕬𝖑𝖎𝖈𝖊 Z̸̢͎a̴͉l̵g̶o",
    "&lt;b&gt;&#x3C;script&#x3E;&amp;",
    "javascript:alert(1)//\u{0}\u{1b}[31m\r\nSet-Cookie: a=b",
];

#[test]
fn realistic_pages_are_well_formed() {
    let pages = gallery::pages(&str::to_owned);
    for (name, html) in &pages {
        markup::check(html).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    }
    write_out("real", &pages);
}

#[test]
fn xss_corpus() {
    let turn = Cell::new(0);
    let word = move |_: &str| {
        turn.set(turn.get() + 1);
        HOSTILE[turn.get() % HOSTILE.len()].to_owned()
    };
    let mut all = Vec::new();
    // Each round begins with another word, so that each field meets each of them.
    for _ in HOSTILE {
        all = gallery::pages(&word);
        all.push(("card", gallery::card(&word)));
        word("");
        for (name, html) in &all {
            markup::check(html).unwrap_or_else(|fault| panic!("{name}: {fault}"));
            // Pictures of our own have addresses that nobody typed.
            let own = [
                "<img src=\"data:image/png;",
                "<img src=\"/files/picture?",
                "<img class=\"maps\" src=\"/api/v1/models/",
            ];
            let typed = own.iter().fold(html.clone(), |html, address| html.replace(address, ""));
            assert!(!html.contains("<script>") && !typed.contains("<img"), "{name}");
        }
    }
    write_out("hostile", &all);
}

#[test]
fn long_names_are_drawn_whole() {
    let long = |word: &str| if word.contains(' ') { word.to_owned() } else { "W".repeat(300) };
    let pages = gallery::pages(&long);
    for (name, html) in &pages {
        markup::check(html).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    }
    write_out("long", &pages);
}

#[test]
fn the_check_of_markup_can_fail() {
    for (fault, html) in [
        ("unknown element", "<p><img src=\"x\"></p>"),
        ("inline script", "<script>1</script>"),
        ("style attribute", "<p style=\"color: red\">x</p>"),
        ("event attribute", "<p onclick=\"x\">x</p>"),
        ("not closed", "<div><p>x</p>"),
        ("closed out of turn", "<p><b>x</p></b>"),
        ("script address", "<a href=\"javascript:x\">x</a>"),
        ("id twice", "<p id=\"a\">x</p><p id=\"a\">x</p>"),
        ("unquoted", "<p class=x>x</p>"),
    ] {
        assert!(markup::check(html).is_err(), "{fault}");
    }
}

#[test]
fn static_files_have_types_and_lasting_addresses() {
    use lyceum::web::page::{asset, static_file};
    let sheet = static_file("app.css").unwrap();
    assert_eq!(asset("app.css"), format!("/static/app.css?v={}", sheet.hash));
    assert_eq!(sheet.content_type, "text/css; charset=utf-8");
    assert_eq!(static_file("vendor/xterm.mjs").unwrap().content_type, "text/javascript; charset=utf-8");
    for path in ["", "nope.css", "../Cargo.toml", "/etc/passwd", "vendor/../../Cargo.toml", "vendor"] {
        assert!(static_file(path).is_none(), "{path}");
    }
}

#[test]
fn vendored_files_are_what_their_list_says() {
    let list = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("static/vendor/README.md")).unwrap();
    for name in ["xterm.mjs", "xterm.css", "addon-fit.mjs"] {
        // The hash of an address is the beginning of the whole one.
        let hash = lyceum::web::page::static_file(&format!("vendor/{name}")).unwrap().hash;
        let row = list.lines().find(|line| line.starts_with(&format!("| `{name}`"))).unwrap();
        assert!(row.contains(&format!("`{hash}")), "{name} has the hash {hash}…");
    }
}

fn write_out(kind: &str, pages: &[(&str, String)]) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gallery").join(kind);
    fs::create_dir_all(&folder).unwrap();
    for (name, html) in pages {
        fs::write(folder.join(format!("{name}.html")), html).unwrap();
    }
}
