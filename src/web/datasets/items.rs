//! What is in a dataset: its pictures as a list and one by one. Pictures leave as PNGs that the
//! portal drew itself; a browser is told what they are and not to guess.

use std::sync::Arc;

use axum::{
    extract::{RawPathParams, State},
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    datasets::{
        Contents,
        browse::{ItemQuery, ManifestRow, SortKey},
        build::{catalogue::Split, spec::Resize},
    },
    model::{Dataset, DatasetId, DatasetState},
    web::{
        Portal,
        http::{
            error::{Error, Problem, Result},
            extract::{CurrentUser, Id, Query},
        },
    },
};

/// An image of a dataset, or a file that is not used.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DatasetItem)]
pub struct ItemView {
    /// Row in the manifest, from 0. The image is at `items/{row}/picture`.
    pub row: u32,
    pub path: String,
    pub label: Option<String>,
    /// `train`, `val` or `test`; null for files in no split.
    pub split: Option<&'static str>,
    pub width: u32,
    pub height: u32,
    pub size_bytes: u64,
    /// Reason why the file is in no split.
    pub error: Option<String>,
    /// Boxes in pixels of the resized image.
    pub boxes: Vec<BoxView>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DatasetBox)]
pub struct BoxView {
    pub class: String,
    pub x: f32,
    pub y: f32,
    pub width: f32,
    pub height: f32,
}

impl ItemView {
    pub fn new(number: u32, row: &ManifestRow, contents: &Contents) -> Self {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let boxes = contents.index.boxes(row).iter().map(|one| BoxView {
            class: contents.document.classes.get(one.class as usize).cloned().unwrap_or_default(),
            x: one.x,
            y: one.y,
            width: one.width,
            height: one.height,
        });
        Self {
            row: number,
            path: row.path.to_string(),
            label: text(&row.label),
            split: row.split.map(Split::name),
            width: row.width,
            height: row.height,
            size_bytes: row.size,
            error: text(&row.error),
            boxes: boxes.collect(),
        }
    }
}

/// A page of the files of a dataset.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DatasetItems)]
pub struct ItemsView {
    pub items: Vec<ItemView>,
    pub next_cursor: Option<String>,
    /// Number of files that match the filter.
    pub total: usize,
}

/// Filter, sort order and paging of the files.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ItemParameters {
    /// Name of a class.
    #[param(required = false)]
    pub label: String,
    /// `train`, `val` or `test`; `none` for files in no split. Default: all files.
    #[param(required = false)]
    pub split: String,
    /// Part of the path, case-insensitive.
    #[param(required = false)]
    pub search: String,
    #[param(required = false, inline)]
    pub sort: SortKey,
    #[param(required = false)]
    pub descending: bool,
    #[param(minimum = 1, maximum = 500, default = 50)]
    pub limit: Option<i64>,
    pub cursor: Option<String>,
}

impl ItemParameters {
    pub fn wanted(&self, default_limit: usize) -> Result<ItemQuery> {
        let limit = match self.limit.map(usize::try_from) {
            None => default_limit,
            Some(Ok(limit @ 1..=500)) => limit,
            Some(_) => return Err(Error::field("limit", "out_of_range", "Must be between 1 and 500.")),
        };
        let split = Split::ALL.into_iter().find(|split| split.name() == self.split);
        if split.is_none() && !matches!(self.split.as_str(), "" | "none") {
            return Err(Error::field("split", "invalid_value", "Must be one of train, val, test, none."));
        }
        let no_cursor = || Error::field("cursor", "invalid_value", "Invalid cursor.");
        let after = self.cursor.as_deref().filter(|cursor| !cursor.is_empty());
        Ok(ItemQuery {
            label: Some(self.label.clone()).filter(|label| !label.is_empty()),
            split,
            broken: self.split == "none",
            used: false,
            find: self.search.chars().take(255).collect(),
            by: self.sort,
            descending: self.descending,
            after: after.map(|cursor| mark(cursor).ok_or_else(no_cursor)).transpose()?,
            limit,
        })
    }
}

pub fn cursor((value, row): (u64, u32)) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{value}.{row}"))
}

fn mark(cursor: &str) -> Option<(u64, u32)> {
    let text = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let (value, row) = text.split_once('.')?;
    Some((value.parse().ok()?, row.parse().ok()?))
}

/// Lists the images of a dataset, and the files that are not used.
#[utoipa::path(get, path = "/datasets/{id}/items", tag = "datasets", params(("id" = String, Path), ItemParameters),
    responses((status = 200, body = ItemsView), (status = 404, description = "Not found, or not visible to you", body = Problem),
        (status = 409, description = "The dataset is not ready, or cannot be listed", body = Problem),
        (status = 503, description = "The files of the dataset cannot be reached", body = Problem)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
    Query(parameters): Query<ItemParameters>,
) -> Result<axum::Json<ItemsView>> {
    let dataset = ready(&portal, &user, id).await?;
    let contents = portal.datasets.contents(&user.user, &dataset).await?;
    Ok(axum::Json(items(&contents, &parameters.wanted(50)?)))
}

pub fn items(contents: &Contents, wanted: &ItemQuery) -> ItemsView {
    let part = contents.index.list(wanted);
    let view = |number: &u32| Some(ItemView::new(*number, contents.index.row(*number)?, contents));
    ItemsView {
        items: part.rows.iter().filter_map(view).collect(),
        next_cursor: part.next.map(cursor),
        total: part.total,
    }
}

