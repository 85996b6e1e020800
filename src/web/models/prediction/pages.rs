//! What a model is asked about, as pages: the form on the model's page, the answer to one picture or
//! to a folder of them, and that as a table to download.

use std::sync::Arc;

use axum::{
    extract::{RawPathParams, State},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::{TestView, answered, table_of};
use crate::{
    model::ModelId,
    models::NewTest,
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{CurrentUser, Form, Id, Query},
        },
        models::pages::show_view,
        page::{Nav, Page},
        views::{self, AnswerPage, AnswersPage, LayerPage, Moment},
    },
};

/// `POST /models/{id}/infer`
pub async fn predict(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    form: Form,
) -> Result<Response> {
    let model = portal.models.find(user.actor(), id).await?;
    let picture: String = form.get("path").chars().take(4096).collect();
    let snapshot = Some(form.get("snapshot").to_owned()).filter(|snapshot| !snapshot.is_empty());
    // What is no number is one that the service refuses.
    let top = Some(form.get("top").trim()).filter(|top| !top.is_empty()).map(|top| top.parse().unwrap_or_default());
    let new = NewTest { picture: picture.clone(), snapshot, top };
    let error = match portal.models.predict(user.actor(), &model, new).await {
        Ok(test) => return Ok(Redirect::to(&format!("/models/{id}/tests/{}", test.id)).into_response()),
        Err(error) => Error::from(error),
    };
    if error.field_errors().is_empty() {
        return Err(error);
    }
    let errors = error.field_errors().iter().map(views::FieldError::from).collect();
    let view = show_view(&portal, &user, &model, (picture, errors)).await?;
    Ok(error.with_page(Page(view)))
}

/// Which of the answers to a folder are shown.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShownPredictions {
    /// Those whose first answer is this class.
    class: String,
}

/// `/models/{id}/tests/{test}`
pub async fn answer(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    Query(shown): Query<ShownPredictions>,
    parameters: RawPathParams,
) -> Result<Response> {
    let model = portal.models.find(user.actor(), id).await?;
    let asked = answered(&portal, &user, id, &parameters).await?;
    let when = Moment::ago(asked.test.created_at, portal.clock.now());
    let layout = portal.layout_of(&user.0, Nav::Models);
    let model = (model.id.to_string(), model.name);
    let folder = asked.test.picture.clone();
    let view = TestView::from(asked);
    if view.answers.is_some() {
        return Ok(Page(AnswersPage::new(layout, model, &folder, view, &shown.class, when)).into_response());
    }
    Ok(Page(AnswerPage::new(layout, model, view, when)).into_response())
}

/// `/models/{id}/tests/{test}/layers/{layer}`: what a layer makes of the image, and its weights.
pub async fn layer(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    parameters: RawPathParams,
) -> Result<Response> {
    let model = portal.models.find(user.actor(), id).await?;
    let asked = answered(&portal, &user, id, &parameters).await?;
    let number = parameters.iter().find(|(name, _)| *name == "layer").and_then(|(_, text)| text.parse().ok());
    let layout = portal.layout_of(&user.0, Nav::Models);
    let model = (model.id.to_string(), model.name);
    let page = number.and_then(|number| LayerPage::new(layout, model, &TestView::from(asked), number));
    Ok(Page(page.ok_or_else(Error::not_found)?).into_response())
}

/// `/models/{id}/tests/{test}/table`: the answers as CSV.
pub async fn table(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<ModelId>,
    parameters: RawPathParams,
) -> Result<Response> {
    let asked = answered(&portal, &user, id, &parameters).await?;
    table_of(&asked).ok_or_else(|| Error::conflict("The result is not complete yet."))
}
