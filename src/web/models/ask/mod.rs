//! Pictures that a model is asked about: a path of one or of a folder, or the picture itself as the
//! request's body. A job answers; until then the answer says that it is awaited. Drawings leave as
//! PNGs that the portal drew itself. The pages are in `pages`.

pub mod pages;

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{RawPathParams, Request, State},
    http::{HeaderMap, HeaderName, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::{
    datasets::preview,
    model::{JobId, ModelId, ModelTest, ModelTestId, Timestamp},
    models::{Asked, NewTest, Picture, Progress},
    web::{
        Portal,
        audit::wants_csv,
        csv,
        datasets::items::png,
        error::{Created, Error, Problem, Result},
        extract::{CurrentUser, Id, Query, whole_body},
        json,
        paging::Listed,
    },
};

/// A picture that a model was asked about.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelTest)]
pub struct TestView {
    #[schema(value_type = String, format = "uuid")]
    pub id: ModelTestId,
    #[schema(value_type = String, format = "uuid")]
    pub model: ModelId,
    /// What answers.
    #[schema(value_type = String, format = "uuid")]
    pub job: JobId,
    pub snapshot: String,
    pub picture: String,
    #[schema(value_type = String, format = "date-time")]
    pub created_at: Timestamp,
    /// `waiting`, `answered` or `failed`; lists leave it and what follows out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub state: Option<&'static str>,
    /// Whether more of it may come.
    #[serde(skip)]
    pub is_live: bool,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub detail: Option<String>,
    /// How many pictures of how many are answered, while a folder is gone through.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub progress: Option<Progress>,
    /// What the model says of one picture: `top` with classes and probabilities, `boxes`, or `share` of classes (docs/models.md).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, required = false)]
    pub answer: Option<Value>,
    /// The same for each picture of a folder, with its `path`; or its `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>, required = false)]
    pub answers: Option<Vec<Value>>,
    /// Activations and weights by layer, and where in the picture the answer comes from. It comes after the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, required = false)]
    pub inspection: Option<Value>,
}

impl From<ModelTest> for TestView {
    fn from(one: ModelTest) -> Self {
        Self {
            id: one.id,
            model: one.model,
            job: one.job,
            snapshot: one.snapshot,
            picture: one.picture,
            created_at: one.created_at,
            state: None,
            is_live: false,
            detail: None,
            progress: None,
            answer: None,
            answers: None,
            inspection: None,
        }
    }
}

impl From<Asked> for TestView {
    fn from(asked: Asked) -> Self {
        let mut answers = images(&asked).cloned();
        let one = answers.as_ref().is_some_and(|answers| answers.len() == 1);
        let answer = answers.take_if(|_| one).and_then(|mut answers| answers.pop());
        let state = match (&answer, &answers) {
            (None, None) if asked.is_live => "waiting",
            (None, None) => "failed",
            _ => "answered",
        };
        Self {
            state: Some(state),
            is_live: asked.is_live,
            detail: Some(asked.detail).filter(|detail| !detail.is_empty()),
            progress: asked.progress,
            answer,
            answers,
            inspection: asked.answer.inspection,
            ..Self::from(asked.test)
        }
    }
}

/// What was said of each picture, in their order.
fn images(asked: &Asked) -> Option<&Vec<Value>> {
    asked.answer.prediction.as_ref().and_then(|prediction| prediction["images"].as_array())
}

/// The answers as a table: a line for each picture, a pair of columns for each class that is named.
fn table_of(asked: &Asked) -> Option<Response> {
    let text = table_text(images(asked)?);
    let about = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"answers.csv\""),
    ];
    Some((about, text).into_response())
}

