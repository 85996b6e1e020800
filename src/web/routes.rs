//! Lists of routes: axum's router cannot be asked what it routes, so pages go through
//! [`Pages`], which remembers, and the API through its OpenAPI document.

use std::sync::Arc;

use axum::{
    Router,
    handler::Handler,
    http::Method,
    routing::{MethodRouter, any, get, post},
};
use utoipa::openapi::{
    self, Content, InfoBuilder, OpenApi, Ref, RefOr, ResponseBuilder,
    path::Operation,
    security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
};

use super::Portal;

/// A method and a path template. `ANY` stands for all methods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub method: String,
    pub path: String,
}

/// A router that remembers its routes.
#[derive(Default)]
pub struct Pages {
    router: Router<Arc<Portal>>,
    list: Vec<Route>,
}

impl Pages {
    #[must_use]
    pub fn get<H: Handler<T, Arc<Portal>>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.add(Method::GET.as_str(), path, get(handler))
    }

    #[must_use]
    pub fn post<H: Handler<T, Arc<Portal>>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.add(Method::POST.as_str(), path, post(handler))
    }

    #[must_use]
    pub fn any<H: Handler<T, Arc<Portal>>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.add("ANY", path, any(handler))
    }

    pub(super) fn add(mut self, method: &str, path: &str, handler: MethodRouter<Arc<Portal>>) -> Self {
        self.list.push(Route { method: method.to_owned(), path: path.to_owned() });
        self.router = self.router.route(path, handler);
        self
    }

    pub(super) fn into_router(self) -> Router<Arc<Portal>> {
        self.router
    }

    pub(super) fn list(self) -> impl Iterator<Item = Route> {
        self.list.into_iter()
    }
}

/// The routes that a document describes.
pub(super) fn of_document(document: &OpenApi) -> impl Iterator<Item = Route> {
    document.paths.paths.iter().flat_map(|(path, item)| {
        [("GET", &item.get), ("POST", &item.post), ("PUT", &item.put), ("PATCH", &item.patch), ("DELETE", &item.delete)]
            .into_iter()
            .filter(|(_, operation)| operation.is_some())
            .map(|(method, _)| Route { method: method.to_owned(), path: path.clone() })
    })
}

/// What the document says besides its routes, and what is alike for all of them.
pub(super) fn describe(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        let operations = [
            ("get", &mut item.get),
            ("post", &mut item.post),
            ("put", &mut item.put),
            ("patch", &mut item.patch),
            ("delete", &mut item.delete),
        ];
        for (method, operation) in operations {
            if let Some(operation) = operation {
                complete(operation, method, path);
            }
        }
    }
    document.info = InfoBuilder::new()
        .title("Lyceum")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Everything that the portal's pages do. Errors are problem documents (RFC 9457)."))
        .build();
    let components = document.components.get_or_insert_with(openapi::Components::new);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    let cookie = ApiKeyValue::with_description("lyceum_login", "a browser's login; changes need proof of origin");
    components.add_security_scheme("login", SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
    document.security = Some(vec![
        SecurityRequirement::new("token", Vec::<String>::new()),
        SecurityRequirement::new("login", Vec::<String>::new()),
    ]);
}

/// Gives an operation an id of its own, and its errors their form: problem documents.
fn complete(operation: &mut Operation, method: &str, path: &str) {
    // Handlers of different files may share a name; a method and a path are there once.
    let words = path.trim_start_matches("/api/v1/").split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    operation.operation_id = Some(format!("{method}_{}", words.join("_")));

    let problem = || Content::new(Some(Ref::from_schema_name("Problem")));
    for (status, response) in &mut operation.responses.responses {
        if let (RefOr::T(response), true) = (response, status.starts_with(['4', '5'])) {
            response.content.clear();
            response.content.insert(PROBLEM.to_owned(), problem().into());
        }
    }
    let other = ResponseBuilder::new().description("Any error").content(PROBLEM, problem()).build();
    operation.responses.responses.insert("default".to_owned(), other.into());
}

const PROBLEM: &str = "application/problem+json";
