"""Sign-ins by a directory that takes its time: how many a second, and what others notice."""

import argparse
import pathlib
import socket
import subprocess
import sys

from life import Hub, sign_ins
from rows import row
from stand import Server, free_port, until

BASE = "dc=example,dc=org"
PEOPLE = 64
#: Seconds for each answer of the directory.
PAUSE = 0.2


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def directory(stand):
    """slapd with some people, behind the stand-in that holds its answers back; the port."""
    base, port, slow = stand.directory("slapd"), free_port(), free_port()
    (base / "slapd.conf").write_text(
        "".join(f"include /etc/ldap/schema/{name}.schema\n" for name in ("core", "cosine", "nis", "inetorgperson"))
        + "modulepath /usr/lib/ldap\nmoduleload back_mdb\ndatabase mdb\n"
        f"suffix {BASE}\nrootdn cn=root,{BASE}\nrootpw root-secret\ndirectory {base}\nindex uid eq\n")
    entries = [f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n"]
    entries += [
        f"dn: uid=u{number},{BASE}\nobjectClass: inetOrgPerson\nobjectClass: posixAccount\nuid: u{number}\ncn: u{number}\n"
        f"sn: u\nuidNumber: {30000 + number}\ngidNumber: 30000\nhomeDirectory: /nowhere\nuserPassword: u{number}-secret\n"
        for number in range(PEOPLE)]
    entries.append(f"dn: cn=lab,{BASE}\nobjectClass: groupOfNames\ncn: lab\nmember: uid=u0,{BASE}\n")
    (base / "data.ldif").write_text("\n".join(entries))
    command = ["/usr/sbin/slapadd", "-q", "-f", base / "slapd.conf", "-l", base / "data.ldif"]
    until_ended = Server("slapadd", command, stand.account, log=base / "log").process.wait()
    if until_ended:
        raise subprocess.CalledProcessError(until_ended, command)
    stand.keep(Server("slapd", ["/usr/sbin/slapd", "-f", base / "slapd.conf", "-h", f"ldap://127.0.0.1:{port}", "-d", "0"],
                      stand.account, log=base / "log"))
    relay = pathlib.Path(__file__).parent / "slow.py"
    stand.keep(Server("slow", [sys.executable, relay, slow, port, PAUSE], log=base / "log"))
    until("the directory listens", lambda: listens(port) and listens(slow))
    return slow


@row("directory-logins")
def directory_logins(stand, options):
    """Sign-ins by a directory that takes 200 ms for each answer, and what others notice of them."""
    port = directory(stand)
    portal = stand.portal(config=(
        f'[auth]\nkind = "ldap"\n[auth.ldap]\nurls = ["ldap://127.0.0.1:{port}"]\nstarttls = false\n'
        f'insecure = true\nbind_dn = "cn=root,{BASE}"\nbind_password = "root-secret"\nuser_base = "{BASE}"\n'
        f'group_base = "{BASE}"\nallow_groups = ["*"]\n'))
    people = [(f"u{number}", f"u{number}-secret") for number in range(PEOPLE)]
    what = f"sign-ins by a directory, {PAUSE * 1000:.0f} ms an answer"
    yield from sign_ins(stand, options, portal, people, what)
    hub = stand.keep(Hub(stand, (
        "c.JupyterHub.authenticator_class = 'ldap'\nc.LDAPAuthenticator.server_address = '127.0.0.1'\n"
        f"c.LDAPAuthenticator.server_port = {port}\nc.LDAPAuthenticator.tls_strategy = 'insecure'\n"
        f"c.LDAPAuthenticator.lookup_dn = True\nc.LDAPAuthenticator.user_search_base = '{BASE}'\n"
        f"c.LDAPAuthenticator.lookup_dn_search_user = 'cn=root,{BASE}'\n"
        "c.LDAPAuthenticator.lookup_dn_search_password = 'root-secret'\nc.LDAPAuthenticator.user_attribute = 'uid'\n"
        "c.LDAPAuthenticator.lookup_dn_search_filter = '({login_attr}={login})'\n"
        "c.LDAPAuthenticator.lookup_dn_user_dn_attribute = 'cn'\n")))
    # Whoever asks meanwhile waits for seconds: few rounds take long enough.
    few = argparse.Namespace(**{**vars(options), "rounds": min(options.rounds, 2), "seconds": 1})
    yield from sign_ins(stand, few, hub, people[:8], what)
