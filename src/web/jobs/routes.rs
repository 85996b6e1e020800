//! The routes of the pages of jobs and of sweeps. Those of the API are in `web`, where those of
//! one scope stand together.

use super::{form, list, pages};
use crate::{
    auth::scopes,
    web::{http::routes::Pages, selection, sweeps, trash},
};

/// Adds the pages to those that are there.
pub fn pages(others: Pages) -> Pages {
    others
        .and(&scopes::ACCOUNT)
        .get("/jobs", list::page)
        .post("/jobs", form::submit)
        .get("/jobs/new", form::page)
        .post("/jobs/presets", form::save_preset)
        .post("/jobs/selection", list::selection)
        .post("/jobs/queue", sweeps::queue::change)
        .get("/sweeps", sweeps::pages::list)
        .post("/sweeps/selection", selection::sweeps)
        .get("/sweeps/{id}", sweeps::pages::show)
        .post("/sweeps/{id}/pause", sweeps::pages::pause)
        .post("/sweeps/{id}/resume", sweeps::pages::resume)
        .post("/sweeps/{id}/stop", sweeps::pages::stop)
        .post("/sweeps/{id}/delete", sweeps::pages::delete)
        .get("/jobs/{id}", pages::show)
        .post("/jobs/{id}", pages::change)
        .post("/jobs/{id}/cancel", pages::cancel)
        .post("/jobs/{id}/resume", pages::resume)
        .post("/jobs/{id}/star", pages::star)
        .post("/jobs/{id}/delete", pages::delete)
        .post("/trash/empty", trash::empty_by_form)
}
