//! What every page shares: the frame around it, the embedded files of `static/` with a hash
//! in their address, and the few filters that templates use. A page is an askama struct of
//! `views` with a `layout: Layout`; a handler fills it and answers with `Page(view)`.
//! Nothing here reads a database or decides a status code.

use std::{borrow::Cow, fmt};

use askama::{Template, filters::HtmlSafe};
use axum::response::{Html, IntoResponse, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

use super::views::{AnnouncementLine, Moment};
use crate::model::Role;

/// The frame around a page. One is made per request; only `nav` differs between pages.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// The entry of the navigation that is marked as the current one.
    pub nav: Nav,
    /// Who is signed in; `None` draws the page without navigation, in one narrow column.
    pub viewer: Option<Viewer>,
    /// Goes into every form as `csrf_token`.
    pub csrf_token: String,
    pub theme: Theme,
    /// When the reader's account expires, if that is soon.
    pub expires: Option<Moment>,
    /// Shown on top of every page, sign-in included.
    pub announcements: Vec<AnnouncementLine>,
    /// True on a listener off loopback without TLS (`insecure_http`): a line says so.
    pub insecure_http: bool,
    /// Put before every link to the portal: empty on the main listener, and the portal's
    /// origin (`https://portal.example.org`) for pages that the apps' origin serves.
    pub portal: String,
    /// Who else keeps people to limits, for the pages about those.
    pub note_on_quotas: Option<&'static str>,
    /// Whether the cluster has a queue of its own, which has a page.
    pub has_queue: bool,
    /// Whether there are images that the reader may use, or add.
    pub has_images: bool,
}

impl Layout {
    /// The same frame with another entry marked.
    #[must_use]
    pub fn at(mut self, nav: Nav) -> Self {
        self.nav = nav;
        self
    }

    /// Whether it shows what its reader should know of their sessions, and follows
    /// announcements: signed in, and on the portal's own origin.
    pub fn has_notices(&self) -> bool {
        self.viewer.is_some() && self.portal.is_empty()
    }

    pub fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// Returns the pages of administration that the viewer may open, with their labels.
    pub fn administration(&self) -> &'static [(&'static str, &'static str)] {
        if self.is_admin() { &ADMINISTRATION_PAGES } else { &ADMINISTRATION_PAGES[..OPERATORS_PAGES] }
    }

    /// Returns the groups of the navigation with their entries, in their order.
    pub fn navigation(&self) -> impl Iterator<Item = (&'static str, Vec<&'static Entry>)> {
        let managing = match &self.viewer {
            Some(viewer) if viewer.sees_everything() => Some(&ADMINISTRATION),
            Some(viewer) if viewer.manages_groups => Some(&GROUPS),
            _ => None,
        };
        let is_shown = |entry: &&Entry| match entry.nav {
            Nav::Queue => self.has_queue,
            Nav::Images => self.has_images,
            _ => true,
        };
        NAVIGATION.iter().map(move |(title, entries)| {
            let own = managing.filter(|_| *title == ACCOUNT);
            (*title, entries.iter().filter(is_shown).chain(own).collect())
        })
    }

    /// Whether the reader sees other people's things.
    pub fn sees_everything(&self) -> bool {
        self.viewer.as_ref().is_some_and(Viewer::sees_everything)
    }

    /// Whether the reader is an administrator.
    pub fn is_admin(&self) -> bool {
        self.viewer.as_ref().is_some_and(|viewer| viewer.role == Role::Admin)
    }
}

/// A place in the navigation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nav {
    /// Pages that no entry stands for.
    #[default]
    None,
    Home,
    Sessions,
    Jobs,
    Sweeps,
    Datasets,
    Runs,
    Models,
    Cluster,
    Queue,
    Images,
    Usage,
    Files,
    Settings,
    ApiDocs,
    Administration,
}

/// One line of the navigation.
#[derive(Debug)]
pub struct Entry {
    pub nav: Nav,
    pub href: &'static str,
    pub label: &'static str,
    pub icon: &'static str,
}

const ACCOUNT: &str = "Account";

