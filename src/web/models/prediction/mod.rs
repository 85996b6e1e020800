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
    models::{Curves, Evaluation, LabelSummary, NewTest, Picture, PredictionState, Progress, SHOWN_SCORE},
    web::{
        Portal,
        audit::wants_csv,
        datasets::items::png,
        http::{
            csv,
            error::{Created, Error, Problem, Result},
            extract::{CurrentUser, Id, Query, whole_body},
            json,
            paging::Listed,
        },
    },
};

/// An inference request and its result.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelTest)]
pub struct TestView {
    #[schema(value_type = String, format = "uuid")]
    pub id: ModelTestId,
    #[schema(value_type = String, format = "uuid")]
    pub model: ModelId,
    /// The job that computes the predictions.
    #[schema(value_type = String, format = "uuid")]
    pub job: JobId,
    pub snapshot: String,
    pub picture: String,
    #[schema(value_type = String, format = "date-time")]
    pub created_at: Timestamp,
    /// `waiting`, `answered` or `failed`. This field and the following ones are not included in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub state: Option<&'static str>,
    /// True while parts of the result may still follow.
    #[serde(skip)]
    pub is_live: bool,
    /// Reason why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub detail: Option<String>,
    /// Progress in images, while a folder is processed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub progress: Option<Progress>,
    /// Classes of the model, in the order of its outputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub classes: Vec<String>,
    /// Size of the model's input, which boxes refer to, and how an image is resized to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub input: Option<InputView>,
    /// Prediction for a single image: `top` with classes and probabilities, `boxes` with class, score, x, y, width
    /// and height, or `share` of classes (docs/models.md).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, required = false)]
    pub answer: Option<Value>,
    /// Prediction for each image of a folder or a list, with its `path`, or its `error`. Of a labelled image also its
    /// `label`, or its true boxes (`truth`) with `missed` and `extra`, or `iou` and `accuracy`. `unscored` says why an
    /// image beside labels is not scored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>, required = false)]
    pub answers: Option<Vec<Value>>,
    /// Evaluation on the images whose class, boxes or mask are known: by the folder they are in, a list, or labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub evaluation: Option<Evaluation>,
    /// Labels that were found beside the images of a detection or segmentation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub labels: Option<LabelSummary>,
    #[serde(skip)]
    pub curves: Option<Curves>,
    /// For a single image: `layers` with their activations, `weights` with their layer, and the Grad-CAM map. Of both,
    /// histograms with mean, deviation, least, greatest, and the shares `zeros` and `not_finite`; `image`, if there is
    /// one, and how much of the values it shows (docs/trainer.md). Follows after the prediction.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, required = false)]
    pub inspection: Option<Value>,
}

/// Input of a model.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = ModelTestInput)]
pub struct InputView {
    pub width: u32,
    pub height: u32,
    pub channels: u8,
    /// `squash`, `crop`, `fill` or `half-crop`.
    pub resize: String,
}

impl TestView {
    /// Drops boxes with a lower score.
    fn with_score(mut self, least: f64) -> Self {
        for answer in self.answer.iter_mut().chain(self.answers.iter_mut().flatten()) {
            if let Some(boxes) = answer["boxes"].as_array_mut() {
                boxes.retain(|one| score_of(one) >= least);
            }
        }
        self
    }
}

/// The score of a box; results of earlier versions call it confidence.
pub fn score_of(one: &Value) -> f64 {
    one["score"].as_f64().or_else(|| one["confidence"].as_f64()).unwrap_or_default()
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
            classes: Vec::new(),
            input: None,
            answer: None,
            answers: None,
            evaluation: None,
            labels: None,
            curves: None,
            inspection: None,
        }
    }
}

