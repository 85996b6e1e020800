# What JupyterLab must have in a session of Lyceum and what must not stand on a command line, which everybody on the
# machine can read. This folder is searched before `~/.jupyter` and the environment's, and what a section says inside
# that of the server wins over the same section by itself: nothing that is set there takes the portal's token away.
import os

token = os.environ["JUPYTER_TOKEN"]
c.ServerApp.PasswordIdentityProvider.token = token  # noqa: F821
c.ServerApp.IdentityProvider.token = token  # noqa: F821

try:
    from jupyter_server import version_info
except ImportError:
    version_info = (2,)
if version_info[0] < 2:
    # The identity provider came with version 2.
    c.ServerApp.token = token  # noqa: F821

# The same shell as in the terminal app; its file puts the session's Python first again.
shell = os.environ.get("SHELL", "")
if os.path.basename(shell) == "bash" and "LYCEUM_BASHRC" in os.environ:
    c.ServerApp.terminado_settings = {"shell_command": [shell, "--rcfile", os.environ["LYCEUM_BASHRC"]]}  # noqa: F821
elif os.path.basename(shell) in ("sh", "dash") and "LYCEUM_BASHRC" in os.environ:
    # These read the file that ENV names, which reads the profile files itself.
    os.environ.setdefault("ENV", os.environ["LYCEUM_BASHRC"])
    c.ServerApp.terminado_settings = {"shell_command": [shell]}  # noqa: F821

# For the portal's extension of the page: the portal writes folders below the home as `~/…`.
c.ServerApp.tornado_settings.update({"page_config_data": {"lyceumHome": os.path.expanduser("~")}})  # noqa: F821