fn table_text(images: &[Value]) -> String {
    let named = |image: &Value| -> Vec<(String, String)> {
        let list = if image["boxes"].is_array() { ("boxes", "confidence") } else { ("top", "probability") };
        let rows = image[list.0].as_array().into_iter().flatten();
        let of_list = rows.map(|row| (row["class"].as_str().unwrap_or_default().to_owned(), row[list.1].to_string()));
        let shares = image["share"].as_object().into_iter().flatten();
        of_list.chain(shares.map(|(class, share)| (class.clone(), share.to_string()))).collect()
    };
    let rows: Vec<_> = images.iter().map(|image| (image, named(image))).collect();
    let pairs = rows.iter().map(|(_, named)| named.len()).max().unwrap_or_default();
    let heads = (1..=pairs).flat_map(|number| [format!("class_{number}"), format!("value_{number}")]);
    let mut text = csv::line(["path".to_owned(), "error".to_owned()].into_iter().chain(heads));
    for (image, named) in rows {
        let word = |name: &str| image[name].as_str().unwrap_or_default().to_owned();
        let cells = named.into_iter().flat_map(|(class, value)| [class, value]);
        let cells = [word("path"), word("error")].into_iter().chain(cells).chain(std::iter::repeat(String::new()));
        text += &csv::line(cells.take(2 + 2 * pairs));
    }
    text
}

/// Which snapshot, and what a picture that is sent is called.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct TestParameters {
    /// Of `GET /models/{id}/snapshots`; the best where nothing is said.
    #[param(required = false)]
    snapshot: String,
    /// How many classes are named, 1 to 100; 5 where nothing is said.
    top: Option<u32>,
    /// The name of a picture that is sent.
    #[param(required = false)]
    name: String,
}

/// A picture, or a folder of them, by its path.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PictureByPath)]
pub struct ByPath {
    /// Absolute, or below `~/`.
    path: String,
}

/// Ask a model about a picture or a folder of them: `{"path": …}` as JSON; or about a picture that is sent, with `Content-Type: image/…`. A job answers.
#[utoipa::path(post, path = "/models/{id}/infer", tag = "models", params(("id" = String, Path), TestParameters),
    request_body(content((ByPath = "application/json"), (Vec<u8> = "image/*"))),
    responses((status = 201, body = TestView), (status = 404, description = "There is none that you may see", body = Problem),
        (status = 409, description = "It has no snapshot yet, or the quota does not allow the job", body = Problem),
        (status = 413, description = "The picture is larger than 32 MiB", body = Problem),
        (status = 422, description = "There is no such picture or snapshot", body = Problem)))]
pub async fn ask(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Query(asked): Query<TestParameters>,
    request: Request,
) -> Result<Created<TestView>> {
    let model = portal.models.find(user.actor(), id).await?;
    let (kind, size) = (header_of(&request, &header::CONTENT_TYPE), header_of(&request, &header::CONTENT_LENGTH));
    let picture = if let Some(kind) = kind.strip_prefix("image/") {
        let size = size.parse();
        let size =
            size.map_err(|_err| Error::field("Content-Length", "required", "Say how many bytes the picture has."))?;
        let name = file_name(&asked.name, kind);
        portal.models.take_in(&user.user, &name, size, Body::into_data_stream(request.into_body())).await?
    } else {
        let body: ByPath = json::parse(&whole_body(request).await?)?;
        body.path
    };
    let snapshot = Some(asked.snapshot).filter(|snapshot| !snapshot.is_empty());
    let test = portal.models.ask(user.actor(), &model, NewTest { picture, snapshot, top: asked.top }).await?;
    Ok(Created(format!("/api/v1/models/{id}/tests/{}", test.id), test.into()))
}

fn header_of(request: &Request, name: &HeaderName) -> String {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// A name of a file that needs no quotes.
fn file_name(name: &str, kind: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let mut kept: String = name.chars().map(|c| if plain(c) { c } else { '-' }).take(100).collect();
    if kept.trim_matches(['-', '.']).is_empty() {
        let kind: String = kind.chars().take_while(char::is_ascii_alphanumeric).take(8).collect();
        kept = format!("picture.{kind}");
    }
    kept.trim_start_matches('.').to_owned()
}

/// What you asked this model, the latest first.
#[utoipa::path(get, path = "/models/{id}/tests", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = Listed<TestView>), (status = 404, description = "There is none that you may see", body = Problem)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<Listed<TestView>> {
    let model = portal.models.find(user.actor(), id).await?;
    let asked = portal.models.asked(&user.user, &model).await?;
    Ok(Listed { items: asked.into_iter().map(TestView::from).collect(), next_cursor: None })
}

