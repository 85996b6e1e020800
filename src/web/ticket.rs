//! How somebody who is signed in on the portal's origin becomes known on the apps' origin.
//! A ticket is used once and lives for half a minute; it is exchanged for a cookie that opens
//! one session to one login and nothing else. Neither is worth anything without the login.

use std::collections::HashMap;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use sha2::Sha256;

use crate::model::{LoginId, SessionId, Timestamp};

/// How long a ticket may be on its way (seconds).
const LIFETIME: i64 = 30;

/// More are never on their way at once; then the oldest are worthless.
const MOST: usize = 10_000;

/// Tickets that were not used yet.
#[derive(Debug, Default)]
pub struct Tickets(Mutex<HashMap<String, Ticket>>);

#[derive(Clone, Copy, Debug)]
struct Ticket {
    login: LoginId,
    session: SessionId,
    expires_at: Timestamp,
}

impl Tickets {
    pub fn issue(&self, login: LoginId, session: SessionId, now: Timestamp) -> String {
        let secret = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        let mut tickets = self.0.lock();
        tickets.retain(|_, ticket| now < ticket.expires_at);
        if MOST <= tickets.len() {
            tickets.clear();
        }
        tickets.insert(secret.clone(), Ticket { login, session, expires_at: now.plus_seconds(LIFETIME) });
        secret
    }

    /// The login that a ticket for this session stands for; it is worthless afterwards.
    pub fn redeem(&self, secret: &str, session: SessionId, now: Timestamp) -> Option<LoginId> {
        let ticket = self.0.lock().remove(secret)?;
        (ticket.session == session && now < ticket.expires_at).then_some(ticket.login)
    }
}

/// The name of the apps' origin's cookie for a session.
pub fn cookie_name(session: SessionId) -> String {
    format!("lyceum_app_{}", session.short())
}

/// The value of that cookie: the login's id, sealed for this session.
pub fn seal(key: &[u8; 32], login: LoginId, session: SessionId) -> String {
    format!("{login}.{}", BASE64_URL_SAFE_NO_PAD.encode(mac(key, login, session).finalize().into_bytes()))
}

/// The login that a cookie's value stands for, if we sealed it for this session.
pub fn open(key: &[u8; 32], value: &str, session: SessionId) -> Option<LoginId> {
    let (login, seal) = value.split_once('.')?;
    let login = login.parse().ok()?;
    let seal = BASE64_URL_SAFE_NO_PAD.decode(seal).ok()?;
    mac(key, login, session).verify_slice(&seal).is_ok().then_some(login)
}

fn mac(key: &[u8; 32], login: LoginId, session: SessionId) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    mac.update(format!("app {login} {session}").as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once_for_one_session_and_not_for_long() {
        let (tickets, login, session, now) = (Tickets::default(), LoginId::new(), SessionId::new(), Timestamp(0));
        let ticket = tickets.issue(login, session, now);
        assert_eq!(tickets.redeem(&ticket, session, now), Some(login));
        assert_eq!(tickets.redeem(&ticket, session, now), None);
        let ticket = tickets.issue(login, session, now);
        assert_eq!(tickets.redeem(&ticket, SessionId::new(), now), None);
        let ticket = tickets.issue(login, session, now);
        assert_eq!(tickets.redeem(&ticket, session, now.plus_seconds(LIFETIME)), None);
        assert_eq!(tickets.redeem("made up", session, now), None);
    }

    #[test]
    fn a_cookie_is_sealed_for_one_login_and_session() {
        let (login, session) = (LoginId::new(), SessionId::new());
        let value = seal(&[7; 32], login, session);
        assert_eq!(open(&[7; 32], &value, session), Some(login));
        assert_eq!(open(&[8; 32], &value, session), None);
        assert_eq!(open(&[7; 32], &value, SessionId::new()), None);
        assert_eq!(open(&[7; 32], &value.replace(&login.to_string(), &LoginId::new().to_string()), session), None);
        for bad in ["", ".", "x.y", &login.to_string()] {
            assert_eq!(open(&[7; 32], bad, session), None);
        }
    }
}
