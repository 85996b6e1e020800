//! The two origins as one request knows them, and what a cookie must prove beyond itself.
//! Every address here is made of settings, or of a Host that `guard::ours` has judged: a
//! name that is not ours leads nowhere.

use axum::http::{HeaderMap, Method, header, request::Parts};
use url::Url;

use crate::{
    model::SessionId,
    proxy,
    web::{
        AppsOrigin, Listener, Portal,
        http::{
            error::{Error, Result},
            guard,
        },
    },
};

impl Portal {
    /// The origin that a session's app has for this browser: the portal's own in path mode.
    /// Empty where the browser calls us by a name that is not ours.
    pub fn app_origin(&self, headers: &HeaderMap, id: SessionId) -> String {
        match self.config.apps {
            AppsOrigin::Path => self.config.origin(headers),
            _ => self.config.apps_origin(headers, id).unwrap_or_default(),
        }
    }

    /// The portal's own origin, for somebody who asked there.
    pub fn portal_origin(&self, headers: &HeaderMap) -> String {
        self.config.origin(headers)
    }

    /// What to put before a link to the portal: nothing where it was the portal that was
    /// asked. From the apps' listener it is the same host with our port.
    pub fn portal_seen_from(&self, side: Listener, headers: &HeaderMap) -> String {
        let origin = match side {
            Listener::Portal => return String::new(),
            Listener::Apps => self.config.origin(headers),
        };
        if self.config.public_url.is_some() {
            return origin;
        }
        let Ok(mut url) = Url::parse(&origin) else { return String::new() };
        let _ = url.set_port(Some(self.config.port));
        url.origin().ascii_serialization()
    }

    /// Where a person's browser goes to use a session.
    pub fn open_url(&self, headers: &HeaderMap, id: SessionId) -> String {
        format!("{}/s/{id}/", self.app_origin(headers, id))
    }
}

/// An origin to send a browser to; one that is not known would lead it in circles.
pub(super) fn known(origin: String) -> Result<String> {
    if origin.is_empty() {
        return Err(Error::malformed(
            "The portal is not available under this name. Open it by its address or its host's name. An administrator \
             can set this name as `server.public_url`.",
        ));
    }
    Ok(origin)
}

/// The app's own checks are off behind us, so they are made here: upgrades and changes come
/// from this very origin, and other sites may only link.
pub(super) fn check(asked: &Parts, is_ours: impl Fn(&HeaderMap) -> bool) -> Result<()> {
    let headers = &asked.headers;
    if guard::is_upgrade(headers) {
        return if is_ours(headers) { Ok(()) } else { Err(Error::not_same_origin()) };
    }
    let word = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let reads = matches!(asked.method, Method::GET | Method::HEAD);
    let proven = match word("sec-fetch-site") {
        Some("same-origin") => true,
        Some("none") => reads,
        Some(_) => reads && word("sec-fetch-mode") == Some("navigate") && word("sec-fetch-dest") == Some("document"),
        None => reads || is_ours(headers),
    };
    if proven { Ok(()) } else { Err(Error::not_same_origin()) }
}

/// Whether there is exactly one `Origin` and it is that of the session's app.
pub(super) fn is_apps(portal: &Portal, headers: &HeaderMap, id: SessionId) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else { return false };
    origin.to_str().is_ok_and(|origin| proxy::origin_matches(origin, &portal.app_origin(headers, id)))
}
