//! The pages around the portal's own: signing in, and the browsable API description.

use askama::Template;

use crate::{
    model::FieldError,
    web::page::{Layout, filters},
};

/// `/login`. Posts `username`, `password`, `next`, `csrf_token`.
#[derive(Debug, Template)]
#[template(path = "login.html")]
pub struct Login {
    pub layout: Layout,
    /// What was typed, kept after a failure.
    pub username: String,
    /// What went wrong, as one sentence.
    pub error: Option<String>,
    /// A line that is no error: “You are signed out.”, “Your password is changed.”
    pub notice: Option<String>,
    /// Where to go afterwards; checked by the handler to be a path of ours.
    pub next: String,
    /// Plain HTTP off loopback: the password would cross the network in clear.
    pub plain_http: bool,
    /// The file that holds `admin`'s first password, as long as nobody has signed in.
    pub first_password_file: Option<String>,
    /// Whom the reverse proxy names, empty where that is unclear: no password is asked for.
    pub by_proxy: Option<String>,
    /// Where the proxy signs people out.
    pub leave: Option<String>,
}

/// `/welcome`. Posts `code`, `password`, `password_again`, `csrf_token`.
#[derive(Debug, Template)]
#[template(path = "welcome.html")]
pub struct Welcome {
    pub layout: Layout,
    /// What was typed, kept after a failure.
    pub code: String,
    pub error: Option<FieldError>,
}

impl Welcome {
    fn is_at(&self, field: &str) -> bool {
        self.error.as_ref().is_some_and(|error| error.field == field)
    }
}

/// `/docs/api`: a frame that `api-docs.js` fills from the API's own description.
#[derive(Debug, Template)]
#[template(path = "docs/api.html")]
pub struct ApiDocs {
    pub layout: Layout,
    /// `/api/v1/openapi.json`.
    pub document: String,
    /// The portal's own address for examples: `https://portal.example.org`.
    pub base_url: String,
}
