//! The routes of files, named once: those of the API and those of pages. All of them need the scope of files, and none
//! of them does anything itself.

use utoipa_axum::routes;

use super::{content, pages, several, uploads};
use crate::{
    auth::scopes,
    web::http::routes::{Api, Pages},
};

pub fn api() -> Api {
    Api::within(&scopes::FILES)
        .routes(routes!(super::list, super::rename, super::delete))
        .routes(routes!(super::roots))
        .routes(routes!(super::storage))
        .routes(routes!(super::info))
        .routes(routes!(super::make_folder))
        .routes(routes!(several::move_all))
        .routes(routes!(several::copy_all))
        .routes(routes!(several::delete_all))
        .routes(routes!(content::content))
        .routes(routes!(uploads::begin))
        .routes(routes!(uploads::find, uploads::write, uploads::cancel))
        .routes(routes!(uploads::finish))
}

pub fn pages(others: Pages) -> Pages {
    others
        .and(&scopes::FILES)
        .get("/files", pages::folder)
        .get("/files/item", pages::item)
        .get("/files/download", content::content)
        .get("/files/picture", content::picture)
        .post("/files/folder", pages::make_folder)
        .post("/files/rename", pages::rename)
        .post("/files/delete", pages::delete)
        .post("/files/selected", several::selected)
        .post("/files/transfer", several::apply)
}