impl From<PredictionState> for TestView {
    fn from(asked: PredictionState) -> Self {
        let mut answers = images(&asked).cloned();
        let one = answers.as_ref().is_some_and(|answers| answers.len() == 1);
        let answer = answers.take_if(|_| one).and_then(|mut answers| answers.pop());
        let state = match (&answer, &answers) {
            (None, None) if asked.is_live => "waiting",
            (None, None) => "failed",
            _ => "answered",
        };
        let about = asked.answer.prediction.as_ref();
        let classes = about.map(|about| about["classes"].as_array().into_iter().flatten());
        let classes = classes.map(|all| all.filter_map(|one| Some(one.as_str()?.to_owned())).collect());
        let (evaluation, curves) = asked.evaluation.unzip();
        Self {
            classes: classes.unwrap_or_default(),
            input: about.and_then(|about| serde_json::from_value(about["input"].clone()).ok()),
            evaluation,
            labels: asked.labels,
            curves: curves.flatten(),
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
fn images(asked: &PredictionState) -> Option<&Vec<Value>> {
    asked.answer.prediction.as_ref().and_then(|prediction| prediction["images"].as_array())
}

/// The answers as a table: a line for each picture, a pair of columns for each class that is named.
fn table_of(asked: &PredictionState) -> Option<Response> {
    let text = table_text(images(asked)?);
    let about = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"predictions.csv\""),
    ];
    Some((about, text).into_response())
}

fn table_text(images: &[Value]) -> String {
    if images.iter().any(|image| image["boxes"].is_array()) {
        return boxes_text(images);
    }
    let named = |image: &Value| -> Vec<(String, String)> {
        let rows = image["top"].as_array().into_iter().flatten();
        let of_list =
            rows.map(|row| (row["class"].as_str().unwrap_or_default().to_owned(), row["probability"].to_string()));
        let shares = image["share"].as_object().into_iter().flatten();
        let values = image["values"].as_array().into_iter().flatten();
        let values =
            values.map(|row| (row["output"].as_str().unwrap_or_default().to_owned(), row["value"].to_string()));
        of_list.chain(shares.map(|(class, share)| (class.clone(), share.to_string()))).chain(values).collect()
    };
    let rows: Vec<_> = images.iter().map(|image| (image, named(image))).collect();
    let pairs = rows.iter().map(|(_, named)| named.len()).max().unwrap_or_default();
    let heads = (1..=pairs).flat_map(|number| [format!("class_{number}"), format!("value_{number}")]);
    // Where classes are known, a column says whether the first is the right one.
    let is_labelled = images.iter().any(|image| image["label"].is_string());
    // Where masks are known, columns say how well they are predicted.
    let is_measured = images.iter().any(|image| image["iou"].is_number());
    let known: &[&str] = match (is_labelled, is_measured) {
        (true, _) => &["label", "correct"],
        (_, true) => &["iou", "accuracy"],
        _ => &[],
    };
    let heads_of_known = known.len();
    let first = ["path", "error"].iter().chain(known).map(|head| (*head).to_owned());
    let mut text = csv::line(first.chain(heads));
    for (image, named) in rows {
        let word = |name: &str| image[name].as_str().unwrap_or_default().to_owned();
        let correct = match (image["label"].as_str(), named.first()) {
            (Some(label), Some((class, _))) => (label == class).to_string(),
            _ => String::new(),
        };
        let cells = named.into_iter().flat_map(|(class, value)| [class, value]);
        let measure = |name: &str| image[name].as_f64().map(|value| value.to_string()).unwrap_or_default();
        let known = if is_labelled { [word("label"), correct] } else { [measure("iou"), measure("accuracy")] };
        let known = known.into_iter().filter(|_| is_labelled || is_measured);
        let first = [word("path"), word("error")].into_iter().chain(known);
        let cells = first.chain(cells).chain(std::iter::repeat(String::new()));
        text += &csv::line(cells.take(2 + heads_of_known + 2 * pairs));
    }
    text
}

/// A line for each box that counts as a prediction; an image without one has a line without a box. Where true boxes are
/// known, each has a line too, and columns say which kind a box is and whether it has a counterpart.
fn boxes_text(images: &[Value]) -> String {
    let sides = ["x", "y", "width", "height"];
    let is_compared = images.iter().any(|image| image["truth"].is_array());
    let known: &[&str] = if is_compared { &["box", "matched"] } else { &[] };
    let heads = ["path", "error", "class", "score"].iter().chain(&sides).chain(known).map(|head| (*head).to_owned());
    let mut text = csv::line(heads);
    for image in images {
        let word = |name: &str| image[name].as_str().unwrap_or_default().to_owned();
        let of = |list: &str| image[list].as_array().into_iter().flatten();
        let row = |one: &Value, score: String, kind: &str, matched: &str| {
            let class = one["class"].as_str().unwrap_or_default().to_owned();
            let matched = one[matched].as_bool().map(|is| is.to_string()).unwrap_or_default();
            let of_known = [kind.to_owned(), matched].into_iter().take(known.len());
            let place = sides.iter().map(|side| one[*side].to_string());
            [class, score].into_iter().chain(place).chain(of_known).collect()
        };
        let found = of("boxes").filter(|one| score_of(one) >= SHOWN_SCORE);
        let found = found.map(|one| row(one, score_of(one).to_string(), "predicted", "hit"));
        let truth = of("truth").map(|one| row(one, String::new(), "true", "found"));
        let mut rows: Vec<Vec<String>> = found.chain(truth).collect();
        if rows.is_empty() {
            rows.push(vec![String::new(); 6 + known.len()]);
        }
        for row in rows {
            text += &csv::line([word("path"), word("error")].into_iter().chain(row));
        }
    }
    text
}

/// Options of an inference request.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct TestParameters {
    /// A checkpoint from `GET /models/{id}/snapshots`. Default: the best.
    #[param(required = false)]
    snapshot: String,
    /// Number of classes to return for each image, 1 to 100. Default: 5.
    top: Option<u32>,
    /// File name of an uploaded image.
    #[param(required = false)]
    name: String,
}

