//! What an app in a container image needs besides the image: the session's GPUs, and the folders of
//! the host that hold the app's settings and logs. All of it is pure.

use std::path::{Path, PathBuf};

use lyceum_wire::protocol::{AppLaunch, Container, ImageKernel};

use super::{
    App, AppKind,
    context::{Context, Python},
};

/// Returns the Python of an image, which the image's search path finds.
pub(super) fn python() -> Python {
    Python { python: "python3".into(), bin: PathBuf::new(), own: None }
}

/// Returns the launch with the image that the app runs in, or the images that its JupyterLab offers.
pub(super) fn add(launch: AppLaunch, app: &App, context: &Context<'_>) -> AppLaunch {
    let container = context.container.map(|container| in_image(container, app, context));
    let has_kernels = container.is_none() && matches!(app.kind, AppKind::Jupyter);
    let kernels = context.kernels.iter().filter(|_| has_kernels).map(|kernel| of_kernel(kernel, context)).collect();
    AppLaunch { container, kernels, ..launch }
}

/// Returns the image with the GPUs and the folders that this app needs in it.
fn in_image(container: &Container, app: &App, context: &Context<'_>) -> Container {
    let mut container = container.clone();
    if context.gpu_driver {
        container.gpus = context.gpus.to_vec();
    }
    let of_portal = match app.kind {
        // Their settings, or the script that starts them, are the portal's.
        AppKind::Jupyter | AppKind::TensorBoard => context.tensorboard_wrapper.parent(),
        _ => None,
    };
    let logs = context.log_directory.into_iter().chain(context.log_directories.values().map(PathBuf::as_path));
    container.mounts.extend(of_portal.into_iter().chain(logs).map(Path::to_owned));
    container
}

/// Returns the kernel with the session's GPUs.
fn of_kernel(kernel: &ImageKernel, context: &Context<'_>) -> ImageKernel {
    let mut kernel = kernel.clone();
    if context.gpu_driver {
        kernel.container.gpus = context.gpus.to_vec();
    }
    kernel
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::{
        Catalogue,
        launch::{
            Error, launch,
            tests::{argv, context, given},
        },
    };

    #[test]
    fn an_image_has_its_own_python_and_the_sessions_gpus() {
        let given = given();
        let catalogue = Catalogue::default();
        let value = serde_json::json!({
            "name": "x", "digest": format!("sha256:{}", "ab".repeat(32)), "root": "/images/x", "mounts": ["/data"],
        });
        let image: Container = serde_json::from_value(value).expect("an image");
        let kernels = [ImageKernel { title: "X".to_owned(), container: image.clone() }];
        let inside = Context { container: Some(&image), kernels: &kernels, python: None, ..context(&given) };
        let started = launch(catalogue.find("jupyter").expect("built in"), &inside).expect("the image has it");
        assert_eq!(argv(&started)[..2], ["jupyter-lab", "--no-browser"]);
        let container = started.container.expect("it is kept");
        assert_eq!((container.gpus, container.mounts), (given.gpus.clone(), vec!["/data".into(), "/lib".into()]));
        assert!(started.kernels.is_empty(), "its own kernels run beside it");

        let board = catalogue.find("tensorboard").expect("built in");
        let logs = Context { log_directory: Some(Path::new("/logs")), ..inside.clone() };
        let started = launch(board, &logs).expect("the image has it");
        assert_eq!(argv(&started)[..2], ["python3", "/lib/tensorboard.py"]);
        assert_eq!(started.container.expect("it is kept").mounts[1..], [PathBuf::from("/lib"), "/logs".into()]);
        let model = catalogue.find("model").expect("built in");
        assert_eq!(launch(model, &inside).expect_err("not there"), Error::NotInImages("model".to_owned()));

        let beside = Context { kernels: &kernels, gpu_driver: false, ..context(&given) };
        let started = launch(catalogue.find("jupyter").expect("built in"), &beside).expect("everything is there");
        assert_eq!(argv(&started)[0], "/env/bin/python");
        let own = "--MultiKernelManager.default_kernel_name=image-x-abababab";
        assert_eq!(argv(&started).last().map(String::as_str), Some(own));
        assert_eq!(started.kernels, kernels, "without a driver there is no device to open");
        assert!(started.container.is_none());
    }
}
