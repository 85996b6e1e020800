//! What each module's failure means to a client: which of `error`'s kinds, in which words,
//! and what stays in the log. A service's failures are matched one by one: a new one does not
//! compile before somebody has decided here.

use super::error::Error;
use crate::{
    announcements, auth, cluster, datasets, db, diagnostics, environments, events, images, jobs, models, notifications,
    presets, proxy, runs, scheduler, sessions, site, sweeps, web::views::as_sentence,
};

impl From<db::Error> for Error {
    fn from(err: db::Error) -> Self {
        match err {
            db::Error::Unique => Self::conflict("This name is already in use."),
            last @ (db::Error::LastAdmin | db::Error::Expired(_)) => Self::conflict(as_sentence(&last.to_string())),
            full if full.is_full() => Self::outage(
                "The disk is full, so nothing can be started, stopped or changed. Ask an administrator to free space \
                 on the disk of the portal's database.",
                60,
                full,
            ),
            outage if outage.is_outage() => {
                Self::outage("The database does not respond. Try again in a moment.", 5, outage)
            }
            bug => Self::internal(bug),
        }
    }
}

impl From<auth::Error> for Error {
    fn from(err: auth::Error) -> Self {
        use auth::Error as Auth;
        match err {
            Auth::BadCredentials { .. } => Self::unauthenticated_because("The user name or password is wrong."),
            Auth::Throttled { retry_after_seconds: seconds } => {
                let detail = format!("Too many failed attempts. Try again in {seconds} s.");
                Self::throttled(detail, seconds)
            }
            Auth::Busy => {
                Self::unavailable("Too many users are signing in at the same time. Try again in a few seconds.", 3)
            }
            Auth::PasswordTooShort => Self::field("new_password", "too_short", "Enter at least 10 characters."),
            Auth::PasswordTooLong => Self::field("new_password", "too_long", "Enter at most 1024 bytes."),
            Auth::WrongCurrentPassword => {
                Self::field("current_password", "wrong", "This is not your current password.")
            }
            Auth::NotOurPassword | Auth::MadeAndRevoked | Auth::Conflict(_) => {
                Self::conflict(as_sentence(&err.to_string()))
            }
            Auth::NotAllowed(sentence) => Self::forbidden(as_sentence(sentence)),
            Auth::Field { field, code, message } => Self::field(field, code, as_sentence(&message)),
            Auth::Db(err) | Auth::Directory(auth::ldap::Error::Db(err)) => err.into(),
            // It has answered: waiting for it would not help.
            Auth::Directory(
                err @ (auth::ldap::Error::Answer { .. }
                | auth::ldap::Error::ManyGroups(..)
                | auth::ldap::Error::TooMuch(_)),
            ) => Self::outage(
                format!(
                    "The directory that checks passwords returned an unexpected response: {}. Ask an administrator. \
                     Users who are signed in can continue to work.",
                    err.for_people()
                ),
                30,
                err,
            ),
            Auth::Directory(err) => Self::outage(
                "The directory that checks passwords does not respond. Try again in a minute. Users who are signed in \
                 can continue to work.",
                30,
                err,
            ),
            Auth::Hash(_) | Auth::Thread(_) | Auth::Session(_) | Auth::FirstPassword { .. } => Self::internal(err),
        }
    }
}

impl From<sessions::Error> for Error {
    fn from(err: sessions::Error) -> Self {
        match err {
            sessions::Error::NotFound => Self::not_found(),
            sessions::Error::Invalid(faults) => Self::invalid(faults),
            sessions::Error::Refused(reasons) => Self::over_quota(reasons),
            sessions::Error::Maintenance { sentence, retry_after_seconds } => {
                Self::maintenance(as_sentence(&sentence), retry_after_seconds)
            }
            sessions::Error::Conflict(sentence) => Self::conflict(as_sentence(&sentence)),
            sessions::Error::Scheduler(err) => err.into(),
            sessions::Error::Log(_) => Self::internal(err),
            sessions::Error::Db(err) => err.into(),
        }
    }
}

impl From<presets::Error> for Error {
    fn from(err: presets::Error) -> Self {
        match err {
            presets::Error::NotFound => Self::not_found(),
            presets::Error::Invalid(faults) => Self::invalid(faults),
            presets::Error::Forbidden(sentence) => Self::forbidden(as_sentence(sentence)),
            presets::Error::Stale => Self::stale(),
            presets::Error::Db(err) => err.into(),
        }
    }
}