/// Path of an image or of a folder of images.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PictureByPath)]
pub struct ByPath {
    /// Absolute path, or `~/…`.
    path: String,
}

/// Runs inference. A job of yours computes the predictions.
///
/// The body is the path of an image or a folder of images as JSON (`{"path": …}`), or an image
/// (`Content-Type: image/…`).
#[utoipa::path(post, path = "/models/{id}/infer", tag = "models", params(("id" = String, Path), TestParameters),
    request_body(content((ByPath = "application/json"), (Vec<u8> = "image/*"))),
    responses((status = 201, body = TestView), (status = 404, description = "Not found, or not visible to you", body = Problem),
        (status = 409, description = "The model has no checkpoint yet, or the quota does not allow the job", body = Problem),
        (status = 413, description = "The image is larger than 32 MiB", body = Problem),
        (status = 422, description = "The image or checkpoint does not exist", body = Problem)))]
pub async fn predict(
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
            size.map_err(|_err| Error::field("Content-Length", "required", "Send the size of the image in bytes."))?;
        let name = file_name(&asked.name, kind);
        portal.models.take_in(&user.user, &name, size, Body::into_data_stream(request.into_body())).await?
    } else {
        let body: ByPath = json::parse(&whole_body(request).await?)?;
        body.path
    };
    let snapshot = Some(asked.snapshot).filter(|snapshot| !snapshot.is_empty());
    let test = portal.models.predict(user.actor(), &model, NewTest { picture, snapshot, top: asked.top }).await?;
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

/// Lists your inference requests to this model, newest first.
#[utoipa::path(get, path = "/models/{id}/tests", tag = "models", params(("id" = String, Path)),
    responses((status = 200, body = Listed<TestView>), (status = 404, description = "Not found, or not visible to you", body = Problem)))]
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
) -> Result<Listed<TestView>> {
    let model = portal.models.find(user.actor(), id).await?;
    let asked = portal.models.model_tests(&user.user, &model).await?;
    Ok(Listed { items: asked.into_iter().map(TestView::from).collect(), next_cursor: None })
}

/// Options of a result.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AnswerParameters {
    /// Lowest score of a box, 0.05 to 1. Default: 0.3.
    #[param(minimum = 0.05, maximum = 1)]
    min_score: Option<f64>,
}

/// Returns an inference request of yours and its result. With `Accept: text/csv` the result is a table.
#[utoipa::path(get, path = "/models/{id}/tests/{test}", tag = "models", params(("id" = String, Path), ("test" = String, Path), AnswerParameters),
    responses((status = 200, content((TestView = "application/json"), (String = "text/csv"))),
        (status = 404, description = "Not found, or not yours", body = Problem),
        (status = 409, description = "The result is not complete, so that there is no table", body = Problem),
        (status = 422, description = "Validation failed", body = Problem),
        (status = 503, description = "Your files cannot be reached", body = Problem)))]
pub async fn find(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    parameters: RawPathParams,
    Query(wanted): Query<AnswerParameters>,
    headers: HeaderMap,
) -> Result<Response> {
    let least = wanted.min_score.unwrap_or(SHOWN_SCORE);
    if !(0.05..=1.0).contains(&least) {
        return Err(Error::field("min_score", "out_of_range", "Must be between 0.05 and 1."));
    }
    let asked = answered(&portal, &user, id, &parameters).await?;
    if wants_csv(&headers) {
        return table_of(&asked).ok_or_else(|| Error::conflict("The result is not complete yet."));
    }
    Ok(axum::Json(TestView::from(asked).with_score(least)).into_response())
}

/// One that belongs to the model of the address.
pub async fn answered(
    portal: &Portal,
    user: &CurrentUser,
    model: ModelId,
    parameters: &RawPathParams,
) -> Result<PredictionState> {
    let asked = portal.models.answer(user.actor(), test_id(parameters)?).await?;
    if asked.test.model == model { Ok(asked) } else { Err(Error::not_found()) }
}

