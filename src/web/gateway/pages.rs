//! What stands where an app would be: waiting, ended, and the terminal's page, which is ours.
//! The apps' own origin may serve them, where scripts of apps can read them.

use std::sync::Arc;

use axum::{
    http::{HeaderMap, HeaderValue, header, request::Parts},
    response::{IntoResponse, Redirect},
};

use super::{Answer, SessionRequest, is_reading};
use crate::{
    auth::Principal,
    model::{Session, SessionState, job::Attempt},
    web::{
        Listener, Portal,
        http::{
            error::{Error, Result},
            extract::wants_html,
            guard,
        },
        page::{Layout, Nav, Page, Theme},
        sessions::cards,
        views::{self, TerminalPage},
    },
};

impl SessionRequest<'_> {
    /// Not theirs, or over: 404, or the page that says why it ended.
    pub(super) async fn closed(&self, principal: &Arc<Principal>, asked: &Parts) -> Result<Answer> {
        let session = self.own_session(principal).await?;
        if session.state.is_live() {
            return self.waiting(principal, asked).await;
        }
        if let Some(page) = self.page_of_job(&session, principal, asked) {
            return Ok(page);
        }
        if !is_reading(asked) || !wants_html(&asked.headers) {
            return Err(Error::ended("This session has ended. Its page shows why, and you can start it again there."));
        }
        let layout = self.layout(principal, &asked.headers);
        let limits = self.portal.sessions.admission.limits(session.owner).await?;
        let card = cards::card(self.portal, principal, &asked.headers, &session, &limits);
        Ok(Error::ended("This session has ended.").with_page(Page(views::Ended::new(layout, card))).into())
    }

    /// It waits, starts or is ending: a page for people, 503 for programs.
    pub(super) async fn waiting(&self, principal: &Arc<Principal>, asked: &Parts) -> Result<Answer> {
        let session = self.own_session(principal).await?;
        if let Some(page) = self.page_of_job(&session, principal, asked) {
            return Ok(page);
        }
        if !is_reading(asked) || !wants_html(&asked.headers) {
            return Err(Error::unavailable(
                match session.state {
                    SessionState::Stopping | SessionState::Ended => "This session is being stopped.",
                    _ => "This session is not running yet. Try again in a moment.",
                },
                2,
            ));
        }
        let layout = self.layout(principal, &asked.headers);
        let limits = self.portal.sessions.admission.limits(session.owner).await?;
        let card = cards::card(self.portal, principal, &asked.headers, &session, &limits);
        let doing = self.portal.sessions.live(self.id).status.map(|status| status.step);
        let steps = views::ShowSession::steps(&session, doing.as_deref());
        Ok(Page(views::WaitingPage::new(layout, card, steps)).into_response().into())
    }

    pub(super) async fn terminal(&self, principal: &Arc<Principal>, headers: &HeaderMap) -> Result<Answer> {
        let session = self.own_session(principal).await?;
        let place = session
            .placement
            .map_or_else(String::new, |placement| format!("{}@{}", placement.unix_name, placement.node));
        let layout = self.layout(principal, headers);
        let back = session.job.map_or_else(|| format!("/sessions/{}", self.id), page_of);
        let what = if session.job.is_some() { "job" } else { "session" };
        let page = TerminalPage { layout, back, what, name: session.name, place };
        let policy = HeaderValue::from_static(guard::TERMINAL_POLICY);
        Ok(([(header::CONTENT_SECURITY_POLICY, policy)], Page(page)).into_response().into())
    }

    /// The page of a job that has no terminals now says more than one of ours would.
    fn page_of_job(&self, session: &Session, principal: &Arc<Principal>, asked: &Parts) -> Option<Answer> {
        let job = session.job.filter(|_| is_reading(asked) && wants_html(&asked.headers))?;
        let portal = self.layout(principal, &asked.headers).portal;
        Some(Redirect::to(&format!("{portal}{}", page_of(job))).into_response().into())
    }

    async fn own_session(&self, principal: &Principal) -> Result<Session> {
        let session = self.portal.db.find_session(self.id).await?;
        session.filter(|session| session.owner == principal.id()).ok_or_else(Error::not_found)
    }

    /// In path mode, as on the portal's own listener, this is a page of the portal like any other.
    fn layout(&self, principal: &Arc<Principal>, headers: &HeaderMap) -> Layout {
        match self.side {
            Listener::Portal => self.portal.layout_of(principal, Nav::None),
            Listener::Apps => Layout { theme: Theme::parse(&principal.theme), ..self.portal.bare_layout(headers) },
        }
    }
}

fn page_of(attempt: Attempt) -> String {
    format!("/jobs/{}", attempt.job)
}

impl Portal {
    /// The frame of a page on the apps' origin: it links back to the portal, and tells the
    /// scripts of apps nothing of whoever is signed in there.
    pub(in crate::web) fn bare_layout(&self, headers: &HeaderMap) -> Layout {
        Layout {
            insecure_http: self.config.insecure_http,
            portal: self.portal_seen_from(Listener::Apps, headers),
            ..Layout::default()
        }
    }
}
