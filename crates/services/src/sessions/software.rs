//! What a session's program runs with: whether its image or its environment is there, which images a user may use,
//! and what an image lacks for an app. JupyterLab runs in an image that has it; for one that has only ipykernel it runs
//! on the host, with its kernel in the image. How images are pulled is left to `images`.

use lyceum_images::Image;
use lyceum_model::{Resources, Session, cuda, gpus::Driver};
use lyceum_node::apps::{App, AppKind};
use lyceum_wire::protocol::{Container, ImageKernel};

use super::{Actor, Error, Result, Sessions, StartRequest, launch::is_path};
use crate::{
    environments::{DEFAULT, State as EnvironmentState, cpu_only},
    images::{Entry, Lab, Readiness, State, as_sentence, driver_objection, lab},
};

/// Why images cannot be used, as the end of a sentence.
const NOT_SHARED: &str = "images can be used on this cluster only if the administrator sets `images.directory` to a \
                          folder that all nodes see; omit this field";

/// Returns what an app needs that an image was found not to have, as a sentence.
fn lacking(app: &App, name: &str, image: &Image) -> Option<String> {
    let contents = image.contents.as_ref()?;
    match app.kind {
        AppKind::Jupyter if lab(image) == Lab::None => Some(format!(
            "the image ‘{name}’ has neither JupyterLab nor ipykernel: choose another image or another app"
        )),
        AppKind::TensorBoard if !contents.has("tensorboard") => {
            Some(format!("the image ‘{name}’ has no TensorBoard: start it without an image"))
        }
        _ => None,
    }
}

impl Sessions {
    /// Returns the images that a user sees: those that they may use, and for administrators all.
    pub fn images_for(&self, actor: Actor<'_>) -> Vec<Entry> {
        self.images.list().into_iter().filter(|image| image.is_visible_to(actor.user)).collect()
    }

    /// Returns the images that a user may use: their own and those of their groups, and for administrators those of all
    /// groups.
    pub fn usable_images(&self, actor: Actor<'_>) -> Vec<Entry> {
        self.images.list().into_iter().filter(|image| image.allows(actor.user)).collect()
    }

    /// Why this image will not do: a code and a sentence.
    pub(super) fn objection_to_image(
        &self,
        actor: Actor<'_>,
        app: Option<&App>,
        name: &str,
        request: &StartRequest,
    ) -> Option<(&'static str, String)> {
        let said = |code, sentence: &str| Some((code, sentence.to_owned()));
        if !self.can_use_images() {
            return said("not_available", NOT_SHARED);
        }
        if app.is_some_and(|app| app.kind == AppKind::Model) {
            return said("not_for_this_app", "the model service runs in an environment; omit this field");
        }
        if request.environment.as_deref().is_some_and(|name| !name.trim().is_empty()) {
            return said("ambiguous", "give an environment or an image, not both");
        }
        if !request.modules.is_empty() {
            return said("ambiguous", "modules cannot be loaded in an image; give modules or an image, not both");
        }
        let Some(found) = self.images.find(name).filter(|image| image.allows(actor.user)) else {
            return said("unknown_image", "there is no image with this name that you may use");
        };
        if let Some(reason) = found.failure().filter(|_| found.state() == State::Failed) {
            return Some(("image_failed", format!("the image ‘{name}’ could not be pulled: {reason}")));
        }
        let lacks = lacking(app?, name, found.stored.as_deref()?)?;
        Some(("image_lacks", lacks))
    }

    /// Returns whether images can be used: on this machine, or from a folder that all nodes of the cluster see.
    pub fn can_use_images(&self) -> bool {
        !self.scheduler.has_queue() || self.images.is_shared()
    }

    /// Returns why the driver of this machine is too old for an image, as a sentence with both versions. The drivers of
    /// a cluster's nodes are known on the nodes alone, where the agent looks.
    pub(super) fn objection_to_driver(&self, name: &str, resources: &Resources) -> Option<String> {
        if resources.gpus == 0 {
            return None;
        }
        let Driver::Present { version } = self.scheduler.gpu_watch().driver else { return None };
        let driver = cuda::Driver::of_version(cuda::Version::parse(&version)?)?;
        driver_objection(name, self.images.find(name)?.stored.as_deref()?, driver)
    }

