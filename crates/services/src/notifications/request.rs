//! What somebody may ask to be told, and the check of it: an address for e-mail that the site sends to,
//! an address of a host that the site allows.

use serde::{Deserialize, Serialize};
use url::Url;

use super::{Config, webhook};
use lyceum_model::{
    FieldError, Role,
    notification::{Event, NotificationSettings, Webhook, offered},
};

/// The new notification settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = NotificationsRequest)]
pub struct WishesRequest {
    /// The events to be notified about: `finished`, `failed`, `not_finite`, `stalled`; administrators also `health`.
    pub events: Vec<Event>,
    /// The e-mail address; null for none.
    pub mail: Option<String>,
    /// The address that notifications are posted to; null for none.
    pub webhook: Option<String>,
    /// A running job counts as stalled after this time without a new point. The default is 900.
    pub stalled_after_seconds: Option<i64>,
}

const MAX_ADDRESS_LENGTH: usize = 254;
const MAX_URL_LENGTH: usize = 1000;

impl WishesRequest {
    /// `before`: the webhook until now, whose secret stays where its address does.
    pub(super) fn check(
        self,
        config: &Config,
        role: Role,
        before: Option<Webhook>,
    ) -> Result<NotificationSettings, Vec<FieldError>> {
        let mut faults = Vec::new();
        let mut events: Vec<Event> = Vec::new();
        for event in self.events {
            if event == Event::Health && role != Role::Admin {
                faults.push(FieldError::new("events", "not_allowed", "may have health only for administrators"));
            } else if !offered(role).contains(&event) {
                let message = "must be finished, failed, not_finite, stalled or health";
                faults.push(FieldError::new("events", "invalid_value", message));
            } else if !events.contains(&event) {
                events.push(event);
            }
        }
        let some = |text: Option<String>| text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let mail = some(self.mail);
        if let Some((code, message)) = mail.as_deref().and_then(|mail| mail_fault(mail, config)) {
            faults.push(FieldError::new("mail", code, message));
        }
        let webhook = some(self.webhook);
        if let Some((code, message)) = webhook.as_deref().and_then(|url| url_fault(url, config)) {
            faults.push(FieldError::new("webhook", code, message));
        }
        let stalled_after = self.stalled_after_seconds.unwrap_or(NotificationSettings::default().stalled_after);
        if !(60..=7 * 86_400).contains(&stalled_after) {
            faults.push(FieldError::new("stalled_after_seconds", "out_of_range", "must be between 60 and 604800"));
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let webhook = webhook.map(|url| match before {
            Some(before) if before.url == url => before,
            _ => Webhook { url, salt: hex::encode(rand::random::<[u8; 16]>()) },
        });
        Ok(NotificationSettings { events, mail, webhook, stalled_after })
    }
}

/// What is wrong with an address for e-mail: code and words.
pub(super) fn mail_fault(mail: &str, config: &Config) -> Option<(&'static str, String)> {
    if !config.sends_mail() {
        return Some(("not_available", "is not available: this portal does not send e-mail".to_owned()));
    }
    let parsed: Option<lettre::Address> =
        mail.parse().ok().filter(|_| mail.is_ascii() && mail.len() <= MAX_ADDRESS_LENGTH);
    let Some(address) = parsed else {
        return Some(("malformed", "must be an address, as in ada@example.org".to_owned()));
    };
    let domain = address.domain().to_ascii_lowercase();
    let allowed = config.mail_domains.iter().any(|allowed| allowed.eq_ignore_ascii_case(&domain));
    if !config.mail_domains.is_empty() && !allowed {
        let domains = config.mail_domains.join(", ");
        return Some(("not_allowed", format!("must be in one of the domains that this portal sends to: {domains}")));
    }
    None
}

/// What is wrong with the address of a webhook: code and words.
pub(crate) fn url_fault(url: &str, config: &Config) -> Option<(&'static str, String)> {
    if config.webhook_hosts.is_empty() {
        return Some(("not_available", "is not available: this portal does not call other hosts".to_owned()));
    }
    let parsed = Url::parse(url).ok().filter(|_| url.len() <= MAX_URL_LENGTH && !url.contains(char::is_control));
    let Some(parsed) = parsed else {
        return Some(("malformed", "must be an address, as in https://hooks.example.org/x".to_owned()));
    };
    webhook::fault(&parsed, &config.webhook_hosts).map(|message| ("not_allowed", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            smtp: "localhost".to_owned(),
            mail_domains: vec!["example.org".to_owned()],
            webhook_hosts: vec!["hooks.example.org".to_owned()],
            ..Config::default()
        }
    }

    #[test]
    fn what_may_be_wished() {
        let asked = WishesRequest {
            events: vec![Event::Failed, Event::Failed],
            mail: Some(" ada@Example.org ".to_owned()),
            webhook: Some("https://hooks.example.org/x?y=1".to_owned()),
            stalled_after_seconds: Some(60),
        };
        let wishes = asked.clone().check(&config(), Role::User, None).unwrap();
        assert_eq!((wishes.events.as_slice(), wishes.stalled_after), (&[Event::Failed][..], 60));
        assert_eq!(wishes.mail.as_deref(), Some("ada@Example.org"));
        let hook = wishes.webhook.unwrap();
        assert_eq!(hook.salt.len(), 32);
        let again = asked.clone().check(&config(), Role::User, Some(hook.clone())).unwrap();
        assert_eq!(again.webhook, Some(hook.clone()), "its secret stays");
        let other = WishesRequest { webhook: Some("https://hooks.example.org/z".to_owned()), ..asked };
        assert_ne!(other.check(&config(), Role::User, Some(hook.clone())).unwrap().webhook.unwrap().salt, hook.salt);
    }

    #[test]
    fn what_may_not() {
        let long = format!("{}@example.org", "a".repeat(300));
        for (mail, code) in [
            ("ada", "malformed"),
            ("ada@example.org\r\nBcc: x@y.z", "malformed"),
            ("ada@example.org, x@y.z", "malformed"),
            ("Ada <ada@example.org>", "malformed"),
            (&long, "malformed"),
            ("ada@elsewhere.org", "not_allowed"),
        ] {
            assert_eq!(mail_fault(mail, &config()).map(|(code, _)| code), Some(code), "{mail}");
        }
        assert_eq!(mail_fault("ada@example.org", &Config::default()).unwrap().0, "not_available");
        for (url, code) in [
            ("nothing", "malformed"),
            ("https://hooks.example.org/\nx", "malformed"),
            ("https://elsewhere.org/", "not_allowed"),
            ("https://hooks.example.org:8443/", "not_allowed"),
            ("ftp://hooks.example.org/", "not_allowed"),
        ] {
            assert_eq!(url_fault(url, &config()).map(|(code, _)| code), Some(code), "{url}");
        }
        assert_eq!(url_fault("https://hooks.example.org", &Config::default()).unwrap().0, "not_available");
    }
}
