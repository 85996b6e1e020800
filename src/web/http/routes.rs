//! Routes, each declared with what it needs of a token: pages go through [`Pages`], the API
//! through [`Api`], and neither begins without saying what its routes need. Both remember, because
//! axum's router cannot be asked what it routes. `openapi` completes the document that is made here.

use std::sync::Arc;

use axum::{
    Extension, Router,
    handler::Handler,
    http::Method,
    routing::{MethodRouter, get, post},
};
use utoipa::openapi::{
    self, OpenApi,
    path::{Operation, PathItem},
};

use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use crate::{
    auth::scopes::{self, RequiredScopes, Scope},
    web::Portal,
};

/// A method and a path template. `ANY` stands for all methods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub method: String,
    pub path: String,
}

/// What a request's route needs of a token with scopes; no route of ours is without it.
#[derive(Clone, Copy, Debug)]
pub(in crate::web) struct RouteScopes(pub &'static RequiredScopes);

/// Where the API begins.
pub(in crate::web) const API: &str = "/api/v1";

/// Routes of the API.
pub struct Api {
    router: OpenApiRouter<Arc<Portal>>,
    needs: &'static RequiredScopes,
    declared: Vec<(Route, &'static RequiredScopes)>,
}

impl Api {
    /// Begins with routes that need this of a token.
    #[must_use]
    pub fn within(needs: &'static RequiredScopes) -> Self {
        Self { router: OpenApiRouter::new(), needs, declared: Vec::new() }
    }

    /// Goes on with routes that need this of a token.
    #[must_use]
    pub fn and(self, needs: &'static RequiredScopes) -> Self {
        Self { needs, ..self }
    }

    #[must_use]
    pub fn routes(mut self, (schemas, mut paths, handler): UtoipaMethodRouter<Arc<Portal>>) -> Self {
        for (path, item) in &mut paths.paths {
            for (method, operation) in operations(item) {
                declare(operation, self.needs, method);
                let route = Route { method: method.to_owned(), path: format!("{API}{path}") };
                self.declared.push((route, self.needs));
            }
        }
        let handler = handler.route_layer(Extension(RouteScopes(self.needs)));
        Self { router: self.router.routes((schemas, paths, handler)), ..self }
    }

    /// Takes in what was declared elsewhere.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.declared.extend(other.declared);
        Self { router: self.router.merge(other.router), ..self }
    }

    /// The router below its address, and the document that describes it.
    pub(in crate::web) fn split(self) -> (Router<Arc<Portal>>, OpenApi) {
        OpenApiRouter::new().nest(API, self.router).split_for_parts()
    }

    /// In the order of the document.
    pub(in crate::web) fn declared(mut self) -> Vec<(Route, &'static RequiredScopes)> {
        self.declared.sort_by(|(one, _), (other, _)| one.path.cmp(&other.path));
        self.declared
    }
}

/// Says in the document what an operation needs of a token.
fn declare(operation: &mut Operation, needs: &RequiredScopes, method: &str) {
    let is_public = *needs == scopes::PUBLIC;
    let needed = needs.of(method);
    let names: Vec<&str> = needed.iter().map(|scope| scope.as_str()).collect();
    let told = match needed {
        _ if is_public => "No token is needed.".to_owned(),
        [] => "Tokens with scopes cannot be used.".to_owned(),
        all if all.len() == Scope::ALL.len() => "Any token can be used, regardless of its scopes.".to_owned(),
        [one] => format!("A token with scopes needs `{}`.", one.as_str()),
        _ => format!("A token with scopes needs one of `{}`.", names.join("`, `")),
    };
    let before = operation.description.take().filter(|text| !text.is_empty());
    operation.description = Some(before.map_or_else(|| told.clone(), |text| format!("{text}\n\n{told}")));
    if is_public {
        return;
    }
    let extensions = openapi::extensions::ExtensionsBuilder::new().add("x-scopes", names);
    operation.extensions.get_or_insert_default().merge(extensions.build());
}

/// The operations of a path, with their methods.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let operations = [
        ("GET", &mut item.get),
        ("POST", &mut item.post),
        ("PUT", &mut item.put),
        ("PATCH", &mut item.patch),
        ("DELETE", &mut item.delete),
    ];
    operations.into_iter().filter_map(|(method, operation)| operation.as_mut().map(|operation| (method, operation)))
}

/// A router of pages.
pub struct Pages {
    router: Router<Arc<Portal>>,
    needs: &'static RequiredScopes,
    declared: Vec<(Route, &'static RequiredScopes)>,
}

impl Pages {
    /// Begins with routes that need this of a token.
    #[must_use]
    pub fn within(needs: &'static RequiredScopes) -> Self {
        Self { router: Router::new(), needs, declared: Vec::new() }
    }

    /// Goes on with routes that need this of a token.
    #[must_use]
    pub fn and(self, needs: &'static RequiredScopes) -> Self {
        Self { needs, ..self }
    }

    #[must_use]
    pub fn get<H: Handler<T, Arc<Portal>>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.add(Method::GET.as_str(), path, get(handler))
    }

    #[must_use]
    pub fn post<H: Handler<T, Arc<Portal>>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.add(Method::POST.as_str(), path, post(handler))
    }

    pub(in crate::web) fn add(mut self, method: &str, path: &str, handler: MethodRouter<Arc<Portal>>) -> Self {
        self.declared.push((Route { method: method.to_owned(), path: path.to_owned() }, self.needs));
        self.router = self.router.route(path, handler.route_layer(Extension(RouteScopes(self.needs))));
        self
    }

    pub(in crate::web) fn into_router(self) -> Router<Arc<Portal>> {
        self.router
    }

    pub(in crate::web) fn declared(self) -> Vec<(Route, &'static RequiredScopes)> {
        self.declared
    }
}