/// One that is there.
async fn ready(portal: &Portal, user: &CurrentUser, id: DatasetId) -> Result<Dataset> {
    let dataset = portal.datasets.find(user.actor(), id).await?;
    if dataset.state == DatasetState::Ready {
        Ok(dataset)
    } else {
        Err(Error::conflict("The dataset is not ready yet."))
    }
}

/// Size of the returned image.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct PictureParameters {
    /// Return the size in the dataset. By default no side is longer than 160 pixels.
    #[param(required = false)]
    full: bool,
}

/// Returns a resized image as PNG.
#[utoipa::path(get, path = "/datasets/{id}/items/{row}/picture", tag = "datasets",
    params(("id" = String, Path), ("row" = u32, Path), PictureParameters),
    responses((status = 200, body = Vec<u8>, content_type = "image/png"),
        (status = 404, description = "Not found", body = Problem), (status = 409, description = "The resized images were not stored", body = Problem)))]
pub async fn picture(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
    parameters: RawPathParams,
    Query(asked): Query<PictureParameters>,
) -> Result<Response> {
    let dataset = ready(&portal, &user, id).await?;
    Ok(png(portal.datasets.picture(&user.user, &dataset, row(&parameters)?, asked.full).await?))
}

/// Returns the mask of an image in colours as PNG.
#[utoipa::path(get, path = "/datasets/{id}/items/{row}/mask", tag = "datasets",
    params(("id" = String, Path), ("row" = u32, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "image/png"),
        (status = 404, description = "Not found", body = Problem), (status = 409, description = "The resized images were not stored", body = Problem)))]
pub async fn mask(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<DatasetId>,
    parameters: RawPathParams,
) -> Result<Response> {
    let dataset = ready(&portal, &user, id).await?;
    Ok(png(portal.datasets.mask(&user.user, &dataset, row(&parameters)?).await?))
}

/// Returns the mean of the training images as PNG.
#[utoipa::path(get, path = "/datasets/{id}/mean", tag = "datasets", params(("id" = String, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "image/png"),
        (status = 404, description = "Not found, or not visible to you", body = Problem),
        (status = 409, description = "The resized images were not stored", body = Problem)))]
pub async fn mean(user: CurrentUser, State(portal): State<Arc<Portal>>, Id(id): Id<DatasetId>) -> Result<Response> {
    let dataset = ready(&portal, &user, id).await?;
    Ok(png(portal.datasets.mean(&user.user, &dataset).await?))
}

/// An image and how to resize it.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExampleParameters {
    /// Path of an image, or of a folder: the first image in it is used.
    path: String,
    #[param(value_type = String)]
    resize: Resize,
    width: u32,
    height: u32,
    channels: Option<u8>,
    /// Return the size that was asked for. By default no side is longer than 160 pixels.
    #[serde(default)]
    #[param(required = false)]
    full: bool,
}

/// Resizes an image of yours and returns it as PNG.
#[utoipa::path(get, path = "/dataset-example", tag = "datasets", params(ExampleParameters),
    responses((status = 200, body = Vec<u8>, content_type = "image/png"),
        (status = 404, description = "There is no image at this path", body = Problem),
        (status = 422, description = "Validation failed", body = Problem),
        (status = 503, description = "Your files cannot be reached", body = Problem)))]
pub async fn example(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(asked): Query<ExampleParameters>,
) -> Result<Response> {
    for (field, side) in [("width", asked.width), ("height", asked.height)] {
        if !(1..=1024).contains(&side) {
            return Err(Error::field(field, "out_of_range", "Must be 1 to 1024 pixels."));
        }
    }
    let channels = asked.channels.unwrap_or(3);
    if !matches!(channels, 1 | 3) {
        return Err(Error::field("channels", "invalid_value", "Must be 1 or 3."));
    }
    let size = (asked.width, asked.height);
    Ok(png(portal.datasets.example(&user.user, &asked.path, asked.resize, size, channels, asked.full).await?))
}

fn row(parameters: &RawPathParams) -> Result<u32> {
    let row = parameters.iter().find(|(name, _)| *name == "row").and_then(|(_, row)| row.parse().ok());
    row.ok_or_else(Error::not_found)
}

/// Should a browser show it as a page, nothing in it runs.
const SANDBOX: (HeaderName, HeaderValue) =
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));

pub fn png(bytes: Vec<u8>) -> Response {
    let about = [
        SANDBOX,
        (header::CONTENT_TYPE, HeaderValue::from_static("image/png")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        // Whoever lost the right to see it should not have it for long.
        (header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=300")),
    ];
    (about, bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_and_splits() {
        assert_eq!(mark(&cursor((7, 3))), Some((7, 3)));
        for bad in ["", "x", "!!", "MTI"] {
            assert_eq!(mark(bad), None, "{bad}");
        }
        let wanted = |split: &str| ItemParameters { split: split.to_owned(), ..ItemParameters::default() }.wanted(50);
        assert!(wanted("none").unwrap().broken && !wanted("").unwrap().broken);
        assert_eq!(wanted("val").unwrap().split, Some(Split::Val));
        assert!(wanted("half").is_err());
    }
}
