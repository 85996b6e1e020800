//! Identifiers: one newtype a table, all UUIDv7, written as text everywhere.
//! Sorting by id sorts by time of creation, which the keyset pages rely on.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Timestamp;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id; later ones sort after earlier ones.
            #[must_use]
            #[expect(clippy::new_without_default, reason = "a random default would surprise")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            pub fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            /// Accepts the hyphenated lower-case form alone, so that one thing has one URL.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let id = Uuid::try_parse(text)?;
                if id.to_string() == text { Ok(Self(id)) } else { Uuid::try_parse("").map(Self) }
            }
        }
    };
}

id!(
    /// A person, whatever they are called today.
    UserId
);
id!(
    /// A group of people, whatever it is called today.
    GroupId
);
id!(
    /// One message to one person, on one way.
    NotificationId
);
id!(
    /// An address that the portal calls for events.
    WebhookId
);
id!(
    /// An interactive app, from its request to its last line of history.
    SessionId
);
id!(
    /// A dataset of pictures.
    DatasetId
);
id!(
    /// What a training job trains.
    ModelId
);
id!(
    /// A picture that a model was asked about.
    ModelTestId
);
id!(
    /// A batch job, through all its attempts.
    JobId
);
id!(
    /// Many jobs from one plan.
    SweepId
);
id!(
    /// A directory of logs whose curves are kept.
    RunId
);
id!(
    /// A run of the GPUs' tests.
    DiagnosticsId
);
id!(
    /// A saved request for a session or a job.
    PresetId
);
id!(
    /// An API token; the secret itself is never stored.
    TokenId
);
id!(
    /// A browser's sign-in; the cookie's secret itself is never stored.
    LoginId
);
id!(
    /// What administrators tell everybody.
    AnnouncementId
);

impl SessionId {
    /// One that sorts before all others.
    #[must_use]
    pub fn first() -> Self {
        Self(Uuid::nil())
    }

    /// One that sorts among those that were made in that second.
    #[must_use]
    pub fn at(moment: Timestamp) -> Self {
        let seconds = u64::try_from(moment.0 / 1000).unwrap_or(0);
        Self(Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, seconds, 0)))
    }

    /// Returns the greatest id that sorts before this one.
    #[must_use]
    pub fn predecessor(self) -> Self {
        Self(Uuid::from_u128(self.0.as_u128().saturating_sub(1)))
    }

    /// The 16 characters that name this session's run directory and cgroups.
    ///
    /// The path of a run directory must stay within 57 bytes because Jupyter's kernels add
    /// 50 to it and a Unix socket's address ends at 107. These are the id's 62 random bits.
    #[must_use]
    pub fn short(self) -> String {
        self.0.simple().to_string()[16..].to_owned()
    }
}

/// A part of an id that ids begin or end with, as people write them: the beginning is a moment that neighbours share,
/// the end is random.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdPart(String);

/// The text is not a part of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnId;

impl IdPart {
    /// Hexadecimal digits and hyphens alone.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is meant by this part.
    #[must_use]
    pub fn fits(&self, id: &str) -> bool {
        id.starts_with(&self.0) || id.ends_with(&self.0)
    }
}

impl FromStr for IdPart {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let part = text.to_ascii_lowercase();
        let is_part = (1..=36).contains(&part.len()) && part.bytes().all(|c| c.is_ascii_hexdigit() || c == b'-');
        if is_part { Ok(Self(part)) } else { Err(NotAnId) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_only() {
        let id = SessionId::new();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!(id.to_string().to_uppercase().parse::<SessionId>().is_err());
        assert!(id.uuid().simple().to_string().parse::<SessionId>().is_err());
        assert!("../../etc".parse::<SessionId>().is_err());
        assert_eq!(id.short().len(), 16);
    }

    #[test]
    fn a_part_of_an_id_is_nothing_else() {
        let id = SessionId::new().to_string();
        for part in [&id[..8], &id[28..], &id[..], &id[20..], &id[28..].to_uppercase()] {
            assert!(part.parse::<IdPart>().unwrap().fits(&id), "{part}");
        }
        assert!(!id[9..13].repeat(2).parse::<IdPart>().unwrap().fits(&id));
        for text in ["", "x", "%", "_", "a'b", " a", "é", &id.repeat(2)] {
            assert_eq!(text.parse::<IdPart>(), Err(NotAnId), "{text}");
        }
    }
}
