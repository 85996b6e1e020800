//! `/images`: the container images with how far they are, and for administrators the form that adds one and the buttons
//! that pull and remove. The rules are the service's.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use crate::{
    images::{NewImage, SUGGESTIONS},
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{Admin, CurrentUser, Form, Query},
            routes::Pages,
        },
        page::{Nav, Page},
        views::{self, ImageForm, ImageRow, ImagesPage, StorageView},
    },
};

/// Adds the forms of the page. The page itself needs other scopes.
pub fn forms(pages: Pages) -> Pages {
    pages
        .post("/images", add)
        .post("/images/clean", clean)
        .post("/images/{name}/pull", pull)
        .post("/images/{name}/remove", remove)
}

/// The address of the page.
#[derive(Default, Deserialize)]
pub struct PageParams {
    done: Option<String>,
}

/// `/images`
pub async fn list(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let mut view = view(&portal, &user).await?;
    view.notice = visit.done.and_then(|done| notice(&done)).map(str::to_owned);
    Ok(Page(view).into_response())
}

fn notice(done: &str) -> Option<&'static str> {
    Some(match done {
        "added" => "The image was added. It is pulled when a session or job needs it, or with Pull.",
        "pulling" => "The image is being pulled.",
        "removed" => "The image was removed.",
        "cleaned" => "What is not needed was removed.",
        _ => return None,
    })
}

/// `POST /images`
async fn add(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    portal.check_images()?;
    let text = |name: &str| form.get(name).trim().to_owned();
    let typed = ImageForm {
        name: text("name"),
        title: text("title"),
        reference: text("reference"),
        groups: text("groups"),
        is_private: form.get("private") == "on",
    };
    let groups = typed.groups.split([' ', ',']).filter(|group| !group.is_empty()).map(str::to_owned).collect();
    let new = NewImage {
        name: typed.name.clone(),
        title: typed.title.clone(),
        reference: typed.reference.clone(),
        groups,
        is_private: typed.is_private,
    };
    let error = match portal.sessions.images.add(&user.user, new).await.map_err(Error::from) {
        Ok(_) => return Ok(Redirect::to("/images?done=added").into_response()),
        Err(error) if error.is_for_the_form() => error,
        Err(error) => return Err(error),
    };
    let mut view = view(&portal, &user).await?;
    view.errors = error.field_errors().iter().map(views::FieldError::from).collect();
    if view.errors.is_empty() {
        view.errors.push(views::FieldError { field: "name".to_owned(), message: error.detail().to_owned() });
    }
    view.form = typed;
    Ok(error.with_page(Page(view)))
}

/// `POST /images/{name}/pull`
async fn pull(user: CurrentUser, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Redirect> {
    portal.check_image_is_theirs(&user, &name)?;
    portal.check_images()?;
    portal.sessions.images.pull(user.user.name.as_str(), &name).await?;
    Ok(Redirect::to("/images?done=pulling"))
}

/// `POST /images/{name}/remove`
async fn remove(user: CurrentUser, State(portal): State<Arc<Portal>>, Path(name): Path<String>) -> Result<Redirect> {
    portal.check_image_is_theirs(&user, &name)?;
    portal.sessions.images.remove(user.user.name.as_str(), &name).await?;
    Ok(Redirect::to("/images?done=removed"))
}

/// `POST /images/clean`
async fn clean(Admin(admin): Admin, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let typed = form.get("unused_days").trim().to_owned();
    let typed_days = Some(&typed).filter(|typed| !typed.is_empty());
    // What is not a number is as wrong as a negative one.
    let unused = typed_days.map(|days| super::storage::days(days.parse().unwrap_or(-1))).transpose();
    let error = match unused {
        Ok(unused) => {
            portal.sessions.images.clean(admin.user.name.as_str(), unused).await?;
            return Ok(Redirect::to("/images?done=cleaned").into_response());
        }
        Err(error) => error,
    };
    let mut view = view(&portal, &CurrentUser(admin)).await?;
    view.errors = error.field_errors().iter().map(views::FieldError::from).collect();
    view.unused_days = typed;
    Ok(error.with_page(Page(view)))
}

async fn view(portal: &Portal, user: &CurrentUser) -> Result<ImagesPage> {
    let now = portal.clock.now();
    let rows =
        portal.sessions.images_for(user.actor()).iter().map(|image| ImageRow::new(image, &user.user, now)).collect();
    let known = portal.sessions.images.list();
    let is_new = |name: &str| !known.iter().any(|image| image.name == name);
    let suggestions = SUGGESTIONS.iter().filter(|one| user.0.is_admin() && is_new(one.name)).collect();
    let storage = if user.0.is_admin() { Some(portal.sessions.images.storage().await?) } else { None };
    Ok(ImagesPage {
        suggestions,
        may_add: portal.sessions.images.may_add(&user.user),
        storage: storage.map(|storage| StorageView::new(&storage, now)),
        unused_days: String::new(),
        layout: portal.layout_of(&user.0, Nav::Images),
        notice: None,
        rows,
        form: ImageForm::default(),
        errors: Vec::new(),
    })
}
