//! The first step of every request: what is for an app goes straight to `gateway`, on the
//! thread that its connection lives on; pages and the API are made on the runtime's other
//! threads, so that drawing a page holds up nobody's notebook. The routers know the same
//! routes; this only leads there sooner. Where apps have names instead of a listener, the
//! name decides here which side was asked.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    Router,
    body::{Body, HttpBody},
    extract::Request,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use tower::{Service, ServiceExt};

use crate::web::{AppsOrigin, Error, Listener, Portal, apps_router, gateway, router};

/// What a listener serves.
#[derive(Clone)]
pub struct Front {
    portal: Arc<Portal>,
    side: Listener,
    router: Router,
    /// For the names below the apps' domain, where they share the portal's listener.
    names: Option<Router>,
    /// The runtime on which this was made.
    pages: Handle,
}

impl Front {
    /// For the portal's main listener.
    pub fn portal(portal: Arc<Portal>) -> Self {
        let names = matches!(portal.config.apps, AppsOrigin::Subdomain(_)).then(|| apps_router(portal.clone()));
        Self { side: Listener::Portal, router: router(portal.clone()), names, pages: Handle::current(), portal }
    }

    /// For the apps' listener.
    pub fn apps(portal: Arc<Portal>) -> Self {
        Self {
            side: Listener::Apps,
            router: apps_router(portal.clone()),
            names: None,
            pages: Handle::current(),
            portal,
        }
    }

    fn asked(&self, headers: &HeaderMap) -> (Listener, &Router) {
        match (&self.names, &self.portal.config.apps) {
            (Some(names), AppsOrigin::Subdomain(domain)) if gateway::is_below(headers, domain) => {
                (Listener::Apps, names)
            }
            _ => (self.side, &self.router),
        }
    }
}

impl<B> Service<Request<B>> for Front
where
    B: HttpBody<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Most requests have no body, and an empty one needs no box.
        let request = request.map(|body| if body.is_end_stream() { Body::empty() } else { Body::new(body) });
        let (side, router) = self.asked(request.headers());
        if request.uri().path().starts_with("/s/") {
            let portal = self.portal.clone();
            return Box::pin(async move { Ok(gateway::answer(&portal, side, request).await) });
        }
        let made = AbortOnDropHandle::new(self.pages.spawn(router.clone().oneshot(request)));
        Box::pin(async move {
            Ok(match made.await {
                Ok(Ok(response)) => response,
                // Panics are caught within; this is a runtime that ends.
                Err(_) => Error::unavailable("The portal is shutting down.", 3).into_response(),
            })
        })
    }
}
