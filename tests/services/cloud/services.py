# SPDX-License-Identifier: Apache-2.0

"""A real Keystone, Placement, Glance and Nova API from the package index, as
programs on SQLite.

All listen on loopback ports alone, with their own Paste files:
keystonemiddleware validates each token at Keystone. There is no compute and no
message queue: servers are never built, but Nova's API knows them.
"""

from __future__ import annotations

import os
import sqlite3
import sysconfig
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import requests

from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.reader import example_fleet
from tests.support.processes import free_port
from tests.support.programs import Program, running, until

PASSWORD = "of-tests"  # noqa: S105 - on loopback, for as long as the tests
"""Of each user."""
REGION = "one"
# The user as whom services log in, with the role "service" in a project of
# that name.
SERVICE_USER = "services"

_DATABASE = (
    "connection = sqlite:///{folder}/{name}.sqlite\nsqlite_synchronous ="
    " false\n"
)

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
    name: str
    url: str
    program: Program

    def wait(self) -> None:
        until(
            self._answers,
            lambda: (
                f"{self.name} does not respond:\n{self.program.log[-5000:]}"
            ),
        )

    def _answers(self) -> bool:
        assert self.program.processes(), (
            f"{self.name} ended:\n{self.program.log[-5000:]}"
        )
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
    conf.write_text(
        _KEYSTONE_CONF.format(
            folder=folder, database=_database(folder, "keystone")
        ),
        encoding="utf-8",
    )
    for repository in ("fernet", "credential"):
        (folder / repository).mkdir(mode=0o700)
        for number in ("0", "1"):
            (folder / repository / number).write_bytes(
                urlsafe_b64encode(os.urandom(32))
            )
    manage = ["keystone-manage", "--config-file", str(conf)]
    bootstrap = [
        "bootstrap",
        "--bootstrap-password",
        PASSWORD,
        "--bootstrap-region-id",
        REGION,
    ]
    for name, arguments in (
        ("keystone-schema", ["db_sync"]),
        ("keystone-bootstrap", bootstrap),
    ):
        with running([*manage, *arguments], folder, name) as program:
            program.succeed()
    with program_serving(
        "keystone.wsgi.api",
        folder,
        "keystone",
        {"OS_KEYSTONE_CONFIG_DIR": str(folder)},
    ) as service:
        yield service


@contextmanager
def schemas(folder: Path) -> Iterator[tuple[Program, ...]]:
    """Begin to make the databases of Nova and Glance; :func:`nova` and
    :func:`glance` need them finished.
    """
    databases = {
        "api_database": _database(folder, "nova_api"),
        "database": _database(folder, "nova_cell1"),
    }
    (folder / "nova.conf").write_text(
        _NOVA_DATABASES.format(folder=folder, **databases), encoding="utf-8"
    )
    manage = ["nova-manage", "--config-file", str(folder / "nova.conf")]
    with (
        running([*manage, "api_db", "sync"], folder, "api-sync") as api,
        running(
            [*manage, "db", "sync", "--local_cell"], folder, "cell-sync"
        ) as cell,
        glance_schema(folder, login="keystone") as images,
    ):
        yield api, cell, images


def glance_schema(folder: Path, login: str) -> AbstractContextManager[Program]:
    """Begin to make the database of Glance.

    :param login: ``keystone``, or nothing for a Glance that lets everyone do
        everything
    """
    for name in ("images", "staging", "tasks", "image-cache"):
        (folder / name).mkdir()
    etc = Path(sysconfig.get_path("data"), "etc")
    text = _GLANCE_CONF.format(
        folder=folder,
        etc=etc,
        login=login,
        database=_database(folder, "glance"),
    )
    (folder / "glance-api.conf").write_text(text, encoding="utf-8")
    (folder / "glance-api-paste.ini").touch()  # Older releases read it.
    return running(
        [
            "glance-manage",
            "--config-file",
            str(folder / "glance-api.conf"),
            "db",
            "sync",
        ],
        folder,
        "glance-manage",
    )