impl From<site::Error> for Error {
    fn from(err: site::Error) -> Self {
        match err {
            site::Error::Invalid(mut faults) => {
                for fault in &mut faults {
                    fault.message = as_sentence(&fault.message);
                }
                Self::invalid(faults)
            }
            site::Error::Stale => Self::stale(),
            site::Error::Auth(err) => err.into(),
            site::Error::Db(err) => err.into(),
        }
    }
}

impl From<images::Error> for Error {
    fn from(err: images::Error) -> Self {
        match err {
            images::Error::NotFound => Self::not_found(),
            images::Error::Forbidden => Self::forbidden("Only administrators can do this."),
            images::Error::Invalid(faults) => Self::invalid(faults),
            images::Error::Conflict(sentence) => Self::conflict(as_sentence(&sentence)),
            images::Error::Store(_) | images::Error::Source(_) => Self::internal(err),
            images::Error::Db(err) => err.into(),
        }
    }
}

impl From<events::Error> for Error {
    fn from(err: events::Error) -> Self {
        match err {
            events::Error::NotFound => Self::not_found(),
            events::Error::Invalid(faults) => Self::invalid(faults),
            events::Error::Conflict(sentence) => Self::conflict(as_sentence(&sentence)),
            events::Error::Db(err) => err.into(),
        }
    }
}

impl From<environments::Error> for Error {
    fn from(err: environments::Error) -> Self {
        match err {
            environments::Error::NotFound => Self::not_found(),
            environments::Error::Invalid(faults) => Self::invalid(faults),
            environments::Error::Conflict(sentence) => Self::conflict(as_sentence(&sentence)),
            environments::Error::Log { .. } | environments::Error::Files(_) => Self::internal(err),
            environments::Error::Db(err) => err.into(),
        }
    }
}

impl From<sessions::profiles::Error> for Error {
    fn from(err: sessions::profiles::Error) -> Self {
        match err {
            sessions::profiles::Error::NotFound => Self::not_found(),
            sessions::profiles::Error::Invalid(faults) => Self::invalid(faults),
            sessions::profiles::Error::Conflict(sentence) => Self::conflict(as_sentence(&sentence)),
            sessions::profiles::Error::Db(err) => err.into(),
        }
    }
}

impl From<jobs::Error> for Error {
    fn from(err: jobs::Error) -> Self {
        match err {
            jobs::Error::NotFound => Self::not_found(),
            jobs::Error::Invalid(faults) => Self::invalid(faults),
            jobs::Error::Forbidden(sentence) => Self::forbidden(as_sentence(sentence)),
            jobs::Error::Conflict(sentence) => Self::conflict(as_sentence(sentence)),
            jobs::Error::Sessions(err) => err.into(),
            jobs::Error::Db(err) => err.into(),
        }
    }
}

impl From<datasets::Error> for Error {
    fn from(err: datasets::Error) -> Self {
        match err {
            datasets::Error::NotFound => Self::not_found(),
            datasets::Error::Invalid(faults) => Self::invalid(faults),
            datasets::Error::Conflict(sentence) => Self::conflict(as_sentence(sentence)),
            datasets::Error::Wrong(wrong) => Self::conflict(as_sentence(&wrong.to_string())),
            datasets::Error::Files(err) => err.into(),
            datasets::Error::Jobs(err) => err.into(),
            datasets::Error::Db(err) => err.into(),
        }
    }
}

impl From<sweeps::Error> for Error {
    fn from(err: sweeps::Error) -> Self {
        match err {
            sweeps::Error::NotFound => Self::not_found(),
            sweeps::Error::Invalid(faults) => Self::invalid(faults),
            sweeps::Error::Conflict(sentence) => Self::conflict(as_sentence(sentence)),
            sweeps::Error::Jobs(err) => err.into(),
            sweeps::Error::Sessions(err) => err.into(),
            sweeps::Error::Datasets(err) => err.into(),
            sweeps::Error::Models(err) => err.into(),
            sweeps::Error::Runs(err) => err.into(),
            sweeps::Error::Db(err) => err.into(),
        }
    }
}

impl From<models::Error> for Error {
    fn from(err: models::Error) -> Self {
        match err {
            models::Error::NotFound => Self::not_found(),
            models::Error::Invalid(faults) => Self::invalid(faults),
            models::Error::Conflict(sentence) => Self::conflict(as_sentence(sentence)),
            models::Error::Files(err) => err.into(),
            models::Error::Jobs(err) => err.into(),
            models::Error::Db(err) => err.into(),
        }
    }
}

