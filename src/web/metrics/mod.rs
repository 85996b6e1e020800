//! Numbers about the portal itself, without anybody's name in a label. Others register
//! theirs in [`Metrics::registry`].

mod gather;

use std::{borrow::Cow, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{
        EncodeLabelSet,
        text::{encode_eof, encode_registry},
    },
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::Portal;
use crate::{db, sessions::Sessions};

/// All metrics of this process.
#[derive(Clone)]
pub struct Metrics {
    pub registry: Arc<Mutex<Registry>>,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram>,
    sign_ins: Family<OutcomeLabels, Counter>,
    event_streams: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: Cow<'static, str>,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: Cow<'static, str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("lyceum");
        let requests = Family::default();
        let durations = Family::new_with_constructor(histogram as fn() -> Histogram);
        let sign_ins = Family::default();
        registry.register("http_requests", "HTTP requests", requests.clone());
        registry.register(
            "http_request_duration_seconds",
            "Time until the response headers are sent",
            durations.clone(),
        );
        let event_streams = Gauge::default();
        registry.register("sign_ins", "Sign-ins by outcome", sign_ins.clone());
        registry.register("event_streams", "Open event streams", event_streams.clone());
        Self { registry: Arc::new(Mutex::new(registry)), requests, durations, sign_ins, event_streams }
    }
}

fn histogram() -> Histogram {
    Histogram::new([0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0])
}

impl Metrics {
    pub(super) fn answered(&self, method: &str, route: impl Into<Cow<'static, str>>, status: u16, elapsed: Duration) {
        // A client may invent methods, and each label's value is kept for ever.
        let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
        let method = known.into_iter().find(|known| *known == method).unwrap_or("other");
        let route = route.into();
        self.requests.get_or_create(&RequestLabels { method, route: route.clone(), status }).inc();
        self.durations.get_or_create(&RouteLabels { route }).observe(elapsed.as_secs_f64());
    }

    /// Reports also how long starts take, which the service of sessions counts.
    pub(super) fn with_waits_of(sessions: &Sessions) -> Self {
        let metrics = Self::default();
        metrics.registry.lock().register_with_unit(
            "start_wait",
            "Time from the request of a session or job until it runs",
            Unit::Seconds,
            sessions.start_waits.clone(),
        );
        metrics
    }

    pub(super) fn signed_in(&self, outcome: &'static str) {
        self.sign_ins.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Counts a stream until the answer is dropped.
    pub(super) fn event_stream(&self) -> OpenStream {
        self.event_streams.inc();
        OpenStream(self.event_streams.clone())
    }

    /// Everything, in the OpenMetrics text format: what is counted here, and what the portal manages now.
    pub(super) async fn text(&self, portal: &Portal) -> db::Result<String> {
        let now = gather::gather(portal).await?;
        let mut text = String::new();
        let written = encode_registry(&mut text, &self.registry.lock())
            .and_then(|()| encode_registry(&mut text, &now))
            .and_then(|()| encode_eof(&mut text));
        written.expect("writing to a String cannot fail");
        Ok(text)
    }
}

/// A stream that somebody reads.
pub(super) struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}
