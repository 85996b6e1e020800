//! Pages that stand where an app will be or was: waiting, ended, and the terminal. The apps'
//! own origin may serve them, so they hold links to the portal instead of forms, and
//! `layout.portal` is the portal's address there.

use askama::Template;

use super::{Sentence, session::Step};
use crate::web::page::{Layout, filters};

/// `/s/{id}/` while the session waits or starts. A script asks this same address again:
/// 503, or 200 with this page, means “still waiting”; anything else and it goes there.
#[derive(Debug, Template)]
#[template(path = "waiting.html")]
pub struct WaitingPage {
    pub layout: Layout,
    pub id: String,
    pub name: String,
    /// `JupyterLab`.
    pub app: String,
    /// The state's class and word, as on the card.
    pub class: &'static str,
    pub word: &'static str,
    pub sentence: Sentence,
    pub steps: Vec<Step>,
}

/// `/s/{id}/` once the session has ended (410).
#[derive(Debug, Template)]
#[template(path = "ended.html")]
pub struct Ended {
    pub layout: Layout,
    pub id: String,
    pub name: String,
    pub app: String,
    pub class: &'static str,
    pub word: &'static str,
    pub sentence: Sentence,
    /// `Start again`, or `Start again with 4 GiB`.
    pub again: String,
    /// The memory to ask for, as a form takes it (`4G`); empty: as before.
    pub memory: String,
}

/// `/s/{id}/` of a terminal, or of a job that runs: tabs of xterm.js. Its socket is `./pty?terminal=N`, the list of
/// open terminals `./ptys`, both the agent's own. This page alone needs
/// `style-src 'self' 'unsafe-inline'`, because xterm.js writes its colours as a style sheet.
#[derive(Debug, Template)]
#[template(path = "terminal.html")]
pub struct TerminalPage {
    pub layout: Layout,
    /// The page that tells of it: `/sessions/…`, or `/jobs/…` of the job that it is in.
    pub back: String,
    /// `session`, or `job`.
    pub what: &'static str,
    pub name: String,
    /// Where it runs: `alice@node003`.
    pub place: String,
}

impl WaitingPage {
    /// The page of a session's card: they say the same.
    #[must_use]
    pub fn new(layout: Layout, card: super::Card, steps: Vec<Step>) -> Self {
        let super::Card { id, name, app, class, word, sentence, .. } = card;
        Self { layout, id, name, app, class, word, sentence, steps }
    }
}

impl Ended {
    /// The page of an ended session's card: they say the same.
    #[must_use]
    pub fn new(layout: Layout, card: super::Card) -> Self {
        let super::Card { id, name, app, class, word, sentence, actions, .. } = card;
        let (again, memory) = actions
            .into_iter()
            .find_map(|action| match action.target {
                super::Target::Post { field: "memory", value, .. } => Some((action.label, value)),
                _ => None,
            })
            .unwrap_or_else(|| ("Start again".to_owned(), String::new()));
        Self { layout, id, name, app, class, word, sentence, again, memory }
    }
}