impl From<diagnostics::Error> for Error {
    fn from(err: diagnostics::Error) -> Self {
        match err {
            diagnostics::Error::NotFound => Self::not_found(),
            diagnostics::Error::Invalid(faults) => Self::invalid(faults),
            diagnostics::Error::Files(err) => err.into(),
            diagnostics::Error::Dataset(err) => err.into(),
            diagnostics::Error::Jobs(err) => err.into(),
            diagnostics::Error::Db(err) => err.into(),
        }
    }
}

impl From<cluster::WithholdError> for Error {
    fn from(err: cluster::WithholdError) -> Self {
        use cluster::WithholdError as Withhold;
        match err {
            Withhold::NotFound => Self::not_found(),
            Withhold::Forbidden => Self::forbidden(as_sentence(&err.to_string())),
            Withhold::Invalid(fault) => Self::invalid(vec![fault]),
            Withhold::Db(err) => err.into(),
        }
    }
}

impl From<cluster::DrainError> for Error {
    fn from(err: cluster::DrainError) -> Self {
        use cluster::DrainError as Drain;
        match err {
            Drain::NotFound => Self::not_found(),
            Drain::Forbidden => Self::forbidden(as_sentence(&err.to_string())),
            Drain::Invalid(fault) => Self::invalid(vec![fault]),
            Drain::Scheduler(err) => err.into(),
            Drain::Db(err) => err.into(),
        }
    }
}

impl From<notifications::Error> for Error {
    fn from(err: notifications::Error) -> Self {
        match err {
            notifications::Error::Invalid(faults) => Self::invalid(faults),
            notifications::Error::Conflict(sentence) => Self::conflict(as_sentence(sentence)),
            notifications::Error::Runs(err) => err.into(),
            notifications::Error::Db(err) => err.into(),
        }
    }
}

impl From<announcements::Error> for Error {
    fn from(err: announcements::Error) -> Self {
        match err {
            announcements::Error::NotFound => Self::not_found(),
            announcements::Error::Invalid(faults) => Self::invalid(faults),
            announcements::Error::Conflict(sentence) => Self::conflict(as_sentence(sentence)),
            announcements::Error::Stale => Self::stale(),
            announcements::Error::Db(err) => err.into(),
        }
    }
}

impl From<runs::Error> for Error {
    fn from(err: runs::Error) -> Self {
        match err {
            runs::Error::NotFound => Self::not_found(),
            runs::Error::NotYours => Self::forbidden("This run belongs to another user. Only its owner can change it."),
            runs::Error::Invalid(faults) => Self::invalid(faults),
            runs::Error::Conflict(sentence) => Self::conflict(as_sentence(sentence)),
            runs::Error::Scheduler(err) => err.into(),
            runs::Error::Db(err) => err.into(),
            runs::Error::Files(_) | runs::Error::Agent(_) | runs::Error::Points { .. } | runs::Error::Thread(_) => {
                Self::internal(err)
            }
        }
    }
}

impl From<scheduler::Error> for Error {
    fn from(err: scheduler::Error) -> Self {
        use scheduler::Error as Scheduler;
        match err {
            Scheduler::Refused(sentence) | Scheduler::Full(sentence) => Self::conflict(as_sentence(&sentence)),
            Scheduler::Unavailable(_) => Self::outage("The scheduler does not respond. Try again in a moment.", 5, err),
            Scheduler::Io { .. } => Self::internal(err),
        }
    }
}

impl From<proxy::Error> for Error {
    fn from(err: proxy::Error) -> Self {
        match err {
            proxy::Error::ServiceWorker => {
                Self::forbidden("An app at the portal's own address may not install a service worker.")
            }
            proxy::Error::Path(_) | proxy::Error::Target(_) | proxy::Error::Value(_) | proxy::Error::RequestBody(_) => {
                Self::malformed("This address or header cannot be passed on to an app.")
            }
            proxy::Error::TooManyConnections => {
                Self::unavailable("This session has too many connections open. Close some of its tabs.", 5)
            }
            proxy::Error::Cut => Self::unauthenticated(),
            away => {
                if matches!(&away, proxy::Error::Dial(error) if error.is_impostor()) {
                    tracing::warn!(
                        error = &away as &dyn std::error::Error,
                        "peer check failed: another process answers on the app's socket"
                    );
                } else {
                    // An open tab asks again and again.
                    tracing::debug!(error = &away as &dyn std::error::Error, "app does not respond");
                }
                let detail = "The session's program does not respond. It may be busy or may have just ended. Check its \
                              card on the home page.";
                Self::unavailable(detail, 3)
            }
        }
    }
}
