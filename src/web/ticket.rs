//! Tickets, which carry a sign-in from the portal's origin to the apps' origin, as in PKCE. The
//! apps' origin first sets a verifier, a random cookie; the portal issues a ticket for the
//! verifier's hash, the challenge, which is valid once and for half a minute; it is exchanged for
//! a cookie that opens one session to one login and nothing else. So a ticket that is passed on
//! opens nothing in another browser: an app's pages must never run beside the sessions of a user
//! who did not ask for them.

use std::collections::HashMap;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::model::{LoginId, SessionId, Timestamp};

/// How long a ticket may be on its way (seconds).
const LIFETIME: i64 = 30;

/// More are never on their way at once; then the oldest are worthless.
const MAX_TICKETS: usize = 10_000;

/// The same for one login, so that nobody makes other people's tickets worthless.
const MAX_PER_LOGIN: usize = 32;

/// Returns a new verifier: the value of the cookie that identifies a browser on the apps' origin.
pub fn new_hand() -> String {
    BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// Returns the challenge of a verifier, its hash, which may appear in an address.
pub fn challenge(verifier: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier))
}

/// Tickets that were not used yet.
#[derive(Debug, Default)]
pub struct Tickets(Mutex<HashMap<String, Ticket>>);

#[derive(Clone, Debug)]
struct Ticket {
    login: LoginId,
    session: SessionId,
    challenge: String,
    expires_at: Timestamp,
}

impl Tickets {
    /// Issues a ticket for the browser whose verifier has this [`challenge`].
    pub fn issue(&self, login: LoginId, session: SessionId, challenge: &str, now: Timestamp) -> String {
        let secret = new_hand();
        let mut tickets = self.0.lock();
        let mut of_login = 0;
        tickets.retain(|_, ticket| {
            of_login += usize::from(ticket.login == login);
            now < ticket.expires_at
        });
        if of_login >= MAX_PER_LOGIN {
            tickets.retain(|_, ticket| ticket.login != login);
        }
        if tickets.len() >= MAX_TICKETS {
            tickets.clear();
        }
        let ticket = Ticket { login, session, challenge: challenge.to_owned(), expires_at: now.plus_seconds(LIFETIME) };
        tickets.insert(secret.clone(), ticket);
        secret
    }

    /// Returns the login of a ticket for this session, if the browser has this verifier. A ticket
    /// is used up by the first attempt, successful or not.
    pub fn redeem(&self, secret: &str, session: SessionId, verifier: &str, now: Timestamp) -> Option<LoginId> {
        let ticket = self.0.lock().remove(secret)?;
        (ticket.session == session && ticket.challenge == challenge(verifier) && now < ticket.expires_at)
            .then_some(ticket.login)
    }
}

/// The value of the apps' origin's cookie for a session: the login's id, sealed for it.
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
    fn a_ticket_is_good_once_for_one_session_and_browser_and_not_for_long() {
        let (tickets, login, session, now) = (Tickets::default(), LoginId::new(), SessionId::new(), Timestamp(0));
        let issue = || tickets.issue(login, session, &challenge("verifier"), now);
        let ticket = issue();
        assert_eq!(tickets.redeem(&ticket, session, "verifier", now), Some(login));
        assert_eq!(tickets.redeem(&ticket, session, "verifier", now), None);
        assert_eq!(tickets.redeem(&issue(), SessionId::new(), "verifier", now), None);
        assert_eq!(tickets.redeem(&issue(), session, "verifier", now.plus_seconds(LIFETIME)), None);
        assert_eq!(tickets.redeem("made up", session, "verifier", now), None);
        let ticket = issue();
        assert_eq!(
            tickets.redeem(&ticket, session, &challenge("verifier"), now),
            None,
            "an address contains the challenge only"
        );
        assert_eq!(tickets.redeem(&ticket, session, "verifier", now), None, "whoever showed it");
    }

    #[test]
    fn one_login_has_few_tickets_and_takes_nobodys() {
        let (tickets, session, now) = (Tickets::default(), SessionId::new(), Timestamp(0));
        let (alice, bob) = (LoginId::new(), LoginId::new());
        let ticket = tickets.issue(alice, session, &challenge("verifier"), now);
        for _ in 0..2 * MAX_PER_LOGIN {
            tickets.issue(bob, session, &challenge("verifier"), now);
        }
        assert!(tickets.0.lock().len() <= MAX_PER_LOGIN + 1);
        assert_eq!(tickets.redeem(&ticket, session, "verifier", now), Some(alice));
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
