//! Notebooks in images, through the portal: an image that has JupyterLab runs it inside; one that has only ipykernel is
//! the kernel of a JupyterLab on the host; one that has neither is refused. The images are imported from archives, as
//! `docker save` writes them, by the command line.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use super::settled;
use crate::{
    containers::image::Image,
    idleness::{
        jupyter::{kernel_of, request},
        jupyters_python,
    },
    life::{House, Person},
    needs,
    wait::eventually,
};

/// Which system it is, as whom, and whether the home is there.
const LOOK: &str = "import os, sys\nprint(open('/etc/os-release').read().strip(), os.getuid(), os.environ.get('OF_IMAGE'), \
                    sys.prefix)\nopen(os.path.expanduser('~/from-' + os.environ['MARK']), 'w').write('x')";

#[tokio::test]
async fn a_cell_runs_in_an_image_with_and_without_jupyterlab() {
    if !needs::root() {
        return;
    }
    let Some(python) = jupyters_python(needs::met) else { return };
    let environment = Path::new(&python).parent().unwrap().parent().unwrap();
    let (Some(lab), Some(kernel), Some(bare)) =
        (Image::with_python(environment), Image::with_python(environment), Image::busybox())
    else {
        return;
    };
    lab.install(environment, &["jupyterlab", "ipykernel"]);
    kernel.install(environment, &["ipykernel"]);
    let mut house = House::new(&[]);
    house.configure(&format!("[[environments.list]]\nname = 'default'\ntitle = 'Tested'\npython = '{python}'\n"));
    house.start().await;
    let (person, admin) = (house.person(), house.admin());
    admin.allow(&house, &person, json!({ "light": -1, "sessions": -1, "cpus": 64, "memory_bytes": -1 })).await;
    for (name, archive) in [("lab", lab.save("lab")), ("kernel", kernel.save("kernel")), ("bare", bare.save("bare"))] {
        import(&house, &admin, name, &archive);
        fs::remove_file(archive).unwrap();
        settled(&house, &person, name, "ready").await;
    }
    let image = person.get(&house, "/images/lab").await;
    assert!(image["inside"]["packages"]["jupyterlab"].is_string(), "{image}");
    assert!(image["inside"]["python"].as_str().is_some_and(|series| series.starts_with("3.")), "{image}");
    let image = person.get(&house, "/images/kernel").await;
    let packages = &image["inside"]["packages"];
    assert!(packages["ipykernel"].is_string() && packages["jupyterlab"].is_null(), "{image}");

    let asked = json!({ "app": "jupyter", "image": "bare" });
    let (status, refused) = person.ask(&house, "POST", "/sessions", &asked).await;
    assert_eq!((status, &refused["errors"][0]["code"]), (422, &json!("image_lacks")), "{refused}");
    assert!(refused["errors"][0]["message"].as_str().unwrap().contains("neither JupyterLab nor ipykernel"));
    let asked = json!({ "app": "tensorboard", "image": "bare" });
    let (status, refused) = person.ask(&house, "POST", "/sessions", &asked).await;
    assert_eq!((status, &refused["errors"][0]["code"]), (422, &json!("image_lacks")), "{refused}");

    let account = format!("ly-{}", person.name);
    for name in ["lab", "kernel"] {
        let resources = json!({ "cpus": 4, "memory_bytes": 2_i64 << 30 });
        let id = person.start(&house, json!({ "app": "jupyter", "image": name, "resources": resources })).await;
        eventually(&format!("JupyterLab of {name} runs"), async || {
            let session = person.session(&house, id).await;
            assert_ne!(session["state"], "ended", "{session}");
            (session["state"] == "running").then_some(())
        })
        .await;
        // The account is made at the first start.
        let uid = nix::unistd::User::from_name(&account).unwrap().unwrap().uid;
        let specs: Value =
            request(&house, &person, "GET", id, "/api/kernelspecs").send().await.unwrap().json().await.unwrap();
        let chosen = specs["default"].as_str().unwrap().to_owned();
        assert_eq!(chosen.starts_with("image-kernel-"), name == "kernel", "{specs}");
        assert!(specs["kernelspecs"][&chosen].is_object(), "{specs}");
        let mut notebook = kernel_of(&house, &person, id, &chosen).await;
        let said = notebook.run(&format!("import os; os.environ['MARK'] = '{name}'\n{LOOK}")).await;
        assert_eq!(said.trim(), format!("NAME=\"Made by a test\" {uid} yes /usr"));
        assert!(Path::new("/home").join(&account).join(format!("from-{name}")).exists());
        notebook.execute("import time\nprint('begun', flush=True)\nfor _ in range(6000): time.sleep(0.1)").await;
        assert_eq!(notebook.until_printed().await.trim(), "begun");
        let path = format!("/api/kernels/{}/interrupt", notebook.id);
        assert_eq!(request(&house, &person, "POST", id, &path).send().await.unwrap().status(), 204);
        assert_eq!(notebook.until("idle").await, "KeyboardInterrupt");
        let session = person.session(&house, id).await;
        let digest = person.get(&house, &format!("/images/{name}")).await["digest"].clone();
        assert_eq!(session["image_digest"], digest, "{session}");
        drop(notebook);
        person.end(&house, id).await;
    }
}

/// Imports an archive by the command line, and waits for it.
fn import(house: &House, admin: &Person, name: &str, archive: &Path) {
    let token = admin.authorization().replace("Bearer ", "");
    let output = Command::new(env!("CARGO_BIN_EXE_lyceum"))
        .args(["image", "import", name])
        .arg(archive)
        .arg("--wait")
        .env("LYCEUM_URL", &house.url)
        .env("LYCEUM_TOKEN", token)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains(&format!("{name} ready")), "{said}");
}
