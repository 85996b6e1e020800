//! The routes of models, named once: those of the API and those of pages.

use utoipa_axum::routes;

use super::{bundles, details, pages, precisions, prediction, preview};
use crate::{
    auth::scopes,
    web::{
        http::routes::{Api, Pages},
        selection,
    },
};

pub fn api() -> Api {
    Api::within(&scopes::JOBS)
        .routes(routes!(super::list, super::create))
        .routes(routes!(super::learning_rate))
        .routes(routes!(super::network))
        .routes(routes!(preview::ask))
        .routes(routes!(preview::find))
        .routes(routes!(preview::drawing))
        .routes(routes!(super::find, super::change, super::remove))
        .routes(routes!(super::snapshots))
        .routes(routes!(super::evaluation))
        .routes(routes!(super::predictions))
        .routes(routes!(details::thresholds))
        .routes(routes!(details::curves))
        .routes(routes!(details::mask))
        .routes(routes!(details::layers))
        .routes(routes!(details::lineage))
        .routes(routes!(details::scaling))
        .routes(routes!(details::bundle))
        .routes(routes!(bundles::exports, bundles::export))
        .routes(routes!(bundles::import))
        .routes(routes!(precisions::find, precisions::measure))
        .routes(routes!(prediction::predict))
        .routes(routes!(prediction::list))
        .routes(routes!(prediction::find))
        .routes(routes!(prediction::drawing))
}

pub fn pages(others: Pages) -> Pages {
    others
        .and(&scopes::ACCOUNT)
        .get("/models", pages::list)
        .post("/models", pages::create)
        .post("/models/selection", selection::models)
        .get("/models/new", pages::new)
        .post("/models/imports", bundles::import_by_form)
        .post("/models/preview", preview::ask_by_form)
        .post("/models/customize", pages::customize)
        .get("/models/previews/{id}", preview::show)
        .get("/models/{id}", pages::show)
        .post("/models/{id}/change", pages::change)
        .post("/models/{id}/remove", pages::remove)
        .post("/models/{id}/exports", bundles::export_by_form)
        .post("/models/{id}/infer", prediction::pages::predict)
        .post("/models/{id}/precisions", precisions::measure_by_form)
        .get("/models/{id}/predictions", pages::predictions)
        .get("/models/{id}/tests/{test}", prediction::pages::answer)
        .get("/models/{id}/tests/{test}/table", prediction::pages::table)
        .get("/models/{id}/tests/{test}/layers/{layer}", prediction::pages::layer)
}