const NAVIGATION: [(&str, &[Entry]); 4] = [
    (
        "Work",
        &[
            Entry { nav: Nav::Home, href: "/", label: "Home", icon: "home" },
            Entry { nav: Nav::Sessions, href: "/sessions", label: "Sessions", icon: "notebook" },
            Entry { nav: Nav::Jobs, href: "/jobs", label: "Jobs", icon: "job" },
            Entry { nav: Nav::Sweeps, href: "/sweeps", label: "Sweeps", icon: "sliders" },
            Entry { nav: Nav::Files, href: "/files", label: "Files", icon: "folder" },
        ],
    ),
    (
        "Machine learning",
        &[
            Entry { nav: Nav::Datasets, href: "/datasets", label: "Datasets", icon: "image" },
            Entry { nav: Nav::Runs, href: "/runs", label: "Runs", icon: "curve" },
            Entry { nav: Nav::Models, href: "/models", label: "Models", icon: "model" },
        ],
    ),
    (
        "Cluster",
        &[
            Entry { nav: Nav::Cluster, href: "/cluster", label: "Nodes and GPUs", icon: "chip" },
            Entry { nav: Nav::Queue, href: "/queue", label: "Queue", icon: "list" },
            Entry { nav: Nav::Images, href: "/images", label: "Images", icon: "app" },
            Entry { nav: Nav::Usage, href: "/usage", label: "Usage", icon: "chart" },
        ],
    ),
    (
        ACCOUNT,
        &[
            Entry { nav: Nav::Settings, href: "/settings", label: "Settings", icon: "settings" },
            Entry { nav: Nav::ApiDocs, href: "/docs/api", label: "API", icon: "code" },
        ],
    ),
];

/// For whoever sees everything.
const ADMINISTRATION: Entry = Entry { nav: Nav::Administration, href: "/admin/users", label: "Admin", icon: "people" };

/// The pages of administration, below `/admin/`, with their labels. The first are for operators too.
const ADMINISTRATION_PAGES: [(&str, &str); 10] = [
    ("users", "Users"),
    ("groups", "Groups"),
    ("quotas", "Quotas"),
    ("profiles", "Profiles"),
    ("environments", "Environments"),
    ("audit", "Audit log"),
    ("announcements", "Announcements"),
    ("maintenance", "Maintenance"),
    ("webhooks", "Webhooks"),
    ("health", "Health"),
];
const OPERATORS_PAGES: usize = 3;

/// For whoever manages a group and sees nothing else of others.
const GROUPS: Entry = Entry { nav: Nav::Administration, href: "/admin/groups", label: "Groups", icon: "people" };

/// Who looks at the page.
#[derive(Clone, Debug)]
pub struct Viewer {
    pub name: String,
    pub display_name: String,
    pub role: Role,
    /// Whether they manage a group.
    pub manages_groups: bool,
}

impl Viewer {
    fn sees_everything(&self) -> bool {
        Role::Operator <= self.role
    }

    /// What to call them: the display name, or the name where there is none.
    pub fn called(&self) -> &str {
        if self.display_name.trim().is_empty() { &self.name } else { &self.display_name }
    }
}

/// Light, dark, or whatever the system has. Posted as `theme` to `/settings/theme`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    pub const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// Anything unknown is the system's theme: a cookie may hold what it likes.
    pub fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|theme| theme.as_str() == text).unwrap_or_default()
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::System => "System",
            Self::Light => "Light",
            Self::Dark => "Dark",
        }
    }
}

/// How much an announcement or a notice matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    #[default]
    Info,
    Good,
    Warning,
    Bad,
}

impl Level {
    /// The class in the stylesheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Good => "good",
            Self::Warning => "warn",
            Self::Bad => "bad",
        }
    }

    pub fn icon(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Good => "check",
            Self::Warning | Self::Bad => "alert",
        }
    }
}

#[derive(RustEmbed)]
#[folder = "static/"]
struct Static;

/// A file of `static/`, ready to be sent.
#[derive(Debug)]
pub struct StaticFile {
    pub bytes: Cow<'static, [u8]>,
    pub content_type: &'static str,
    /// Equals `?v=` of its current address: then it may be kept for ever; otherwise (modules
    /// import one another without it) send it as `ETag` with `Cache-Control: no-cache`.
    pub hash: String,
}

/// The file at `path` below `/static/` (`app.css`, `vendor/xterm.mjs`), if there is one.
pub fn static_file(path: &str) -> Option<StaticFile> {
    let file = Static::get(path)?;
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let content_type = match extension {
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "woff2" => "font/woff2",
        _ => "text/plain; charset=utf-8",
    };
    Some(StaticFile { hash: hash(&file), bytes: file.data, content_type })
}