fn test_id(parameters: &RawPathParams) -> Result<ModelTestId> {
    let text = parameters.iter().find(|(name, _)| *name == "test").map(|(_, text)| text);
    text.and_then(|text| text.parse().ok()).ok_or_else(Error::not_found)
}

/// Returns a drawing of a result as PNG: `seen`, `grad-cam`; `mask-`, `truth-` or `output-` with the number of an image
/// from 0; the activations of the layer with this number, or `weights-` with the number of weights.
#[utoipa::path(get, path = "/models/{id}/tests/{test}/{drawing}", tag = "models",
    params(("id" = String, Path), ("test" = String, Path), ("drawing" = String, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "image/png"),
        (status = 404, description = "Not found", body = Problem)))]
pub async fn drawing(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    parameters: RawPathParams,
) -> Result<Response> {
    let word = parameters.iter().find(|(name, _)| *name == "drawing").map(|(_, word)| word);
    let picture = word.and_then(Picture::parse).ok_or_else(Error::not_found)?;
    let bytes = portal.models.drawing(&user.user, (id, test_id(&parameters)?), picture).await?;
    let drawn = tokio::task::spawn_blocking(move || match picture {
        Picture::Mask(_) | Picture::Truth(_) => preview::coloured(&bytes),
        _ => preview::redrawn(&bytes),
    })
    .await
    .ok()
    .flatten();
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
    fn a_table_of_labelled_pictures_says_which_are_right() {
        let top = |class: &str| serde_json::json!([{"class": class, "probability": 0.75}]);
        let images = [
            serde_json::json!({"path": "a", "label": "cat", "top": top("cat")}),
            serde_json::json!({"path": "b", "label": "dog", "top": top("cat")}),
            serde_json::json!({"path": "c", "top": top("cat")}),
        ];
        assert_eq!(
            table_text(&images),
            "\"path\",\"error\",\"label\",\"correct\",\"class_1\",\"value_1\"\r\n\
             \"a\",\"\",\"cat\",\"true\",\"cat\",\"0.75\"\r\n\"b\",\"\",\"dog\",\"false\",\"cat\",\"0.75\"\r\n\
             \"c\",\"\",\"\",\"\",\"cat\",\"0.75\"\r\n"
        );
    }

    #[test]
    fn a_table_of_boxes_has_a_line_for_each() {
        let one =
            |score: f64| serde_json::json!({"class": "car", "score": score, "x": 1.5, "y": 2, "width": 3, "height": 4});
        let images = [
            serde_json::json!({"path": "a", "boxes": [one(0.9), one(0.1)]}),
            serde_json::json!({"path": "b", "boxes": []}),
        ];
        assert_eq!(
            table_text(&images),
            "\"path\",\"error\",\"class\",\"score\",\"x\",\"y\",\"width\",\"height\"\r\n\
             \"a\",\"\",\"car\",\"0.9\",\"1.5\",\"2\",\"3\",\"4\"\r\n\
             \"b\",\"\",\"\",\"\",\"\",\"\",\"\",\"\"\r\n"
        );
    }

    #[test]
    fn a_table_of_scored_pictures_has_the_truth() {
        let sides = |mut one: Value| {
            for side in ["x", "y", "width", "height"] {
                one[side] = serde_json::json!(2);
            }
            one
        };
        let found = sides(serde_json::json!({"class": "car", "score": 0.5, "hit": true}));
        let truth = sides(serde_json::json!({"class": "dog", "found": false}));
        let images = [
            serde_json::json!({"path": "a", "boxes": [found], "truth": [truth]}),
            serde_json::json!({"path": "b", "boxes": [], "truth": []}),
        ];
        assert_eq!(
            table_text(&images),
            "\"path\",\"error\",\"class\",\"score\",\"x\",\"y\",\"width\",\"height\",\"box\",\"matched\"\r\n\
             \"a\",\"\",\"car\",\"0.5\",\"2\",\"2\",\"2\",\"2\",\"predicted\",\"true\"\r\n\
             \"a\",\"\",\"dog\",\"\",\"2\",\"2\",\"2\",\"2\",\"true\",\"false\"\r\n\
             \"b\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\"\r\n"
        );
        let images = [serde_json::json!({"path": "c", "share": {"sky": 1}, "iou": 0.25, "accuracy": 0.5})];
        assert_eq!(
            table_text(&images),
            "\"path\",\"error\",\"iou\",\"accuracy\",\"class_1\",\"value_1\"\r\n\
             \"c\",\"\",\"0.25\",\"0.5\",\"sky\",\"1\"\r\n"
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