    /// What the app runs in, or the kernel that a JupyterLab on the host offers.
    pub(super) async fn image(
        &self,
        session: &Session,
        app: &App,
        uid: u32,
    ) -> Result<(Option<Container>, Vec<ImageKernel>)> {
        let Some(name) = session.spec.image.as_deref() else { return Ok((None, Vec::new())) };
        let (entry, image) = match self.images.demand(name) {
            Readiness::Ready(entry, image) => (entry, image),
            Readiness::Waits(sentence) | Readiness::Never(sentence) => return Err(Error::Conflict(sentence)),
        };
        // It may have been pulled after the request was checked.
        let lacks = lacking(app, name, &image).map(|sentence| format!("{sentence}."));
        if let Some(sentence) = lacks.or_else(|| self.objection_to_driver(name, &session.spec.resources)) {
            return Err(Error::Conflict(sentence));
        }
        if let Err(error) = self.images.grant(&image, uid).await {
            return Err(Error::Conflict(as_sentence(&error.to_string())));
        }
        self.images.note_use(&image);
        let mounts = self.config.storage.iter().map(|(_, path)| path.clone()).collect();
        let container = entry.container(&image, mounts);
        if app.kind == AppKind::Jupyter && lab(&image) == Lab::Outside {
            let title = if entry.title.is_empty() { entry.name.clone() } else { entry.title.clone() };
            return Ok((None, vec![ImageKernel { title, container }]));
        }
        Ok((Some(container), Vec::new()))
    }

    /// Returns a sentence about a session that holds GPUs which no framework of its environment can use; `None` where
    /// that is not known, as for a command that may bring its own Python.
    pub fn unusable_gpus(&self, session: &Session) -> Option<String> {
        let (app, count) = (self.apps.find(&session.app)?, session.spec.resources.gpus);
        if count == 0 || !session.state.is_live() || session.spec.image.is_some() {
            return None;
        }
        let default = (app.kind == AppKind::Jupyter).then_some(DEFAULT);
        let name = session.spec.environment.as_deref().or(default)?;
        let frameworks = cpu_only(&self.environments.find(name)?.frameworks)?;
        let gpus = if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") };
        Some(format!(
            "{gpus} allocated, but {frameworks} in the environment ‘{name}’ can use CPUs only. Choose another \
             environment, or start without GPUs."
        ))
    }

    /// Returns whether a session needs the default environment beside its image: JupyterLab is on the host then.
    fn needs_lab_beside(&self, session: &Session) -> bool {
        let is_jupyter = self.apps.find(&session.app).is_some_and(|app| app.kind == AppKind::Jupyter);
        let found = session.spec.image.as_deref().and_then(|name| self.images.find(name));
        is_jupyter && found.and_then(|entry| entry.stored).is_some_and(|image| lab(&image) == Lab::Outside)
    }

    /// Returns why a session's image or environment is not ready; an error if it never will be. Both are sentences.
    pub(super) fn waits_for_software(&self, session: &Session) -> Result<Option<String>, String> {
        match session.spec.image.as_deref().map(|name| self.images.demand(name)) {
            None => Ok(self.waits_for_environment(session)),
            Some(Readiness::Ready(..)) if self.needs_lab_beside(session) => Ok(self.waits_for(DEFAULT, false)),
            Some(Readiness::Ready(..)) => Ok(None),
            Some(Readiness::Waits(sentence)) => Ok(Some(sentence)),
            Some(Readiness::Never(sentence)) => Err(sentence),
        }
    }

    /// The sentence for a session whose environment is not there yet.
    fn waits_for_environment(&self, session: &Session) -> Option<String> {
        self.apps.find(&session.app).filter(|app| app.uses_environment)?;
        let asked = session.spec.environment.as_deref()?;
        // One of their own needs nothing of ours but the server, and can do without that.
        let is_own = is_path(asked);
        self.waits_for(if is_own { DEFAULT } else { asked }, is_own)
    }

    /// Returns why an environment is not ready; one of the user's own can do without.
    fn waits_for(&self, name: &str, is_own: bool) -> Option<String> {
        match self.environments.find(name).map(|found| found.state) {
            Some(EnvironmentState::Ready { .. }) => None,
            Some(EnvironmentState::Building { percent, step, .. }) => {
                Some(format!("The environment ‘{name}’ is being built ({percent} %: {step})."))
            }
            _ if is_own => None,
            Some(EnvironmentState::Failed { what, command, .. }) => {
                Some(format!("The environment ‘{name}’ could not be built: {what} To fix it: {command}"))
            }
            Some(EnvironmentState::Missing) | None => {
                Some(format!("The environment ‘{name}’ does not exist. An administrator must provide it."))
            }
        }
    }
}