/// The address of a file of `static/`: `asset("app.css")` is `/static/app.css?v=4f1c…`.
pub fn asset(path: &str) -> String {
    match Static::get(path) {
        Some(file) => format!("/static/{path}?v={}", hash(&file)),
        None => format!("/static/{path}"),
    }
}

fn hash(file: &EmbeddedFile) -> String {
    hex::encode(&file.metadata.sha256_hash()[..8])
}

/// A drawing of the sprite, for the eye only: a word stands beside it.
#[derive(Clone, Copy, Debug)]
pub struct Icon<'a>(pub &'a str);

impl fmt::Display for Icon<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names come from our own code; whatever else they held would be dropped here.
        let name: String = self.0.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let sprite = asset("icons.svg");
        write!(f, r#"<svg class="icon" aria-hidden="true" focusable="false"><use href="{sprite}#{name}"/></svg>"#)
    }
}

/// It writes its own markup, of characters it has checked.
impl HtmlSafe for Icon<'_> {}

/// The filters of the templates: `{{ size|bytes }}`, `{{ "stop"|icon }}`, `{{ "app.js"|asset }}`.
#[expect(clippy::inline_always, reason = "written by the attribute macro of askama")]
pub mod filters {
    use std::convert::Infallible;

    use super::Icon;
    use crate::model::{
        size::human_size,
        time::{human_duration, human_hours},
    };

    /// Bytes as people write them: `1.5 GiB`.
    #[askama::filter_fn]
    pub fn bytes(bytes: &i64, _: &dyn askama::Values) -> Result<String, Infallible> {
        Ok(human_size(*bytes))
    }

    /// Seconds as people read them: `1 h 12 min`.
    #[askama::filter_fn]
    pub fn duration(seconds: &i64, _: &dyn askama::Values) -> Result<String, Infallible> {
        Ok(human_duration(*seconds))
    }

    /// GPUs or cores × milliseconds as hours: `12.5`.
    #[askama::filter_fn]
    pub fn hours(milliseconds: &i64, _: &dyn askama::Values) -> Result<String, Infallible> {
        Ok(human_hours(*milliseconds))
    }

    /// The address of a file of `static/`.
    #[askama::filter_fn]
    pub fn asset(path: &str, _: &dyn askama::Values) -> Result<String, Infallible> {
        Ok(super::asset(path))
    }

    /// The address of a node's page.
    #[askama::filter_fn]
    pub fn node_page(name: &str, _: &dyn askama::Values) -> Result<String, Infallible> {
        Ok(super::node_page(name))
    }

    /// A drawing of the sprite.
    #[askama::filter_fn]
    pub fn icon<'a>(name: &'a str, _: &dyn askama::Values) -> Result<Icon<'a>, Infallible> {
        Ok(Icon(name))
    }
}

/// The address of a node's page.
pub fn node_page(name: &str) -> String {
    format!("/nodes/{}", percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC))
}

/// A page as an answer of status 200; another status goes before it in a tuple.
#[derive(Debug)]
pub struct Page<T>(pub T);

impl<T: Template> IntoResponse for Page<T> {
    fn into_response(self) -> Response {
        let html = self.0.render().expect("templates write to memory and call nothing that fails");
        Html(without_indentation(&html)).into_response()
    }
}

/// Removes the indentation of lines that begin with a tag behind a line that ends with one, a tenth of a long page.
/// Text is not touched: what users write contains no tags, and lines in a `pre` begin and end with text.
fn without_indentation(html: &str) -> String {
    let mut page = String::with_capacity(html.len());
    for line in html.split_inclusive('\n') {
        let bare = line.trim_start_matches(' ');
        let is_between_tags = bare.starts_with('<') && page.ends_with(">\n");
        page.push_str(if is_between_tags { bare } else { line });
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_indentation_between_tags_goes() {
        let html =
            "<ul>\n  <li>\n    two\n  words</li>\n  <li>  x</li>\n</ul>\n<pre>a\n  b\n  &lt;c&gt;\n</pre>\n  text\n";
        let page = "<ul>\n<li>\n    two\n  words</li>\n<li>  x</li>\n</ul>\n<pre>a\n  b\n  &lt;c&gt;\n</pre>\n  text\n";
        assert_eq!(super::without_indentation(html), page);
    }
}
