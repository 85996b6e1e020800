// @ts-check
// Adds TensorBoard to JupyterLab's launcher and to the menu of a folder: one press leads to the portal's own board of
// that folder. JupyterLab loads this file as a container of webpack's module federation, whose two functions, `init`
// and `get`, are all that its interface asks for; so nothing has to be built.
// https://jupyterlab.readthedocs.io/en/stable/extension/extension_dev.html#prebuilt-extensions
(() => {
  const COMMAND = "lyceum:tensorboard";
  const ICON =
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="#e8710a" stroke-width="2" stroke-linecap="round"><path d="M3 3v18h18"/><path d="m7 15 4-5 3 3 5-7"/></svg>';
  /** @type {any} */
  const lab = globalThis;
  /** @type {any} */
  let shared;

  // A library that JupyterLab shares, in the version that it shares.
  const use = async (name) => {
    const [version] = Object.values(shared[name] ?? {});
    return version ? (await version.get())() : {};
  };

  // The folder as the portal names it: `~/…` below the home.
  function directory(root, home, below) {
    const whole = [root.replace(/\/+$/, ""), below].filter(Boolean).join("/") || "/";
    return home && (whole === home || whole.startsWith(`${home}/`)) ? `~${whole.slice(home.length)}` : whole;
  }

  async function extension() {
    const [{ ILauncher }, { IFileBrowserFactory }, { LabIcon }, { PageConfig }] = await Promise.all(
      ["@jupyterlab/launcher", "@jupyterlab/filebrowser", "@jupyterlab/ui-components", "@jupyterlab/coreutils"].map(
        use,
      ),
    );
    const plugin = {
      id: "lyceum:tensorboard",
      autoStart: true,
      optional: [ILauncher, IFileBrowserFactory].filter(Boolean),
      activate(app, launcher, browsers) {
        const [root, home] = ["serverRoot", "lyceumHome"].map((name) => PageConfig.getOption(name));
        // What is selected in the list of files, if it is a folder, else the folder that the list shows.
        const chosen = () => {
          const browser = browsers?.tracker.currentWidget;
          const folder = [...(browser?.selectedItems() ?? [])].find((item) => item.type === "directory");
          return folder?.path ?? browser?.model.path;
        };
        app.commands.addCommand(COMMAND, {
          label: "TensorBoard",
          caption: "Show the curves of this folder in TensorBoard",
          icon: new LabIcon({ name: COMMAND, svgstr: ICON }),
          execute(args) {
            const below = app.serviceManager.contents.localPath(args.cwd ?? chosen() ?? "");
            const path = directory(root, home, below);
            window.open(`/tensorboard?directory=${encodeURIComponent(path)}`, "_blank", "noopener");
          },
        });
        launcher?.add({ command: COMMAND, category: "Other", rank: 0 });
        app.contextMenu.addItem({ command: COMMAND, selector: '.jp-DirListing-item[data-isdir="true"]', rank: 2 });
      },
    };
    return { __esModule: true, default: plugin };
  }

  (lab._JUPYTERLAB ??= {}).lyceum = {
    init: (scope) => {
      shared = scope;
    },
    get: async () => {
      const made = await extension();
      return () => made;
    },
  };
})();
