//! How JupyterLab is started so that the portal reaches it whatever a person has in `~/.jupyter`.
//! What the portal needs stands on the command line, which wins over every file; its token is in
//! `jupyter_server_config.py` beside this file, which reads it from the environment.

use std::{collections::BTreeMap, path::Path};

use super::{
    context::{Context, Python},
    launch::{ready, text},
};
use lyceum_wire::protocol::{Program, ReadyProbe, files};

/// What would keep the server from its socket, from speaking plain HTTP below its base URL, or
/// from accepting the portal's token. A port of another number than this ends a server that has
/// a socket, and so does a file to open.
const FIXED: [&str; 24] = [
    "--no-browser",
    "--ServerApp.port=8888",
    "--ServerApp.port_retries=0",
    "--ServerApp.ip=localhost",
    "--ServerApp.file_to_run=",
    "--ServerApp.sock_mode=0660",
    "--ServerApp.certfile=",
    "--ServerApp.keyfile=",
    "--ServerApp.client_ca=",
    "--ServerApp.ssl_options={}",
    "--ServerApp.websocket_url=",
    "--ServerApp.allow_origin=",
    "--ServerApp.allow_origin_pat=",
    "--ServerApp.allow_credentials=False",
    "--ServerApp.allow_remote_access=True",
    "--ServerApp.trust_xheaders=True",
    "--ServerApp.quit_button=False",
    "--ServerApp.allow_unauthenticated_access=False",
    "--ServerApp.identity_provider_class=jupyter_server.auth.identity.PasswordIdentityProvider",
    "--ServerApp.login_handler_class=jupyter_server.auth.login.LoginHandler",
    "--ServerApp.authorizer_class=jupyter_server.auth.authorizer.AllowAllAuthorizer",
    "--ServerApp.password_required=False",
    "--PasswordIdentityProvider.password_required=False",
    "--KernelManager.transport=ipc",
];

pub(super) fn start(
    environment: &mut BTreeMap<String, String>,
    python: &Python,
    context: &Context<'_>,
) -> (Program, ReadyProbe) {
    // The directory itself, not one below: a kernel's socket adds 50 bytes to it.
    let config = context.tensorboard_wrapper.with_file_name("jupyter");
    for (name, value) in [
        ("JUPYTER_TOKEN", context.token.to_owned()),
        ("JUPYTER_RUNTIME_DIR", text(context.run_directory)),
        // Searched before the user's own and the environment's, which stay.
        ("JUPYTER_CONFIG_PATH", text(&config)),
        ("JUPYTER_PATH", jupyter_path(context, &config)),
        // A kernel of conda's, say, would else import what lies in `~/.local`.
        ("PYTHONNOUSERSITE", "1".to_owned()),
    ] {
        environment.insert(name.to_owned(), value);
    }
    // With it the folder above would not be searched.
    environment.remove("JUPYTER_NO_CONFIG");
    (program(python, context), probe(context))
}

fn program(python: &Python, context: &Context<'_>) -> Program {
    // Jupyter refuses a folder to open that lies outside its root.
    let home = &context.person.home;
    let root = if context.working_directory.starts_with(home) { home } else { context.working_directory };
    // The script by its path, not `-m`: that would put the working directory first among
    // the places where Python looks for modules.
    let mut argv = match context.container {
        // Where it is in an image, the image's search path says.
        Some(_) => vec!["jupyter-lab".to_owned()],
        None => vec![text(&python.python), text(&python.bin.join("jupyter-lab"))],
    };
    argv.extend(FIXED.map(str::to_owned));
    argv.push(format!("--ServerApp.sock={}", text(&context.run_directory.join(files::APP_SOCKET))));
    argv.push(format!("--ServerApp.base_url={}", context.base_url));
    argv.push(format!("--ServerApp.root_dir={}", root.display()));
    argv.push(format!("--FileContentsManager.preferred_dir={}", context.working_directory.display()));
    // Who chose an image wants its kernel, and not that of the server's own Python.
    argv.extend(
        context
            .kernels
            .first()
            .map(|kernel| format!("--MultiKernelManager.default_kernel_name={}", kernel.container.kernel_name())),
    );
    Program::Exec { argv }
}

/// Ready is a server that accepts the portal's token.
fn probe(context: &Context<'_>) -> ReadyProbe {
    let probe = ready(format!("{}api/status?no_track_activity=1", context.base_url), 180);
    ReadyProbe { authorization: Some(format!("token {}", context.token)), statuses: vec![200], ..probe }
}

/// Where the server finds kernels and extensions of the page before all others: the kernel
/// that the agent names, what came with the person's own packages, and the portal's extension.
fn jupyter_path(context: &Context<'_>, config: &Path) -> String {
    let kernels = context.run_directory.join(files::JUPYTER);
    let own = context.python.and_then(|python| python.own.as_ref()).map(|own| own.folder.join("share/jupyter"));
    let places: Vec<String> =
        [Some(kernels), own, Some(config.to_owned())].iter().flatten().map(|path| text(path)).collect();
    places.join(":")
}
