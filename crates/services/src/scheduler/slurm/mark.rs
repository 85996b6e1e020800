//! The mark that a job of ours bears in its comment: which session it is, and a keyed hash of
//! that and the uid it runs as. Everybody can read it and copy it, but in a job of somebody
//! else it is worth nothing; a person who copies their own into another job of theirs is told
//! by the number, for ours was first.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use lyceum_model::SessionId;

const WORD: &str = "lyceum";

/// What makes marks and judges them.
#[derive(Clone)]
pub(super) struct JobMarks(Vec<u8>);

impl JobMarks {
    pub fn new(key: &[u8]) -> Self {
        Self(key.to_vec())
    }

    pub fn of(&self, session: SessionId, uid: u32) -> String {
        format!("{WORD}:{session}:{}", hex::encode(&self.mac(session, uid).finalize().into_bytes()[..16]))
    }

    /// The session whose mark this is, if the job it stands in runs as the right user.
    pub fn read(&self, comment: &str, uid: u32) -> Option<SessionId> {
        let (session, hash) = comment.strip_prefix(WORD)?.strip_prefix(':')?.split_once(':')?;
        // Behind it stands what the user says of the job.
        let hash = hash.split(' ').next().unwrap_or_default();
        let session: SessionId = session.parse().ok()?;
        let hash = hex::decode(hash).ok().filter(|hash| hash.len() == 16)?;
        self.mac(session, uid).verify_truncated_left(&hash).ok()?;
        Some(session)
    }

    fn mac(&self, session: SessionId, uid: u32) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        mac.update(format!("slurm {session} {uid}").as_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_for_one_session_of_one_user_of_one_portal() {
        let (marks, session) = (JobMarks::new(b"key"), SessionId::new());
        let mark = marks.of(session, 1001);
        assert_eq!(marks.read(&mark, 1001), Some(session));
        assert_eq!(marks.read(&format!("{mark} of the user"), 1001), Some(session));
        assert_eq!(marks.read(&mark, 1002), None, "copied by somebody else");
        assert_eq!(JobMarks::new(b"another").read(&mark, 1001), None, "of another portal");
        let (_, hash) = mark.rsplit_once(':').unwrap();
        let other = SessionId::new();
        for forged in [
            String::new(),
            "lyceum".to_owned(),
            format!("lyceum:{session}:"),
            format!("lyceum:{session}:{}", &hash[2..]),
            format!("lyceum:{other}:{hash}"),
            format!("{mark}00"),
            format!("{mark}\n"),
        ] {
            assert_eq!(marks.read(&forged, 1001), None, "{forged:?}");
        }
    }
}
