"""Imports go down the layers only: a module may know what stands below it, nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pubsub_aio

ROOT = Path(pubsub_aio.__file__).parent
VALUES = {"message", "config", "errors"}
CLIENTS = {"subscriber", "publisher", "admin"}
PUBLIC = CLIENTS | VALUES | {"jobs", "emulator", "testing", "spark"}

ALLOWED = {
    "errors": set(),
    "filters": set(),
    "config": {"errors"},
    "message": {"errors"},
    "_core": {"config", "errors"},
    "_wire": VALUES,
    "tracing": VALUES,
    "emulator": {"_wire.schema", "_wire.rpcs", "filters"} | VALUES,
    "subscriber": {"_core", "_wire", "tracing"} | VALUES,
    "publisher": {"_core", "_wire", "tracing"} | VALUES,
    "admin": {"_core", "_wire"} | VALUES,
    "deduplicator": {"_core"} | VALUES,
    "testing": {"emulator", "_wire"} | VALUES,
    "jobs": CLIENTS | {"_core", "tracing", "filters"} | VALUES,
    "spark": CLIENTS | {"_wire.codec"} | VALUES,
    "pytest_plugin": {"testing", "emulator"} | CLIENTS,
    "cli": PUBLIC | {"filters"},
    "__main__": {"cli"},
    "__init__": PUBLIC | {"deduplicator"},
}

PURE = {
    "emulator": {
        *(
            "access",
            "ack_ids",
            "alarms",
            "administration",
            "broker",
            "catalogue",
            "changes",
            "dead_letters",
            "deliveries",
            "durations",
            "exports",
        ),
        *(
            "iam",
            "journal",
            "lanes",
            "leases",
            "limits",
            "log",
            "names",
            "paging",
            "policies",
            "principals",
            "progress",
            "quotas",
            "records",
            "resources",
        ),
        *("push_request", "push_settings", "pushing"),
        *(f"storage/{name}" for name in ("blocks", "capturing", "frames", "ledger", "restoring")),
        *("storage/saved", "storage/segments"),
        *("response", "settings", "snapshots", "status", "subscriptions", "topics"),
        *("seeds/bare", "seeds/calls", "seeds/durations", "seeds/mistakes", "seeds/planning"),
        *("seeds/rehearsal", "seeds/revisions", "seeds/scalars", "seeds/sowing", "seeds/tree"),
        # Not schemas/protoc: the compiler that it calls reads files.
        *(f"schemas/avro{part}" for part in ("", "_binary", "_json", "_resolution", "_types")),
        *(f"schemas/{name}" for name in ("definitions", "errors", "protobuf", "registry")),
        *("response", "roles", "settings", "snapshots", "status", "subjects", "subscriptions"),
        *("topics", "transforms"),
    }
}
FORBIDDEN_IN_PURE = {
    *("asyncio", "grpc", "logging", "os", "random", "secrets", "socket", "threading", "time"),
}


def test_modules_import_only_what_stands_below_them() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports pubsub_aio.{target}"
        for path in ROOT.rglob("*.py")
        for target in imports_of_ours(path)
        if not allowed(layer_of(path), target)
    ]

    assert wrong == []


def test_every_module_has_a_layer() -> None:
    assert {layer_of(path) for path in ROOT.rglob("*.py")} <= ALLOWED.keys()


def test_decisions_do_no_io_and_read_no_clock() -> None:
    modules = [ROOT / package / f"{name}.py" for package, names in PURE.items() for name in names]
    modules += [ROOT / "filters.py", *(ROOT / "_core").glob("*.py")]
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules
        for name in imported(path)
        if name.split(".")[0] in FORBIDDEN_IN_PURE
    ]

    assert wrong == []


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def allowed(layer: str, target: str) -> bool:
    """Whether a layer may import that module of ours."""
    if target.split(".", maxsplit=1)[0] in (layer, "__version__"):
        return True
    return any(target == top or target.startswith(f"{top}.") for top in ALLOWED[layer])


def imports_of_ours(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports, without the package's own name."""
    for name in imported(path):
        if name.startswith("pubsub_aio."):
            yield name.removeprefix("pubsub_aio.")


def imported(path: Path) -> Iterator[str]:
    """Every name that a file imports, in full."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
