//! One notification as an e-mail: plain text, to one address, over TLS unless the server is on this
//! machine. Every word of a job's owner was made one line before; here headers are written by a
//! library that encodes them, so that none can become two.

use std::time::Duration;

use lettre::{
    AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    address::Address,
    message::{Mailbox, header},
    transport::smtp::{
        authentication::Credentials,
        client::{Certificate, Tls as Mode, TlsParameters},
    },
};

use super::{Config, DeliveryFailure, Tls};
use lyceum_model::{line::is_misleading, notification::Notification};

/// For each step of the conversation.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Hands it to the server.
pub(super) async fn send(config: &Config, to: &str, one: &Notification, link: &str) -> Result<(), DeliveryFailure> {
    let message = message(config, to, one, link).map_err(DeliveryFailure::Never)?;
    let transport = transport(config).await.map_err(DeliveryFailure::Later)?;
    match transport.send(message).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_permanent() => {
            Err(DeliveryFailure::Never(format!("The mail server rejected it: {}.", error_text(&error))))
        }
        Err(error) => {
            Err(DeliveryFailure::Later(format!("The mail server did not accept it: {}.", error_text(&error))))
        }
    }
}

fn message(config: &Config, to: &str, one: &Notification, link: &str) -> Result<Message, String> {
    let sender = config.sender().ok_or("This portal has no sender address.")?;
    let to: Address = to.parse().map_err(|_err| "This is not a valid e-mail address.".to_owned())?;
    let domain = sender.email.domain().to_owned();
    let subject: String = one.message.title.chars().map(|c| if is_misleading(c) { ' ' } else { c }).collect();
    let mut text = format!("{}\n\n{}\n", one.message.title, one.message.text);
    if !link.is_empty() {
        text.extend(["\n", link, "\n"]);
    }
    text.push_str(
        "\n-- \nYou receive this message because of your settings in Lyceum. Change them under Settings, \
         Notifications.\n",
    );
    Message::builder()
        .from(sender)
        .to(Mailbox::new(None, to))
        .subject(subject)
        // The same for each attempt: whoever gets it twice after all can tell.
        .message_id(Some(format!("<{}@{domain}>", one.id)))
        .header(AutoSubmitted)
        .header(header::ContentType::TEXT_PLAIN)
        .body(text)
        .map_err(|error| format!("The e-mail could not be created: {error}."))
}

/// RFC 3834: nobody's holiday notice answers it.
#[derive(Clone, Debug)]
struct AutoSubmitted;

impl header::Header for AutoSubmitted {
    fn name() -> header::HeaderName {
        header::HeaderName::new_from_ascii_str("Auto-Submitted")
    }

    fn parse(_text: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self)
    }

    fn display(&self) -> header::HeaderValue {
        header::HeaderValue::new(Self::name(), "auto-generated".to_owned())
    }
}

async fn transport(config: &Config) -> Result<AsyncSmtpTransport<Tokio1Executor>, String> {
    let (host, port) = config.server().ok_or("This portal has no mail server.")?;
    let mode = match config.smtp_tls {
        Tls::None => Mode::None,
        Tls::Starttls => Mode::Required(parameters(config, host).await?),
        Tls::Tls => Mode::Wrapper(parameters(config, host).await?),
    };
    let builder =
        AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(host).port(port).tls(mode).timeout(Some(TIMEOUT));
    let credentials = (!config.smtp_user.is_empty())
        .then(|| Credentials::new(config.smtp_user.clone(), config.smtp_password.clone()));
    Ok(match credentials {
        Some(credentials) => builder.credentials(credentials).build(),
        None => builder.build(),
    })
}

async fn parameters(config: &Config, host: &str) -> Result<TlsParameters, String> {
    let mut builder = TlsParameters::builder(host.to_owned());
    if !config.smtp_ca_file.as_os_str().is_empty() {
        let failed = |why: String| format!("The CA file for the mail server's certificate cannot be read: {why}.");
        let pem = tokio::fs::read(&config.smtp_ca_file).await.map_err(|error| failed(error.to_string()))?;
        builder = builder.add_root_certificate(Certificate::from_pem(&pem).map_err(|error| failed(error.to_string()))?);
    }
    builder.build().map_err(|error| format!("TLS to the mail server cannot be set up: {error}."))
}

/// What went wrong, in one line.
fn error_text(error: &lettre::transport::smtp::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    let text: String = text.chars().map(|c| if is_misleading(c) { ' ' } else { c }).take(200).collect();
    text.trim().trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::{
        NotificationId, Timestamp, UserId,
        notification::{Delivery, Event, Message as Told, Way},
    };

    #[test]
    fn no_name_of_a_job_becomes_a_header() {
        let config = Config {
            smtp: "localhost".to_owned(),
            mail_from: "Lyceum <l@example.org>".to_owned(),
            ..Config::default()
        };
        let told = Told {
            event: Event::Failed,
            title: "Job ‘a\r\nBcc: x@y.z\r\n\r\nbody’ failed".to_owned(),
            text: ".\r\n.\r\nMAIL FROM:<x@y.z>".to_owned(),
            job: None,
            name: "a".to_owned(),
        };
        let one = Notification {
            id: NotificationId::new(),
            user: UserId::new(),
            way: Way::Mail,
            message: told,
            state: Delivery::Sending,
            attempts: 1,
            at: Timestamp(0),
            error: None,
        };
        let written = message(&config, "ada@example.org", &one, "https://portal/jobs/1").unwrap();
        assert_eq!(written.envelope().to(), ["ada@example.org".parse().unwrap()]);
        let text = String::from_utf8(written.formatted()).unwrap();
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        let names: Vec<&str> = head
            .lines()
            .filter(|line| !line.starts_with([' ', '\t']))
            .map(|line| line.split(':').next().unwrap())
            .collect();
        assert!(!names.iter().any(|name| name.eq_ignore_ascii_case("bcc")), "{head}");
        assert_eq!(names.iter().filter(|name| name.eq_ignore_ascii_case("subject")).count(), 1, "{head}");
        assert!(head.contains(&format!("Message-ID: <{}@example.org>", one.id)), "{head}");
        assert!(head.contains("Auto-Submitted: auto-generated"), "{head}");
    }
}