/// A picture or a folder that you asked about, with the answer once it is there; with `Accept: text/csv` as a table.
#[utoipa::path(get, path = "/models/{id}/tests/{test}", tag = "models", params(("id" = String, Path), ("test" = String, Path)),
    responses((status = 200, content((TestView = "application/json"), (String = "text/csv"))),
        (status = 404, description = "There is none of yours", body = Problem),
        (status = 409, description = "A table of what is not answered yet", body = Problem),
        (status = 503, description = "Your files cannot be reached", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    parameters: RawPathParams,
    headers: HeaderMap,
) -> Result<Response> {
    let asked = answered(&portal, &user, id, &parameters).await?;
    if wants_csv(&headers) {
        return table_of(&asked).ok_or_else(|| Error::conflict("There is no answer yet."));
    }
    Ok(axum::Json(TestView::from(asked)).into_response())
}

/// One that belongs to the model of the address.
pub async fn answered(
    portal: &Portal,
    user: &CurrentUser,
    model: ModelId,
    parameters: &RawPathParams,
) -> Result<Asked> {
    let asked = portal.models.answer(user.actor(), test_id(parameters)?).await?;
    if asked.test.model == model { Ok(asked) } else { Err(Error::not_found()) }
}

fn test_id(parameters: &RawPathParams) -> Result<ModelTestId> {
    let text = parameters.iter().find(|(name, _)| *name == "test").map(|(_, text)| text);
    text.and_then(|text| text.parse().ok()).ok_or_else(Error::not_found)
}

/// A drawing of an answer as PNG: `seen`, `grad-cam`, or the maps of a layer by its number.
#[utoipa::path(get, path = "/models/{id}/tests/{test}/{drawing}", tag = "models",
    params(("id" = String, Path), ("test" = String, Path), ("drawing" = String, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "image/png"),
        (status = 404, description = "There is none", body = Problem)))]
pub async fn drawing(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    parameters: RawPathParams,
) -> Result<Response> {
    let word = parameters.iter().find(|(name, _)| *name == "drawing").map(|(_, word)| word);
    let picture = word.and_then(Picture::parse).ok_or_else(Error::not_found)?;
    let bytes = portal.models.drawing(&user.user, (id, test_id(&parameters)?), picture).await?;
    let drawn = tokio::task::spawn_blocking(move || preview::redrawn(&bytes)).await.ok().flatten();
    Ok(png(drawn.ok_or_else(Error::not_found)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_picture() {
        let images = [
            serde_json::json!({"path": "=a.png", "top": [{"class": "cat", "probability": 0.75}, {"class": "dog", "probability": 0.25}]}),
            serde_json::json!({"path": "b.png", "error": "is empty"}),
        ];
        assert_eq!(
            table_text(&images),
            "\"path\",\"error\",\"class_1\",\"value_1\",\"class_2\",\"value_2\"\r\n\
             \"'=a.png\",\"\",\"cat\",\"0.75\",\"dog\",\"0.25\"\r\n\"b.png\",\"is empty\",\"\",\"\",\"\",\"\"\r\n"
        );
    }

    #[test]
    fn names_of_pictures_that_are_sent() {
        for (name, kind, file) in [
            ("cat.png", "png", "cat.png"),
            ("", "jpeg; q=1", "picture.jpeg"),
            ("../../etc/passwd", "png", "-..-etc-passwd"),
            ("...", "../x", "picture."),
            ("日本", "png", "picture.png"),
        ] {
            assert_eq!(file_name(name, kind), file);
        }
    }
}
