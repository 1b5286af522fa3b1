"""The batches of a log as its store has them: put once, read back, and told of if they are gone."""

from __future__ import annotations

from pubsub_aio.errors import DataLossError, WalError
from pubsub_aio.spark.streaming.layout import (
    IDS,
    LOG,
    last_of_ids,
    log_name,
    names_in,
    number_of_manifest,
)
from pubsub_aio.spark.streaming.manifests import Manifest
from pubsub_aio.spark.streaming.stores import Store, reading, writing


class Ledger:
    """The manifests of a log.

    Args:
        store: Where the log is.
        wal: Its id.
    """

    def __init__(self, store: Store, wal: str) -> None:
        self._store = store
        self._wal = wal

    @property
    def last(self) -> int:
        """The number of the last batch; 0 if there is none, or it was forgotten."""
        return max(map(number_of_manifest, self._names(LOG)), default=0)

    def get(self, seq: int) -> Manifest:
        """A batch that was sealed.

        Raises:
            WalError: It was done with long ago.
            DataLossError: It is not there, or damaged.
        """
        name = log_name(seq)
        try:
            with reading(self._store, name):
                manifest = Manifest.read(self._store.get(name))
            if (manifest.wal, manifest.seq) != (self._wal, seq):
                raise ValueError(f"it is batch {manifest.seq} of the log {manifest.wal!r}")
        except (ValueError, FileNotFoundError) as error:
            if isinstance(error, FileNotFoundError) and self.has_forgotten(seq):
                raise WalError(
                    f"{self.too_old(seq)}. Bring back the newer one; or begin with a new one, and "
                    "delete marks/begun in the walLocation: the query then has all that was not "
                    "done with"
                ) from error
            what = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged ({error})"
            raise DataLossError(
                f"walLocation: {self._store.location}/{name} {what}. Nobody knows without it which "
                "messages were in that batch: bring it back, or begin anew with another "
                "walLocation and checkpoint"
            ) from error
        return manifest

    def put(self, manifest: Manifest) -> bool:
        """Seal a batch; returns False if another driver has sealed one of that number.

        Raises:
            WalError: Others have gone on, and have even forgotten the batch of that number. They
                leave the file with the ids of the last ones that they have deleted.
        """
        name = log_name(manifest.seq)
        with writing(self._store):
            if not self._store.put_if_absent(name, [manifest.write()]):
                return False
        if not self.has_forgotten(manifest.seq):
            return True
        with writing(self._store):
            self._store.delete([name])  # nobody needs it, nor may take it for the one of then
        raise WalError(
            f"walLocation: others have gone on with {self._store.location} since this query "
            "was last awake: stop all but one"
        )

    def has_forgotten(self, seq: int) -> bool:
        """Whether a batch was done with, and what it had was deleted."""
        return any(last_of_ids(name) >= seq for name in self._names(IDS))

    def too_old(self, seq: int) -> str:
        """How that is told."""
        return (
            f"walLocation: {self._store.location} has deleted what was in batch {seq}, for it was "
            "done with: the checkpoint is older than the log, as one is that comes from a backup"
        )

    def _names(self, folder: str) -> list[str]:
        with reading(self._store, folder):
            return names_in(self._store, folder)