@contextmanager
def placement(folder: Path, keystone_url: str) -> Iterator[Service]:
    """Start a Placement with the example fleet, and end it with the
    context.
    """
    with EmbeddedPlacement(
        example_fleet(), database=f"sqlite:///{folder}/placement.sqlite"
    ):
        pass
    _configure(
        folder / "placement.conf", _PLACEMENT_CONF, keystone_url, "placement"
    )
    environment = {"OS_PLACEMENT_CONFIG_DIR": str(folder)}
    with program_starting(
        "placement.wsgi.api", folder, "placement", environment
    ) as service:
        yield service


@contextmanager
def glance(folder: Path, keystone_url: str = "") -> Iterator[Service]:
    """Start a Glance on its finished schema, and end it with the context."""
    if keystone_url:
        _configure(folder / "glance-api.conf", "", keystone_url, "image")
    with program_starting(
        "glance.wsgi.api",
        folder,
        "glance",
        {"OS_GLANCE_CONFIG_DIR": str(folder)},
    ) as service:
        yield service


@contextmanager
def nova(
    folder: Path, keystone_url: str, others_url: str
) -> Iterator[Service]:
    """Start Nova's API on its finished schemas, and end it with the
    context.
    """
    # nova-manage takes seconds for each of these.
    cells = [folder / f"nova_{name}.sqlite" for name in ("cell0", "cell1")]
    with (
        closing(sqlite3.connect(cells[1])) as one,
        closing(sqlite3.connect(cells[0])) as other,
    ):
        one.backup(other)
    with closing(sqlite3.connect(folder / "nova_api.sqlite")) as api, api:
        for number, path in enumerate(cells):
            # The one for servers without a host has the number 0.
            values = (
                str(UUID(int=number)),
                path.stem,
                ("none:///", "fake:/")[number],
                f"sqlite:///{path}",
                False,
            )
            api.execute(
                "INSERT INTO cell_mappings (uuid, name, transport_url,"
                " database_connection, disabled) VALUES (?, ?, ?, ?, ?)",
                values,
            )
    _configure(
        folder / "nova.conf",
        _NOVA_CONF,
        keystone_url,
        "compute",
        others=others_url,
    )
    paste = Path(sysconfig.get_path("data"), "etc", "nova", "api-paste.ini")
    environment = {
        "OS_NOVA_CONFIG_DIR": str(folder),
        "OS_NOVA_CONFIG_FILES": f"{paste};nova.conf",
    }
    with program_starting(
        "nova.wsgi.osapi_compute", folder, "nova", environment
    ) as service:
        yield service


@contextmanager
def program_serving(
    application: str, folder: Path, name: str, environment: Mapping[str, str]
) -> Iterator[Service]:
    """Serve a WSGI application, by the name of its module, in a program of its
    own while the context lasts.
    """
    with program_starting(application, folder, name, environment) as service:
        service.wait()
        yield service


@contextmanager
def program_starting(
    application: str, folder: Path, name: str, environment: Mapping[str, str]
) -> Iterator[Service]:
    """Do as :func:`program_serving`, but do not wait until it answers."""
    root = str(Path(__file__).parents[3])
    port = free_port()
    argv = [
        "python",
        "-m",
        "tests.services.cloud.serve",
        application,
        str(port),
    ]
    with running(
        argv, folder, name, {**environment, "PYTHONPATH": root}
    ) as program:
        yield Service(name, f"http://127.0.0.1:{port}", program)


def _database(folder: Path, name: str) -> str:
    return _DATABASE.format(folder=folder, name=name)


def _configure(
    path: Path, text: str, keystone_url: str, service_type: str, **values: str
) -> None:
    folder = path.parent
    settings = {
        "folder": folder,
        "keystone": keystone_url,
        "service_type": service_type,
        **values,
    }
    added = (text + _AUTHTOKEN).format(
        database=_database(folder, "placement"), **settings
    )
    with path.open("a", encoding="utf-8") as file:
        file.write(added)
