"""A real Keystone, Placement, Glance and Nova API from the package index, as programs on SQLite.

All listen on loopback ports alone, with their own Paste files: keystonemiddleware validates each token at Keystone.
There is no compute and no message queue: servers are never built, but Nova's API knows them.
"""

import grp
import os
import pwd
import socket
import sqlite3
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.fleet.reader import example_fleet
from tests.support.programs import Program, running, until

PASSWORD = "of-tests"  # noqa: S105 - on loopback, for as long as the tests
"""Of each user."""
REGION = "one"
# The user as whom services log in, with the role "service" in a project of that name.
SERVICE_USER = "services"

_DATABASE = "connection = sqlite:///{folder}/{name}.sqlite\nsqlite_synchronous = false\n"

_KEYSTONE_CONF = """
[database]
{database}
[fernet_tokens]
key_repository = {folder}/fernet
[fernet_receipts]
key_repository = {folder}/fernet
[credential]
key_repository = {folder}/credential
[identity]
# Else each login takes a third of a second.
password_hash_rounds = 4
"""

_LOGIN = f"""
auth_type = password
auth_url = {{keystone}}/v3
username = {SERVICE_USER}
password = {PASSWORD}
project_name = {SERVICE_USER}
user_domain_id = default
project_domain_id = default
region_name = {REGION}
"""

_AUTHTOKEN = f"""
[keystone_authtoken]
{_LOGIN}
interface = internal
service_type = {{service_type}}
service_token_roles_required = true
"""

_PLACEMENT_CONF = """
[placement_database]
{database}
[oslo_policy]
policy_file = {folder}/placement-policy.yaml
"""

_GLANCE_CONF = """
[DEFAULT]
enabled_backends = files:file
worker_self_reference_url = http://127.0.0.1:1
api_limit_max = 3
log_file = {folder}/glance-own.log
[database]
{database}
[glance_store]
default_backend = files
[files]
filesystem_store_datadir = {folder}/images
[os_glance_staging_store]
filesystem_store_datadir = {folder}/staging
[os_glance_tasks_store]
filesystem_store_datadir = {folder}/tasks
[image_cache]
image_cache_dir = {folder}/image-cache
[oslo_concurrency]
lock_path = {folder}/locks
[oslo_policy]
policy_file = {folder}/glance-policy.yaml
[paste_deploy]
flavor = {login}
config_file = {etc}/glance/glance-api-paste.ini
"""

_NOVA_DATABASES = """
[DEFAULT]
host = api
state_path = {folder}
transport_url = fake:/
[api_database]
{api_database}
[database]
{database}
[oslo_concurrency]
lock_path = {folder}/locks
"""

_NOVA_CONF = f"""
[api]
max_limit = 3
[cinder]
catalog_info = block-storage::publicURL
[glance]
region_name = {REGION}
[neutron]
endpoint_override = {{others}}
auth_type = none
endpoint = {{others}}
[oslo_policy]
policy_file = {{folder}}/nova-policy.yaml
[placement]
{_LOGIN}
"""


@dataclass
class Service:
    """A program that answers at a URL."""

    name: str
    url: str
    program: Program

    def wait(self) -> None:
        """Wait until it answers."""
        until(self._answers, lambda: f"{self.name} does not answer:\n{self.program.log[-5000:]}")

    def _answers(self) -> bool:
        assert self.program.processes(), f"{self.name} ended:\n{self.program.log[-5000:]}"
        try:
            with requests.Session() as http:
                http.trust_env = False
                http.get(self.url, timeout=60)
        except requests.ConnectionError:
            return False
        return True


@contextmanager
def keystone(folder: Path) -> Iterator[Service]:
    """Run a Keystone with its first administrator while the context lasts."""
    conf = folder / "keystone.conf"
    conf.write_text(_KEYSTONE_CONF.format(folder=folder, database=_database(folder, "keystone")), encoding="utf-8")
    manage = ["keystone-manage", "--config-file", str(conf)]
    user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(os.getegid()).gr_name
    owner = ["--keystone-user", user, "--keystone-group", group]
    for name in ("fernet", "credential"):
        (folder / name).mkdir(mode=0o700)
    with (
        running([*manage, "db_sync"], folder, "keystone-schema") as schema,
        running([*manage, "fernet_setup", *owner], folder, "keystone-fernet") as fernet,
        running([*manage, "credential_setup", *owner], folder, "keystone-credential") as credential,
    ):
        for each in (schema, fernet, credential):
            each.succeed()
    bootstrap = ["bootstrap", "--bootstrap-password", PASSWORD, "--bootstrap-region-id", REGION]
    with running([*manage, *bootstrap], folder, "keystone-bootstrap") as program:
        program.succeed()
    with program_serving("keystone.wsgi.api", folder, "keystone", {"OS_KEYSTONE_CONFIG_DIR": str(folder)}) as service:
        yield service


