//! The routes of models, named once: those of the API and those of pages.

use utoipa_axum::routes;

use super::{ask, judged, pages, precisions, preview};
use crate::{
    auth::scopes,
    web::routes::{Api, Pages},
};

pub fn api() -> Api {
    Api::within(&scopes::JOBS)
        .routes(routes!(super::list, super::create))
        .routes(routes!(super::learning_rate))
        .routes(routes!(preview::ask))
        .routes(routes!(preview::find))
        .routes(routes!(preview::drawing))
        .routes(routes!(super::find, super::change, super::remove))
        .routes(routes!(super::snapshots))
        .routes(routes!(super::evaluation))
        .routes(routes!(super::predictions))
        .routes(routes!(judged::thresholds))
        .routes(routes!(judged::layers))
        .routes(routes!(judged::lineage))
        .routes(routes!(judged::scaling))
        .routes(routes!(judged::bundle))
        .routes(routes!(precisions::find, precisions::measure))
        .routes(routes!(ask::ask))
        .routes(routes!(ask::list))
        .routes(routes!(ask::find))
        .routes(routes!(ask::drawing))
}

pub fn pages(others: Pages) -> Pages {
    others
        .and(&scopes::ACCOUNT)
        .get("/models", pages::list)
        .post("/models", pages::create)
        .get("/models/new", pages::new)
        .post("/models/preview", preview::ask_by_form)
        .get("/models/previews/{id}", preview::show)
        .get("/models/{id}", pages::show)
        .post("/models/{id}/change", pages::change)
        .post("/models/{id}/remove", pages::remove)
        .post("/models/{id}/infer", ask::pages::ask)
        .post("/models/{id}/precisions", precisions::measure_by_form)
        .get("/models/{id}/predictions", pages::predictions)
        .get("/models/{id}/tests/{test}", ask::pages::answer)
        .get("/models/{id}/tests/{test}/table", ask::pages::table)
}