@contextmanager
def schemas(folder: Path) -> Iterator[tuple[Program, ...]]:
    """Begin to make the databases of Nova and Glance; :func:`nova` and :func:`glance` need them finished."""
    databases = {"api_database": _database(folder, "nova_api"), "database": _database(folder, "nova_cell1")}
    (folder / "nova.conf").write_text(_NOVA_DATABASES.format(folder=folder, **databases), encoding="utf-8")
    with (
        _managing_nova(folder, "api_db", "sync") as api,
        _managing_nova(folder, "db", "sync", "--local_cell") as cell,
        glance_schema(folder, login="keystone") as images,
    ):
        yield api, cell, images


def glance_schema(folder: Path, login: str) -> AbstractContextManager[Program]:
    """Begin to make the database of Glance.

    :param login: ``keystone``, or nothing for a Glance that lets everyone do everything
    """
    for name in ("images", "staging", "tasks", "image-cache"):
        (folder / name).mkdir()
    etc = Path(sysconfig.get_path("data"), "etc")
    text = _GLANCE_CONF.format(folder=folder, etc=etc, login=login, database=_database(folder, "glance"))
    (folder / "glance-api.conf").write_text(text, encoding="utf-8")
    return running(
        ["glance-manage", "--config-file", str(folder / "glance-api.conf"), "db", "sync"], folder, "glance-manage"
    )


@contextmanager
def placement(folder: Path, keystone_url: str) -> Iterator[Service]:
    """Start a Placement with the example fleet, and end it with the context."""
    with EmbeddedPlacement(example_fleet(), database=f"sqlite:///{folder}/placement.sqlite"):
        pass
    _configure(folder / "placement.conf", _PLACEMENT_CONF, keystone_url, "placement")
    environment = {"OS_PLACEMENT_CONFIG_DIR": str(folder)}
    with program_starting("placement.wsgi.api", folder, "placement", environment) as service:
        yield service


@contextmanager
def glance(folder: Path, keystone_url: str = "") -> Iterator[Service]:
    """Start a Glance on its finished schema, and end it with the context."""
    if keystone_url:
        _configure(folder / "glance-api.conf", "", keystone_url, "image")
    with program_starting("glance.wsgi.api", folder, "glance", {"OS_GLANCE_CONFIG_DIR": str(folder)}) as service:
        yield service


@contextmanager
def nova(folder: Path, keystone_url: str, others_url: str) -> Iterator[Service]:
    """Start Nova's API on its finished schemas, and end it with the context."""
    cell0 = f"{folder}/nova_cell0.sqlite"
    # To make the schema again takes Nova seconds.
    with closing(sqlite3.connect(folder / "nova_cell1.sqlite")) as one, closing(sqlite3.connect(cell0)) as other:
        one.backup(other)
    with (
        _managing_nova(folder, "cell_v2", "map_cell0", "--database_connection", f"sqlite:///{cell0}") as one_mapping,
        _managing_nova(folder, "cell_v2", "create_cell", "--name", "cell1") as other_mapping,
    ):
        one_mapping.succeed()
        other_mapping.succeed()
    _configure(folder / "nova.conf", _NOVA_CONF, keystone_url, "compute", others=others_url)
    paste = Path(sysconfig.get_path("data"), "etc", "nova", "api-paste.ini")
    environment = {"OS_NOVA_CONFIG_DIR": str(folder), "OS_NOVA_CONFIG_FILES": f"{paste};nova.conf"}
    with program_starting("nova.wsgi.osapi_compute", folder, "nova", environment) as service:
        yield service


@contextmanager
def program_serving(application: str, folder: Path, name: str, environment: Mapping[str, str]) -> Iterator[Service]:
    """Serve a WSGI application, by the name of its module, in a program of its own while the context lasts."""
    with program_starting(application, folder, name, environment) as service:
        service.wait()
        yield service


@contextmanager
def program_starting(application: str, folder: Path, name: str, environment: Mapping[str, str]) -> Iterator[Service]:
    """Do as :func:`program_serving`, but do not wait until it answers."""
    root = str(Path(__file__).parents[3])
    port = free_port()
    argv = ["python", "-m", "tests.services.cloud.serve", application, str(port)]
    with running(argv, folder, name, {**environment, "PYTHONPATH": root}) as program:
        yield Service(name, f"http://127.0.0.1:{port}", program)


def free_port() -> int:
    """Return a port on which nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _managing_nova(folder: Path, *argv: str) -> AbstractContextManager[Program]:
    return running(["nova-manage", "--config-file", str(folder / "nova.conf"), *argv], folder, "-".join(argv[:2]))


def _database(folder: Path, name: str) -> str:
    return _DATABASE.format(folder=folder, name=name)


def _configure(path: Path, text: str, keystone_url: str, service_type: str, **values: str) -> None:
    """Add to a configuration file, with the way to Keystone."""
    folder = path.parent
    settings = {"folder": folder, "keystone": keystone_url, "service_type": service_type, **values}
    added = (text + _AUTHTOKEN).format(database=_database(folder, "placement"), **settings)
    with path.open("a", encoding="utf-8") as file:
        file.write(added)
